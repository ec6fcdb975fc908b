"""When a run is clear of its counterpart's whole run, moment by moment, or alike it; pure.

An answer says that two kernels which differ by one commit are on two sides: the commit and its parent, or an end with
and without the commit. So a run that the answer rests on is held against the whole run of the other kernel, and not
against the threshold alone. Both drew the same random numbers and began with a cache of the same age, so that what a
policy does by its clock is in both.

The last thirty batches, a third of a run, are taken in ten pieces. In each piece both runs have a value (of the worst
job, or as the objective says), and d is the logarithm of their ratio. The run is clear of its counterpart when
Student's t of the ten differences puts their mean a factor of 1.25 apart with an error of a thousandth, in all looks of
the half of the run in which it is looked at together (Bonferroni). The factor is for what two runs of one kernel
differ by from beginning to end, of which no piece tells. Not before half of the run: a kernel that becomes fast late,
or collapses after good minutes, shows by then (both were seen after 4 to 7 of 15 minutes).

An end whose cache was filled in another way is held against the whole run of its own kernel. It is *alike* when d says
that their mean is within a factor either way, with an error of a twentieth on either side in all looks: two one-sided
tests show equivalence (Schuirmann 1987). It is looked at from a third of the run on: the whole run tells what comes
later.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bisector.search.difference import quantile

Floats: TypeAlias = npt.NDArray[np.float64]
# Seconds of a job's own time, and what it had done by then; both grow.
Course: TypeAlias = tuple[Floats, Floats]

_PIECES, _BATCHES_OF_A_PIECE = 10, 3
_LEAST_FACTOR = 1.25


@dataclass(frozen=True, slots=True)
class _Looks:
    """From which share of a run on it is looked at, after each batch; and the two-sided error of all looks together."""

    not_before: float
    count: int
    error: float

    @property
    def errors(self) -> float:
        """By how many standard errors the mean of the pieces may be off in one look."""
        return quantile(1 - self.error / self.count, _PIECES - 1)


_APART = _Looks(not_before=1 / 2, count=45, error=1e-3)
# Two one-sided tests of a twentieth are an interval of a tenth.
_ALIKE = _Looks(not_before=1 / 3, count=60, error=1e-1)
# What did next to nothing in a piece is not infinitely far away: this share of the larger value is the least.
_LEAST_SHARE = 1e-3


@dataclass(frozen=True, slots=True)
class Counterpart:
    """A whole run to be clear of, or alike: of the commit ``sha``, on the better side of the threshold or not.

    ``rates`` are those of its jobs (or of what they amount to) in batches of ``batch_s``.
    """

    sha: str
    is_better: bool
    batch_s: float
    rates: tuple[tuple[float, ...], ...]

    def apart(self, courses: Sequence[Course], at_s: float, runtime_s: float) -> float | None:
        """By what factor at least a run that has come so far is above this one, or below it: then less than 1.

        None while they are not clear of each other.
        """
        found = self._mean_and_error(courses, at_s, _APART.not_before * runtime_s)
        if found is None:
            return None
        mean, error = found
        least = abs(mean) - _APART.errors * error
        return math.exp(math.copysign(least, mean)) if least > math.log(_LEAST_FACTOR) else None

    def alike(self, courses: Sequence[Course], at_s: float, runtime_s: float, most: float) -> float | None:
        """By what factor a run that has come so far differs from this one, when that is within ``most`` either way.

        None while that is not clear.
        """
        found = self._mean_and_error(courses, at_s, _ALIKE.not_before * runtime_s)
        if found is None:
            return None
        mean, error = found
        largest = abs(mean) + _ALIKE.errors * error
        return math.exp(mean) if largest < math.log(most) else None

    def _mean_and_error(self, courses: Sequence[Course], at_s: float, first_s: float) -> tuple[float, float] | None:
        """The mean of the ten d, and its standard error; None where there are none yet, or none any more."""
        length_s = _BATCHES_OF_A_PIECE * self.batch_s
        grid = at_s - length_s * np.arange(_PIECES, -1, -1.0)
        mine = [_course(self.batch_s, one) for one in self.rates]
        known_s = min((float(times[-1]) for times, _ in mine), default=0.0)
        if at_s < first_s or grid[0] < -length_s / 2 or not courses or at_s > known_s + length_s / 2:
            return None
        values, others = (_worst(grid, each) for each in (courses, mine))
        most = max(float(values.max()), float(others.max()))
        if most <= 0:
            return None
        d = np.log(np.maximum(values, _LEAST_SHARE * most) / np.maximum(others, _LEAST_SHARE * most))
        return float(d.mean()), float(d.std(ddof=1)) / math.sqrt(_PIECES)


@dataclass(frozen=True, slots=True)
class Alike:
    """The whole run of the same kernel, and the factor by which a run may differ from it."""

    run: Counterpart
    most: float


def _course(batch_s: float, rates: Sequence[float]) -> Course:
    done = np.cumsum(np.array(rates, dtype=np.float64)) * batch_s
    return batch_s * np.arange(1.0, len(rates) + 1), done


def _worst(grid: Floats, courses: Sequence[Course]) -> Floats:
    """The rate of the job that did least in each piece between the moments of a grid."""
    found = [
        np.diff(np.interp(grid, np.concatenate(([0.0], times)), np.concatenate(([0.0], done))))
        for times, done in courses
    ]
    worst: Floats = np.min(found, axis=0) / np.diff(grid)
    return worst
