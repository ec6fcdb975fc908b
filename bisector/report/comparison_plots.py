"""The pictures of a comparison: changes with their intervals, and every run in the order of measuring.

The second one shows what the first one cannot: a drift, a wild run, a kernel whose place in the block matters.
Values first; :func:`bisector.report.drawing.draw` makes pictures of them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bisector.analysis.comparison import Effect, Outcome, Scale
from bisector.core.metric import short
from bisector.core.objective import Objective
from bisector.core.printable import clean
from bisector.report.comparison_table import caption, difference_text, word
from bisector.report.strokes import GREY, HATCHES, INKS, SIDES, axis_label, empty, legend, scale
from bisector.report.terminal import Role
from bisector.status.comparison import ComparedChange, ComparedRow, ComparisonResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW_INCHES = 0.32
_RUNS_INCHES = 2.6
_LOGARITHMIC_FROM = 3.0
_MARGIN = 1.15  # of the width of an axis of changes; of ratios in logarithms
_DIFFERENCE_TICKS = 6
_NOTHING = 1e-9  # of the width: what is left of a tick at 0
# Ratios that are written on an axis, on either side of 1.
_TICKS = (1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)
_ROUND_BELOW = 1.2
_PAIR = 2
_LEAST_GAP = 0.1  # between two of them, of the width


@dataclass(frozen=True, slots=True)
class ChangeMark:
    """A kernel against the first one, as a ratio or a difference; ``low`` and ``high`` are None of one block.

    ``band`` is how far a difference may be from 0 to be the same.
    """

    label: str
    role: Role
    estimate: float
    low: float | None
    high: float | None
    band: float


@dataclass(frozen=True, slots=True)
class ForestPanel:
    """The changes of one figure, all of them ratios or all of them differences."""

    title: str
    objective: Objective
    scale: Scale
    marks: tuple[ChangeMark, ...]


@dataclass(frozen=True, slots=True)
class Forest:
    """A panel for each figure; ``first`` is what the kernels are compared with."""

    title: str
    first: str
    panels: tuple[ForestPanel, ...]
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


def rows_of(result: ComparisonResult, metric: str | None = None) -> tuple[ComparedRow, ...]:
    """The rows that decide; of a metric, by its name or what people type of it, those that explore it, too."""
    if metric is None:
        return result.rows
    return tuple(
        row
        for row in (*result.rows, *result.exploratory)
        if metric in (row.objective.metric, short(row.objective.metric))
    )


def forest(result: ComparisonResult, metric: str | None = None) -> Forest | None:
    """The changes of :func:`rows_of` with their intervals; None where there are none.

    A difference has a linear axis and no place among ratios: it has a panel of its own.
    """
    first, rows = _names(result)[0], rows_of(result, metric)
    found = [(row, scale, marks) for row in rows for scale in Scale if (marks := tuple(_marks(row, scale, result)))]
    kinds = dict.fromkeys((_caption(row), row.objective, scale) for row, scale, _ in found)
    panels = tuple(
        ForestPanel(*kind, tuple(one for row, scale, marks in found if (_caption(row), row.objective, scale) == kind
                           for one in marks))
        for kind in kinds
    )  # fmt: skip
    scales = {panel.scale for panel in panels}
    what = " or ".join(text for scale, text in _AGAINST.items() if scale in scales).capitalize()
    title = f"{what} {first}, with 95 % intervals"
    if len(result.arms) == _PAIR:
        title = f"{_names(result)[1]}: {title[0].lower()}{title[1:]}"
    return Forest(title, first, panels, result.delta) if panels else None


_AGAINST = {Scale.RATIO: "ratio to", Scale.DIFFERENCE: "difference from"}


def run_order(result: ComparisonResult, metric: str | None = None) -> RunOrder | None:
    """Every value of :func:`rows_of`, a panel for each host; None before there is one."""
    arms, rows = _names(result), rows_of(result, metric)
    panels = tuple(
        RunsPanel(
            clean(f"{row.label}{f' on {host}' if several else ''}: {_caption(row)}"), row.objective, _dots(row, host)
        )
        for row in rows
        for several, host in _hosts(row)
    )
    return RunOrder("Every run in the order of measuring, blocks joined", arms, panels) if panels else None


def _caption(row: ComparedRow) -> str:
    return clean(f"{'' if row.deciding else 'exploratory: '}{caption(row)}")


def _names(result: ComparisonResult) -> tuple[str, ...]:
    return tuple(clean(arm.name) for arm in result.arms)


def _marks(row: ComparedRow, scale: Scale, result: ComparisonResult) -> Iterator[ChangeMark]:
    for change in row.changes:
        one = change.effect
        if one is not None and one.scale is scale:
            label = row.label if len(result.arms) == _PAIR else f"{row.label}, {change.arm}"
            label += f": {word(change, result.delta)}" if row.deciding else ""
            yield ChangeMark(clean(label), _role(change), one.estimate, *_ends(one), one.band(result.delta))


def _role(change: ComparedChange) -> Role:
    return _ROLES.get(change.decision.outcome, Role.PLAIN) if change.decision is not None else Role.PLAIN


_ROLES = {Outcome.FASTER: Role.BETTER, Outcome.SLOWER: Role.WORSE}


def _ends(one: Effect) -> tuple[float | None, float | None]:
    return (None, None) if math.isinf(one.half_width) else one.interval


def _hosts(row: ComparedRow) -> Iterator[tuple[bool, str]]:
    """Each host of a row, and whether there are others: figures of two hosts have no axis in common."""
    hosts = tuple(dict.fromkeys(one.host for one in row.in_run_order))
    yield from ((len(hosts) > 1, host) for host in hosts)


def _dots(row: ComparedRow, host: str) -> tuple[Dot, ...]:
    places = {side.arm: place for place, side in enumerate(row.sides)}
    return tuple(Dot(one.n, places[one.arm], one.round, one.value) for one in row.in_run_order if one.host == host)


# The pictures


def forest_figure(plot: Forest) -> "Figure":
    """Changes below each other, a panel for each figure: ratios on a logarithmic axis, differences on a linear one."""
    heights = [len(panel.marks) + 1.5 for panel in plot.panels]
    figure = empty(_ROW_INCHES * sum(heights) + 0.5 * len(heights) + 0.5)
    rows = figure.subplots(len(plot.panels), 1, squeeze=False, height_ratios=heights)
    for panel, (axes,) in zip(plot.panels, rows, strict=True):
        prepare = _ratios if panel.scale is Scale.RATIO else _differences
        prepare(axes, panel, plot)
        _changes(axes, panel, plot)
    figure.suptitle(plot.title, x=0.005, ha="left")
    legend(figure)
    return figure


def _changes(axes: "Axes", panel: ForestPanel, plot: Forest) -> None:
    for row, one in enumerate(panel.marks):
        ink = SIDES[one.role]
        if one.low is not None and one.high is not None:
            axes.plot([one.low, one.high], [row, row], color=ink.colour, linewidth=1.8, marker="|", markersize=9)
        filled = "full" if one.low is not None else "none"
        axes.plot([one.estimate], [row], ink.marker, color=ink.colour, fillstyle=filled, markersize=5,
                  label=_SAID[one.role])  # fmt: skip
    axes.set_yticks(range(len(panel.marks)), [one.label for one in panel.marks])
    axes.set_ylim(len(panel.marks) - 0.25, -0.75)
    axes.set_title(panel.title)
    axes.set_xlabel(f"{_AGAINST[panel.scale]} {plot.first}")


_SAID = {Role.BETTER: str(Outcome.FASTER), Role.WORSE: str(Outcome.SLOWER), Role.PLAIN: "same or unclear"}


def _ends_of(panel: ForestPanel) -> Iterator[float]:
    for one in panel.marks:
        yield from (one.estimate if one.low is None else one.low, one.estimate if one.high is None else one.high)


def _ratios(axes: "Axes", panel: ForestPanel, plot: Forest) -> None:
    """The axis of ratios, and the band of the same on it."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: PLC0415 - see drawing.py

    band = 1 + plot.delta
    axes.axvspan(1 / band, band, **_SAME, label=_same(plot))
    axes.axvline(1.0, color="#000000", linewidth=0.9)
    most = _MARGIN * max(abs(math.log(end)) for end in (*_ends_of(panel), band) if 0 < end < math.inf)
    axes.set_xscale("log")
    axes.set_xlim(math.exp(-most), math.exp(most))
    axes.xaxis.set_major_locator(FixedLocator(ratio_ticks(most)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value)))


def _differences(axes: "Axes", panel: ForestPanel, plot: Forest) -> None:
    """The axis of differences, with the band of each: the same is a share of the first kernel's figure."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415 - see drawing.py

    for row, one in enumerate(panel.marks):
        axes.barh(row, 2 * one.band, left=-one.band, height=0.7, **_SAME, label=_same(plot))
    axes.axvline(0.0, color="#000000", linewidth=0.9)
    most = _MARGIN * max(abs(end) for end in (*_ends_of(panel), *(one.band for one in panel.marks))) or 1.0

    def text(value: float, _place: object) -> str:
        return difference_text(value, panel.objective) if abs(value) > _NOTHING * most else "0"

    axes.set_xlim(-most, most)
    axes.xaxis.set_major_locator(MaxNLocator(_DIFFERENCE_TICKS))
    axes.xaxis.set_major_formatter(FuncFormatter(text))


def _same(plot: Forest) -> str:
    return f"same ±{100 * plot.delta:g} %"


_SAME: dict[str, Any] = {
    "facecolor": "#f2f2f2", "edgecolor": "#999999", "hatch": HATCHES[0], "linewidth": 0.8, "zorder": 0
}  # fmt: skip


def ratio_ticks(most: float) -> list[float]:
    """Round ratios up to exp(most) on either side of 1, far enough from each other to be read."""
    kept: list[float] = []
    for tick in reversed([one for one in _TICKS if math.log(one) <= most]):
        place = math.log(tick)
        if place >= _LEAST_GAP * 2 * most and all(math.log(one) - place >= _LEAST_GAP * 2 * most for one in kept):
            kept.append(tick)
    return sorted((*map(_opposite, kept), 1.0, *kept))


def _opposite(tick: float) -> float:
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
    figure = empty(_RUNS_INCHES * len(plot.panels) + 0.5)
    rows = figure.subplots(len(plot.panels), 1, squeeze=False)
    for panel, (axes,) in zip(plot.panels, rows, strict=True):
        _runs_panel(axes, panel, plot.arms)
    rows[-1][0].set_xlabel("number of the trial")
    figure.suptitle(plot.title, x=0.005, ha="left")
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
