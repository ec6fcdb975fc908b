"""The noise model: how often readings mislead, where figures lie, and how many runs a search needs at least.

docs/method-search.md has the model. A kernel that misleads as a whole, because of its layout, is *sticky*. None of the
rates and levels is ever known exactly: the sum over all possible levels is taken over some pairs of them, the
*particles*, which are the same for the same readings.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from operator import add
from typing import Self

import numpy as np

from bisector.search.graph import Floats, Numbers

# All that is known of a centre is that it is not thousands of times away from the readings of the ends.
CENTRE_DEVIATION = 3.0
_DENSITY = 0.375  # density of Student's t with four degrees of freedom at 0


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of the levels of a host before any reading.

    A spread is log-normal with the median ``spread`` and the standard deviation ``spread_deviation`` of its natural
    logarithm: one of six is farther above the median than that, one of six farther below. A host moves all figures by
    some ``drift_deviation`` per hour, up or down.
    """

    spread: float
    spread_deviation: float
    drift_deviation: float


# One spread of six is above 15 %, one of six below 2.4 %; a host changes by some 1 % in an hour.
OF_HOSTS = Expected(0.06, math.log(2.5), 0.01)
# One spread of six is above 1.5 %, because a cache reacts to nanoseconds, and one of six below 0.06 %; nothing drifts.
OF_COUNTED = Expected(0.003, math.log(5.0), 1e-6)


@dataclass(frozen=True, slots=True)
class Level:
    """Where the scores of one side lie; ``centre`` is the centre at the time ``hour``."""

    centre: float
    spread: float
    hour: float = 0.0


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of both sides, and the drift of both per hour."""

    old: Level
    new: Level
    drift: float = 0.0

    @property
    def apart(self) -> float:
        """The distance of the new side's centre above the old side's at the same time."""
        return self.new.centre - self.old.centre - self.drift * (self.new.hour - self.old.hour)

    @property
    def overlap(self) -> float:
        """The share of a level's readings that lie nearer to the other level, in spreads."""
        z = abs(self.new.centre - self.old.centre) / (self.new.spread + self.old.spread)
        return float(beyond(np.array(z)))


@dataclass(frozen=True, slots=True, eq=False)
class SideLevels:
    """Possible levels of one side; their centres are those at the time ``hour`` and grow by ``drift`` per hour."""

    centre: Floats
    spread: Floats
    drift: Floats
    hour: float = 0.0

    @classmethod
    def of(cls, level: Level, drift: float = 0.0) -> Self:
        """Return a single level."""
        return cls(np.array([level.centre]), np.array([level.spread]), np.array([drift]), level.hour)

    def density(self, scores: Floats, hours: Floats) -> Floats:
        """The density of scores per natural log unit: a row for each level, a column for each score and its hour."""
        centres = self.centre[:, None] + self.drift[:, None] * (hours - self.hour)
        z = (scores - centres) / self.spread[:, None]
        return density(z) / self.spread[:, None]

    def at(self, hour: float) -> Floats:
        """The centres at the time ``hour``."""
        return self.centre + self.drift * (hour - self.hour)

    def above(self, line: float, hour: float) -> Floats:
        """The share of the readings above ``line`` at the time ``hour``, for each level."""
        return beyond((line - self.at(hour)) / self.spread)


def density(z: Floats) -> Floats:
    """The density of Student's t with four degrees of freedom."""
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
    """Possible levels of a host, with the logarithm of the weight of each: its prior over how often it was drawn."""

    old: SideLevels
    new: SideLevels
    log_weight: Floats
    mode: Levels

    @classmethod
    def known(cls, levels: Levels) -> Self:
        """Return a single particle: levels that are known."""
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
        """Return the particles of several hosts, reordered so that the same place of all stands for a joint case.

        The levels of one host say nothing about those of another, so the particles of the hosts are paired evenly:
        places are multiples of powers of 13 modulo the number of particles, 32 (a lattice of rank 1; Korobov 1959). For
        a single host, equal particles are merged and their weights added.
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


# The possible rates of misleading runs, and the prior probability of each rate. Disturbances make a run worse: a kernel
# of the better side looks worse in about 3.5 of 100 runs, and one of the worse side hardly ever looks better. Still,
# either rate may be a quarter of all runs; on a loud host both are high.
_RATES = (0.001, 0.004, 0.015, 0.05, 0.12, 0.25)
_BETTER_LOOKS_WORSE = (0.20, 0.20, 0.25, 0.24, 0.07, 0.04)
_WORSE_LOOKS_BETTER = (0.70, 0.20, 0.06, 0.02, 0.01, 0.01)
_LOUD = (0.0, 0.0, 0.0, 0.0, 0.5, 0.5)
_LOUD_HOSTS = 0.05
# In counted time a host makes no run worse, nor better.
_COUNTED = (0.93, 0.05, 0.01, 0.005, 0.003, 0.002)
# The share of kernels that mislead as a whole.
_STICKY = (0.003, 0.015, 0.05)
_STICKY_PRIOR = (0.45, 0.40, 0.15)
# The readings of earlier runs on this host count for less than those of this run, because hosts change. At most
# _EARLIER_AT_MOST of them count, and with the probability _EARLIER_IN_VAIN none does.
_EARLIER_AT_MOST = 40.0
_EARLIER_IN_VAIN = 0.1
# The weight of the usual rates of a host, as a number of readings.
_USUAL_IS_WORTH = 20.0


# The prior probability that nothing changed in a range whose ends differ. It was so in 40 % of 13,600 ranges that
# people had handed to a culprit finder (T. Henderson and others, Flake Aware Culprit Finding, ICST 2023); it is less
# probable if the ends were told apart by readings in turn.
NOTHING = 0.10


@dataclass(frozen=True, slots=True)
class Noise:
    """Error rates: an old kernel's run looks new, a new kernel's run looks old, a kernel misleads as a whole.

    The defaults are the usual rates if the new side is the better one: disturbances make a run worse, and a bad kernel
    does not become a good one by accident.
    """

    old_as_new: float = 0.003
    new_as_old: float = 0.05
    sticky: float = 0.01


@dataclass(frozen=True, slots=True)
class EarlierSearches:
    """Readings of earlier runs of the same experiment on this host, of kernels whose side other readings had shown.

    ``better`` and ``worse`` count the readings of kernels of that side, ``…_contradicted`` those that contradicted it.
    ``searches`` counts the runs that named a commit or said that nothing had changed, ``without_change`` the latter.
    """

    better: int = 0
    better_contradicted: int = 0
    worse: int = 0
    worse_contradicted: int = 0
    searches: int = 0
    without_change: int = 0

    def __add__(self, other: "EarlierSearches") -> "EarlierSearches":
        """The sum of both."""
        return EarlierSearches(*map(add, astuple(self), astuple(other)))

    @property
    def noise(self) -> Noise:
        """The expected error rates if the new side is the better one: the usual rates, updated by these readings."""
        usual = Noise()
        return replace(
            usual,
            old_as_new=_after(usual.old_as_new, self.worse, self.worse_contradicted),
            new_as_old=_after(usual.new_as_old, self.better, self.better_contradicted),
        )

    @property
    def nothing(self) -> float:
        """The prior probability that nothing in a range changed."""
        return _after(NOTHING, self.searches, self.without_change)


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """The possible combinations of error rates, and the logarithm of the prior probability of each; they sum to 1."""

    old_as_new: Floats
    new_as_old: Floats
    sticky: Floats
    log_prior: Floats

    @classmethod
    def known(cls, noise: Noise) -> Self:
        """Return a single case: rates that are known."""
        return cls(np.array([noise.old_as_new]), np.array([noise.new_as_old]), np.array([noise.sticky]), np.zeros(1))

    def mean(self, weight: Floats) -> Noise:
        """The mean rates by weights that sum to 1."""
        return Noise(*(float(weight @ each) for each in (self.old_as_new, self.new_as_old, self.sticky)))

    @classmethod
    def unknown(cls, *, new_is_better: bool = True, earlier: EarlierSearches | None = None) -> Self:
        """Return the prior of unknown rates, updated by the readings of earlier runs."""
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
        """Return the prior of guests whose time is counted, and that therefore repeat what they do."""
        return cls._of(np.outer(_COUNTED, _COUNTED))

    @classmethod
    def _of(cls, both: Floats) -> Self:
        """Return the combinations, given the probability of each pair of rates; rows are rates of the old side."""
        rates = np.array(_RATES)
        old_as_new, new_as_old, sticky = np.meshgrid(rates, rates, np.array(_STICKY), indexing="ij")
        prior = both[:, :, None] * np.array(_STICKY_PRIOR)
        return cls(old_as_new.ravel(), new_as_old.ravel(), sticky.ravel(), np.log(prior.ravel()))


def _after(usual: float, readings: int, contradicted: int) -> float:
    return (usual * _USUAL_IS_WORTH + contradicted) / (_USUAL_IS_WORTH + readings)


_GUESSING = 0.5
_STEPS = 40  # bisections of an interval: more than a double's precision needs here


def expected_runs(commits: int, error: float, miss: float) -> float:
    """The least number of runs that finds one of ``commits``, with the probability ``miss`` of a wrong answer.

    ``error`` is the rate of wrong readings; from a half on the result is infinite. Burnashev (1974): log2(N)/C +
    log2(1/miss)/C1, where C is the capacity of the channel and C1 the information of a reading of a suspect.
    """
    if error >= _GUESSING:
        return math.inf
    if error <= 0:
        return math.log2(commits) if commits > 1 else 0.0
    confirming = (1 - 2 * error) * math.log2((1 - error) / error)
    return math.log2(max(1, commits)) / capacity(error) + math.log2(1 / miss) / confirming


def capacity(error: float) -> float:
    """The most bits that one reading can tell at this error rate."""
    return 1 - (-error * math.log2(error) - (1 - error) * math.log2(1 - error) if 0 < error < 1 else 0.0)


def levels_apart(factor: float, spread: float) -> Levels:
    """The levels of two sides that differ by ``factor``.

    Readings of a side have the standard deviation ``spread``, in natural log units.
    """
    width = spread / math.sqrt(2)  # Student's t with 4 degrees of freedom has the variance 2
    return Levels(Level(0.0, width), Level(math.log(factor), width))


def error_rate(factor: float, spread: float, noise: Noise) -> float:
    """The probability of a reading on the wrong side of the middle between two levels, as the mean of both sides."""
    overlap = levels_apart(factor, spread).overlap
    rates = (noise.old_as_new, noise.new_as_old)
    return sum(rate + (1 - 2 * rate) * overlap for rate in rates) / len(rates)


def least_factor(commits: int, spread: float, noise: Noise, *, miss: float, runs: int) -> float:
    """The smallest factor between both sides that can be found in ``runs`` runs; infinite if none can."""

    def too_close(log_factor: float) -> bool:
        return expected_runs(commits, error_rate(math.exp(log_factor), spread, noise), miss) > runs

    near, far = 0.0, 50.0 * spread
    if too_close(far):
        return math.inf
    for _ in range(_STEPS):
        middle = (near + far) / 2
        near, far = (middle, far) if too_close(middle) else (near, middle)
    return math.exp(far)
