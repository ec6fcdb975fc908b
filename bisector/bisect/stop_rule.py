"""The rule by which a bisection's next run may end early, from its trials and fio's logs of fast runs.

fio writes a log of its I/Os if the job file asks for one. The same log serves for bandwidth, since the mean size of an
I/O does not change during a run.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np

from bisector.analysis.early_stop import (
    Alike,
    Counterpart,
    Floats,
    StopRule,
    batch_s,
    became_fast_s,
    deciding_rates,
    guard_s,
    most_moved,
)
from bisector.analysis.judgement import SoundMeasurement, judged_run
from bisector.analysis.levels import are_far_apart
from bisector.analysis.verdicts import Judging
from bisector.core.figures import Run
from bisector.core.metric import Unit, is_of_split
from bisector.core.objective import Objective
from bisector.core.trial import Fill, Trial
from bisector.core.verdict import Verdict
from bisector.host.files import inside
from bisector.workload.fio.logs import LogUnreadable, Series, job_number, parse_log, resample

_BYTES_PER_KIB = 1024


def why_whole(objective: Objective) -> str:
    """The sentence that says why no run can be stopped early by this metric; empty if runs can be."""
    if objective.definition.live:
        return ""
    return f"no run is stopped early: {objective.metric} is known only when a run has ended"


def stop_rule(judging: Judging, run_dir: Path, fill: Fill = Fill.WHOLE) -> StopRule | None:
    """The rule by which a run may end early; None if no threshold is known yet, or if the run must not end early.

    Callers must not apply it to the ends, since it is derived from their whole runs. The time until a fast kernel is
    fast depends on how long its cache has been in use, so only trials with the same ``fill`` count.
    """
    line, workload, objective = judging.threshold(), judging.settings.workload, judging.objective
    if line is None or workload.full_runs or not objective.definition.live:
        return None
    # The beginning of a run may differ from the rest by more than the small changes that counted time can tell.
    if judging.settings.machine.is_counted and not are_far_apart(line.old, line.new):
        return None
    threshold = objective.value_of(line.score)
    runtime_s = float(workload.runtime_s)
    short = fill is Fill.SHORT
    like = [trial for trial, _ in judging.sound() if trial.filled_short is short]
    least_lead_s = min((_lead_s(trial) for trial in like if trial.origin is None), default=0.0)
    curves = Curves(objective, run_dir, runtime_s)
    fast = [trial for trial in _better_trials(judging) if trial.filled_short is short]
    fast_after_s = [curves.fast_after_s(trial, threshold) for trial in fast]
    later_s = [max(_lead_s(trial) - least_lead_s, 0.0) for trial in fast]
    counted = [None if after_s is None else after_s + more for after_s, more in zip(fast_after_s, later_s, strict=True)]
    steady_s = max((_steady_s(trial, objective) for trial in like), default=0.0)
    return StopRule(threshold, runtime_s, guard_s(counted, runtime_s), objective, steady_s=steady_s)


def _better_trials(judging: Judging) -> tuple[Trial, ...]:
    if judging.direction is None:
        return ()
    better = judging.direction.verdict(better=True)
    end = judging.new if better is Verdict.NEW else judging.old
    return tuple(trial for trial, verdict in judging.sound() if trial.commit.sha == end or verdict is better)


def _steady_s(trial: Trial, objective: Objective) -> float:
    jobs = judged_run(trial).jobs if is_of_split(objective.metric) else ()
    return max((job.settled_after_s or 0.0 for job in jobs if job.direction == objective.io_direction), default=0.0)


def rule_clear_of(judging: Judging, run_dir: Path, shas: Iterable[str]) -> StopRule | None:
    """The rule for a run that an answer may rest on: it ends once clear of the threshold and of another whole run.

    That is the run of the first of the commits ``shas`` on the other side of the threshold. None, so that the run goes
    its whole length, if none of them has a whole run with logs of all jobs and with a cache filled by whole runs, or if
    the workload's random numbers differ from run to run.
    """
    rule, workload = stop_rule(judging, run_dir), judging.settings.workload
    if rule is None or not workload.workload.repeats_itself():
        return None
    curves = Curves(judging.objective, run_dir, rule.runtime_s)
    found = tuple(filter(None, (_counterpart(judging, curves, sha) for sha in shas)))
    return replace(rule, counterparts=found) if found else None


def rule_alike(judging: Judging, run_dir: Path, sha: str) -> StopRule | None:
    """The rule for an end's run after a short fill: it ends once clear of the threshold and like the end's whole run.

    The whole run shows what follows good or bad minutes of that kernel, so the guard is a third of the run, whatever
    other runs took. None, so that the run goes its whole length, if the end has no whole run to compare with.
    """
    rule = rule_clear_of(judging, run_dir, (sha,))
    if rule is None:
        return None
    (own,) = rule.counterparts
    alike = Alike(own, math.exp(most_moved(judging.both_ways)))
    return replace(rule, guard_s=rule.runtime_s / 3, counterparts=(), alike=alike)


def _counterpart(judging: Judging, curves: "Curves", sha: str) -> Counterpart | None:
    """The whole run of a commit, or of another commit with the same kernel."""
    settled, judgement = judging.settlement(sha), judging.judge(sha)
    if not isinstance(settled, SoundMeasurement) or judgement is None or judging.direction is None:
        return None
    trial = settled.trial
    rates = curves.rates(trial) if trial.stopped_early is None and trial.bears_answer else ()
    if not rates or trial.origin is not None or judgement.verdict not in (Verdict.OLD, Verdict.NEW):
        return None
    is_better = judgement.verdict is judging.direction.verdict(better=True)
    return Counterpart(sha, is_better, batch_s(curves.runtime_s), tuple(tuple(map(float, one)) for one in rates))


def _lead_s(trial: Trial) -> float:
    """The seconds that the cache had been in use when fio's own time in the last run began; 0 if others measured.

    To the second, as on record. dm-cache's policy moves blocks by a clock of its own, so a kernel becomes fast as much
    sooner as its last run begins later; the guard is computed for a run that begins as early as any did.
    """
    if trial.origin is not None:
        return 0.0
    first, last = (datetime.fromisoformat(trial.runs[place].started_at) for place in (0, -1))
    return (last - first).total_seconds() + judged_run(trial).aside_s


@dataclass(frozen=True, slots=True)
class Curves:
    """The course of the objective's rate during runs, by the logs in a run directory."""

    objective: Objective
    run_dir: Path
    runtime_s: float

    def fast_after_s(self, trial: Trial, threshold: float) -> float | None:
        """The second of its last run from which a trial stayed fast; None if it never did, or if that is unknown."""
        stop = trial.stopped_early
        if stop is not None and not stop.against:
            return stop.at_s
        # A run that also had to be clear of another run may have been fast long before it was stopped.
        known = became_fast_s(self.rates(trial), self.runtime_s, threshold)
        return stop.at_s if known is None and stop is not None else known

    def rates(self, trial: Trial) -> tuple[Floats, ...]:
        """The batches of a trial's last run that the objective uses; empty unless every job has a log."""
        run, step_ms = judged_run(trial), batch_s(self.runtime_s) * 1000
        figures = {job.name: job for job in run.jobs if job.direction == self.objective.io_direction}
        names = tuple(dict.fromkeys(job.name for job in run.jobs))
        found = {}
        for number, series in self._logs(trial, run):
            if (job := figures.get(names[number - 1] if 0 < number <= len(names) else "")) is None:
                continue
            # Cut off after the last whole batch: fio does not log a last interval that is incomplete.
            until_ms = np.floor(min(float(series.end_ms[-1]), self.runtime_s * 1000) / step_ms) * step_ms
            is_bandwidth = self.objective.definition.unit is Unit.BYTES_S
            per_io = _BYTES_PER_KIB * job.bw_kib_s / job.iops_mean if is_bandwidth else 1.0
            found[job.name] = resample(series, step_ms, until_ms) * per_io
        return deciding_rates(self.objective, found if len(found) == len(figures) else {})

    def _logs(self, trial: Trial, run: Run) -> Iterator[tuple[int, Series]]:
        """The logs of a run with the numbers of their jobs, which fio counts in the order of the job file."""
        for artifact in trial.artifacts:
            path = Path(artifact.name)
            number = job_number(path.name)
            if path.parent.name != run.name or number is None:
                continue
            try:
                text = inside(self.run_dir, artifact.path).read_text(encoding="utf-8")
                series = parse_log(text, self.objective.io_direction)
            except (OSError, UnicodeDecodeError, LogUnreadable):
                continue  # the run then has fewer logs than jobs, and its rates are not used
            if series.end_ms.size:
                yield number, series
