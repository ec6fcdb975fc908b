"""A lab in which time passes, and a person says how much of it there is."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bisector.store.comparison import Budget
from tests.bisect.lab import Lab


@dataclass
class Clock:
    """The time of recording, which passes while something is measured."""

    at: datetime = datetime(2026, 11, 23, 12, tzinfo=UTC)

    def now(self) -> str:
        return self.at.isoformat(timespec="seconds")

    def passes(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass
class Limited(Lab):
    """A lab in which a person gives a budget."""

    def give(self, seconds: float) -> None:
        with self._store() as store:
            store.add(Budget(seconds, store.spent_s()))

    @property
    def spent_s(self) -> float:
        with self._store() as store:
            return store.spent_s()
