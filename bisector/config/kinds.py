"""Kinds of settings that are words of a bisection: its terms, its metric, its threshold."""

import re
from pathlib import Path

from bisector.core.kinds import Kind, Unfit
from bisector.core.metric import named, plain_number
from bisector.core.verdict import Terms

_PLAIN = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,40})?")
_VALUE = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,40})? *[^\s0-9]\S*")
_LEAST_VALUE, _LARGEST_VALUE = 1e-9, 1e18


def terms() -> Kind:
    """Two different words, for the old side and the new one, in git's alphabet of references."""

    def read(raw: object, _base: Path | None) -> Terms:
        words = re.fullmatch(r"([A-Za-z][\w-]*):([A-Za-z][\w-]*)", raw, re.ASCII) if isinstance(raw, str) else None
        if words is None or words[1] == words[2]:
            raise Unfit
        return Terms(words[1], words[2])

    return Kind(
        "two different words as OLD:NEW, of letters, digits, - and _",
        read,
        lambda pair: f"{pair.old}:{pair.new}",
    )


def metric() -> Kind:
    """The name of a metric; raises :class:`UserError` for one that there is not."""

    def read(raw: object, _base: Path | None) -> str:
        if not isinstance(raw, str) or not raw.strip():
            raise Unfit
        return named(raw.strip()).name

    return Kind("the name of a metric such as read.iops", read, str)


def threshold(auto: str, none: str) -> Kind:
    """A value in the unit of a metric, which is known when all settings are: kept as it is typed.

    ``none`` stands for None, ``auto`` for itself: whoever reads the settings knows which of the two it is.
    """

    def read(raw: object, _base: Path | None) -> str | None:
        if raw in (auto, none):
            return None if raw == none else auto
        if isinstance(raw, str) and _PLAIN.fullmatch(raw.strip()):
            raw = float(raw)
        if isinstance(raw, (int, float)) and not isinstance(raw, bool):
            return _plain(raw)
        if not isinstance(raw, str) or not _VALUE.fullmatch(raw.strip()):
            raise Unfit
        return raw.strip()

    def write(value: str | None) -> object:
        if value is None:
            return none
        return float(value) if _PLAIN.fullmatch(value) else value

    return Kind(f'a value above zero such as 20000, 1.5ms or 80MiB/s; or "{none}", or "{auto}"', read, write)


def _plain(value: float) -> str:
    if not _LEAST_VALUE <= value <= _LARGEST_VALUE:
        raise Unfit
    return plain_number(float(value))
