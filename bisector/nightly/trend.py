"""The history of nights as tables, as documents (``--json``) and as a plot."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count, groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import numpy as np

from bisector.analysis.levels import ALPHA, LevelChange, changes
from bisector.core import units
from bisector.core.json_document import ABSENT, SCHEMA, Absent, JsonObject
from bisector.core.objective import WORST, Objective
from bisector.core.printable import clean
from bisector.core.subject import Commit
from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.nightly.job_history import JobNight, Reference, TipResult, replay
from bisector.report.blocks import Block, Column, Paragraph, Role, Row, Table
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
from bisector.store.nights import JobTrouble, Measurement, Night, NightEnding, NightEvent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_ROLES = {TipResult.SLOWER: Role.WORSE, TipResult.FASTER: Role.BETTER, TipResult.UNTESTABLE: Role.SKIP}
TEST = "circular binary segmentation on ranks; p from random orders"
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
class Trend:
    """A job's nights, oldest first."""

    job: str
    nights: tuple[JobNight, ...]

    @property
    def objective(self) -> Objective:
        """The objective of the last night that measured something."""
        measured = [one.measured for one in self.nights if one.measured]
        return measured[-1].objective if measured else Objective()


def trends(events: Sequence[NightEvent], only: str | None = None) -> tuple[Trend, ...]:
    """The trends of the jobs, by name; changes of level are looked for only among values that can be compared."""
    found = []
    for job in sorted({event.job for event in events if only in (None, event.job)}):
        history = replay(event for event in events if event.job == job)
        figures = [(one.night, one.measured) for one in history.nights if one.measured and one.measured.value]
        begun: dict[int, LevelChange] = {}
        for _, alike in groupby(figures, key=lambda one: one[1].comparability):
            nights = list(alike)
            levels = changes(np.array([measured.value for _, measured in nights]))
            begun |= {nights[change.at][0]: change for change in levels}
        found.append(Trend(job, tuple(replace(one, level_change=begun.get(one.night)) for one in history.nights)))
    return tuple(found)


def trend_blocks(shown: Iterable[Trend], nights: Sequence[Night]) -> Iterator[Block]:
    """A table for each job, and below it sentences about the changes of level."""
    started = {night.n: night.started_at[:16].replace("T", " ") for night in nights}
    for trend in shown:
        tip = next((one.tip for one in reversed(trend.nights) if one.tip), None)
        where = f": {tip.rev} of {tip.repository}, {tip.rule}, {tip.wanted}" if tip else ""
        columns = (Column("night"), Column("tip"), Column(trend.objective.heading, figures=True),
                   Column("class", verdict=True), Column(""))  # fmt: skip
        yield Table(columns, tuple(_row(one, started) for one in trend.nights), caption=f"{trend.job}{where}")
        for one in trend.nights:
            change, measured = one.level_change, one.measured
            if change is not None and measured is not None:
                when, objective = started.get(one.night, one.at), measured.objective
                values = f"{objective.text(change.after)} instead of {objective.text(change.before)}"
                said = f"* from {when} on {values} ({objective.label}, medians), p = {change.p:.3f}"
                yield Paragraph(said, Role.WEAK)


def _row(night: JobNight, started: Mapping[int, str]) -> Row:
    cells = (
        started.get(night.night, night.at),
        night.tip.sha[:12] if night.tip else units.UNKNOWN,
        (_night_figures(night.measured, night.trial) if night.measured else units.UNKNOWN)
        + ("*" if night.level_change else " "),
        str(night.result or ("as before" if night.done else "")),
        _event(night),
    )
    return Row(cells, role=_ROLES.get(night.result, Role.PLAIN) if night.result else Role.DIM)


def _night_figures(measured: Measurement, trial: Trial | None) -> str:
    """The worst and the best job of the last run, or the deciding value if the worst job does not decide."""
    if measured.value is None:
        return units.UNKNOWN
    objective = measured.objective
    jobs = [one.value for one in objective.of_jobs(trial.runs[-1])] if trial is not None and trial.runs else []
    shown = objective.worst_first(jobs) if objective.over == WORST and jobs else [measured.value]
    return " / ".join(map(objective.cell, (shown[0], shown[-1]) if shown[1:] else shown))


def _event(night: JobNight) -> str:
    if night.trouble is not None:
        return f"{night.trouble.step} failed: {night.trouble.message}"
    for concluded in night.concluded:
        return concluded.message
    if night.begun is not None:
        return f"bisection begun: {night.begun.run_dir}"
    return "" if night.done else "not ended"


# As documents


class NightFigure(JsonObject, frozen=True, kw_only=True):
    """A value of the last trial of a night."""

    run: Annotated[str, "name of the run's phase"]
    name: Annotated[str | None, "job; `null` for what is of the run as a whole"]
    metric: Annotated[str, "the [metric](metrics.md)"]
    value: Annotated[float, "in the unit of the metric"]


class NightBisection(JsonObject, frozen=True, kw_only=True):
    """A bisection that a night began or continued."""

    run_dir: Annotated[Path, "run directory"]
    state: Annotated[State, "how it stands"]
    message: Annotated[str, "one sentence; empty until it ends"]
    first_new: Annotated[str | None, "hash of the first commit on the new side, if it was found"]


class ShownNight(JsonObject, frozen=True, kw_only=True, rename={"result": "class"}):
    """A job in a night."""

    name: Annotated[str | Absent, "name of the job; absent in `bisector history`, where the job has it"] = ABSENT
    night: Annotated[int, "number of the night, from 1"]
    started_at: Annotated[str, "time at which the night began"]
    tip: Annotated[Commit | None, "commit that the branch was at; `null` where it was not fetched"]
    objective: Annotated[Objective | None, "what decides; `null` where nothing was measured"]
    value: Annotated[float | None, "value of the last run by the `objective`, or `null`"]
    jobs: Annotated[tuple[NightFigure, ...], "all values that were measured"]
    host: Annotated[str | None, "host that measured"]
    era: Annotated[str | None, "digest of the era of that host; `null` where that is not known"]
    result: Annotated[TipResult | None, "how the tip compares with `compared_with`; `null` where nothing was measured"]
    compared_with: Annotated[Reference | None, "commit that the tip was compared with"]
    level_change: Annotated[LevelChange | None, "change of level that begins with this night"]
    bisection: Annotated[NightBisection | None, "bisection of the night, if there was one"]
    trouble: Annotated[JobTrouble | None, "why the job was not done, if it was not"]
    told: Annotated[tuple[str, ...], "outcomes of its letters"]
    done: Annotated[bool, "whether all that was to be done was done"]


class ChangeTest(JsonObject, frozen=True, kw_only=True):
    """The test that finds changes of level."""

    name: Annotated[str, "name of the test"] = TEST
    false_alarm_rate: Annotated[float, "probability of a change found in a history without one, at most"] = ALPHA


class JobNights(JsonObject, frozen=True, kw_only=True):
    """A job's nights."""

    name: Annotated[str, "name of the job"]
    nights: Annotated[tuple[ShownNight, ...], "oldest first"]


class History(JsonObject, frozen=True, kw_only=True):
    """The document that ``bisector history --json`` prints."""

    schema: Annotated[Literal[2], SCHEMA] = 2
    test: Annotated[ChangeTest, "how changes of level are found"] = ChangeTest()
    jobs: Annotated[tuple[JobNights, ...], "in the order of their names"]

    @classmethod
    def of(cls, shown: Iterable[Trend], nights: Sequence[Night]) -> "History":
        """The document for the trends of these nights."""
        by_n = {night.n: night for night in nights}
        jobs = (
            JobNights(name=trend.job, nights=tuple(_shown(one, by_n[one.night]) for one in trend.nights))
            for trend in shown
        )
        return cls(jobs=tuple(jobs))


class OneNight(JsonObject, frozen=True, kw_only=True):
    """The document that ``bisector nightly --json`` prints."""

    schema: Annotated[Literal[2], SCHEMA] = 2
    night: Annotated[int, "number of the night, from 1"]
    started_at: Annotated[str, "time"]
    ended_at: Annotated[str | None, "time"]
    ending: Annotated[NightEnding | None, "how it ended"]
    budget_s: Annotated[float, "seconds that the night has"]
    jobs: Annotated[tuple[ShownNight, ...], "in the order of their names"]

    @classmethod
    def of(cls, shown: Iterable[Trend], night: Night) -> "OneNight":
        """The document for this night, with what became of each job."""
        jobs = (_shown(one, night, trend.job) for trend in shown for one in trend.nights if one.night == night.n)
        return cls(
            night=night.n,
            started_at=night.started_at,
            ended_at=night.ended_at,
            ending=night.ending,
            budget_s=night.budget_s,
            jobs=tuple(jobs),
        )


def _shown(one: JobNight, night: Night, name: str | Absent = ABSENT) -> ShownNight:
    measured, tip = one.measured, one.tip
    return ShownNight(
        name=name,
        night=night.n,
        started_at=night.started_at,
        tip=Commit(tip.sha, "", clean(tip.subject), tip.committed_at) if tip else None,
        objective=measured.objective if measured else None,
        value=measured.value if measured else None,
        jobs=tuple(_figures(one.trial, measured.objective)) if measured and one.trial else (),
        host=measured.host if measured else None,
        era=(measured.era or None) if measured else None,
        result=one.result,
        compared_with=one.reference,
        level_change=one.level_change,
        bisection=_bisection(one),
        trouble=one.trouble,
        told=tuple(letter.outcome for letter in one.letters),
        done=one.done,
    )


def _figures(trial: Trial, objective: Objective) -> Iterator[NightFigure]:
    for run in trial.runs:
        for one in objective.of_jobs(run):
            yield NightFigure(run=run.name, name=one.job or None, metric=one.name, value=one.value)


def _bisection(one: JobNight) -> NightBisection | None:
    if one.concluded:
        last = one.concluded[-1]
        return NightBisection(
            run_dir=last.run_dir, state=last.state, message=last.message, first_new=last.first_sha or None
        )
    if one.begun:
        return NightBisection(run_dir=one.begun.run_dir, state=State.STOPPED, message="", first_new=None)
    return None


# As a plot


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
        times = sorted({self.began[one.night] for trend in self.trends for one in trend.nights})
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
            (self.began[one.night], one, one.measured) for one in trend.nights if one.measured and _value(one, trend)
        ]
        groups = [list(group) for _, group in groupby(measured, key=lambda one: one[2].comparability)]
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
        tips = [one.tip for one in trend.nights if one.tip]
        axes.set_title(clean(trend.job + (f": {tips[-1].rev} of {tips[-1].repository}" if tips else "")))

    def _seen(self, trend: Trend) -> Iterator[tuple[str, datetime, float | None]]:
        """The kind of mark of each night, its time, and the value at which it stands."""
        last: float | None = None
        for night in trend.nights:
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
            (at, one.level_change)
            for one in trend.nights
            if one.level_change and (at := self.began[one.night]) in times
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
        answers = {one.run_dir: one for night in trend.nights for one in night.concluded}
        for night in trend.nights:
            begun, change, measured = night.begun, night.level_change, night.measured
            bisection = level = ""
            if begun is not None:
                bisection = "bisection not ended"
                if (answer := answers.get(begun.run_dir)) is not None:
                    bisection = _WITHOUT_COMMIT.get(answer.state, f"from {answer.first_sha[:12]} on")
            if change is not None and measured is not None:
                level = f"{measured.objective.change_text(change.before, change.after)}, p = {change.p:.3f}"
            if bisection or level:
                at = self.began[night.night]
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
