"""Pictures by matplotlib, PNG and SVG: the door, and what all of them have in common.

A plot is a value (:class:`Plot`) that draws itself with what is here, to be told apart without colours, too. matplotlib
takes longer to load than most commands take in all, so it is loaded when something is drawn.
"""

import io
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bisector.core.metric import Unit
from bisector.core.objective import Objective
from bisector.report.blocks import Role

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Picture(StrEnum):
    """The formats of pictures."""

    PNG = "png"
    SVG = "svg"


class Plot(Protocol):
    """What can be drawn."""

    @property
    def title(self) -> str:
        """What it shows, in a line."""
        ...

    def figure(self) -> "Figure":
        """The picture as matplotlib has it, drawn within the style of :func:`draw`."""
        ...


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
_MARGIN = 1.04  # by which a band is wider than its values
LOGARITHMIC_FROM = 3.0  # from this factor between the least and the largest figure on, equal lengths are equal ratios
WIDTH_INCHES = 10.0  # of every picture, so that letters have one size
_LETTER_INCHES, _HANDLE_INCHES, _ENTRY_INCHES = 0.052, 0.55, 0.16
_BOTTOM = 0.03  # of the height of the axes: what has no figure stands below those that have one


def empty(height: float) -> "Figure":
    """A figure of that height in inches, drawn by Agg or as SVG: no window, no state that is shared."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - see above

    return Figure(figsize=(WIDTH_INCHES, height), layout="constrained")


def finish(figure: "Figure", title: str) -> "Figure":
    """A figure with its title, and one legend of all panels below them, by whose height it grows."""
    figure.suptitle(title, x=0.005, ha="left")
    of_panels = [axes.get_legend_handles_labels() for axes in figure.axes]
    by_label = {label: handle for handles, labels in of_panels for handle, label in zip(handles, labels, strict=True)}
    if not by_label:
        return figure
    each = _HANDLE_INCHES + _LETTER_INCHES * max(map(len, by_label))
    columns = max(1, min(len(by_label), int(WIDTH_INCHES / each)))
    figure.set_figheight(figure.get_figheight() + _ENTRY_INCHES * math.ceil(len(by_label) / columns))
    figure.legend(
        list(by_label.values()), list(by_label), fontsize=7, loc="outside lower left", ncols=columns, frameon=False
    )
    return figure


def band(axes: "Axes", low: float, high: float, label: str, hatch: str) -> None:
    """Values from the least to the largest; the band is wider than they are, to be seen when they are alike."""
    axes.axhspan(low / _MARGIN, high * _MARGIN, label=label, **shaded(hatch))


def shaded(hatch: str = HATCHES[0], edge: str = "#999999") -> dict[str, Any]:
    """What a band looks like, behind all else."""
    return {"facecolor": "#f2f2f2", "edgecolor": edge, "hatch": hatch, "linewidth": 0.8, "zorder": 0}


def draw_marks(
    axes: "Axes", points: Iterable[tuple[Any, float | None]], ink: Ink, label: str, fill: str | None = None
) -> None:
    """Markers of one kind; what has no value stands below those that have one."""
    points = list(points)
    for nowhere in (False, True):
        group = [(x, _BOTTOM if y is None else y) for x, y in points if (y is None) is nowhere]
        if group:
            axes.plot(*zip(*group, strict=True), ink.marker, color=ink.colour, markersize=6.5, label=label,
                      fillstyle=fill or ("full" if ink.filled else "none"), markerfacecoloralt="white",
                      transform=axes.get_xaxis_transform() if nowhere else axes.transData)  # fmt: skip


def threshold(axes: "Axes", value: float, objective: Objective, ends: Sequence[Any] = ()) -> None:
    """The line between the two sides, from end to end of the axes or of what is given."""
    style: dict[str, Any] = {"color": BLACK, "linestyle": (0, (8, 3)), "linewidth": 0.9}
    style["label"] = f"threshold {objective.text(value)}"
    if ends:
        axes.plot(ends, [value] * len(ends), **style)
    else:
        axes.axhline(value, **style)


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


_DPI = 110


def draw(plot: Plot, picture: Picture, *, transparent: bool = False) -> bytes:
    """The file of a plot; equal plots give equal files."""
    with styled():
        figure = plot.figure()
        file = io.BytesIO()
        # Without a date, so that nothing but the content decides.
        figure.savefig(file, format=picture.value, dpi=_DPI, metadata=_METADATA[picture], transparent=transparent)
    return file.getvalue()


def following(plot: Plot) -> bytes:
    """A plot as SVG without a background, whose colours follow the reader's light or dark scheme (mediaqueries-5)."""
    rules = "".join(
        f'[style*="{name}: {light}"],[{name}="{light}"]{{{name}:{dark}!important}}'
        for light, dark in _IN_THE_DARK
        for name in _PAINTS
    )
    # What is black has no fill of its own, and inherits this one.
    rules += f"svg{{fill:{_LETTERS}}}image{{filter:invert(.9)}}"
    style = f"<style>@media {DARK}{{{rules}}}</style>"
    head, tag, rest = draw(plot, Picture.SVG, transparent=True).partition(b"<svg ")
    opening, end, content = rest.partition(b">")
    return head + tag + opening + end + style.encode() + content


DARK = "(prefers-color-scheme:dark)"
_PAINTS = ("fill", "stroke")
_LETTERS = "#ececec"
_IN_THE_DARK = (
    ("#000000", _LETTERS),
    ("#ffffff", "#161616"),
    (GREY, "#b4b4b4"),
    ("#999999", "#8a8a8a"),
    ("#bbbbbb", "#6a6a6a"),
    ("#dddddd", "#3a3a3a"),
    ("#f2f2f2", "#262626"),
    ("#0072b2", "#7cc4f0"),
    ("#d55e00", "#ffa366"),
    ("#009e73", "#4fd0a5"),
    ("#cc79a7", "#e39cc4"),
)


_METADATA: dict[Picture, dict[str, str | None]] = {
    Picture.PNG: {"Software": None},
    Picture.SVG: {"Date": None, "Creator": None, "Format": None, "Type": None},
}


@contextmanager
def styled() -> Iterator[None]:
    """Our style and no other: a person's matplotlibrc would make other pictures of the same record."""
    import matplotlib  # noqa: PLC0415 - see above

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "font.size": 8.0,
                "axes.titlesize": 8.0,
                "axes.titlelocation": "left",
                "figure.titlesize": 9.0,
                "svg.fonttype": "none",
                "svg.hashsalt": "bisector",
                "font.family": "sans-serif",
                "axes.grid": True,
                "grid.color": "#dddddd",
                "grid.linewidth": 0.5,
                "hatch.linewidth": 0.4,
                "axes.axisbelow": True,
                "legend.framealpha": 0.9,
                "legend.handlelength": 3.5,
                "text.parse_math": False,
                "date.converter": "concise",
            }
        )
        yield
