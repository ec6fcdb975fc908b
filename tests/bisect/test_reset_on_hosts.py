"""``bisector reset`` of a run whose hosts dial in: real workers and coordinators, whose processes are killed."""

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.executor.spec import Key
from bisector.executor.spool import Spool
from bisector.executor.untold import Untold
from bisector.host.locks import holder_of
from bisector.store.rundir import LOCK, RunDirectory
from tests.bisect.test_on_hosts import Place, ended, some_reached
from tests.executor import engines
from tests.executor.engines import WAIT_S
from tests.executor.test_forget import ended as is_over

pytestmark = pytest.mark.fleet

BENCH = "bench1"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A host whose fifth job stops before its end."""
    with ExitStack() as stack:
        made = Place(tmp_path, stack)
        engines.plan(made.spool(BENCH), job_5=engines.MEASURED)
        yield made


def killed(place: Place, child: "subprocess.Popen[bytes]") -> tuple[Key, int]:
    """The job that goes on when the coordinator is killed, and its process."""
    some_reached(place, 5)
    child.send_signal(signal.SIGKILL)
    child.wait(WAIT_S)
    spool = Spool(place.spool(BENCH))
    (key,) = [entry.key for entry in spool.entries() if entry.key.id == 5]
    runner = spool.entry(key).runner()
    assert runner is not None
    assert runner.lives
    return key, runner.pid


def reset(place: Place, *words: str) -> str:
    before = len(place.log.read_text())
    ended(place.coordinator("reset", *words), place.log)
    return place.log.read_text()[before:]


def reset_unheard(place: Place, *words: str) -> str:
    """While somebody else listens at the address, so that no host is waited for."""
    with socket.create_server(("127.0.0.1", int(place.address.rpartition(":")[2]))):
        return reset(place, *words)


def nothing_runs(place: Place, key: Key, pid: int) -> None:
    """Within a minute, neither its process nor a lock."""
    Deadline("the end of its process", WAIT_S).poll(lambda: is_over(pid) or None)
    lock = Spool(place.spool(BENCH)).place(key.run) / LOCK  # held for a moment by who looks for what it has left
    Deadline("the end of its lock", WAIT_S).poll(lambda: True if holder_of(lock) is None else None)


def nothing_is_left(place: Place, key: Key) -> None:
    run = Spool(place.spool(BENCH)).home / key.run
    Deadline("a spool without it", WAIT_S).poll(lambda: None if run.exists() else True)


def untold(place: Place) -> Untold:
    return Untold(place.home / "state" / "bisector" / "untold.json")


def another_run(place: Place, name: str) -> "subprocess.Popen[bytes]":
    place.run = RunDirectory(place.home / name)
    return place.start()


def test_a_trial_whose_worker_dials_in_is_ended(place: Place) -> None:
    place.worker(BENCH)
    key, pid = killed(place, place.start())
    said = reset(place, "--delete")
    assert f"{BENCH}: told when it connected just now" in said
    assert not place.run.path.exists()
    nothing_runs(place, key, pid)
    nothing_is_left(place, key)


@pytest.mark.rare
def test_a_host_that_is_away_is_told_by_the_next_run(place: Place) -> None:
    worker = place.worker(BENCH)
    key, pid = killed(place, place.start())
    worker.kill()
    assert f"{BENCH}: not told yet: " in reset_unheard(place, "--delete")
    assert untold(place).of(BENCH) == (key.run,)
    assert not is_over(pid)
    engines.plan(place.spool(BENCH))
    child = another_run(place, "next")
    place.worker(BENCH)
    nothing_runs(place, key, pid)
    ended(child, place.log)
    place.check_found()
    nothing_is_left(place, key)


@pytest.mark.rare
def test_a_host_that_works_for_another_run_meanwhile_is_told_by_that(place: Place) -> None:
    place.worker(BENCH)
    key, pid = killed(place, place.start())
    engines.plan(place.spool(BENCH), job_6=engines.MEASURED)
    reset_run, child = place.run, another_run(place, "next")
    some_reached(place, 6)
    other, place.run = place.run, reset_run
    assert "Address already in use" in reset(place)
    nothing_runs(place, key, pid)
    engines.let_go(place.spool(BENCH), 6, engines.MEASURED)
    place.run = other
    ended(child, place.log)
    place.check_found()
    nothing_is_left(place, key)


@pytest.mark.rare
def test_a_run_that_is_gone_on_with_is_over_for_no_host(place: Place) -> None:
    worker = place.worker(BENCH)
    killed(place, place.start())
    worker.kill()
    assert f"{BENCH}: not told yet: " in reset_unheard(place)
    child = place.resume()
    place.worker(BENCH)
    engines.let_go(place.spool(BENCH), 5, engines.MEASURED)
    ended(child, place.log)
    place.check_found()
    assert engines.runs(place.spool(BENCH), 5) == 1
    assert untold(place).of(BENCH) == ()
