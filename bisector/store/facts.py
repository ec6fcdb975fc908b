"""The facts that are appended to the record of a run: frozen values. A class's name is its kind in the log.

A submission is recorded before an executor gets it, and its end together with its result. So a killed process leaves
the submissions that it had in flight, and nothing half done. :meth:`bisector.store.store.Store.add` writes facts.
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
        """The header of a new run; each end is a pair: the revision as typed, and its hash."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        asked = (*old, *new, paths, first_parent, skips)
        return cls(repository, *asked, options.to_json(settings), version("bisector"), at)

    @property
    def has_ends(self) -> bool:
        """Whether the run searches between two ends."""
        return bool(self.old_sha and self.new_sha)


@dataclass(frozen=True, slots=True)
class StateChange:
    """A state that the run entered, and the process that recorded it; ``out_of_time`` if the budget was spent."""

    at: str
    state: State
    message: str
    pid: int
    out_of_time: bool = False


@dataclass(frozen=True, slots=True)
class InfraFault:
    """An attempt at a trial that failed through the tool, its host or the network."""

    at: Annotated[str, "time"]
    sha: Annotated[str, "what was tried"]
    stage: Stage
    host: Annotated[str, "name of the host"]
    message: Annotated[str, "one sentence"]


class Work(StrEnum):
    """The kind of work that an executor was asked to do."""

    TRIAL = "trial"
    CONTROL = "control"
    BUILD = "build"
    RECHECK = "recheck"


class Ending(StrEnum):
    """How a submission ended: LOST if its process was killed, CANCELLED if its result was no longer needed."""

    DONE = "done"
    FAILED = "failed"
    LOST = "lost"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Submitted:
    """Work about to be given to an executor; ``host``, trial ``n`` and the place in a comparison may be unset."""

    work: Work
    sha: str
    n: int | None = None
    host: str = ""
    block: int | None = None
    arm: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of the submission with this number."""

    submission: int
    ending: Ending


@dataclass(frozen=True, slots=True)
class NumberedTrial:
    """A trial with its number.

    ``vouched_by`` is the number, from 1, of the control that showed the trial's fault to be the kernel's own; ``place``
    is its place in a comparison, and ``taken`` the run that it was taken over from. The trial's own control is not
    recorded here, since it follows from the controls.
    """

    n: int
    trial: Trial
    vouched_by: int | None = None
    place: Place | None = None
    taken: Taken | None = None


@dataclass(frozen=True, slots=True)
class BuildTry:
    """Whether a compiler builds a commit, with a subject's ``fragment`` if any; ``reason`` is empty if it does."""

    compiler: Compiler
    sha: str
    reason: str
    fragment: str = ""


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """A measured kernel was built again with the same digest, or ``why_not`` says why that cannot be determined."""

    sha: str
    content_sha256: str
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Compilers:
    """The compilers of every kernel of a bisection; they do not change."""

    compilers: tuple[Compiler, ...]


@dataclass(frozen=True, slots=True)
class Skip:
    """A commit that a person asked not to measure, or not to measure again."""

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
