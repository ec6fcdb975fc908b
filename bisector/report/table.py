"""The verdict table of a bisection, with a row for each trial, and beside it the logs of faults and the times."""

import math
from collections.abc import Iterator, Sequence

from bisector.analysis.verdicts import host_of
from bisector.core import units
from bisector.core.trial import Stage
from bisector.core.verdict import SideWords, Verdict
from bisector.report.blocks import Block, Column, Listing, Paragraph, Role, Row, Table, verdict_role
from bisector.report.figures import figures, run_names, run_titles
from bisector.status.view import BisectionView, TrialView

_TAIL_LINES = 6
_TIMES = ("build", "boot", "storage", "runs", "bisector", "total")


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
        found = {run.name: figures(run, objective) for run in one.trial.runs}
        texts = {name: of.range_text if places is None else of.all_text for name, of in found.items() if of}
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
