"""When a run may end early: the cache that it fills is settled, or its side of the threshold is clear; pure.

docs/stacks.md (short fills) and docs/method-evidence.md have the rules, and how often they err. Only whole periods of a
cache's policy are left out of a fill, since the figures of the next run depend on where in a period it begins. A run is
compared with another one piece by piece at the same moments, by Student's t, in all looks together (Bonferroni), or by
two one-sided tests (Schuirmann 1987).
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean, median
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bisector.analysis.judgement import CLEARLY
from bisector.config import Settings
from bisector.core.figures import EarlyStop, StopReason
from bisector.core.metric import is_of_split
from bisector.core.objective import MEAN, OVER, SUM, WORST, Objective
from bisector.core.units import duration
from bisector.search.choice import BOTH_ENDS, short_fill_pays
from bisector.search.effect import quantile
from bisector.storage.layer import FILLED, FULL_PERCENT, STEADY_POINTS, FillMode
from bisector.workload.base import RunProgress

Floats: TypeAlias = npt.NDArray[np.float64]
# Seconds of a job's own time, and the work that it had done by then; both grow.
Course: TypeAlias = tuple[Floats, Floats]

_SHARE_OF_RUN = 0.1
_FIFTHS = 5
_STEADY_SHARE = 0.2  # as in SNIA's Solid State Storage Performance Test Specification 2.0.2, 2.1.24
_LOOKS_A_PERIOD, _MOST_LOOKS = 20, 90
_LEAST_APART_S = 1.0  # the shortest time between looks: a look at the counters is a command in the guest
# In intervals between looks: a look is late by the time that the status before it and the command take, or early by the
# precision of fio's clock. If a look, or a status of a judged run, is later than _TOO_LATE intervals, the guest or its
# host stood still.
_EARLY, _LATE, _TOO_LATE = 0.1, 1.5, 2.5
# Readings of an end both ways are alike within this factor, and within this share of the gap between the ends. With
# noise of 5 %, and ends that are three times apart, a harmless fill looks harmful at less than 1 of 100 ends.
_MOST_FACTOR, _SHARE_OF_GAP = 1.25, 0.25

_PIECES, _BATCHES_OF_A_PIECE = 10, 3
_LEAST_FACTOR = 1.25
# The share of a run after which it is looked at, after each batch; the number of looks; and their two-sided error. Two
# one-sided tests of a twentieth are an interval of a tenth.
_APART_FROM, _APART_LOOKS, _APART_ERROR = 1 / 2, 45, 1e-3
_ALIKE_FROM, _ALIKE_LOOKS, _ALIKE_ERROR = 1 / 3, 60, 1e-1
# A job that did next to nothing in a piece is not infinitely far away: the least value is this share of the larger one.
_LEAST_SHARE = 1e-3

_BATCHES_OF_A_RUN = 90
_LEAST_BATCH_S = 0.5
_BATCHES = 6
_ERRORS = 4.0
_WINDOWS_ABOVE = 2
_WINDOWS_BELOW = 3
_GUARD_SPARE = 1.3
# A run that became fast this much sooner than the slowest one does not show how long it may take.
_COMPARABLE = 0.5
_WHOSE = {WORST: "every job", SUM: "the sum over jobs", MEAN: "the mean over jobs"}


# Runs that fill a cache


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a cache, ``at_s`` seconds into a run.

    ``filled`` is how full the cache was, ``hit_ratio`` its hit ratio since the last look; both in percent, None if they
    are not counted. ``done`` is the work of all jobs together.
    """

    at_s: float
    filled: float | None
    hit_ratio: float | None
    done: float


@dataclass(frozen=True, slots=True)
class FillRule:
    """The rule by which runs of this length that fill a cache may end early; its policy settles in ``period_s``."""

    period_s: float
    runtime_s: float

    @property
    def every_s(self) -> float:
        """The interval between looks at the cache, in seconds: 20 a period, but at most 90 a run.

        Each look is a status of fio, whose number in a run is limited: see ``MOST_STEERED_JOBS`` in
        bisector.workload.fio.fio.
        """
        period_s = self.period_s
        least_s = max(period_s / _LOOKS_A_PERIOD, self.runtime_s / _MOST_LOOKS, _LEAST_APART_S)
        return max(least_s, period_s / max(1, math.floor(period_s / least_s)))

    @property
    def window_s(self) -> float:
        """For how many seconds the cache has to be full and steady."""
        return max(self.period_s, _SHARE_OF_RUN * self.runtime_s)

    @property
    def most_saved_s(self) -> float:
        """The most seconds of a run that can be left out, in whole periods; 0 if no run can end early."""
        return self.period_s * max(0, math.floor((self.runtime_s - self.window_s) / self.period_s))

    @property
    def expected_s(self) -> float:
        """The expected end of a run, in seconds, if its cache is full once its files are laid out.

        It is one period after the first possible end. lvmcache is such a cache: its files, at least as large as the
        cache, are written through it. (In runs of 20 s on v4.11, v4.12 and v6.1 all blocks were in use.)
        """
        return min(self.runtime_s, self.runtime_s - self.most_saved_s + self.period_s)

    def met_by(self, looks: Sequence[Look]) -> EarlyStop | None:
        """Return how a run may end at the last of these looks; None if it goes on."""
        if not looks:
            return None
        # The last look has to be the first one after the end of a period, counted back from the end of the run
        at_s = looks[-1].at_s
        periods = math.ceil((self.runtime_s - at_s - _EARLY * self.every_s) / self.period_s)
        end_s = self.runtime_s - periods * self.period_s
        is_first = all(look.at_s < end_s - _EARLY * self.every_s for look in looks[-2:-1])
        # The window begins with the last look before it
        before = [n for n, look in enumerate(looks) if look.at_s <= at_s - self.window_s]
        if periods < 1 or not is_first or at_s - end_s >= _LATE * self.every_s or not before:
            return None
        window = looks[before[-1] :]
        longest_s = max((later.at_s - earlier.at_s for earlier, later in pairwise(window)), default=0.0)
        least = min(look.filled or 0.0 for look in window)
        if longest_s > _TOO_LATE * self.every_s or least < FULL_PERCENT or not _steady(window):
            return None
        why = f"the cache was full for {self.window_s:.0f} s, and its figures held still"
        return EarlyStop(StopReason.SETTLED, at_s, least, FULL_PERCENT, why, FILLED)


def rule_for(settings: Settings) -> FillRule | None:
    """Return the rule by which runs that fill a cache may end; None if none can end early: see :func:`why_never`."""
    return None if why_never(settings) else _rule(settings)


def why_never(settings: Settings) -> str:
    """Return why no run that fills a cache can end early, for a person; empty if one can.

    A run can if a layer says how long its cache takes to settle, if one round is longer than that, and if the jobs read
    or write, so that their progress is reported during the run.
    """
    if settings.workload.full_runs or settings.storage.fill is FillMode.WHOLE or settings.storage.fill_rounds > 1:
        return "whole runs are asked for"
    if (rule := _rule(settings)) is None:
        return "no layer of the stack says how long its cache takes to settle"
    if not settings.bisect.objective.io_direction:
        return f"runs are not followed by {settings.bisect.metric}"
    if rule.most_saved_s <= 0:
        return f"a short fill is for runs of {duration(rule.window_s + rule.period_s)} and more"
    return ""


def _rule(settings: Settings) -> FillRule | None:
    period_s = next((phase.period_s for phase in settings.storage.stack.phases if phase.fills), None)
    return None if period_s is None else FillRule(period_s, settings.workload.runtime_s)


def is_tried(settings: Settings, commits: float | None, trial_s: float, left_s: float) -> bool:
    """Whether to measure both ends with a short fill, too, before a search among ``commits`` equally likely commits.

    That takes two more trials of at most ``trial_s`` seconds. By default they are made if the trials that are expected
    in the time left can save more, as is assumed if the number of commits is unknown (None); if they are asked for,
    they are made if there is time.
    """
    rule = rule_for(settings)
    if rule is None:
        return False
    if settings.storage.fill is FillMode.SHORT:
        return left_s >= BOTH_ENDS * trial_s
    return short_fill_pays(math.inf if commits is None else commits, rule.most_saved_s, trial_s, left_s)


def _steady(window: Sequence[Look]) -> bool:
    first, *rest = window
    for figures in ([(look.at_s, look.filled) for look in rest], [(look.at_s, look.hit_ratio) for look in rest]):
        # The mean in each fifth of the time that has figures
        length_s = (figures[-1][0] - first.at_s) / _FIFTHS if figures else 0.0
        fifths: defaultdict[int, list[float]] = defaultdict(list)
        for at_s, value in figures:
            if value is not None and length_s > 0:
                fifths[min(_FIFTHS - 1, int((at_s - first.at_s) / length_s))].append(value)
        means = [fmean(values) for values in fifths.values()]
        if means and max(means) - min(means) > STEADY_POINTS:
            return False
    middle_s = (first.at_s + window[-1].at_s) / 2
    middle = min(window, key=lambda look: abs(look.at_s - middle_s))
    pairs = ((first, middle), (middle, window[-1]))
    rates = [(b.done - a.done) / (b.at_s - a.at_s) if b.at_s > a.at_s else 0.0 for a, b in pairs]
    return max(rates) - min(rates) <= _STEADY_SHARE * fmean(rates)


# Whether a short fill changes what the next run measures


@dataclass(frozen=True, slots=True)
class BothWays:
    """The readings of an end after whole fills (``whole``), and in ``tries`` trials for which a short fill was asked.

    ``in_vain`` counts the trials among the latter whose cache was not settled before the end of a whole run, and so was
    filled by a whole run: then both ways are the same.
    """

    sha: str
    whole: tuple[float, ...]
    short: tuple[float, ...]
    tries: int = 0
    in_vain: int = 0


@dataclass(frozen=True, slots=True)
class ShortFill:
    """The conclusion about the short fill: it is ``harmless``, an end is ``missing``, or ``why`` it is of no use."""

    harmless: bool = False
    missing: str = ""
    why: str = ""


def most_moved(ends: Sequence[BothWays]) -> float:
    """The largest difference of scores that counts as alike; both ends have whole runs."""
    apart = abs(median(ends[0].whole) - median(ends[-1].whole))
    return min(math.log(_MOST_FACTOR), _SHARE_OF_GAP * apart)


def standing(ends: Sequence[BothWays], line: float | None, most_tries: int) -> ShortFill:
    """Return the conclusion from both ends; an end is given up after ``most_tries`` trials without a sound one."""
    if line is None or not all(end.whole for end in ends):
        return ShortFill(why="both ends are to be measured by whole runs first")
    if all(end.in_vain for end in ends):
        return ShortFill(why="the caches of both ends were not settled before the end of a whole run")
    if (missing := next((end for end in ends if not end.short), None)) is not None:
        given_up = ShortFill(why=f"no sound measurement of an end in {missing.tries}")
        due = ShortFill(missing=missing.sha, why="the ends are not measured both ways yet")
        return given_up if missing.tries >= most_tries else due
    most = most_moved(ends)
    for end in ends:
        whole, short = median(end.whole), median(end.short)
        if (whole > line) is not (short > line):
            return ShortFill(why="with it an end is on the other side of the threshold")
        if (moved := abs(short - whole)) > most:
            factor = f"{math.exp(moved):.2f} times as much or as little, limit {math.exp(most):.2f}"
            return ShortFill(why=f"with it an end measures {factor}")
    return ShortFill(harmless=True)


# Runs that are judged


@dataclass(frozen=True, slots=True)
class Counterpart:
    """The whole run that another run is compared with, of the commit ``sha``.

    ``is_better`` tells whether it is on the better side of the threshold. ``rates`` has the rates of its jobs, or the
    one rate that they amount to, in batches of ``batch_s`` seconds.
    """

    sha: str
    is_better: bool
    batch_s: float
    rates: tuple[tuple[float, ...], ...]

    def apart(self, courses: Sequence[Course], at_s: float, runtime_s: float) -> float | None:
        """Return the least factor by which a run that has come so far is above this one; below 1 if it is below it.

        None while they are not clear of each other.
        """
        found = self._mean_and_error(courses, at_s, _APART_FROM * runtime_s)
        if found is None:
            return None
        mean, error = found
        least = abs(mean) - quantile(1 - _APART_ERROR / _APART_LOOKS, _PIECES - 1) * error
        return math.exp(math.copysign(least, mean)) if least > math.log(_LEAST_FACTOR) else None

    def alike(self, courses: Sequence[Course], at_s: float, runtime_s: float, most: float) -> float | None:
        """Return the factor by which a run that has come so far differs from this one, if within ``most`` either way.

        None while that is not clear.
        """
        found = self._mean_and_error(courses, at_s, _ALIKE_FROM * runtime_s)
        if found is None:
            return None
        mean, error = found
        largest = abs(mean) + quantile(1 - _ALIKE_ERROR / _ALIKE_LOOKS, _PIECES - 1) * error
        return math.exp(mean) if largest < math.log(most) else None

    def _mean_and_error(self, courses: Sequence[Course], at_s: float, first_s: float) -> tuple[float, float] | None:
        """The mean of d over the ten pieces and its standard error; None before ten pieces and after this run's end."""
        length_s = _BATCHES_OF_A_PIECE * self.batch_s
        grid = at_s - length_s * np.arange(_PIECES, -1, -1.0)
        mine = [
            (self.batch_s * np.arange(1.0, len(one) + 1), np.cumsum(np.array(one, dtype=np.float64)) * self.batch_s)
            for one in self.rates
        ]
        known_s = min((float(times[-1]) for times, _ in mine), default=0.0)
        if at_s < first_s or grid[0] < -length_s / 2 or not courses or at_s > known_s + length_s / 2:
            return None
        # The rate of the job that did least in each piece
        values, others = (
            np.min([np.diff(_done(grid, one)) for one in each], axis=0) / np.diff(grid) for each in (courses, mine)
        )
        most = max(float(values.max()), float(others.max()))
        if most <= 0:
            return None
        d = np.log(np.maximum(values, _LEAST_SHARE * most) / np.maximum(others, _LEAST_SHARE * most))
        return float(d.mean()), float(d.std(ddof=1)) / math.sqrt(_PIECES)


@dataclass(frozen=True, slots=True)
class Alike:
    """The whole run of the same kernel, and the largest factor by which a run may differ from it."""

    run: Counterpart
    most: float


def _done(grid: Floats, course: Course) -> Floats:
    """The work that had been done by each moment of a grid."""
    times, done = (np.concatenate(([0.0], one)) for one in course)
    return np.interp(grid, times, done)


@dataclass(frozen=True, slots=True)
class StopRule:
    """The threshold that a run is judged by, its length, and when it may be called slow at the earliest (None: never).

    ``threshold`` is a value of the objective, whose metric is a rate that is reported during a run. With
    ``counterparts``, a run also has to be clear of the first of them on the other side of the threshold, so that an
    answer may rest on it. With ``alike``, it has to measure the same as a run of the same kernel. If the steady part of
    a run decides, no run is called anything before it is ``steady_s`` seconds old, the age at which the ends' whole
    runs were steady.
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
        """The interval at which fio reports, and the length of the piece of a run that gives one figure, in seconds."""
        return batch_s(self.runtime_s)

    @property
    def window_s(self) -> float:
        """The length of the part of a run that gives a mean and its standard error, in seconds."""
        return _BATCHES * self.batch_s

    @property
    def whose(self) -> str:
        """Whose value is compared with the threshold, for a person."""
        return _WHOSE.get(self.objective.over, f"job {self.objective.over}")

    def met_by(self, jobs: Sequence[RunProgress]) -> EarlyStop | None:
        """Return how a run may end now, given what its jobs have done so far; None if it goes on.

        *Above* and *not above* are told by the windows of docs/method-evidence.md; *above* also if every job has done
        what the threshold asks of the whole run, unless the steady part decides, about which the work done in all says
        nothing. A window in which fio did not report in time says nothing. If the objective makes one value of several
        jobs, or is of one of them, this value takes the place of every job.
        """
        if not jobs or not all(job.at_s for job in jobs) or not (deciding := _deciding(self.objective, jobs)):
            return None
        courses = [course for _, course in deciding]
        at_s = min(float(times[-1]) for times, _ in courses)
        if at_s < self.steady_s:
            return None
        done = None if is_of_split(self.objective.metric) else self._all_done(courses, at_s)
        stop = done or self._above(courses, at_s) or self._not_above(deciding, at_s)
        return self._held(stop, courses) if stop is not None else None

    def _held(self, stop: EarlyStop, courses: Sequence[Course]) -> EarlyStop | None:
        """Return ``stop`` if the run is also clear of its counterpart, or like the run of the same kernel."""
        is_above = stop.reason is StopReason.ABOVE
        if self.counterparts:
            other = next((one for one in self.counterparts if one.is_better is not is_above), None)
            factor = None if other is None else other.apart(courses, stop.at_s, self.runtime_s)
            if other is None or factor is None or is_above is not (factor > 1):
                return None
            times = f"{factor if is_above else 1 / factor:.1f} times {'above' if is_above else 'below'}"
            told = f"it was at least {times} the run of {other.sha[:12]}"
        elif self.alike is not None:
            other = self.alike.run
            factor = other.alike(courses, stop.at_s, self.runtime_s, self.alike.most)
            if factor is None or is_above is not other.is_better:
                return None
            told = f"it was {factor:.2f} times this kernel's whole run"
        else:
            return stop
        return replace(stop, why=f"{stop.why}; and {told}", against=other.sha, apart=factor)

    def stopped(self, reason: StopReason, at_s: float, bound: float, why: str) -> EarlyStop:
        """The record of a run that this rule ended."""
        return EarlyStop(reason, at_s, bound, self.threshold, why, self.objective.metric, self.objective.over)

    def _all_done(self, courses: Sequence[Course], at_s: float) -> EarlyStop | None:
        least = min(float(done[-1]) for _, done in courses) / self.runtime_s
        if at_s >= self.runtime_s or least <= self.threshold:
            return None
        done = "amounts to" if self.objective.over in (SUM, MEAN) else "has done"
        why = f"{self.whose} {done} as much as {self.objective.text(least)} over the whole run would be"
        return self.stopped(StopReason.ABOVE, at_s, least, why)

    def _above(self, courses: Sequence[Course], at_s: float) -> EarlyStop | None:
        windows = [one for course in courses for one in self._windows(course, at_s, _WINDOWS_ABOVE)]
        low = min((mean - margin for mean, margin in windows), default=0.0)
        if len(windows) < _WINDOWS_ABOVE * len(courses) or low <= self.threshold:
            return None
        why = f"{self.whose} was above {self.objective.text(low)} for {_WINDOWS_ABOVE * self.window_s:.0f} s"
        return self.stopped(StopReason.ABOVE, at_s, low, why)

    def _not_above(self, deciding: Sequence[tuple[str, Course]], at_s: float) -> EarlyStop | None:
        lasted_s = _WINDOWS_BELOW * self.window_s
        if self.guard_s is None or at_s < max(self.guard_s, lasted_s):
            return None
        for name, course in deciding:
            windows = self._windows(course, at_s, _WINDOWS_BELOW)
            high = max((mean + margin for mean, margin in windows), default=math.inf)
            if high * CLEARLY < self.threshold:
                whose = f"job {name}" if name else self.whose
                below = f"{whose} had been below {self.objective.text(high)} for {lasted_s:.0f} s"
                why = f"{below}; fast runs had risen above that by then"
                return self.stopped(StopReason.NOT_ABOVE, at_s, high, why)
        return None

    def _windows(self, course: Course, at_s: float, count: int) -> list[tuple[float, float]]:
        """The means of the last ``count`` windows before ``at_s``, each with four standard errors.

        Empty if one of them is unsound. No two windows have any I/O in common.
        """
        grid, times = at_s - self.batch_s * np.arange(count * _BATCHES, -1, -1.0), np.concatenate(([0.0], course[0]))
        inside = (times[1:] > grid[0]) & (times[:-1] < at_s)
        longest_gap_s = float(np.diff(times)[inside].max(initial=0.0))  # between two reports inside the windows
        if grid[0] < -self.batch_s / 2 or longest_gap_s > _TOO_LATE * self.batch_s:
            return []
        rates = (np.diff(_done(grid, course)) / self.batch_s).reshape(count, _BATCHES)
        margins = _ERRORS * (rates.std(axis=1, ddof=1) / math.sqrt(_BATCHES))
        return [(float(mean), float(margin)) for mean, margin in zip(rates.mean(axis=1), margins, strict=True)]


def batch_s(runtime_s: float) -> float:
    """The length of a batch in a run of this length, in seconds."""
    return max(runtime_s / _BATCHES_OF_A_RUN, _LEAST_BATCH_S)


def _deciding(objective: Objective, jobs: Sequence[RunProgress]) -> list[tuple[str, Course]]:
    """The courses that the rule looks at: of each job, of the objective's job, or of all together, without a name."""
    named = [
        (job.job, (np.array(job.at_s, dtype=np.float64), np.array(job.done, dtype=np.float64)))
        for job in jobs
        if objective.over in (job.job, *OVER)
    ]
    if objective.over not in (SUM, MEAN):
        return named
    courses = [course for _, course in named]
    at_s = np.unique(np.concatenate([times for times, _ in courses]))
    at_s = at_s[at_s <= min(float(times[-1]) for times, _ in courses)]
    together = np.sum([_done(at_s, one) for one in courses], axis=0)
    return [("", (at_s, together / (len(courses) if objective.over == MEAN else 1)))]


def became_fast_s(jobs: Sequence[Floats], runtime_s: float, threshold: float) -> float | None:
    """The second from which on each job of a whole run stayed above the threshold, by the mean of a window.

    ``jobs`` has the rates of each job's batches, each :func:`batch_s` long. None if a job did not end above it.
    """
    firsts = []
    for rates in jobs:
        if rates.size < _BATCHES:
            return None
        means = np.convolve(rates, np.full(_BATCHES, 1.0 / _BATCHES), mode="valid")
        firsts.append(int(np.flatnonzero(means <= threshold).max(initial=-1)) + 1)
        if firsts[-1] >= means.size:
            return None
    return (max(firsts) + _BATCHES) * batch_s(runtime_s) if firsts else None


def deciding_rates(objective: Objective, jobs: Mapping[str, Floats]) -> tuple[Floats, ...]:
    """The rates of the batches that the objective looks at, given the rates of each job by its name.

    These are the rates of each job, of the objective's job, or of all jobs together, as long as the shortest of them.
    """
    if objective.over == WORST or not jobs:
        return tuple(jobs.values())
    if objective.over not in OVER:
        return (jobs[objective.over],) if objective.over in jobs else ()
    batches = min(one.size for one in jobs.values())
    total: Floats = np.sum([one[:batches] for one in jobs.values()], axis=0)
    return (total / (len(jobs) if objective.over == MEAN else 1),)


def guard_s(fast_after_s: Sequence[float | None], runtime_s: float) -> float | None:
    """The second from which on a run may be called slow, given when fast runs had become fast.

    docs/method-evidence.md has the formula: the spare of 1.3 was found for the slowest of three, and the slowest of
    fewer, or all of them, may be quick ones. A much quicker run, for whatever reason, does not reduce the time that the
    others need. None without any run, and if one of them never became fast, or too late.
    """
    known = [one for one in fast_after_s if one is not None]
    if not known or len(known) < len(fast_after_s):
        return None
    slowest = max(known)
    alike = sum(one >= _COMPARABLE * slowest for one in known)
    spare = max(_GUARD_SPARE, 1 + 1 / alike)
    guard = max(spare * slowest, runtime_s / (1 + alike), _WINDOWS_BELOW * _BATCHES * batch_s(runtime_s))
    return guard if guard < runtime_s else None
