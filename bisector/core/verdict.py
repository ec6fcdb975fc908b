"""Verdicts, and the words that people have for them: the two sides, what is looked for, how a bisection stands."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated


class Verdict(StrEnum):
    """What a trial says of its commit; OLD and NEW are shown in the person's terms.

    MEASURED has figures that count and no threshold yet; WEAK is measured again.
    """

    OLD = "old"
    NEW = "new"
    SKIP = "skip"
    WEAK = "weak"
    MEASURED = "measured"

    @property
    def settled(self) -> bool:
        """Whether git is told about it."""
        return self in (Verdict.OLD, Verdict.NEW, Verdict.SKIP)


class Direction(StrEnum):
    """Whether the change looked for makes scores better or worse (:mod:`bisector.core.objective`)."""

    IMPROVEMENT = "improvement"
    REGRESSION = "regression"

    @classmethod
    def between(cls, old: float, new: float) -> "Direction":
        """The direction of a change from one score to another."""
        return cls.IMPROVEMENT if new > old else cls.REGRESSION

    @property
    def sign(self) -> int:
        """1 where the new side has the larger score, else -1."""
        return 1 if self is Direction.IMPROVEMENT else -1

    def verdict(self, better: bool) -> Verdict:
        """The side of the change that a score above the threshold (the better side), or not above it, is on."""
        return Verdict.NEW if better is (self is Direction.IMPROVEMENT) else Verdict.OLD


class Strategy(StrEnum):
    """Who chooses what to measure, and concludes: the posterior, or git bisect."""

    BAYES = "bayes"
    GIT = "git"


class State(StrEnum):
    """How a run stands: IMPORTED has trials of others and no answer, MEASURED trials of which nothing is asked."""

    RUNNING = "running"
    FOUND = "found"
    NARROWED = "narrowed"
    FAILED = "failed"
    STOPPED = "stopped"
    IMPORTED = "imported"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True)
class Terms:
    """The person's words for the two sides, as ``git bisect --term-old --term-new``."""

    old: Annotated[str, "word for the old side"] = "broken"
    new: Annotated[str, "word for the new side"] = "fixed"

    @classmethod
    def usual(cls, direction: Direction | None) -> "Terms":
        """The words where nobody chose any; "old" and "new" while it is not known what changed."""
        return _USUAL_TERMS[direction]

    def word(self, verdict: Verdict) -> str:
        """The verdict in the person's words."""
        return {Verdict.OLD: self.old, Verdict.NEW: self.new}.get(verdict, verdict.value)


_USUAL_TERMS = {
    None: Terms("old", "new"),
    Direction.IMPROVEMENT: Terms("broken", "fixed"),
    Direction.REGRESSION: Terms("good", "bad"),
}
