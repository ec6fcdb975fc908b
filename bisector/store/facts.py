"""The facts that the record of a run grows by: frozen values, each one whole. A class's name is its kind in the log.

A submission is recorded before an executor gets it, and its end together with what came of it. So a process that was
killed leaves the submissions that it had in flight, and none that is half done.
:meth:`bisector.store.store.Store.add` is the one that writes.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Self

from bisector.config import Settings, options
from bisector.core.subject import Compiler, Mattering, NotChanged
from bisector.core.trial import Control, Stage, Taken, Trial
from bisector.core.verdict import State
from bisector.search.noise import EarlierSearches
from bisector.store.comparison import Block, Budget, Place, PlannedComparison


@dataclass(frozen=True, slots=True)
class RunHeader:
    """What a run was begun for: the range as typed and resolved, if there is one, and the settings as JSON."""

    repository: Path | None
    old_rev: str
    old_sha: str
    new_rev: str
    new_sha: str
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
        at = datetime.now(UTC).isoformat(timespec="seconds")
        asked = (*old, *new, paths, first_parent, skips)
        return cls(repository, *asked, options.to_json(settings), version("bisector"), at)

    @property
    def has_ends(self) -> bool:
        """Whether something is looked for, between two ends."""
        return bool(self.old_sha and self.new_sha)


@dataclass(frozen=True, slots=True)
class StateChange:
    """A state that the run entered, and the process that wrote so; ``out_of_time`` if its budget allowed no more."""

    at: str
    state: State
    message: str
    pid: int
    out_of_time: bool = False


@dataclass(frozen=True, slots=True)
class InfraFault:
    """An attempt at a trial that failed by a fault of the tool, its host or the network."""

    at: Annotated[str, "time"]
    sha: Annotated[str, "what was tried"]
    stage: Stage
    host: Annotated[str, "name of the host"]
    message: Annotated[str, "one sentence"]


class Work(StrEnum):
    """What an executor was asked to do."""

    TRIAL = "trial"
    CONTROL = "control"
    BUILD = "build"
    RECHECK = "recheck"


class Ending(StrEnum):
    """What became of a submission. LOST when its process was killed, CANCELLED when nobody needed it any more."""

    DONE = "done"
    FAILED = "failed"
    LOST = "lost"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Submitted:
    """Work about to be given to an executor: its ``host``, trial ``n`` and place in a comparison, if any."""

    work: Work
    sha: str
    n: int | None = None
    host: str = ""
    block: int | None = None
    arm: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a submission, by its number."""

    submission: int
    ending: Ending


@dataclass(frozen=True, slots=True)
class NumberedTrial:
    """The facts of a trial, under its number.

    ``vouched_by`` is the number of the control by which its fault is known to be the kernel's own, counted from 1;
    ``place`` is where it belongs in a comparison, ``taken`` where it was taken over from. The control of the trial
    itself is not recorded with it: it follows from the controls.
    """

    n: int
    trial: Trial
    vouched_by: int | None = None
    place: Place | None = None
    taken: Taken | None = None


@dataclass(frozen=True, slots=True)
class BuildTry:
    """Whether a compiler builds a commit, with a subject's ``fragment`` if any; ``reason`` is empty when it does."""

    compiler: Compiler
    sha: str
    reason: str
    fragment: str = ""


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """A measured kernel, built once more, has the same digest; ``why_not`` says why that cannot be told, else empty."""

    sha: str
    content_sha256: str
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Compilers:
    """What every kernel of a bisection is built with, for good."""

    compilers: tuple[Compiler, ...]


@dataclass(frozen=True, slots=True)
class Skip:
    """A commit that a person wants not to be measured (any more)."""

    sha: str


Fact = (
    RunHeader
    | PlannedComparison
    | StateChange
    | Submitted
    | Ended
    | NumberedTrial
    | Control
    | Block
    | Budget
    | BuildTry
    | KernelCheck
    | Compilers
    | InfraFault
    | EarlierSearches
    | Mattering
    | NotChanged
    | Skip
)
