"""Branches' tips from night to night: classes, limits, levels, bisections."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from bisector.core.objective import Objective
from bisector.report.blocks import Role
from bisector.report.drawing import BLACK, BOTTOM, GREY, LOGARITHMIC_FROM, SIDES, Ink, axis_label, empty, finish, scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_INCHES = 3.0
_TOP = 0.93  # of the height of the axes
_MARGIN = timedelta(minutes=10)


class NightSeen(StrEnum):
    """What a night saw of a tip; the value is what the legend says."""

    FIRST = "tip, compared with nothing yet"
    SAME = "tip as usual"
    FASTER = "tip faster"
    SLOWER = "tip slower"
    AGAIN = "same tip, not measured again"
    UNTESTABLE = "tip cannot be judged"
    FAILED = "failed"
    OPEN = "not ended"


@dataclass(frozen=True, slots=True)
class NightMark:
    """What a night saw; ``value`` is what decides, None where there is none by the panel's objective."""

    at: datetime
    seen: NightSeen
    value: float | None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Values that hold in some nights: a line, or a band when the two differ."""

    start: datetime
    end: datetime
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class NightChange:
    """A night from which on something is otherwise, and what is said of it in the picture.

    ``bisection`` is the commit that a bisection named, or how it stands; ``level`` what the test for changes of level
    found. One of them can be empty.
    """

    at: datetime
    bisection: str
    level: str


@dataclass(frozen=True, slots=True)
class NightPanel:
    """One job by one objective: ``lines`` join values that can be compared, ``breaks`` are where others begin.

    ``usual`` is where a tip is the same as what it is compared with, by a factor; with ``thresholds`` these decide.
    """

    title: str
    objective: Objective
    marks: tuple[NightMark, ...]
    lines: tuple[tuple[tuple[datetime, float], ...], ...]
    thresholds: tuple[Stretch, ...]
    usual: tuple[Stretch, ...]
    levels: tuple[Stretch, ...]
    changes: tuple[NightChange, ...]
    breaks: tuple[datetime, ...]


@dataclass(frozen=True, slots=True)
class Nights:
    """A panel for each job, over the same nights."""

    title: str
    panels: tuple[NightPanel, ...]

    def figure(self) -> "Figure":
        """A panel for each job, one below the other."""
        figure = empty(_PANEL_INCHES * len(self.panels) + 0.6)
        rows = figure.subplots(len(self.panels), 1, squeeze=False, sharex=True)
        numbers = count(1)
        for panel, (axes,) in zip(self.panels, rows, strict=True):
            _panel(axes, panel)
            for change, n in zip(panel.changes, numbers, strict=False):
                _change(axes, n, change)
        times = [mark.at for panel in self.panels for mark in panel.marks]
        if times:
            around = max((max(times) - min(times)) / 25, _MARGIN)
            rows[-1][0].set_xlim(_date(min(times) - around), _date(max(times) + around))
        rows[-1][0].set_xlabel("begin of the night (UTC)")
        return finish(figure, self.title)


_INKS = {
    NightSeen.FIRST: Ink(BLACK, "s"),
    NightSeen.SAME: Ink(BLACK, "o"),
    NightSeen.FASTER: SIDES[Role.BETTER],
    NightSeen.SLOWER: SIDES[Role.WORSE],
    NightSeen.AGAIN: Ink(GREY, "o", filled=False),
    NightSeen.UNTESTABLE: Ink(BLACK, "X"),
    NightSeen.FAILED: Ink(BLACK, "P"),
    NightSeen.OPEN: Ink(GREY, "d", filled=False),
}


def _date(at: object) -> Any:
    return cast("Any", at)  # matplotlib's stubs take numbers alone


def _panel(axes: "Axes", panel: NightPanel) -> None:
    figures = [mark.value for mark in panel.marks if mark.value is not None]
    logarithmic = bool(figures) and max(figures) / min(figures) >= LOGARITHMIC_FROM
    for joined in panel.lines:
        axes.plot([_date(at) for at, _ in joined], [value for _, value in joined], color="#999999", linewidth=0.8)
    for band in panel.usual:
        axes.fill_between(_ends(band), band.low, band.high, facecolor="#f2f2f2", edgecolor="#bbbbbb", zorder=0,
                          hatch="///", linewidth=0.6, label="within the factor that makes no change")  # fmt: skip
    for line in panel.thresholds:
        axes.plot(_ends(line), [line.low] * 2, color="#000000", linestyle=(0, (8, 3)), linewidth=0.9,
                  label=f"threshold {panel.objective.text(line.low)}")  # fmt: skip
    for level in panel.levels:
        axes.plot(_ends(level), [level.low] * 2, color="#009E73", linewidth=2.5, alpha=0.7,
                  label="level (median)")  # fmt: skip
    for at in panel.breaks:
        axes.axvline(_date(at), color=GREY, linestyle=":", linewidth=1, label="other settings or another host")
    for seen in NightSeen:
        _marks(axes, seen, [mark for mark in panel.marks if mark.seen is seen])
    scale(axes, panel.objective.definition.unit, logarithmic=logarithmic)
    axes.set_ylabel(axis_label(panel.objective))
    if figures:
        lines = [stretch.low for stretch in panel.thresholds]
        least, most = min(*figures, *lines, figures[0]), max(*figures, *lines, figures[0])
        axes.set_ylim(least / 2 if logarithmic else 0, most * (2.5 if logarithmic else 1.3))
    axes.set_title(panel.title)


def _ends(stretch: Stretch) -> list[Any]:
    return [_date(stretch.start), _date(stretch.end)]


def _marks(axes: "Axes", seen: NightSeen, marks: Sequence[NightMark]) -> None:
    ink = _INKS[seen]
    for nowhere in (False, True):
        group = [mark for mark in marks if (mark.value is None) is nowhere]
        if group:
            axes.plot(
                [_date(mark.at) for mark in group],
                [BOTTOM if mark.value is None else mark.value for mark in group],
                ink.marker,
                color=ink.colour,
                fillstyle="full" if ink.filled else "none",
                markersize=6,
                label=str(seen),
                transform=axes.get_xaxis_transform() if nowhere else axes.transData,
            )


def _change(axes: "Axes", n: int, change: NightChange) -> None:
    """A line with a number that the legend explains; whole for a bisection, dashed for a changed level alone."""
    words = ", ".join(filter(None, (f"{change.at:%Y-%m-%d}", change.bisection, change.level)))
    axes.axvline(_date(change.at), color="#000000", linestyle="-" if change.bisection else (0, (3, 2)), linewidth=1,
                 label=f"{n}: {words}")  # fmt: skip
    axes.text(_date(change.at), _TOP, f"{n}", fontsize=8, ha="center", va="center",
              transform=axes.get_xaxis_transform(), bbox={"facecolor": "white", "edgecolor": "#000000", "pad": 2.0},
              )  # fmt: skip
