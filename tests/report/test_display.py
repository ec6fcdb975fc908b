"""One contract for the three faces, on the same recorded events, and what a lost terminal does."""

import io
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import pytest

from bisector.core.events import Event, Note
from bisector.core.printable import hangup_ignored
from bisector.host import process
from bisector.report.display import Display, LiveProgress, PlainLines, Quiet, display_for, report_lines
from bisector.report.terminal import as_text, on_stream
from tests.report import examples

Maker = Callable[[TextIO], Display]


@pytest.fixture(params=[LiveProgress, PlainLines, Quiet], ids=["live", "plain", "quiet"])
def make(request: pytest.FixtureRequest) -> Maker:
    face: Maker = request.param
    return face


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Broken(Terminal):
    """A stream whose reader is gone after a few writes."""

    def __init__(self, error: OSError, after: int) -> None:
        super().__init__()
        self.error = error
        self.left = after
        self.attempts_after_loss = -1

    def write(self, text: str) -> int:
        if self.left <= 0:
            self.attempts_after_loss += 1
            raise self.error
        self.left -= 1
        return super().write(text)


@contextmanager
def pseudo_terminal() -> Iterator[tuple[int, TextIO]]:
    """The master's descriptor and the slave as a stream."""
    master, slave = os.openpty()
    with os.fdopen(slave, "w", encoding="utf-8") as stream:
        yield master, stream


def tell(display: Display) -> None:
    with display:
        for event in examples.recorded():
            display(event)
        display.conclude(examples.narrowed())


def test_every_face_takes_all_events_and_ends_with_the_answer(make: Maker) -> None:
    stream = Terminal()
    tell(make(stream))
    assert "the first fixed commit is one of 2 commits" in stream.getvalue()
    assert "git -C /src/linux show --stat 2a5b3c7d9e1f 3a5b3c7d9e1f" in stream.getvalue()


def test_no_face_swallows_an_error_of_the_bisection(make: Maker) -> None:
    display = make(Terminal())
    with pytest.raises(ZeroDivisionError), display:
        raise ZeroDivisionError


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(5, "EIO"), OSError(28, "ENOSPC")], ids=str)
@pytest.mark.parametrize("after", [0, 3])
def test_no_face_minds_a_lost_reader(make: Maker, error: OSError, after: int) -> None:
    stream = Broken(error, after)
    tell(make(stream))
    assert stream.attempts_after_loss <= 0, "stops writing at the first failure"


def test_no_face_hides_a_bug_in_writing(make: Maker) -> None:
    class Faulty(Terminal):
        def write(self, text: str) -> int:
            raise KeyError(text)

    before = signal.getsignal(signal.SIGHUP)
    with pytest.raises(KeyError):
        tell(make(Faulty()))
    assert signal.getsignal(signal.SIGHUP) is before


def test_no_face_minds_a_closed_terminal(make: Maker) -> None:
    with pseudo_terminal() as (master, stream):
        display = make(stream)
        with display:
            for index, event in enumerate(examples.recorded()):
                display(event)
                if index == 5:
                    os.close(master)
            display.conclude(examples.found())


def test_no_face_ends_by_a_hangup(make: Maker) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with make(Terminal()):
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_hangup_in_another_thread_is_left_alone() -> None:
    handlers = []

    def enter() -> None:
        with hangup_ignored():
            handlers.append(signal.getsignal(signal.SIGHUP))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGHUP)]


def test_every_face_writes_what_its_encoding_has(make: Maker) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    tell(make(stream))
    assert b"2a5b3c7d9e1f" in raw.getvalue()


def test_exit_status_survives_a_broken_pipe(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "from bisector.core.events import Note\n"
        "from bisector.report.display import PlainLines\n"
        "read, write = os.pipe()\n"
        "os.close(read)\n"
        "os.dup2(write, 1)\n"
        "with PlainLines(sys.stdout) as display:\n"
        "    display(Note('nobody reads this'))\n"
        "print('nor this')\n"
        "sys.exit(3)\n"
    )
    finished = process.run([sys.executable, script], deadline_s=30, check=False)
    assert (finished.exit_status, finished.stderr) == (3, "")


def test_choice_of_face(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(display_for(Terminal()), LiveProgress)
    assert isinstance(display_for(Terminal(), quiet=True), Quiet)
    assert isinstance(display_for(io.StringIO()), PlainLines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(display_for(Terminal()), PlainLines)


PLAIN = """\
13:14:15  the accelerator is tcg: kvm did not boot
13:14:15  trial 1: 0a5b3c7d9e1f Linux 5.0 (the old end)
13:14:15    checkout
13:14:15    config
13:14:15    build
13:14:15    boot
13:14:15    storage
13:14:15    workload: run full
13:14:15  trial 1: 0a5b3c7d9e1f broken at 1,002 / 9,104 IOPS (2 min 26 s): by the least of its jobs
"""


def test_plain_lines() -> None:
    stream = io.StringIO()
    with PlainLines(stream, lambda: datetime(2026, 3, 1, 13, 14, 15, tzinfo=UTC)) as display:
        for event in examples.recorded():
            display(event)
    assert stream.getvalue().startswith(PLAIN)
    last = stream.getvalue().splitlines()[-1]
    assert "trial 3: 2a5b3c7d9e1f skip (13 s): does not build" in last


def test_colours_change_no_column() -> None:
    lines = report_lines(examples.narrowed(), 120)
    coloured = on_stream(lines, Terminal())
    assert "\x1b[31m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == as_text(lines)
    assert on_stream(lines, io.StringIO()) == as_text(lines)


@pytest.fixture(autouse=True)
def capable_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """rich moves no cursor where TERM says dumb, as it may in continuous integration."""
    monkeypatch.setenv("TERM", "xterm-256color")


def shown_live(*events: Event, conclude: bool) -> str:
    """Every byte that the live face sent to a terminal."""
    received: list[bytes] = []
    with pseudo_terminal() as (master, stream):
        reader = threading.Thread(target=drain, args=(master, received))
        reader.start()
        with LiveProgress(stream) as display:
            for event in events:
                display(event)
            if conclude:
                display.conclude(examples.found())
        stream.close()
        reader.join()
        os.close(master)
    return b"".join(received).decode()


def drain(master: int, received: list[bytes]) -> None:
    """Read a pseudo-terminal until its other side is closed, which Linux tells by EIO."""
    with suppress(OSError):
        while data := os.read(master, 4096):
            received.append(data)


def test_live_picture_is_gone_before_the_report_and_the_cursor_is_back() -> None:
    shown = shown_live(*examples.recorded(), conclude=True)
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1
    assert "\x1b[2K" not in shown[shown.index("broken end") :], "no line is erased once the report stands"


def test_live_leaves_nothing_but_its_notes() -> None:
    shown = shown_live(Note("kvm did \x1b[31mnot boot"), conclude=False)
    assert "kvm did not boot" in shown
    assert "\x1b[2K" in shown[shown.rindex("preparing") :]
