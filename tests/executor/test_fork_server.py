"""Processes of jobs that a fork server begins, with real ones and a measurement that takes no time."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.core.errors import AttemptFailed
from bisector.executor import fork_server
from bisector.executor.base import Failed, Finished
from bisector.executor.fork_server import ForkServer
from bisector.executor.spec import Key
from bisector.executor.spool import Spool, Standing
from bisector.executor.watch import Desk, Returned
from bisector.host import process
from bisector.host.detached import ProcessIdentity, ended_within
from tests.executor import engines
from tests.executor.engines import Does, let_go, plan, reached
from tests.executor.test_watch import RUN, silent, spec

pytestmark = pytest.mark.rare

WAIT_S = 30.0


@pytest.fixture
def server() -> Iterator[ForkServer]:
    with ForkServer(engines.FAKE) as made:
        yield made


@pytest.fixture
def desk(tmp_path: Path, server: ForkServer) -> Iterator[Desk]:
    made = Desk(Spool(tmp_path / "spool"), engines.FAKE, Path("/nowhere.git"), grace_s=1.0, begin=server)
    yield made
    for entry in made.spool.entries():
        if (runner := entry.runner()) is not None and runner.lives:
            os.kill(runner.pid, signal.SIGKILL)
        process.reap(entry.place)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


def done(desk: Desk, id_: int) -> Finished | Failed:
    returned = desk.watch(spec(id_), silent)
    assert isinstance(returned, Returned)
    return returned.news


def runner(desk: Desk, id_: int) -> ProcessIdentity:
    found = desk.spool.entry(Key(RUN, id_)).runner()
    assert found is not None
    return found


def field(pid: int, number: int) -> int:
    """Of proc_pid_stat(5), as it counts them."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[number - 3])


PARENT, SESSION, THREADS = 4, 6, 20


def servers() -> list[ProcessIdentity]:
    """Those that this process has started, and that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else []
            if fork_server.MODULE.encode() in words and field(int(entry.name), PARENT) == os.getpid():
                found.append(ProcessIdentity.of(int(entry.name)))
    return found


def ready(desk: Desk, server: ForkServer, id_: int = 1) -> ProcessIdentity:
    """Have a first job done, beside which the server loads; the server once it can be given jobs."""
    assert isinstance(done(desk, id_), Finished)
    Deadline("the server", WAIT_S).poll(lambda: server.is_ready or None)
    (found,) = servers()
    return found


def children(parent: ProcessIdentity) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()]


def waiting(server: ProcessIdentity) -> ProcessIdentity:
    """The process that is forked for the next job."""
    (found,) = Deadline("one process", WAIT_S).poll(lambda: one if len(one := children(server)) == 1 else None, 0.01)
    return ProcessIdentity.of(found)


def gone(process: ProcessIdentity) -> None:
    pidfd = process.open()
    if pidfd is not None:
        try:
            assert ended_within(pidfd, WAIT_S)
        finally:
            os.close(pidfd)


def test_the_first_job_begins_by_itself_and_the_next_ones_are_forked(
    desk: Desk, server: ForkServer, pool: ThreadPoolExecutor
) -> None:
    found = ready(desk, server)
    assert field(found.pid, THREADS) == 1
    for id_ in (2, 3):
        ahead = waiting(found)
        plan(desk.spool.home, **{f"job_{id_}": engines.BEGUN})
        news = pool.submit(done, desk, id_)
        reached(desk.spool.home, id_, engines.BEGUN)
        job = runner(desk, id_)
        assert job == ahead
        assert field(job.pid, PARENT) == found.pid
        assert field(job.pid, SESSION) == job.pid
        assert desk.spool.entry(Key(RUN, id_)).standing is Standing.RUNNING
        let_go(desk.spool.home, id_, engines.BEGUN)
        assert isinstance(news.result(WAIT_S), Finished)
        assert not job.lives
        assert not desk.spool.entry(Key(RUN, id_)).runs
    assert servers() == [found]


def test_a_forked_job_has_the_files_of_one_that_begins_by_itself_and_no_other(
    desk: Desk, server: ForkServer, pool: ThreadPoolExecutor
) -> None:
    ready(desk, server)
    plan(desk.spool.home, job_2=engines.BEGUN)
    news, entry = pool.submit(done, desk, 2), desk.spool.entry(Key(RUN, 2))
    reached(desk.spool.home, 2, engines.BEGUN)
    pid = runner(desk, 2).pid
    files = {int(one.name): str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()}
    assert files[0] == os.devnull
    assert files[1] == files[2] == str(entry.log)
    assert [number for number, name in files.items() if name == str(entry.path / "lock")] == [3]
    assert not [one for one in files.values() if one.startswith("socket")]
    let_go(desk.spool.home, 2, engines.BEGUN)
    news.result(WAIT_S)


def test_a_traceback_is_in_the_log_of_its_job(desk: Desk, server: ForkServer) -> None:
    ready(desk, server)
    plan(desk.spool.home, job_2=Does.IS_A_BUG)
    assert isinstance(done(desk, 2), Failed)
    assert "Traceback" in desk.spool.entry(Key(RUN, 2)).log.read_text()


def test_a_job_outlives_its_server_and_the_next_one_begins(
    desk: Desk, server: ForkServer, pool: ThreadPoolExecutor
) -> None:
    found = ready(desk, server)
    plan(desk.spool.home, job_2=engines.BEGUN)
    news = pool.submit(done, desk, 2)
    reached(desk.spool.home, 2, engines.BEGUN)
    Deadline("the process of the next job", WAIT_S).poll(lambda: len(children(found)) == 2 or None)
    os.kill(found.pid, signal.SIGKILL)
    gone(found)
    let_go(desk.spool.home, 2, engines.BEGUN)
    assert isinstance(news.result(WAIT_S), Finished)
    assert isinstance(done(desk, 3), Finished)  # by the process that was forked for it
    assert ready(desk, server, 4) != found
    assert isinstance(done(desk, 5), Finished)


def test_a_server_ends_with_its_worker_and_its_job_does_not(
    desk: Desk, server: ForkServer, pool: ThreadPoolExecutor
) -> None:
    found = ready(desk, server)
    plan(desk.spool.home, job_2=engines.BEGUN)
    news = pool.submit(done, desk, 2)
    reached(desk.spool.home, 2, engines.BEGUN)
    server.__exit__(None, None, None)
    gone(found)
    assert runner(desk, 2).lives
    let_go(desk.spool.home, 2, engines.BEGUN)
    assert isinstance(news.result(WAIT_S), Finished)


def test_a_server_ends_when_there_are_no_more_jobs(desk: Desk, server: ForkServer) -> None:
    server.idle_s = 0.1
    assert isinstance(done(desk, 1), Finished)
    for found in servers():
        gone(found)
    assert isinstance(done(desk, 2), Finished)


def test_a_job_that_a_server_died_with_is_not_begun_again(
    desk: Desk, server: ForkServer, pool: ThreadPoolExecutor
) -> None:
    found = waiting(ready(desk, server))
    os.kill(found.pid, signal.SIGSTOP)
    news, entry = pool.submit(done, desk, 2), desk.spool.entry(Key(RUN, 2))
    Deadline("the job", WAIT_S).poll(lambda: entry.exists or None)
    assert entry.runs  # by the lock that is on its way
    os.kill(found.pid, signal.SIGKILL)
    failed = news.result(WAIT_S)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, AttemptFailed)
    assert "died" in failed.error.message
    assert engines.runs(desk.spool.home, 2) == 0
    assert not entry.runs


def test_an_engine_that_does_not_load_fails_its_job_alone(tmp_path: Path) -> None:
    with ForkServer("tests.executor.nowhere:here") as server:
        desk = Desk(Spool(tmp_path), engines.FAKE, Path("/nowhere.git"), grace_s=1.0, begin=server)
        assert isinstance(done(desk, 1), Finished)
        for found in servers():
            gone(found)
        assert isinstance(done(desk, 2), Finished)
        server.engine = engines.FAKE
        for found in servers():
            gone(found)
        ready(desk, server, 3)


def test_no_zombie_is_left_of_a_job(desk: Desk, server: ForkServer) -> None:
    found = ready(desk, server)
    first = waiting(found)
    done(desk, 2)
    assert waiting(found) != first


def test_a_process_that_waits_ends_with_its_worker(desk: Desk, server: ForkServer) -> None:
    found = waiting(ready(desk, server))
    server.__exit__(None, None, None)
    gone(found)


def test_a_process_that_dies_while_it_waits_fails_no_job(desk: Desk, server: ForkServer) -> None:
    found = ready(desk, server)
    os.kill(waiting(found).pid, signal.SIGKILL)
    gone(found)
    assert isinstance(done(desk, 2), Finished)
    assert ready(desk, server, 3) != found
