"""Rows of the table of settings, and the kinds of their values.

A kind says how a value is read from TOML or a flag, checked, and written back: ``read`` accepts what :mod:`tomllib`
gives and raises :class:`Unfit`; ``from_text`` first turns what was typed on the command line into the same; ``write``
is the inverse of ``read``, in TOML's types.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from bisector.core import units
from bisector.core.errors import UserError

AUTO = "auto"
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?) ?%", re.ASCII)
_MOST = 1 << 62  # bytes, or what else is counted: what the kernel and QEMU take for a number has 63 bits
_LONGEST_S = 1e9  # a longer wait than anybody's; keeps every duration exact in a float


class Unfit(Exception):
    """A raw value is not of the kind; the caller knows the key and where it was written."""


def _no_conversion(text: str) -> object:
    return text


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value; ``base`` of ``read`` is the directory that relative paths start from.

    Values are of the settings' own types, which differ from kind to kind: hence ``Any``.
    """

    expected: str
    read: Callable[[object, Path | None], Any]
    write: Callable[[Any], object]
    from_text: Callable[[str], object] = _no_conversion


@dataclass(frozen=True, slots=True)
class Option:
    """One setting: its key in the file, its field in :class:`bisector.config.Settings`, its kind and its values.

    ``article`` is the value in that profile where it differs from ``quick``; ``const`` makes the
    flag one without an argument, or the flag ``short`` beside it; ``repeat`` lets it be given more than once, for a
    list. ``before`` is what held before there was such a setting, where that is not the profile's value, and
    ``formerly`` the key under which it was recorded.
    """

    key: str
    field: str
    kind: Kind
    quick: object
    help: str
    article: object = None
    flag: str = ""
    metavar: str = ""
    const: str = ""
    repeat: bool = False
    before: object = None
    short: str = ""
    formerly: str = ""

    def in_profile(self, profile: str) -> object:
        """The value in a profile, as written."""
        return self.quick if profile == "quick" or self.article is None else self.article


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong and the keys whose values make it so, the likeliest to be changed first."""

    keys: tuple[str, ...]
    sentence: str
    hint: str = ""


def boolean() -> Kind:
    """True or false."""

    def read(raw: object, _base: Path | None) -> bool:
        if not isinstance(raw, bool):
            raise Unfit
        return raw

    words = {"true": True, "yes": True, "false": False, "no": False}
    return Kind("true or false", read, bool, lambda text: words.get(text.lower(), text))


def integer(minimum: int) -> Kind:
    """A whole number, ``minimum`` or more."""

    def read(raw: object, _base: Path | None) -> int:
        if not isinstance(raw, int) or isinstance(raw, bool) or raw < minimum:
            raise Unfit
        return _not_too_large(raw)

    return Kind(f"a whole number, {minimum} or more", read, int, lambda text: _number(text, int))


def _not_too_large(value: int) -> int:
    if value > _MOST:
        raise UserError(f"a number of {len(str(value))} digits is too large")
    return value


def number(minimum: float, unit: str = "", *, above: bool = False) -> Kind:
    """A finite number, ``minimum`` or more, or with ``above`` more than ``minimum``."""

    def read(raw: object, _base: Path | None) -> float:
        if not isinstance(raw, (int, float)) or isinstance(raw, bool):
            raise Unfit
        # Written so that NaN fails too, and a whole number too large for a float.
        if not minimum <= raw <= sys.float_info.max or (above and raw == minimum):
            raise Unfit
        return float(raw)

    bound = f"more than {minimum:g}" if above else f"{minimum:g} or more"
    return Kind(f"a number{' of ' + unit if unit else ''}, {bound}", read, float, lambda text: _number(text, float))


def _number(text: str, make: Callable[[str], object]) -> object:
    try:
        return make(text)
    except ValueError:
        return text


def _fitting(read: Callable[[str], float], text: str) -> float:
    try:
        return read(text)
    except ValueError as error:
        raise Unfit from error


def size(minimum: int, *, per_second: bool = False) -> Kind:
    """Bytes, or bytes ``per_second``, with a unit or without."""

    def read(raw: object, _base: Path | None) -> int:
        if isinstance(raw, str):
            raw = _fitting(units.size_bytes, raw.removesuffix("/s") if per_second else raw)
        if not isinstance(raw, int) or isinstance(raw, bool) or raw < minimum:
            raise Unfit
        return _not_too_large(raw)

    return Kind(
        f"{'bytes/s' if per_second else 'a size'} such as 512MiB, 5G or a whole number, "
        f"{units.size_text(minimum)} or more",
        read,
        units.size_text,
    )


def duration(minimum_s: float, *, whole: bool = False) -> Kind:
    """Seconds, with a unit or without; ``whole`` seconds where the tool takes no others."""

    def read(raw: object, _base: Path | None) -> float:
        if isinstance(raw, str):
            raw = _fitting(units.duration_s, raw)
        if not isinstance(raw, (int, float)) or isinstance(raw, bool):
            raise Unfit
        if not minimum_s <= raw <= _LONGEST_S or (whole and raw != int(raw)):
            raise Unfit
        return int(raw) if whole else float(raw)

    kind = "a duration in whole seconds" if whole else "a duration"
    return Kind(f"{kind} such as 40s, 15min or 1h30m, {minimum_s:g}s or more", read, units.duration_text)


def share() -> Kind:
    """A share above 0 and below 1, or as many per cent."""

    def read(raw: object, _base: Path | None) -> float:
        if isinstance(raw, str) and (percent := _PERCENT.fullmatch(raw)) is not None:
            raw = float(percent[1]) / 100
        if not isinstance(raw, (int, float)) or isinstance(raw, bool) or not 0 < raw < 1:
            raise Unfit
        return float(raw)

    return Kind("a share such as 5%, above 0 and below 100%", read, percent_text)


def percent_text(value: float) -> str:
    """A share in per cent, with as many digits as it has: ``5%``, ``0.05%``."""
    return f"{100 * value:.6g}%"


def text(expected: str, *, empty: bool = False) -> Kind:
    """A string of one line."""

    def read(raw: object, _base: Path | None) -> str:
        if not isinstance(raw, str) or not raw.isprintable() or not (raw.strip() or empty):
            raise Unfit
        return raw

    return Kind(expected, read, str)


def choice(words: type[StrEnum] | tuple[str, ...]) -> Kind:
    """One of a few words."""
    known = {str(word): word for word in words}

    def read(raw: object, _base: Path | None) -> str:
        if not isinstance(raw, str) or raw not in known:
            raise Unfit
        return known[raw]

    return Kind(f"one of {', '.join(known)}", read, str)


def file(own: Callable[[str], Path] | None = None) -> Kind:
    """A path; ``own`` finds the tool's own file of a bare name that is not in ``base``."""

    def read(raw: object, base: Path | None) -> Path:
        if not isinstance(raw, str) or not raw.strip() or "\0" in raw:
            raise Unfit
        given = absolute(raw, base)
        if own and "/" not in raw and (base is None or not _is_there(given)):
            return own(raw)
        return given

    return Kind("a path", read, str)


def files() -> Kind:
    """A list of paths, none at all included."""

    def read(raw: object, base: Path | None) -> tuple[Path, ...]:
        paths = (raw,) if isinstance(raw, str) else raw
        if not isinstance(paths, (list, tuple)):
            raise Unfit
        if not all(isinstance(path, str) and path.strip() and "\0" not in path for path in paths):
            raise Unfit
        return tuple(absolute(path, base) for path in paths)

    return Kind('a list of paths such as ["./bench.sh"]', read, lambda paths: [str(path) for path in paths], _no_words)


def _no_words(typed: str) -> object:
    return [typed] if typed else []


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # whoever reads it says why it cannot be read
        return True


def disk() -> Kind:
    """Where a virtual disk lives: a directory or a block device."""

    def read(raw: object, base: Path | None) -> str:
        if not isinstance(raw, str) or not raw.strip() or "\0" in raw:
            raise Unfit
        return str(absolute(raw, base))

    return Kind("a directory or a block device", read, str)


def names_or_paths() -> Kind:
    """A list of names; one with a slash in it is a path."""

    def read(raw: object, base: Path | None) -> tuple[str, ...]:
        if not isinstance(raw, (list, tuple)) or not all(isinstance(item, str) and item.strip() for item in raw):
            raise Unfit
        return tuple(str(absolute(item, base)) if "/" in item else item for item in raw)

    return Kind('a list such as ["vm", "./my.config"]', read, list, lambda typed: typed.split(",") if typed else [])


def names(auto: str) -> Kind:
    """A list of words, or the word ``auto``, which stands for None: whoever reads the settings knows which then."""

    def read(raw: object, _base: Path | None) -> tuple[str, ...] | None:
        words = (raw,) if isinstance(raw, str) else raw
        if words in ((auto,), [auto]):
            return None
        if not isinstance(words, (list, tuple)):
            raise Unfit
        if not all(isinstance(word, str) and word.isprintable() and word.strip() and word != auto for word in words):
            raise Unfit
        return tuple(words)

    return Kind(
        f'"{auto}", or a list such as ["drivers/md"]', read, list, lambda typed: typed.split(",") if typed else []
    )


def words(example: str) -> Kind:
    """A list of words, none at all included."""

    def read(raw: object, _base: Path | None) -> tuple[str, ...]:
        words = (raw,) if isinstance(raw, str) else raw
        if not isinstance(words, (list, tuple)):
            raise Unfit
        if not all(isinstance(word, str) and word.isprintable() and word.strip() for word in words):
            raise Unfit
        return tuple(words)

    return Kind(f"a list such as {example}", read, list, lambda typed: typed.split(",") if typed else [])


def commands(none: str) -> Kind:
    """A command or several, in order; the word ``none`` stands for no choice."""

    def read(raw: object, _base: Path | None) -> tuple[str, ...]:
        words = (raw,) if isinstance(raw, str) else raw
        if words in ((none,), [none]):
            return ()
        if not isinstance(words, (list, tuple)) or not words:
            raise Unfit
        if not all(isinstance(word, str) and word.isprintable() and word.strip() and word != none for word in words):
            raise Unfit
        return tuple(words)

    def write(value: tuple[str, ...]) -> object:
        return {0: none, 1: "".join(value)}.get(len(value), list(value))

    return Kind(f'"{none}", a command such as gcc-12, or a list of them', read, write, lambda typed: typed.split(","))


def optional(kind: Kind, word: str, meaning: str) -> Kind:
    """The same kind or ``word``, which stands for None; TOML has no null."""

    def read(raw: object, base: Path | None) -> Any:
        return None if raw == word else kind.read(raw, base)

    return Kind(
        f'{kind.expected}; or "{word}" ({meaning})',
        read,
        lambda value: word if value is None else kind.write(value),
        lambda typed: typed if typed == word else kind.from_text(typed),
    )


def absolute(raw: str, base: Path | None) -> Path:
    """The path from ``base``, or from the current directory; symbolic links and ``..`` stay as written."""
    try:
        given = Path(raw).expanduser()
    except RuntimeError as error:  # "~name" of nobody
        raise Unfit from error
    return (base or Path.cwd()).absolute() / given
