"""The plot of nights: the values of branches' tips, the limits of no change, levels, and bisections."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count, groupby, pairwise
from typing import TYPE_CHECKING, Any, cast

from bisector.core.printable import clean
from bisector.core.verdict import State
from bisector.nightly.job_history import JobNight, TipResult
from bisector.nightly.trend import Trend
from bisector.report.blocks import Role
from bisector.report.drawing import (
    BLACK,
    GREY,
    LOGARITHMIC_FROM,
    SIDES,
    Ink,
    axis_label,
    draw_marks,
    empty,
    finish,
    scale,
    shaded,
    threshold,
)
from bisector.store.nights import Measurement, Night

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The words of the legend and the mark for each result of a night.
SEEN = {
    TipResult.FIRST: ("tip, compared with nothing yet", Ink(BLACK, "s")),
    TipResult.SAME: ("tip as usual", Ink(BLACK, "o")),
    TipResult.FASTER: ("tip faster", SIDES[Role.BETTER]),
    TipResult.SLOWER: ("tip slower", SIDES[Role.WORSE]),
    "again": ("same tip, not measured again", Ink(GREY, "o", filled=False)),
    TipResult.UNTESTABLE: ("tip cannot be judged", Ink(BLACK, "X")),
    "failed": ("failed", Ink(BLACK, "P")),
    "open": ("not ended", Ink(GREY, "d", filled=False)),
}
_TIP = "tip"  # a trouble in this step means that the tip cannot be judged
_WITHOUT_COMMIT = {State.NARROWED: "narrowed to several", State.FAILED: "no answer"}
_HALF_A_NIGHT = timedelta(hours=12)
_PANEL_INCHES = 3.0
_NUMBER_AT = 0.93  # share of the axes' height
_LEAST_MARGIN = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class NightsPlot:
    """A panel for each of at least one job over the same nights; ``began`` has the time of each night."""

    trends: Sequence[Trend]
    began: Mapping[int, datetime]

    @classmethod
    def of(cls, trends: Sequence[Trend], nights: Sequence[Night]) -> "NightsPlot":
        """The plot of trends over the nights of the record."""
        return cls(trends, {night.n: datetime.fromisoformat(night.started_at) for night in nights})

    @property
    def title(self) -> str:
        """The objectives of the jobs."""
        return f"{' and '.join(dict.fromkeys(trend.objective.label for trend in self.trends))}, night by night"

    def figure(self) -> "Figure":
        """Draw a panel for each job, one below the other; changes are numbered across all panels."""
        figure = empty(_PANEL_INCHES * len(self.trends) + 0.6)
        rows, numbers = figure.subplots(len(self.trends), 1, squeeze=False, sharex=True), count(1)
        times = sorted({self.began[point.night.night] for trend in self.trends for point in trend.points})
        # Limits and levels extend so far to both sides of a night; nights started by hand may be close together.
        around = min([_HALF_A_NIGHT, *((later - earlier) / 2 for earlier, later in pairwise(times))])
        for trend, (axes,) in zip(self.trends, rows, strict=True):
            self._panel(axes, trend, around)
            for (at, words, line), n in zip(self._changes(trend), numbers, strict=False):
                axes.axvline(_date(at), color=BLACK, linestyle=line, linewidth=1, label=f"{n}: {words}")
                axes.text(_date(at), _NUMBER_AT, f"{n}", fontsize=8, ha="center", va="center",
                          transform=axes.get_xaxis_transform(),
                          bbox={"facecolor": "white", "edgecolor": BLACK, "pad": 2.0})  # fmt: skip
        margin = max((times[-1] - times[0]) / 25, _LEAST_MARGIN)
        rows[-1][0].set_xlim(_date(times[0] - margin), _date(times[-1] + margin))
        rows[-1][0].set_xlabel("begin of the night (UTC)")
        return finish(figure, self.title)

    def _panel(self, axes: "Axes", trend: Trend, around: timedelta) -> None:
        """Draw one job; lines join values that can be compared, and a threshold replaces the usual factor."""
        measured = [
            (self.began[point.night.night], point.night, point.night.measured)
            for point in trend.points
            if point.night.measured and _value(point.night, trend)
        ]
        groups = [list(group) for _, group in groupby(measured, key=lambda one: one[2].got)]
        objective, figures = trend.objective, [_value(night, trend) for _, night, _ in measured]
        lines = [one.threshold for *_, one in measured if one.threshold is not None]
        for group in groups:
            values = [_value(night, trend) for _, night, _ in group]
            axes.plot([_date(at) for at, *_ in group], values, color="#999999", linewidth=0.8)
        for ends, limits in _stretches(((at, _usual(night, one)) for at, night, one in measured), around):
            axes.fill_between(ends, *limits, label="within the factor that makes no change", **shaded(edge="#bbbbbb"))
        for ends, line in _stretches(((at, one.threshold) for at, _, one in measured), around):
            threshold(axes, line, objective, ends)
        for group in groups:
            for ends, median in self._levels([at for at, *_ in group], trend, around):
                axes.plot(ends, [median] * 2, color="#009E73", linewidth=2.5, alpha=0.7, label="level (median)")
        for (at, *_), *_ in groups[1:]:
            label = "other settings or another host"
            axes.axvline(_date(at - around), color=GREY, linestyle=":", linewidth=1, label=label)
        seen = list(self._seen(trend))
        for kind, (label, ink) in SEEN.items():
            draw_marks(axes, ((_date(at), value) for what, at, value in seen if what == kind), ink, label)
        logarithmic = bool(figures) and max(figures) / min(figures) >= LOGARITHMIC_FROM
        scale(axes, objective.definition.unit, logarithmic=logarithmic)
        axes.set_ylabel(axis_label(objective))
        if figures:
            least, most = min(*figures, *lines, figures[0]), max(*figures, *lines, figures[0])
            axes.set_ylim(least / 2 if logarithmic else 0, most * (2.5 if logarithmic else 1.3))
        tips = [point.night.tip for point in trend.points if point.night.tip]
        axes.set_title(clean(trend.job + (f": {tips[-1].rev} of {tips[-1].repository}" if tips else "")))

    def _seen(self, trend: Trend) -> Iterator[tuple[str, datetime, float | None]]:
        """The kind of mark of each night, its time, and the value at which it stands."""
        last: float | None = None
        for night in (point.night for point in trend.points):
            at, value = self.began[night.night], _value(night, trend)
            if night.result is not None and night.result is not TipResult.UNTESTABLE:
                yield night.result, at, value or None
            if night.trouble is not None:
                yield (TipResult.UNTESTABLE if night.trouble.step == _TIP else "failed"), at, None
            elif not night.done:
                yield "open", at, None
            elif night.measured is None and last is not None:
                yield "again", at, last
            last = value or last

    def _levels(self, times: Sequence[datetime], trend: Trend, around: timedelta) -> Iterator[tuple[list[Any], float]]:
        """The medians before and after each change of level, among values that can be compared."""
        found = [
            (at, one.change) for one in trend.points if one.change and (at := self.began[one.night.night]) in times
        ]
        if found:
            edges = [*(at - around for at in (times[0], *(at for at, _ in found))), times[-1] + around]
            medians = [found[0][1].before, *(change.after for _, change in found)]
            for ends, median in zip(pairwise(edges), medians, strict=True):
                yield list(map(_date, ends)), median

    def _changes(self, trend: Trend) -> Iterator[tuple[datetime, str, Any]]:
        """The time, the words and the line style of each change: solid for a bisection, dashed for a level alone.

        A bisection stands at the night that first saw the change, whenever it was answered.
        """
        answers = {one.run_dir: one for point in trend.points for one in point.night.concluded}
        for point in trend.points:
            begun, change, measured = point.night.begun, point.change, point.night.measured
            bisection = level = ""
            if begun is not None:
                bisection = "bisection not ended"
                if (answer := answers.get(begun.run_dir)) is not None:
                    bisection = _WITHOUT_COMMIT.get(answer.state, f"from {answer.first_sha[:12]} on")
            if change is not None and measured is not None:
                level = f"{measured.objective.change_text(change.before, change.after)}, p = {change.p:.3f}"
            if bisection or level:
                at = self.began[point.night.night]
                words = ", ".join(filter(None, (f"{at:%Y-%m-%d}", bisection, level)))
                yield at, words, "-" if bisection else (0, (3, 2))


def _date(at: object) -> Any:
    return cast("Any", at)  # matplotlib's stubs accept only numbers


def _value(night: JobNight, trend: Trend) -> float:
    """The value of a night by the panel's objective; 0 if there is none."""
    measured = night.measured
    return measured.value or 0.0 if measured and measured.objective == trend.objective else 0.0


def _usual(night: JobNight, measured: Measurement) -> tuple[float, float] | None:
    """The range of "same" (:func:`bisector.nightly.job_history.classify`); None if a threshold decides."""
    if night.reference is None or measured.threshold is not None:
        return None
    return night.reference.value / night.usual, night.reference.value * night.usual


def _stretches(limits: Iterable[tuple[datetime, Any]], around: timedelta) -> Iterator[tuple[list[Any], Any]]:
    """Both ends of each series of nights with an equal limit, and that limit."""
    for limit, group in groupby(limits, key=lambda one: one[1]):
        if limit is not None:
            times = [at for at, _ in group]
            yield [_date(times[0] - around), _date(times[-1] + around)], limit
