"""The verdict table of a report: a row per trial in history order, the figures of each run's jobs, slowest first."""

from collections.abc import Sequence

from bisector.core import units
from bisector.core.printable import clean
from bisector.core.verdict import Terms, Verdict
from bisector.report.blocks import Column, Table
from bisector.report.document import Report, Row
from bisector.report.figures import figures, run_names, run_titles
from bisector.report.table import said_by_others

_DATE_WIDTH = 10


def trial_table(report: Report) -> Table:
    """All trials, the figures of several jobs of a run beside each other."""
    shown = [row.shown for row in report.rows]
    names = run_names(shown)
    columns = (
        Column("place", figures=True),
        Column("n", figures=True),
        Column("commit"),
        Column("date"),
        Column("verdict"),
        *(Column(title.full, figures=True) for title in run_titles(shown, report.bisection.objective)),
        Column("subject"),
    )
    return Table(
        columns,
        tuple(_cells(row, names, report) for row in report.rows),
        tuple(_remark(row, report.bisection.terms) for row in report.rows),
        remark_title="why",
    )


def _cells(row: Row, names: Sequence[str], report: Report) -> tuple[str, ...]:
    commit = row.shown.trial.commit
    by_metric = {run.name: figures(run, report.bisection.objective) for run in row.shown.trial.runs}
    by_name = {name: found.all_text for name, found in by_metric.items() if found is not None}
    return (
        units.UNKNOWN if row.place is None else str(row.place),
        str(row.shown.n),
        clean(commit.short),
        clean(commit.committed_at[:_DATE_WIDTH]),
        report.bisection.terms.word(row.shown.verdict),
        *(by_name.get(name, units.UNKNOWN) for name in names),
        clean(commit.subject),
    )


def _remark(row: Row, terms: Terms) -> str:
    """The reason of the verdict; beside it, why nothing was measured."""
    shown = row.shown
    if shown.trial.same_kernel_as is not None:
        return f"{shown.trial.sameness}, not {'built and not ' if shown.trial.same_sources else ''}measured again"
    prefix = "skipped: " if shown.verdict is Verdict.SKIP else ""
    return clean("; ".join(filter(None, (shown.changed, prefix + shown.why, said_by_others(shown, terms)))))
