"""When a run may end before its time, because its side of the threshold is clear; pure.

The rule (trailing windows of six batches, four standard errors) was chosen for few errors on ramps, late jumps and
stalls of the host, not for speed. What keeps it safe is the *guard*: a kernel that takes its time to become fast looks
like a slow one until then, so no run is called slow before all known fast runs had become fast, and some time more;
see :func:`guard_s`. Nor is any when no whole run of the fast end is known.

All times follow from the length of the run: a batch is a ninetieth of it, but at least half a second, which is
what fio's log averages over and a guest reports in time; a window is six batches. For 15 min that is 10 s and 1 min,
for 40 s it is 0.5 s and 3 s.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bisector.core.figures import EarlyStop, StopReason

Floats = npt.NDArray[np.float64]

_BATCHES_OF_A_RUN = 90
_LEAST_BATCH_S = 0.5
_BATCHES = 6
_ERRORS = 4.0
_WINDOWS_ABOVE = 2
_WINDOWS_BELOW = 3
# What is called slow has to be so by more than the noise of a batch: by this factor.
_CLEARLY = 1.5
_GUARD_SPARE = 1.3
# A run that became fast this much sooner than the slowest one does not tell how long that may take.
_COMPARABLE = 0.5
# A status that comes later than this many batches says that the guest or its host stood still.
_LATE = 2.5


@dataclass(frozen=True, slots=True)
class StopRule:
    """The line that a run is held against, its whole length, and from when on it may be called slow (None: never)."""

    threshold_iops: float
    runtime_s: float
    guard_s: float | None = None

    @property
    def batch_s(self) -> float:
        """How often fio is to report, and the piece of a run that one figure is made of."""
        return batch_s(self.runtime_s)

    @property
    def window_s(self) -> float:
        """What a mean and its standard error are made of."""
        return _BATCHES * self.batch_s


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """How many reads a job had done by which second of its own run time; both grow, the start is not among them."""

    job: str
    at_s: Floats
    total_ios: Floats


@dataclass(frozen=True, slots=True)
class _Window:
    mean: float
    margin: float

    @property
    def low(self) -> float:
        return self.mean - self.margin

    @property
    def high(self) -> float:
        return self.mean + self.margin


def batch_s(runtime_s: float) -> float:
    """The length of a batch in a run of this length."""
    return max(runtime_s / _BATCHES_OF_A_RUN, _LEAST_BATCH_S)


def decide(rule: StopRule, jobs: Sequence[Progress]) -> EarlyStop | None:
    """Whether a run may end now, given what its reading jobs have done so far; None: go on.

    *Above*: in two windows one after the other every job's mean less four standard errors is above the threshold;
    or every job has done what the threshold asks of the whole run. *Not above*: from the guard on, in three
    windows one after the other the same job's mean with four standard errors is below two thirds of the threshold.
    A window in which fio did not report in time says nothing.
    """
    if not jobs or not all(job.at_s.size for job in jobs):
        return None
    at_s = min(float(job.at_s[-1]) for job in jobs)
    return _all_done(rule, jobs, at_s) or _above(rule, jobs, at_s) or _not_above(rule, jobs, at_s)


def _all_done(rule: StopRule, jobs: Sequence[Progress], at_s: float) -> EarlyStop | None:
    least = min(float(job.total_ios[-1]) for job in jobs) / rule.runtime_s
    if at_s >= rule.runtime_s or least <= rule.threshold_iops:
        return None
    why = f"every job has done as much as {least:,.0f} IOPS over the whole run would be"
    return EarlyStop(StopReason.ABOVE, at_s, least, rule.threshold_iops, why)


def _above(rule: StopRule, jobs: Sequence[Progress], at_s: float) -> EarlyStop | None:
    windows = [one for job in jobs for one in _windows(rule, job, at_s, _WINDOWS_ABOVE)]
    if len(windows) < _WINDOWS_ABOVE * len(jobs):
        return None
    low = min(window.low for window in windows)
    if low <= rule.threshold_iops:
        return None
    why = f"every job was above {low:,.0f} IOPS for {_WINDOWS_ABOVE * rule.window_s:.0f} s"
    return EarlyStop(StopReason.ABOVE, at_s, low, rule.threshold_iops, why)


def _not_above(rule: StopRule, jobs: Sequence[Progress], at_s: float) -> EarlyStop | None:
    if rule.guard_s is None or at_s < max(rule.guard_s, _WINDOWS_BELOW * rule.window_s):
        return None
    for job in jobs:
        windows = _windows(rule, job, at_s, _WINDOWS_BELOW)
        high = max((window.high for window in windows), default=math.inf)
        if high * _CLEARLY < rule.threshold_iops:
            lasted_s = _WINDOWS_BELOW * rule.window_s
            why = f"job {job.job} was below {high:,.0f} IOPS for {lasted_s:.0f} s, and the fast end is not by then"
            return EarlyStop(StopReason.NOT_ABOVE, at_s, high, rule.threshold_iops, why)
    return None


def holds(stop: EarlyStop, threshold_iops: float) -> bool | None:
    """Whether a run that was stopped is above a threshold, which may be another one than it was held against.

    None when it was not clear of that one.
    """
    if stop.reason is StopReason.ABOVE:
        return True if stop.bound_iops > threshold_iops else None
    return False if stop.bound_iops * _CLEARLY < threshold_iops else None


def _windows(rule: StopRule, job: Progress, at_s: float, count: int) -> tuple[_Window, ...]:
    """The last ``count`` windows before ``at_s``, none of which has any I/O in common; empty when one is unsound."""
    batches = count * _BATCHES
    grid = at_s - rule.batch_s * np.arange(batches, -1, -1.0)
    times, ios = np.concatenate(([0.0], job.at_s)), np.concatenate(([0.0], job.total_ios))
    if grid[0] < -rule.batch_s / 2 or _longest_gap(times, grid[0], at_s) > _LATE * rule.batch_s:
        return ()
    iops = (np.diff(np.interp(grid, times, ios)) / rule.batch_s).reshape(count, _BATCHES)
    errors = iops.std(axis=1, ddof=1) / math.sqrt(_BATCHES)
    return tuple(_Window(float(mean), _ERRORS * float(error)) for mean, error in zip(iops.mean(1), errors, strict=True))


def _longest_gap(times: Floats, since_s: float, until_s: float) -> float:
    """The longest time between two reports that any of the span lies in."""
    inside = (times[1:] > since_s) & (times[:-1] < until_s)
    return float(np.diff(times)[inside].max(initial=0.0))


def reached_s(iops: Floats, runtime_s: float, threshold_iops: float) -> float | None:
    """From which second on a job of a whole run was above the threshold to its end, by the mean of a window.

    ``iops`` are its batches, :func:`batch_s` long each. None when it never was for good.
    """
    if iops.size < _BATCHES:
        return None
    means = np.convolve(iops, np.full(_BATCHES, 1.0 / _BATCHES), mode="valid")
    below = np.flatnonzero(means <= threshold_iops)
    first = int(below[-1]) + 1 if below.size else 0
    return (first + _BATCHES) * batch_s(runtime_s) if first < means.size else None


def became_fast_s(jobs: Sequence[Floats], runtime_s: float, threshold_iops: float) -> float | None:
    """The same of a run, whose slowest job counts; None unless each was above in the end."""
    times = [reached_s(job, runtime_s, threshold_iops) for job in jobs]
    known = [one for one in times if one is not None]
    return max(known) if known and len(known) == len(times) else None


def guard_s(fast_after_s: Sequence[float | None], runtime_s: float) -> float | None:
    """From when on a run may be called slow, by when fast ones had become fast.

    That is the slowest of them times 1 + 1/n, and at least 1.3: the factor was found for the slowest of three, and the
    slowest of fewer may be a quick one. n counts those that took about as long, so that one that was much quicker, for
    whatever reason, does not lessen what the others need. As all of them may be quick ones, the guard is never less
    than a (1 + n)th of the run: half of it with one, a fifth with four. None without any, and when one of them never
    became fast, or too late.
    """
    known = [one for one in fast_after_s if one is not None]
    if not known or len(known) < len(fast_after_s):
        return None
    slowest = max(known)
    alike = sum(one >= _COMPARABLE * slowest for one in known)
    spare = max(_GUARD_SPARE, 1 + 1 / alike)
    guard = max(spare * slowest, runtime_s / (1 + alike), _WINDOWS_BELOW * _BATCHES * batch_s(runtime_s))
    return guard if guard < runtime_s else None
