"""The illustrations of a report: which plots a run has, and what is behind each row of its page.

Made from the report and the files beside the record.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from bisector.core.errors import UserError
from bisector.core.metric import of_steady_part
from bisector.core.objective import Objective
from bisector.core.printable import clean
from bisector.core.subject import Commit
from bisector.core.trial import Trial
from bisector.core.verdict import Terms, Verdict
from bisector.host.files import inside
from bisector.kernel import kconfig
from bisector.report import curves, reporting, sections, templates
from bisector.report.blocks import Role, verdict_role
from bisector.report.curves import CurvePlot, TracedKernel, traced
from bisector.report.document import PlacedTrial, Report
from bisector.report.drawing import Plot, following
from bisector.report.search_plots import commits
from bisector.report.templates import Detail
from bisector.status.conclusion import CONFIG_ARTIFACT
from bisector.status.view import OptionChange, TrialView
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from bisector.workload.fio.logs import logged_metric

_ALT = "Plot: {}. The table has its figures."
_CONSOLE = "console.log"
_CONSOLE_LINES = 40
_CONSOLE_BYTES = 16_384  # they hold forty lines of a console


class PlotKind(StrEnum):
    """What can be plotted; each is the name of a file, too."""

    CURVES = "curves"
    COMMITS = "commits"


@dataclass(frozen=True, slots=True)
class PlotSource:
    """What plots are made from.

    ``trials`` are the numbers of those to compare, none of them means before and after.
    """

    report: Report
    run_dir: Path
    trials: tuple[int, ...] = ()


def source(run: RunDirectory, store: Store, trials: tuple[int, ...] = (), by: Objective | None = None) -> PlotSource:
    """All there is to plot of a run."""
    return PlotSource(reporting.report(run, store, by), run.path, trials)


@dataclass(frozen=True, slots=True)
class Plotted:
    """A plot, None where there is nothing to draw, and a sentence for each file that could not be used."""

    plot: Plot | None
    complaints: tuple[str, ...] = ()


def curves_of(shown: Sequence[TrialView], source: PlotSource) -> tuple[CurvePlot | None, tuple[str, ...]]:
    """The curves of one trial, or of several beside each other, and what was wrong with their logs."""
    view = source.report.bisection
    logged = _logged(shown, view.objective)
    found = [traced(one.trial, source.run_dir, logged.io_direction) for one in shown]
    kernels = [
        TracedKernel(_name(one, view.terms), of.runs, verdict_role(one.verdict, view.direction))
        for one, of in zip(shown, found, strict=True)
    ]
    drawn = logged, replace(logged, metric=of_steady_part(logged.metric) or logged.metric)
    line = view.threshold if view.objective in drawn else None
    decides = "" if logged.metric == view.objective.metric else f" (logged by fio; {view.objective.metric} decides)"
    title = f"{logged.definition.unit} over time{decides}, {' and '.join(kernel.name for kernel in kernels)}"
    made = curves.curves(title, kernels, logged, line, view.baselines)
    return made, tuple(complaint for of in found for complaint in of.complaints)


def _logged(shown: Sequence[TrialView], objective: Objective) -> Objective:
    """What the curves are of: what fio logs, in the direction that decides or else of the first run."""
    runs = (run for one in shown for run in one.trial.runs)
    direction = objective.io_direction or next((run.direction for run in runs), "") or Objective().io_direction
    return Objective(logged_metric(direction), objective.over)


def _compared(source: PlotSource) -> Plotted:
    return Plotted(*curves_of(_asked(source) if source.trials else _both_sides(source.report), source))


def _commits(source: PlotSource) -> Plotted:
    return Plotted(commits(source.report))


_MAKERS: Mapping[PlotKind, Callable[[PlotSource], Plotted]] = {
    PlotKind.CURVES: _compared,
    PlotKind.COMMITS: _commits,
}


def plotted(kind: PlotKind, source: PlotSource) -> Plotted:
    """One plot of a run. Raises :class:`UserError` for a trial that there is not."""
    return _MAKERS[kind](source)


def page(source: PlotSource) -> str:
    """The report as HTML."""
    plots = [plotted(kind, source).plot for kind in PlotKind]
    pictures = [templates.ShownPicture(following(plot), _ALT.format(plot.title)) for plot in plots if plot is not None]
    report = source.report
    found = report.bisection.first_fixed is not None
    role = verdict_role(Verdict.NEW, report.bisection.direction) if found else Role.PLAIN
    behind = {str(one.n): one for one in details(source)}
    return templates.html(sections.page(report), pictures, behind, role, report.answer)


def details(source: PlotSource) -> tuple[Detail, ...]:
    """One for each row of the report, in their order; a .config is compared with the one before it in history."""
    configs = _Configs(source.run_dir)
    return tuple(_details(source, configs))


def _asked(source: PlotSource) -> list[TrialView]:
    by_n = {shown.n: shown for shown in source.report.bisection.trials}
    for n in source.trials:
        if n not in by_n:
            raise UserError(
                f"there is no trial {n}", f"the trials are 1 to {max(by_n)}: bisector table" if by_n else ""
            )
    return [by_n[n] for n in source.trials]


def _both_sides(report: Report) -> list[TrialView]:
    """The last trial before and after the change that counts; while there is no answer those of the two ends.

    Where neither end is measured, as of figures that were imported, all trials.
    """
    view, compared = report.bisection, report.before_after
    if compared is not None:
        trials = [compared.before.trials[-1], compared.after.trials[-1]]
        return [shown for trial in trials for shown in view.trials if shown.trial is trial]
    last = {shown.trial.commit.sha: shown for shown in view.trials if shown.trial.runs}
    of_ends = [last[end.sha] for end in (view.old, view.new) if end.sha in last]
    return of_ends or list(last.values())


def _name(shown: TrialView, terms: Terms) -> str:
    return f"{clean(shown.trial.commit.short)} ({clean(terms.word(shown.verdict))})"


def _details(source: PlotSource, configs: "_Configs") -> Iterator[Detail]:
    before: tuple[Commit, kconfig.Options] | None = None
    for row in source.report.rows:
        trial = row.shown.trial
        # What is in no history has nothing before it there.
        options = configs.of(trial) if trial.subject.is_commit else None
        compared = before if options is not None else None
        yield Detail(
            n=row.shown.n,
            plain=_is_plain(row),
            fault=trial.fault.tail if trial.fault is not None else (),
            console=_console(source.run_dir, trial),
            against=compared[0] if compared else None,
            options=_changes(compared[1], options) if compared and options is not None else (),
        )
        before = (trial.commit, options) if options is not None else before


def _is_plain(row: PlacedTrial) -> bool:
    """Whether its figures say all: a whole run of a commit, on one side."""
    trial = row.shown.trial
    whole = trial.stopped_early is None and trial.same_kernel_as is None and trial.subject.is_commit
    return whole and row.shown.verdict in (Verdict.OLD, Verdict.NEW) and trial.origin is None


def _changes(before: kconfig.Options, after: kconfig.Options) -> tuple[OptionChange, ...]:
    if before is after:
        return ()
    return tuple(OptionChange(*one) for one in kconfig.differences(before, after))


class _Configs:
    """The effective configurations of trials; equal files, which most are, are read once and give one object."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._known: dict[str, kconfig.Options | None] = {}

    def of(self, trial: Trial) -> kconfig.Options | None:
        """None when it was not kept, or is gone."""
        for artifact in trial.artifacts:
            if artifact.name == CONFIG_ARTIFACT:
                if artifact.sha256 not in self._known:
                    self._known[artifact.sha256] = self._read(artifact.path)
                return self._known[artifact.sha256]
        return None

    def _read(self, path: str) -> kconfig.Options | None:
        try:
            return kconfig.parse(inside(self.run_dir, path).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return None


def _console(run_dir: Path, trial: Trial) -> tuple[str, ...]:
    """The last lines; nothing where no guest was started."""
    for artifact in trial.artifacts:
        if artifact.name == _CONSOLE:
            return _tail(run_dir, artifact.path)
    return ()


def _tail(run_dir: Path, path: str) -> tuple[str, ...]:
    try:
        with inside(run_dir, path).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _CONSOLE_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ()
    return tuple(line.rstrip() for line in text.split("\n") if line.strip())[-_CONSOLE_LINES:]
