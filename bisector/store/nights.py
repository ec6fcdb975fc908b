"""The history of every night: one SQLite file, to which events are only ever added."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from bisector.core.objective import Objective
from bisector.core.verdict import Direction, State
from bisector.store.database import DATABASE, Database
from bisector.store.facts import named
from bisector.store.night_schema import NIGHTS
from bisector.store.rows import InfraFaultRow, Value, build, columns
from bisector.store.rundir import state_home
from bisector.store.store import Store

HISTORY = "history.sqlite"


class Ending(StrEnum):
    """How a night ended; one that was killed has none."""

    DONE = "done"
    OUT_OF_TIME = "out of time"
    INTERRUPTED = "interrupted"


class Role(StrEnum):
    """What was measured: the tip of the branch, or the tag that it is compared with."""

    TIP = "tip"
    TAG = "tag"


@dataclass(frozen=True, slots=True)
class Figure:
    """The value of one metric of one job of a run; ``name`` is the job's, empty where it is the run's as a whole."""

    run: str
    name: str
    metric: str
    value: float


@dataclass(frozen=True, slots=True)
class Begun:
    """A job's turn came."""


@dataclass(frozen=True, slots=True)
class Done:
    """All that was to be done for a job in a night was done."""


@dataclass(frozen=True, slots=True)
class Tip:
    """What a branch was at after the fetch, and what the job asked for then."""

    repository: Path
    rev: str
    sha: str
    subject: str
    committed_at: str
    rule: str
    wanted: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """What the trials of one commit in one night amounted to.

    ``value`` is what decides, by ``metric`` and ``over`` of the settings of that night, as is ``threshold``. It is None
    where nothing can be concluded: for a ``fault`` of the kernel, or because the evidence stayed weak; ``why`` says so.
    ``directory`` holds the files of the last trial, in a run directory with a store. ``n`` is the number of the trial
    there that counts, and ``figures`` are that trial's, one for each job and run: none where the store is gone. Nights
    before there were such stores have figures of their own, and no ``n``. ``era`` is the digest of that of its host,
    empty where it is not known.
    """

    role: Role
    rev: str
    sha: str
    conditions: str
    threshold: float | None
    min_ratio: float
    host: str
    toolchain: str
    value: float | None
    why: str
    fault: str
    trials: int
    total_s: float
    directory: Path
    figures: tuple[Figure, ...] = ()
    metric: str = "read.iops"
    over: str = "worst"
    n: int | None = None
    era: str = ""

    @property
    def run_dir(self) -> Path:
        """Where its trials are on record."""
        return self.directory.parents[1]

    @property
    def objective(self) -> Objective:
        """What decided that night."""
        return Objective(self.metric, self.over)

    @property
    def got(self) -> tuple[str, str, Objective, str]:
        """By which settings, where, by what and in which era: only values that were got alike are compared."""
        return self.conditions, self.host, self.objective, self.era


@dataclass(frozen=True, slots=True)
class BisectionBegun:
    """A change is bisected, in a run directory; recorded before that is made."""

    run_dir: Path
    direction: Direction
    old_sha: str
    new_sha: str


@dataclass(frozen=True, slots=True)
class Concluded:
    """How a bisection ended; ``new_value`` is what its new end measured, where it did."""

    run_dir: Path
    state: State
    message: str
    first_sha: str
    new_sha: str
    new_value: float | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a job was not done: at which step, and what to do about it."""

    step: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Letter:
    """Something was told, about a run directory or a trouble; ``outcome`` says how: a draft's path, a server's word."""

    about: str
    outcome: str


Fact: TypeAlias = Begun | Done | Tip | Measurement | BisectionBegun | Concluded | Trouble | Letter | InfraFaultRow

# The table of each kind of event; those without facts of their own have none.
_TABLES: Mapping[type[Fact], str] = {
    Tip: "tips",
    Measurement: "measurements",
    BisectionBegun: "bisections",
    Concluded: "conclusions",
    Trouble: "troubles",
    Letter: "letters",
    InfraFaultRow: "infra_faults",
}
# Columns that are not called as the fields: see the schema.
_FIELDS = {"threshold_iops": "threshold", "least_iops": "value", "new_iops": "new_value"}
_COLUMNS = {field: column for column, field in _FIELDS.items()}
_KINDS: Mapping[str, type[Fact]] = {kind.__name__: kind for kind in (Begun, Done, *_TABLES)}


@dataclass(frozen=True, slots=True)
class Event:
    """A fact of a night, by a counter that tells the order, and the time (ISO 8601)."""

    id: int
    night: int
    job: str
    at: str
    fact: Fact


@dataclass(frozen=True, slots=True)
class Night:
    """One night; ``ending`` is None while it lasts, and for ever when it was killed."""

    n: int
    started_at: str
    config: str
    budget_s: float
    pid: int
    ended_at: str | None = None
    ending: Ending | None = None


def nights_home() -> Path:
    """Where the history, the lock and the files of the jobs are."""
    return state_home() / "nightly"


class NightRecord:
    """The open history; a context manager. One process writes, others may read meanwhile."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stores: dict[Path, Store | None] = {}

    @classmethod
    def open(cls, path: Path, readonly: bool = False) -> Self:
        """The history of a file, made when it is not there (but not for reading). Raises as :class:`Database`."""
        if not readonly and not path.exists():
            with Database.create(path, NIGHTS):
                pass
        return cls(Database.open(path, readonly, NIGHTS))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._database.close()
        for store in filter(None, self._stores.values()):
            store.close()

    def begin(self, config: Path, budget_s: float) -> int:
        """A new night; its number."""
        with self._database.transaction():
            return self._database.insert(
                "nights",
                {
                    "started_at": _now(),
                    "config": str(config),
                    "budget_s": budget_s,
                    "tool_version": version("bisector"),
                    "pid": os.getpid(),
                },
            )

    def end(self, night: int, ending: Ending) -> None:
        """The night is over."""
        with self._database.transaction():
            self._database.insert("night_ends", {"night": night, "at": _now(), "ending": str(ending)})

    def add(self, night: int, job: str, fact: Fact) -> None:
        """Record a fact, all of it or nothing."""
        with self._database.transaction():
            row: dict[str, Value] = {"night": night, "job": job, "at": _now(), "kind": type(fact).__name__}
            event = self._database.insert("events", row)
            if table := _TABLES.get(type(fact)):
                self._database.insert(table, {"event": event, **named(columns(fact), _COLUMNS)})

    def nights(self) -> tuple[Night, ...]:
        """Every night, oldest first."""
        with self._database.snapshot():
            rows = self._database.select("nights", "n")
            ends = {row["night"]: row for row in self._database.select("night_ends")}
        return tuple(_night(row, ends.get(row["n"])) for row in rows)

    def events(self) -> tuple[Event, ...]:
        """Every event, oldest first."""
        with self._database.snapshot():
            rows = self._database.select("events", "id")
            facts = {table: self._by_event(table) for table in _TABLES.values()}
            figures = self._database.grouped("figures", "event")
        events = []
        for row in rows:
            kind = _KINDS[row["kind"]]
            own = facts[_TABLES[kind]][row["id"]] if kind in _TABLES else {}
            fact = build(kind, own)
            if isinstance(fact, Measurement):
                fact = replace(fact, figures=self._figures(fact) or tuple(map(_figure, figures[row["id"]])))
            events.append(Event(row["id"], row["night"], row["job"], row["at"], fact))
        return tuple(events)

    def _figures(self, measured: Measurement) -> tuple[Figure, ...]:
        """Those of the trial that counts; none without one, or when its store is gone."""
        store = self._store(measured.run_dir) if measured.n is not None else None
        trial = next((trial for n, trial in store.trials() if n == measured.n), None) if store else None
        if trial is None:
            return ()
        found = ((run.name, value) for run in trial.runs for value in measured.objective.of_jobs(run))
        return tuple(Figure(run, value.job, value.name, value.value) for run, value in found)

    def _store(self, run_dir: Path) -> Store | None:
        """The store of a job, kept open; None when it is gone."""
        if self._stores.get(run_dir) is None:
            path = run_dir / DATABASE
            self._stores[run_dir] = Store.open(path, readonly=True) if path.is_file() else None
        return self._stores[run_dir]

    def _by_event(self, table: str) -> dict[int, dict[str, Any]]:
        return {row["event"]: named(row, _FIELDS) for row in self._database.select(table, "event")}


def _figure(row: Mapping[str, Any]) -> Figure:
    """A row of the first schema has IOPS in a direction, and no metric."""
    return Figure(row["run"], row["name"], row.get("metric") or f"{row['direction']}.iops", row["iops_mean"])


def _night(row: Mapping[str, Any], end: Mapping[str, Any] | None) -> Night:
    ended = {"ended_at": end["at"], "ending": Ending(end["ending"])} if end else {}
    return build(Night, row, **ended)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
