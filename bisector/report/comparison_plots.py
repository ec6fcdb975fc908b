"""The plots of a comparison: changes with their intervals, and every run in the order of measuring.

The second plot shows what the first cannot: a drift, an outlier, a kernel whose position in the block matters.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from bisector.analysis.comparison import Effect, Outcome, Scale
from bisector.core.metric import short
from bisector.core.objective import Objective
from bisector.core.printable import clean
from bisector.report.blocks import Role
from bisector.report.comparison_table import caption, change_role, difference_text, word
from bisector.report.drawing import (
    BLACK,
    GREY,
    INKS,
    LOGARITHMIC_FROM,
    SIDES,
    axis_label,
    draw_marks,
    empty,
    finish,
    scale,
    shaded,
)
from bisector.status.comparison import ComparedRow, ComparedValue, ComparisonResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW_INCHES = 0.32
_RUNS_INCHES = 2.6
_MARGIN = 1.15  # width of an axis of changes over that of its marks; in logarithms for ratios
_DIFFERENCE_TICKS = 6
_NOTHING = 1e-9  # share of the width: a tick closer to 0 is 0 but for rounding
# Ratios above 1 that may have a tick; those below 1 are derived from them.
_TICKS = (1.0005, 1.001, 1.002, 1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1e3)
_ROUND_BELOW = 1.2
_PAIR = 2
_LEAST_GAP = 0.1  # between two ticks, as a share of the width
_AGAINST = {Scale.RATIO: "ratio to", Scale.DIFFERENCE: "difference from"}
_SAID = {Role.BETTER: str(Outcome.FASTER), Role.WORSE: str(Outcome.SLOWER), Role.PLAIN: "same or unclear"}


def rows_of(result: ComparisonResult, metric: str | None = None) -> tuple[ComparedRow, ...]:
    """The deciding rows, or all rows of a metric, exploratory ones too, by its full or its short name."""
    if metric is None:
        return result.rows
    found = (*result.rows, *result.exploratory)
    return tuple(row for row in found if metric in (row.objective.metric, short(row.objective.metric)))


def _caption(row: ComparedRow) -> str:
    return clean(f"{'' if row.deciding else 'exploratory: '}{caption(row)}")


class ChangeMark(NamedTuple):
    """The change of a kernel against the first one."""

    label: str
    role: Role
    effect: Effect

    @property
    def ends(self) -> tuple[float, float] | None:
        """The ends of the interval; None if there is only one block."""
        return None if math.isinf(self.effect.half_width) else self.effect.interval


@dataclass(frozen=True)
class Forest:
    """A forest plot of changes with their intervals; differences have a linear axis, apart from ratios."""

    result: ComparisonResult
    rows: tuple[ComparedRow, ...]

    @cached_property
    def panels(self) -> dict[tuple[str, Objective, Scale], list[ChangeMark]]:
        """The marks of each metric; ratios and differences have panels of their own."""
        result = self.result
        found: dict[tuple[str, Objective, Scale], list[ChangeMark]] = {}
        for row in self.rows:
            for change in row.changes:
                if (effect := change.effect) is not None:
                    label = row.label if len(result.arms) == _PAIR else f"{row.label}, {change.arm}"
                    label += f": {word(change, result.delta)}" if row.deciding else ""
                    mark = ChangeMark(clean(label), change_role(change), effect)
                    found.setdefault((_caption(row), row.objective, effect.scale), []).append(mark)
        return found

    @property
    def title(self) -> str:
        """What the kernels are compared with, and how."""
        first, *others = (clean(arm.name) for arm in self.result.arms)
        scales = {scale for *_, scale in self.panels}
        what = " or ".join(text for scale, text in _AGAINST.items() if scale in scales)
        title = f"{what} {first}, with 95 % intervals"
        return f"{others[0]}: {title}" if len(others) == 1 else title[0].upper() + title[1:]

    def figure(self) -> "Figure":
        """Draw the changes below each other, in a panel for each metric."""
        heights = [len(marks) + 1.5 for marks in self.panels.values()]
        figure = empty(_ROW_INCHES * sum(heights) + 0.5 * len(heights) + 0.5)
        rows = figure.subplots(len(self.panels), 1, squeeze=False, height_ratios=heights)
        for ((title, objective, scale_), marks), (axes,) in zip(self.panels.items(), rows, strict=True):
            self._axis(axes, marks, objective, scale_)
            for place, one in enumerate(marks):
                ink, ends = SIDES[one.role], one.ends
                if ends is not None:
                    axes.plot(ends, [place] * 2, color=ink.colour, linewidth=1.8, marker="|", markersize=9)
                axes.plot([one.effect.estimate], [place], ink.marker, color=ink.colour, markersize=5,
                          fillstyle="none" if ends is None else "full", label=_SAID[one.role])  # fmt: skip
            axes.set_yticks(range(len(marks)), [one.label for one in marks])
            axes.set_ylim(len(marks) - 0.25, -0.75)
            axes.set_title(title)
            axes.set_xlabel(f"{_AGAINST[scale_]} {clean(self.result.arms[0].name)}")
        return finish(figure, self.title)

    def _axis(self, axes: "Axes", marks: Sequence[ChangeMark], objective: Objective, scale_: Scale) -> None:
        """Draw the axis of changes with the band of the same, which for differences is a share of the first value."""
        from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, MaxNLocator, NullLocator  # noqa: PLC0415 - see drawing.py

        delta = self.result.delta
        ends = [end for one in marks for end in one.ends or (one.effect.estimate,)]
        style = {**shaded(), "label": f"same ±{100 * delta:g} %"}
        locator: Locator
        if scale_ is Scale.RATIO:
            axes.axvspan(1 / (1 + delta), 1 + delta, **style)
            most = _MARGIN * max(abs(math.log(end)) for end in (*ends, 1 + delta) if 0 < end < math.inf)
            axes.set_xscale("log")
            axes.set_xlim(math.exp(-most), math.exp(most))
            axes.xaxis.set_minor_locator(NullLocator())
            locator = FixedLocator(ratio_ticks(most))
        else:
            bands = [one.effect.band(delta) for one in marks]
            for place, band in enumerate(bands):
                axes.barh(place, 2 * band, left=-band, height=0.7, **style)
            most = _MARGIN * max(map(abs, (*ends, *bands))) or 1.0
            axes.set_xlim(-most, most)
            locator = MaxNLocator(_DIFFERENCE_TICKS)

        def text(value: float, _place: object) -> str:
            if scale_ is Scale.RATIO:
                return tick_text(value)
            return difference_text(value, objective) if abs(value) > _NOTHING * most else "0"

        axes.axvline(1.0 if scale_ is Scale.RATIO else 0.0, color=BLACK, linewidth=0.9)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(FuncFormatter(text))


def ratio_ticks(most: float) -> list[float]:
    """Round ratios up to exp(most) on either side of 1, far enough apart to be read."""
    kept: list[float] = []
    for tick in reversed([one for one in _TICKS if math.log(one) <= most]):
        place = math.log(tick)
        if place >= _LEAST_GAP * 2 * most and all(math.log(one) - place >= _LEAST_GAP * 2 * most for one in kept):
            kept.append(tick)
    return sorted((*(2 - tick if tick <= _ROUND_BELOW else 1 / tick for tick in kept), 1.0, *kept))


def tick_text(ratio: float) -> str:
    """A ratio on an axis: a percentage below a factor of 2, else a factor."""
    if ratio == 1:
        return "1"
    factor = max(ratio, 1 / ratio)
    if factor < 2:  # noqa: PLR2004 - as the docstring says
        return f"{100 * (ratio - 1):+.3g} %"
    return f"{ratio:g}x" if ratio > 1 else f"1/{factor:g}"


@dataclass(frozen=True)
class RunOrder:
    """Every run of some rows by the number of its trial; values of two hosts never share an axis."""

    result: ComparisonResult
    rows: tuple[ComparedRow, ...]
    title: str = "Every run in the order of measuring, blocks joined"

    @cached_property
    def panels(self) -> tuple[tuple[str, Objective, list[ComparedValue]], ...]:
        """The values of each row on each host, with a title and the objective."""
        found = []
        for row in self.rows:
            hosts = dict.fromkeys(one.host for one in row.in_run_order)
            for host in hosts:
                title = f"{row.label}{f' on {host}' if len(hosts) > 1 else ''}: {_caption(row)}"
                values = [one for one in row.in_run_order if one.host == host]
                found.append((clean(title), row.objective, values))
        return tuple(found)

    def figure(self) -> "Figure":
        """Draw a panel for each setup and host."""
        from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - see drawing.py

        figure = empty(_RUNS_INCHES * len(self.panels) + 0.5)
        rows = figure.subplots(len(self.panels), 1, squeeze=False)
        for (title, objective, values), (axes,) in zip(self.panels, rows, strict=True):
            for round_ in dict.fromkeys(one.round for one in values):
                of_block = [one for one in values if one.round == round_]
                axes.plot([one.n for one in of_block], [one.value for one in of_block], color=GREY, linewidth=0.8,
                          label="a block")  # fmt: skip
            for arm, ink in zip(self.result.arms, INKS * len(self.result.arms), strict=False):
                draw_marks(axes, ((one.n, one.value) for one in values if one.arm == arm.name), ink, clean(arm.name))
            least, most = min(one.value for one in values), max(one.value for one in values)
            logarithmic = least > 0 and most >= LOGARITHMIC_FROM * least
            scale(axes, objective.definition.unit, logarithmic=logarithmic)
            if not logarithmic:
                # From zero, a difference of a few percent would be invisible; dots, unlike bars, need no zero.
                around = 0.1 * (most - least) or 0.05 * abs(most) or 1.0
                axes.set_ylim(least - around, most + around)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_ylabel(axis_label(objective))
            axes.set_title(title)
        rows[-1][0].set_xlabel("number of the trial")
        return finish(figure, self.title)


def plots_of(result: ComparisonResult, metric: str | None = None) -> dict[str, Forest | RunOrder]:
    """The plots of :func:`rows_of` that have something to show, by kind."""
    rows = rows_of(result, metric)
    made: dict[str, Forest | RunOrder] = {"ratios": Forest(result, rows), "runs": RunOrder(result, rows)}
    return {kind: one for kind, one in made.items() if one.panels}
