"""How often an attempt is made, how long it waits in between, and what is recorded and told of it."""

import pytest

from bisector.bisect.retry import RETRIES, Attempts
from bisector.core.errors import AttemptFailed, UserError
from bisector.core.events import Event, Note
from bisector.core.model import Stage
from bisector.store.rows import InfraFaultRow
from tests.examples import commit


class Log(list[InfraFaultRow]):
    """Keeps what is recorded."""

    def add_infra_fault(self, fault: InfraFaultRow) -> None:
        self.append(fault)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were waited, which pass at once."""
    seconds: list[float] = []
    monkeypatch.setattr("time.sleep", seconds.append)
    return seconds


def fail(message: str = "no room left in /var") -> str:
    raise AttemptFailed(message, "", Stage.BUILD, "box")


def test_waits_grow_to_minutes_and_are_told(slept: list[float]) -> None:
    log, told = Log(), list[Event]()
    with pytest.raises(AttemptFailed, match="no room left"):
        Attempts(log, told.append).at(commit(1), fail)
    assert slept == list(RETRIES.waits_s) == [5.0, 60.0, 300.0]
    assert [fault.message for fault in log] == ["no room left in /var"] * RETRIES.attempts
    notes = [event.text for event in told if isinstance(event, Note)]
    assert notes[-1] == "not the kernel's fault, trying again in 300 s: no room left in /var"


def test_what_comes_back_in_time_costs_nothing_more(slept: list[float]) -> None:
    log = Log()

    def attempt() -> str:
        return fail() if len(log) < 2 else "measured"

    assert Attempts(log, lambda event: None).at(commit(1), attempt) == "measured"
    assert (slept, len(log)) == ([5.0, 60.0], 2)


@pytest.mark.parametrize("most", [1, 2])
def test_fewer_attempts_wait_as_the_first_ones_do(slept: list[float], most: int) -> None:
    log = Log()
    with pytest.raises(AttemptFailed):
        Attempts(log, lambda event: None).at_most(most).at(commit(1), fail)
    assert (len(log), slept) == (most, [5.0][: most - 1])


def test_what_is_no_trouble_of_ours_is_raised_at_once(slept: list[float]) -> None:
    def refuse() -> None:
        raise UserError("workload.job: no such option")

    log = Log()
    with pytest.raises(UserError):
        Attempts(log, lambda event: None).at(commit(1), refuse)
    assert (log, slept) == ([], [])
