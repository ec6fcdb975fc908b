"""Settings: a setting is a field of a frozen dataclass, with its type, its limits and its row of the option table.

``jobs: Annotated[Count | None, Option("kernel.jobs", AUTO, "compilers at a time", absent=(AUTO, "one for each CPU"))]``

msgspec checks types and limits (:class:`msgspec.Meta`). A :class:`Form` reads and writes values for which TOML and JSON
have no type: sizes, durations, a stack. File, flags, listings and the record are all derived from these rows.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import msgspec

from bisector.core import units
from bisector.core.errors import UserError

Meta = msgspec.Meta  # the limits of a value, beside its type
AUTO = "auto"
_MOST = 1 << 62  # bytes, or another count: numbers of the kernel and of QEMU have 63 bits
_LONGEST_S = 1e9  # longer than anybody waits; keeps every duration exact in a float


class Unfit(Exception):
    """A raw value is not of the type; the caller knows its key and where it was written."""


@dataclass(frozen=True, slots=True)
class Form:
    """How values are written for which TOML has no type.

    ``read`` takes a value of TOML or of the command line, and the directory that relative paths start from; it raises
    :class:`ValueError` or :class:`UserError`. ``write`` is its inverse and gives TOML's types.
    """

    expected: str
    read: Callable[[Any, Path | None], Any]
    write: Callable[[Any], object] = str


def absolute(raw: str, base: Path | None) -> Path:
    """Return a path from ``base``, or from the current directory; symbolic links and ``..`` stay as written.

    Raises :class:`ValueError` if ``raw`` is not a path.
    """
    if not raw.strip() or "\0" in raw:
        raise ValueError(raw)
    try:
        return (base or Path.cwd()).absolute() / Path(raw).expanduser()
    except RuntimeError as error:  # "~name" of an unknown user
        raise ValueError(raw) from error


def _of_text(read: Callable[[str], object]) -> Callable[[object, Path | None], object]:
    return lambda raw, _base: read(raw) if isinstance(raw, str) else raw


def _whole_s(text: str) -> float:
    found = units.duration_s(text)
    return int(found) if found.is_integer() else found


def _share(text: str) -> object:
    return float(text.removesuffix("%")) / 100 if text.endswith("%") else text


_SIZES = "such as 512MiB, 5G or a whole number"
_DURATIONS = "such as 40s, 15min or 1h30m"
Size: TypeAlias = Annotated[int, Form(f"a size {_SIZES}", _of_text(units.size_bytes), units.size_text)]  # bytes
Block: TypeAlias = Annotated[Literal[512, 4096], Form("512 or 4096 bytes", _of_text(units.size_bytes), units.size_text)]
_PER_S = _of_text(lambda text: units.size_bytes(text.removesuffix("/s")))
Bandwidth: TypeAlias = Annotated[int, Form(f"bytes/s {_SIZES}", _PER_S, units.size_text), Meta(ge=0)]
Seconds: TypeAlias = Annotated[
    float, Form(f"a duration {_DURATIONS}", _of_text(units.duration_s), units.duration_text), Meta(le=_LONGEST_S)
]
WholeSeconds: TypeAlias = Annotated[
    int, Form(f"a duration in whole seconds {_DURATIONS}", _of_text(_whole_s), units.duration_text), Meta(le=10**9)
]
Share: TypeAlias = Annotated[
    float, Form("a share such as 5%, above 0 and below 100%", _of_text(_share), units.percent_text), Meta(gt=0, lt=1)
]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
NonNegative: TypeAlias = Annotated[int, Meta(ge=0)]
Number: TypeAlias = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
Line: TypeAlias = Annotated[str, Meta(pattern=r"\S")]  # a string of one line, not blank
Words: TypeAlias = tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Option:
    """The row of one setting: its key in the file, its default as written, and its meaning.

    ``article`` is the value in that profile if it differs from ``quick``. ``absent`` is a word, with its meaning, for
    no value (:attr:`none`, as the field has it) or for a value that follows from other settings. ``const`` is the value
    that the flag sets without an argument; if there is a flag ``short``, this sets it instead, and ``flag`` takes an
    argument. ``repeat`` allows the flag more than once, for a list. :func:`options_of` fills in ``field`` and its type
    ``kind``.
    """

    key: str
    quick: object
    help: str
    article: object = None
    absent: tuple[str, str] = ("", "")
    flag: str = ""
    metavar: str = ""
    const: str = ""
    repeat: bool = False
    short: str = ""
    none: object = None
    field: str = ""
    kind: Any = None

    @property
    def word(self) -> str:
        """The last part of the key, which is its name in a stack and in ``--disk``."""
        return self.key.rpartition(".")[2]

    @property
    def expected(self) -> str:
        """The values that the setting takes, for a person."""
        word, meaning = self.absent
        return f'{expected(self.kind)}; or "{word}" ({meaning})' if meaning else expected(self.kind)

    def in_profile(self, profile: str) -> object:
        """Return the value in a profile, as written."""
        return self.quick if profile == "quick" or self.article is None else self.article

    def read(self, raw: object, base: Path | None = None, *, typed: bool = False) -> Any:
        """Return the field's value for a raw value; raises the errors of :func:`read`."""
        word, meaning = self.absent
        return self.none if meaning and raw in (word, [word]) else read(self.kind, raw, base, typed=typed)

    def write(self, value: object) -> object:
        """Return a value of the field in TOML's types."""
        if self.absent[1] and value == self.none:
            return self.absent[0]
        form = _form(self.kind)
        written = form.write(value) if form is not None else msgspec.to_builtins(value, enc_hook=str)
        return list(written) if isinstance(written, tuple) else written


def options_of(settings: Any) -> tuple[Option, ...]:
    """Return the rows of a dataclass's fields, in their order."""
    return _options(settings)


@cache
def _options(settings: Any) -> tuple[Option, ...]:
    return tuple(
        replace(beside, field=one.name, kind=one.type)
        for one in fields(settings)
        for beside in getattr(one.type, "__metadata__", ())
        if isinstance(beside, Option)
    )


def read(kind: Any, raw: object, base: Path | None = None, *, typed: bool = False) -> Any:
    """Convert a raw value to a type; a ``typed`` value is a word of the command line, which has no types yet.

    Relative paths start from ``base``. Raises :class:`Unfit`, or :class:`UserError` if there is more to say.
    """
    bare, _ = _parts(kind)
    form = _form(kind)
    if get_origin(bare) is tuple and isinstance(raw, str):
        raw = raw.split(",") if typed and raw and _parts(get_args(bare)[0])[0] is str else [raw] if raw else []
    try:
        value = raw if form is None else form.read(raw, base)
        if typed and bare in (int, float) and isinstance(value, str):
            value = bare(value)
        if isinstance(value, int) and value > _MOST and bare is int:
            raise UserError(f"a number of {len(str(value))} digits is too large")
        found = msgspec.convert(value, kind, strict=not typed, dec_hook=partial(_path, base))
    except (ValueError, TypeError, OverflowError, msgspec.ValidationError) as error:
        raise Unfit from error
    lines = found if isinstance(found, tuple) else (found,)
    if form is None and not all(one.isprintable() for one in lines if isinstance(one, str)):
        raise Unfit
    return found


@cache
def expected(kind: Any) -> str:
    """Return a description of a type's values, for a person."""
    bare, beside = _parts(kind)
    form, metas = _form(kind), [one for one in beside if isinstance(one, Meta)]
    said = next((one.description for one in metas if one.description), None)
    least = next((one.ge for one in metas if one.ge is not None), None)
    if form is not None:
        bound = f", {form.write(least)} or more" if least is not None else ""
        return f"{form.expected}{bound}"
    if said is not None:
        return said
    if bare in (int, float):
        most = next((one.le for one in metas if one.le is not None and bare is int), None)
        bounds = f", {least:g} or more" if most is None else f" from {least:g} to {most:,}"
        return f"a {'whole ' if bare is int else ''}number{bounds}"
    if bare is bool:
        return "true or false"
    words = get_args(bare) if get_origin(bare) is Literal else tuple(bare) if isinstance(bare, type(StrEnum)) else ()
    return f"one of {', '.join(map(str, words))}" if words else "a path"


def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without None, and all of its annotations."""
    if get_origin(kind) is Annotated:
        bare, beside = _parts(kind.__origin__)
        return bare, (*beside, *kind.__metadata__)
    if get_origin(kind) in (Union, UnionType):
        (one,) = (one for one in get_args(kind) if one is not NoneType)
        return _parts(one)
    return kind, ()


def _form(kind: Any) -> Form | None:
    return next((one for one in reversed(_parts(kind)[1]) if isinstance(one, Form)), None)


def _path(base: Path | None, kind: type, raw: object) -> object:
    """The hook for types that msgspec does not read itself."""
    if isinstance(raw, kind):
        return raw
    if kind is Path and isinstance(raw, str):
        return absolute(raw, base)
    raise TypeError(f"{kind.__name__} is not read from {type(raw).__name__}")


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of settings: the sentence, and the keys that cause it, the likeliest one to change first."""

    keys: tuple[str, ...]
    sentence: str
    hint: str = ""
