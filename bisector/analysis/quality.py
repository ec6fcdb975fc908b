"""The weaknesses that make a trial too weak to conclude from; the caller gives the limits; pure.

A processor changes its clock by a factor of two, and /proc/stat shows nothing of it: so a fixed piece of work is timed
before and after each run. Once two sound trials in a row ran at the same other speed, this is the host's new speed, and
the ends are read again.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from statistics import fmean, median
from typing import Generic, TypeVar

from bisector.analysis.judgement import why_unscored
from bisector.config import Settings
from bisector.core.figures import Run, run_words
from bisector.core.metric import LatencyKind
from bisector.core.objective import OVER, Objective
from bisector.core.trial import Trial
from bisector.core.units import plural
from bisector.storage.layer import FILL
from bisector.workload.base import INTERRUPTS
from bisector.workload.repetitions import PREPARED

T = TypeVar("T")

_SETTLED = 2


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed that runs are compared with, and ``when`` it was measured; the host has had it ``since`` that trial."""

    mib_s: float
    when: str
    since: int = 0


@dataclass(frozen=True, slots=True)
class AtSpeed:
    """A sound trial: its number, whether it is of an end, and its speed."""

    n: int
    of_end: bool
    mib_s: float


def speed_of(trial: Trial, max_change: float) -> float | None:
    """The median speed of a trial's runs, in MiB/s; None if the runs had different speeds or none was measured."""
    found = [fmean(both) for run in trial.runs if (both := _readings(run))]
    return median(found) if found and all(is_alike(one, median(found), max_change) for one in found) else None


def host_speed(trials: Iterable[AtSpeed], max_change: float) -> Speed | None:
    """Return the speed of one host: the median of its ends, or of what it has settled at since; None before any end."""
    at, apart, since = list[float](), list[AtSpeed](), 0
    for one in trials:
        if not at and one.of_end:
            at, since = [one.mib_s], one.n
        elif at and is_alike(one.mib_s, median(at), max_change):
            at, apart = [*at, *([one.mib_s] if one.of_end else [])], []
        elif at:
            together = all(is_alike(one.mib_s, other.mib_s, max_change) for other in apart)
            apart = [*(apart if together else []), one]
            if len(apart) == _SETTLED:
                at, apart, since = [each.mib_s for each in apart], [], apart[0].n
    return Speed(median(at), "when the ends were read", since) if at else None


def why_unlike(run: Run, speed: Speed | None, max_change: float) -> str:
    """Return why a run's figures may be due to another speed of the host's cores, in a sentence; empty if none."""
    both = _readings(run)
    if not both:
        return ""
    if not is_alike(both[1], both[0], max_change):
        return f"the host's cores ran at {both[1] / both[0]:.0%} of the speed after the run that they had before it"
    if speed is None or is_alike(fmean(both), speed.mib_s, max_change):
        return ""
    return f"the host's cores ran at {fmean(both) / speed.mib_s:.0%} of the speed they had {speed.when}"


def is_alike(one: float, other: float, max_change: float) -> bool:
    """Whether a speed differs from ``other`` by no more than the share ``max_change`` of it."""
    return abs(one - other) <= max_change * other


def _readings(run: Run) -> tuple[float, float] | None:
    seen = run.contention
    if seen is None or seen.mib_s_before is None or seen.mib_s_after is None:
        return None
    return seen.mib_s_before, seen.mib_s_after


LEAST_BEYOND = 10
_PERCENTILE = re.compile(r".*\.p(?P<percent>\d{1,3}(?:\.\d{1,12})?)")
_WHOLE = Decimal(100)


def thin_tail(objective: Objective, runs: Iterable[Run]) -> str:
    """Return a warning if a deciding percentile rests on too few I/Os of some job; empty if they suffice."""
    if (found := _PERCENTILE.fullmatch(objective.metric)) is None:
        return ""
    percent = Decimal(found["percent"])
    share = min(percent, _WHOLE - percent) / _WHOLE  # of the I/Os, on the thinner side
    if share <= 0:
        return ""
    jobs = [
        (job.total_ios, job.name)
        for run in runs
        for job in run.jobs
        if job.direction == objective.io_direction and objective.over in (job.name, *OVER) and job.total_ios
    ]
    needed = math.ceil(LEAST_BEYOND / share)
    ios, name = min(jobs, default=(needed, ""))
    if ios >= needed:
        return ""
    beyond = int(ios * share)
    of_them = f"about {beyond} of them lie" if beyond > 1 else "one of them lies" if beyond else "none of them lies"
    return (
        f"{objective.metric} of {ios:,} I/Os of job {name}: {of_them} beyond it, which is chance; {LEAST_BEYOND} take "
        f"{needed:,} I/Os"
    )


# A long I/O, or a run that ended late, says nothing below this limit. On the hard disk of the recorded bisection of
# 2017 the longest of all I/Os took 1.7 s, and no run of 15 min ended more than 0.2 s late; in emulation, 0.6 s.
_LEAST_STALL_S = 3.0
_TIMES_MEAN = 3.0
# Fetching fio's output and dropping caches took 1.5 s and 1.9 s in trials of two runs on a host with a core to spare,
# and 3.5 s on a host with none.
_LEAST_ASIDE_S = 10.0


# The limits of clock and time are for faults, not for noise: an idle host keeps far within them. Shares are of a run.
_MOST_CLOCK_DRIFT = 0.05
_LEAST_RUNTIME, _MOST_RUNTIME = 0.95, 1.05
_MOST_STALL, _MOST_ASIDE = 0.1, 0.05
# The data that a writing job leaves dirty is written back between the runs, by disks that may be slow.
_MOST_WRITE_BACK = 0.5
# The share beyond the time that another run took for its files.
_MOST_LAYOUT = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class _Same(Generic[T]):
    """A value that is compared by its identity: comparing all facts of a trial takes longer than finding weaknesses."""

    it: T

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.it is other.it

    def __hash__(self) -> int:
        return id(self.it)


# Weaknesses and scores of all trials are needed for each conclusion, and there is one after each trial.
_MOST_KNOWN = 4096


def weaknesses(trial: Trial, settings: Settings, speed: Speed | None = None) -> tuple[str, ...]:
    """Return why a trial is weak evidence, the reasons of its last, judged run first; empty if it is not weak.

    A job that did none of the I/O that decides is no measurement. If a figure of a whole job or run decides, that is a
    job without any I/O. ``speed`` is that of the host's cores, None if it is not known.

    Every run counts, and the time between runs, too: the last run depends on how the earlier ones filled the cache, and
    on how long the cache has been there (dm-cache's smq looks it over once a minute). For trials that others measured
    (with an origin), the host, the clock and the requested time are unknown: this is neither a weakness nor a sign of
    soundness; what is known is checked all the same. A guest whose instructions are counted sees neither the host's
    other work nor how long a run took; but a guest that received an interrupt from outside does not repeat exactly. The
    stack says in which state each run has to begin.
    """
    return _weaknesses(_Same(trial), _Same(settings), speed)


def unscored(trial: Trial, objective: Objective) -> str:
    """Return why a trial has no score (:func:`why_unscored`); any trial may lack a metric that is chosen later."""
    return _unscored(_Same(trial), objective)


@lru_cache(_MOST_KNOWN)
def _unscored(trial: _Same[Trial], objective: Objective) -> str:
    return why_unscored(trial.it, objective)


@lru_cache(_MOST_KNOWN)
def _weaknesses(of: _Same[Trial], by: _Same[Settings], speed: Speed | None) -> tuple[str, ...]:
    trial, settings = of.it, by.it
    if trial.fault is not None or not trial.runs:
        return ()
    unwatched = (replace(run, contention=None, clock_drift_s=None) for run in trial.runs)
    *earlier, judged = unwatched if trial.is_counted else trial.runs
    timed = trial.origin is None and not trial.is_counted
    asked_s = settings.workload.runtime_s if trial.origin is None else 0.0
    return (
        *_of_run(judged, settings, speed, asked_s, timed),
        *settings.storage.stack.unsteady(trial.runs),
        *(
            f"in the {run_words(run.name)} {why}"
            for run in earlier
            for why in _of_run(run, settings, speed, asked_s, timed)
        ),
        *(_apart(trial, asked_s) if timed else ()),
        *(
            f"{plural(int(interrupts), 'interrupt')} reached the guest from outside in the {run_words(run.name)}"
            for run in (trial.runs if trial.is_counted else ())
            if (interrupts := _counted(run, INTERRUPTS))
        ),
    )


def _of_run(run: Run, settings: Settings, speed: Speed | None, asked_s: float, timed: bool) -> Iterator[str]:
    limits, direction = settings.contention, settings.bisect.objective.io_direction
    if timed and (run.contention is None or run.clock_drift_s is None):
        yield f"nobody looked at the host and the clock during the {run_words(run.name)}"
    if run.contention is not None:
        other, steal = run.contention.other_busy_cores, run.contention.steal_share
        # negated, so that NaN is weak, too
        if not other <= limits.max_other_cores:
            yield f"the host was busy: {other:.2f} cores of other work, limit {limits.max_other_cores:.2f}"
        if not steal <= limits.max_steal_share:
            yield f"the host lost CPU time: steal {steal:.1%}, limit {limits.max_steal_share:.1%}"
        if why := why_unlike(run, speed, limits.max_speed_change):
            yield f"{why}, limit {limits.max_speed_change:.0%} of change"
    if run.clock_drift_s is not None and not abs(run.clock_drift_s) <= _MOST_CLOCK_DRIFT * run.duration_s:
        yield f"the guest's clock drifted by {run.clock_drift_s:+.1f} s in {run.duration_s:.0f} s"
    yield from settings.storage.stack.unready(run)
    busy = {job.name for job in run.jobs if job.total_ios and direction in ("", job.direction)}
    for job in run.jobs:
        if job.error:
            yield f"fio reported error {job.error} in job {job.name}"
        if direction in ("", job.direction) and job.name not in busy:
            yield f"job {job.name} did no I/O"
        elif job.direction == direction and not 0 < job.iops_mean < math.inf:
            yield f"job {job.name} has {job.iops_mean:g} IOPS, which is not a measurement"
        is_short = not job.runtime_ms >= _LEAST_RUNTIME * asked_s * 1000
        if run.stopped_early is None and job.total_ios and is_short:
            yield f"job {job.name} ran {job.runtime_ms / 1000:.1f} s of {asked_s:g} s"
    if timed:
        yield from _time(run, asked_s)


def _time(run: Run, asked_s: float) -> Iterator[str]:
    """Return signs that the host stood still: the guest's clock goes on, or the guest does and its output is late."""
    for job in run.jobs:
        ran_s = job.runtime_ms / 1000
        of_ios = [one for one in job.latencies if one.kind is not LatencyKind.SYNC]
        io_s = max((one.max_ns for one in of_ios), default=0.0) / 1e9
        mean_s = max((one.mean_ns for one in of_ios), default=0.0) / 1e9
        # In a deep queue an I/O is long without any fault: with 64 I/Os of 1 MiB at a time, a disk of 24 MiB/s takes
        # 2.7 s for each (Little's law), and 5.3 s for one that met another queue before it.
        limit_s = max(_MOST_STALL * asked_s, _LEAST_STALL_S, _TIMES_MEAN * mean_s)
        if not ran_s <= max(_MOST_RUNTIME * asked_s, asked_s + _LEAST_STALL_S):
            yield f"job {job.name} ran {ran_s:.1f} s of {asked_s:g} s"
        if not io_s <= limit_s:
            yield f"an I/O of job {job.name} took {io_s:.1f} s, limit {limit_s:.1f} s: the host stood still"


def _apart(trial: Trial, asked_s: float) -> Iterator[str]:
    """Return too long idle times of the cache, by the host's monotonic clock: a person may set the other clock.

    The cache is not idle while its layer fills it, nor while a command's files are put on the stack. Before fio's own
    time a run lays out its files, which takes as long as the disks need; but into an empty cache no longer than into a
    full one.
    """
    *earlier, last = trial.runs
    if not earlier:
        return
    at_work_s = sum(run.duration_s + _counted(run, FILL) + _counted(run, PREPARED) for run in trial.runs)
    between_s = trial.timings.workload_s - at_work_s
    writes = any(job.direction != "read" and job.total_ios for run in earlier for job in run.jobs)
    share = _MOST_WRITE_BACK if writes else _MOST_ASIDE
    limit_s = max(share * asked_s, _LEAST_ASIDE_S) * len(earlier)
    if not between_s <= limit_s:
        yield f"{between_s:.1f} s went by between the runs, limit {limit_s:.1f} s"
    limit_s = max(_MOST_ASIDE * asked_s, _MOST_LAYOUT * _aside_s(last), _LEAST_ASIDE_S)
    for run in earlier:
        more_s = _aside_s(run) - _aside_s(last)
        if not more_s <= limit_s:
            yield f"the {run_words(run.name)} lasted {more_s:.1f} s longer than it should, limit {limit_s:.1f} s"


def _aside_s(run: Run) -> float:
    return run.aside_s + _counted(run, PREPARED)


def _counted(run: Run, counter: str) -> float:
    return dict(run.counters).get(counter, 0.0)
