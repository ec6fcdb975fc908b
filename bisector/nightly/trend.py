"""The history of nights: how each job's values went, where their level changed, and all of it as lines or a plot."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, pairwise

import numpy as np

from bisector.analysis.changes import LevelChange, changes
from bisector.core import units
from bisector.core.objective import WORST, Objective
from bisector.core.printable import clean
from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.nightly.job_history import JobHistory, JobNight, TipResult, replay
from bisector.report.blocks import Block, Column, Paragraph, Role, Row, Table
from bisector.report.nights import NightChange, NightMark, NightPanel, Nights, NightSeen, Stretch
from bisector.store.nights import BisectionConcluded, Measurement, Night, NightEvent

_ROLES = {TipResult.SLOWER: Role.WORSE, TipResult.FASTER: Role.BETTER, TipResult.UNTESTABLE: Role.SKIP}

_SEEN = {
    TipResult.FIRST: NightSeen.FIRST,
    TipResult.SAME: NightSeen.SAME,
    TipResult.FASTER: NightSeen.FASTER,
    TipResult.SLOWER: NightSeen.SLOWER,
}
_TIP = "tip"  # the step of a trouble that says that the tip cannot be judged
_WITHOUT_COMMIT = {State.NARROWED: "narrowed to several", State.FAILED: "no answer"}
_HALF_A_NIGHT = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class Point:
    """A night of a job, and the change of level that its figure begins."""

    night: JobNight
    change: LevelChange | None = None


@dataclass(frozen=True, slots=True)
class Trend:
    """A job's nights, oldest first."""

    job: str
    history: JobHistory
    points: tuple[Point, ...]

    @property
    def changed(self) -> tuple[Point, ...]:
        """The nights that begin a level."""
        return tuple(point for point in self.points if point.change)

    @property
    def objective(self) -> Objective:
        """What decided in the last night that measured something."""
        measured = [point.night.measured for point in self.points if point.night.measured]
        return measured[-1].objective if measured else Objective()


def trends(events: Sequence[NightEvent], only: str | None = None) -> tuple[Trend, ...]:
    """The jobs in the order of their names."""
    names = sorted({event.job for event in events})
    return tuple(
        _trend(name, replay(event for event in events if event.job == name)) for name in names if only in (None, name)
    )


def _trend(job: str, history: JobHistory) -> Trend:
    """Levels are looked for among values of the same settings and the same host in one era."""
    begun: dict[int, LevelChange] = {}
    figures = [(one.night, one.measured) for one in history.nights if one.measured and one.measured.value]
    for _, alike in groupby(figures, key=lambda one: one[1].got):
        nights = list(alike)
        found = changes(np.array([measured.value for _, measured in nights]))
        begun |= {nights[change.at][0]: change for change in found}
    return Trend(job, history, tuple(Point(night, begun.get(night.night)) for night in history.nights))


def trend_blocks(shown: Iterable[Trend], nights: Sequence[Night]) -> Iterator[Block]:
    """A table for each job, and below it the changes of level in words."""
    started = {night.n: night.started_at[:16].replace("T", " ") for night in nights}
    for trend in shown:
        tip = next((point.night.tip for point in reversed(trend.points) if point.night.tip), None)
        where = f": {tip.rev} of {tip.repository}, {tip.rule}, {tip.wanted}" if tip else ""
        columns = (Column("night"), Column("tip"), Column(trend.objective.heading, figures=True),
                   Column("class", verdict=True), Column(""))  # fmt: skip
        yield Table(columns, tuple(_row(point, started) for point in trend.points), caption=f"{trend.job}{where}")
        for point in trend.changed:
            yield Paragraph(_words(point, started), Role.WEAK)


def _row(point: Point, started: Mapping[int, str]) -> Row:
    night = point.night
    cells = (
        started.get(night.night, night.at),
        night.tip.sha[:12] if night.tip else units.UNKNOWN,
        (_figures(night.measured, night.trial) if night.measured else units.UNKNOWN) + ("*" if point.change else " "),
        str(night.result or ("as before" if night.done else "")),
        _event(night),
    )
    return Row(cells, role=_ROLES.get(night.result, Role.PLAIN) if night.result else Role.DIM)


def _figures(measured: Measurement, trial: Trial | None) -> str:
    """The worst and the best job of the last run; where it is not the worst that decides, what decides."""
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


def _words(point: Point, started: Mapping[int, str]) -> str:
    change, measured = point.change, point.night.measured
    if change is None or measured is None:
        return ""
    objective = measured.objective
    when = started.get(point.night.night, point.night.at)
    values = f"{objective.text(change.after)} instead of {objective.text(change.before)}"
    return f"* from {when} on {values} ({objective.label}, medians), p = {change.p:.3f}"


def nights_plot(shown: Sequence[Trend], nights: Sequence[Night]) -> Nights:
    """A panel for each job's trend; there is a job at least, and so a night."""
    began = {night.n: datetime.fromisoformat(night.started_at) for night in nights}
    around = _around(sorted({began[point.night.night] for trend in shown for point in trend.points}))
    panels = tuple(_panel(trend, began, around) for trend in shown)
    labels = dict.fromkeys(panel.objective.label for panel in panels)
    return Nights(f"{' and '.join(labels)}, night by night", panels)


def _around(times: Sequence[datetime]) -> timedelta:
    """How far what holds in a night reaches to both sides of it; nights may follow each other by hand."""
    return min([_HALF_A_NIGHT, *((later - earlier) / 2 for earlier, later in pairwise(times))])


def _panel(trend: Trend, began: Mapping[int, datetime], around: timedelta) -> NightPanel:
    tips = [point.night.tip for point in trend.points if point.night.tip]
    where = f": {tips[-1].rev} of {tips[-1].repository}" if tips else ""
    objective = trend.objective
    measured = [(began[one.night], one, one.measured) for one in _nights(trend) if one.measured and _value(one, trend)]
    alike = [
        list(group) for _, group in groupby(measured, key=lambda one: (one[2].conditions, one[2].host, one[2].era))
    ]
    return NightPanel(
        title=clean(f"{trend.job}{where}"),
        objective=objective,
        marks=tuple(_marks(trend, began)),
        lines=tuple(tuple((at, _value(night, trend)) for at, night, _ in group) for group in alike),
        thresholds=_stretches(((at, _threshold(one)) for at, _, one in measured), around),
        usual=_stretches(((at, _usual(night, one)) for at, night, one in measured), around),
        levels=tuple(level for group in alike for level in _levels([at for at, _, _ in group], trend, began, around)),
        changes=tuple(_changes(trend, began)),
        breaks=tuple(group[0][0] - around for group in alike[1:]),
    )


def _nights(trend: Trend) -> Iterator[JobNight]:
    return (point.night for point in trend.points)


def _value(night: JobNight, trend: Trend) -> float:
    """The value of a night that stands on the panel's axis; 0 is none."""
    measured = night.measured
    return measured.value or 0.0 if measured and measured.objective == trend.objective else 0.0


def _marks(trend: Trend, began: Mapping[int, datetime]) -> Iterator[NightMark]:
    last: float | None = None
    for night in _nights(trend):
        at, value = began[night.night], _value(night, trend)
        if night.result in _SEEN:
            yield NightMark(at, _SEEN[night.result], value or None)
        if night.trouble is not None:
            yield NightMark(at, NightSeen.UNTESTABLE if night.trouble.step == _TIP else NightSeen.FAILED, None)
        elif not night.done:
            yield NightMark(at, NightSeen.OPEN, None)
        elif night.measured is None and last is not None:
            yield NightMark(at, NightSeen.AGAIN, last)
        last = value or last


def _threshold(measured: Measurement) -> tuple[float, float] | None:
    line = measured.threshold
    return None if line is None else (line, line)


def _usual(night: JobNight, measured: Measurement) -> tuple[float, float] | None:
    """Where the class is "same" (:func:`bisector.nightly.job_history.classify`); a threshold is drawn as itself."""
    if night.reference is None or measured.threshold is not None:
        return None
    return night.reference.value / night.usual, night.reference.value * night.usual


def _stretches(limits: Iterable[tuple[datetime, tuple[float, float] | None]], around: timedelta) -> tuple[Stretch, ...]:
    """Equal limits of nights in a row are one."""
    found = []
    for limit, group in groupby(limits, key=lambda one: one[1]):
        if limit is not None:
            times = [at for at, _ in group]
            found.append(Stretch(times[0] - around, times[-1] + around, *limit))
    return tuple(found)


def _levels(
    times: Sequence[datetime], trend: Trend, began: Mapping[int, datetime], around: timedelta
) -> Iterator[Stretch]:
    """The medians before and after each change of level among figures that can be compared."""
    found = [(began[point.night.night], point.change) for point in trend.points if point.change]
    found = [(at, change) for at, change in found if at in times]
    if not found:
        return
    edges = [*(at - around for at in (times[0], *(at for at, _ in found))), times[-1] + around]
    medians = [found[0][1].before, *(change.after for _, change in found)]
    for (start, end), median in zip(pairwise(edges), medians, strict=True):
        yield Stretch(start, end, median, median)


def _changes(trend: Trend, began: Mapping[int, datetime]) -> Iterator[NightChange]:
    """What was bisected stands at the night that saw it first, whenever it was answered."""
    answers = {one.run_dir: one for night in _nights(trend) for one in night.concluded}
    for point in trend.points:
        begun = point.night.begun
        bisection = "" if begun is None else _bisection(answers.get(begun.run_dir))
        level = _level(point)
        if bisection or level:
            yield NightChange(began[point.night.night], bisection, level)


def _bisection(answer: BisectionConcluded | None) -> str:
    if answer is None:
        return "bisection not ended"
    return _WITHOUT_COMMIT.get(answer.state, f"from {answer.first_sha[:12]} on")


def _level(point: Point) -> str:
    change, measured = point.change, point.night.measured
    if change is None or measured is None:
        return ""
    return f"{measured.objective.change_text(change.before, change.after)}, p = {change.p:.3f}"
