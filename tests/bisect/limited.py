"""A lab in which time passes, and a person says how much of it there is."""

from dataclasses import dataclass

from bisector.store.comparison import Budget
from tests.bisect.lab import Lab


@dataclass
class Clock:
    """The clock that budgets go by, which passes while something is measured."""

    at_s: float = 1000.0

    def since_boot_s(self) -> float:
        return self.at_s

    def passes(self, seconds: float) -> None:
        self.at_s += seconds


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
