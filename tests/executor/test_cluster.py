"""The connection between hosts: real workers and coordinators, killed, cut, turned away, and asked to leave."""

import os
import signal
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.core.errors import AttemptCancelled, AttemptFailed, AttemptLost, UserError
from bisector.core.trial import Trial
from bisector.executor.base import Failed, Finished, Progress
from bisector.executor.spec import Key
from bisector.executor.spool import Spool, Standing
from bisector.host.load import host_id
from tests.executor import engines, fleet
from tests.executor.bench import settings_of
from tests.executor.engines import WAIT_S, let_go, plan, reached
from tests.executor.fleet import COMMIT, Fleet, emptied, job, last_news


def test_a_trial_comes_back_with_its_files_and_is_forgotten_when_it_is_on_record(hosts: Fleet) -> None:
    hosts.worker()
    executor = hosts.executor()
    executor.submit(job(3))
    seen = []
    while isinstance(news := executor.next(), Progress):
        seen.append(news)
    assert isinstance(news, Finished)
    assert seen
    assert {one.id for one in seen} == {3}
    assert (news.id, news.host) == (3, "bench1")
    assert isinstance(news.result, Trial)
    for one in news.result.artifacts:
        assert (hosts.place / "run" / one.path).stat().st_size == one.size_bytes
    assert Spool(hosts.spool("bench1")).held() == {"run": {3: Standing.DONE}}
    executor.acknowledge(3)
    emptied(hosts.spool("bench1"))
    assert list(executor.idle) == ["bench1"]


@pytest.mark.fleet
def test_two_hosts_measure_at_once_each_what_it_was_given(hosts: Fleet) -> None:
    for name in ("bench1", "bench2"):
        plan(hosts.spool(name), job_1=engines.MEASURED, job_2=engines.MEASURED)
        hosts.worker(name)
    executor = hosts.executor(2)
    executor.submit(job(1), "bench2")
    executor.submit(job(2), "bench1")
    reached(hosts.spool("bench2"), 1, engines.MEASURED)
    reached(hosts.spool("bench1"), 2, engines.MEASURED)
    assert list(executor.idle) == []
    let_go(hosts.spool("bench1"), 2, engines.MEASURED)
    assert last_news(executor).id == 2
    let_go(hosts.spool("bench2"), 1, engines.MEASURED)
    news = last_news(executor)
    assert (news.id, news.host) == (1, "bench2")


@pytest.mark.parametrize("point", [engines.BEGUN, engines.MEASURED])
def test_a_trial_outlives_its_worker_and_is_heard_once(hosts: Fleet, point: str) -> None:
    spool = hosts.spool("bench1")
    plan(spool, job_3=point)
    worker = hosts.worker()
    executor = hosts.executor()
    executor.submit(job(3))
    reached(spool, 3, point)
    worker.kill()
    hosts.worker()
    let_go(spool, 3, point)
    news = last_news(executor)
    assert isinstance(news, Finished)
    assert isinstance(news.result, Trial)
    assert news.result.runs[-1].jobs[0].iops_mean == engines.figure(COMMIT.sha, host_id(), 3)
    assert engines.runs(spool, 3) == 1
    executor.acknowledge(3)
    emptied(spool)


@pytest.mark.fleet
def test_a_trial_whose_process_and_worker_are_killed_is_an_attempt_that_failed(hosts: Fleet) -> None:
    spool = hosts.spool("bench1")
    plan(spool, job_3=engines.MEASURED)
    worker = hosts.worker()
    executor = hosts.executor()
    executor.submit(job(3))
    reached(spool, 3, engines.MEASURED)
    runner = Spool(spool).entry(Key("run", 3)).runner()
    assert runner is not None
    worker.kill()
    os.kill(runner.pid, signal.SIGKILL)
    hosts.worker()
    news = last_news(executor)
    assert isinstance(news, Failed)
    assert type(news.error) is AttemptFailed
    assert list(executor.idle) == ["bench1"]
    executor.submit(job(4))
    assert isinstance(last_news(executor), Finished)


@pytest.mark.rare
def test_a_trial_outlives_its_connection_and_is_heard_once(hosts: Fleet) -> None:
    spool = hosts.spool("bench1")
    plan(spool, job_3=engines.MEASURED)
    proxy = hosts.stack.enter_context(fleet.Proxy(hosts.coordinator.address))
    worker = hosts.stack.enter_context(fleet.worker(proxy.address, hosts.other, spool))
    executor = hosts.executor()
    executor.submit(job(3))
    reached(spool, 3, engines.MEASURED)
    proxy.cut()
    worker.said("is lost; what runs goes on")
    worker.said("connected", 2)
    let_go(spool, 3, engines.MEASURED)
    assert isinstance(last_news(executor), Finished)
    assert engines.runs(spool, 3) == 1
    executor.acknowledge(3)
    emptied(spool)
    assert list(executor.idle) == ["bench1"]


@pytest.mark.fleet
@pytest.mark.parametrize("over", [False, True], ids=["it runs", "it is over"])
def test_a_coordinator_that_is_started_again_hears_what_it_had_submitted(hosts: Fleet, over: bool) -> None:
    spool = hosts.spool("bench1")
    plan(spool, job_3=engines.MEASURED)
    worker = hosts.worker()
    hosts.executor().submit(job(3))
    reached(spool, 3, engines.MEASURED)
    if over:
        hosts.running.close()
        let_go(spool, 3, engines.MEASURED)
        Deadline("a result", WAIT_S).poll(
            lambda: Spool(spool).entry(Key("run", 3)).standing is Standing.DONE or None, 0.02
        )
    hosts.restart_coordinator()
    executor = hosts.executor(before=(3,))
    let_go(spool, 3, engines.MEASURED)
    assert isinstance(last_news(executor), Finished)
    assert engines.runs(spool, 3) == 1
    worker.said("connected", 2)
    executor.acknowledge(3)
    emptied(spool)


@pytest.mark.fleet
@pytest.mark.parametrize("anew", [False, True], ids=["same coordinator", "started again"])
@pytest.mark.rare
def test_what_was_given_up_is_heard_when_its_host_is_back(hosts: Fleet, anew: bool) -> None:
    spool = hosts.spool("bench1")
    plan(spool, job_3=engines.BEGUN)
    worker = hosts.worker()
    executor = hosts.executor(patience_s=0.2)
    executor.submit(job(3))
    reached(spool, 3, engines.BEGUN)
    worker.kill()
    news = last_news(executor)
    assert isinstance(news, Failed)
    assert type(news.error) is AttemptLost
    executor.acknowledge(3)
    if anew:
        hosts.restart_coordinator()
    hosts.worker()
    if anew:
        executor = hosts.executor(lost=(3,))
    executor.wait_for_hosts(1, WAIT_S)
    assert list(executor.idle) == []
    let_go(spool, 3, engines.BEGUN)
    assert isinstance(last_news(executor), Finished)
    assert engines.runs(spool, 3) == 1
    assert Spool(spool).held() == {"run": {3: Standing.DONE}}
    executor.acknowledge(3)
    emptied(spool)


@pytest.mark.rare
def test_a_trial_is_cancelled_where_it_runs(hosts: Fleet) -> None:
    spool = hosts.spool("bench1")
    plan(spool, job_3=engines.BEGUN)
    hosts.worker()
    executor = hosts.executor()
    executor.submit(job(3))
    reached(spool, 3, engines.BEGUN)
    runner = Spool(spool).entry(Key("run", 3)).runner()
    executor.cancel(3)
    news = last_news(executor)
    assert isinstance(news, Failed)
    assert type(news.error) is AttemptCancelled
    assert runner is not None
    assert not runner.lives


@pytest.mark.fleet
@pytest.mark.rare
def test_other_settings_under_the_same_number_are_refused(hosts: Fleet) -> None:
    hosts.worker()
    executor = hosts.executor()
    executor.submit(job(3))
    assert isinstance(last_news(executor), Finished)
    other = fleet.executor(hosts.coordinator, hosts.place / "run", before=(3,))
    other.settings = settings_of("hdd")
    other.before = {}
    other.submit(job(3))
    news = last_news(other)
    assert isinstance(news, Failed)
    assert isinstance(news.error, UserError)
    assert "other settings" in str(news.error)


@pytest.mark.rare
def test_a_worker_that_is_asked_to_leave_finishes_first(hosts: Fleet) -> None:
    spool = hosts.spool("bench1")
    plan(spool, job_3=engines.MEASURED)
    worker = hosts.worker()
    executor = hosts.executor()
    executor.submit(job(3))
    reached(spool, 3, engines.MEASURED)
    worker.kill(signal.SIGTERM)
    worker.said("leaving")
    let_go(spool, 3, engines.MEASURED)
    assert isinstance(last_news(executor), Finished)
    assert list(executor.idle) == []
    executor.acknowledge(3)
    assert worker.child.wait(WAIT_S) == 0
    assert Spool(spool).held() == {}


@pytest.mark.fleet
@pytest.mark.rare
def test_a_worker_that_is_asked_twice_ends_its_trial(hosts: Fleet) -> None:
    spool = hosts.spool("bench1")
    plan(spool, job_3=engines.BEGUN)
    worker = hosts.worker()
    executor = hosts.executor()
    executor.submit(job(3))
    reached(spool, 3, engines.BEGUN)
    worker.kill(signal.SIGTERM)
    worker.said("leaving")
    worker.kill(signal.SIGTERM)
    news = last_news(executor)
    assert isinstance(news, Failed)
    assert isinstance(news.error, AttemptCancelled)
    executor.acknowledge(3)
    assert worker.child.wait(WAIT_S) == 0


@pytest.mark.fleet
def test_a_worker_waits_for_its_coordinator_and_leaves_when_asked(tmp_path: Path) -> None:
    with fleet.worker("tcp://127.0.0.1:9", None, tmp_path / "spool") as worker:
        worker.said("nobody listens")
        worker.kill(signal.SIGTERM)
        assert worker.child.wait(WAIT_S) == 0
