"""How often an attempt is made, how long it waits in between, and what is recorded and told of it."""

from dataclasses import dataclass, field

import pytest

from bisector.bisect.single import Attempts
from bisector.config import RetryPolicy, options
from bisector.core.errors import AttemptFailed, UserError
from bisector.core.events import Event, Note
from bisector.core.trial import Trial
from bisector.store.rows import InfraFaultRow
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.examples import cell, commit

REQUEST = TrialRequest(1, cell(commit(1)), {})
POLICY = RetryPolicy()


@dataclass
class Log:
    """What was recorded, told and waited for."""

    faults: list[InfraFaultRow] = field(default_factory=list)
    told: list[Event] = field(default_factory=list)
    waited_s: list[float] = field(default_factory=list)

    def trial(self, executor: fakes.FakeExecutor, policy: RetryPolicy = POLICY) -> Trial:
        return Attempts(executor, self.faults.append, self.told.append, self.waited_s.append, policy).at(REQUEST)


@pytest.fixture
def log() -> Log:
    return Log()


def failing(times: int) -> fakes.FakeExecutor:
    return fakes.FakeExecutor(lambda sha: True, infra={REQUEST.commit.sha: times})


def test_the_policy_is_the_settings_own() -> None:
    settings = options.load({"bisect.max_repeats": "7"}).settings
    assert settings.retries == RetryPolicy((5.0, 60.0, 300.0), 2, 2, 7, 3)


def test_waits_grow_to_minutes_and_are_told(log: Log) -> None:
    with pytest.raises(AttemptFailed, match="network went away"):
        log.trial(failing(99))
    assert log.waited_s == list(POLICY.waits_s) == [5.0, 60.0, 300.0]
    assert [fault.message for fault in log.faults] == ["the network went away"] * POLICY.attempts
    notes = [event.text for event in log.told if isinstance(event, Note)]
    assert notes[-1] == "not the kernel's fault, trying again in 300 s: the network went away"


def test_what_comes_back_in_time_costs_nothing_more(log: Log) -> None:
    assert log.trial(failing(2)).commit == REQUEST.commit
    assert (log.waited_s, len(log.faults)) == ([5.0, 60.0], 2)


def test_another_policy_is_another_number_of_attempts(log: Log) -> None:
    with pytest.raises(AttemptFailed):
        log.trial(failing(99), RetryPolicy(waits_s=(1.0,)))
    assert (len(log.faults), log.waited_s) == (2, [1.0])


def test_what_is_no_trouble_of_ours_is_raised_at_once(log: Log) -> None:
    with pytest.raises(UserError, match="root disk is full"):
        log.trial(fakes.FakeExecutor(lambda sha: True, refused={REQUEST.commit.sha: 1}))
    assert (log.faults, log.waited_s) == ([], [])
