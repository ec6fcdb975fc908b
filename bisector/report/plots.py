"""The plots of a bisection: the rates of kernels over time, and the values of commits in the order of history.

The rates are of the metric that fio logs (:func:`bisector.workload.fio.logs.logged_metric`), from files beside the
record, whichever metric decides: no other is recorded over time.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bisector.analysis.judgement import judged_run
from bisector.core.figures import Run, run_words
from bisector.core.metric import of_steady_part
from bisector.core.objective import SUM, Objective
from bisector.core.printable import clean
from bisector.core.subject import Kind
from bisector.core.trial import Trial
from bisector.core.verdict import Verdict
from bisector.host.files import inside
from bisector.report.blocks import Role, verdict_role
from bisector.report.document import PlacedTrial, Report
from bisector.report.drawing import (
    BLACK,
    HATCHES,
    INKS,
    LOGARITHMIC_FROM,
    SIDES,
    Ink,
    axis_label,
    band,
    draw_marks,
    empty,
    finish,
    scale,
    threshold,
)
from bisector.report.table import by_setup
from bisector.store.rundir import artifacts_of_run
from bisector.workload.fio.logs import (
    Floats,
    LogUnreadable,
    Series,
    from_its_start,
    job_number,
    logged_metric,
    parse_log,
    resample,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


TOGETHER = "all jobs"
# The first is for all jobs together.
_DASHES = ("-.", "-", (0, (5, 2)), ":", (0, (1, 1)), (0, (8, 2, 1, 2)))
_PANEL_INCHES = 2.7
# More points would not change the look of a curve, but make the page larger.
_MOST_POINTS = 240
# The smooth curve is a Gaussian mean, whose deviation is a share of the whole curve, but at least so many points.
_SMOOTHED_SHARE = 1 / 40
_SMOOTHED_POINTS = 1.5
_DISK_HATCHES = ("\\\\\\", "|||")  # unlike those of levels
_MOST_NAMES = 70  # of commits that fit below an axis
_CHANGED = {Kind.REVERTED: "NEW, {} reverted", Kind.PICKED: "OLD, {} added"}


@dataclass(frozen=True, slots=True, eq=False)
class Logged:
    """A run with the rate logs of its jobs, in the order of the jobs; missing logs are left out."""

    run: Run
    logs: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class TracedKernel:
    """A kernel by its display name, with its runs and the role that it is drawn in."""

    name: str
    runs: tuple[Logged, ...]
    role: Role = Role.PLAIN


@dataclass(frozen=True, slots=True)
class CurvesPlot:
    """The runs of some kernels, a panel for each; of several kernels, jobs and sums have panels in separate rows.

    ``objective`` has the logged metric. The threshold ``line`` is drawn in the last run: for the sum if the sum
    decides, else for each job.
    """

    title: str
    kernels: tuple[TracedKernel, ...]
    objective: Objective = field(default_factory=Objective)
    line: float | None = None
    baselines: tuple[Trial, ...] = ()

    @property
    def runs(self) -> tuple[Logged, ...]:
        """The runs with logs that are not empty."""
        return tuple(one for kernel in self.kernels for one in kernel.runs if any(log.end_ms.size for log in one.logs))

    def figure(self) -> "Figure":
        """Draw all panels over one scale of time and one of values, with one legend."""
        names = tuple(dict.fromkeys(logged.run.name for logged in self.runs))
        step_ms = step_of_grid_ms(self.runs)
        rows: tuple[bool | None, ...] = (False, True) if len(self.kernels) > 1 else (None,)
        figure = empty(_PANEL_INCHES * len(rows) + 0.5)
        grid = figure.subplots(len(rows), len(names), squeeze=False, sharex=True, sharey=True)
        seen: list[float] = []
        for together, of_row in zip(rows, grid, strict=True):
            for name, axes in zip(names, of_row, strict=True):
                decides = name == names[-1] and bool(together) is (together is not None and self.objective.over == SUM)
                seen += self._draw(axes, name, step_ms, together, decides=decides)
            unit = f"{self.objective.io_direction} {self.objective.definition.unit}"
            of_row[0].set_ylabel(f"{unit} (points: means of {step_ms / 1000:g} s)")
        for axes in grid[-1]:
            axes.set_xlabel("time since the run began (s)")
        # If levels differ much, a linear scale would hide the lower one.
        logarithmic = bool(seen) and max(seen) >= LOGARITHMIC_FROM * min(seen)
        scale(grid[0][0], self.objective.definition.unit, logarithmic=logarithmic)
        grid[0][0].set_xlim(left=0)
        return finish(figure, self.title)

    def _draw(
        self, axes: "Axes", name: str, step_ms: float, together: bool | None, *, decides: bool
    ) -> Iterator[float]:
        """Draw a run's sums (``together``), each of its jobs, or both (None); yield the smoothed rates above 0."""
        disks = bands(self.baselines, self.objective, together=bool(together))
        for (disk, low, high), hatch in zip(disks, HATCHES, strict=False):
            band(axes, low, high, disk, hatch)
        several = len({kernel.role for kernel in self.kernels}) == len(self.kernels)
        inks = [SIDES[one.role] if several else INKS[n % len(INKS)] for n, one in enumerate(self.kernels)]
        of_name = [
            (kernel.name, ink, logged)
            for kernel, ink in zip(self.kernels, inks, strict=True)
            for logged in kernel.runs
            if logged.run.name == name and logged.logs
        ]
        for kernel, ink, logged in of_name:
            for n, (what, rates) in enumerate(on_grid(logged, self.objective, step_ms).items()):
                if together is None or together is (what == TOGETHER):
                    dashes = _DASHES[0 if what == TOGETHER else (n + 1) % len(_DASHES)]
                    yield from _curve(axes, rates, step_ms, ink, dashes=dashes, label=f"{kernel}, {what}")
        for kernel, ink, logged in of_name:
            if (stopped := logged.run.stopped_early) is not None:
                axes.axvline(stopped.at_s, color=ink.colour, linestyle=(0, (1, 2)), linewidth=1.2)
                axes.plot(stopped.at_s, 0.03, marker=ink.marker, color=ink.colour, linestyle="none", markersize=6,
                          transform=axes.get_xaxis_transform(), label=f"{kernel}, stopped early")  # fmt: skip
        if decides and self.line is not None:
            threshold(axes, self.line, self.objective)
        which = {None: "", False: ", each job", True: ", all jobs together"}
        axes.set_title(f"{run_words(name)}{which[together]}")


def _curve(axes: "Axes", rates: Floats, step_ms: float, ink: Ink, *, dashes: Any, label: str) -> Iterator[float]:
    at_s, line = (np.arange(rates.size) + 0.5) * step_ms / 1000, smooth(rates)
    every = max(1, rates.size // 6)
    axes.plot(at_s, rates, ink.marker, color=ink.colour, alpha=0.25, markersize=2.5, markeredgewidth=0)
    axes.plot(
        at_s,
        line,
        color=ink.colour,
        linestyle=dashes,
        linewidth=1.5,
        marker=ink.marker,
        markersize=4,
        markevery=(every // 2, every),
        label=label,
    )
    yield from (float(rate) for rate in line if rate > 0)


def smooth(rates: Floats) -> Floats:
    """A Gaussian mean; at the ends, the weights within the curve are normalised."""
    deviation = max(rates.size * _SMOOTHED_SHARE, _SMOOTHED_POINTS)
    reach = math.ceil(3 * deviation)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)
    there = np.convolve(np.ones_like(rates), weights, mode="full")[reach : reach + rates.size]
    return np.asarray(np.convolve(rates, weights, mode="full")[reach : reach + rates.size] / there, dtype=np.float64)


def step_of_grid_ms(runs: Iterable[Logged]) -> float:
    """The logs' own interval, or a multiple of it that gives no more points than can be seen; milliseconds."""
    logs = [log for logged in runs for log in logged.logs if log.end_ms.size]
    own_ms = max(1.0, *(float(np.median(np.diff(log.end_ms, prepend=0.0))) for log in logs))
    # fio's intervals are late by a few ms.
    own_ms = 100.0 * max(1, round(own_ms / 100)) if own_ms > 100 else own_ms  # noqa: PLR2004 - as the line says
    return own_ms * max(1, math.ceil(max(float(log.end_ms[-1]) for log in logs) / own_ms / _MOST_POINTS))


def on_grid(logged: Logged, objective: Objective, step_ms: float) -> dict[str, Floats]:
    """The mean rates in equal intervals, of each job and of their sum; there is no sum if a job's log is missing."""
    # Whole intervals only: fio does not log a last interval that is cut short.
    ends_ms = (float(log.end_ms[-1]) if log.end_ms.size else 0.0 for log in logged.logs)
    each = [resample(log, step_ms, math.floor(end_ms / step_ms) * step_ms)
            for log, end_ms in zip(logged.logs, ends_ms, strict=True)]  # fmt: skip
    found = {f"job {n}": rates for n, rates in enumerate(each, 1)}
    if len(each) > 1 and len(each) == len(objective.of_jobs(logged.run)):
        shared = min(rates.size for rates in each)
        found[TOGETHER] = np.sum([rates[:shared] for rates in each], axis=0)
    return found


def bands(baselines: Sequence[Trial], objective: Objective, *, together: bool) -> Iterator[tuple[str, float, float]]:
    """Each disk that was measured alone, with the range of its jobs' values, or of their sums (``together``)."""
    for name, of_one in by_setup(baselines).items():
        of_disk = [[value.value for value in objective.of_jobs(judged_run(trial))] for trial in of_one]
        figures = [sum(jobs) for jobs in of_disk if jobs] if together else list(chain.from_iterable(of_disk))
        if figures:
            yield name, min(figures), max(figures)


def curves_of(
    trials: Sequence[tuple[str, Role, Trial]],
    run_dir: Path,
    objective: Objective,
    about: str,
    *,
    line: float | None = None,
    baselines: Sequence[Trial] = (),
) -> tuple[CurvesPlot | None, tuple[str, ...]]:
    """The curves of named trials (None if no log can be drawn), and a sentence about each log that could not be read.

    They show the metric that fio logs, in the direction of the ``objective``, or else of the first run. ``line`` is
    drawn if the objective is that metric. ``about`` ends the title.
    """
    runs = (run for *_, trial in trials for run in trial.runs)
    direction = objective.io_direction or next((run.direction for run in runs), "") or Objective().io_direction
    logged = Objective(logged_metric(direction), objective.over)
    found = [(name, role, *traced(trial, run_dir, direction)) for name, role, trial in trials]
    kernels = tuple(TracedKernel(name, of_trial, role) for name, role, of_trial, _ in found)
    drawn = logged, replace(logged, metric=of_steady_part(logged.metric) or logged.metric)
    decides = "" if logged.metric == objective.metric else f" (logged by fio; {objective.metric} decides)"
    title = f"{logged.definition.unit} over time{decides}{about}"
    made = CurvesPlot(title, kernels, logged, line if objective in drawn else None, tuple(baselines))
    return made if made.runs else None, tuple(complaint for *_, complaints in found for complaint in complaints)


def traced(trial: Trial, run_dir: Path, direction: str) -> tuple[tuple[Logged, ...], list[str]]:
    """Each run of a trial with its logs in a direction of I/O, and complaints about the logs that are left out.

    The logs are in the order of the jobs, whose numbers are in the file names: 2 comes before 10.
    """
    complaints: list[str] = []

    def logs(run: Run) -> Iterator[Series]:
        named = ((job_number(Path(one.name).name), one.path) for one in artifacts_of_run(trial.artifacts, run.name))
        for _, path in sorted((number, path) for number, path in named if number is not None):
            try:
                text = inside(run_dir, path).read_text(encoding="utf-8")
                series = from_its_start(parse_log(text, direction), run.duration_s * 1000)
            except (UnicodeDecodeError, LogUnreadable) as error:
                complaints.append(f"{path}: {error}")
            except OSError as error:
                complaints.append(f"{path}: {error.strerror}")
            else:
                if series.end_ms.size:
                    yield series

    return tuple(Logged(run, tuple(logs(run))) for run in trial.runs), complaints


# The values of commits


_EARLY, _SAME, _NOT_MEASURED = "stopped early", "same kernel as another commit", "not measured"
# The filling of a mark says how its commit got its value: by a whole run ("") or as said; "none" draws the edge alone.
FILLS = {"": "full", _EARLY: "bottom", _SAME: "none", _NOT_MEASURED: "none"}


@dataclass(frozen=True, slots=True)
class CommitsPlot:
    """All trials of a report in the order of its rows, changed ends last; at least one trial has a value."""

    report: Report

    @property
    def title(self) -> str:
        """The range and the order of its commits, which is by date if there is no repository."""
        return f"{self.report.asked.span}, commits {'in the order of history' if self._placed else 'by date'}"

    @property
    def _placed(self) -> bool:
        return all(row.place is not None for row in self.report.rows if row.shown.trial.subject.is_commit)

    def figure(self) -> "Figure":
        """Draw the marks over the commits, with levels, disks, the threshold and the step."""
        view, rows = self.report.bisection, self.report.rows
        objective = view.objective
        ordered = sorted(rows, key=lambda row: not row.shown.trial.subject.is_commit)
        names = {row.sha: _name(row) for row in ordered}
        figure = empty(4.6)
        axes = figure.subplots()
        for level, hatch in zip(view.levels, HATCHES * len(rows), strict=False):
            runs = "run" if level.trials == 1 else "runs"
            band(axes, level.low, level.high, f"level of {level.trials} whole {runs}", hatch)
        figures = [row.shown.value for row in rows if row.shown.value is not None]
        disks = bands(view.baselines, objective, together=objective.over == SUM)
        for (disk, low, high), hatch in zip(disks, _DISK_HATCHES, strict=False):
            band(axes, low, high, disk, hatch)
            figures += [low, high]
        scale(axes, objective.definition.unit, logarithmic=True)
        axes.set_ylim(min(figures) / 2, max(figures) * 2)
        self._draw_marks(axes, list(names))
        if view.threshold is not None:
            threshold(axes, view.threshold, objective)
        step = self._draw_step(axes, list(names))
        # If not every commit has room for its name, the answer is still named.
        every = math.ceil(len(names) / _MOST_NAMES)
        named = {place: name for place, name in enumerate(names.values()) if place % every == 0 or place == step}
        axes.set_xticks(list(named), list(named.values()), rotation=90, family="monospace", fontsize=7)
        axes.set_xlim(-0.7, len(names) - 0.3)
        axes.set_xlabel("commit (place counted from the old end: hash)" if self._placed else "commit")
        axes.set_ylabel(axis_label(objective))
        return finish(figure, self.title)

    def _draw_marks(self, axes: "Axes", shas: Sequence[str]) -> None:
        view = self.report.bisection
        values = {row.sha: row.shown.value for row in self.report.rows if row.shown.value is not None}
        groups: defaultdict[tuple[Verdict, str], list[tuple[int, float | None]]] = defaultdict(list)
        for row in self.report.rows:
            value, trial = row.shown.value, row.shown.trial
            how = "" if trial.stopped_early is None else _EARLY
            if trial.same_kernel_as is not None:
                value, how = values.get(trial.same_kernel_as), _SAME
            groups[row.verdict, _NOT_MEASURED if value is None else how].append((shas.index(row.sha), value))
        for (verdict, how), points in groups.items():
            label = view.terms.word(verdict) + (f", {how}" if how and verdict is not Verdict.SKIP else "")
            draw_marks(axes, points, SIDES[verdict_role(verdict, view.direction)], label, FILLS[how])

    def _draw_step(self, axes: "Axes", shas: Sequence[str]) -> int | None:
        """Draw a line directly before the answer if an old commit precedes it; return the answer's position then."""
        view = self.report.bisection
        if view.first_fixed is None or view.first_fixed.sha not in shas:
            return None
        new = shas.index(view.first_fixed.sha)
        if not any(row.verdict is Verdict.OLD and shas.index(row.sha) < new for row in self.report.rows):
            return None
        axes.axvline(new - 0.5, color=BLACK, linewidth=1.2, linestyle="-", label="the step")
        before = new > len(shas) / 2  # the text goes to the side with more room
        axes.annotate(f"first {view.terms.new}: {clean(view.first_fixed.short)}",
                      (new - 0.5, 1), (-5 if before else 5, -4), xycoords=axes.get_xaxis_transform(),
                      textcoords="offset points", ha="right" if before else "left", va="top", weight="bold",
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0})  # fmt: skip
        return new


def _name(row: PlacedTrial) -> str:
    trial = row.shown.trial
    if trial.subject.changed_by is not None:
        return _CHANGED[trial.subject.kind].format(clean(trial.subject.changed_by[:12]))
    place = "" if row.place is None else f"{row.place:,}: "
    return f"{place}{clean(trial.commit.short)}"


def commits(report: Report) -> CommitsPlot | None:
    """The plot of a report; None if no trial has a value."""
    return CommitsPlot(report) if any(row.shown.value is not None for row in report.rows) else None
