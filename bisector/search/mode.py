"""The likeliest levels, by all readings: expectation and maximisation together with the position of the change.

Dempster, Laird and Rubin 1977. A split of the readings at a gap would make levels that overlap look apart.
"""

import math
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np

from bisector.search.graph import Floats, Mask
from bisector.search.levels import (
    CENTRE_DEVIATION,
    Expected,
    Level,
    Levels,
)

# What a reading tells of a centre and of the logarithm of a spread (Fisher information of Student's t, 4 degrees).
TELLS_CENTRE = 5 / 7
TELLS_SPREAD = 8 / 7
_ROUNDS = 12
_SETTLED = 1e-2
_LEAST = 1e-12  # of a sum of weights that is divided by


class Figures(Protocol):
    """All figures of a search, and what they are of under given levels.

    ``ends`` are the first scores of the old end and of the new one; ``certain`` is for each figure whether the side of
    its kernel does not hang on the position of the change; ``expected`` of levels is so much before any figure.
    """

    @property
    def scores(self) -> Floats:
        """The logarithm of each figure."""

    @property
    def hours(self) -> Floats:
        """When each was read."""

    @property
    def ends(self) -> tuple[float, float]:
        """The first scores of both ends."""

    @property
    def certain(self) -> Mask:
        """For each figure whether its kernel is of one side for sure."""

    @property
    def expected(self) -> Expected:
        """What is known of levels before any figure."""

    def shares(self, levels: Levels) -> tuple[Floats, Floats]:
        """For each figure the probability that it lies on the old level, and on the new one."""


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """All scores, their times, and the share of each that is of one side."""

    scores: Floats
    hours: Floats
    shares: Floats

    @property
    def count(self) -> float:
        """How many readings there are of the side."""
        return float(self.shares.sum())

    def only(self, these: Mask) -> "Seen":
        """Some of them."""
        return replace(self, shares=np.where(these, self.shares, 0.0))

    def time_apart(self, hour: float) -> float:
        """The sum of the squares of the readings' times from that one."""
        return float(self.shares @ (self.hours - hour) ** 2)

    def precision(self, level: Level, drift: float) -> Floats:
        """What each reading counts for: one far away little."""
        z = (self.scores - level.centre - drift * (self.hours - level.hour)) / level.spread
        return self.shares * 5 / (4 + z * z) / level.spread**2

    def nearer(self, level: Level, drift: float, middle: float, expected: Expected) -> Level:
        """The level that explains the side's scores better: a step of Fisher's scoring, with the prior."""
        precision = self.precision(level, drift)
        weight = precision.sum() + CENTRE_DEVIATION**-2
        # At the mean time of the readings the centre does not depend on the drift.
        hour = float(precision @ self.hours / max(precision.sum(), _LEAST))
        still = self.scores - drift * (self.hours - hour)
        centre = (precision @ still + middle * CENTRE_DEVIATION**-2) / weight
        z = (still - centre) / level.spread
        # A reading tells nothing of the spread where the centre is unknown, and n tell of it as n - 1 otherwise would.
        slope = 1 + self.shares @ (5 / (4 + z * z) * z * z - 1)
        slope -= math.log(level.spread / expected.spread) / expected.spread_deviation**2
        step = slope / (TELLS_SPREAD * self.count + expected.spread_deviation**-2)
        return Level(float(centre), level.spread * math.exp(min(1.0, max(-1.0, step))), hour)


Both: TypeAlias = tuple[Seen, Seen]


def likeliest(figures: Figures) -> tuple[Levels, Both]:
    """The levels, and what is seen of the old side and of the new one."""
    (old, new), spread = figures.ends, figures.expected.spread
    levels, middle = Levels(Level(old, spread), Level(new, spread)), (old + new) / 2
    seen = _seen(figures, levels)
    for _ in range(_ROUNDS):
        before, levels = levels, _nearer(levels, seen, middle, figures.expected)
        if _moved(before, levels) < _SETTLED:
            break
        seen = _seen(figures, levels)
    return levels, seen


def _seen(figures: Figures, levels: Levels) -> Both:
    old, new = figures.shares(levels)
    return Seen(figures.scores, figures.hours, old), Seen(figures.scores, figures.hours, new)


def _nearer(levels: Levels, seen: Both, middle: float, expected: Expected) -> Levels:
    """The levels that explain the scores better, and then what both sides' readings move by in an hour."""
    pairs = zip(seen, (levels.old, levels.new), strict=True)
    old, new = (of.nearer(level, levels.drift, middle, expected) for of, level in pairs)
    moves, weight = 0.0, expected.drift_deviation**-2
    for of, level in zip(seen, (old, new), strict=True):
        precision, apart = of.precision(level, levels.drift), of.hours - level.hour
        moves += float(precision * apart @ (of.scores - level.centre))
        weight += float(precision @ apart**2)
    return Levels(old, new, moves / weight)


def _moved(before: Levels, after: Levels) -> float:
    """How far the levels went, in spreads."""
    pairs = ((before.old, after.old), (before.new, after.new))
    centres = max(abs(b.centre - a.centre) / a.spread for b, a in pairs)
    return max(centres, *(abs(math.log(b.spread / a.spread)) for b, a in pairs))
