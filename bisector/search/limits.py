"""What noise costs at least: runs, and the smallest effect that can be found at all."""

import math

from bisector.search.levels import Level, Levels
from bisector.search.noise import Noise

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
    return 1 - _entropy(error)


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


def _entropy(p: float) -> float:
    return -p * math.log2(p) - (1 - p) * math.log2(1 - p) if 0 < p < 1 else 0.0
