"""The history of every night: a log of facts like that of a run."""

import math
import os
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, get_args

from bisector.core.objective import Objective
from bisector.core.verdict import Direction, State
from bisector.store.facts import InfraFault
from bisector.store.log import DATABASE, Log, LogEntry
from bisector.store.rundir import state_home
from bisector.store.store import Store


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
class NightBegun:
    """A night began, with the jobs of a file, in a process."""

    config: str
    budget_s: float
    tool_version: str
    pid: int


@dataclass(frozen=True, slots=True)
class NightEnded:
    """The night that began last is over."""

    ending: Ending


@dataclass(frozen=True, slots=True)
class Begun:
    """A job's turn came: what follows is of it, until the next one's turn or night."""

    job: str = ""


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


Fact: TypeAlias = Begun | Done | Tip | Measurement | BisectionBegun | Concluded | Trouble | Letter | InfraFault
_KINDS: tuple[type, ...] = (NightBegun, NightEnded, *get_args(Fact))


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

    def __init__(self, log: Log) -> None:
        self._log = log
        self._stores: dict[Path, Store | None] = {}

    @classmethod
    def open(cls, path: Path, readonly: bool = False) -> Self:
        """The history of a file, made when it is not there (but not for reading). Raises as :class:`Log`."""
        if not readonly and not path.exists():
            return cls(Log.create(path))
        return cls(Log.open(path, readonly))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._log.close()
        for store in filter(None, self._stores.values()):
            store.close()

    def begin(self, config: Path, budget_s: float) -> int:
        """A new night; its number."""
        self._log.add(NightBegun(str(config), budget_s, version("bisector"), os.getpid()))
        return len(self.nights())

    def end(self, ending: Ending) -> None:
        """The night is over."""
        self._log.add(NightEnded(ending))

    def add(self, fact: Fact) -> None:
        """Record a fact of the night, and the job, that began last."""
        self._log.add(fact)

    def nights(self) -> tuple[Night, ...]:
        """Every night, oldest first."""
        self._log.refresh()
        begun, ended = self._log.of(NightBegun), self._log.of(NightEnded)
        nights = []
        for n, one in enumerate(begun, 1):
            until = begun[n].id if n < len(begun) else math.inf
            end = next((each for each in ended if one.id < each.id < until), None)
            how = (end.at, end.fact.ending) if end is not None else (None, None)
            nights.append(Night(n, one.at, one.fact.config, one.fact.budget_s, one.fact.pid, *how))
        return tuple(nights)

    def events(self) -> tuple[Event, ...]:
        """Every event, oldest first."""
        self._log.refresh()
        entries: list[LogEntry[Any]] = []
        for kind in _KINDS:
            entries += self._log.of(kind)
        night, job, events = 0, "", []
        for entry in sorted(entries, key=attrgetter("id")):
            match entry.fact:
                case NightBegun():
                    night, job = night + 1, ""
                    continue
                case NightEnded():
                    continue
                case Begun(job=job):
                    pass
            fact = entry.fact
            if isinstance(fact, Measurement):
                fact = replace(fact, figures=self._figures(fact))
            events.append(Event(entry.id, night, job, entry.at, fact))
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
