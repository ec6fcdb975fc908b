"""The verdict table, a row for each trial: as lines of a given width, and as a block of a report.

The same lines serve a terminal (with colours), a mail and a file: columns stand by spaces alone,
with no box art that a mail program could break.
"""

import math
from collections.abc import Iterator, Sequence

from bisector.analysis.verdicts import host_of
from bisector.core import units
from bisector.core.objective import Objective
from bisector.core.printable import clean
from bisector.core.trial import Fault, Stage, Trial
from bisector.core.verdict import Direction, Terms, Verdict
from bisector.report.document import Column, PlacedTrial, Report, Table
from bisector.report.figures import USUAL, RunFigures, figures, run_names, run_titles
from bisector.report.terminal import GAP, Line, Role, Span, cells, columns, shorten, verdict_role, wrapped
from bisector.status.view import BisectionView, TrialView

_TAIL_LINES = 6
_WHY_LINES = 2
_COMMIT_WIDTH = 12
_DATE_WIDTH = 10
_TERM_WIDTH = 12
_SUBJECT_MIN_WIDTH = 34
_TIME_TITLES = ("build", "boot", "storage", "runs", "bisector", "total")


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
    if not trials:
        return [(Span("No trial has ended yet.", Role.DIM),)]
    table = _widest(trials, terms, width, objective, direction)
    beside = width - max(map(_width, table)) - len(GAP)
    indent = " " * cells(table[0][0].text)
    room = width - len(indent)
    subjects = [clean(view.trial.commit.subject) for view in trials]
    if beside >= _SUBJECT_MIN_WIDTH:
        cut = ["subject", *(shorten(subject, beside) for subject in subjects)]
        table = [(*line, Span(GAP + text, line[0].role)) for line, text in zip(table, cut, strict=True)]
    lines, whys = table[:1], _whys(trials, terms)
    for line, view, subject, why in zip(table[1:], trials, subjects, whys, strict=True):
        lines.append(line)
        lines += [] if beside >= _SUBJECT_MIN_WIDTH else [(Span(indent + shorten(subject, room)),)]
        role = verdict_role(view.verdict, direction)
        lines += [(Span(indent + text, role),) for text in _paragraph(why, room)]
    return lines


def _widest(
    trials: Sequence[TrialView], terms: Terms, width: int, objective: Objective, direction: Direction | None
) -> list[Line]:
    """The columns without the subject: of the ways to show them the first one that fits, else the last one."""
    found = [[_figures_of(view.trial, name, objective) for view in trials] for name in run_names(trials)]
    texts = [_aligned(column) for column in found]
    titles = run_titles(trials, objective)
    roles = [*(Role.DIM for _ in texts[1:]), Role.PLAIN]
    of_runs, of_runs_short = (
        [[Span(title, Role.HEAD), *(Span(text, role) for text in column)]
         for title, column, role in zip(shown, texts, roles, strict=False)]
        for shown in ([one.full for one in titles], [one.short for one in titles])
    )  # fmt: skip
    runs = [of_runs, *(of_runs_short[n:] for n in range(max(1, len(texts))))]
    first = [
        _column("n", (str(view.n) for view in trials)),
        _column("commit", (clean(view.trial.commit.short).ljust(_COMMIT_WIDTH) for view in trials), Role.STRONG),
    ]
    date = _column("date", (clean(view.trial.commit.committed_at[:_DATE_WIDTH]) for view in trials), Role.DIM)
    verdicts = [Span("verdict", Role.HEAD)]
    verdicts += [
        Span(shorten(terms.word(one.verdict), _TERM_WIDTH), verdict_role(one.verdict, direction)) for one in trials
    ]
    made: list[Line] = []
    for shown in runs:
        for dates in ([date], []):
            matrix = [*first, *dates, verdicts, *shown]
            made = columns(list(zip(*matrix, strict=True)), figures={0, *range(len(matrix) - len(shown), len(matrix))})
            if max(map(_width, made)) <= width:
                return made
    return made


def _column(title: str, texts: Iterator[str], role: Role = Role.PLAIN) -> list[Span]:
    return [Span(title.rjust(2), Role.HEAD), *(Span(text, role) for text in texts)]


def _width(line: Line) -> int:
    return sum(cells(span.text) for span in line)


def _figures_of(trial: Trial, name: str, objective: Objective) -> RunFigures | None:
    """The figures of the last run of a name; None where it did not run."""
    return next((figures(run, objective) for run in reversed(trial.runs) if run.name == name), None)


def _aligned(column: Sequence[RunFigures | None]) -> list[str]:
    """The worst and the best of each run, each below those of the others."""
    worst = max((len(one.worst_text) for one in column if one), default=1)
    best = max((len(one.best_text) for one in column if one), default=0)

    def text(one: RunFigures) -> str:
        rest = one.best_text
        return one.worst_text.rjust(worst) + (rest[:3] + rest[3:].rjust(best - 3) if rest else " " * best)

    return [units.UNKNOWN if one is None else text(one) for one in column]


def _whys(trials: Sequence[TrialView], terms: Terms) -> Iterator[str]:
    """What a reader asks about a row whose figures do not speak for themselves."""
    several_compilers = len({one.trial.kernel.toolchain for one in trials if one.trial.kernel is not None}) > 1
    several_hosts = len({host_of(one.trial) for one in trials if one.trial.origin is None}) > 1
    for view in trials:
        trial, kernel = view.trial, view.trial.kernel
        why = "" if view.verdict in {Verdict.OLD, Verdict.NEW} else view.why
        said = (
            f"on {host_of(trial)}" if several_hosts else "",
            view.changed,
            _not_measured(trial) if trial.same_kernel_as is not None else why,
            _said_by_others(view, terms),
            f"built by {kernel.toolchain}" if several_compilers and kernel is not None else "",
        )
        yield clean("; ".join(filter(None, said)))


def _not_measured(trial: Trial) -> str:
    return f"{trial.sameness}, not {'built and not ' if trial.same_sources else ''}measured again"


def _said_by_others(view: TrialView, terms: Terms) -> str:
    """What the people who measured an imported trial said of it, where that is something else."""
    origin = view.trial.origin
    if origin is None or origin.verdict in (None, view.verdict):
        return ""
    return f"{terms.word(origin.verdict)} according to those who measured it"


def _paragraph(text: str, width: int) -> list[str]:
    """A sentence on two lines at most; the rest of it is in the logs below or in the record."""
    lines = wrapped(text.split(), width)
    return [*lines[: _WHY_LINES - 1], shorten(" ".join(lines[_WHY_LINES - 1 :]), width)] if lines[1:] else lines


def time_lines(trials: Sequence[TrialView]) -> list[Line]:
    """Where each trial's seconds went; "bisector" is what is neither make, guest boot, storage nor a run.

    Of what others measured only the seconds of the workload are known.
    """
    table = [(view, _times_s(view)) for view in trials if view.trial.origin is None]
    if not table:
        return []
    sums = [math.fsum(column) for column in zip(*(times for _, times in table), strict=True)]
    rows = [
        [Span(text.rjust(2), Role.HEAD) for text in ("n", "seconds".ljust(_COMMIT_WIDTH), *_TIME_TITLES)],
        *([Span(text, Role.DIM) for text in (str(one.n), one.trial.commit.short, *map(_seconds, times))]
          for one, times in table),
        [Span(text) for text in ("", "all", *map(units.seconds, sums))],
    ]  # fmt: skip
    return columns(rows, figures={0, *range(2, 2 + len(sums))})


def _times_s(view: TrialView) -> tuple[float, ...]:
    took = view.trial.timings
    return took.build_s, took.boot_s, took.storage_s, took.workload_s, took.ours_s, took.total_s


def _seconds(figure: float) -> str:
    """A part that took no time at all was not reached."""
    return units.seconds(figure) if figure else units.UNKNOWN


def _fault_lines(trials: Sequence[TrialView], width: int, direction: Direction | None) -> list[Line]:
    """The log lines that matter of every kernel that could not be judged, a few each, of its last trial."""
    lines: list[Line] = []
    last = {view.trial.commit.sha: view.n for view in trials}
    for view in trials:
        commit, fault = view.trial.commit, view.trial.fault
        if fault is None or not fault.tail or last[commit.sha] != view.n:
            continue
        head = f"{view.n:>2}{GAP}{clean(commit.short)}{GAP}{fault.kind} ({fault.stage})"
        lines.append((Span(shorten(head, width), verdict_role(view.verdict, direction)),))
        lines += [(Span(f"    {shorten(text, width - 4)}", Role.DIM),) for text in _tail(fault)]
    return lines


def _tail(fault: Fault) -> tuple[str, ...]:
    """A compiler explains itself after the error, a console leads up to it."""
    return fault.tail[:_TAIL_LINES] if fault.stage in (Stage.CONFIG, Stage.BUILD) else fault.tail[-_TAIL_LINES:]


def report_lines(
    view: BisectionView, footer: Sequence[Line], width: int, *, logs: bool = False, times: bool = False
) -> list[Line]:
    """Verdicts and the footer given; between them what is asked for: logs of the skipped, where the time went."""
    blocks = (
        verdict_lines(view.trials, view.terms, width, view.objective, view.direction),
        _fault_lines(view.trials, width, view.direction) if logs else (),
        time_lines(view.trials) if times else (),
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
