"""The illustrations of a report: which plots a run has, and what is behind each row of its page.

Made from the report and the files beside the record.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from bisector.core.errors import UserError
from bisector.core.metric import of_steady_part
from bisector.core.objective import Objective
from bisector.core.printable import clean
from bisector.core.subject import Commit
from bisector.core.trial import Trial
from bisector.core.verdict import Verdict
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
        TracedKernel(
            clean(f"{one.trial.commit.short} ({view.terms.word(one.verdict)})"),
            of.runs,
            verdict_role(one.verdict, view.direction),
        )
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


def plotted(kind: PlotKind, source: PlotSource) -> Plotted:
    """One plot of a run. Raises :class:`UserError` for a trial that there is not."""
    if kind is PlotKind.COMMITS:
        return Plotted(commits(source.report))
    return Plotted(*curves_of(_asked(source) if source.trials else _both_sides(source.report), source))


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
    configs, found = _Configs(source.run_dir), []
    before: tuple[Commit, kconfig.Options] | None = None
    for row in source.report.rows:
        trial = row.shown.trial
        # What is in no history has nothing before it there.
        options = configs.of(trial) if trial.subject.is_commit else None
        against: Commit | None = None
        changes: tuple[OptionChange, ...] = ()
        if before is not None and options is not None:
            against, earlier = before
            if earlier is not options:
                changes = tuple(OptionChange(*one) for one in kconfig.differences(earlier, options))
        fault = trial.fault.tail if trial.fault is not None else ()
        found.append(Detail(row.n, _is_plain(row), fault, _console(source.run_dir, trial), against, changes))
        before = (trial.commit, options) if options is not None else before
    return tuple(found)


def _is_plain(row: PlacedTrial) -> bool:
    """Whether its figures say all: a whole run of a commit, on one side."""
    trial = row.shown.trial
    whole = trial.stopped_early is None and trial.same_kernel_as is None and trial.subject.is_commit
    return whole and row.verdict in (Verdict.OLD, Verdict.NEW) and trial.origin is None


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


class _Configs:
    """The effective configurations of trials; equal files, which most are, are read once and give one object."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._known: dict[str, kconfig.Options | None] = {}

    def of(self, trial: Trial) -> kconfig.Options | None:
        """None when it was not kept, or is gone."""
        artifact = next((one for one in trial.artifacts if one.name == CONFIG_ARTIFACT), None)
        if artifact is None:
            return None
        if artifact.sha256 not in self._known:
            self._known[artifact.sha256] = None
            with suppress(OSError):
                text = inside(self.run_dir, artifact.path).read_text(encoding="utf-8", errors="replace")
                self._known[artifact.sha256] = kconfig.parse(text)
        return self._known[artifact.sha256]


def _console(run_dir: Path, trial: Trial) -> tuple[str, ...]:
    """The last lines; nothing where no guest was started, or of a file that is gone."""
    for artifact in trial.artifacts:
        if artifact.name == _CONSOLE:
            with suppress(OSError), inside(run_dir, artifact.path).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _CONSOLE_BYTES))
                lines = file.read().decode("utf-8", errors="replace").split("\n")
                return tuple(line.rstrip() for line in lines if line.strip())[-_CONSOLE_LINES:]
    return ()
