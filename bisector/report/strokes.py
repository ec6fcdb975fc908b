"""What all pictures have in common: inks that are told apart without colours, figures, axes of a metric, a legend.

matplotlib is loaded when something is drawn (:mod:`bisector.report.drawing`).
"""

import math
from typing import TYPE_CHECKING, NamedTuple

from bisector.core.metric import Unit
from bisector.core.objective import Objective
from bisector.report.terminal import Role

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Ink(NamedTuple):
    """What a thing is drawn with: a colour of Okabe and Ito's, told apart by all, and a marker, filled or not."""

    colour: str
    marker: str
    filled: bool = True


BLACK, GREY = "#000000", "#555555"
_BLUE, _ORANGE = "#0072B2", "#D55E00"
# Of what is on no side: none of these says better or worse.
INKS = (Ink(BLACK, "o"), Ink("#009E73", "s"), Ink("#CC79A7", "D"), Ink(GREY, "P"))
# By which side is better; red and green are not told apart by everybody.
SIDES = {
    Role.BETTER: Ink(_BLUE, "^"),
    Role.WORSE: Ink(_ORANGE, "v"),
    Role.WEAK: Ink(GREY, "d"),
    Role.SKIP: Ink(BLACK, "X"),
    Role.PLAIN: Ink(BLACK, "o"),
}
HATCHES = ("///", "...")
WIDTH_INCHES = 10.0  # of every picture, so that letters have one size
_LETTER_INCHES, _HANDLE_INCHES, _ENTRY_INCHES = 0.052, 0.55, 0.16
BOTTOM = 0.03  # of the height of the axes: what has no figure stands below those that have one


def empty(height: float) -> "Figure":
    """A figure of that height in inches, drawn by Agg or as SVG: no window, no state that is shared."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - see above

    return Figure(figsize=(WIDTH_INCHES, height), layout="constrained")


def legend(figure: "Figure") -> None:
    """One for all panels, below them, in as many columns as there is room for; the figure grows by its height."""
    of_panels = [axes.get_legend_handles_labels() for axes in figure.axes]
    by_label = {label: handle for handles, labels in of_panels for handle, label in zip(handles, labels, strict=True)}
    if not by_label:
        return
    each = _HANDLE_INCHES + _LETTER_INCHES * max(map(len, by_label))
    columns = max(1, min(len(by_label), int(WIDTH_INCHES / each)))
    figure.set_figheight(figure.get_figheight() + _ENTRY_INCHES * math.ceil(len(by_label) / columns))
    figure.legend(
        list(by_label.values()), list(by_label), fontsize=7, loc="outside lower left", ncols=columns, frameon=False
    )


def band(axes: "Axes", low: float, high: float, label: str, hatch: str) -> None:
    """A band that can be seen even when it has no width."""
    axes.axhspan(low, high, facecolor="#f2f2f2", edgecolor="#999999", hatch=hatch, linewidth=0.8, label=label, zorder=0)


def threshold(axes: "Axes", value: float, objective: Objective) -> None:
    """The line between the two sides."""
    label = f"threshold {objective.text(value)}"
    axes.axhline(value, color="#000000", linestyle=(0, (8, 3)), linewidth=0.9, label=label)


def axis_label(objective: Objective) -> str:
    """The metric, and its unit where :func:`tick` does not write it."""
    unit = objective.definition.unit
    return f"{objective.label}, {unit}" if unit in _IN_LABEL else objective.label


def tick(value: float, unit: Unit) -> str:
    """A value as it stands on an axis: a plain number of I/Os, else one with its unit."""
    if unit not in _IN_LABEL:
        return unit.text(value) if value else "0"
    return f"{value:,.0f}" if value >= _COMMAS_FROM else f"{value:g}"


_IN_LABEL = (Unit.IOPS, Unit.COUNT)
_COMMAS_FROM = 1000


def scale(axes: "Axes", unit: Unit, *, logarithmic: bool) -> None:
    """Plain figures on the axis of values, whichever scale it has; a linear one begins at nothing."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator  # noqa: PLC0415 - see above

    if logarithmic:
        axes.set_yscale("log", nonpositive="clip")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        highest = axes.dataLim.y1 if math.isfinite(axes.dataLim.y1) else 0.0
        axes.set_ylim(0, max(axes.get_ylim()[1], 1.05 * highest))  # else a steady curve lies on the frame
        if unit in _IN_LABEL:  # there are no halves of them on an axis, unless it is shorter than one
            axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value, unit)))
