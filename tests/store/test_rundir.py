import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.core.verdict import State
from bisector.store.log import DATABASE
from bisector.store.rundir import LOCK, RunDirectory, run_name, state_home
from bisector.store.store import Store, state_of
from tests.store import examples

HOLD = """
import sys
from pathlib import Path
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from bisector.core.verdict import State
run = RunDirectory(Path(sys.argv[1]))
with run.lock():
    if run.database.exists():
        with Store.open(run.database) as store:
            store.set_state(State.RUNNING)
    print("locked", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(run: RunDirectory) -> Iterator["subprocess.Popen[str]"]:
    """A process that works in the run directory until its standard input closes."""
    argv = [sys.executable, "-c", HOLD, str(run.path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("bisector.host.locks._WAIT_S", 0.05)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def recorded(path: Path) -> RunDirectory:
    run = RunDirectory.create(path, "")
    Store.create(run.database, examples.bisection()).close()
    return run


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("v4.11", "v4.13-rc1", "20261121-033012-v4.11..v4.13-rc1"),
        ("origin/master~3", "HEAD@{1 day ago}", "20261121-033012-origin-master-3..HEAD-1-day-ago-"),
        ("a" * 300, "b", "20261121-033012-" + "a" * 104),
    ],
)
def test_name_is_safe(old: str, new: str, name: str) -> None:
    assert run_name(old, new, datetime(2026, 11, 21, 3, 30, 12, tzinfo=UTC)) == name


def test_relative_state_home_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert state_home() == tmp_path / ".local" / "state" / "bisector"


def test_killed_before_anything_was_recorded(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", "")
    with run.lock():
        (run.path / (DATABASE + ".new")).write_text("half")
    assert RunDirectory.create(tmp_path / "run", "") == run


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        (".", "is not empty, and it is not a run directory", "--run-dir DIRECTORY"),
        ("run", "holds a bisection already", "bisector resume --run-dir"),
        ("thesis.tex", "thesis.tex is not a directory", ""),
        ("thesis.tex/below", "thesis.tex/below is not a directory", ""),
        ("two\nlines", "has a line break", "--run-dir DIRECTORY"),
    ],
)
def test_where_no_run_can_begin(tmp_path: Path, name: str, said: str, hint: str) -> None:
    (tmp_path / "thesis.tex").write_text("")
    recorded(tmp_path / "run")
    with pytest.raises(UserError, match=said) as caught:
        RunDirectory.create(tmp_path / name, "")
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (".", r"is not a run directory: it has no record\.sqlite"),
        ("nothing", "there is no run directory"),
        ("n" * 300, "cannot be looked at: File name too long"),
    ],
)
def test_what_is_no_run_directory(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        RunDirectory.open(tmp_path / name)


def test_second_process(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    with another_process(run) as process:
        with pytest.raises(UserError, match=f"is in use by process {process.pid} since 20"), run.lock():
            pass
        with pytest.raises(UserError, match=f"is in use by process {process.pid} since 20"):
            RunDirectory.create(tmp_path, "")
        holder = run.holder()
        assert holder is not None
        assert holder.pid == process.pid


@pytest.mark.parametrize(
    "written", ["", "[" * 100_000, '{"pid": 1e999, "since": ""}', '{"pid": [1], "since": ""}', "{}"]
)
def test_a_holder_that_wrote_nonsense_is_another_process(tmp_path: Path, written: str) -> None:
    run = RunDirectory.create(tmp_path / "run", "name")
    with run.lock():
        (run.path / LOCK).write_text(written)
        assert str(run.holder()) == "another process"


def test_killed_process_holds_nothing_and_runs_no_more(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    with Store.open(run.database, readonly=True) as store:
        assert state_of(run, store) == (State.STOPPED, "ended before its first trial")
        with another_process(run) as process:
            assert state_of(run, store) == (State.RUNNING, "")
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert run.holder() is None
            assert state_of(run, store) == (State.STOPPED, f"process {process.pid} ended without a word")
    with run.lock(), Store.open(run.database) as writer:
        writer.set_state(State.FOUND, "abc")
        assert state_of(run, writer) == (State.FOUND, "abc")


def test_lock_is_not_inherited(tmp_path: Path) -> None:
    """A compiler or a VM that outlives its killed parent must not keep the run directory."""
    run = recorded(tmp_path)
    with run.lock():
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        assert run.holder() is None
    finally:
        child.kill()
        child.wait()


def test_a_run_directory_has_one_path_however_it_is_spelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "state")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "link"))
    assert RunDirectory.create(None, "a").path == tmp_path / "state/bisector/runs/a"
    assert RunDirectory.create(None, "a").path.name == "a-2"
    assert RunDirectory.create(Path("../run"), "").path == tmp_path / "run"
    with Store.create(tmp_path / "run" / DATABASE, examples.bisection()):
        assert RunDirectory.open(Path("../work/../run")).path == tmp_path / "run"


def test_what_a_killed_start_tried_out_does_not_make_it_no_run_directory(tmp_path: Path) -> None:
    left = tmp_path / "run/bisector-tmp-reach-abcdefgh"
    left.mkdir(parents=True)
    (left / "disk.img").write_text("")
    assert RunDirectory.create(tmp_path / "run", "").path == tmp_path / "run"
    (tmp_path / "run/mine").mkdir()
    with pytest.raises(UserError, match="not empty"):
        RunDirectory.create(tmp_path / "run", "")
