"""The levels that the figures of the two sides lie on: their centres and spreads are learnt, and never known exactly.

Figures (scores, on a log scale) of one side have Student's t with four degrees of freedom around the side's centre,
scaled by a spread of its own; both centres move with the host, at one rate (*drift*), which is learnt with them. What
the readings leave open is represented by *particles*: some possible pairs of levels, the same for the same readings,
each with what it has to be weighed by in a sum over all that is possible (importance sampling).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np

from bisector.search.graph import Floats

# A spread before any reading is log-normal: half of all are above 6 %, one of six above 15 %, one of six below 2.4 %.
_SPREAD = 0.06
_SPREAD_DEVIATION = math.log(2.5)
# Nothing is known of a centre, but that it is not thousands of times away from the readings of the ends.
_CENTRE_DEVIATION = 3.0
# How far a host moves all figures in an hour: some 1 %, up or down.
_DRIFT_DEVIATION = 0.01
_PARTICLES = 32
# The particles reach farther than a normal distribution would: the mode is found by fewer readings than would do.
_WIDER = 1.15
_ROUNDS = 12  # of the search for the mode
_SETTLED = 1e-2
# What a reading tells of a centre and of the logarithm of a spread (Fisher information of Student's t, 4 degrees).
_TELLS_CENTRE = 5 / 7
_TELLS_SPREAD = 8 / 7
_DENSITY = 0.375  # of Student's t with four degrees of freedom at 0
_LEAST = 1e-12  # of a sum of weights that is divided by
_UNKNOWN = 5  # the centre and the spread of each side, and the drift

# For the densities of each reading on the old and on the new level the probabilities that it is of these.
Assign: TypeAlias = Callable[[Floats, Floats], tuple[Floats, Floats]]


@dataclass(frozen=True, slots=True)
class Level:
    """Where the scores of one side lie: ``centre`` is that at the time ``hour``."""

    centre: float
    spread: float
    hour: float = 0.0


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of both sides, and what both grow by in an hour."""

    old: Level
    new: Level
    drift: float = 0.0

    @property
    def overlap(self) -> float:
        """The share of a level's readings that lie on the other level's side of the line between."""
        z = abs(self.new.centre - self.old.centre) / (self.new.spread + self.old.spread)
        return float(beyond(np.array(z)))


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """Possible levels of one side, whose centres are those at the time ``hour`` and grow by ``drift`` an hour."""

    centre: Floats
    spread: Floats
    drift: Floats
    hour: float = 0.0

    @classmethod
    def of(cls, level: Level, drift: float = 0.0) -> Self:
        """One alone."""
        return cls(np.array([level.centre]), np.array([level.spread]), np.array([drift]), level.hour)

    def density(self, scores: Floats, hours: Floats) -> Floats:
        """Per natural log unit: for each possible level a row, for each score and its time a column."""
        centres = self.centre[:, None] + self.drift[:, None] * (hours - self.hour)
        z = (scores - centres) / self.spread[:, None]
        return _t4(z) / self.spread[:, None]

    def at(self, hour: float) -> Floats:
        """The centres at a time."""
        return self.centre + self.drift * (hour - self.hour)

    def above(self, line: float, hour: float) -> Floats:
        """The share of the readings above a line at a time, for each possible level."""
        return beyond((line - self.at(hour)) / self.spread)


@dataclass(frozen=True, slots=True, eq=False)
class Particles:
    """Possible levels, and the logarithm of the weight of each: what it has beforehand, over how often it was drawn."""

    old: Side
    new: Side
    log_weight: Floats
    mode: Levels

    @classmethod
    def known(cls, levels: Levels) -> Self:
        """Of somebody who knows them."""
        old, new = (Side.of(level, levels.drift) for level in (levels.old, levels.new))
        return cls(old, new, np.zeros(1), levels)

    @classmethod
    def learn(cls, scores: Floats, hours: Floats, first: tuple[float, float], assign: Assign) -> Self:
        """From scores and their times, the first guess of both centres, and what they are of under given levels."""
        levels = Levels(Level(first[0], _SPREAD), Level(first[1], _SPREAD))
        middle = float(np.mean(first))
        for _ in range(_ROUNDS):
            before, sides = levels, cls.known(levels)
            shares = assign(sides.old.density(scores, hours)[0], sides.new.density(scores, hours)[0])
            seen = tuple(_Seen(scores, hours, share) for share in shares)
            levels = _nearer(levels, seen, middle)
            if _moved(before, levels) < _SETTLED:
                break
        return cls._around(levels, seen, middle)

    @classmethod
    def _around(cls, mode: Levels, seen: tuple["_Seen", ...], middle: float) -> Self:
        drawn = iter(_DRAWS)
        sides, log_weight, knows = [], np.full(_PARTICLES, -np.log(_PARTICLES)), np.zeros(_PARTICLES)
        for level, of in zip((mode.old, mode.new), seen, strict=True):
            first, second = next(drawn), next(drawn)
            deviation = _WIDER / np.sqrt(_TELLS_SPREAD * of.count + _SPREAD_DEVIATION**-2)
            log_spread = np.log(level.spread) + deviation * first
            spread = np.exp(log_spread)
            reach = _WIDER / np.sqrt(_TELLS_CENTRE * of.count / spread**2 + _CENTRE_DEVIATION**-2)
            centre = level.centre + reach * second
            log_weight -= np.log(_t4(first) / deviation) + np.log(_t4(second) / reach)
            log_weight += _log_normal(log_spread, np.log(_SPREAD), _SPREAD_DEVIATION)
            log_weight += _log_normal(centre, middle, _CENTRE_DEVIATION)
            knows += _TELLS_CENTRE * of.time_apart(level.hour) / spread**2
            sides.append((centre, spread, level.hour))
        last = next(drawn)
        reach = _WIDER / np.sqrt(knows + _DRIFT_DEVIATION**-2)
        drifts = mode.drift + reach * last
        log_weight += _log_normal(drifts, 0.0, _DRIFT_DEVIATION) - np.log(_t4(last) / reach)
        old, new = (Side(centre, spread, drifts, hour) for centre, spread, hour in sides)
        return cls(old, new, log_weight, mode)


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """All scores, their times, and the share of each that is of one side."""

    scores: Floats
    hours: Floats
    shares: Floats

    @property
    def count(self) -> float:
        """How many readings there are of the side."""
        return float(self.shares.sum())

    def time_apart(self, hour: float) -> float:
        """The sum of the squares of the readings' times from that one."""
        return float(self.shares @ (self.hours - hour) ** 2)

    def precision(self, level: Level, drift: float) -> Floats:
        """What each reading counts for: one far away little."""
        z = (self.scores - level.centre - drift * (self.hours - level.hour)) / level.spread
        return self.shares * 5 / (4 + z * z) / level.spread**2

    def nearer(self, level: Level, drift: float, middle: float) -> Level:
        """The level that explains the side's scores better: a step of Fisher's scoring, with the prior."""
        precision = self.precision(level, drift)
        weight = precision.sum() + _CENTRE_DEVIATION**-2
        # At the mean time of the readings the centre does not depend on the drift.
        hour = float(precision @ self.hours / max(precision.sum(), _LEAST))
        still = self.scores - drift * (self.hours - hour)
        centre = (precision @ still + middle * _CENTRE_DEVIATION**-2) / weight
        z = (still - centre) / level.spread
        # A reading tells nothing of the spread where the centre is unknown, and n tell of it as n - 1 otherwise would.
        slope = 1 + self.shares @ (5 / (4 + z * z) * z * z - 1)
        slope -= math.log(level.spread / _SPREAD) / _SPREAD_DEVIATION**2
        step = slope / (_TELLS_SPREAD * self.count + _SPREAD_DEVIATION**-2)
        return Level(float(centre), level.spread * math.exp(min(1.0, max(-1.0, step))), hour)


def _nearer(levels: Levels, seen: tuple[_Seen, ...], middle: float) -> Levels:
    """The levels that explain the scores better, and then what both sides' readings move by in an hour."""
    old, new = (
        of.nearer(level, levels.drift, middle) for of, level in zip(seen, (levels.old, levels.new), strict=True)
    )
    moves, weight = 0.0, _DRIFT_DEVIATION**-2
    for of, level in zip(seen, (old, new), strict=True):
        precision, apart = of.precision(level, levels.drift), of.hours - level.hour
        moves += float(precision * apart @ (of.scores - level.centre))
        weight += float(precision @ apart**2)
    return Levels(old, new, moves / weight)


def beyond(z: Floats) -> Floats:
    """The upper tail of Student's t with four degrees of freedom."""
    root = 1 + z * z / 4
    tail: Floats = 0.5 - 0.375 * z / np.sqrt(root) * (1 - z * z / (12 * root))
    return np.clip(tail, 0.0, 1.0)


def _moved(before: Levels, after: Levels) -> float:
    """How far the levels went, in spreads."""
    pairs = ((before.old, after.old), (before.new, after.new))
    centres = max(abs(b.centre - a.centre) / a.spread for b, a in pairs)
    return max(centres, *(abs(math.log(b.spread / a.spread)) for b, a in pairs))


def _t4(z: Floats) -> Floats:
    density: Floats = _DENSITY * (1 + z * z / 4) ** -2.5
    return density


def _log_normal(x: Floats, mean: float, deviation: float) -> Floats:
    log: Floats = -0.5 * ((x - mean) / deviation) ** 2 - np.log(deviation * np.sqrt(2 * np.pi))
    return log


def _draws(count: int) -> Floats:
    """Points of independent t distributions that fill their space evenly, and their mirror images: a row a dimension.

    Multiples of the powers of the root of x^6 = x + 1, modulo 1 (Roberts 2018, a low-discrepancy sequence), through the
    quantile function, which has a closed form for four degrees of freedom.
    """
    root = 1.1347241384015194
    uniform = np.outer(root ** -np.arange(1.0, _UNKNOWN + 1.0), np.arange(1, count // 2 + 1)) % 1
    product = 4 * uniform * (1 - uniform)
    cosine = np.cos(np.arccos(np.sqrt(product)) / 3) / np.sqrt(product)
    quantile = np.sign(uniform - 0.5) * 2 * np.sqrt(np.maximum(cosine - 1, 0.0))
    return np.concatenate((quantile, -quantile), axis=1)


_DRAWS = _draws(_PARTICLES)
