"""What every executor does: that of this host, that of others (with a real Dask worker), that of the loop's tests."""

import pickle
import queue
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest
from distributed import Client, LocalCluster

from bisector.core.subject import Cell, Kind, Subject
from bisector.core.trial import AttemptCancelled, AttemptFailed, Fault, Stage
from bisector.executor.base import BuildRequest, ControlRequest, Executor, Failed, Finished, Job, Progress
from bisector.executor.local import AtOnce
from bisector.fleet.executor import FleetExecutor
from bisector.fleet.hosts import Host, Hosts
from bisector.fleet.job import RESOURCE
from bisector.git import transfer
from bisector.git.repository import Repository
from bisector.host import locks
from bisector.host.identity import host_id
from bisector.kernel import toolchain
from bisector.kernel.cache import KernelCache
from bisector.storage.disks import DISKS
from bisector.store.rundir import jobs_home
from bisector.trial.runner import TrialRequest
from tests import examples, fakes
from tests.executor.bench import COMMIT, CONTENT, NOTHING, RULE, Bad, at_once, local, settings_of
from tests.fleet import engines
from tests.git import histories

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
def one_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Path]]:
    """A worker of a Dask cluster of this process, and where its jobs are done."""
    home = tmp_path_factory.mktemp("host")
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("STATE", "CACHE"):
            patch.setenv(f"XDG_{kind}_HOME", str(home))
        patch.setattr(transfer, "ancestors", lambda repository, sha: ())
        patch.setattr(transfer, "push", lambda *words: None)
        patch.setattr(toolchain, "named", {one.command: one for one in (fakes.GCC, fakes.OLD_GCC)}.__getitem__)
        patch.setattr(locks, "SHARED_TURN", home / "shared.lock")
        options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
        with LocalCluster(resources={RESOURCE: 1}, **options) as cluster, Client(cluster) as client:
            yield client, jobs_home()


@pytest.fixture(params=["local", "at once", pytest.param("fleet", marks=pytest.mark.fleet), "fake"])
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    at_once(monkeypatch)
    if request.param == "fake":
        return fake
    if request.param == "local":
        return lambda bad: local(tmp_path, settings_of("lvmcache"), bad)
    if request.param == "at once":
        return lambda bad: AtOnce(local(tmp_path, settings_of("lvmcache"), bad), 1)
    client, home = request.getfixturevalue("one_worker")
    histories.build(tmp_path / "linux", histories.linear(2))
    repository = Repository.open(tmp_path / "linux")
    numbers = count()

    def on_worker(bad: Bad) -> Executor:
        home.mkdir(parents=True, exist_ok=True)
        (home / "bad").write_bytes(pickle.dumps(bad))
        hosts = Hosts(tmp_path / "hosts.toml", (Host(name=host_id(), ssh="bench1"),))
        made = FleetExecutor(
            client,
            hosts,
            f"{tmp_path.name}-{next(numbers)}",
            tmp_path / "run",
            settings_of("lvmcache"),
            repository,
            KernelCache(tmp_path / "kernels", 1 << 30),
            tmp_path,
            lambda: (fakes.GCC, fakes.OLD_GCC),
            lambda event: None,
            queue.SimpleQueue(),
            engines.by_contract,
        )
        (tmp_path / "run").mkdir(exist_ok=True)
        made.wait(60.0)
        return made

    return on_worker


REVERTED = examples.cell(COMMIT, Kind.REVERTED, "8" * 40)
RUNS = {examples.cell(COMMIT): ["empty", "full"], REVERTED: ["empty", "full"]}
RUNS |= {Cell(Subject(COMMIT), examples.alone(disk)): [disk] for disk in DISKS}


@pytest.mark.parametrize("cell", RUNS, ids=["commit", "reverted", *DISKS])
def test_a_sound_kernel_has_the_figures_of_each_run_of_the_cell_that_was_asked_for(make: Make, cell: Cell) -> None:
    trial = fakes.measured(make(NOTHING), TrialRequest(1, cell, {}))
    assert (trial.cell, trial.stage, trial.fault, trial.same_kernel_as) == (cell, Stage.DONE, None, None)
    assert [run.name for run in trial.runs] == RUNS[cell]
    assert all(run.jobs and run.stopped_early is None for run in trial.runs)


def test_only_the_run_that_counts_ends_early(make: Make) -> None:
    trial = fakes.measured(make(NOTHING), TrialRequest(1, examples.cell(COMMIT), {}, stop=RULE))
    assert [run.stopped_early is not None for run in trial.runs] == [False, True]


def test_a_fault_of_the_kernel_is_a_fact(make: Make) -> None:
    trial = fakes.measured(make(Bad(fault=fakes.PANIC)), TrialRequest(1, REVERTED, {}))
    assert (trial.cell, trial.fault, trial.stage, trial.runs) == (REVERTED, fakes.PANIC, fakes.PANIC.stage, ())


def test_a_kernel_that_was_measured_is_not_measured_again(make: Make) -> None:
    trial = fakes.measured(make(NOTHING), TrialRequest(1, examples.cell(COMMIT), {CONTENT: "8" * 40}))
    assert (trial.same_kernel_as, trial.runs, trial.fault, trial.stage) == ("8" * 40, (), None, Stage.DONE)


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


def test_each_job_ends_once_under_its_number_and_the_host_is_idle_again(make: Make) -> None:
    executor = make(NOTHING)
    (host,) = executor.idle
    with pytest.raises(ValueError, match="no job"):
        executor.next()
    for id_, request in ((4, TrialRequest(1, examples.cell(COMMIT), {})), (9, BuildRequest(COMMIT, fakes.GCC))):
        executor.submit(Job(id_, request))
        assert len(executor.idle) == 0
        news = news_of(executor)
        assert isinstance(news, Finished)
        assert (news.id, news.host, list(executor.idle)) == (id_, host, [host])
        assert news.at
    with pytest.raises(ValueError, match="no job"):
        executor.next()


def test_jobs_that_are_submitted_together_all_end_and_one_that_is_cancelled_before_ends_in_that(make: Make) -> None:
    executor = make(NOTHING)
    for id_ in (1, 2, 3):
        executor.submit(Job(id_, TrialRequest(id_, examples.cell(COMMIT), {})))
    executor.cancel(2)
    executor.cancel(4)
    ends = {news.id: news for news in (news_of(executor) for _ in range(3))}
    assert isinstance(ends[1], Finished)
    assert isinstance(ends[3], Finished)
    assert isinstance(ends[2], Failed)
    assert isinstance(ends[2].error, AttemptCancelled)
    executor.cancel(2)
    assert len(executor.idle) == 1
    with pytest.raises(ValueError, match="no job"):
        executor.next()


def test_trouble_is_the_news_of_its_job_with_the_facts_up_to_then(make: Make) -> None:
    executor = make(Bad(trouble=True))
    executor.submit(Job(3, TrialRequest(1, examples.cell(COMMIT), {})))
    while isinstance(news := executor.next(), Progress):
        assert news.id == 3
    assert isinstance(news, Failed)
    assert isinstance(news.error, AttemptFailed)
    assert (news.id, news.error.message, news.error.stage) == (3, "the network went away", Stage.BOOT)
    assert news.error.host
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
