"""The mark of a process is found, also while it goes from one program to the next."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bisector.core.deadline import Deadline
from bisector.host import process

_MARK = "BISECTOR_TEST"
# A process that runs itself again for ever: most of its time it is in an execve(2).
_AGAIN = "import os, sys; os.execv(sys.executable, sys.orig_argv)"
# What is not 0 of vsize, endcode, env_start and env_end (proc_pid_stat(5)) in the middle of an execve(2), and for a
# process without memory.
_IN_EXEC, _WITHOUT = {23: 4096}, dict[int, int]()


@contextmanager
def running(*words: str, **environment: str) -> Iterator[int]:
    with subprocess.Popen(words, env=environment) as child:
        try:
            Deadline("its program", 5).poll(lambda: words[0] in title(child.pid) or None, 0.01)
            yield child.pid
        finally:
            child.kill()


def title(pid: int) -> str:
    return process._read(pid, "cmdline").decode()


@pytest.mark.parametrize(
    ("environment", "value"),
    [
        ({_MARK: "/run"}, b"/run"),
        ({"A": "1", _MARK: "/run", "Z": "1"}, b"/run"),
        ({_MARK: ""}, b""),
        ({f"NOT_{_MARK}": "/run"}, None),
        ({"WORDS": f"of {_MARK}=/run"}, None),
        ({f"NOT_{_MARK}": "/other", _MARK: "/run"}, b"/run"),
        ({}, None),
    ],
)
def test_a_variable_is_known_by_its_whole_name(environment: dict[str, str], value: bytes | None) -> None:
    with running("/bin/sleep", "300", **environment) as pid:
        assert process.value_of(pid, _MARK) == value


def test_a_process_that_begins_another_program_keeps_its_mark() -> None:
    with running(sys.executable, "-SEc", _AGAIN, **{_MARK: "/run"}) as pid:
        assert {process.value_of(pid, _MARK) for _ in range(20_000)} == {b"/run"}


def told(monkeypatch: pytest.MonkeyPatch, fields: dict[int, int]) -> None:
    stat = "7 (a) b) R " + " ".join(str(fields.get(number, 0)) for number in range(4, 53))
    monkeypatch.setattr(process, "_read", lambda _, name: stat.encode() if name == "stat" else b"")


def test_a_process_that_never_begins_its_program_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, _IN_EXEC)
    monkeypatch.setattr(process, "_EXEC_S", 0.1)
    begun = time.monotonic()
    assert process.value_of(7, _MARK) is None
    assert 0.1 <= time.monotonic() - begun < 5


def test_what_has_no_memory_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of the kernel, and zombies; older kernels open their environment as an empty file."""
    told(monkeypatch, _WITHOUT)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waited"))
    assert process.value_of(7, _MARK) is None


def test_what_has_no_environment_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without variables, and one that has ended and was not yet asked how."""
    monkeypatch.setattr(process, "_LOOK_AGAIN_S", 60.0)
    with running("/bin/sleep", "300") as pid:
        assert process.value_of(pid, _MARK) is None
        os.kill(pid, signal.SIGKILL)
        Deadline("its end", 5).poll(lambda: b") Z " in process._read(pid, "stat") or None, 0.01)
        assert process.value_of(pid, _MARK) is None


def test_what_has_ended_has_no_mark() -> None:
    with running("/bin/sleep", "300", **{_MARK: "/run"}) as pid:
        pass
    assert process.value_of(pid, _MARK) is None
