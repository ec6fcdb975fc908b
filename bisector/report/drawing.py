"""The entry to matplotlib: PNG and SVG files of plots, and what all plots have in common.

A plot is a value (:class:`Plot`) that draws itself with the functions below, and is readable without colours.
matplotlib takes longer to load than most commands take in all, so it is imported only when something is drawn.
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
    """A picture that can be drawn."""

    @property
    def title(self) -> str:
        """One line that says what the plot shows."""
        ...

    def figure(self) -> "Figure":
        """Return the picture as a matplotlib figure, drawn within the style of :func:`draw`."""
        ...


class Ink(NamedTuple):
    """A colour of Okabe and Ito's palette, which everybody can tell apart, and a marker, filled or not."""

    colour: str
    marker: str
    filled: bool = True


BLACK, GREY = "#000000", "#555555"
_BLUE, _ORANGE = "#0072B2", "#D55E00"
# For marks that are on neither side: these do not mean better or worse.
INKS = (Ink(BLACK, "o"), Ink("#009E73", "s"), Ink("#CC79A7", "D"), Ink(GREY, "P"))
# By role. Not red and green, which some people cannot tell apart.
SIDES = {
    Role.BETTER: Ink(_BLUE, "^"),
    Role.WORSE: Ink(_ORANGE, "v"),
    Role.WEAK: Ink(GREY, "d"),
    Role.SKIP: Ink(BLACK, "X"),
    Role.PLAIN: Ink(BLACK, "o"),
}
HATCHES = ("///", "...")
_MARGIN = 1.04  # factor by which a band exceeds its values on either side
LOGARITHMIC_FROM = 3.0  # the ratio of the largest to the least value from which on an axis is logarithmic
WIDTH_INCHES = 10.0  # of every picture, so that letters have one size
_LETTER_INCHES, _HANDLE_INCHES, _ENTRY_INCHES = 0.052, 0.55, 0.16
_BOTTOM = 0.03  # share of the axes' height at which marks without a value stand


def empty(height: float) -> "Figure":
    """An empty figure of this height in inches, for Agg or SVG: it opens no window and shares no state."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - see above

    return Figure(figsize=(WIDTH_INCHES, height), layout="constrained")


def finish(figure: "Figure", title: str) -> "Figure":
    """Add the title, and one legend of all panels below them, by which the figure becomes higher."""
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
    """Draw a band of values, slightly wider than they are, so that it is visible even if they are equal."""
    axes.axhspan(low / _MARGIN, high * _MARGIN, label=label, **shaded(hatch))


def shaded(hatch: str = HATCHES[0], edge: str = "#999999") -> dict[str, Any]:
    """The look of a band, behind everything else."""
    return {"facecolor": "#f2f2f2", "edgecolor": edge, "hatch": hatch, "linewidth": 0.8, "zorder": 0}


def draw_marks(
    axes: "Axes", points: Iterable[tuple[Any, float | None]], ink: Ink, label: str, fill: str | None = None
) -> None:
    """Draw markers of one kind; points without a value stand at the bottom."""
    points = list(points)
    for nowhere in (False, True):
        group = [(x, _BOTTOM if y is None else y) for x, y in points if (y is None) is nowhere]
        if group:
            axes.plot(*zip(*group, strict=True), ink.marker, color=ink.colour, markersize=6.5, label=label,
                      fillstyle=fill or ("full" if ink.filled else "none"), markerfacecoloralt="white",
                      transform=axes.get_xaxis_transform() if nowhere else axes.transData)  # fmt: skip


def threshold(axes: "Axes", value: float, objective: Objective, ends: Sequence[Any] = ()) -> None:
    """Draw the threshold, across the axes or between the given ``ends``."""
    style: dict[str, Any] = {"color": BLACK, "linestyle": (0, (8, 3)), "linewidth": 0.9}
    style["label"] = f"threshold {objective.text(value)}"
    if ends:
        axes.plot(ends, [value] * len(ends), **style)
    else:
        axes.axhline(value, **style)


def axis_label(objective: Objective) -> str:
    """The metric, with its unit unless :func:`tick` writes it."""
    unit = objective.definition.unit
    return f"{objective.label}, {unit}" if unit in _IN_LABEL else objective.label


def tick(value: float, unit: Unit) -> str:
    """A value on an axis, with its unit unless :func:`axis_label` has it."""
    if unit not in _IN_LABEL:
        return unit.text(value) if value else "0"
    return f"{value:,.0f}" if value >= _COMMAS_FROM else f"{value:g}"


_IN_LABEL = (Unit.IOPS, Unit.COUNT)
_COMMAS_FROM = 1000


def scale(axes: "Axes", unit: Unit, *, logarithmic: bool) -> None:
    """Make the axis of values write plain values; a linear axis begins at zero."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator  # noqa: PLC0415 - see above

    if logarithmic:
        axes.set_yscale("log", nonpositive="clip")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        highest = axes.dataLim.y1 if math.isfinite(axes.dataLim.y1) else 0.0
        axes.set_ylim(0, max(axes.get_ylim()[1], 1.05 * highest))  # else a steady curve would lie on the frame
        if unit in _IN_LABEL:  # whole I/Os, unless the axis is shorter than one
            axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value, unit)))


_DPI = 110


def draw(plot: Plot, picture: Picture, *, transparent: bool = False) -> bytes:
    """The file of a plot; equal plots give equal files."""
    with styled():
        figure = plot.figure()
        file = io.BytesIO()
        # No date, so that the file depends on nothing but the plot.
        figure.savefig(file, format=picture.value, dpi=_DPI, metadata=_METADATA[picture], transparent=transparent)
    return file.getvalue()


def following(plot: Plot) -> bytes:
    """The plot as SVG without a background, whose colours follow the reader's light or dark scheme (mediaqueries-5)."""
    rules = "".join(
        f'[style*="{name}: {light}"],[{name}="{light}"]{{{name}:{dark}!important}}'
        for light, dark in _IN_THE_DARK
        for name in _PAINTS
    )
    # Black shapes have no fill of their own and inherit this one.
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
    """Apply bisector's style alone: with a person's matplotlibrc, the same record would give other pictures."""
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
