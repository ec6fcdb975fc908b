"""The history of nights as tables: the values of each job, and the changes of their level."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from bisector.analysis.changes import LevelChange, changes
from bisector.core import units
from bisector.core.objective import WORST, Objective
from bisector.core.trial import Trial
from bisector.nightly.job_history import JobNight, TipResult, replay
from bisector.report.blocks import Block, Column, Paragraph, Role, Row, Table
from bisector.store.nights import Measurement, Night, NightEvent

_ROLES = {TipResult.SLOWER: Role.WORSE, TipResult.FASTER: Role.BETTER, TipResult.UNTESTABLE: Role.SKIP}


@dataclass(frozen=True, slots=True)
class Point:
    """A night of a job, with the change of level that begins with its value."""

    night: JobNight
    change: LevelChange | None = None


@dataclass(frozen=True, slots=True)
class Trend:
    """A job's nights, oldest first."""

    job: str
    points: tuple[Point, ...]

    @property
    def objective(self) -> Objective:
        """The objective of the last night that measured something."""
        measured = [point.night.measured for point in self.points if point.night.measured]
        return measured[-1].objective if measured else Objective()


def trends(events: Sequence[NightEvent], only: str | None = None) -> tuple[Trend, ...]:
    """The trends of the jobs, by name; changes of level are looked for only among values that can be compared."""
    found = []
    for job in sorted({event.job for event in events if only in (None, event.job)}):
        history = replay(event for event in events if event.job == job)
        figures = [(one.night, one.measured) for one in history.nights if one.measured and one.measured.value]
        begun: dict[int, LevelChange] = {}
        for _, alike in groupby(figures, key=lambda one: one[1].got):
            nights = list(alike)
            levels = changes(np.array([measured.value for _, measured in nights]))
            begun |= {nights[change.at][0]: change for change in levels}
        found.append(Trend(job, tuple(Point(night, begun.get(night.night)) for night in history.nights)))
    return tuple(found)


def trend_blocks(shown: Iterable[Trend], nights: Sequence[Night]) -> Iterator[Block]:
    """A table for each job, and below it sentences about the changes of level."""
    started = {night.n: night.started_at[:16].replace("T", " ") for night in nights}
    for trend in shown:
        tip = next((point.night.tip for point in reversed(trend.points) if point.night.tip), None)
        where = f": {tip.rev} of {tip.repository}, {tip.rule}, {tip.wanted}" if tip else ""
        columns = (Column("night"), Column("tip"), Column(trend.objective.heading, figures=True),
                   Column("class", verdict=True), Column(""))  # fmt: skip
        yield Table(columns, tuple(_row(point, started) for point in trend.points), caption=f"{trend.job}{where}")
        for point in trend.points:
            change, measured = point.change, point.night.measured
            if change is not None and measured is not None:
                when, objective = started.get(point.night.night, point.night.at), measured.objective
                values = f"{objective.text(change.after)} instead of {objective.text(change.before)}"
                said = f"* from {when} on {values} ({objective.label}, medians), p = {change.p:.3f}"
                yield Paragraph(said, Role.WEAK)


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
