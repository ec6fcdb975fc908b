"""Commands end with all that they started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.host import process

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


def test_what_a_command_that_succeeds_leaves_in_its_group_ends_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    process.run(["sh", "-c", f"sleep 300 >/dev/null 2>&1 & echo $! > {note}"], deadline_s=10)
    left = int(note.read_text())
    Deadline("the end of what was left", 2).poll(lambda: not is_alive(left) or None, every_s=0.01)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Starts a marked process in a session of its own, which the end of what started it does not end."""
    started: list[int] = []

    def start(run_dir: Path, command: str = "sleep 300") -> int:
        note = tmp_path / f"pid{len(started)}"
        script = f"setsid sh -c 'echo $$ > {note}; {command}' >/dev/null 2>&1 </dev/null & "
        process.run(["sh", "-c", f"{script} while [ ! -s {note} ]; do sleep 0.01; done"], deadline_s=10,
                    run_marker=run_dir)  # fmt: skip
        started.append(int(note.read_text()))
        return started[-1]

    yield start
    for pid in started:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_children_of_a_killed_process_are_found_by_their_mark_and_gone_at_once(
    tmp_path: Path, daemon: Callable[..., int]
) -> None:
    orphan = daemon(tmp_path)
    assert process.reap(tmp_path / "another") == 0
    assert is_alive(orphan)
    assert process.reap(tmp_path) >= 1
    assert not is_alive(orphan)
    assert process.reap(tmp_path) == 0


def test_a_run_directory_has_one_mark_however_it_is_spelled(
    tmp_path: Path, daemon: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for started, reaped in ((tmp_path / "run", Path("../run")), (Path("../run"), tmp_path / "link")):
        orphan = daemon(started)
        assert list(process.marked()[tmp_path / "run"]).count(orphan) == 1
        assert process.reap(reaped) >= 1
        assert not is_alive(orphan)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees the environment of others' processes")
def test_the_mark_of_another_users_process_means_nothing(tmp_path: Path) -> None:
    """Else any user could have root end processes, and write into directories, of that user's choice."""
    builder = process.build_user()
    assert builder is not None
    for user, found in ((65_534, 0), (builder.uid, 1)):
        environment = {**os.environ, **process.mark(tmp_path)}
        with subprocess.Popen(["sleep", "300"], user=user, env=environment) as sleeper:
            try:
                assert len(process.marked().get(tmp_path, ())) == found
                assert process.reap(tmp_path) == found
                assert (sleeper.poll() is None) is (found == 0)
            finally:
                sleeper.kill()


def test_a_connection_that_ssh_keeps_for_others_is_spared(tmp_path: Path, daemon: Callable[..., int]) -> None:
    script, pipe = tmp_path / "master", tmp_path / "pipe"
    os.mkfifo(pipe)  # open for both, it never ends
    script.write_text(f'exec -a "ssh: /home/anna/.ssh/master [mux]" cat <>{pipe}\n')
    master = daemon(tmp_path, f"exec bash {script}")
    Deadline("its title", 5).poll(lambda: b"[mux]" in Path(f"/proc/{master}/cmdline").read_bytes() or None, 0.01)
    process.reap(tmp_path)
    assert is_alive(master)


def test_a_number_that_passed_to_another_process_is_left_alone(tmp_path: Path, daemon: Callable[..., int]) -> None:
    other = daemon(tmp_path)
    assert not process.end(other, lambda _: False)
    assert is_alive(other)


_MARK = "BISECTOR_TEST"
# A process that runs itself again for ever: most of its time it is in an execve(2).
_AGAIN = "import os, sys; os.execv(sys.executable, sys.orig_argv)"


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
        ({_MARK: ""}, b""),
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
        assert {process.value_of(pid, _MARK) for _ in range(3_000)} == {b"/run"}


def test_a_process_that_never_begins_its_program_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of an execve(2) it has vsize, and not yet endcode, env_start and env_end (proc_pid_stat(5))."""
    stat = "7 (a) b) R " + " ".join("4096" if number == 23 else "0" for number in range(4, 53))
    monkeypatch.setattr(process, "_read", lambda _, name: stat.encode() if name == "stat" else b"")
    monkeypatch.setattr(process, "_EXEC_S", 0.1)
    begun = time.monotonic()
    assert process.value_of(7, _MARK) is None
    assert 0.1 <= time.monotonic() - begun < 5


def test_what_has_no_environment_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without variables, and one that has ended and was not yet asked how."""
    monkeypatch.setattr(process, "_LOOK_AGAIN_S", 60.0)
    with running("/bin/sleep", "300") as pid:
        assert process.value_of(pid, _MARK) is None
        os.kill(pid, signal.SIGKILL)
        Deadline("its end", 5).poll(lambda: b") Z " in process._read(pid, "stat") or None, 0.01)
        assert process.value_of(pid, _MARK) is None


def test_the_environment_of_a_command_is_not_that_of_the_person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKEFLAGS", "-j64")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    seen = process.run(["env"], deadline_s=10).stdout
    assert "MAKEFLAGS" not in seen
    assert "LC_ALL=C.UTF-8" in seen
