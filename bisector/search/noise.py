"""How often a reading misleads, and what that costs at least: runs, and the smallest effect that can be found.

A run misleads by a hiccup of the host, a kernel as a whole by its layout (*sticky*: repeating it teaches nothing).
"""

import math
from dataclasses import astuple, dataclass, replace
from operator import add
from typing import Self

import numpy as np

from bisector.search.graph import Floats
from bisector.search.levels import Level, Levels

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
