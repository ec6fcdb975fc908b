"""Whether a host takes jobs, what its worker writes of itself, and how the host stands by what is in its spool."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.core.trial import Stage
from bisector.executor.base import Finished
from bisector.executor.duty import LOOK_SIGNAL, Drained, Duty, DutyFiles, Link
from bisector.executor.spec import Key
from bisector.executor.spool import Spool, Standing
from bisector.executor.standing import standing
from bisector.executor.watch import Declined, Desk, Returned
from bisector.host.detached import ProcessIdentity
from bisector.store.facts import Work
from tests.executor import engines
from tests.executor.bench import COMMIT
from tests.executor.engines import let_go, plan, reached
from tests.executor.test_watch import RUN, silent, spec


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


@pytest.fixture
def desk(spool: Spool) -> Iterator[Desk]:
    made = Desk(spool, engines.FAKE, Path("/nowhere.git"), grace_s=1.0)
    yield made
    for entry in spool.entries():
        if (runner := entry.runner()) is not None and runner.lives:
            os.kill(runner.pid, signal.SIGKILL)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


def duty(pid: int = 0) -> Duty:
    own = ProcessIdentity.of(pid or os.getpid())
    return Duty(
        pid=own.pid,
        started=own.started,
        boot_id=own.boot_id,
        since="2026-11-26T10:00:00+00:00",
        name="bench1",
        coordinator="tls://desk:8786",
        link=Link.CONNECTED,
        link_since="2026-11-26T10:02:00+00:00",
    )


def test_a_host_is_drained_until_it_is_released_however_often_either_is_said(spool: Spool) -> None:
    files = DutyFiles(spool)
    assert (files.drained(), files.release()) == (None, False)
    first = files.drain("a new SSD")
    assert files.drained() == first
    assert (files.drain(), files.drained()) == (first, first)
    assert files.drain("and\na\x1b[31m new HDD") == Drained(since=first.since, reason="and a new HDD")
    assert (files.release(), files.release(), files.drained()) == (True, False, None)


def test_a_mark_that_nobody_can_read_is_one(spool: Spool) -> None:
    files = DutyFiles(spool)
    files.drain()
    path = spool.home / "drained"
    path.write_bytes(b"\xff half of i")
    assert files.drained() == Drained(since="", reason="")
    assert files.drain("again").since
    path.unlink()
    path.symlink_to("nothing")
    assert files.drained() is not None
    files.release()
    assert files.drained() is None


def test_a_drained_host_begins_no_job_and_finishes_those_that_it_has(
    spool: Spool, desk: Desk, pool: ThreadPoolExecutor
) -> None:
    plan(spool.home, job_7=engines.BEGUN)
    watcher = pool.submit(desk.watch, spec(), silent)
    reached(spool.home, 7, engines.BEGUN)
    DutyFiles(spool).drain()
    assert desk.watch(spec(8), silent) == Declined(Key(RUN, 8))
    assert spool.held() == {RUN: {7: Standing.RUNNING}}
    let_go(spool.home, 7, engines.BEGUN)
    first = watcher.result(engines.WAIT_S)
    assert isinstance(first, Returned)
    assert isinstance(first.news, Finished)
    assert desk.watch(spec(), silent) == first
    DutyFiles(spool).release()
    assert isinstance(desk.watch(spec(8), silent), Returned)


def test_a_worker_is_known_while_it_lives(spool: Spool) -> None:
    files = DutyFiles(spool)
    with spool.owned():
        assert files.duty() is None
        files.report(duty())
        assert files.duty() == duty()
        child = os.posix_spawn("/bin/true", ["true"], {})
        gone = duty(child)
        os.waitpid(child, 0)
        files.report(gone)
        assert files.duty() is None
        files.report(duty())
    assert files.duty() is None


def test_a_worker_that_runs_is_told_to_look(spool: Spool) -> None:
    files, told = DutyFiles(spool), list[int]()
    before = signal.signal(LOOK_SIGNAL, lambda number, frame: told.append(number))
    try:
        with spool.owned():
            files.report(duty())
            files.drain()
            files.release()
            assert told == [LOOK_SIGNAL] * 2
        files.drain()
        assert told == [LOOK_SIGNAL] * 2
    finally:
        signal.signal(LOOK_SIGNAL, before)


# How a host stands


def test_nothing_is_there_of_a_host_that_was_never_one(spool: Spool) -> None:
    found = standing(spool)
    assert (found.worker, found.drained, found.running, found.waiting) == (None, None, (), ())
    assert found.free_bytes > 0
    assert not spool.home.exists()


def test_the_trial_under_way_is_shown_with_its_stage(spool: Spool, desk: Desk, pool: ThreadPoolExecutor) -> None:
    began = time.time()
    plan(spool.home, job_7=engines.MEASURED)
    watcher = pool.submit(desk.watch, spec(), silent)
    reached(spool.home, 7, engines.MEASURED)
    (job,) = standing(spool).running
    assert (job.run, job.id, job.standing, job.work, job.n) == (RUN, 7, Standing.RUNNING, Work.TRIAL, 7)
    assert job.commit is not None
    assert job.commit.sha == COMMIT.sha
    assert (job.stage, job.detail) == (Stage.WORKLOAD, "full run")
    assert job.began <= str(job.stage_since)
    assert abs(spool.entry(Key(RUN, 7)).taken_at - began) < engines.WAIT_S
    let_go(spool.home, 7, engines.MEASURED)
    watcher.result(engines.WAIT_S)
    found = standing(spool)
    assert (found.running, [(job.id, job.standing) for job in found.waiting]) == ((), [(7, Standing.DONE)])


def test_a_job_of_another_version_is_shown_by_its_number(spool: Spool, desk: Desk) -> None:
    desk.watch(spec(), silent)
    entry = spool.entry(Key(RUN, 7))
    (entry.path / "spec").write_bytes(b"another version's")
    (entry.path / "result").unlink()
    (job,) = standing(spool).waiting
    assert (job.id, job.standing, job.work, job.n, job.commit) == (7, Standing.LOST, None, None, None)


def test_a_worker_that_is_stopped_is_shown_so(spool: Spool) -> None:
    child = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    try:
        with spool.owned():
            DutyFiles(spool).report(duty(child))
            worker = standing(spool).worker
            assert worker is not None
            assert (worker.stopped, worker.link, worker.coordinator) == (False, Link.CONNECTED, "tls://desk:8786")
            os.kill(child, signal.SIGSTOP)
            Deadline("a stopped process", 10).poll(lambda: ProcessIdentity.of(child).stopped or None, 0.01)
            worker = standing(spool).worker
            assert worker is not None
            assert worker.stopped
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
