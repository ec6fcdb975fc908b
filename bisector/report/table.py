"""The verdict table, a row for each trial: as lines of a given width, and as a block of a report.

The same lines serve a terminal (with colours), a mail and a file: columns stand by spaces alone,
with no box art that a mail program could break.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bisector.analysis.verdicts import host_of
from bisector.core import units
from bisector.core.objective import Objective
from bisector.core.printable import clean
from bisector.core.trial import Fault, Stage, Trial
from bisector.core.verdict import Direction, Terms, Verdict
from bisector.report.document import Column, PlacedTrial, Report, Table
from bisector.report.figures import USUAL, Figures, Title, figures, run_names, run_titles
from bisector.report.terminal import Line, Role, Span, cells, left, right, shorten, verdict_role, wrapped
from bisector.status.view import BisectionView, TrialView

_GAP = "  "
_TAIL_LINES = 6
_WHY_LINES = 2
_COMMIT_WIDTH = 12
_DATE_WIDTH = 10
_TERM_WIDTH = 12
_SUBJECT_MIN_WIDTH = 34
_TIME_TITLES = ("build", "boot", "storage", "runs", "bisector", "total")


@dataclass(frozen=True, slots=True)
class TableRow:
    """One trial as the table shows it; ``figures`` go with :func:`run_names`, None where not run."""

    n: int
    commit: str
    date: str
    subject: str
    verdict: str
    role: Role
    figures: tuple[Figures | None, ...]
    why: str
    tail: tuple[str, ...]
    times_s: tuple[float, ...]


def rows(
    trials: Sequence[TrialView], terms: Terms, objective: Objective = USUAL, direction: Direction | None = None
) -> tuple[TableRow, ...]:
    """The trials as rows, in the order given."""
    names = run_names(trials)
    toolchains = {view.trial.kernel.toolchain for view in trials if view.trial.kernel is not None}
    hosts = {host_of(view.trial) for view in trials if view.trial.origin is None}
    return tuple(
        _row(
            view,
            names,
            terms,
            objective,
            verdict_role(view.verdict, direction),
            several_compilers=len(toolchains) > 1,
            several_hosts=len(hosts) > 1,
        )
        for view in trials
    )


def _row(
    view: TrialView,
    names: tuple[str, ...],
    terms: Terms,
    objective: Objective,
    role: Role,
    *,
    several_compilers: bool,
    several_hosts: bool,
) -> TableRow:
    trial = view.trial
    by_name = {run.name: figures(run, objective) for run in trial.runs}
    timings = trial.timings
    return TableRow(
        n=view.n,
        commit=clean(trial.commit.short),
        date=clean(trial.commit.committed_at[:_DATE_WIDTH]),
        subject=clean(trial.commit.subject),
        verdict=shorten(terms.word(view.verdict), _TERM_WIDTH),
        role=role,
        figures=tuple(by_name.get(name) for name in names),
        why=clean(
            "; ".join(
                filter(
                    None,
                    (
                        f"on {host_of(trial)}" if several_hosts else "",
                        _why(view),
                        _said_by_others(view, terms),
                        _built_by(view) if several_compilers else "",
                    ),
                )
            )
        ),
        tail=_tail(trial.fault) if trial.fault else (),
        times_s=(
            timings.build_s,
            timings.boot_s,
            timings.storage_s,
            timings.workload_s,
            timings.ours_s,
            timings.total_s,
        ),
    )


def _tail(fault: Fault) -> tuple[str, ...]:
    """A compiler explains itself after the error, a console leads up to it."""
    lines = fault.tail[:_TAIL_LINES] if fault.stage in (Stage.CONFIG, Stage.BUILD) else fault.tail[-_TAIL_LINES:]
    return tuple(clean(line) for line in lines)


def _why(view: TrialView) -> str:
    """What a reader asks about a row whose figures do not speak for themselves."""
    why = "" if view.verdict in {Verdict.OLD, Verdict.NEW} else view.why
    if view.trial.same_kernel_as is not None:
        why = _not_measured(view.trial)
    return "; ".join(filter(None, (clean(view.changed), why)))


def _not_measured(trial: Trial) -> str:
    return f"{trial.sameness}, not {'built and not ' if trial.same_sources else ''}measured again"


def _said_by_others(view: TrialView, terms: Terms) -> str:
    """What the people who measured an imported trial said of it, where that is something else."""
    origin = view.trial.origin
    if origin is None or origin.verdict in (None, view.verdict):
        return ""
    return f"{terms.word(origin.verdict)} according to those who measured it"


def _built_by(view: TrialView) -> str:
    return f"built by {view.trial.kernel.toolchain}" if view.trial.kernel is not None else ""


def _paragraph(text: str, width: int) -> list[str]:
    """A sentence on two lines at most; the rest of it is in the logs below or in the record."""
    lines = wrapped(text.split(), width)
    return [*lines[: _WHY_LINES - 1], shorten(" ".join(lines[_WHY_LINES - 1 :]), width)] if lines[1:] else lines


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which columns fit and how wide they are."""

    number: int
    verdict: int
    dated: bool
    shown_runs: tuple[int, ...]
    run_titles: tuple[str, ...]
    worst: tuple[int, ...]
    best: tuple[int, ...]
    subject: int  # 0: on a line of its own

    @property
    def indent(self) -> str:
        return " " * (self.number + len(_GAP))


def verdict_lines(
    trials: Sequence[TrialView],
    terms: Terms,
    width: int,
    objective: Objective = USUAL,
    direction: Direction | None = None,
) -> list[Line]:
    """The verdicts and the figures behind them, no line wider than ``width`` cells.

    Where the subject does not fit beside the figures it has a line of its own; where even the
    figures do not fit, the date goes first, then the earlier runs. The last run decides, so it stays.
    """
    table = rows(trials, terms, objective, direction)
    if not table:
        return [(Span("No trial has ended yet.", Role.DIM),)]
    layout = _layout(table, run_titles(trials, objective), width)
    lines = [_heading(layout)]
    for row in table:
        lines.append(_main_line(row, layout))
        room = width - len(layout.indent)
        if not layout.subject:
            lines.append((Span(layout.indent + shorten(row.subject, room)),))
        lines += [(Span(layout.indent + text, row.role),) for text in _paragraph(row.why, room)]
    return lines


def _layout(table: Sequence[TableRow], headings: Sequence[Title], width: int) -> _Layout:
    number = max(2, *(len(str(row.n)) for row in table))
    verdict = max(len("verdict"), *(cells(row.verdict) for row in table))
    columns = [[row.figures[index] for row in table] for index in range(len(headings))]
    worst = tuple(max((len(f.worst_text) for f in column if f), default=1) for column in columns)
    best = tuple(max((len(f.best_text) for f in column if f), default=0) for column in columns)
    figures_widths = [a + b for a, b in zip(worst, best, strict=True)]
    fixed = number + len(_GAP) + _COMMIT_WIDTH + len(_GAP) + verdict
    titles = tuple(heading.full for heading in headings)
    if fixed + sum(len(_GAP) + max(pair) for pair in zip(figures_widths, map(cells, titles), strict=True)) > width:
        titles = tuple(heading.short for heading in headings)
    run_widths = [max(pair) for pair in zip(figures_widths, map(cells, titles), strict=True)]
    shown = tuple(range(len(headings)))
    while len(shown) > 1 and fixed + sum(len(_GAP) + run_widths[index] for index in shown) > width:
        shown = shown[1:]
    used = fixed + sum(len(_GAP) + run_widths[index] for index in shown)
    dated = used + len(_GAP) + _DATE_WIDTH <= width
    used += (len(_GAP) + _DATE_WIDTH) if dated else 0
    beside = width - used - len(_GAP)
    subject = beside if beside >= _SUBJECT_MIN_WIDTH else 0
    return _Layout(number, verdict, dated, shown, titles, worst, best, subject)


def _heading(layout: _Layout) -> Line:
    titles = [right("n", layout.number), left("commit", _COMMIT_WIDTH)]
    titles += [left("date", _DATE_WIDTH)] if layout.dated else []
    titles += [left("verdict", layout.verdict)]
    titles += [right(layout.run_titles[index], _run_width(layout, index)) for index in layout.shown_runs]
    titles += ["subject"] if layout.subject else []
    return (Span(_GAP.join(titles), Role.HEAD),)


def _run_width(layout: _Layout, index: int) -> int:
    return max(layout.worst[index] + layout.best[index], len(layout.run_titles[index]))


def _main_line(row: TableRow, layout: _Layout) -> Line:
    spans = [Span(right(str(row.n), layout.number) + _GAP), Span(left(row.commit, _COMMIT_WIDTH) + _GAP, Role.STRONG)]
    if layout.dated:
        spans.append(Span(left(row.date, _DATE_WIDTH) + _GAP, Role.DIM))
    spans.append(Span(left(row.verdict, layout.verdict), row.role))
    for index in layout.shown_runs:
        decides = index == layout.shown_runs[-1]
        spans.append(Span(_GAP + _figures_cell(row.figures[index], layout, index), Role.PLAIN if decides else Role.DIM))
    if layout.subject:
        spans.append(Span(_GAP + shorten(row.subject, layout.subject)))
    return tuple(spans)


def _figures_cell(run: Figures | None, layout: _Layout, index: int) -> str:
    width = _run_width(layout, index)
    if run is None:
        return right(units.UNKNOWN, width)
    return right(run.worst_text.rjust(layout.worst[index]) + _aligned_best(run, layout.best[index]), width)


def _aligned_best(run: Figures, width: int) -> str:
    best = run.best_text
    return best[:3] + best[3:].rjust(width - 3) if best else " " * width


def time_lines(trials: Sequence[TrialView], terms: Terms, objective: Objective = USUAL) -> list[Line]:
    """Where each trial's seconds went; "bisector" is what is neither make, guest boot, storage nor a run.

    Of what others measured only fio's seconds are known.
    """
    table = rows([view for view in trials if view.trial.origin is None], terms, objective)
    if not table:
        return []
    sums = tuple(math.fsum(row.times_s[index] for row in table) for index in range(len(_TIME_TITLES)))
    widths = [max(len(title), len(units.seconds(total))) for title, total in zip(_TIME_TITLES, sums, strict=True)]
    number = max(2, *(len(str(row.n)) for row in table))

    def line(n: str, commit: str, figures: Sequence[str]) -> str:
        cells_ = [right(figure, width) for figure, width in zip(figures, widths, strict=True)]
        return _GAP.join([right(n, number), left(commit, _COMMIT_WIDTH), *cells_])

    lines: list[Line] = [(Span(line("n", "seconds", _TIME_TITLES), Role.HEAD),)]
    lines += [
        (Span(line(str(row.n), row.commit, [_seconds(figure) for figure in row.times_s]), Role.DIM),) for row in table
    ]
    lines.append((Span(line("", "all", [units.seconds(figure) for figure in sums])),))
    return lines


def _seconds(figure: float) -> str:
    return units.seconds(figure) if figure else units.UNKNOWN


def _fault_lines(trials: Sequence[TrialView], terms: Terms, objective: Objective, width: int) -> list[Line]:
    """The log lines that matter of every kernel that could not be judged, a few each, of its last trial."""
    lines: list[Line] = []
    last = {view.trial.commit.sha: view.n for view in trials}
    for row, view in zip(rows(trials, terms, objective), trials, strict=True):
        fault = view.trial.fault
        if fault is None or not row.tail or last[view.trial.commit.sha] != view.n:
            continue
        head = f"{row.n:>2}{_GAP}{row.commit}{_GAP}{fault.kind} ({fault.stage})"
        lines.append((Span(shorten(head, width), row.role),))
        lines += [(Span(f"    {shorten(text, width - 4)}", Role.DIM),) for text in row.tail]
    return lines


def report_lines(
    view: BisectionView, footer: Sequence[Line], width: int, *, logs: bool = False, times: bool = False
) -> list[Line]:
    """Verdicts and the footer given; between them what is asked for: logs of the skipped, where the time went."""
    blocks = (
        verdict_lines(view.trials, view.terms, width, view.objective, view.direction),
        _fault_lines(view.trials, view.terms, view.objective, width) if logs else (),
        time_lines(view.trials, view.terms, view.objective) if times else (),
        footer,
    )
    lines: list[Line] = []
    for block in blocks:
        if block:
            lines += [*([()] if lines else []), *block]
    return lines


def trial_table(report: Report) -> Table:
    """All trials in the order of history, the figures of several jobs of a run beside each other, the worst first."""
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


def _cells(row: PlacedTrial, names: Sequence[str], report: Report) -> tuple[str, ...]:
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


def _remark(row: PlacedTrial, terms: Terms) -> str:
    """The reason of the verdict; beside it, why nothing was measured."""
    shown = row.shown
    if shown.trial.same_kernel_as is not None:
        return _not_measured(shown.trial)
    prefix = "skipped: " if shown.verdict is Verdict.SKIP else ""
    return clean("; ".join(filter(None, (shown.changed, prefix + shown.why, _said_by_others(shown, terms)))))
