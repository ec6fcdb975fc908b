"""How the figures of each job went from night to night, and where their level changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from bisector.analysis.changes import LevelChange, changes
from bisector.core.objective import Objective
from bisector.nightly.replay import JobNight, Story, replay
from bisector.store.nights import Event


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
    """Levels are looked for among figures that were got alike: with the same settings, on the same host."""
    begun: dict[int, LevelChange] = {}
    figures = [(one.night, one.measured) for one in story.nights if one.measured and one.measured.value]
    for _, alike in groupby(figures, key=lambda one: (one[1].conditions, one[1].host, one[1].objective)):
        nights = list(alike)
        found = changes(np.array([measured.value for _, measured in nights]))
        begun |= {nights[change.at][0]: change for change in found}
    return Trend(job, story, tuple(Point(night, begun.get(night.night)) for night in story.nights))
