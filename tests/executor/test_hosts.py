"""Hosts that are drained, stopped, behind a firewall, and told that a run is over: real workers, as processes."""

import signal
import socket

import pytest

from bisector.cli import main
from bisector.core.deadline import Deadline
from bisector.core.errors import AttemptLost
from bisector.executor.base import Failed, Finished
from bisector.executor.cluster import dask_settings
from bisector.executor.duty import DutyFiles, Link
from bisector.executor.remote import RemoteExecutor
from bisector.executor.spool import Spool
from tests.executor import engines, fleet
from tests.executor.engines import WAIT_S, let_go, plan, reached
from tests.executor.fleet import Fleet, emptied, job, last_news

SOON_S = 5.0  # of a worker that is told, and does not only look now and then


def idle(executor: RemoteExecutor, *names: str) -> None:
    """Soon these hosts are idle, and no others."""
    Deadline(f"{names} idle", SOON_S).poll(lambda: tuple(executor.idle) == names or None, 0.02)


def test_a_drained_host_finishes_its_trial_and_takes_none_until_it_is_released(hosts: Fleet) -> None:
    spool = hosts.spool("bench1")
    files = DutyFiles(Spool(spool))
    plan(spool, job_3=engines.MEASURED)
    worker = hosts.worker()
    executor = hosts.executor()
    executor.submit(job(3))
    reached(spool, 3, engines.MEASURED)
    files.drain("a new SSD")
    worker.said("drained: takes no more trials")
    let_go(spool, 3, engines.MEASURED)
    assert isinstance(last_news(executor), Finished)
    executor.acknowledge(3)
    emptied(spool)
    assert list(executor.idle) == []
    worker.kill()
    worker = hosts.worker()
    executor.wait_for_hosts(0, WAIT_S)
    worker.said("connected to", 2)
    assert list(executor.idle) == []
    files.release()
    idle(executor, "bench1")
    files.drain()
    idle(executor)
    hosts.restart_coordinator()
    executor = hosts.executor()
    assert list(executor.idle) == []
    files.release()
    idle(executor, "bench1")
    executor.submit(job(4))
    assert isinstance(last_news(executor), Finished)


@pytest.mark.rare
def test_a_job_that_meets_a_host_which_was_just_drained_is_done_by_another(hosts: Fleet) -> None:
    for name in ("bench1", "bench2"):
        hosts.worker(name)
    executor = hosts.executor(2)
    first = executor.idle[0]
    spool = Spool(hosts.spool(first))
    (spool.home / "drained").touch()  # as whoever is killed before the worker is told
    executor.submit(job(3))
    news = last_news(executor)
    assert isinstance(news, Finished)
    assert (news.host != first, spool.held()) == (True, {})


@pytest.mark.fleet
def test_a_worker_looks_by_itself_whether_it_is_drained(hosts: Fleet) -> None:
    worker, files = hosts.worker(), DutyFiles(Spool(hosts.spool("bench1")))
    executor = hosts.executor()
    files.drain()
    worker.said("drained: takes no more trials")
    files.release()
    worker.said("released: takes trials again")
    (hosts.spool("bench1") / "drained").touch()
    worker.said("drained: takes no more trials", 2)
    idle(executor)


def test_a_worker_writes_whom_it_works_for(hosts: Fleet) -> None:
    files = DutyFiles(Spool(hosts.spool("bench1")))
    worker = hosts.worker()
    worker.said("connected")
    duty = files.duty()
    assert duty is not None
    assert (duty.pid, duty.name, duty.coordinator) == (worker.child.pid, "bench1", hosts.coordinator.address)
    Deadline("a connected worker", SOON_S).poll(lambda: linked(files) is Link.CONNECTED or None, 0.02)
    hosts.running.close()
    Deadline("a worker that waits", WAIT_S).poll(lambda: linked(files) is Link.WAITING or None, 0.02)
    worker.kill(signal.SIGTERM)
    assert worker.child.wait(WAIT_S) == 0
    assert files.duty() is None


def linked(files: DutyFiles) -> Link | None:
    return duty.link if (duty := files.duty()) is not None else None


@pytest.mark.rare
def test_of_a_run_that_is_over_nothing_is_left_though_the_coordinator_ends_at_once(hosts: Fleet) -> None:
    spool = hosts.spool("bench1")
    hosts.worker()
    executor = hosts.executor()
    executor.submit(job(3))
    assert isinstance(last_news(executor), Finished)
    assert (spool / "run" / "place").is_dir()
    executor.acknowledge(3)
    executor.over()
    hosts.running.close()
    Deadline("an empty spool", WAIT_S).poll(lambda: None if (spool / "run").exists() else True, 0.02)


# Ports


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.mark.rare
def test_a_worker_with_a_port_of_its_own_is_back_at_the_same_one(hosts: Fleet) -> None:
    """Though nobody has missed it yet: it was stopped when it was killed, so its socket is not closed in order."""
    spool, port = hosts.spool("bench1"), free_port()
    plan(spool, job_3=engines.MEASURED)
    proxy = hosts.stack.enter_context(fleet.Proxy(hosts.coordinator.address))
    worker = hosts.stack.enter_context(fleet.worker(proxy.address, hosts.other, spool, port=port))
    executor = hosts.executor()
    assert [host.address for host in hosts.coordinator.hosts()] == [f"tls://127.0.0.1:{port}"]
    executor.submit(job(3))
    reached(spool, 3, engines.MEASURED)
    proxy.stall()
    worker.kill()
    hosts.worker(port=port).said("connected", 2)
    let_go(spool, 3, engines.MEASURED)
    assert isinstance(last_news(executor), Finished)
    assert [host.address for host in hosts.coordinator.hosts()] == [f"tls://127.0.0.1:{port}"]
    assert engines.runs(spool, 3) == 1


def test_a_port_that_is_in_use_is_told(hosts: Fleet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        worker = hosts.worker(port=port)
        assert worker.child.wait(WAIT_S) == 2
    assert f"cannot listen at 127.0.0.1, port {port}: Address already in use" in worker.log.read_text()


@pytest.mark.parametrize("port", ["0", "65536", "x"])
def test_what_is_no_port_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["worker", "tls://desk:8786", "--repo", ".", "--port", port]
    assert main(words) == 2
    assert f"--port: expected a port, 1 to 65535, not '{port}'" in capsys.readouterr().err


# A worker that hears nothing


@pytest.mark.fleet
@pytest.mark.parametrize("patience_s", [60.0, 0.5], ids=["in time", "late"])
@pytest.mark.rare
def test_a_worker_that_is_stopped_is_missed_and_its_trial_goes_on(
    hosts: Fleet, patience_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel keeps the connection alive, so it is its heartbeat that is missed (``worker-ttl``)."""
    monkeypatch.setattr(
        dask_settings, "SETTINGS", {**dask_settings.SETTINGS, "distributed.scheduler.worker-ttl": "5 s"}
    )
    hosts.restart_coordinator()
    spool = hosts.spool("bench1")
    plan(spool, job_3=engines.MEASURED)
    worker = hosts.worker()
    executor = hosts.executor(patience_s=patience_s)
    executor.submit(job(3))
    reached(spool, 3, engines.MEASURED)
    worker.kill(signal.SIGSTOP)
    Deadline("a host that is missed", WAIT_S).poll(lambda: None if hosts.coordinator._plugin.hosts else True, 0.1)
    lost = patience_s < 1
    if lost:
        news = last_news(executor)
        assert isinstance(news, Failed)
        assert type(news.error) is AttemptLost
        executor.acknowledge(3)
    let_go(spool, 3, engines.MEASURED)
    worker.kill(signal.SIGCONT)
    executor.wait_for_hosts(1, WAIT_S)
    news = last_news(executor)
    assert isinstance(news, Finished)
    assert (news.host, engines.runs(spool, 3)) == ("bench1", 1)
    with pytest.raises(ValueError, match="no job"):
        executor.next()
    executor.acknowledge(3)
    emptied(spool)
