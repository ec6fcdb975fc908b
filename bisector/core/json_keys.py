"""The markers with which a typed object describes its keys in a JSON document, beside the type of an attribute.

They are apart from :mod:`bisector.core.json_document`, because the records of trials use them without loading a
library.
"""

from enum import Enum
from typing import Final, NamedTuple

SCHEMA = "counts up when a key is renamed, removed or changes its meaning; new keys may come at any time"


class Marker(Enum):
    """How the object of an attribute appears in the document."""

    FLAT = "the keys of the object stand in place of the attribute's own; each is null where there is no object"
    PAIRS = "pairs of a name and a value are an object"


FLAT: Final = Marker.FLAT
PAIRS: Final = Marker.PAIRS


class Key(NamedTuple):
    """The key of an attribute, beside its type, if it is not the attribute's name."""

    name: str
