"""Drawings of what the plots' values say, by matplotlib; PNG and SVG, to be told apart without colours, too.

matplotlib takes longer to load than most commands take in all, so it is loaded when something is drawn.
"""

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from bisector.core.verdict import Verdict
from bisector.report.comparison_plots import Forest, RunOrder, forest_figure, runs_figure
from bisector.report.curves import TOGETHER, CurveLine, CurvePanel, CurvePlot
from bisector.report.nights import Nights, nights_figure
from bisector.report.search_plots import CommitMark, Commits, How
from bisector.report.strokes import (
    BLACK,
    BOTTOM,
    GREY,
    HATCHES,
    INKS,
    SIDES,
    Ink,
    axis_label,
    band,
    empty,
    legend,
    scale,
    threshold,
)
from bisector.report.terminal import verdict_role

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Plot: TypeAlias = CurvePlot | Commits | Nights | Forest | RunOrder


class Picture(StrEnum):
    """The formats of pictures."""

    PNG = "png"
    SVG = "svg"


# The first is that of all jobs together.
_DASHES: tuple[str | tuple[float, tuple[float, ...]], ...] = (
    "-.",
    "-",
    (0, (5, 2)),
    ":",
    (0, (1, 1)),
    (0, (8, 2, 1, 2)),
)
_DISK_HATCHES = ("\\\\\\", "|||")  # beside levels, which have the others
# How a mark is filled says how its figure came about; with "none" only its edge is drawn.
_FILLS = {How.WHOLE: "full", How.EARLY: "bottom", How.SAME: "none", How.NONE: "none"}
_PANEL_INCHES = 2.7
_MOST_NAMES = 70  # of commits below an axis
_DPI = 110


def draw(plot: Plot, picture: Picture, *, transparent: bool = False) -> bytes:
    """The file of a plot; equal plots give equal files."""
    with _styled():
        figure = _figure(plot)
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
def _styled() -> Iterator[None]:
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


def _figure(plot: Plot) -> "Figure":
    match plot:
        case CurvePlot():
            return _curves(plot)
        case Commits():
            return _commits(plot)
        case Nights():
            return nights_figure(plot)
        case Forest():
            return forest_figure(plot)
        case RunOrder():
            return runs_figure(plot)


def _curves(plot: CurvePlot) -> "Figure":
    across, down = max(map(len, plot.rows)), len(plot.rows)
    figure = empty(_PANEL_INCHES * down + 0.5)
    axes = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for row, of_row in zip(plot.rows, axes, strict=True):
        for panel, one in zip(row, of_row, strict=True):
            _panel(one, panel, plot)
    for one in axes[-1]:
        one.set_xlabel("time since the run began (s)")
    each = f"points: means of {plot.interval_s:g} s"
    for of_row in axes:
        of_row[0].set_ylabel(f"{plot.objective.io_direction} {plot.objective.definition.unit} ({each})")
    scale(axes[0][0], plot.objective.definition.unit, logarithmic=plot.logarithmic)
    axes[0][0].set_xlim(left=0)
    figure.suptitle(plot.title, x=0.005, ha="left")
    legend(figure)
    return figure


def _panel(axes: "Axes", panel: CurvePanel, plot: CurvePlot) -> None:
    for disk, hatch in zip(panel.bands, HATCHES, strict=False):
        band(axes, disk.low / _MARGIN, disk.high * _MARGIN, disk.name, hatch)
    for line in panel.lines:
        _line(axes, line, plot.kernels[line.kernel], _ink(plot, line.kernel))
    for stop in panel.stops:
        ink = _ink(plot, stop.kernel)
        axes.axvline(stop.at_s, color=ink.colour, linestyle=(0, (1, 2)), linewidth=1.2)
        label = f"{plot.kernels[stop.kernel]}, stopped early"
        axes.plot(stop.at_s, 0.03, marker=ink.marker, color=ink.colour, linestyle="none", markersize=6,
                  transform=axes.get_xaxis_transform(), label=label)  # fmt: skip
    if panel.threshold is not None:
        threshold(axes, panel.threshold, plot.objective)
    axes.set_title(panel.title)


def _ink(plot: CurvePlot, kernel: int) -> Ink:
    return SIDES[plot.roles[kernel]] if plot.roles else INKS[kernel % len(INKS)]


def _line(axes: "Axes", line: CurveLine, kernel: str, ink: Ink) -> None:
    dashes = _DASHES[line.job % len(_DASHES)]
    what = "all jobs" if line.job == TOGETHER else f"job {line.job}"
    every = max(1, len(line.at_s) // 6)
    axes.plot(line.at_s, line.rates, ink.marker, color=ink.colour, alpha=0.25, markersize=2.5, markeredgewidth=0)
    axes.plot(line.at_s, line.smooth, color=ink.colour, linestyle=dashes, linewidth=1.5,
              marker=ink.marker, markersize=4, markevery=(every // 2, every),
              label=f"{kernel}, {what}")  # fmt: skip


def _commits(plot: Commits) -> "Figure":
    figure = empty(4.6)
    axes = figure.subplots()
    for index, level in enumerate(plot.levels):
        numbered = f"level of {level.trials} whole {'run' if level.trials == 1 else 'runs'}"
        band(axes, level.low / _MARGIN, level.high * _MARGIN, numbered, HATCHES[index % len(HATCHES)])
    for disk, hatch in zip(plot.bands, _DISK_HATCHES, strict=False):
        band(axes, disk.low / _MARGIN, disk.high * _MARGIN, disk.name, hatch)
    scale(axes, plot.objective.definition.unit, logarithmic=True)
    figures = [mark.value for mark in plot.marks if mark.value is not None]
    figures += [value for disk in plot.bands for value in (disk.low, disk.high)]
    axes.set_ylim(min(figures) / 2, max(figures) * 2)
    _marks(axes, plot)
    if plot.threshold is not None:
        threshold(axes, plot.threshold, plot.objective)
    if plot.step is not None:
        axes.axvline(plot.step - 0.5, color=BLACK, linewidth=1.2, linestyle="-", label="the step")
        # On the side that has more room.
        before = plot.step > len(plot.names) / 2
        axes.annotate(f"first {dict(plot.words)[Verdict.NEW]}: {plot.names[plot.step].rpartition(' ')[2]}",
                      (plot.step - 0.5, 1), (-5 if before else 5, -4), xycoords=axes.get_xaxis_transform(),
                      textcoords="offset points", ha="right" if before else "left", va="top", weight="bold",
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0})  # fmt: skip
    # Where not every commit has room for its name, the answer has it all the same.
    every = math.ceil(len(plot.names) / _MOST_NAMES)
    named = [place for place in range(len(plot.names)) if place % every == 0 or place == plot.step]
    axes.set_xticks(named, [plot.names[place] for place in named], rotation=90, family="monospace", fontsize=7)
    axes.set_xlim(-0.7, len(plot.names) - 0.3)
    axes.set_xlabel(plot.axis)
    axes.set_ylabel(axis_label(plot.objective))
    axes.set_title(plot.title)
    legend(figure)
    return figure


_MARGIN = 1.04


def _marks(axes: "Axes", plot: Commits) -> None:
    words = dict(plot.words)
    groups: dict[tuple[Verdict, How], list[CommitMark]] = {}
    for mark in plot.marks:
        groups.setdefault((mark.verdict, mark.how), []).append(mark)
    for (verdict, how), marks in groups.items():
        ink = SIDES[verdict_role(verdict, plot.direction)]
        label = words[verdict] + ("" if how is How.WHOLE or verdict is Verdict.SKIP else f", {how}")
        nowhere = how is How.NONE
        axes.plot(
            [mark.place for mark in marks],
            [BOTTOM if mark.value is None else mark.value for mark in marks],
            ink.marker,
            color=ink.colour,
            fillstyle=_FILLS[how],
            markerfacecoloralt="white",
            markersize=7,
            label=label,
            transform=axes.get_xaxis_transform() if nowhere else axes.transData,
        )
