"""What can come of a bisection so far."""

from dataclasses import dataclass

from bisector.core.commit import Commit
from bisector.core.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Try:
    """A commit to try; ``candidates_left`` may be the first new one, and ``steps_left`` trials are to be expected."""

    commit: Commit
    candidates_left: int
    steps_left: int
    is_merge_base: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The first new commit."""

    commit: Commit


@dataclass(frozen=True, slots=True)
class OnlySkippedLeft:
    """Any of ``candidates`` may be the first new commit; the ``skipped`` among them stand in the way."""

    candidates: tuple[Commit, ...]
    skipped: tuple[Commit, ...]


@dataclass(frozen=True, slots=True)
class MergeBaseIsNew:
    """A common ancestor of both ends is new already: the change was undone on the way to ``old``."""

    merge_base: Commit
    old: Commit
    new: Commit


@dataclass(frozen=True, slots=True)
class OutsidePaths:
    """No commit that touches the paths made the change; one of ``candidates``, which do not, did."""

    candidates: tuple[Commit, ...]


Step = Try | Found | OnlySkippedLeft | MergeBaseIsNew | OutsidePaths


class Contradiction(Exception):
    """A verdict that cannot hold beside an earlier one, if there is one change and no more."""

    def __init__(self, sha: str, verdict: Verdict, other: str) -> None:
        super().__init__(sha, verdict, other)
        self.sha = sha
        self.verdict = verdict
        self.other = other

    def __str__(self) -> str:
        relation = "an ancestor" if self.verdict is Verdict.NEW else "a descendant"
        return f"{self.sha[:12]} is {self.verdict} and {relation} of {self.other[:12]}, which is not"
