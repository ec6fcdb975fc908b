"""Facts of one sound trial to a verdict, by the rule that each job of the last run counts."""

import math
from dataclasses import dataclass

from bisector.analysis.early_stop import holds
from bisector.core.errors import InfraError, UserError
from bisector.core.figures import EarlyStop, JobFigures
from bisector.core.model import Direction, Trial, Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and the sentence that gives its reason."""

    verdict: Verdict
    why: str


def reads(trial: Trial) -> bool:
    """Whether a job of the last run reads; what others measured may only write."""
    return any(job.direction == "read" for run in trial.runs[-1:] for job in run.jobs)


def least_job_iops(trial: Trial) -> float:
    """Mean read IOPS of the slowest job of the last run, the one with a full cache.

    Raises :class:`UserError` when no job reads, :class:`InfraError` when a figure is none: a job
    that stood still or was not measured must not pass for a slow one.
    """
    return _least_job(trial).iops_mean


def classify(trial: Trial, threshold_iops: float, direction: Direction) -> Judgement:
    """Which side of the change a trial is on that has neither a fault nor a weakness.

    A figure equal to the threshold is not above it. Of a run that was stopped early the rule that stopped it
    tells the side, not its mean; it is weak when it was not clear of this threshold. Raises what
    :func:`least_job_iops` raises.
    """
    least = _least_job(trial)
    stop = trial.stopped_early
    above = least.iops_mean > threshold_iops if stop is None else holds(stop, threshold_iops)
    if above is None:
        return Judgement(Verdict.WEAK, unclear(threshold_iops))
    found = f"slowest job {least.name}: {least.iops_mean:,.0f} IOPS" if stop is None else _early(stop)
    figures = (
        f"{found} in the {trial.runs[-1].name} run, "
        f"{'above' if above else 'not above'} the threshold of {threshold_iops:,.0f}"
    )
    return Judgement(direction.verdict(above), figures)


def unclear(threshold_iops: float) -> str:
    """Why a run that was stopped early tells nothing, when :func:`bisector.analysis.early_stop.holds` does not know."""
    return f"stopped early, before it was clear of a threshold of {threshold_iops:,.0f}"


def _early(stop: EarlyStop) -> str:
    return f"stopped after {stop.at_s:.0f} s: {stop.why},"


def _least_job(trial: Trial) -> JobFigures:
    if not trial.runs:
        raise InfraError(f"{trial.commit.short}: the trial has neither a fault nor a run")
    jobs = [job for job in trial.runs[-1].jobs if job.direction == "read"]
    if not jobs:
        raise UserError("no job of the workload reads", "the verdict is by read IOPS: workload.job needs a reading job")
    for job in jobs:
        if not (math.isfinite(job.iops_mean) and job.iops_mean > 0):
            raise InfraError(f"{trial.commit.short}: job {job.name} has {job.iops_mean} IOPS, which is no measurement")
    return min(jobs, key=lambda job: job.iops_mean)
