"""Verdicts, the users' words for both sides, the direction of a change, and the state of a bisection."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated


class Verdict(StrEnum):
    """The verdict of a trial on its commit; OLD and NEW are shown in the user's words.

    A MEASURED trial has figures that count, but no threshold yet; a WEAK one is measured again.
    """

    OLD = "old"
    NEW = "new"
    SKIP = "skip"
    WEAK = "weak"
    MEASURED = "measured"

    @property
    def settled(self) -> bool:
        """Whether the verdict is reported to git."""
        return self in (Verdict.OLD, Verdict.NEW, Verdict.SKIP)


class Direction(StrEnum):
    """The direction of the change: whether it makes scores better or worse (:mod:`bisector.core.objective`)."""

    IMPROVEMENT = "improvement"
    REGRESSION = "regression"

    @classmethod
    def between(cls, old: float, new: float) -> "Direction":
        """Return the direction of a change from one score to another."""
        return cls.IMPROVEMENT if new > old else cls.REGRESSION

    @property
    def sign(self) -> int:
        """1 if the new side has the larger score, else -1."""
        return 1 if self is Direction.IMPROVEMENT else -1

    def verdict(self, better: bool) -> Verdict:
        """Return the side of a score that is above the threshold (``better``), or not above it."""
        return Verdict.NEW if better is (self is Direction.IMPROVEMENT) else Verdict.OLD


class Strategy(StrEnum):
    """The strategy that chooses what to measure, and concludes: the posterior, or git bisect."""

    BAYES = "bayes"
    GIT = "git"


class State(StrEnum):
    """The state of a run: IMPORTED has trials of others and no answer, MEASURED has trials and no question."""

    RUNNING = "running"
    FOUND = "found"
    NARROWED = "narrowed"
    FAILED = "failed"
    STOPPED = "stopped"
    IMPORTED = "imported"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True)
class SideWords:
    """The user's words for the two sides, as ``git bisect --term-old --term-new``."""

    old: Annotated[str, "word for the old side"] = "broken"
    new: Annotated[str, "word for the new side"] = "fixed"

    @classmethod
    def usual(cls, direction: Direction | None) -> "SideWords":
        """Return the default words; "old" and "new" while the direction is not known."""
        return _USUAL_TERMS[direction]

    def word(self, verdict: Verdict) -> str:
        """Return the verdict in the user's words."""
        return {Verdict.OLD: self.old, Verdict.NEW: self.new}.get(verdict, verdict.value)


_USUAL_TERMS = {
    None: SideWords("old", "new"),
    Direction.IMPROVEMENT: SideWords("broken", "fixed"),
    Direction.REGRESSION: SideWords("good", "bad"),
}
