"""What makes a trial too weak to conclude from; the limits are the caller's."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bisector.figures import Run
from bisector.model import Trial


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on a run is no evidence.

    The clock and run time limits are for faults, not for noise: an idle host keeps both within
    a percent. The cache need not be full to the last block: the smq policy of a working kernel
    demotes a little ahead of need.
    """

    max_other_cores: float
    max_steal_share: float
    asked_runtime_s: float
    max_clock_drift_share: float = 0.05
    min_runtime_share: float = 0.95
    min_cache_used_share: float = 0.95


def weaknesses(trial: Trial, limits: Limits) -> tuple[str, ...]:
    """Why the last run, the one that is judged, is weak evidence; empty when it is not.

    Earlier runs only fill the cache, and that shows in the cache itself. Of what others measured (a trial with an
    origin) nobody knows the host, the clock and the time that was asked for: that is no weakness, and not held for
    soundness either; what is known is looked at all the same.
    """
    if trial.fault is not None or not trial.runs:
        return ()
    judged = trial.runs[-1]
    after_another = len(trial.runs) > 1
    if trial.origin is not None:
        limits = replace(limits, asked_runtime_s=0.0)
    return (
        *(_unwatched(judged) if trial.origin is None else ()),
        *_host(judged, limits),
        *_clock(judged, limits),
        *_cache(judged, after_another, limits),
        *_fio(judged, limits),
    )


def _unwatched(run: Run) -> Iterator[str]:
    if run.contention is None or run.clock_drift_s is None:
        yield f"nobody looked at the host and the clock during the {run.name} run"


def _host(run: Run, limits: Limits) -> Iterator[str]:
    if run.contention is None:
        return
    other, steal = run.contention.other_busy_cores, run.contention.steal_share
    # "not below", so that a figure that is no number is weak too
    if not other <= limits.max_other_cores:
        yield f"the host was busy: {other:.2f} cores of other work, limit {limits.max_other_cores:.2f}"
    if not steal <= limits.max_steal_share:
        yield f"the host was deprived: {steal:.1%} of its CPU time stolen, limit {limits.max_steal_share:.1%}"


def _clock(run: Run, limits: Limits) -> Iterator[str]:
    if run.clock_drift_s is not None and not abs(run.clock_drift_s) <= limits.max_clock_drift_share * run.duration_s:
        yield f"the guest's clock drifted by {run.clock_drift_s:+.1f} s in {run.duration_s:.0f} s"


def _cache(run: Run, after_another: bool, limits: Limits) -> Iterator[str]:
    before = run.cache_before
    if after_another and before is not None and before.used_blocks < limits.min_cache_used_share * before.total_blocks:
        yield f"the cache was not full before the {run.name} run: {before.used_blocks} of {before.total_blocks} blocks"


def _fio(run: Run, limits: Limits) -> Iterator[str]:
    least_s = limits.min_runtime_share * limits.asked_runtime_s
    for job in run.jobs:
        if job.error:
            yield f"fio reported error {job.error} in job {job.name}"
        if job.direction == "read" and not job.total_ios:
            yield f"job {job.name} did no I/O"
        elif job.direction == "read" and not 0 < job.iops_mean < math.inf:
            yield f"job {job.name} has {job.iops_mean:g} IOPS, which is no measurement"
        if run.stopped_early is None and job.total_ios and not job.runtime_ms >= least_s * 1000:
            yield f"job {job.name} ran {job.runtime_ms / 1000:.1f} s of {limits.asked_runtime_s:g} s"
