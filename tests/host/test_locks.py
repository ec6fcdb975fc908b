"""The locks between processes, held by real ones."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bisector.cli import main
from bisector.core import resources
from bisector.core.errors import InfraError
from bisector.host import locks
from bisector.host.locks import TurnPurpose, held, holder_of
from tests.docs.json_schema import valid


def test_a_file_behind_a_link_is_neither_read_nor_overwritten(tmp_path: Path) -> None:
    other, lock = tmp_path / "other", tmp_path / "lock"
    other.write_text("a person's")
    lock.symlink_to(other)
    with pytest.raises(OSError, match="Too many levels of symbolic links"), held(lock):
        pass
    with pytest.raises(InfraError, match="cannot read"):
        holder_of(lock)
    assert other.read_text() == "a person's"


def test_the_other_end_of_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    assert holder_of(tmp_path / "lock") is None


def test_who_holds_it_is_told_for_as_long(tmp_path: Path) -> None:
    with held(tmp_path / "lock"):
        holder = holder_of(tmp_path / "lock")
        assert holder is not None
        assert holder.pid == os.getpid()
    assert holder_of(tmp_path / "lock") is None


_HOLDER = """
    import sys, time
    from pathlib import Path
    from bisector.host import locks
    locks.SHARED_TURN, own = Path(sys.argv[1]), Path(sys.argv[2])
    locks.own_turn = lambda: own
    purpose = locks.TurnPurpose(sys.argv[3])
    with locks.measuring(Path("/runs/first"), lambda text: print(text, flush=True), purpose):
        print("held", flush=True)
        time.sleep(600)
"""


@contextmanager
def held_elsewhere(
    own: Path | None = None, purpose: TurnPurpose = TurnPurpose.MEASUREMENT
) -> Iterator["subprocess.Popen[str]"]:
    """Another process that measures, or builds; of another user, where ``own`` is another file."""
    paths = (str(locks.SHARED_TURN), str(own or locks.own_turn()))
    command = [sys.executable, "-c", textwrap.dedent(_HOLDER), *paths, purpose]
    environment = {**os.environ, "PYTHONPATH": str(resources.ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        try:
            yield child
        finally:
            child.kill()


@pytest.fixture(autouse=True)
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "SHARED_TURN", tmp_path / "shared.lock")
    monkeypatch.setattr(locks, "own_turn", lambda: tmp_path / "cache" / "own.lock")


def silent(text: str) -> None:
    raise AssertionError(text)


@pytest.mark.parametrize("whose", ["own", "another user's"])
def test_a_second_one_waits_and_tells_for_whom(tmp_path: Path, whose: str) -> None:
    told: list[str] = []
    with held_elsewhere(tmp_path / "theirs.lock" if whose != "own" else None) as first:

        def tell(text: str) -> None:
            told.append(text)
            threading.Timer(0.05, first.kill).start()  # a killed holder frees it

        with locks.measuring(tmp_path, tell):
            assert first.wait() == -signal.SIGKILL
    assert len(told) == 1
    assert told[0].startswith(f"waiting for run /runs/first, process {first.pid}: ")


def test_a_holder_that_has_not_written_its_name_yet_has_not_that_of_the_one_before(tmp_path: Path) -> None:
    """Between its lock and its name stands what the last holder wrote; that one has ended."""
    told: list[str] = []
    with subprocess.Popen(["true"]) as gone:
        pass
    with held_elsewhere() as first:
        name = locks.own_turn().read_text()
        locks.own_turn().write_text(name.replace(f'"pid": {first.pid}', f'"pid": {gone.pid}'))
        assert str(locks.measurer()) == "another process"
        threading.Timer(0.2, locks.own_turn().write_text, (name,)).start()

        def tell(text: str) -> None:
            told.append(text)
            first.kill()

        with locks.measuring(tmp_path, tell):
            pass
    assert [text.partition(": ")[0] for text in told] == [f"waiting for run /runs/first, process {first.pid}"]


def test_a_holder_that_was_stopped_is_told_and_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_TELL_EVERY_S", 0.05)
    monkeypatch.setattr(locks, "_LONGEST_TURN_S", 0.2)
    told: list[str] = []
    with held_elsewhere() as first:
        who = f"run /runs/first, process {first.pid}, which is stopped (kill -CONT {first.pid})"
        first.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WNOWAIT)
        with (
            pytest.raises(InfraError, match="has kept its turn on this host") as caught,
            locks.measuring(tmp_path, told.append),
        ):
            raise AssertionError("it was held")
        assert str(caught.value).startswith(who)
        assert str(first.pid) in caught.value.hint
    assert told[0].startswith(f"waiting for {who}: ")
    assert f"still waiting for {who}" in told[1:]
    with locks.measuring(tmp_path, silent):  # nothing of the wait is left
        pass


def test_a_holder_that_changes_may_be_waited_for_for_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its turns is short."""
    monkeypatch.setattr(locks, "_TELL_EVERY_S", 0.05)
    monkeypatch.setattr(locks, "_LONGEST_TURN_S", 0.2)
    told: list[str] = []
    with held_elsewhere() as first:

        def tell(text: str) -> None:
            told.append(text)
            note = {"pid": first.pid, "run_dir": "/runs/first", "since": str(len(told))}
            locks.own_turn().write_text(json.dumps(note))
            if len(told) == 10:
                first.kill()

        with locks.measuring(tmp_path, tell):
            assert len(told) >= 10


def test_ctrl_c_ends_the_wait(tmp_path: Path) -> None:
    def interrupt(_text: str) -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()

    with held_elsewhere(), pytest.raises(KeyboardInterrupt), locks.measuring(tmp_path, interrupt):
        raise AssertionError("it was held")
    with locks.measuring(tmp_path, silent):  # nothing of it is left
        pass


def precious(path: Path) -> Path:
    file = path.parent / "precious"
    file.write_text("precious")
    file.chmod(_PRIVATE)
    return file


STRANGE: dict[str, Callable[[Path], object]] = {
    "a link": lambda path: path.symlink_to(precious(path)),
    "a link to nothing": lambda path: path.symlink_to("elsewhere"),
    "a directory": Path.mkdir,
    "a pipe": os.mkfifo,
    "a second name": lambda path: path.hardlink_to(precious(path)),
}
_PRIVATE = 0o600


@pytest.mark.parametrize("strange", STRANGE)
def test_a_strange_file_for_all_users_is_left_alone(tmp_path: Path, strange: str) -> None:
    STRANGE[strange](locks.SHARED_TURN)
    with locks.measuring(tmp_path, silent):
        assert locks.measurer() is not None
    assert not (tmp_path / "elsewhere").exists()
    for file in tmp_path.glob("precious"):
        assert (file.read_text(), file.stat().st_mode & 0o777) == ("precious", _PRIVATE)


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no directory")
    with pytest.raises(InfraError, match=r"own\.lock"), locks.measuring(tmp_path, silent):
        pass
    with pytest.raises(InfraError, match="Not a directory"), locks.using_caches(tmp_path / "cache" / "below"):
        pass


def test_all_users_may_use_what_the_first_one_made(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with locks.measuring(tmp_path, silent):
            assert locks.SHARED_TURN.stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(before)


DAMAGED = {
    "half of it": '{"pid": 1, "run_d',
    "no text": "\udcff",
    "nested": "[" * 8000,
    "a process without a number": '{"pid": NaN, "run_dir": "/", "since": ""}',
    "a process of thousands of digits": f'{{"pid": {"9" * 5000}, "run_dir": "/", "since": ""}}',
    "everybody": '{"pid": -1, "run_dir": "/", "since": ""}',
    "no directory": '{"pid": 1, "run_dir": ["/"], "since": ""}',
}


@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_damaged_note_of_the_holder_hides_nothing(tmp_path: Path, damaged: str) -> None:
    """Any user may write the file that all share."""
    with locks.measuring(tmp_path, silent):
        locks.own_turn().write_text(DAMAGED[damaged], errors="surrogateescape")
        assert str(locks.measurer()) == "another process"


def test_commands_that_take_the_cpu_tell_of_a_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "graph.txt").write_text("0\n1 0\n2 1\n")
    simulate = ["simulate", "--graph", str(tmp_path / "graph.txt"), "--trials", "1", "--json"]
    assert main(simulate) == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    with held_elsewhere() as first:
        assert main(simulate) == 0
        shown = capsys.readouterr()
        assert set(valid("simulate", shown.out)) == set(valid("simulate", quiet.out))
        assert shown.err == (
            f"bisector: a measurement is under way on this host (run /runs/first, process {first.pid}): "
            "other work makes its runs weak\n"
        )
        for words in (["report"], ["plot"], ["start", "v1", "v2"]):
            assert main([*words, "--run-dir" if words[0] != "start" else "--repo", str(tmp_path / "none")]) == 2
            assert "a measurement is under way" in capsys.readouterr().err
        assert main(["settings"]) == 0
        assert "under way" not in capsys.readouterr().err


def test_a_build_is_not_called_a_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    """`bisector kernel build` takes its turn, too."""
    with held_elsewhere(purpose=TurnPurpose.BUILD) as first:
        assert main(["report", "--run-dir", "none"]) == 2
        (notice, *_) = capsys.readouterr().err.splitlines()
        who = f"run /runs/first, process {first.pid}"
        assert notice == f"bisector: a build is under way on this host ({who}): other work makes it slower"


def test_alone_is_who_nobody_shares_with(tmp_path: Path) -> None:
    home = tmp_path / "cache"
    with locks.clearing_caches(home) as nobody_else:
        assert nobody_else
    with locks.using_caches(home), locks.using_caches(home), locks.clearing_caches(home) as nobody_else:
        assert not nobody_else
    with locks.clearing_caches(home) as nobody_else:
        assert nobody_else
