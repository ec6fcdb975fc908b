"""Commands end with all that they started."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bisector import process
from bisector.deadline import Deadline

# A leader that ends at SIGTERM and a child of it that does not; the child alone holds the log open.
STUBBORN = """\
sh -c 'trap "" TERM; echo $$ > {pid}; while :; do sleep 0.1; done' &
while [ ! -s {pid} ]; do sleep 0.01; done
wait
"""


@pytest.fixture
def pid_file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "pid"
    yield path
    if is_alive(pid := int(path.read_text())):
        os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("logged", [True, False], ids=["to a log", "to us"])
def test_a_child_that_ignores_sigterm_ends_with_its_parent(
    pid_file: Path, tmp_path: Path, logged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_GRACE_S", 0.2)
    with pytest.raises(process.CommandTimeout):
        process.run(
            ["sh", "-c", STUBBORN.format(pid=pid_file)], deadline_s=0.5, log=tmp_path / "log" if logged else None
        )
    pid = int(pid_file.read_text())
    Deadline("the stubborn child's end", 2).poll(lambda: not is_alive(pid) or None, every_s=0.01)


def test_what_may_not_be_executed_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root no directory is closed to us, but the kernel says the same of a file that nobody may execute."""
    (tmp_path / "fio").write_text("#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(process.CommandMissing, match="fio"):
        process.run(["fio"], deadline_s=10)


def test_a_directory_that_is_gone_is_not_a_missing_program(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        process.run(["true"], deadline_s=10, cwd=tmp_path / "gone")
