"""Processes that outlive whoever started them."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.host import detached
from bisector.host.detached import ProcessIdentity


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[int]:
    with (tmp_path / "lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def start(script: str, tmp_path: Path, lock: int) -> ProcessIdentity:
    return ProcessIdentity.of(detached.start((sys.executable, "-c", script), tmp_path / "log", lock, {"GIVEN": "yes"}))


def free(tmp_path: Path) -> bool:
    with (tmp_path / "lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def ready(tmp_path: Path) -> None:
    Deadline("its words", 30).poll(lambda: ((tmp_path / "log").exists() and (tmp_path / "log").read_text()) or None)


def test_it_has_a_session_a_log_and_one_open_file(tmp_path: Path, lock: int) -> None:
    script = (
        "import os; print(os.getsid(0) == os.getpid(), os.environ['GIVEN'], os.read(0, 1), "
        "[n for n in range(256) if os.path.exists(f'/proc/self/fd/{n}')])"
    )
    identity = start(script, tmp_path, lock)
    pidfd = identity.open()
    assert pidfd is not None
    assert detached.ended_within(pidfd, 30.0)
    os.close(pidfd)
    *words, files = (tmp_path / "log").read_text().split(" ", 3)
    assert words == ["True", "yes", "b''"]
    assert {*json.loads(files)} - _inheritable() == {0, 1, 2, 3}
    assert not identity.lives


def _inheritable() -> set[int]:
    """Files that whoever runs the tests hands on to all children, which Python's own are not (PEP 446)."""
    found = set()
    for number in (int(path.name) for path in Path("/proc/self/fd").iterdir()):
        with suppress(OSError):
            found |= {number} if os.get_inheritable(number) else set()
    return found - {0, 1, 2, 3}


def test_the_lock_is_held_as_long_as_it_lives(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        identity = start("import time; print('ready', flush=True); time.sleep(60)", tmp_path, file.fileno())
    ready(tmp_path)
    assert not free(tmp_path)
    assert detached.end_group(identity, 5.0)
    assert free(tmp_path)
    assert not detached.end_group(identity, 5.0)


def test_a_group_that_hears_nothing_is_killed_with_its_children(tmp_path: Path, lock: int) -> None:
    script = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "child = os.fork(); child and print(child, flush=True); time.sleep(60)"
    )
    identity = start(script, tmp_path, lock)
    ready(tmp_path)
    child = ProcessIdentity.of(int((tmp_path / "log").read_text()))
    assert detached.end_group(identity, 0.1)
    Deadline("its end", 10).poll(lambda: True if _ended(child) else None)


def _ended(child: ProcessIdentity) -> bool:
    """Gone, or a zombie that nobody is parent of in a container without an init."""
    try:
        return Path(f"/proc/{child.pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except OSError:
        return True


def test_a_number_that_passed_to_another_process_is_not_its(tmp_path: Path) -> None:
    me = ProcessIdentity.of(os.getpid())
    assert me.lives
    for other in (replace(me, started=me.started + 1), replace(me, boot_id="another")):
        assert not other.lives
        assert other.open() is None
        assert not detached.end_group(other, 0.1)


def test_a_process_that_is_gone_has_no_identity() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(ProcessLookupError):
        ProcessIdentity.of(child.pid)


def test_it_outlives_who_started_it(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom bisector.host import detached\n"
        "file = os.open('/dev/null', os.O_RDONLY)\n"
        "print(detached.start((sys.executable, '-c', 'import time; time.sleep(60)'), Path(sys.argv[1]), file, {}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "log")], check=True, capture_output=True, text=True, timeout=30
    )
    identity = ProcessIdentity.of(int(done.stdout))
    assert identity.lives
    os.kill(identity.pid, signal.SIGKILL)
