"""Rates over time as they are drawn: the jobs' logs on one grid, each and together, kernel beside kernel.

What fio logs is drawn (:func:`bisector.workload.fio.logs.logged_metric`), from files beside the record; whatever
decides, no other metric is followed over time.

Values, which tests compare, and which draw themselves.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bisector.analysis.judgement import judged_run
from bisector.core.figures import Run, run_words
from bisector.core.objective import SUM, Objective
from bisector.core.trial import Trial
from bisector.host.files import inside
from bisector.report.blocks import Role
from bisector.report.drawing import (
    HATCHES,
    INKS,
    LOGARITHMIC_FROM,
    MARGIN,
    SIDES,
    band,
    empty,
    finish,
    scale,
    threshold,
)
from bisector.report.figures import by_setup
from bisector.store.run_files import artifacts_of_run
from bisector.workload.fio.logs import Floats, LogUnreadable, Series, from_its_start, job_number, parse_log, resample

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TOGETHER = 0
# The first is that of all jobs together.
_DASHES = ("-.", "-", (0, (5, 2)), ":", (0, (1, 1)), (0, (8, 2, 1, 2)))
_PANEL_INCHES = 2.7
# A curve of more points looks the same, and makes a page large.
_MOST_POINTS = 240
# The smooth curve is a Gaussian mean; its deviation is a share of the whole curve, three points at least.
_SMOOTHED_SHARE = 1 / 40
_SMOOTHED_POINTS = 1.5


@dataclass(frozen=True, slots=True)
class CurveLine:
    """The rate over time of one job of one kernel; ``job`` counts from 1 and is TOGETHER for all of them.

    ``rates`` are the means of equal intervals, ``at_s`` the middles of those; ``smooth`` goes through them.
    """

    kernel: int
    job: int
    at_s: tuple[float, ...]
    rates: tuple[float, ...]
    smooth: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Where the run of a kernel was stopped early, in seconds."""

    kernel: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Band:
    """The values of a disk alone, measured on the same host: the least and the largest."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CurvePanel:
    """One set of axes; the threshold is None where it does not apply."""

    title: str
    lines: tuple[CurveLine, ...]
    stops: tuple[Stop, ...] = ()
    bands: tuple[Band, ...] = ()
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class CurvePlot:
    """Panels in rows, over one scale of time and one of ``objective``'s values; ``kernels`` are the lines' kernels.

    ``roles`` are what those are shown as; empty where no two of them are on different sides.
    """

    title: str
    kernels: tuple[str, ...]
    rows: tuple[tuple[CurvePanel, ...], ...]
    interval_s: float
    objective: Objective = field(default_factory=Objective)
    roles: tuple[Role, ...] = ()

    @property
    def lines(self) -> tuple[CurveLine, ...]:
        """All of them."""
        return tuple(line for row in self.rows for panel in row for line in panel.lines)

    @property
    def logarithmic(self) -> bool:
        """Whether the levels differ so much that a linear scale would hide the lower one."""
        seen = [rate for line in self.lines for rate in line.smooth if rate > 0]
        return bool(seen) and max(seen) >= LOGARITHMIC_FROM * min(seen)

    def figure(self) -> "Figure":
        """The panels, with one legend."""
        across, down = max(map(len, self.rows)), len(self.rows)
        figure = empty(_PANEL_INCHES * down + 0.5)
        axes = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
        for row, of_row in zip(self.rows, axes, strict=True):
            for panel, one in zip(row, of_row, strict=True):
                self._draw(one, panel)
            each = f"points: means of {self.interval_s:g} s"
            of_row[0].set_ylabel(f"{self.objective.io_direction} {self.objective.definition.unit} ({each})")
        for one in axes[-1]:
            one.set_xlabel("time since the run began (s)")
        scale(axes[0][0], self.objective.definition.unit, logarithmic=self.logarithmic)
        axes[0][0].set_xlim(left=0)
        return finish(figure, self.title)

    def _draw(self, axes: "Axes", panel: CurvePanel) -> None:
        inks = [SIDES[role] for role in self.roles] or [INKS[n % len(INKS)] for n in range(len(self.kernels))]
        for disk, hatch in zip(panel.bands, HATCHES, strict=False):
            band(axes, disk.low / MARGIN, disk.high * MARGIN, disk.name, hatch)
        for line in panel.lines:
            ink, dashes = inks[line.kernel], _DASHES[line.job % len(_DASHES)]
            what = "all jobs" if line.job == TOGETHER else f"job {line.job}"
            every = max(1, len(line.at_s) // 6)
            axes.plot(
                line.at_s, line.rates, ink.marker, color=ink.colour, alpha=0.25, markersize=2.5, markeredgewidth=0
            )
            axes.plot(line.at_s, line.smooth, color=ink.colour, linestyle=dashes, linewidth=1.5,
                      marker=ink.marker, markersize=4, markevery=(every // 2, every),
                      label=f"{self.kernels[line.kernel]}, {what}")  # fmt: skip
        for stop in panel.stops:
            ink = inks[stop.kernel]
            axes.axvline(stop.at_s, color=ink.colour, linestyle=(0, (1, 2)), linewidth=1.2)
            axes.plot(stop.at_s, 0.03, marker=ink.marker, color=ink.colour, linestyle="none", markersize=6,
                      transform=axes.get_xaxis_transform(),
                      label=f"{self.kernels[stop.kernel]}, stopped early")  # fmt: skip
        if panel.threshold is not None:
            threshold(axes, panel.threshold, self.objective)
        axes.set_title(panel.title)


@dataclass(frozen=True, slots=True, eq=False)
class Logged:
    """A run with the logs of its jobs' rates, in the order of the jobs; fewer where some are missing."""

    run: Run
    logs: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class TracedKernel:
    """A kernel by the name it is shown with, its runs, and what it is shown as."""

    name: str
    runs: tuple[Logged, ...]
    role: Role = Role.PLAIN


def curves(
    title: str,
    kernels: Sequence[TracedKernel],
    objective: Objective,
    threshold: float | None = None,
    baselines: Sequence[Trial] = (),
) -> CurvePlot | None:
    """The runs of the kernels, one panel each; several kernels have their jobs and their sums in rows of their own.

    None when there is no log to draw. ``objective`` is of what was logged; the threshold is drawn in the last run, for
    the sum where that decides and else for each job.
    """
    runs = [logged for kernel in kernels for logged in kernel.runs if any(log.end_ms.size for log in logged.logs)]
    if not runs:
        return None
    step_ms = _step_ms(runs)
    names = tuple(dict.fromkeys(logged.run.name for logged in runs))
    drawn = [_panel(name, kernels, objective, step_ms) for name in names]
    apart = len(kernels) > 1
    rows = []
    of_sum = objective.over == SUM
    for together in (False, True) if apart else (False,):
        panels = []
        for panel in drawn:
            lines = tuple(line for line in panel.lines if not apart or (line.job == TOGETHER) is together)
            panels.append(
                CurvePanel(
                    title=f"{run_words(panel.title)}"
                    + ("" if not apart else ", all jobs together" if together else ", each job"),
                    lines=lines,
                    stops=panel.stops,
                    bands=tuple(bands(baselines, objective, together=together)),
                    threshold=threshold if panel.title == names[-1] and together is (apart and of_sum) else None,
                )
            )
        rows.append(tuple(panels))
    roles = tuple(kernel.role for kernel in kernels)
    if len(set(roles)) < len(roles):
        roles = ()
    return CurvePlot(title, tuple(kernel.name for kernel in kernels), tuple(rows), step_ms / 1000, objective, roles)


def smooth(rates: Floats) -> Floats:
    """A mean weighted by a Gaussian; at the ends the weights that are left are made whole."""
    deviation = max(rates.size * _SMOOTHED_SHARE, _SMOOTHED_POINTS)
    reach = math.ceil(3 * deviation)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)
    there = np.convolve(np.ones_like(rates), weights, mode="full")[reach : reach + rates.size]
    return np.asarray(np.convolve(rates, weights, mode="full")[reach : reach + rates.size] / there, dtype=np.float64)


def _step_ms(runs: Iterable[Logged]) -> float:
    """The logs' own interval, or as many of them as leave no more points than can be seen."""
    logs = [log for logged in runs for log in logged.logs if log.end_ms.size]
    own_ms = max(1.0, *(float(np.median(np.diff(log.end_ms, prepend=0.0))) for log in logs))
    # fio is late by a few ms in each interval.
    own_ms = 100.0 * max(1, round(own_ms / 100)) if own_ms > 100 else own_ms  # noqa: PLR2004 - as the line says
    return own_ms * max(1, math.ceil(max(float(log.end_ms[-1]) for log in logs) / own_ms / _MOST_POINTS))


def _panel(name: str, kernels: Sequence[TracedKernel], objective: Objective, step_ms: float) -> CurvePanel:
    lines: list[CurveLine] = []
    stops = []
    for index, kernel in enumerate(kernels):
        for logged in kernel.runs:
            if logged.run.name == name and logged.logs:
                lines += _lines(index, logged, objective, step_ms)
                if logged.run.stopped_early is not None:
                    stops.append(Stop(index, logged.run.stopped_early.at_s))
    return CurvePanel(name, tuple(lines), tuple(stops))


def _lines(kernel: int, logged: Logged, objective: Objective, step_ms: float) -> Iterator[CurveLine]:
    """Of each job, and of all of them together; a sum that lacks a job would be none."""
    # Whole intervals only: fio does not log a last interval that is cut short.
    ends_ms = (float(log.end_ms[-1]) if log.end_ms.size else 0.0 for log in logged.logs)
    each = [resample(log, step_ms, math.floor(end_ms / step_ms) * step_ms)
            for log, end_ms in zip(logged.logs, ends_ms, strict=True)]  # fmt: skip
    numbered = list(enumerate(each, 1))
    if len(each) > 1 and len(each) == len(objective.of_jobs(logged.run)):
        shared = min(rates.size for rates in each)
        numbered.append((TOGETHER, np.sum([rates[:shared] for rates in each], axis=0)))
    for job, rates in numbered:
        at_s = (np.arange(rates.size) + 0.5) * step_ms / 1000
        rounded = (np.round(values, digits).tolist() for values, digits in ((at_s, 3), (rates, 1), (smooth(rates), 1)))
        yield CurveLine(kernel, job, *map(tuple, rounded))


def bands(baselines: Sequence[Trial], objective: Objective, *, together: bool) -> Iterator[Band]:
    """Each disk that was measured alone: what its jobs did each, or all of them together."""
    for name, of_one in by_setup(baselines).items():
        of_disk = [[value.value for value in objective.of_jobs(judged_run(trial))] for trial in of_one]
        figures = [sum(jobs) for jobs in of_disk if jobs] if together else list(chain.from_iterable(of_disk))
        if figures:
            yield Band(name, min(figures), max(figures))


@dataclass(frozen=True, slots=True)
class Traced:
    """The runs of a trial with their logs, and a sentence for each log that could not be read."""

    runs: tuple[Logged, ...]
    complaints: tuple[str, ...]


def traced(trial: Trial, run_dir: Path, direction: str) -> Traced:
    """Every log of a trial in a direction of I/O; what is missing or damaged is complained of and left out."""
    complaints: list[str] = []
    runs = tuple(Logged(run, tuple(_logs(trial, run, direction, run_dir, complaints))) for run in trial.runs)
    return Traced(runs, tuple(complaints))


def _logs(trial: Trial, run: Run, direction: str, run_dir: Path, complaints: list[str]) -> Iterator[Series]:
    """In the order of the jobs, whose numbers are in the names: 2 comes before 10."""
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
