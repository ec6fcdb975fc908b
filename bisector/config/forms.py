"""Forms of settings that TOML has no type for: terms, metric, threshold, fragments, the place of a disk."""

import re
from pathlib import Path
from typing import Annotated, TypeAlias

from bisector.core.metric import is_short, named, plain_number
from bisector.core.setting import AUTO, Form, Meta, absolute
from bisector.core.verdict import SideWords

_PLAIN = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,40})?")
_VALUE = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,40})? *[^\s0-9]\S*")
_LEAST_VALUE, _LARGEST_VALUE = 1e-9, 1e18
NotAuto: TypeAlias = tuple[Annotated[str, Meta(pattern=r"^(?!auto$).*\S")], ...]


def _read_metric(raw: object, _base: Path | None) -> str:
    """The name of a metric; the workload completes a short one. Raises :class:`UserError` for an unknown one."""
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError(raw)
    return raw.strip() if is_short(raw.strip()) else named(raw.strip()).name


def _read_threshold(raw: object, _base: Path | None) -> str:
    """A value as typed; its unit is checked when all settings, and so the metric, are known."""
    if isinstance(raw, str) and _PLAIN.fullmatch(raw.strip()):
        raw = float(raw)
    if isinstance(raw, (int, float)) and not isinstance(raw, bool) and _LEAST_VALUE <= raw <= _LARGEST_VALUE:
        return plain_number(float(raw))
    if not isinstance(raw, str) or not (raw == AUTO or _VALUE.fullmatch(raw.strip())):
        raise ValueError(raw)
    return raw.strip()


def _read_terms(raw: str, _base: Path | None) -> SideWords:
    """Two different words, for the old side and the new one, of characters that git allows in references."""
    words = re.fullmatch(r"([A-Za-z][\w-]*):([A-Za-z][\w-]*)", raw, re.ASCII)
    if words is None or words[1] == words[2]:
        raise ValueError(raw)
    return SideWords(words[1], words[2])


def _read_fragments(raw: object, base: Path | None) -> tuple[str, ...]:
    if not isinstance(raw, (list, tuple)) or not all(isinstance(item, str) and item.strip() for item in raw):
        raise ValueError(raw)
    return tuple(str(absolute(item, base)) if "/" in item else item for item in raw)


def _read_place(raw: object, base: Path | None) -> str:
    if not isinstance(raw, str):
        raise TypeError(raw)
    return str(absolute(raw, base))


METRIC = Form("the name of a metric such as read.iops", _read_metric)
THRESHOLD = Form(
    f'a value above zero such as 20000, 1.5ms or 80MiB/s, or "{AUTO}"',
    _read_threshold,
    lambda value: float(value) if _PLAIN.fullmatch(value) else value,
)
TERMS = Form(
    "two different words as OLD:NEW, of letters, digits, - and _", _read_terms, lambda pair: f"{pair.old}:{pair.new}"
)
FRAGMENT_NAMES = Form('a list such as ["vm", "./my.config"]', _read_fragments, list)
DISK_PLACE = Form("a directory or a block device", _read_place)
