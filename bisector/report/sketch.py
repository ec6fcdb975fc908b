"""The curves of one trial as paths of a small SVG, for a page that has one for each trial.

matplotlib takes 0.1 s and 100 kB for such a picture; forty of them would be neither quick nor small. The
page's template writes what is here into ``<svg>``; coordinates are in its units, from the top left.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bisector.report.curves import TOGETHER, Curves, Line, Panel

WIDTH, HEIGHT = 400, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 8, 34
_STEPS = (1, 2, 5)
_TICKS = 6


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis, and what is written there."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Stroke:
    """A job's points and its smooth curve, as the ``d`` of an SVG path; ``job`` is 0 for all together."""

    job: int
    points: str
    smooth: str


@dataclass(frozen=True, slots=True)
class Sketch:
    """One panel; the box of its axes is ``left, top, right, bottom``."""

    title: str
    box: tuple[float, float, float, float]
    strokes: tuple[Stroke, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    threshold_at: float | None
    stops_at: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Scale:
    """From a figure to a coordinate."""

    least: float
    most: float
    start: float
    end: float
    logarithmic: bool = False

    def at(self, figure: float) -> float:
        """Rounded to a tenth; what is outside is at the edge."""
        inside = min(max(figure, self.least), self.most)
        share = (
            math.log(inside / self.least) / math.log(self.most / self.least)
            if self.logarithmic
            else (inside - self.least) / (self.most - self.least)
        )
        return round(self.start + share * (self.end - self.start), 1)


def sketches(plot: Curves) -> tuple[Sketch, ...]:
    """Each panel, all on the same scales."""
    panels = [panel for row in plot.rows for panel in row]
    time = _Scale(0.0, max(line.at_s[-1] for line in plot.lines) + plot.interval_s / 2, _LEFT, WIDTH - _RIGHT)
    rates = _scale_of_rates(plot, [panel.threshold for panel in panels if panel.threshold is not None])
    return tuple(_sketch(panel, time, rates) for panel in panels)


def _scale_of_rates(plot: Curves, thresholds: Sequence[float]) -> _Scale:
    figures = [*(rate for line in plot.lines for rate in line.smooth), *thresholds]
    most = max(1.0, *figures) * 1.15
    least = min(figure for figure in figures if figure > 0) / 1.15 if plot.logarithmic else 0.0
    return _Scale(least, most, HEIGHT - _BOTTOM, _TOP, plot.logarithmic)


def _sketch(panel: Panel, time: _Scale, rates: _Scale) -> Sketch:
    return Sketch(
        title=panel.title,
        box=(_LEFT, _TOP, WIDTH - _RIGHT, HEIGHT - _BOTTOM),
        strokes=tuple(_stroke(line, time, rates) for line in panel.lines),
        x_ticks=tuple(Tick(time.at(second), f"{second:g}") for second in _linear_ticks(time.most)),
        y_ticks=tuple(Tick(rates.at(rate), f"{rate:,.0f}") for rate in _ticks(rates)),
        threshold_at=None if panel.threshold is None else rates.at(panel.threshold),
        stops_at=tuple(time.at(stop.at_s) for stop in panel.stops),
    )


def _stroke(line: Line, time: _Scale, rates: _Scale) -> Stroke:
    across = [time.at(second) for second in line.at_s]
    # A path of no length with round ends is a dot; one element for all is small.
    points = (
        ""
        if line.job == TOGETHER
        else "".join(f"M{x:g} {rates.at(y):g}h0" for x, y in zip(across, line.rates, strict=True))
    )
    smooth = " ".join(f"{x:g} {rates.at(y):g}" for x, y in zip(across, line.smooth, strict=True))
    return Stroke(line.job, points, f"M{smooth}")


def _ticks(scale: _Scale) -> Iterator[float]:
    if not scale.logarithmic:
        yield from _linear_ticks(scale.most)
        return
    for exponent in range(math.floor(math.log10(scale.least)), math.ceil(math.log10(scale.most)) + 1):
        yield from (step * 10.0**exponent for step in _STEPS if scale.least <= step * 10.0**exponent <= scale.most)


def _linear_ticks(most: float) -> list[float]:
    """Round figures from 0 on, six at most."""
    size = 10.0 ** math.floor(math.log10(most))
    step = next(one for scale in (0.1, 1.0) for part in _STEPS if most / (one := part * size * scale) < _TICKS)
    return [step * index for index in range(math.floor(most / step) + 1)]
