"""What a typed object says of its keys in a JSON document, beside the type of a field or property.

Apart from :mod:`bisector.core.json_document`, since the records of trials say it, and no library is loaded for that.
"""

from enum import Enum
from typing import Final, NamedTuple

SCHEMA = "counts up when a key is renamed, removed or changes its meaning; new keys may come at any time"


class Marker(Enum):
    """How the object of an attribute stands in the document."""

    FLAT = "the keys of the object stand in place of the attribute's own; each is null where there is no object"
    PAIRS = "pairs of a name and a value are an object"


FLAT: Final = Marker.FLAT
PAIRS: Final = Marker.PAIRS


class Key(NamedTuple):
    """Beside a type: the key, where it is not the attribute's name."""

    name: str
