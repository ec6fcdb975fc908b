"""The shell in a guest that stops itself: the real script of the guest's side, and a machine that is played."""

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisector.core.deadline import SYSTEM_CLOCK, Clock, Deadline
from bisector.vm.base import Bounds, GuestNonsense, GuestTimeout
from bisector.vm.mailbox import BOX_BYTES, Mailbox, Wire, wire
from tests.vm import contract
from tests.vm.contract import LinkContract

SCRIPT = Path(__file__).parents[2] / "vm-images/mailbox"


def played(path: Path) -> "subprocess.Popen[bytes]":
    """The guest, as a process of this host."""
    (path / "script").write_text(SCRIPT.read_text().replace("/run/bisector", str(path / "run")))
    argv = ["perl", *(str(path / name) for name in ("script", "mailbox", "bell0", "bell1"))]
    return subprocess.Popen(argv, start_new_session=True)


@dataclass
class MailboxCase:
    """The played guest; its processes are of one group."""

    link: Mailbox
    watch: contract.Watch
    process: "subprocess.Popen[bytes]"
    place: Path
    release: str = Path("/proc/sys/kernel/osrelease").read_text(encoding="ascii").strip()
    short_s: float = 1.0
    clock: Clock = SYSTEM_CLOCK

    @property
    def directory(self) -> str:
        return str(self.place)

    def make_directory(self, name: str) -> None:
        (self.place / name).mkdir()

    def is_executable(self, name: str) -> bool:
        return os.access(self.place / name, os.X_OK)

    def fall_silent(self) -> None:
        os.killpg(self.process.pid, signal.SIGSTOP)


class TestMailbox(LinkContract):
    @pytest.fixture
    def case(self, guest: Wire, process: "subprocess.Popen[bytes]", tmp_path: Path) -> Iterator[MailboxCase]:
        (tmp_path / "of-guest").mkdir()
        watch = contract.Watch()
        with Mailbox(guest, watch) as link:
            yield MailboxCase(link, watch, process, tmp_path / "of-guest")


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Wire]:
    with wire(tmp_path) as made:
        yield made


@pytest.fixture
def process(line: Wire, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with played(tmp_path) as process:
        yield process
        os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def guest(line: Wire, process: "subprocess.Popen[bytes]") -> Wire:
    assert Deadline("its first message", 20.0).poll(line.told, 0.01) == ["ready"]
    return line


@pytest.fixture
def mailbox(guest: Wire) -> Iterator[Mailbox]:
    with Mailbox(guest, lambda: None, Bounds(output_bytes=1 << 20)) as made:
        yield made


def test_what_is_said_is_heard_while_the_command_runs_and_others_are_run_meanwhile(
    mailbox: Mailbox, tmp_path: Path
) -> None:
    """As fio is interrupted once its status is clear."""
    heard = []

    def hear(line: str) -> None:
        heard.append((line, mailbox.run(f"echo of {line}; touch {tmp_path}/end").stdout))

    waits = f"echo one >&2; until [ -e {tmp_path}/end ]; do sleep 0.1; done; echo two >&2; echo over"
    assert mailbox.stream(waits, hear, 30.0).stdout == "over\n"
    assert heard == [("one", "of one\n"), ("two", "of two\n")]


@pytest.mark.parametrize("status", [137, 255])
def test_a_status_like_that_of_a_signal_is_the_commands_own(mailbox: Mailbox, status: int) -> None:
    assert mailbox.run(f"exit {status}").exit_status == status


@pytest.mark.parametrize(
    "told", [b"1 done 0 99999999999 1\n", b"1 done x 0 1\n", b"1 said 1\n", b"\xff 1 1\n1", b"3 done 0 0 3\n", b"1 1\n"]
)
def test_an_answer_that_is_none(line: Wire, told: bytes) -> None:
    with line.memory.open("r+b") as file:
        file.seek(BOX_BYTES // 2)
        file.write(told)
    with Mailbox(line, lambda: None) as mailbox, pytest.raises((GuestNonsense, GuestTimeout)):
        mailbox.run("true", 0.3)


def test_a_line_that_is_just_being_written_is_not_told_yet(line: Wire) -> None:
    for told, words in ((b"1 done 0 ", None), (b"1 done 0 7 0\n", None), (b"1 done 0 7 1\n", ["done", 0, 7])):
        with line.memory.open("r+b") as file:
            file.seek(BOX_BYTES // 2)
            file.write(told)
        assert line.told() == words
