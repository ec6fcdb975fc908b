"""What a killed run left running is ended by the next run of any kind, and a living run's is not."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bisector.executor.local import end_leftovers
from bisector.host import process
from bisector.host.locks import held
from bisector.store.log import DATABASE
from bisector.store.rundir import LOCK, Index, IndexEntry, single_commit_home
from bisector.vm import driver
from bisector.vm.definition import domain_prefix
from bisector.vm.driver import make_private

_SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process that would stay."""
    children: list[subprocess.Popen[bytes]] = []

    def started(*words: str, run_dir: Path | None = None) -> "subprocess.Popen[bytes]":
        mark = process.mark(run_dir) if run_dir is not None else {}
        children.append(subprocess.Popen([*_SLEEP, *words], env={**os.environ, **mark}))
        return children[-1]

    yield started
    for child in children:
        child.kill()
        child.wait()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs are, known to the index; nothing is ended that is not the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    marked = process.marked
    monkeypatch.setattr(
        process, "marked", lambda: {run: pids for run, pids in marked().items() if run.is_relative_to(tmp_path)}
    )
    monkeypatch.setattr(driver, "PARENT", tmp_path)
    return tmp_path


def a_run(parent: Path, name: str, *, lock: bool = True) -> Path:
    run_dir = parent / name
    run_dir.mkdir()
    (run_dir / DATABASE).touch()
    if lock:
        (run_dir / LOCK).touch()
    Index().add(IndexEntry(str(run_dir), "/linux", "v1", "v2", "2026-01-01T00:00:00+00:00"))
    return run_dir


def guest(parent: Path, run_dir: Path, start: Start) -> "subprocess.Popen[bytes]":
    """What looks like QEMU of a run, with the pid file that libvirt's driver makes of it."""
    root = parent / f"bisector-{os.getuid()}-0123456789"
    make_private(root)
    name = f"{domain_prefix(run_dir)}3"
    (root / "run/qemu").mkdir(parents=True, exist_ok=True)
    child = start(f"guest={name},debug-threads=on")
    (root / "run/qemu" / f"{name}.pid").write_text(f"{child.pid}\n")
    return child


def test_builds_and_guests_of_a_killed_run_are_ended_and_told(runs: Path, start: Start) -> None:
    dead = a_run(runs, "dead")
    make, qemu = start(run_dir=dead), guest(runs, dead, start)
    told: list[str] = []
    end_leftovers(runs / "mine", told.append)
    assert (make.wait(10), qemu.wait(10)) == (-9, -9)
    assert told == [f"{dead} was killed and had left something running, which is ended: 2 processes"]
    end_leftovers(runs / "mine", told.append)
    assert len(told) == 1


def test_a_process_that_bears_another_directory_as_its_mark_gets_nothing_done_there(runs: Path, start: Start) -> None:
    """As a rule of a kernel tree can start one, for a directory that it makes in its build directory."""
    precious = runs / "precious"
    precious.write_text("a person's")
    for place in (runs / "linked", runs / "plain"):
        place.mkdir()
    (runs / "linked" / LOCK).symlink_to(precious)
    (runs / "plain" / LOCK).write_text("as it was")
    children = [start(run_dir=runs / "linked"), start(run_dir=runs / "plain")]
    end_leftovers(runs / "mine", silent)
    assert [child.poll() for child in children] == [None, None]
    assert (precious.read_text(), (runs / "plain" / LOCK).read_text()) == ("a person's", "as it was")


def test_what_a_killed_test_of_one_commit_left_is_ended(runs: Path, start: Start) -> None:
    """It is in no list of runs."""
    place = single_commit_home() / "0123456789ab"
    place.mkdir(parents=True)
    (place / LOCK).touch()
    make, told = start(run_dir=place), list[str]()
    end_leftovers(runs / "mine", told.append)
    assert (make.wait(10), len(told)) == (-9, 1)


def test_a_guest_alone_is_found_by_its_name(runs: Path, start: Start) -> None:
    qemu = guest(runs, a_run(runs, "dead"), start)
    end_leftovers(runs / "mine", lambda text: None)
    assert qemu.wait(10) == -9


def test_a_guest_of_no_known_run_is_ended_unless_somebody_uses_its_directory(runs: Path, start: Start) -> None:
    qemu = guest(runs, runs / "doctor", start)
    (root,) = runs.glob("bisector-*")
    script = f"from pathlib import Path; from bisector.vm.driver import hold; hold(Path({str(root)!r}));"
    words = [sys.executable, "-c", f"{script} print(1, flush=True); input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdout is not None
        user.stdout.readline()
        end_leftovers(runs / "mine", silent)
        assert qemu.poll() is None
        user.kill()
    told: list[str] = []
    end_leftovers(runs / "mine", told.append)
    assert qemu.wait(10) == -9
    assert told == [f"guest {domain_prefix(runs / 'doctor')}3 was left by a process that was killed, and is ended"]


def test_temporary_directories_of_killed_processes_are_removed(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(runs / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(runs))
    left = [runs / "bisector-tmp-probe-abcdefgh", runs / "cache/bisector/bisector-tmp-reach-abcdefgh"]
    for path in left:
        path.mkdir(parents=True)
    end_leftovers(runs / "mine", silent)
    assert not any(path.exists() for path in left)


def silent(text: str) -> None:
    raise AssertionError(text)


def test_a_living_run_keeps_all_of_it(runs: Path, start: Start) -> None:
    living = a_run(runs, "living")
    children = start(run_dir=living), guest(runs, living, start)
    with held(living / LOCK):
        end_leftovers(runs / "mine", silent)
    assert [child.poll() for child in children] == [None, None]


def test_ones_own_and_what_has_no_lock_are_left_alone(runs: Path, start: Start) -> None:
    mine, night = a_run(runs, "mine"), a_run(runs, "night", lock=False)
    children = [start(run_dir=mine), start(run_dir=night), start()]
    end_leftovers(mine, silent)
    assert [child.poll() for child in children] == [None] * 3
