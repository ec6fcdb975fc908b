"""The history of nights: how each job's values went, where their level changed, and all of it as lines."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from bisector.analysis.changes import LevelChange, changes
from bisector.core import units
from bisector.core.objective import WORST, Objective
from bisector.nightly.replay import Class, JobNight, Story, replay
from bisector.report.text import Line, Role, Span, cells, left, right, shorten
from bisector.store.nights import Event, Measurement, Night

_ROLES = {Class.SLOWER: Role.OLD, Class.FASTER: Role.NEW, Class.UNTESTABLE: Role.SKIP}
_GAP = "  "


@dataclass(frozen=True, slots=True)
class Point:
    """A night of a job, and the change of level that its figure begins."""

    night: JobNight
    change: LevelChange | None = None


@dataclass(frozen=True, slots=True)
class Trend:
    """A job's nights, oldest first."""

    job: str
    story: Story
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


def trends(events: Sequence[Event], only: str | None = None) -> tuple[Trend, ...]:
    """The jobs in the order of their names."""
    names = sorted({event.job for event in events})
    return tuple(
        _trend(name, replay(event for event in events if event.job == name)) for name in names if only in (None, name)
    )


def _trend(job: str, story: Story) -> Trend:
    """Levels are looked for among values of the same settings and the same host."""
    begun: dict[int, LevelChange] = {}
    figures = [(one.night, one.measured) for one in story.nights if one.measured and one.measured.value]
    for _, alike in groupby(figures, key=lambda one: (one[1].conditions, one[1].host, one[1].objective)):
        nights = list(alike)
        found = changes(np.array([measured.value for _, measured in nights]))
        begun |= {nights[change.at][0]: change for change in found}
    return Trend(job, story, tuple(Point(night, begun.get(night.night)) for night in story.nights))


def trend_lines(shown: Iterable[Trend], nights: Sequence[Night], width: int) -> list[Line]:
    """A table for each job, and below it the changes of level in words."""
    started = _started(nights)
    lines: list[Line] = []
    for trend in shown:
        tip = next((point.night.tip for point in reversed(trend.points) if point.night.tip), None)
        where = f"{_GAP}{tip.rev} of {tip.repository}, {tip.rule}, {tip.wanted}" if tip else ""
        title = (Span(trend.job, Role.STRONG), Span(shorten(where, max(0, width - len(trend.job))), Role.DIM))
        changed = [(Span(shorten(_words(point, started), width), Role.WEAK),) for point in trend.changed]
        rows = [_row(point, started) for point in trend.points]
        lines += [(), title, *_table(rows, trend.objective.heading, width), *changed]
    return lines[1:]


def _row(point: Point, started: Mapping[int, str]) -> tuple[str, str, str, str, str]:
    night = point.night
    return (
        started.get(night.night, night.at),
        night.tip.sha[:12] if night.tip else units.UNKNOWN,
        (_figures(night.measured) if night.measured else units.UNKNOWN) + ("*" if point.change else " "),
        str(night.klass or ("as before" if night.done else "")),
        _event(night),
    )


def _figures(measured: Measurement) -> str:
    """The worst and the best job of the last run; where it is not the worst that decides, what decides."""
    if measured.value is None:
        return units.UNKNOWN
    objective, last = measured.objective, measured.figures[-1].run if measured.figures else ""
    jobs = [one.value for one in measured.figures if (one.run, one.metric) == (last, measured.metric)]
    shown = objective.worst_first(jobs) if objective.over == WORST and jobs else [measured.value]
    return " / ".join(map(objective.cell, (shown[0], shown[-1]) if shown[1:] else shown))


def _event(night: JobNight) -> str:
    """What there is to say of a night, in a few words."""
    if night.trouble is not None:
        return f"{night.trouble.step} failed: {night.trouble.message}"
    for concluded in night.concluded:
        return concluded.message
    if night.begun is not None:
        return f"bisection begun: {night.begun.run_dir}"
    return "" if night.done else "not ended"


def _table(rows: Sequence[tuple[str, ...]], heading: str, width: int) -> Iterator[Line]:
    titles = ("night", "tip", f"{heading} ", "class")
    widths = [max(cells(row[column]) for row in (titles, *rows)) for column in range(len(titles))]
    room = max(0, width - sum(widths) - len(_GAP) * len(widths))
    head = (left(titles[0], widths[0]), left(titles[1], widths[1]), right(titles[2], widths[2]), titles[3])
    yield (Span(_GAP.join(head), Role.HEAD),)
    for row in rows:
        night, tip, figure, klass, event = row
        role = _ROLES.get(Class(klass), Role.PLAIN) if klass in set(Class) else Role.DIM
        plain = _GAP.join((left(night, widths[0]), left(tip, widths[1]), right(figure, widths[2])))
        yield (Span(plain + _GAP), Span(left(klass, widths[3]), role), Span(_GAP + shorten(event, room)))


def _words(point: Point, started: Mapping[int, str]) -> str:
    change, measured = point.change, point.night.measured
    if change is None or measured is None:
        return ""
    objective = measured.objective
    when = started.get(point.night.night, point.night.at)
    values = f"{objective.text(change.after)} instead of {objective.text(change.before)}"
    return f"* from {when} on {values} ({objective.label}, medians), p = {change.p:.3f}"


def _started(nights: Sequence[Night]) -> dict[int, str]:
    return {night.n: night.started_at[:16].replace("T", " ") for night in nights}
