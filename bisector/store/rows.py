"""Records as rows of a database and back; pure, knows no SQL."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self, TypeVar, get_type_hints

from bisector.config import Settings, options
from bisector.core.errors import InfraError
from bisector.core.trial import DiskQueue, Stage
from bisector.core.verdict import Direction, State, Verdict

T = TypeVar("T")
Value = str | int | float | None
_GREATEST = 2**63
_QUOTED = 40


@dataclass(frozen=True, slots=True)
class BisectionRow:
    """What was asked for: the range as typed and resolved, and the settings as JSON.

    Terms, direction and first_parent repeat what the settings say, for people who read the
    database with SQL; the program takes them from the settings. Terms and direction are empty where
    nobody chose any. Where nothing is searched the ends are empty, and there may be no repository.
    """

    repository: Path | None
    old_rev: str
    old_sha: str
    new_rev: str
    new_sha: str
    term_old: str
    term_new: str
    direction: Direction | None
    paths: tuple[str, ...]
    first_parent: bool
    skips: tuple[str, ...]
    settings: str
    tool_version: str
    created_at: str

    @classmethod
    def of(
        cls,
        settings: Settings,
        repository: Path | None,
        *,
        old: tuple[str, str] = ("", ""),
        new: tuple[str, str] = ("", ""),
        paths: tuple[str, ...] = (),
        first_parent: bool = False,
        skips: tuple[str, ...] = (),
    ) -> Self:
        """What is asked now; each end as typed, and its hash."""
        terms = settings.bisect.terms
        return cls(
            repository,
            *old,
            *new,
            term_old=terms.old if terms else "",
            term_new=terms.new if terms else "",
            direction=settings.bisect.expected,
            paths=paths,
            first_parent=first_parent,
            skips=skips,
            settings=options.to_json(settings),
            tool_version=version("bisector"),
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    @property
    def has_ends(self) -> bool:
        """Whether something is looked for, between two ends."""
        return bool(self.old_sha and self.new_sha)


@dataclass(frozen=True, slots=True)
class InfraFaultRow:
    """An attempt at a trial that failed by our own or the host's fault."""

    at: str
    sha: str
    stage: Stage
    host: str
    message: str


@dataclass(frozen=True, slots=True)
class StateRow:
    """A state the bisection entered, when, and the process that wrote so.

    With ``out_of_time`` it would go on, and its budget allowed no more.
    """

    at: str
    state: State
    message: str
    pid: int
    out_of_time: bool = False


def _plain(value: Any) -> Any:
    return value


def _whole(value: int) -> int:
    """What SQLite has room for; raises :class:`InfraError`."""
    if not -_GREATEST <= value < _GREATEST:
        raise InfraError(f"{str(value)[:_QUOTED]} is too large a figure for the record")
    return value


def _real(value: float) -> float:
    """SQLite takes what is no number for nothing at all; raises :class:`InfraError`."""
    if math.isnan(value):
        raise InfraError("a figure for the record is no number")
    return float(value)


def _real_or_none(value: float | None) -> float | None:
    return None if value is None else _real(value)


def _words(value: tuple[str, ...]) -> str:
    return json.dumps(value)


def _text(value: str) -> str:
    """Without halves of surrogate pairs, which SQLite's UTF-8 cannot hold: logs may contain anything."""
    return value.encode("utf-8", "replace").decode("utf-8")


def _pairs(value: tuple[tuple[Any, float], ...]) -> str:
    return json.dumps(value)


def _to_pairs(text: str) -> tuple[tuple[Any, float], ...]:
    return tuple((first, second) for first, second in json.loads(text))


def _text_or_none(value: object) -> Value:
    return None if value is None else str(value)


# By type: how a column is written and how it is read.
_CODECS: dict[Any, tuple[Callable[[Any], Value], Callable[[Any], Any]]] = {
    str: (_text, _plain),
    str | None: (_plain, _plain),
    int: (_whole, _plain),
    int | None: (_plain, _plain),
    float: (_real, _plain),
    float | None: (_real_or_none, _plain),
    bool: (int, bool),
    Path: (str, Path),
    Path | None: (_text_or_none, lambda text: None if text is None else Path(text)),
    tuple[int, ...]: (json.dumps, lambda text: tuple(json.loads(text))),
    tuple[str, ...]: (_words, lambda text: tuple(json.loads(text))),
    tuple[tuple[str, float], ...]: (_pairs, _to_pairs),
    tuple[tuple[float, float], ...]: (_pairs, _to_pairs),
    tuple[DiskQueue, ...]: (
        lambda queues: json.dumps([dataclasses.astuple(one) for one in queues]),
        lambda text: tuple(DiskQueue(*one) for one in json.loads(text)),
    ),
    Verdict | None: (_text_or_none, lambda text: None if text is None else Verdict(text)),
    Direction | None: (lambda value: value or "", lambda text: Direction(text) if text else None),
}


_COLUMNS: dict[type, Mapping[str, tuple[Callable[[Any], Value], Callable[[Any], Any]]]] = {}


def _columns_of(cls: type) -> Mapping[str, tuple[Callable[[Any], Value], Callable[[Any], Any]]]:
    """The codec of each field that is a column; nested records are rows of other tables.

    Kept for each class: resolving the hints took most of the time in which a record was read.
    """
    if cls not in _COLUMNS:
        hints, fields = get_type_hints(cls), dataclasses.fields(cls)
        codecs = {field.name: _codec(hints[field.name]) for field in fields}
        _COLUMNS[cls] = {name: codec for name, codec in codecs.items() if codec is not None}
    return _COLUMNS[cls]


def _codec(hint: Any) -> tuple[Callable[[Any], Value], Callable[[Any], Any]] | None:
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return (str, hint)
    return _CODECS.get(hint)


def columns(record: Any) -> dict[str, Value]:
    """The plain fields of a frozen record, as values for SQLite."""
    return {name: write(getattr(record, name)) for name, (write, _) in _columns_of(type(record)).items()}


def build(cls: type[T], row: Mapping[str, Any], **nested: Any) -> T:
    """The record of a row; ``nested`` gives the fields that are rows of other tables.

    A column that an older database lacks has the field's default.
    """
    plain = {name: read(row[name]) for name, (_, read) in _columns_of(cls).items() if name in row}
    return cls(**plain, **nested)
