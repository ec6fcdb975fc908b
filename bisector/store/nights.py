"""The record of all nights: a log of facts like the record of a run, with each night's facts in order of recording."""

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
    """How a night ended; a night that was killed has no ending."""

    DONE = "done"
    OUT_OF_TIME = "out of time"
    INTERRUPTED = "interrupted"


class TipRole(StrEnum):
    """Which commit was measured: the tip of the branch, or the tag that the tip is compared with."""

    TIP = "tip"
    TAG = "tag"


@dataclass(frozen=True, slots=True)
class NightBegun:
    """A night began, in a process, with the jobs of a file."""

    config: str
    budget_s: float
    tool_version: str
    pid: int


@dataclass(frozen=True, slots=True)
class NightEnded:
    """The night that began last has ended."""

    ending: NightEnding


@dataclass(frozen=True, slots=True)
class JobBegun:
    """A job's turn began: the facts that follow belong to it, until the next job or night begins."""

    job: str


@dataclass(frozen=True, slots=True)
class JobDone:
    """Everything was done that a job had to do in a night."""


@dataclass(frozen=True, slots=True)
class Tip:
    """The commit of a branch after the fetch, and what the job then asked for."""

    repository: Path
    rev: str
    sha: str
    subject: str
    committed_at: str
    rule: str
    wanted: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of the trials of one commit in one night.

    ``value`` is the deciding value by that night's ``objective``, as is ``threshold``. It is None if nothing can be
    concluded: because of a ``fault`` of the kernel, or because the evidence stayed weak; ``why`` says so. ``directory``
    has the files of the last trial, in a run directory whose record has the trials; ``n`` is the number of the trial
    that counts. What later nights compare by is kept here too, so that history survives the removal of a run directory:
    ``host``, and ``era``, the digest of the host's era, empty if it is unknown.
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
        """The run directory whose record has the trials."""
        return self.directory.parents[1]

    @property
    def comparability(self) -> tuple[str, str, Objective, str]:
        """Settings, host, objective and era of the value; only values with equal ones are compared."""
        return self.conditions, self.host, self.objective, self.era


@dataclass(frozen=True, slots=True)
class BisectionBegun:
    """A change is bisected in a run directory; recorded before the directory is made."""

    run_dir: Path
    direction: Direction
    old_sha: str
    new_sha: str


@dataclass(frozen=True, slots=True)
class BisectionConcluded:
    """How a bisection ended; ``new_value`` is what its new end measured, if it was measured."""

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
    is_mistake: Annotated[bool, "whether a person's input is at fault, and is waited for"] = False


@dataclass(frozen=True, slots=True)
class LetterTold:
    """A letter about a run directory or a trouble; ``outcome`` is the path of a draft, or the mail server's answer."""

    about: str
    outcome: str


JobFact: TypeAlias = (
    JobBegun | JobDone | Tip | Measurement | BisectionBegun | BisectionConcluded | JobTrouble | LetterTold | InfraFault
)
_KINDS: tuple[type, ...] = (NightBegun, *get_args(JobFact))


@dataclass(frozen=True, slots=True)
class NightEvent:
    """A fact of a job in a night; ``trial`` is the trial that counts for a :class:`Measurement`, if it is on record."""

    id: int
    night: int
    job: str
    at: str
    fact: JobFact
    trial: Trial | None = None


@dataclass(frozen=True, slots=True)
class Night:
    """One night; ``ending`` is None during the night, and stays None if the night was killed."""

    n: int
    started_at: str
    config: str
    budget_s: float
    pid: int
    ended_at: str | None = None
    ending: NightEnding | None = None


def nights_home() -> Path:
    """The directory of the record of all nights."""
    return state_home() / "nightly"


class NightRecord:
    """The open record; a context manager. One process writes, others may read meanwhile."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._stores: dict[Path, Store | None] = {}

    @classmethod
    def open(cls, path: Path, readonly: bool = False) -> Self:
        """Open the record in a file; create it if it is missing, unless ``readonly``. Raises as :class:`Log`."""
        make = not readonly and not path.exists()
        return cls(Log.create(path) if make else Log.open(path, readonly))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._log.close()
        for store in filter(None, self._stores.values()):
            store.close()

    def begin(self, config: Path, budget_s: float) -> int:
        """Record the beginning of a night, and return its number."""
        self._log.add(NightBegun(str(config), budget_s, version("bisector"), os.getpid()))
        return len(self.nights())

    def end(self, ending: NightEnding) -> None:
        """Record the end of the night."""
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
                case Measurement(n=int() as n, run_dir=run_dir):  # the run directory's record is kept open
                    if self._stores.get(run_dir) is None:
                        path = run_dir / DATABASE
                        self._stores[run_dir] = Store.open(path, readonly=True) if path.is_file() else None
                    store = self._stores[run_dir]
                    trial = dict(store.trials()).get(n) if store is not None else None
            events.append(NightEvent(entry.id, night, job, entry.at, entry.fact, trial))
        return tuple(events)
