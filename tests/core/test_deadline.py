"""How often something is tried, how long is waited in between, and what is raised in the end."""

import pytest

from bisector.core.deadline import retried
from bisector.core.errors import InfraError, UserError


class Remote:
    """Fails as often as there are ``errors``, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def ask(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were waited, which pass at once."""
    seconds: list[float] = []
    monkeypatch.setattr("time.sleep", seconds.append)
    return seconds


def test_what_comes_back_in_time_answers(slept: list[float]) -> None:
    told: list[int] = []
    assert retried(Remote(InfraError("one"), InfraError("two")).ask, InfraError, (5.0, 10.0, 20.0), told.append)
    assert (slept, told) == ([5.0, 10.0], [1, 2])


def test_the_last_failure_is_raised(slept: list[float]) -> None:
    remote = Remote(*map(InfraError, ("one", "two", "three", "four")))
    with pytest.raises(InfraError, match="three"):
        retried(remote.ask, InfraError, (5.0, 10.0))
    assert slept == [5.0, 10.0]


def test_what_no_waiting_helps_is_raised_at_once(slept: list[float]) -> None:
    with pytest.raises(UserError):
        retried(Remote(UserError("no such branch")).ask, InfraError, (5.0, 10.0))
    assert slept == []
