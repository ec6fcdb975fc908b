"""What makes a trial too weak to conclude from; the limits are the caller's."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from bisector.analysis.speed import Speed, why_unlike
from bisector.core.figures import LatencyKind, Run, run_words
from bisector.core.trial import Trial
from bisector.core.units import plural
from bisector.storage.filling import FILL
from bisector.storage.stack import Stack
from bisector.workload.counts import INTERRUPTS
from bisector.workload.repetitions import PREPARED

# Below this an I/O that took long, or a run that ended late, says nothing. On the hard disk of the recorded bisect of
# 2017 the longest of all I/Os took 1.7 s, and no run of 15 min ended more than 0.2 s late; in emulation, 0.6 s.
_LEAST_STALL_S = 3.0
_TIMES_MEAN = 3.0
# Fetching what fio wrote and dropping caches took 1.5 s and 1.9 s in trials of two runs on a host with a core to spare,
# and 3.5 s on one with none.
_LEAST_ASIDE_S = 10.0


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on a trial is no evidence; the speed of the host's cores is held against ``speed``, if that is known.

    The limits of clock and time are for faults, not for noise: an idle host keeps them all by far.
    """

    max_other_cores: float
    max_steal_share: float
    asked_runtime_s: float
    max_speed_change: float = 0.15
    speed: Speed | None = None
    max_clock_drift_share: float = 0.05
    min_runtime_share: float = 0.95
    max_runtime_share: float = 1.05
    max_stall_share: float = 0.1
    max_aside_share: float = 0.05
    max_write_back_share: float = 0.5
    max_layout_share: float = 0.5

    @property
    def max_runtime_s(self) -> float:
        """The longest that fio may have run."""
        return max(self.max_runtime_share * self.asked_runtime_s, self.asked_runtime_s + _LEAST_STALL_S)

    def max_io_s(self, mean_s: float) -> float:
        """The longest that a single I/O may have taken, of a job whose mean one took ``mean_s``.

        In a deep queue that is long without any fault: with 64 I/Os of 1 MiB at a time, a disk of 24 MiB/s takes 2.7 s
        for each (Little's law), and 5.3 s for one that met another queue before it.
        """
        return max(self.max_stall_share * self.asked_runtime_s, _LEAST_STALL_S, _TIMES_MEAN * mean_s)

    def max_between_s(self, writes: bool) -> float:
        """The longest that may have gone by between the runs.

        What a job that ``writes`` leaves dirty is written back then, by disks that may be slow.
        """
        share = self.max_write_back_share if writes else self.max_aside_share
        return max(share * self.asked_runtime_s, _LEAST_ASIDE_S)

    def max_longer_s(self, layout_s: float) -> float:
        """The longest that a run may have been at its files beyond the ``layout_s`` that another run took for them."""
        return max(self.max_aside_share * self.asked_runtime_s, self.max_layout_share * layout_s, _LEAST_ASIDE_S)


def weaknesses(trial: Trial, limits: Limits, stack: Stack, direction: str = "read") -> tuple[str, ...]:
    """Why a trial is weak evidence; empty when it is not. What concerns its last run, the one that is judged, is first.

    ``direction`` is that of the I/O that decides: a job that did none of it is no measurement. Where it is empty, what
    decides is of a job or the run as a whole, and a job that did no I/O at all is none.

    Every run counts, and the time between them: what the last one shows depends on how the earlier ones filled the
    cache, and on how long the cache has been there (dm-cache's smq looks it over once a minute). Of what others
    measured (a trial with an origin) nobody knows the host, the clock and the time that was asked for: that is no
    weakness, and not held for soundness either; what is known is looked at all the same. A guest whose instructions are
    counted sees neither what the host did nor how long it took, and one that met something from outside is not the same
    again. In which state each run has to begin, the stack says.
    """
    if trial.fault is not None or not trial.runs:
        return ()
    unwatched = (replace(run, contention=None, clock_drift_s=None) for run in trial.runs)
    *earlier, judged = unwatched if trial.is_counted else trial.runs
    if trial.origin is not None:
        limits = replace(limits, asked_runtime_s=0.0)
    timed = trial.origin is None and not trial.is_counted
    return (
        *_of_run(judged, limits, stack, timed, direction),
        *stack.unsteady(trial.runs),
        *chain.from_iterable(_of_earlier(run, limits, stack, timed, direction) for run in earlier),
        *(_apart(trial, limits) if timed else ()),
        *(chain.from_iterable(map(_from_outside, trial.runs)) if trial.is_counted else ()),
    )


def _of_earlier(run: Run, limits: Limits, stack: Stack, timed: bool, direction: str) -> Iterator[str]:
    return (f"in the {run_words(run.name)} {why}" for why in _of_run(run, limits, stack, timed, direction))


def _of_run(run: Run, limits: Limits, stack: Stack, timed: bool, direction: str) -> Iterator[str]:
    if timed:
        yield from _unwatched(run)
    yield from _host(run, limits)
    yield from _clock(run, limits)
    yield from stack.unready(run)
    yield from _fio(run, limits, direction)
    if timed:
        yield from _time(run, limits)


def _unwatched(run: Run) -> Iterator[str]:
    if run.contention is None or run.clock_drift_s is None:
        yield f"nobody looked at the host and the clock during the {run_words(run.name)}"


def _host(run: Run, limits: Limits) -> Iterator[str]:
    if run.contention is None:
        return
    other, steal = run.contention.other_busy_cores, run.contention.steal_share
    # "not below", so that a figure that is no number is weak too
    if not other <= limits.max_other_cores:
        yield f"the host was busy: {other:.2f} cores of other work, limit {limits.max_other_cores:.2f}"
    if not steal <= limits.max_steal_share:
        yield f"the host lost CPU time: steal {steal:.1%}, limit {limits.max_steal_share:.1%}"
    if why := why_unlike(run, limits.speed, limits.max_speed_change):
        yield f"{why}, limit {limits.max_speed_change:.0%} of change"


def _clock(run: Run, limits: Limits) -> Iterator[str]:
    if run.clock_drift_s is not None and not abs(run.clock_drift_s) <= limits.max_clock_drift_share * run.duration_s:
        yield f"the guest's clock drifted by {run.clock_drift_s:+.1f} s in {run.duration_s:.0f} s"


def _fio(run: Run, limits: Limits, direction: str) -> Iterator[str]:
    least_s = limits.min_runtime_share * limits.asked_runtime_s
    busy = {job.name for job in run.jobs if job.total_ios and direction in ("", job.direction)}
    for job in run.jobs:
        if job.error:
            yield f"fio reported error {job.error} in job {job.name}"
        if direction in ("", job.direction) and job.name not in busy:
            yield f"job {job.name} did no I/O"
        elif job.direction == direction and not 0 < job.iops_mean < math.inf:
            yield f"job {job.name} has {job.iops_mean:g} IOPS, which is no measurement"
        if run.stopped_early is None and job.total_ios and not job.runtime_ms >= least_s * 1000:
            yield f"job {job.name} ran {job.runtime_ms / 1000:.1f} s of {limits.asked_runtime_s:g} s"


def _time(run: Run, limits: Limits) -> Iterator[str]:
    """What a host does that stands still: the guest's clock goes on, or the guest does and nobody listens."""
    for job in run.jobs:
        ran_s = job.runtime_ms / 1000
        of_ios = [one for one in job.latencies if one.kind is not LatencyKind.SYNC]
        io_s = max((one.max_ns for one in of_ios), default=0.0) / 1e9
        mean_s = max((one.mean_ns for one in of_ios), default=0.0) / 1e9
        limit_s = limits.max_io_s(mean_s)
        if not ran_s <= limits.max_runtime_s:
            yield f"job {job.name} ran {ran_s:.1f} s of {limits.asked_runtime_s:g} s"
        if not io_s <= limit_s:
            yield f"an I/O of job {job.name} took {io_s:.1f} s, limit {limit_s:.1f} s: the host stood still"


def _from_outside(run: Run) -> Iterator[str]:
    """What reached a guest that has all it needs in its memory; of older records nobody knows."""
    if interrupts := _counted(run, INTERRUPTS):
        yield f"{plural(int(interrupts), 'interrupt')} reached the guest from outside in the {run_words(run.name)}"


def _apart(trial: Trial, limits: Limits) -> Iterator[str]:
    """How long the cache had nothing to do, by the host's monotonic clock: a person may set the other one meanwhile.

    While its layer fills it, it has, and while a command's files come to lie on the stack. Before fio's own time a run
    lays out its files, which takes as long as the disks need; but into an empty cache no longer than into a full one.
    """
    *earlier, last = trial.runs
    if not earlier:
        return
    at_work_s = sum(run.duration_s + _counted(run, FILL) + _counted(run, PREPARED) for run in trial.runs)
    between_s = trial.timings.workload_s - at_work_s
    writes = any(job.direction != "read" and job.total_ios for run in earlier for job in run.jobs)
    limit_s = limits.max_between_s(writes) * len(earlier)
    if not between_s <= limit_s:
        yield f"{between_s:.1f} s went by between the runs, limit {limit_s:.1f} s"
    limit_s = limits.max_longer_s(_aside_s(last))
    for run in earlier:
        more_s = _aside_s(run) - _aside_s(last)
        if not more_s <= limit_s:
            yield f"the {run_words(run.name)} lasted {more_s:.1f} s longer than it should, limit {limit_s:.1f} s"


def _aside_s(run: Run) -> float:
    """How long it took to lay out the files of a run."""
    return run.aside_s + _counted(run, PREPARED)


def _counted(run: Run, counter: str) -> float:
    return dict(run.counters).get(counter, 0.0)
