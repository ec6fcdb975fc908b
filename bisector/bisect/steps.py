"""What the loop is told to do, whoever decides it; the loop itself knows of neither strategy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from bisector.analysis.verdicts import Judging
from bisector.core.model import Commit, Kernel, Kind, Mattering, State
from bisector.git.ranges import Range


@dataclass(frozen=True, slots=True)
class Outlook:
    """How much is left: commits that may be the answer, trials to expect, and the likeliest commit's probability."""

    candidates: int = 0
    trials_left: int = 0
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """Measure a commit once more; ``whole`` when its runs are not to be stopped early."""

    commit: Commit
    purpose: str
    outlook: Outlook
    whole: bool = False


@dataclass(frozen=True, slots=True)
class MeasureChanged:
    """Measure an end without a commit, or with it, by whole runs."""

    kind: Kind
    commit: Commit
    end: Commit
    outlook: Outlook


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a bisection ended: ``candidates`` holds one commit when it was found."""

    state: State
    candidates: tuple[Commit, ...]
    skipped: tuple[Commit, ...]
    message: str


Step: TypeAlias = Measure | MeasureChanged | Outcome
Now: TypeAlias = Callable[[], Judging]


class Searcher(Protocol):
    """Decides from the record, and shows git how it stands."""

    def begin(self) -> None:
        """Make git's mirror of all that is known; both ends are measured."""
        ...

    def next(self) -> Step:
        """What follows from everything on record.

        Raises :class:`bisector.core.errors.EndsDoNotReproduce` when a merge base shows that there is nothing to bisect.
        """
        ...

    def log(self) -> str:
        """``git bisect log``."""
        ...


class Kin(Protocol):
    """What is known of kernels without building them."""

    def parents(self, sha: str) -> tuple[str, ...]:
        """The hashes of a commit's parents."""
        ...

    def twin(self, commit: Commit, kernel: Kernel) -> Commit | None:
        """A parent of a commit with this kernel that surely has it, too."""
        ...

    def mattering(self, wanted: Range, old: Kernel, new: Kernel) -> Mattering | None:
        """Which commits of the range can matter, given the kernels of its ends."""
        ...
