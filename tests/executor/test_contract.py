"""What every executor does: that of this host, that of other hosts (with a real worker), that of the loop's tests."""

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest

from bisector.core.errors import AttemptCancelled, AttemptFailed, AttemptLost
from bisector.core.subject import Cell, Kind, Subject
from bisector.core.trial import Fault, Stage, Trial
from bisector.executor.at_once import AtOnce
from bisector.executor.base import BuildRequest, ControlRequest, Executor, Failed, Finished, Job, Progress
from bisector.executor.cluster.coordinator import Coordinator
from bisector.executor.cluster.security import door
from bisector.executor.hosts import Connection, Host, HostNews, Joined, Left, Word
from bisector.executor.spec import Key, Spec
from bisector.executor.spool import Standing
from bisector.storage.disks import DISKS
from bisector.trial.runner import TrialRequest
from tests import examples, fakes
from tests.executor import fleet
from tests.executor.bench import COMMIT, CONTENT, NOTHING, RULE, Bad, Workload, local, settings_of
from tests.executor.engines import CONTRACT

Make: TypeAlias = Callable[[Bad], Executor]


def fake(bad: Bad = NOTHING) -> fakes.FakeExecutor:
    return fakes.FakeExecutor(
        is_new=lambda sha: True,
        content={COMMIT.sha: CONTENT},
        faults={COMMIT.sha: bad.fault} if bad.fault else {},
        infra={COMMIT.sha: 1} if bad.trouble else {},
        broken={Stage.BOOT: bad.fault} if bad.fault else {},
        does_not_build={(one.command, COMMIT.sha): fakes.BUILD_ERROR for one in bad.failing},
        stops_early=True,
    )


@pytest.fixture(scope="module")
def one_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Coordinator, Path]]:
    """A coordinator, and a worker that does what ``bad`` in its spool says."""
    place, authority = tmp_path_factory.mktemp("fleet"), fleet.Authority.new()
    spool = place / "bench1" / "spool"
    with (
        Coordinator(door("tls://127.0.0.1:0", authority.certify(place / "coordinator"))) as coordinator,
        fleet.worker(coordinator.address, authority.certify(place / "of-bench1"), spool, engine=CONTRACT) as worker,
    ):
        worker.said("connected")
        yield coordinator, spool


@pytest.fixture(params=["local", "at once", "remote", "fake"])
def make(request: pytest.FixtureRequest, tmp_path: Path, workload: Workload) -> Make:
    if request.param == "fake":
        return fake
    if request.param == "local":
        return lambda bad: local(tmp_path, settings_of("lvmcache"), bad)
    if request.param == "at once":
        return lambda bad: AtOnce(local(tmp_path, settings_of("lvmcache"), bad), 1)
    coordinator, spool = request.getfixturevalue("one_host")
    numbers = count()

    def remote(bad: Bad) -> Executor:
        (spool / "bad").write_bytes(pickle.dumps(bad))
        made = fleet.executor(coordinator, tmp_path / "run", f"{tmp_path.name}-{next(numbers)}")
        made.wait_for_hosts(1, 60.0)
        return made

    return remote


def test_a_sound_kernel_has_the_figures_of_each_run(make: Make) -> None:
    trial = fakes.measured(make(NOTHING), TrialRequest(1, examples.cell(COMMIT), {}))
    assert (trial.commit, trial.stage, trial.fault, trial.same_kernel_as) == (COMMIT, Stage.DONE, None, None)
    assert [run.name for run in trial.runs] == ["empty", "full"]
    assert all(run.jobs and run.stopped_early is None for run in trial.runs)
    assert trial.kernel is not None
    assert trial.kernel.content_sha256 == CONTENT
    assert pickle.loads(pickle.dumps(trial)) == trial


def test_only_the_run_that_counts_ends_early(make: Make) -> None:
    trial = fakes.measured(make(NOTHING), TrialRequest(1, examples.cell(COMMIT), {}, stop=RULE))
    assert [run.stopped_early is not None for run in trial.runs] == [False, True]


def test_a_fault_of_the_kernel_is_a_fact(make: Make) -> None:
    trial = fakes.measured(make(Bad(fault=fakes.PANIC)), TrialRequest(1, examples.cell(COMMIT), {}))
    assert (trial.fault, trial.stage, trial.runs) == (fakes.PANIC, fakes.PANIC.stage, ())


def test_a_kernel_that_was_measured_is_not_measured_again(make: Make) -> None:
    trial = fakes.measured(make(NOTHING), TrialRequest(1, examples.cell(COMMIT), {CONTENT: "8" * 40}))
    assert (trial.same_kernel_as, trial.runs, trial.fault, trial.stage) == ("8" * 40, (), None, Stage.DONE)


def test_trouble_of_the_host_is_raised_with_its_stage(make: Make) -> None:
    with pytest.raises(AttemptFailed, match="the network went away") as caught:
        fakes.measured(make(Bad(trouble=True)), TrialRequest(1, examples.cell(COMMIT), {}))
    assert caught.value.stage is Stage.BOOT
    assert caught.value.host


@pytest.mark.parametrize("disk", DISKS)
def test_a_disk_alone_has_one_run_of_its_name(make: Make, disk: str) -> None:
    cell = Cell(Subject(COMMIT), examples.alone(disk))
    trial = fakes.measured(make(NOTHING), TrialRequest(1, cell, {}))
    assert (trial.cell, [run.name for run in trial.runs]) == (cell, [disk])


def test_a_trial_is_of_the_cell_that_was_asked_for(make: Make) -> None:
    cell = examples.cell(COMMIT, Kind.REVERTED, "8" * 40)
    assert fakes.measured(make(NOTHING), TrialRequest(1, cell, {})).cell == cell
    assert fakes.measured(make(Bad(fault=fakes.PANIC)), TrialRequest(1, cell, {})).cell == cell


def test_a_build_is_tried_with_each_compiler(make: Make) -> None:
    executor = make(Bad(failing=frozenset({fakes.GCC})))
    assert fakes.GCC in executor.compilers()
    fault = fakes.faulted(executor, BuildRequest(COMMIT, fakes.GCC))
    assert fault is not None
    assert (fault.kind.of_compiling, fault.stage) == (True, Stage.BUILD)
    assert fakes.faulted(executor, BuildRequest(COMMIT, fakes.OLD_GCC), 2) is None


@pytest.mark.parametrize("fault", [None, fakes.PANIC])
def test_a_control_tells_whether_an_end_still_boots(make: Make, fault: Fault | None) -> None:
    assert fakes.faulted(make(Bad(fault=fault)), ControlRequest(COMMIT, (fakes.GCC,), Stage.BOOT)) == fault


# How work is given and taken


def news_of(executor: Executor) -> Finished | Failed:
    """The last news of a job, whatever progress was told before."""
    while isinstance(news := executor.next(), Progress):
        pass
    return news


@dataclass
class Losing:
    """A connection over which nothing is heard of the first job; when anybody looks again, its host is back."""

    connection: Connection
    news_first: deque[HostNews] = field(default_factory=deque)
    was_lost: bool = False

    def hosts(self) -> tuple[Host, ...]:
        self.known = self.connection.hosts()
        return self.known

    def submit(self, address: str, work: Spec | Key, attempt: int) -> None:
        self.connection.submit(address, work, attempt)
        if isinstance(work, Spec) and not self.was_lost:
            self.was_lost = True
            (host,) = self.known
            self.news_first += [Left(address), Joined(replace(host, held=((work.key, Standing.RUNNING),)))]

    def send(self, address: str, word: Word, key: Key) -> None:
        self.connection.send(address, word, key)

    def news(self, timeout_s: float) -> HostNews | None:
        return self.news_first.popleft() if self.news_first else self.connection.news(timeout_s)


@pytest.fixture(params=["remote", "fake"])
def losing(request: pytest.FixtureRequest, tmp_path: Path) -> Executor:
    """An executor that loses the first job of :data:`COMMIT`, and hears of it later."""
    if request.param == "fake":
        made = fake()
        made.loses = {COMMIT.sha: 1}
        return made
    coordinator, spool = request.getfixturevalue("one_host")
    (spool / "bad").write_bytes(pickle.dumps(NOTHING))
    return fleet.executor(Losing(coordinator), tmp_path / "run", tmp_path.name, patience_s=0.0)


def test_what_is_lost_is_news_once_more_when_it_is_heard_after_all(losing: Executor) -> None:
    losing.submit(Job(1, TrialRequest(1, examples.cell(COMMIT), {})))
    lost = news_of(losing)
    assert isinstance(lost, Failed)
    assert (lost.id, type(lost.error)) == (1, AttemptLost)
    losing.acknowledge(1)
    with pytest.raises(ValueError, match="no job"):
        losing.next()
    len(losing.idle)
    losing.submit(Job(2, TrialRequest(2, examples.cell(examples.commit(8)), {})))
    ends = {news.id: news for news in (news_of(losing), news_of(losing))}
    assert {*ends} == {1, 2}
    late = ends[1]
    assert isinstance(late, Finished)
    assert isinstance(late.result, Trial)
    assert late.result.commit == COMMIT
    for id_ in ends:
        losing.acknowledge(id_)
    assert len(losing.idle) == 1
    with pytest.raises(ValueError, match="no job"):
        losing.next()


def test_nothing_comes_of_nothing(make: Make) -> None:
    executor = make(NOTHING)
    assert len(executor.idle) == 1
    with pytest.raises(ValueError, match="no job"):
        executor.next()


def test_each_job_ends_once_under_its_number_and_the_host_is_idle_again(make: Make) -> None:
    executor = make(NOTHING)
    (host,) = executor.idle
    for id_, request in ((4, TrialRequest(1, examples.cell(COMMIT), {})), (9, BuildRequest(COMMIT, fakes.GCC))):
        executor.submit(Job(id_, request))
        assert len(executor.idle) == 0
        news = news_of(executor)
        assert isinstance(news, Finished)
        assert (news.id, news.host, list(executor.idle)) == (id_, host, [host])
        assert news.at
    with pytest.raises(ValueError, match="no job"):
        executor.next()


def test_jobs_that_are_submitted_together_all_end(make: Make) -> None:
    executor = make(NOTHING)
    for id_ in (1, 2, 3):
        executor.submit(Job(id_, BuildRequest(COMMIT, fakes.GCC)))
    assert {news_of(executor).id for _ in range(3)} == {1, 2, 3}


def test_a_job_that_is_cancelled_before_it_is_begun_ends_in_that(make: Make) -> None:
    executor = make(NOTHING)
    for id_ in (1, 2):
        executor.submit(Job(id_, TrialRequest(id_, examples.cell(COMMIT), {})))
    executor.cancel(2)
    executor.cancel(3)
    ends = {news.id: news for news in (news_of(executor), news_of(executor))}
    first, second = ends[1], ends[2]
    assert isinstance(first, Finished)
    assert isinstance(second, Failed)
    assert isinstance(second.error, AttemptCancelled)
    executor.cancel(2)
    executor.acknowledge(1)
    executor.acknowledge(2)
    assert len(executor.idle) == 1
    with pytest.raises(ValueError, match="no job"):
        executor.next()


def test_news_of_progress_are_of_a_job_that_was_submitted(make: Make) -> None:
    executor = make(NOTHING)
    executor.submit(Job(5, TrialRequest(1, examples.cell(COMMIT), {})))
    seen = []
    while isinstance(news := executor.next(), Progress):
        seen.append(news.id)
    assert {*seen, news.id} == {5}


def test_trouble_is_the_news_of_its_job_with_the_facts_up_to_then(make: Make) -> None:
    executor = make(Bad(trouble=True))
    executor.submit(Job(3, TrialRequest(1, examples.cell(COMMIT), {})))
    news = news_of(executor)
    assert isinstance(news, Failed)
    assert (news.id, type(news.error)) == (3, AttemptFailed)
    assert isinstance(news.error, AttemptFailed)
    assert news.error.trial is not None
    assert (news.error.trial.commit, news.error.trial.fault) == (COMMIT, None)
    assert len(executor.idle) == 1


def test_what_goes_to_a_host_and_comes_back_pickles(make: Make) -> None:
    """Between processes nothing else gets through."""
    for bad in (NOTHING, Bad(trouble=True), Bad(fault=fakes.PANIC)):
        executor = make(bad)
        job = Job(1, TrialRequest(1, examples.cell(COMMIT), {"5": "6"}, (fakes.GCC,), RULE))
        assert pickle.loads(pickle.dumps(job)) == job
        executor.submit(job)
        news = news_of(executor)
        again = pickle.loads(pickle.dumps(news))
        assert again.id == news.id
        if isinstance(news, Finished):
            assert again == news
        else:
            assert (str(again.error), again.error.stage) == (str(news.error), Stage.BOOT)
