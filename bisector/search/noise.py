"""What misleads: rates of wrong readings, levels that figures lie on, and what both cost at least.

A run misleads by a hiccup of the host, a kernel as a whole by its layout (*sticky*: repeating it teaches nothing).
Figures (scores, on a log scale) of one side have Student's t with four degrees of freedom around the side's centre,
scaled by a spread of its own; both centres move with the host, at one rate (*drift*). None of it is ever known exactly:
a sum over all levels that are possible is one over some pairs of them, the *particles*, the same for the same readings.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from operator import add
from typing import Self

import numpy as np

from bisector.search.graph import Floats, Numbers

# Nothing is known of a centre, but that it is not thousands of times away from the readings of the ends.
CENTRE_DEVIATION = 3.0
_DENSITY = 0.375  # of Student's t with four degrees of freedom at 0


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of levels before any reading.

    A spread is log-normal: half of all are above ``spread``, one of six is farther above it than ``spread_deviation``
    on the log scale, and one of six below. A host moves all figures by some ``drift_deviation`` in an hour, up or down.
    """

    spread: float
    spread_deviation: float
    drift_deviation: float


# One of six above 15 %, one of six below 2.4 %; a host that is not what it was an hour ago.
OF_HOSTS = Expected(0.06, math.log(2.5), 0.01)
# One of six above 1.5 %, for what a cache makes of nanoseconds, and one of six below 0.06 %; nothing moves.
OF_COUNTED = Expected(0.003, math.log(5.0), 1e-6)


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
    def apart(self) -> float:
        """By how much the new side's centre is above the old side's at one time."""
        return self.new.centre - self.old.centre - self.drift * (self.new.hour - self.old.hour)

    @property
    def overlap(self) -> float:
        """The share of a level's readings that lie on the other level's side of the line between."""
        z = abs(self.new.centre - self.old.centre) / (self.new.spread + self.old.spread)
        return float(beyond(np.array(z)))


@dataclass(frozen=True, slots=True, eq=False)
class SideLevels:
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
        return density(z) / self.spread[:, None]

    def at(self, hour: float) -> Floats:
        """The centres at a time."""
        return self.centre + self.drift * (hour - self.hour)

    def above(self, line: float, hour: float) -> Floats:
        """The share of the readings above a line at a time, for each possible level."""
        return beyond((line - self.at(hour)) / self.spread)


def density(z: Floats) -> Floats:
    """Of Student's t with four degrees of freedom."""
    found: Floats = _DENSITY * (1 + z * z / 4) ** -2.5
    return found


def beyond(z: Floats) -> Floats:
    """The upper tail of Student's t with four degrees of freedom."""
    root = 1 + z * z / 4
    tail: Floats = 0.5 - 0.375 * z / np.sqrt(root) * (1 - z * z / (12 * root))
    return np.clip(tail, 0.0, 1.0)


def log_sum(log: Floats, axis: int = 0) -> Floats:
    """The logarithm of the sum of the exponentials."""
    top = log.max(axis=axis, keepdims=True)
    found: Floats = np.squeeze(top, axis) + np.log(np.exp(log - top).sum(axis=axis))
    return found


PARTICLES = 32
_MULTIPLIER = 13


@dataclass(frozen=True, slots=True, eq=False)
class Particles:
    """Possible levels, and the logarithm of the weight of each: what it has beforehand, over how often it was drawn."""

    old: SideLevels
    new: SideLevels
    log_weight: Floats
    mode: Levels

    @classmethod
    def known(cls, levels: Levels) -> Self:
        """Of somebody who knows them."""
        old, new = (SideLevels.of(level, levels.drift) for level in (levels.old, levels.new))
        return cls(old, new, np.zeros(1), levels)

    def _at(self, places: Numbers) -> "Particles":
        old, new = (
            SideLevels(side.centre[places], side.spread[places], side.drift[places], side.hour)
            for side in (self.old, self.new)
        )
        return Particles(old, new, self.log_weight[places], self.mode)

    @classmethod
    def together(cls, hosts: "Sequence[Particles]") -> "tuple[Particles, ...]":
        """Those of several hosts, in an order in which the same places of all stand for what they are together.

        What one host's levels are says nothing of another's, so each is paired with those of the others evenly: places
        are multiples of powers of 13 modulo their number, 32 (a lattice of rank 1; Korobov 1959). Of one host alone
        what stands there several times has the weight of all.
        """
        if len(hosts) == 1:
            (one,) = hosts
            points = np.stack((one.old.centre, one.old.spread, one.new.centre, one.new.spread, one.old.drift))
            _, first, times = np.unique(points, axis=1, return_index=True, return_counts=True)
            return (replace(one._at(first), log_weight=one.log_weight[first] + np.log(times)),)
        every = np.arange(PARTICLES)
        return tuple(
            one._at((every * pow(_MULTIPLIER, number, PARTICLES) + number) % PARTICLES)
            for number, one in enumerate(hosts)
        )


# The rates that a run may mislead at, and how likely each is beforehand. What misleads makes a run worse: a kernel of
# the better side looks worse some 3 times in 100, and one of the worse side hardly ever looks better. Either may do so
# in a quarter of its runs all the same; on a host that is loud both do.
_RATES = (0.001, 0.004, 0.015, 0.05, 0.12, 0.25)
_BETTER_LOOKS_WORSE = (0.20, 0.20, 0.25, 0.24, 0.07, 0.04)
_WORSE_LOOKS_BETTER = (0.70, 0.20, 0.06, 0.02, 0.01, 0.01)
_LOUD = (0.0, 0.0, 0.0, 0.0, 0.5, 0.5)
_LOUD_HOSTS = 0.05
# In counted time no host makes a run worse, or better.
_COUNTED = (0.93, 0.05, 0.01, 0.005, 0.003, 0.002)
# The share of kernels that mislead as a whole.
_STICKY = (0.003, 0.015, 0.05)
_STICKY_PRIOR = (0.45, 0.40, 0.15)
# What earlier runs on this host read counts for less than what this one reads: hosts change. So many of them count at
# most, and with this probability none does.
_EARLIER_AT_MOST = 40.0
_EARLIER_IN_VAIN = 0.1
# What is expected of a host beforehand: the usual rates, as if they came from so many readings.
_USUAL_IS_WORTH = 20.0


# That nothing in a range changed, whose ends differ. It was so in 40 % of 13,600 ranges that people had handed to a
# culprit finder (T. Henderson and others, Flake Aware Culprit Finding, ICST 2023); ends that were told apart in turn
# leave less of it.
NOTHING = 0.10


@dataclass(frozen=True, slots=True)
class Noise:
    """Error rates: of a run of an old kernel that looks new, of a new one that looks old, of a commit as a whole.

    The defaults are the usual ones where the new side is the better one: what misleads makes a run worse, and a bad
    kernel does not become a good one by accident.
    """

    old_as_new: float = 0.003
    new_as_old: float = 0.05
    sticky: float = 0.01


@dataclass(frozen=True, slots=True)
class EarlierSearches:
    """What earlier runs of the same experiment on this host read of kernels whose side was known by other readings.

    How many readings there were of kernels of the better side, of the worse side, and how many contradicted it. So many
    ``searches`` named a commit, or said that nothing had changed, which ``without_change`` counts.
    """

    better: int = 0
    better_contradicted: int = 0
    worse: int = 0
    worse_contradicted: int = 0
    searches: int = 0
    without_change: int = 0

    def __add__(self, other: "EarlierSearches") -> "EarlierSearches":
        """Both together."""
        return EarlierSearches(*map(add, astuple(self), astuple(other)))

    @property
    def noise(self) -> Noise:
        """What to expect here where the new side is the better one: the usual rates, after these readings."""
        usual = Noise()
        return replace(
            usual,
            old_as_new=_after(usual.old_as_new, self.worse, self.worse_contradicted),
            new_as_old=_after(usual.new_as_old, self.better, self.better_contradicted),
        )

    @property
    def nothing(self) -> float:
        """How likely it is beforehand that nothing in a range changed."""
        return _after(NOTHING, self.searches, self.without_change)


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """What the rates may be, and the logarithm of the probability of each case beforehand; they sum to 1."""

    old_as_new: Floats
    new_as_old: Floats
    sticky: Floats
    log_prior: Floats

    @classmethod
    def known(cls, noise: Noise) -> Self:
        """Of somebody who knows them."""
        return cls(np.array([noise.old_as_new]), np.array([noise.new_as_old]), np.array([noise.sticky]), np.zeros(1))

    def mean(self, weight: Floats) -> Noise:
        """By weights that sum to 1."""
        return Noise(*(float(weight @ each) for each in (self.old_as_new, self.new_as_old, self.sticky)))

    @classmethod
    def unknown(cls, *, new_is_better: bool = True, earlier: EarlierSearches | None = None) -> Self:
        """Of somebody who knows which side is the better one, and what earlier runs read."""
        both = np.outer(_WORSE_LOOKS_BETTER, _BETTER_LOOKS_WORSE)
        both = (1 - _LOUD_HOSTS) * both + _LOUD_HOSTS * np.outer(_LOUD, _LOUD)
        seen, rates = earlier or EarlierSearches(), np.array(_RATES)
        likelihood = []
        for readings, contradicted in ((seen.worse, seen.worse_contradicted), (seen.better, seen.better_contradicted)):
            weight = min(1.0, _EARLIER_AT_MOST / max(readings, 1))
            likelihood.append(rates ** (weight * contradicted) * (1 - rates) ** (weight * (readings - contradicted)))
        after = both * np.outer(*likelihood)
        both = (1 - _EARLIER_IN_VAIN) * after / after.sum() + _EARLIER_IN_VAIN * both
        return cls._of(both if new_is_better else both.T)

    @classmethod
    def of_counted(cls) -> Self:
        """Of guests whose time is counted, and that do the same again."""
        return cls._of(np.outer(_COUNTED, _COUNTED))

    @classmethod
    def _of(cls, both: Floats) -> Self:
        """By the probability of each pair of rates, those of the old side by rows."""
        rates = np.array(_RATES)
        old_as_new, new_as_old, sticky = np.meshgrid(rates, rates, np.array(_STICKY), indexing="ij")
        prior = both[:, :, None] * np.array(_STICKY_PRIOR)
        return cls(old_as_new.ravel(), new_as_old.ravel(), sticky.ravel(), np.log(prior.ravel()))


def _after(usual: float, readings: int, contradicted: int) -> float:
    return (usual * _USUAL_IS_WORTH + contradicted) / (_USUAL_IS_WORTH + readings)


_GUESSING = 0.5
_STEPS = 40  # of halving an interval: more than the digits of a double need here


def expected_runs(commits: int, error: float, miss: float) -> float:
    """How many runs tell one of so many commits, with the chance ``miss`` of a wrong answer; no fewer will do.

    ``error`` is the rate of wrong readings; at a half and above it is infinite. Burnashev (1974): log2(N)/C +
    log2(1/miss)/C1, where C is the capacity of the channel and C1 what a reading of a suspect tells.
    """
    if error >= _GUESSING:
        return math.inf
    if error <= 0:
        return math.log2(commits) if commits > 1 else 0.0
    confirming = (1 - 2 * error) * math.log2((1 - error) / error)
    return math.log2(max(1, commits)) / capacity(error) + math.log2(1 / miss) / confirming


def capacity(error: float) -> float:
    """The bits that one reading can tell at most."""
    return 1 - (-error * math.log2(error) - (1 - error) * math.log2(1 - error) if 0 < error < 1 else 0.0)


def levels_apart(factor: float, spread: float) -> Levels:
    """The levels of two sides; readings of one have the standard deviation ``spread``, in natural log units."""
    width = spread / math.sqrt(2)  # Student's t with 4 degrees of freedom has the variance 2
    return Levels(Level(0.0, width), Level(math.log(factor), width))


def error_rate(factor: float, spread: float, noise: Noise) -> float:
    """How often a reading is on the wrong side of the line between two levels, the mean of both sides."""
    overlap = levels_apart(factor, spread).overlap
    rates = (noise.old_as_new, noise.new_as_old)
    return sum(rate + (1 - 2 * rate) * overlap for rate in rates) / len(rates)


def least_factor(commits: int, spread: float, noise: Noise, *, miss: float, runs: int) -> float:
    """The smallest factor between the two sides that can be found in so many runs; infinite when none can."""

    def too_close(log_factor: float) -> bool:
        return expected_runs(commits, error_rate(math.exp(log_factor), spread, noise), miss) > runs

    near, far = 0.0, 50.0 * spread
    if too_close(far):
        return math.inf
    for _ in range(_STEPS):
        middle = (near + far) / 2
        near, far = (middle, far) if too_close(middle) else (near, middle)
    return math.exp(far)
