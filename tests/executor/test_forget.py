"""A run that is over, said on its host by another process than the worker: real spools, real processes of jobs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core import json_document
from bisector.core.deadline import Deadline
from bisector.core.errors import UserError
from bisector.executor.forget import Forgotten, forget
from bisector.executor.spec import Key
from bisector.executor.spool import Spool, Standing
from bisector.executor.watch import Desk, Returned
from bisector.git.mirror import Mirror
from bisector.host import process
from bisector.store.rundir import state_home
from tests.executor import engines
from tests.executor.engines import WAIT_S, Does, let_go, plan, reached
from tests.executor.test_watch import RUN, silent, spec

pytestmark = pytest.mark.rare

NOTHING = Forgotten(found=False, ended=(), left=False)


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spool:
    """The usual one of a host."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Spool(state_home() / "spool")


@pytest.fixture
def desk(spool: Spool) -> Iterator[Desk]:
    """That of a live worker."""
    made = Desk(spool, engines.FAKE, spool.sources, grace_s=1.0)
    yield made
    for entry in spool.entries():
        if (runner := entry.runner()) is not None and runner.lives:
            os.kill(runner.pid, signal.SIGKILL)
        process.reap(entry.place)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


def told(run: str) -> Forgotten:
    """What a coordinator is answered that has it said here."""
    words = [sys.executable, "-m", "bisector", "fleet", "on-host", "forget"]
    done = subprocess.run(words, input=run, capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    return json_document.parsed(done.stdout, Forgotten)


def under_way(spool: Spool, id_: int = 7) -> int:
    """The process of a job that leaves one of its own behind, marked as its run's."""
    Deadline("a job that hangs", WAIT_S).poll(lambda: (spool.home / "hanging").exists() or None, 0.01)
    runner = spool.entry(Key(RUN, id_)).runner()
    assert runner is not None
    assert runner.lives
    return runner.pid


def ended(pid: int) -> bool:
    """Whether a process is gone, or only waited for by nobody: this one has started some."""
    path = Path(f"/proc/{pid}/stat")
    return not path.exists() or path.read_bytes().rpartition(b") ")[2][:1] == b"Z"


def is_waited_for(lock: Path) -> bool:
    """Whether somebody waits for a lock (proc_locks(5))."""
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and f":{lock.stat().st_ino} " in line for line in lines)


@pytest.mark.parametrize("is_watched", [True, False], ids=["beside a worker that watches", "of a worker that is gone"])
def test_a_job_that_is_under_way_is_ended_and_nothing_of_its_run_is_left(
    desk: Desk, spool: Spool, pool: ThreadPoolExecutor, is_watched: bool
) -> None:
    plan(spool.home, job_7=Does.LEAVES)
    watcher = pool.submit(desk.watch, spec(), silent)
    pid = under_way(spool)
    place = spool.place(RUN)
    assert process.marked()[place]
    if not is_watched:
        desk.detach()
        assert watcher.result(WAIT_S) is None
    assert told(RUN) == Forgotten(found=True, ended=(7,), left=False)
    watcher.result(WAIT_S)
    assert ended(pid)
    assert place not in process.marked()
    assert not (spool.home / RUN).exists()
    assert told(RUN) == NOTHING


def test_what_a_killed_job_has_left_running_is_ended_while_another_run_measures(
    desk: Desk, spool: Spool, pool: ThreadPoolExecutor
) -> None:
    plan(spool.home, job_7=Does.LEAVES, job_8=engines.BEGUN)
    watcher = pool.submit(desk.watch, spec(), silent)
    pid = under_way(spool)
    desk.detach()
    watcher.result(WAIT_S)
    os.kill(pid, signal.SIGKILL)
    other = pool.submit(desk.watch, replace(spec(8), key=Key("other", 8)), silent)
    reached(spool.home, 8, engines.BEGUN)
    Deadline("a job that died", WAIT_S).poll(lambda: spool.held()[RUN][7] is Standing.LOST or None)
    assert process.marked()[spool.place(RUN)]
    assert told(RUN) == Forgotten(found=True, ended=(), left=True)
    assert spool.place(RUN) not in process.marked()
    assert spool.held()["other"] == {8: Standing.RUNNING}
    let_go(spool.home, 8, engines.BEGUN)
    assert isinstance(other.result(WAIT_S), Returned)
    desk.acknowledge(Key("other", 8))
    assert not (spool.home / RUN).exists()


def test_results_that_wait_for_a_coordinator_go_too(desk: Desk, spool: Spool) -> None:
    desk.watch(spec(), silent)
    assert spool.held() == {RUN: {7: Standing.DONE}}
    assert told(RUN) == Forgotten(found=True, ended=(), left=False)
    assert spool.held() == {}


def test_what_is_not_there_is_no_trouble_and_leaves_nothing(spool: Spool) -> None:
    assert told(RUN) == NOTHING
    assert not spool.home.exists()


@pytest.mark.parametrize("run", ["..", "", "a/b", ".hidden"])
def test_a_run_is_no_path(spool: Spool, run: str) -> None:
    (spool.home / "a" / "b").mkdir(parents=True)
    with pytest.raises(UserError, match="no key of a run"):
        forget(spool, run)
    assert (spool.home / "a" / "b").is_dir()


def test_the_commits_of_the_run_are_let_go_of_by_whoever_looks_next(spool: Spool, desk: Desk) -> None:
    desk.watch(spec(), silent)
    used = Mirror(spool.sources)._used(RUN)
    used.parent.mkdir(parents=True)
    used.touch()
    other = Mirror(spool.sources)._used("other")
    other.touch()
    forget(spool, RUN)
    assert (used.exists(), other.exists()) == (False, True)


def test_nothing_is_removed_while_a_worker_begins_a_job(desk: Desk, spool: Spool, pool: ThreadPoolExecutor) -> None:
    """Its directory is there before its process is."""
    desk.watch(spec(), silent)
    with spool.turn():
        waiting = pool.submit(forget, spool, RUN)
        Deadline("the mark that it is over", WAIT_S).poll(lambda: (spool.home / RUN / "over").exists() or None, 0.01)
        Deadline("its wait for the turn", WAIT_S).poll(lambda: is_waited_for(spool.home / "turn") or None, 0.01)
        assert spool.held() == {RUN: {7: Standing.DONE}}
    assert waiting.result(WAIT_S) == Forgotten(found=True, ended=(), left=False)


def test_the_answer_is_a_document(spool: Spool) -> None:
    assert json.loads(json_document.text(told(RUN))) == {"schema": 1, "found": False, "ended": [], "left": False}
