"""The figures of branches' tips from night to night, as they are drawn: classes, limits, levels, what was bisected.

Values, not pictures: a test compares them, :mod:`bisector.report.drawing` draws them.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from bisector.core.objective import Objective


class Seen(StrEnum):
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
class Mark:
    """What a night saw; ``value`` is what decides, None where there is none by the panel's objective."""

    at: datetime
    seen: Seen
    value: float | None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Values that hold in some nights: a line, or a band when the two differ."""

    start: datetime
    end: datetime
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Change:
    """A night from which on something is otherwise, and what is said of it in the picture.

    ``bisection`` is the commit that a bisection named, or how it stands; ``level`` what the test for changes of level
    found. One of them can be empty.
    """

    at: datetime
    bisection: str
    level: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One job by one objective: ``lines`` join values that can be compared, ``breaks`` are where others begin.

    ``usual`` is where a tip is the same as what it is compared with, by a factor; with ``thresholds`` these decide.
    """

    title: str
    objective: Objective
    marks: tuple[Mark, ...]
    lines: tuple[tuple[tuple[datetime, float], ...], ...]
    thresholds: tuple[Stretch, ...]
    usual: tuple[Stretch, ...]
    levels: tuple[Stretch, ...]
    changes: tuple[Change, ...]
    breaks: tuple[datetime, ...]


@dataclass(frozen=True, slots=True)
class Nights:
    """A panel for each job, over the same nights."""

    title: str
    panels: tuple[Panel, ...]
