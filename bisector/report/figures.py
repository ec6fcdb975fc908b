"""The values of runs and of lone disks by the deciding metric, as text."""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from bisector.analysis.judgement import judged_run
from bisector.analysis.quality import thin_tail
from bisector.core import units
from bisector.core.errors import InfraError, UserError
from bisector.core.figures import Run, StopReason
from bisector.core.metric import Better
from bisector.core.objective import WORST, Objective
from bisector.core.printable import clean
from bisector.core.subject import Setup
from bisector.core.trial import Trial
from bisector.status.view import BisectionView, TrialView
from bisector.storage.disks import in_order
from bisector.storage.stack import lone_disk

USUAL = Objective()
EARLY = "*"
_PAIR = 2


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The values of a run's jobs by a metric, the worst first, and whether the run was stopped early."""

    values: tuple[float, ...]
    early: bool = False
    objective: Objective = field(default_factory=Objective)

    @property
    def range_text(self) -> str:
        """The worst value and, if there are several, the best."""
        worst, best = self.objective.cell(self.values[0]), self.objective.cell(self.values[-1])
        several = len(self.values)
        marked = (EARLY if self.early else "") + worst
        if several == 1:
            return marked
        return f"{marked} {'/' if several == _PAIR else '…'} {best}"

    @property
    def all_text(self) -> str:
        """All values, with a mark if they cannot be compared with those of a whole run."""
        return (EARLY if self.early else "") + " / ".join(map(self.objective.cell, self.values))


def run_names(trials: Sequence[TrialView]) -> tuple[str, ...]:
    """The names of the runs in the order in which they first occur; further rounds of a run are left out."""
    return tuple(dict.fromkeys(run.name for view in trials for run in view.trial.runs if not run.repeats))


def run_titles(trials: Sequence[TrialView], objective: Objective = USUAL) -> tuple[str, ...]:
    """The headings of the runs' columns, in the order of :func:`run_names`: the metric, the run, the order of jobs."""
    titles = []
    worst, best = ("min", "max") if objective.better is Better.HIGHER else ("max", "min")
    for name in run_names(trials):
        shown = [(_of(run, objective), run) for view in trials for run in view.trial.runs if run.name == name]
        metrics = dict.fromkeys(of.metric for of, _ in shown)
        title = f"{shown[0][0].heading if len(metrics) == 1 else '/'.join(metrics)} {name}"
        jobs = max(len(of.of_jobs(run)) for of, run in shown)
        if objective.over != WORST:
            title = f"{title} {objective.over}"
        elif jobs > 1:
            title = f"{title} {worst}{'/' if jobs == _PAIR else '…'}{best}"
        titles.append(clean(title))
    return tuple(titles)


def figures(run: Run, objective: Objective = USUAL) -> RunFigures | None:
    """The values of a run: of each job if the worst job decides, else the deciding value; None without any."""
    objective, found = _of(run, objective), list[float]()
    if objective.over == WORST:
        found = [value.value for value in objective.of_jobs(run)]
    else:
        with suppress(UserError, InfraError):  # a run without such a value shows nothing
            found = [objective.value(run)]
    found = objective.worst_first(filter(math.isfinite, found))
    return RunFigures(tuple(found), run.stopped_early is not None, objective) if found else None


def _of(run: Run, objective: Objective) -> Objective:
    """The objective that a run is shown by; for an imported run without reads, the same metric of its writes."""
    if objective.metric != USUAL.metric or run.direction == objective.io_direction:
        return objective
    return Objective(run.direction + objective.metric.removeprefix(objective.io_direction), objective.over)


def tail_note(view: BisectionView) -> str:
    """A sentence if the deciding percentile rests on too few I/Os of a run; else empty."""
    said = thin_tail(view.objective, (judged_run(one.trial) for one in view.trials if one.trial.runs))
    return f"Too few I/Os: {said}." if said else ""


def words(objective: Objective) -> tuple[str, str, str]:
    """The name of the values, and the words for the first and the last of several jobs."""
    if objective.definition.live:  # a rate
        return f"mean {objective.heading}", "slowest", "fastest"
    return objective.metric, "worst", "best"


def values_text(run: Run, objective: Objective) -> str:
    """The worst and the best value of a run's jobs, with their unit: ``16.2 ms / 850 µs``."""
    objective, found = _of(run, objective), figures(run, objective)
    unit = objective.heading if objective.cell(1.0) != objective.text(1.0) else ""
    return f"{found.range_text if found else units.UNKNOWN} {unit}".rstrip()


def baseline_facts(baselines: Sequence[Trial], objective: Objective) -> tuple[tuple[str, str], ...]:
    """The baselines with their values, such as ``SSD alone``; a disk that was not measured is left out."""
    return tuple((name, baseline_text(trials, objective)) for name, trials in by_setup(baselines).items())


def setup_name(setup: Setup) -> str:
    """The display name of a setup, such as ``SSD alone`` for a disk with nothing but a file system on it."""
    disk = lone_disk(setup.stack)
    return str(setup) if disk is None else f"{disk.upper()} alone"


def by_setup(baselines: Sequence[Trial]) -> dict[str, list[Trial]]:
    """The baselines of each setup by its name: lone disks in the order of the settings, then other setups.

    A lone disk is one setup here, whoever measured it.
    """
    setups = dict.fromkeys(trial.setup for trial in baselines)
    disks = {setup: lone_disk(setup.stack) for setup in setups}
    order = in_order(filter(None, disks.values()))
    ordered = sorted(setups, key=lambda setup: order.index(disk) if (disk := disks[setup]) else len(order))
    names = dict.fromkeys(map(setup_name, ordered))
    return {name: [trial for trial in baselines if setup_name(trial.setup) == name] for name in names}


def baseline_text(trials: Iterable[Trial], objective: Objective) -> str:
    """The values on one setup with the kernel of each; imported results may have several."""
    return "; ".join(f"{values_text(judged_run(trial), objective)} on {trial.commit.short}" for trial in trials)


def early_note(trials: Sequence[TrialView]) -> str:
    """Why runs were stopped early; empty if none was."""
    reasons = {run.stopped_early.reason for one in trials for run in one.trial.runs if run.stopped_early is not None}
    said = ["when its verdict was clear"] if reasons - {StopReason.SETTLED} else []
    said += ["when the cache that it filled was settled"] if StopReason.SETTLED in reasons else []
    return f"stopped early, {' or '.join(said)}" if said else ""


def filling_note(trials: Sequence[TrialView]) -> str:
    """How long caches took to fill; empty if one whole run each was enough."""
    said = []
    rounds = [more for one in trials if (more := [run for run in one.trial.runs if run.repeats])]
    if rounds:
        took = units.duration(sum(run.duration_s for more in rounds for run in more))
        said.append(
            f"in {units.plural(len(rounds), 'trial')} the cache was not full and steady after one run, which was"
            f" repeated {units.plural(max(map(len, rounds)), 'time')} at most, for {took} in all"
        )
    seconds = [sum(run.duration_s for run in one.trial.runs[:-1]) for one in trials if one.trial.filled_short]
    if seconds:
        took = " to ".join(dict.fromkeys(map(units.duration, (min(seconds), max(seconds)))))
        said.append(
            f"in {units.plural(len(seconds), 'trial')} the cache was filled until it was settled, which took {took}"
        )
    return "; ".join(said)
