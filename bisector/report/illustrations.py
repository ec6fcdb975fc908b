"""The illustrations of a report: the plots of a run, and the details behind each row of its page.

They are made from the report and from files beside the record.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from bisector.core.errors import UserError
from bisector.core.printable import clean
from bisector.core.trial import Trial
from bisector.core.verdict import Verdict
from bisector.host.files import inside
from bisector.kernel import kconfig
from bisector.report import sections, templates
from bisector.report.blocks import Role, verdict_role
from bisector.report.curves import curves_of
from bisector.report.document import Report
from bisector.report.drawing import Plot, following
from bisector.report.search_plots import commits
from bisector.report.templates import Detail
from bisector.status.conclusion import CONFIG_ARTIFACT, effective_config
from bisector.status.view import OptionChange, TrialView

_ALT = "Plot: {}. The table has its figures."
_CONSOLE = "console.log"
_CONSOLE_LINES = 40
_CONSOLE_BYTES = 16_384  # enough for so many lines of a console


class PlotKind(StrEnum):
    """The kinds of plots; each is also the name of a file."""

    CURVES = "curves"
    COMMITS = "commits"


def plotted(
    kind: PlotKind, report: Report, run_dir: Path, trials: Sequence[int] = ()
) -> tuple[Plot | None, tuple[str, ...]]:
    """One plot of a run (None if there is nothing to draw), and a sentence for each file that could not be used.

    Curves show the trials with the numbers in ``trials``, or both sides of the change if there are none. Raises
    :class:`UserError` if there is no such trial.
    """
    if kind is PlotKind.COMMITS:
        return commits(report), ()
    view, by_n = report.bisection, {shown.n: shown for shown in report.bisection.trials}
    for n in trials:
        if n not in by_n:
            hint = f"the trials are 1 to {max(by_n)}: bisector table" if by_n else ""
            raise UserError(f"there is no trial {n}", hint)
    kernels = [
        (
            clean(f"{one.trial.commit.short} ({view.terms.word(one.verdict)})"),
            verdict_role(one.verdict, view.direction),
            one.trial,
        )
        for one in ([by_n[n] for n in trials] or _both_sides(report))
    ]
    about = f", {' and '.join(name for name, *_ in kernels)}"
    return curves_of(kernels, run_dir, view.objective, about, line=view.threshold, baselines=view.baselines)


def _both_sides(report: Report) -> list[TrialView]:
    """The last trial that counts on each side of the change, or at each end while there is no answer.

    If neither end was measured, as in some imports: all trials.
    """
    view, compared = report.bisection, report.before_after
    if compared is not None:
        trials = [compared.before.trials[-1], compared.after.trials[-1]]
        return [shown for trial in trials for shown in view.trials if shown.trial is trial]
    last = {shown.trial.commit.sha: shown for shown in view.trials if shown.trial.runs}
    of_ends = [last[end.sha] for end in (view.old, view.new) if end.sha in last]
    return of_ends or list(last.values())


def page(report: Report, run_dir: Path) -> str:
    """The report as one HTML file."""
    plots = [plotted(kind, report, run_dir)[0] for kind in PlotKind]
    pictures = [templates.ShownPicture(following(plot), _ALT.format(plot.title)) for plot in plots if plot is not None]
    found = report.bisection.first_fixed is not None
    role = verdict_role(Verdict.NEW, report.bisection.direction) if found else Role.PLAIN
    behind = {str(one.n): one for one in details(report, run_dir)}
    return templates.html(sections.page(report), pictures, behind, role, report.answer)


def details(report: Report, run_dir: Path) -> tuple[Detail, ...]:
    """The details of each row of the report, in order; a .config is compared with the one before it in history."""
    found, configs = [], dict[str, kconfig.Options | None]()
    before: tuple[Trial, kconfig.Options] | None = None
    for row in report.rows:
        trial = row.shown.trial
        options = None
        # A subject outside the history has no predecessor. Most files are equal, so each content is read once.
        if trial.subject.is_commit and (artifact := trial.artifact(CONFIG_ARTIFACT)) is not None:
            if artifact.sha256 not in configs:
                configs[artifact.sha256] = effective_config(run_dir, artifact)
            options = configs[artifact.sha256]
        against = before[0].commit if before is not None and options is not None else None
        changes: tuple[OptionChange, ...] = ()
        if before is not None and options is not None and options is not before[1]:
            changes = tuple(OptionChange(*one) for one in kconfig.differences(before[1], options))
        whole = trial.stopped_early is None and trial.same_kernel_as is None and trial.subject.is_commit
        plain = whole and row.verdict in (Verdict.OLD, Verdict.NEW) and trial.origin is None
        fault = trial.fault.tail if trial.fault is not None else ()
        found.append(Detail(row.n, plain, fault, _console(run_dir, trial), against, changes))
        before = (trial, options) if options is not None else before
    return tuple(found)


def _console(run_dir: Path, trial: Trial) -> tuple[str, ...]:
    """The last lines of the guest's console; none if no guest was started or the file is gone."""
    if (artifact := trial.artifact(_CONSOLE)) is not None:
        with suppress(OSError), inside(run_dir, artifact.path).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _CONSOLE_BYTES))
            lines = file.read().decode("utf-8", errors="replace").split("\n")
            return tuple(line.rstrip() for line in lines if line.strip())[-_CONSOLE_LINES:]
    return ()
