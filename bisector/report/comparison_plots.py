"""The pictures of a comparison: ratios with their intervals, and every run in the order of measuring.

The second one shows what the first one cannot: a drift, a wild run, a kernel whose place in the block matters.
Values first; :func:`bisector.report.drawing.draw` makes pictures of them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bisector.analysis.comparison import Effect, Scale
from bisector.core.objective import Objective
from bisector.core.printable import clean
from bisector.report.comparison_table import caption, word
from bisector.report.strokes import GREY, HATCHES, INKS, LEGEND_INCHES, axis_label, empty, legend, scale
from bisector.status.comparison import Result, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH_INCHES = 7.0
_ROW_INCHES = 0.32
_RUNS_INCHES = 2.6
_LOGARITHMIC_FROM = 3.0
_MARGIN = 1.15  # of the width of an axis of ratios, in logarithms
# Ratios that are written on an axis, on either side of 1.
_TICKS = (1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)
_ROUND_BELOW = 1.2
_LEAST_GAP = 0.1  # between two of them, of the width


@dataclass(frozen=True, slots=True)
class Ratio:
    """A kernel against the first one; ``low`` and ``high`` are None of one block."""

    label: str
    arm: int
    estimate: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class RatioPanel:
    """The ratios of one metric."""

    title: str
    ratios: tuple[Ratio, ...]


@dataclass(frozen=True, slots=True)
class Forest:
    """A panel for each metric that decides; ``arms`` are the names of all kernels, the first one first."""

    title: str
    arms: tuple[str, ...]
    panels: tuple[RatioPanel, ...]
    delta: float


@dataclass(frozen=True, slots=True)
class Dot:
    """One run: the number of its trial, its kernel, its block, its value."""

    n: int
    arm: int
    round: int
    value: float


@dataclass(frozen=True, slots=True)
class RunsPanel:
    """Every run of one figure on one setup, in the order of measuring."""

    title: str
    objective: Objective
    dots: tuple[Dot, ...]


@dataclass(frozen=True, slots=True)
class RunOrder:
    """A panel for each setup."""

    title: str
    arms: tuple[str, ...]
    panels: tuple[RunsPanel, ...]


def forest(result: Result) -> Forest | None:
    """The ratios of the rows that decide; None where there are none. Differences have no place among ratios."""
    arms = _names(result)
    panels = []
    for objective in dict.fromkeys(row.objective for row in result.rows):
        rows = [row for row in result.rows if row.objective == objective]
        ratios = tuple(one for row in rows for one in _ratios(row, result))
        if ratios:
            panels.append(RatioPanel(clean(caption(rows[0])), ratios))
    title = f"Ratio to {arms[0]}, with 95 % intervals"
    return Forest(title, arms, tuple(panels), result.delta) if panels else None


def run_order(result: Result) -> RunOrder | None:
    """Every value that decides; None before there is one."""
    arms = _names(result)
    panels = tuple(
        RunsPanel(clean(f"{row.label}: {caption(row)}"), row.objective, _dots(row))
        for row in result.rows
        if row.in_run_order
    )
    return RunOrder("Every run in the order of measuring, blocks joined", arms, panels) if panels else None


def _names(result: Result) -> tuple[str, ...]:
    return tuple(clean(arm.name) for arm in result.arms)


def _ratios(row: Row, result: Result) -> Iterator[Ratio]:
    for arm, change in enumerate(row.changes, 1):
        one = change.effect
        if one is not None and one.scale is Scale.RATIO:
            yield Ratio(clean(f"{row.label}: {word(change, result.delta)}"), arm, one.estimate, *_ends(one))


def _ends(one: Effect) -> tuple[float | None, float | None]:
    return (None, None) if math.isinf(one.half_width) else one.interval


def _dots(row: Row) -> tuple[Dot, ...]:
    places = {side.arm: place for place, side in enumerate(row.sides)}
    return tuple(Dot(one.n, places[one.arm], one.round, one.value) for one in row.in_run_order)


# The pictures


def forest_figure(plot: Forest) -> "Figure":
    """Ratios on a logarithmic axis, below each other, a panel for each metric."""
    heights = [len(panel.ratios) + 1.5 for panel in plot.panels]
    figure = empty(_WIDTH_INCHES + LEGEND_INCHES, _ROW_INCHES * sum(heights) + 0.5 * len(heights) + 0.5)
    rows = figure.subplots(len(plot.panels), 1, squeeze=False, height_ratios=heights)
    for panel, (axes,) in zip(plot.panels, rows, strict=True):
        _ratio_panel(axes, panel, plot)
    figure.suptitle(plot.title)
    legend(figure)
    return figure


def _ratio_panel(axes: "Axes", panel: RatioPanel, plot: Forest) -> None:
    band = 1 + plot.delta
    axes.axvspan(1 / band, band, facecolor="#f2f2f2", edgecolor="#999999", hatch=HATCHES[0], linewidth=0.8, zorder=0,
                 label=f"same ±{100 * plot.delta:g} %")  # fmt: skip
    axes.axvline(1.0, color="#000000", linewidth=0.9)
    for row, one in enumerate(panel.ratios):
        ink = INKS[one.arm % len(INKS)]
        if one.low is not None and one.high is not None:
            axes.plot([one.low, one.high], [row, row], color=ink.colour, linewidth=1.8, marker="|", markersize=9)
        filled = "full" if one.low is not None else "none"
        axes.plot([one.estimate], [row], ink.marker, color=ink.colour, fillstyle=filled, markersize=7,
                  label=plot.arms[one.arm])  # fmt: skip
    axes.set_yticks(range(len(panel.ratios)), [one.label for one in panel.ratios])
    axes.set_ylim(len(panel.ratios) - 0.25, -0.75)
    axes.set_title(panel.title)
    axes.set_xlabel(f"ratio to {plot.arms[0]}")
    _ratio_axis(axes, panel.ratios, band)


def _ratio_axis(axes: "Axes", ratios: Sequence[Ratio], band: float) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: PLC0415 - see drawing.py

    ends = [end for one in ratios for end in (one.low or one.estimate, one.high or one.estimate)]
    most = _MARGIN * max(abs(math.log(end)) for end in (*ends, band) if 0 < end < math.inf)
    axes.set_xscale("log")
    axes.set_xlim(math.exp(-most), math.exp(most))
    axes.xaxis.set_major_locator(FixedLocator(ratio_ticks(most)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value)))


def ratio_ticks(most: float) -> list[float]:
    """Round ratios up to exp(most) on either side of 1, far enough from each other to be read."""
    kept: list[float] = []
    for tick in reversed([one for one in _TICKS if math.log(one) <= most]):
        place = math.log(tick)
        if place >= _LEAST_GAP * 2 * most and all(math.log(one) - place >= _LEAST_GAP * 2 * most for one in kept):
            kept.append(tick)
    return sorted((*map(_opposite, kept), 1.0, *kept))


def _opposite(tick: float) -> float:
    """As round a ratio below 1: 0.8 for 1.2, and half for twice."""
    return 2 - tick if tick <= _ROUND_BELOW else 1 / tick


def tick_text(ratio: float) -> str:
    """A ratio on an axis: in percent while that is short, then as a factor."""
    if ratio == 1:
        return "1"
    factor = max(ratio, 1 / ratio)
    if factor < 2:  # noqa: PLR2004 - as the docstring says
        return f"{100 * (ratio - 1):+.3g} %"
    return f"{ratio:g}x" if ratio > 1 else f"1/{factor:g}"


def runs_figure(plot: RunOrder) -> "Figure":
    """Values over the numbers of the trials, a panel for each setup."""
    figure = empty(_WIDTH_INCHES + LEGEND_INCHES, _RUNS_INCHES * len(plot.panels) + 0.5)
    rows = figure.subplots(len(plot.panels), 1, squeeze=False)
    for panel, (axes,) in zip(plot.panels, rows, strict=True):
        _runs_panel(axes, panel, plot.arms)
    rows[-1][0].set_xlabel("number of the trial")
    figure.suptitle(plot.title)
    legend(figure)
    return figure


def _runs_panel(axes: "Axes", panel: RunsPanel, arms: Sequence[str]) -> None:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - see drawing.py

    for round_ in dict.fromkeys(dot.round for dot in panel.dots):
        of_block = [dot for dot in panel.dots if dot.round == round_]
        axes.plot(
            [dot.n for dot in of_block], [dot.value for dot in of_block], color=GREY, linewidth=0.8, label="a block"
        )
    for arm, name in enumerate(arms):
        mine, ink = [dot for dot in panel.dots if dot.arm == arm], INKS[arm % len(INKS)]
        if mine:
            axes.plot(*_points(mine), ink.marker, color=ink.colour, markersize=6, label=name)
    least, most = min(dot.value for dot in panel.dots), max(dot.value for dot in panel.dots)
    logarithmic = least > 0 and most >= _LOGARITHMIC_FROM * least
    scale(axes, panel.objective.definition.unit, logarithmic=logarithmic)
    if not logarithmic:
        # From zero a difference of a few percent cannot be seen, and these are dots, not bars.
        around = 0.1 * (most - least) or 0.05 * abs(most) or 1.0
        axes.set_ylim(least - around, most + around)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(axis_label(panel.objective))
    axes.set_title(panel.title)


def _points(dots: Sequence[Dot]) -> tuple[list[int], list[float]]:
    return [dot.n for dot in dots], [dot.value for dot in dots]
