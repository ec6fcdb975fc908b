"""The verdict table of a bisection, the values in it as text, and beside it the logs of faults and the times."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from bisector.analysis.judgement import judged_run
from bisector.analysis.quality import thin_tail
from bisector.analysis.verdicts import host_of
from bisector.core import units
from bisector.core.errors import InfraError, UserError
from bisector.core.figures import Run, StopReason
from bisector.core.metric import Better
from bisector.core.objective import WORST, Objective
from bisector.core.printable import clean
from bisector.core.subject import Setup
from bisector.core.trial import Stage, Trial
from bisector.core.verdict import SideWords, Verdict
from bisector.report.blocks import Block, Column, Listing, Paragraph, Role, Row, Table, verdict_role
from bisector.status.view import BisectionView, TrialView
from bisector.storage.disks import in_order
from bisector.storage.stack import lone_disk

USUAL = Objective()
EARLY = "*"
_PAIR = 2
_TAIL_LINES = 6
_TIMES = ("build", "boot", "storage", "runs", "bisector", "total")


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


def figures(run: Run, objective: Objective = USUAL, *, each_job: bool = False) -> str:
    """The values of a run as a cell: of its worst and best job or of each, or the deciding value if no job decides.

    A run that was stopped early has a mark, since it cannot be compared with a whole one.
    """
    objective, found = _of(run, objective), list[float]()
    if objective.over == WORST:
        found = [value.value for value in objective.of_jobs(run)]
    else:
        with suppress(UserError, InfraError):  # a run without such a value shows nothing
            found = [objective.value(run)]
    cells = [objective.cell(value) for value in objective.worst_first(filter(math.isfinite, found))]
    if not cells:
        return units.UNKNOWN
    text = f"{cells[0]} … {cells[-1]}" if len(cells) > _PAIR and not each_job else " / ".join(cells)
    return f"{'' if run.stopped_early is None else EARLY}{text}"


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
    objective = _of(run, objective)
    unit = objective.heading if objective.cell(1.0) != objective.text(1.0) else ""
    return f"{figures(run, objective)} {unit}".rstrip()


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


# The table


def verdict_table(
    view: BisectionView, trials: Sequence[TrialView], places: Sequence[int | None] | None = None
) -> Table:
    """Make the table of verdicts with the values behind them.

    With ``places`` in history, as in a report, each job has its value and each row the reason of its verdict. Otherwise
    a row has the worst and the best job, and a reason only if the values do not explain the verdict.
    """
    names, objective = run_names(trials), view.objective
    whys = _whys(trials, view.terms, brief=places is None)
    rows = []
    for n, (one, why) in enumerate(zip(trials, whys, strict=True)):
        commit = one.trial.commit
        texts = {run.name: figures(run, objective, each_job=places is not None) for run in one.trial.runs}
        place = () if places is None else (units.UNKNOWN if places[n] is None else str(places[n]),)
        first = (str(one.n), commit.short, commit.committed_at[:10], view.terms.word(one.verdict))
        last = (*(texts.get(name, units.UNKNOWN) for name in names), commit.subject)
        rows.append(Row((*place, *first, *last), why, verdict_role(one.verdict, view.direction)))
    columns = (
        *([] if places is None else [Column("place", figures=True)]),
        Column("n", figures=True),
        Column("commit"),
        Column("date"),
        Column("verdict", verdict=True),
        *(Column(title, figures=True) for title in run_titles(trials, objective)),
        Column("subject", movable=places is None),
    )
    return Table(columns, tuple(rows), remark_title="why")


def _whys(trials: Sequence[TrialView], terms: SideWords, *, brief: bool) -> Iterator[str]:
    """The remark of each row: the host, the change to an end, the reason of the verdict or why nothing was measured."""
    several_compilers = len({one.trial.kernel.toolchain for one in trials if one.trial.kernel is not None}) > 1
    several_hosts = len({host_of(one.trial) for one in trials if one.trial.origin is None}) > 1
    for view in trials:
        trial, kernel, origin = view.trial, view.trial.kernel, view.trial.origin
        why = "" if brief and view.verdict in (Verdict.OLD, Verdict.NEW) else view.why
        if trial.same_kernel_as is not None:
            why = f"{trial.sameness}, not {'built and not ' if trial.same_sources else ''}measured again"
        elif view.verdict is Verdict.SKIP and not brief:
            why = f"skipped: {why}"
        said = (
            f"on {host_of(trial)}" if several_hosts else "",
            view.changed,
            why,
            f"{terms.word(origin.verdict)} according to those who measured it"
            if origin is not None and origin.verdict not in (None, view.verdict)
            else "",
            f"built by {kernel.toolchain}" if several_compilers and kernel is not None else "",
        )
        yield "; ".join(filter(None, said))


def run_blocks(view: BisectionView, *, logs: bool = False, times: bool = False) -> Iterator[Block]:
    """The trials of a run and, on request, the logs of faults and the times."""
    if not view.trials:
        yield Paragraph("No trial has ended yet.", Role.DIM)
        return
    yield verdict_table(view, view.trials)
    # For each commit whose last trial ended in a fault, a few log lines.
    last = {one.trial.commit.sha: one.n for one in view.trials} if logs else {}
    for one in view.trials:
        commit, fault = one.trial.commit, one.trial.fault
        if fault is not None and fault.tail and last.get(commit.sha) == one.n:
            role = verdict_role(one.verdict, view.direction)
            yield Paragraph(f"trial {one.n}, {commit.short}: {fault.kind} ({fault.stage})", role)
            # A compiler explains an error after it, a console leads up to it.
            explains = fault.stage in (Stage.CONFIG, Stage.BUILD)
            yield Listing(fault.tail[:_TAIL_LINES] if explains else fault.tail[-_TAIL_LINES:])
    # Imported trials have only the seconds of the workload.
    here = [one for one in view.trials if one.trial.origin is None]
    if times and here:
        yield _time_table(here)


def _time_table(trials: Sequence[TrialView]) -> Table:
    """The seconds of each trial; "bisector" is what is neither make, guest boot, storage nor a run."""
    timings = [one.trial.timings for one in trials]
    parts = [(one.build_s, one.boot_s, one.storage_s, one.workload_s, one.ours_s, one.total_s) for one in timings]
    rows = [
        # A stage that took no time at all was not reached.
        Row((str(one.n), one.trial.commit.short, *(units.seconds(s) if s else units.UNKNOWN for s in took)))
        for one, took in zip(trials, parts, strict=True)
    ]
    sums = (units.seconds(math.fsum(column)) for column in zip(*parts, strict=True))
    columns = (Column("n", figures=True), Column("seconds"), *(Column(title, figures=True) for title in _TIMES))
    return Table(columns, (*rows, Row(("", "all", *sums), role=Role.STRONG)))
