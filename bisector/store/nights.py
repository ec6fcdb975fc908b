"""The record of all nights: a log of facts like that of a run, and each night's facts in the order of recording."""

import math
import os
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self, TypeAlias, get_args

from bisector.core.objective import Objective
from bisector.core.trial import Trial
from bisector.core.verdict import Direction, State
from bisector.store.facts import InfraFault
from bisector.store.log import DATABASE, Log, LogEntry
from bisector.store.rundir import state_home
from bisector.store.store import Store


class NightEnding(StrEnum):
    """How a night ended; one that was killed has none."""

    DONE = "done"
    OUT_OF_TIME = "out of time"
    INTERRUPTED = "interrupted"


class TipRole(StrEnum):
    """What was measured: the tip of the branch, or the tag that it is compared with."""

    TIP = "tip"
    TAG = "tag"


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

    ending: NightEnding


@dataclass(frozen=True, slots=True)
class JobBegun:
    """A job's turn came: what follows is of it, until the next job or night begins."""

    job: str


@dataclass(frozen=True, slots=True)
class JobDone:
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

    ``value`` is what decides, by the ``objective`` of that night, as is ``threshold``. It is None where nothing can be
    concluded: for a ``fault`` of the kernel, or because the evidence stayed weak; ``why`` says so. ``directory`` holds
    the files of the last trial, in a run directory whose record has the trials; ``n`` is the number of the one that
    counts. What the next nights are compared by is here as well, so that a removed run directory costs no history:
    ``host``, and ``era``, the digest of that of the host, empty where it is not known.
    """

    role: TipRole
    rev: str
    sha: str
    conditions: str
    threshold: float | None
    min_ratio: float
    host: str
    value: float | None
    why: str
    fault: str
    trials: int
    total_s: float
    directory: Path
    objective: Objective = field(default_factory=Objective)
    n: int | None = None
    era: str = ""

    @property
    def run_dir(self) -> Path:
        """Where its trials are on record."""
        return self.directory.parents[1]

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
class BisectionConcluded:
    """How a bisection ended; ``new_value`` is what its new end measured, where it did."""

    run_dir: Path
    state: State
    message: str
    first_sha: str
    new_sha: str
    new_value: float | None


@dataclass(frozen=True, slots=True)
class JobTrouble:
    """Why a job was not done."""

    step: Annotated[str, "at which step"]
    message: Annotated[str, "what happened"]
    hint: Annotated[str, "what to do about it"]


@dataclass(frozen=True, slots=True)
class LetterTold:
    """Something was told, about a run directory or a trouble; ``outcome`` says how: a draft's path, a server's word."""

    about: str
    outcome: str


JobFact: TypeAlias = (
    JobBegun | JobDone | Tip | Measurement | BisectionBegun | BisectionConcluded | JobTrouble | LetterTold | InfraFault
)
_KINDS: tuple[type, ...] = (NightBegun, *get_args(JobFact))


@dataclass(frozen=True, slots=True)
class NightEvent:
    """A fact of a job in a night; ``trial`` is the one that counts of a :class:`Measurement`, if it is there."""

    id: int
    night: int
    job: str
    at: str
    fact: JobFact
    trial: Trial | None = None


@dataclass(frozen=True, slots=True)
class Night:
    """One night; ``ending`` is None while it lasts, and for ever when it was killed."""

    n: int
    started_at: str
    config: str
    budget_s: float
    pid: int
    ended_at: str | None = None
    ending: NightEnding | None = None


def nights_home() -> Path:
    """Where the record, the lock and the files of the jobs are."""
    return state_home() / "nightly"


class NightRecord:
    """The open record; a context manager. One process writes, others may read meanwhile."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._stores: dict[Path, Store | None] = {}

    @classmethod
    def open(cls, path: Path, readonly: bool = False) -> Self:
        """The record in a file, made when it is not there (but not for reading). Raises as :class:`Log`."""
        make = not readonly and not path.exists()
        return cls(Log.create(path) if make else Log.open(path, readonly))

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

    def end(self, ending: NightEnding) -> None:
        """The night is over."""
        self._log.add(NightEnded(ending))

    def add(self, fact: JobFact) -> None:
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

    def events(self) -> tuple[NightEvent, ...]:
        """Every event, oldest first."""
        self._log.refresh()
        entries: list[LogEntry[Any]] = []
        for kind in _KINDS:
            entries += self._log.of(kind)
        night, job, events = 0, "", []
        for entry in sorted(entries, key=attrgetter("id")):
            trial = None
            match entry.fact:
                case NightBegun():
                    night, job = night + 1, ""
                    continue
                case JobBegun(job=job):
                    pass
                case Measurement(n=int() as n, run_dir=run_dir):  # the record of its run directory is kept open
                    if self._stores.get(run_dir) is None:
                        path = run_dir / DATABASE
                        self._stores[run_dir] = Store.open(path, readonly=True) if path.is_file() else None
                    store = self._stores[run_dir]
                    trial = dict(store.trials()).get(n) if store is not None else None
            events.append(NightEvent(entry.id, night, job, entry.at, entry.fact, trial))
        return tuple(events)
