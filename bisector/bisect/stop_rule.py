"""From a bisection's facts to the rule by which its next run may end early; reads IOPS logs of fast runs."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import numpy as np

from bisector.analysis.early_stop import Floats, StopRule, batch_s, became_fast_s, guard_s
from bisector.analysis.verdicts import Judging
from bisector.core.figures import Run
from bisector.core.model import Trial
from bisector.host.inside import inside
from bisector.workload.fio.series import LogUnreadable, Series, parse_iops_log, resample

_LOG = "*_iops*.log"


def stop_rule(judging: Judging, run_dir: Path) -> StopRule | None:
    """When a run may end early; None while there is no threshold, and where whole runs are wished for.

    The ends are never to be measured by it: it comes from their whole runs.
    """
    line, workload = judging.threshold(), judging.settings.workload
    if line is None or workload.full_runs:
        return None
    runtime_s = float(workload.runtime_s)
    least_lead_s = min((_lead_s(trial) for trial, _ in judging.sound() if trial.origin is None), default=0.0)
    fast_after_s = [_fast_after_s(trial, run_dir, runtime_s, line.iops) for trial in judging.fast_trials]
    later_s = [max(_lead_s(trial) - least_lead_s, 0.0) for trial in judging.fast_trials]
    counted = [None if after_s is None else after_s + more for after_s, more in zip(fast_after_s, later_s, strict=True)]
    return StopRule(line.iops, runtime_s, guard_s(counted, runtime_s))


def _lead_s(trial: Trial) -> float:
    """How long the cache had been in use when fio's own time in the last run began.

    To the second, as the record has it; 0 of what others measured. A kernel becomes fast so much sooner as its last run
    begins later, where dm-cache's policy moves blocks by a clock of its own; so the guard is reckoned for a run that
    begins as early as any did.
    """
    if trial.origin is not None:
        return 0.0
    first, last = (datetime.fromisoformat(trial.runs[place].started_at) for place in (0, -1))
    return (last - first).total_seconds() + trial.runs[-1].aside_s


def _fast_after_s(trial: Trial, run_dir: Path, runtime_s: float, threshold_iops: float) -> float | None:
    """By which second of its last run a fast kernel was fast; None when that is not known, or was never for good."""
    if trial.stopped_early is not None:
        return trial.stopped_early.at_s
    return became_fast_s(_batches(trial, run_dir, runtime_s), runtime_s, threshold_iops)


def _batches(trial: Trial, run_dir: Path, runtime_s: float) -> tuple[Floats, ...]:
    """Each reading job of the run that counts, in batches, by its log; nothing unless there is one for every job."""
    run = trial.runs[-1]
    found = tuple(_resampled(series, runtime_s) for series in _logs(trial, run, run_dir))
    return found if len(found) == sum(job.direction == "read" for job in run.jobs) else ()


def _logs(trial: Trial, run: Run, run_dir: Path) -> Iterator[Series]:
    for artifact in trial.artifacts:
        path = Path(artifact.name)
        if path.parent.name != run.name or not path.match(_LOG):
            continue
        try:
            series = parse_iops_log(inside(run_dir, artifact.path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, LogUnreadable):
            continue  # then there are fewer logs than jobs, and no curve
        if series.end_ms.size:
            yield series


def _resampled(series: Series, runtime_s: float) -> Floats:
    """To the last whole batch there is: fio logs no last interval that is not whole."""
    step_ms = batch_s(runtime_s) * 1000
    until_ms = np.floor(min(float(series.end_ms[-1]), runtime_s * 1000) / step_ms) * step_ms
    return resample(series, step_ms, until_ms)
