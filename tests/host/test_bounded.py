"""Commands whose output is not trusted to end."""

import threading
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.host import process
from bisector.host.process import TooMuchOutput


def bounded(script: str, deadline_s: float = 10.0, stdin: str = "") -> process.FinishedCommand:
    return process.run_bounded(["sh", "-c", script], deadline_s=deadline_s, most_bytes=1000, stdin=stdin)


def test_both_outputs_and_the_status() -> None:
    done = bounded(r"cat; printf 'bad\377' >&2; exit 3", stdin="ü")
    assert (done.exit_status, done.stdout, done.stderr) == (3, "ü", "bad\N{REPLACEMENT CHARACTER}")


@pytest.mark.parametrize("script", ["exec cat /dev/zero", "exec cat /dev/zero >&2", "yes | tee /dev/stderr"])
def test_too_much(script: str) -> None:
    with pytest.raises(TooMuchOutput):
        bounded(script)


@pytest.mark.parametrize("script", ["sleep 60", "exec >/dev/null 2>&1; sleep 60"], ids=["open pipes", "closed pipes"])
def test_nothing_is_left_of_what_does_not_end(tmp_path: Path, script: str) -> None:
    with pytest.raises(process.CommandTimeout):
        bounded(f"sleep 60 & echo $! > {tmp_path}/pid; {script}", deadline_s=0.5)
    pid = int((tmp_path / "pid").read_text())
    Deadline("its end", 5).poll(lambda: True if _gone(pid) else None)


def _gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


def test_another_thread_stops_it() -> None:
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    with pytest.raises(InterruptedError):
        process.run_bounded(["sleep", "60"], deadline_s=30, most_bytes=1, stopped=stop.is_set)


def test_no_descriptor_is_left_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    bounded("true")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
