"""How often an attempt is made, how long it waits in between, and what is recorded and told of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bisector.campaign.equipment import Equipment
from bisector.campaign.single import SingleTrials
from bisector.config import RetryPolicy, options
from bisector.core.errors import UserError
from bisector.core.events import Event, Note
from bisector.core.trial import Artifact, AttemptFailed, Trial
from bisector.executor.base import Failed, Finished, Job, of_its_job
from bisector.store.facts import Ended, Ending, InfraFault, RunHeader, Submitted
from bisector.store.rundir import TRIALS
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.examples import alone, cell, commit

REQUEST = TrialRequest(1, cell(commit(1)), {})
POLICY = RetryPolicy()


@dataclass
class Log:
    """What was recorded, told and waited for."""

    store: Store
    told: list[Event] = field(default_factory=list)

    def trial(self, executor: fakes.FakeExecutor) -> Trial:
        equipment = Equipment(executor, None)  # type: ignore[arg-type] # nobody asks for kernels
        settings = options.from_json(self.store.bisection().settings)
        *_, (_, trial) = (
            SingleTrials(self.store, settings, equipment, self.told.append)
            .settle(REQUEST.commit, "tip", fakes.HOST)
            .trials
        )
        return trial

    @property
    def faults(self) -> Sequence[InfraFault]:
        return self.store.facts(InfraFault)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    row = RunHeader.of(options.load({}, directory=tmp_path).settings, tmp_path)
    with Store.create(tmp_path / "record.sqlite", row) as store:
        yield Log(store)


def of_another(sha: str) -> Callable[[Trial], Trial]:
    return lambda trial: replace(trial, cell=cell(replace(trial.commit, sha=sha)))


def numbered(n: int) -> Callable[[Trial], Trial]:
    file = Artifact("console.log", f"{TRIALS}/{n:04d}-{'0' * 12}/console.log", "ab" * 32, 7)
    return lambda trial: replace(trial, artifacts=(file,))


def elsewhere(trial: Trial) -> Trial:
    return replace(trial, cell=replace(trial.cell, setup=alone("hdd")))


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda trial: trial, ""),
        (numbered(1), ""),
        (lambda trial: replace(trial, same_kernel_as="d" * 40), ""),
        (of_another("e" * 40), "answered with eeeeeeeeeeee on fio"),
        (elsewhere, "fio(partial.fio) on hdd+ext4"),
        (numbered(2), "trial 2"),
    ],
)
def test_a_result_is_held_against_its_job(change: Callable[[Trial], Trial], got: str) -> None:
    came = Finished(7, "bench1", change(fakes.trial(REQUEST.commit)), "now")
    news = of_its_job(came, 1, REQUEST.cell)
    assert isinstance(news, Failed) == bool(got)
    if isinstance(news, Failed):
        assert (news.id, news.host) == (7, "bench1")
        assert isinstance(news.error, AttemptFailed)
        assert got in news.error.message


def failing(times: int) -> fakes.FakeExecutor:
    return fakes.FakeExecutor(lambda sha: True, infra={REQUEST.commit.sha: times})


def test_the_policy_is_the_settings_own() -> None:
    settings = options.load({"bisect.max_repeats": "7"}).settings
    assert settings.retries == RetryPolicy((5.0, 60.0, 300.0), 2, 2, 7, 3)


def test_waits_grow_to_minutes_and_are_told(log: Log) -> None:
    executor = failing(99)
    with pytest.raises(AttemptFailed, match="network went away"):
        log.trial(executor)
    assert list(POLICY.waits_s) == [5.0, 60.0, 300.0]
    assert executor.waited_s == pytest.approx(POLICY.waits_s, abs=3)
    assert [fault.message for fault in log.faults] == ["the network went away"] * POLICY.attempts
    notes = [event.text for event in log.told if isinstance(event, Note)]
    assert notes[-1] == "not the kernel's fault, trying again in 300 s: the network went away"


def test_each_attempt_is_on_record_under_a_number_of_its_own(log: Log) -> None:
    executor = failing(1)
    log.trial(executor)
    assert log.trial(executor).host == fakes.HOST
    assert [(n, trial.commit) for n, trial in log.store.trials()] == [(1, REQUEST.commit), (2, REQUEST.commit)]
    endings = [one.ending for one in log.store.facts(Ended)]
    assert endings == [Ending.FAILED, Ending.DONE, Ending.DONE]
    assert {one.host for one in log.store.facts(Submitted)} == {fakes.HOST}
    assert [one.message for one in log.store.facts(InfraFault)] == ["the network went away"]


def test_what_is_interrupted_stays_under_way(log: Log) -> None:
    """The next process says that it is lost."""
    cancelled = list[int]()

    class Watched(fakes.FakeExecutor):
        def cancel(self, id_: int) -> None:
            cancelled.append(id_)

    def interrupted(request: TrialRequest) -> Trial:
        raise KeyboardInterrupt

    executor = Watched(lambda sha: True)
    executor.measure = interrupted  # type: ignore[method-assign] # a bench at which somebody types Ctrl-C
    with pytest.raises(KeyboardInterrupt):
        log.trial(executor)
    assert not cancelled
    assert [one.fact.n for one in log.store.in_flight()] == [1]


def test_a_job_that_cannot_be_sent_is_not_under_way(log: Log) -> None:
    def refuses(job: Job, host: str = "") -> None:
        raise UserError("the input files have 65 MiB, and 64 go to a host at most")

    executor = fakes.FakeExecutor(lambda sha: True)
    executor.submit = refuses  # type: ignore[method-assign] # an executor that cannot read a file, say
    with pytest.raises(UserError, match="65 MiB"):
        log.trial(executor)
    assert [one.ending for one in log.store.facts(Ended)] == [Ending.FAILED]
    assert not log.store.in_flight()


def test_what_is_no_trouble_of_ours_is_raised_at_once(log: Log) -> None:
    executor = fakes.FakeExecutor(lambda sha: True, refused={REQUEST.commit.sha: 1})
    with pytest.raises(UserError, match="root disk is full"):
        log.trial(executor)
    assert (log.faults, executor.waited_s) == ((), [])
