"""The plot of a search: the value of each commit in the order of history, with levels, the threshold and the step."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from bisector.analysis.threshold import levels
from bisector.core.objective import SUM
from bisector.core.printable import clean
from bisector.core.subject import Kind
from bisector.core.verdict import Verdict
from bisector.report.blocks import verdict_role
from bisector.report.curves import bands
from bisector.report.document import PlacedTrial, Report
from bisector.report.drawing import (
    BLACK,
    HATCHES,
    SIDES,
    axis_label,
    band,
    draw_marks,
    empty,
    finish,
    scale,
    threshold,
)
from bisector.status.view import LevelView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DISK_HATCHES = ("\\\\\\", "|||")  # unlike those of levels
_MOST_NAMES = 70  # of commits that fit below an axis
_CHANGED = {Kind.REVERTED: "NEW, {} reverted", Kind.PICKED: "OLD, {} added"}


class How(StrEnum):
    """How a commit got its value."""

    WHOLE = "measured"
    EARLY = "stopped early"
    SAME = "same kernel as another commit"
    NONE = "not measured"


# The filling of a mark says how its value was obtained; "none" draws the edge alone.
FILLS = {How.WHOLE: "full", How.EARLY: "bottom", How.SAME: "none", How.NONE: "none"}


@dataclass(frozen=True, slots=True)
class CommitsPlot:
    """All trials of a report in the order of its rows, changed ends last; at least one trial has a value."""

    report: Report

    @property
    def title(self) -> str:
        """The range and the order of its commits, which is by date if there is no repository."""
        return f"{self.report.asked.span}, commits {'in the order of history' if self._placed else 'by date'}"

    @property
    def _placed(self) -> bool:
        return all(row.place is not None for row in self.report.rows if row.shown.trial.subject.is_commit)

    def figure(self) -> "Figure":
        """Draw the marks over the commits, with levels, disks, the threshold and the step."""
        view, rows = self.report.bisection, self.report.rows
        objective = view.objective
        ordered = sorted(rows, key=lambda row: not row.shown.trial.subject.is_commit)
        names = {row.sha: _name(row) for row in ordered}
        figure = empty(4.6)
        axes = figure.subplots()
        for level, hatch in zip(self._levels(), HATCHES * len(rows), strict=False):
            runs = "run" if level.trials == 1 else "runs"
            band(axes, level.low, level.high, f"level of {level.trials} whole {runs}", hatch)
        figures = [row.shown.value for row in rows if row.shown.value is not None]
        disks = bands(view.baselines, objective, together=objective.over == SUM)
        for (disk, low, high), hatch in zip(disks, _DISK_HATCHES, strict=False):
            band(axes, low, high, disk, hatch)
            figures += [low, high]
        scale(axes, objective.definition.unit, logarithmic=True)
        axes.set_ylim(min(figures) / 2, max(figures) * 2)
        self._draw_marks(axes, list(names))
        if view.threshold is not None:
            threshold(axes, view.threshold, objective)
        step = self._draw_step(axes, list(names))
        # If not every commit has room for its name, the answer is still named.
        every = math.ceil(len(names) / _MOST_NAMES)
        named = {place: name for place, name in enumerate(names.values()) if place % every == 0 or place == step}
        axes.set_xticks(list(named), list(named.values()), rotation=90, family="monospace", fontsize=7)
        axes.set_xlim(-0.7, len(names) - 0.3)
        axes.set_xlabel("commit (place counted from the old end: hash)" if self._placed else "commit")
        axes.set_ylabel(axis_label(objective))
        return finish(figure, self.title)

    def _levels(self) -> Iterator[LevelView]:
        """The levels of whole runs."""
        objective, found = self.report.bisection.objective, defaultdict[str, list[float]](list)
        for row in self.report.rows:
            value, judged = row.shown.value, row.verdict in (Verdict.OLD, Verdict.NEW)
            if value is not None and judged and row.shown.trial.stopped_early is None:
                found[row.sha].append(objective.score(value))
        return (LevelView.of(level, objective) for level in levels(dict(found)))

    def _draw_marks(self, axes: "Axes", shas: Sequence[str]) -> None:
        view = self.report.bisection
        values = {row.sha: row.shown.value for row in self.report.rows if row.shown.value is not None}
        groups: defaultdict[tuple[Verdict, How], list[tuple[int, float | None]]] = defaultdict(list)
        for row in self.report.rows:
            how, value, trial = How.NONE, row.shown.value, row.shown.trial
            if trial.same_kernel_as is not None:
                value = values.get(trial.same_kernel_as)
                how = How.SAME if value is not None else How.NONE
            elif value is not None:
                how = How.WHOLE if trial.stopped_early is None else How.EARLY
            groups[row.verdict, how].append((shas.index(row.sha), value))
        for (verdict, how), points in groups.items():
            label = view.terms.word(verdict) + ("" if how is How.WHOLE or verdict is Verdict.SKIP else f", {how}")
            draw_marks(axes, points, SIDES[verdict_role(verdict, view.direction)], label, FILLS[how])

    def _draw_step(self, axes: "Axes", shas: Sequence[str]) -> int | None:
        """Draw a line directly before the answer if an old commit precedes it; return the answer's position then."""
        view = self.report.bisection
        if view.first_fixed is None or view.first_fixed.sha not in shas:
            return None
        new = shas.index(view.first_fixed.sha)
        if not any(row.verdict is Verdict.OLD and shas.index(row.sha) < new for row in self.report.rows):
            return None
        axes.axvline(new - 0.5, color=BLACK, linewidth=1.2, linestyle="-", label="the step")
        before = new > len(shas) / 2  # the text goes to the side with more room
        axes.annotate(f"first {view.terms.new}: {clean(view.first_fixed.short)}",
                      (new - 0.5, 1), (-5 if before else 5, -4), xycoords=axes.get_xaxis_transform(),
                      textcoords="offset points", ha="right" if before else "left", va="top", weight="bold",
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0})  # fmt: skip
        return new


def _name(row: PlacedTrial) -> str:
    trial = row.shown.trial
    if trial.subject.changed_by is not None:
        return _CHANGED[trial.subject.kind].format(clean(trial.subject.changed_by[:12]))
    place = "" if row.place is None else f"{row.place:,}: "
    return f"{place}{clean(trial.commit.short)}"


def commits(report: Report) -> CommitsPlot | None:
    """The plot of a report; None if no trial has a value."""
    return CommitsPlot(report) if any(row.shown.value is not None for row in report.rows) else None
