"""The plot of a search: the value of each commit in the order of history, with levels, the threshold and the step.

Values, which tests compare, and which draw themselves.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from bisector.analysis.threshold import levels
from bisector.core.objective import SUM, Objective
from bisector.core.printable import clean
from bisector.core.subject import Kind
from bisector.core.verdict import Direction, Verdict
from bisector.report.blocks import verdict_role
from bisector.report.curves import Band, bands
from bisector.report.document import PlacedTrial, Report
from bisector.report.drawing import (
    BLACK,
    BOTTOM,
    HATCHES,
    MARGIN,
    SIDES,
    axis_label,
    band,
    empty,
    legend,
    scale,
    threshold,
)
from bisector.status.view import LevelView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIDES = (Verdict.OLD, Verdict.NEW)
# Without a repository the dates are all there is (bisector.report.reporting).
_ORDERS = {True: "in the order of history", False: "by date"}
_DISK_HATCHES = ("\\\\\\", "|||")  # beside levels, which have the others
_MOST_NAMES = 70  # of commits below an axis
_CHANGED = {Kind.REVERTED: "NEW, {} reverted", Kind.PICKED: "OLD, {} added"}


class How(StrEnum):
    """How a commit came to its figure."""

    WHOLE = "measured"
    EARLY = "stopped early"
    SAME = "same kernel as another commit"
    NONE = "not measured"


# How a mark is filled says how its figure came about; with "none" only its edge is drawn.
FILLS = {How.WHOLE: "full", How.EARLY: "bottom", How.SAME: "none", How.NONE: "none"}


@dataclass(frozen=True, slots=True)
class CommitMark:
    """A trial: ``place`` is that of its commit among those drawn, ``value`` that of its last run by the objective."""

    place: int
    n: int
    verdict: Verdict
    how: How
    value: float | None


@dataclass(frozen=True, slots=True)
class Commits:
    """Marks over ``names`` (one for each place), with the words for verdicts.

    ``levels`` are those of whole runs, ``bands`` what the disks do without a cache. ``step`` is the place of the
    answer, which the step is directly before; None while there is no answer.
    """

    title: str
    axis: str
    names: tuple[str, ...]
    marks: tuple[CommitMark, ...]
    objective: Objective
    levels: tuple[LevelView, ...]
    threshold: float | None
    step: int | None
    words: tuple[tuple[Verdict, str], ...]
    bands: tuple[Band, ...] = ()
    direction: Direction | None = None

    def figure(self) -> "Figure":
        """The marks over the commits, with levels, disks, the threshold and the step."""
        figure = empty(4.6)
        axes = figure.subplots()
        for index, level in enumerate(self.levels):
            numbered = f"level of {level.trials} whole {'run' if level.trials == 1 else 'runs'}"
            band(axes, level.low / MARGIN, level.high * MARGIN, numbered, HATCHES[index % len(HATCHES)])
        for disk, hatch in zip(self.bands, _DISK_HATCHES, strict=False):
            band(axes, disk.low / MARGIN, disk.high * MARGIN, disk.name, hatch)
        scale(axes, self.objective.definition.unit, logarithmic=True)
        figures = [mark.value for mark in self.marks if mark.value is not None]
        figures += [value for disk in self.bands for value in (disk.low, disk.high)]
        axes.set_ylim(min(figures) / 2, max(figures) * 2)
        self._draw_marks(axes)
        if self.threshold is not None:
            threshold(axes, self.threshold, self.objective)
        if self.step is not None:
            axes.axvline(self.step - 0.5, color=BLACK, linewidth=1.2, linestyle="-", label="the step")
            # On the side that has more room.
            before = self.step > len(self.names) / 2
            axes.annotate(f"first {dict(self.words)[Verdict.NEW]}: {self.names[self.step].rpartition(' ')[2]}",
                          (self.step - 0.5, 1), (-5 if before else 5, -4), xycoords=axes.get_xaxis_transform(),
                          textcoords="offset points", ha="right" if before else "left", va="top", weight="bold",
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0})  # fmt: skip
        # Where not every commit has room for its name, the answer has it all the same.
        every = math.ceil(len(self.names) / _MOST_NAMES)
        named = [place for place in range(len(self.names)) if place % every == 0 or place == self.step]
        axes.set_xticks(named, [self.names[place] for place in named], rotation=90, family="monospace", fontsize=7)
        axes.set_xlim(-0.7, len(self.names) - 0.3)
        axes.set_xlabel(self.axis)
        axes.set_ylabel(axis_label(self.objective))
        axes.set_title(self.title)
        legend(figure)
        return figure

    def _draw_marks(self, axes: "Axes") -> None:
        words = dict(self.words)
        groups: defaultdict[tuple[Verdict, How], list[CommitMark]] = defaultdict(list)
        for mark in self.marks:
            groups[mark.verdict, mark.how].append(mark)
        for (verdict, how), marks in groups.items():
            ink = SIDES[verdict_role(verdict, self.direction)]
            axes.plot(
                [mark.place for mark in marks],
                [BOTTOM if mark.value is None else mark.value for mark in marks],
                ink.marker,
                color=ink.colour,
                fillstyle=FILLS[how],
                markerfacecoloralt="white",
                markersize=7,
                label=words[verdict] + ("" if how is How.WHOLE or verdict is Verdict.SKIP else f", {how}"),
                transform=axes.get_xaxis_transform() if how is How.NONE else axes.transData,
            )


def commits(report: Report) -> Commits | None:
    """All trials of a report, in its rows' order, changed ends last; None before there is a figure."""
    ordered = sorted(report.rows, key=lambda row: not row.shown.trial.subject.is_commit)
    shas = list(dict.fromkeys(row.sha for row in ordered))
    figures = {row.sha: row.shown.value for row in report.rows if row.shown.value is not None}
    if not figures:
        return None
    terms, objective = report.bisection.terms, report.bisection.objective
    placed = all(row.place is not None for row in ordered if row.shown.trial.subject.is_commit)
    names = {row.sha: _name(row) for row in report.rows}
    return Commits(
        title=f"{report.asked.span}, commits {_ORDERS[placed]}",
        axis="commit (place counted from the old end: hash)" if placed else "commit",
        names=tuple(names[sha] for sha in shas),
        marks=tuple(_mark(row, shas, figures) for row in report.rows),
        objective=objective,
        levels=tuple(LevelView.of(level, objective) for level in levels(_whole(report.rows, objective))),
        threshold=report.bisection.threshold,
        step=_step(report, shas),
        words=tuple((verdict, terms.word(verdict)) for verdict in Verdict),
        bands=tuple(bands(report.bisection.baselines, objective, together=objective.over == SUM)),
        direction=report.bisection.direction,
    )


def _name(row: PlacedTrial) -> str:
    trial = row.shown.trial
    if trial.subject.changed_by is not None:
        return _CHANGED[trial.subject.kind].format(clean(trial.subject.changed_by[:12]))
    place = "" if row.place is None else f"{row.place:,}: "
    return f"{place}{clean(trial.commit.short)}"


def _whole(rows: Sequence[PlacedTrial], objective: Objective) -> dict[str, list[float]]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        value = row.shown.value
        if value is not None and row.shown.verdict in _SIDES and row.shown.trial.stopped_early is None:
            found[row.sha].append(objective.score(value))
    return dict(found)


def _mark(row: PlacedTrial, shas: Sequence[str], figures: dict[str, float]) -> CommitMark:
    trial = row.shown.trial
    how, value = How.NONE, row.shown.value
    if trial.same_kernel_as is not None:
        value = figures.get(trial.same_kernel_as)
        how = How.SAME if value is not None else How.NONE
    elif value is not None:
        how = How.WHOLE if trial.stopped_early is None else How.EARLY
    return CommitMark(shas.index(trial.commit.sha), row.shown.n, row.shown.verdict, how, value)


def _step(report: Report, shas: Sequence[str]) -> int | None:
    """That of the answer, if there is an old side before it."""
    first = report.bisection.first_fixed
    if first is None or first.sha not in shas:
        return None
    new = shas.index(first.sha)
    old_before = any(row.verdict is Verdict.OLD and shas.index(row.sha) < new for row in report.rows)
    return new if old_before else None
