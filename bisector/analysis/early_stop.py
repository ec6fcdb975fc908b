"""When a run may end before its time, because its side of the threshold is clear; pure.

An answer says that two kernels which differ by one commit are on two sides: the commit and its parent, or an end with
and without the commit. So a run that the answer rests on is held against the whole run of the other kernel, and not
against the threshold alone. Both drew the same random numbers and began with a cache of the same age, so that what a
policy does by its clock is in both.

The last thirty batches, a third of a run, are taken in ten pieces. In each piece both runs have a value (of the worst
job, or as the objective says), and d is the logarithm of their ratio. The run is clear of its counterpart when
Student's t of the ten differences puts their mean a factor of 1.25 apart with an error of a thousandth, in all looks of
the half of the run in which it is looked at together (Bonferroni). The factor is for what two runs of one kernel differ
by from beginning to end, of which no piece tells. Not before half of the run: a kernel that becomes fast late, or
collapses after good minutes, shows by then (both were seen after 4 to 7 of 15 minutes).

An end whose cache was filled in another way is held against the whole run of its own kernel. It is *alike* when d says
that their mean is within a factor either way, with an error of a twentieth on either side in all looks: two one-sided
tests show equivalence (Schuirmann 1987). It is looked at from a third of the run on: the whole run tells what comes
later.

The rule (trailing windows of six batches, four standard errors) was chosen for few errors on ramps, late jumps and
stalls of the host, not for speed. What keeps it safe is the *guard*: a kernel that takes its time to become fast looks
like a slow one until then, so no run is called slow before all known fast runs had become fast, and some time more; see
:func:`guard_s`. Nor is any when no whole run of the fast end is known.

All times follow from the length of the run: a batch is a ninetieth of it, but at least half a second, which is what
fio's log averages over and a guest reports in time; a window is six batches. For 15 min that is 10 s and 1 min, for 40
s it is 0.5 s and 3 s.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bisector.core.figures import EarlyStop, StopReason
from bisector.core.metric import is_of_split
from bisector.core.objective import MEAN, OVER, SUM, WORST, Objective
from bisector.search.difference import quantile
from bisector.workload.base import RunProgress

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
_WHOSE = {WORST: "every job", SUM: "the sum over jobs", MEAN: "the mean over jobs"}
# A status that comes later than this many batches says that the guest or its host stood still.
_LATE = 2.5


@dataclass(frozen=True, slots=True)
class StopRule:
    """The line that a run is held against, its whole length, and from when on it may be called slow (None: never).

    ``threshold`` is a value of the objective, whose metric is a rate that is reported while a run lasts. With
    ``counterparts`` a run has to be clear of the first one that is on the other side of the line, too: an answer may
    rest on it. With ``alike`` it has to measure what a run of the same kernel did. Where the steady part of a run
    decides, no run is called anything before the ends' whole runs were ``steady_s`` seconds old, and steady.
    """

    threshold: float
    runtime_s: float
    guard_s: float | None = None
    objective: Objective = field(default_factory=Objective)
    counterparts: tuple[Counterpart, ...] = ()
    alike: Alike | None = None
    steady_s: float = 0.0

    @property
    def batch_s(self) -> float:
        """How often fio is to report, and the piece of a run that one figure is made of."""
        return batch_s(self.runtime_s)

    @property
    def window_s(self) -> float:
        """What a mean and its standard error are made of."""
        return _BATCHES * self.batch_s

    @property
    def whose(self) -> str:
        """Whose value is held against the line, for a person."""
        return _WHOSE.get(self.objective.over, f"job {self.objective.over}")

    def stopped(self, reason: StopReason, at_s: float, bound: float, why: str) -> EarlyStop:
        """What is recorded of a run that this rule ended."""
        return EarlyStop(reason, at_s, bound, self.threshold, why, self.objective.metric, self.objective.over)

    def met_by(self, jobs: Sequence[RunProgress]) -> EarlyStop | None:
        """Whether a run may end now, given what its jobs have done so far; None: go on.

        *Above*: in two windows one after the other every job's mean less four standard errors is above the threshold;
        or every job has done what the threshold asks of the whole run. *Not above*: from the guard on, in three
        windows one after the other the same job's mean with four standard errors is below two thirds of the threshold.
        A window in which fio did not report in time says nothing. Where the objective makes one value of several jobs,
        or is of one of them, that takes the place of every job. What a run has done in all tells nothing of its steady
        part.
        """
        if not jobs or not all(job.at_s for job in jobs):
            return None
        deciding = _deciding(self.objective, [_JobCourse.of(job) for job in jobs])
        if not deciding:
            return None
        at_s = min(float(job.at_s[-1]) for job in deciding)
        if at_s < self.steady_s:
            return None
        done = None if is_of_split(self.objective.metric) else _all_done(self, deciding, at_s)
        stop = done or _above(self, deciding, at_s) or _not_above(self, deciding, at_s)
        if stop is not None and self.counterparts:
            return self._clear(stop, deciding)
        if stop is not None and self.alike is not None:
            return self._like(stop, self.alike, deciding)
        return stop

    def _clear(self, stop: EarlyStop, jobs: Sequence["_JobCourse"]) -> EarlyStop | None:
        """The same where the run is clear of its counterpart, too."""
        is_above = stop.reason is StopReason.ABOVE
        other = next((one for one in self.counterparts if one.is_better is not is_above), None)
        if other is None:
            return None
        apart = other.apart([(job.at_s, job.done) for job in jobs], stop.at_s, self.runtime_s)
        if apart is None or is_above is not (apart > 1):
            return None
        factor = f"{apart if is_above else 1 / apart:.1f} times {'above' if is_above else 'below'}"
        why = f"{stop.why}; and it was at least {factor} the run of {other.sha[:12]}"
        return replace(stop, why=why, against=other.sha, apart=apart)

    def _like(self, stop: EarlyStop, same: Alike, jobs: Sequence["_JobCourse"]) -> EarlyStop | None:
        """The same where the run is like that of the same kernel, too, and on the side where that ended."""
        courses = [(job.at_s, job.done) for job in jobs]
        factor = same.run.alike(courses, stop.at_s, self.runtime_s, same.most)
        if factor is None or (stop.reason is StopReason.ABOVE) is not same.run.is_better:
            return None
        why = f"{stop.why}; and it was {factor:.2f} times this kernel's whole run"
        return replace(stop, why=why, against=same.run.sha, apart=factor)


@dataclass(frozen=True, slots=True, eq=False)
class _JobCourse:
    """The progress of a job, or of what several jobs have done together, as arrays."""

    name: str
    at_s: Floats
    done: Floats

    @classmethod
    def of(cls, progress: RunProgress) -> "_JobCourse":
        return cls(progress.job, np.array(progress.at_s, dtype=np.float64), np.array(progress.done, dtype=np.float64))


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


def _deciding(objective: Objective, jobs: Sequence[_JobCourse]) -> Sequence[_JobCourse]:
    """What the rule looks at: each job, the one that the objective is of, or what all do together."""
    if objective.over == WORST:
        return jobs
    if objective.over not in OVER:
        return [job for job in jobs if job.name == objective.over]
    at_s = np.unique(np.concatenate([job.at_s for job in jobs]))
    at_s = at_s[at_s <= min(float(job.at_s[-1]) for job in jobs)]
    parts = [np.interp(at_s, np.concatenate(([0.0], job.at_s)), np.concatenate(([0.0], job.done))) for job in jobs]
    return [_JobCourse("", at_s, np.sum(parts, axis=0) / (len(jobs) if objective.over == MEAN else 1))]


def _all_done(rule: StopRule, jobs: Sequence[_JobCourse], at_s: float) -> EarlyStop | None:
    least = min(float(job.done[-1]) for job in jobs) / rule.runtime_s
    if at_s >= rule.runtime_s or least <= rule.threshold:
        return None
    done = f"{rule.whose} has done" if rule.objective.over not in (SUM, MEAN) else f"{rule.whose} amounts to"
    why = f"{done} as much as {rule.objective.text(least)} over the whole run would be"
    return rule.stopped(StopReason.ABOVE, at_s, least, why)


def _above(rule: StopRule, jobs: Sequence[_JobCourse], at_s: float) -> EarlyStop | None:
    windows = [one for job in jobs for one in _windows(rule, job, at_s, _WINDOWS_ABOVE)]
    if len(windows) < _WINDOWS_ABOVE * len(jobs):
        return None
    low = min(window.low for window in windows)
    if low <= rule.threshold:
        return None
    why = f"{rule.whose} was above {rule.objective.text(low)} for {_WINDOWS_ABOVE * rule.window_s:.0f} s"
    return rule.stopped(StopReason.ABOVE, at_s, low, why)


def _not_above(rule: StopRule, jobs: Sequence[_JobCourse], at_s: float) -> EarlyStop | None:
    if rule.guard_s is None or at_s < max(rule.guard_s, _WINDOWS_BELOW * rule.window_s):
        return None
    for job in jobs:
        windows = _windows(rule, job, at_s, _WINDOWS_BELOW)
        high = max((window.high for window in windows), default=math.inf)
        if high * _CLEARLY < rule.threshold:
            lasted_s = _WINDOWS_BELOW * rule.window_s
            whose = f"job {job.name}" if job.name else rule.whose
            below = f"{whose} had been below {rule.objective.text(high)} for {lasted_s:.0f} s"
            return rule.stopped(StopReason.NOT_ABOVE, at_s, high, f"{below}; fast runs had risen above that by then")
    return None


def holds(stop: EarlyStop, threshold: float, objective: Objective) -> bool | None:
    """Whether a run that was stopped is above a threshold, which may be another one than it was held against.

    None when it was not clear of that one, and for another objective than it was held against.
    """
    if (stop.metric, stop.over) != (objective.metric, objective.over):
        return None
    if stop.reason is StopReason.ABOVE:
        return True if stop.bound > threshold else None
    return False if stop.bound * _CLEARLY < threshold else None


def _windows(rule: StopRule, job: _JobCourse, at_s: float, count: int) -> tuple[_Window, ...]:
    """The last ``count`` windows before ``at_s``, none of which has any I/O in common; empty when one is unsound."""
    batches = count * _BATCHES
    grid = at_s - rule.batch_s * np.arange(batches, -1, -1.0)
    times, done = np.concatenate(([0.0], job.at_s)), np.concatenate(([0.0], job.done))
    if grid[0] < -rule.batch_s / 2 or _longest_gap(times, grid[0], at_s) > _LATE * rule.batch_s:
        return ()
    rates = (np.diff(np.interp(grid, times, done)) / rule.batch_s).reshape(count, _BATCHES)
    errors = rates.std(axis=1, ddof=1) / math.sqrt(_BATCHES)
    return tuple(
        _Window(float(mean), _ERRORS * float(error)) for mean, error in zip(rates.mean(1), errors, strict=True)
    )


def _longest_gap(times: Floats, since_s: float, until_s: float) -> float:
    """The longest time between two reports that any of the span lies in."""
    inside = (times[1:] > since_s) & (times[:-1] < until_s)
    return float(np.diff(times)[inside].max(initial=0.0))


def reached_s(rates: Floats, runtime_s: float, threshold: float) -> float | None:
    """From which second on a job of a whole run was above the threshold to its end, by the mean of a window.

    ``rates`` are of its batches, :func:`batch_s` long each. None when it never was for good.
    """
    if rates.size < _BATCHES:
        return None
    means = np.convolve(rates, np.full(_BATCHES, 1.0 / _BATCHES), mode="valid")
    below = np.flatnonzero(means <= threshold)
    first = int(below[-1]) + 1 if below.size else 0
    return (first + _BATCHES) * batch_s(runtime_s) if first < means.size else None


def became_fast_s(jobs: Sequence[Floats], runtime_s: float, threshold: float) -> float | None:
    """From which second on each job of a whole run was above the threshold to its end; None if one was not."""
    times = [reached_s(job, runtime_s, threshold) for job in jobs]
    known = [one for one in times if one is not None]
    return max(known) if known and len(known) == len(times) else None


def deciding_rates(objective: Objective, jobs: Mapping[str, Floats]) -> tuple[Floats, ...]:
    """The batches, given those of each job by its name, that the objective looks at.

    Each job's, those of the one that it is of, or of what all did together, as long as the shortest of them.
    """
    if objective.over == WORST or not jobs:
        return tuple(jobs.values())
    if objective.over not in OVER:
        return (jobs[objective.over],) if objective.over in jobs else ()
    batches = min(one.size for one in jobs.values())
    total: Floats = np.sum([one[:batches] for one in jobs.values()], axis=0)
    return (total / (len(jobs) if objective.over == MEAN else 1),)


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
