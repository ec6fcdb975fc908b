"""A record whose process dies at one of its facts."""

import pytest

from bisector.store.facts import Fact
from bisector.store.store import Store
from tests import fakes


def moments(times: int, *before: object) -> list[object]:
    """Parameters of a test that is killed at each of as many facts; make test has each fourth."""
    return [
        pytest.param(*before, number, marks=() if number % 4 == 1 else pytest.mark.rare)
        for number in range(1, times + 1)
    ]


class Mortal(Store):
    """A store whose process is killed at the facts that are added as the ``dies_at``th, before or after it."""

    dies_at: int | None = None
    before: bool = True
    added: list[tuple[type[Fact], ...]]

    def add(self, *facts: Fact) -> int:
        self.added.append(tuple(type(fact) for fact in facts))
        dies = len(self.added) == self.dies_at
        if dies and self.before:
            raise fakes.Killed
        first = super().add(*facts)
        if dies:
            raise fakes.Killed
        return first
