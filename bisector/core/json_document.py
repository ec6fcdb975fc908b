"""JSON documents for scripts: typed objects that describe each of their keys.

A document is a frozen dataclass, or a :class:`JsonObject`. Its keys are the fields whose type has a description, with
the unit: ``Annotated[float, "seconds of the build"]``; and the properties with a :class:`Key` or :class:`Marker`,
whose docstring is the description. Other attributes are no keys.
The schemas in docs/schema/ are generated from the types, and tests validate what commands print against them.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import msgspec

# The type and the value of a key that is not there
Absent: TypeAlias = msgspec.UnsetType
ABSENT: Final = msgspec.UNSET
SCHEMA = "counts up when a key is renamed, removed or changes its meaning; new keys may come at any time"
Document = TypeVar("Document", bound="JsonObject")


class Marker(Enum):
    """How the object of an attribute appears in the document."""

    FLAT = "the keys of the object stand in place of the attribute's own; each is null where there is no object"
    PAIRS = "pairs of a name and a value are an object"


FLAT: Final = Marker.FLAT
PAIRS: Final = Marker.PAIRS


class Key(NamedTuple):
    """Beside a type: the key of an attribute if it is not its name, and of a property that it is a key at all."""

    name: str = ""


class JsonObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a document that other programs of bisector read back (:func:`parsed`).

    A field that is :data:`ABSENT` has no key. A key that is a word of Python is named with ``rename``.
    """


class Member(NamedTuple):
    """A key of an object: the attribute that has its value, the type of the value, and its meaning."""

    key: str
    attribute: str
    hint: Any
    meaning: str
    markers: tuple[Marker, ...] = ()


@cache
def members(kind: type) -> tuple[Member, ...]:
    """Return the keys of an object, in order; a key that is :data:`FLAT` has no meaning of its own."""
    hints = get_type_hints(kind, include_extras=True)
    own = {one.name: one.name for one in fields(kind)} if is_dataclass(kind) else {}
    if issubclass(kind, msgspec.Struct):
        own = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    found = [(name, key, hints[name], "") for name, key in own.items()]
    getters = ((name, one.fget) for name, one in vars(kind).items() if isinstance(one, property) and one.fget)
    found += [
        (name, name, get_type_hints(one, include_extras=True).get("return"), sentence(one)) for name, one in getters
    ]
    told = [(name, key, said, *get_args(hint)) for name, key, hint, said in found if get_origin(hint) is Annotated]
    return tuple(
        Member(
            key=next((one.name for one in beside if isinstance(one, Key)), "") or key,
            attribute=name,
            hint=inner,
            meaning=next((one for one in beside if type(one) is str), said[:1].lower() + said[1:].removesuffix(".")),
            markers=tuple(one for one in beside if isinstance(one, Marker)),
        )
        for name, key, said, inner, *beside in told
        if any(isinstance(one, (str, Key, Marker)) for one in beside)
    )


def sentence(described: object) -> str:
    """Return the first paragraph of a docstring, as JSON schemas have it."""
    return " ".join((described.__doc__ or "").partition("\n\n")[0].split()).replace("``", "`")


def plain(value: Any) -> Any:
    """Convert a document, or anything made of documents, to JSON's own types; NaN and infinity become null.

    Strings stay as git, the kernel and fio gave them, including halves of surrogate pairs.
    """
    match value:
        case Enum() | Path():
            shown: Any = value.value if isinstance(value, Enum) else str(value)
        case float():  # including numpy's floats
            shown = float(value) if math.isfinite(value) else None
        case Mapping():
            shown = {str(key): plain(item) for key, item in value.items()}
        case tuple() | list():
            shown = [plain(item) for item in value]
        case None | bool() | int() | str():
            shown = value
        case _:
            shown = dict(_entries(value))
    return shown


def _entries(value: Any) -> Iterator[tuple[str, object]]:
    kind: type = type(value)
    if not members(kind):
        raise NotImplementedError(f"{kind.__name__} has no form in JSON")
    for one in members(kind):
        item = getattr(value, one.attribute)
        if FLAT in one.markers:
            yield from dict.fromkeys(_names(one.hint)).items() if item is None else _entries(item)
        elif item is not ABSENT:
            yield one.key, plain(dict(item) if PAIRS in one.markers else item)


def _names(hint: Any) -> Iterator[str]:
    """The keys of an object that may be missing."""
    (kind,) = (one for one in get_args(hint) if one is not type(None))
    for one in members(kind):
        yield from (one.key,) if FLAT not in one.markers else _names(one.hint | None)


def text(document: object) -> str:
    """Format a document as it is printed."""
    return json.dumps(plain(document), indent=2) + "\n"


def parsed(text: str, kind: type[Document]) -> Document:
    """Parse a document that another bisector has printed; unknown keys are ignored.

    Raises ``ValueError`` for anything else.
    """
    try:
        return msgspec.convert(json.loads(text), kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(str(error)) from error
