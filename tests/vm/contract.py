"""What every connection to a guest does, and every hypervisor: the real ones, and the fakes that stand for them.

Each implementation's own test module has a subclass with a fixture ``case``: tests/vm/test_fake_guest.py,
tests/vm/test_guest.py (the real connection to a real SSH server), tests/in_vms/test_guest.py (to a real guest),
tests/vm/test_mailbox.py (memory that a guest shares, and its script), tests/vm/test_domain.py (libvirt).
"""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from bisector.core.deadline import Clock, Deadline
from bisector.core.errors import InfraError
from bisector.core.trial import FaultKind, KernelFault, Stage
from bisector.vm import machine
from bisector.vm.base import (
    Domain,
    GuestCopyFailed,
    GuestLink,
    GuestLost,
    GuestNonsense,
    GuestRefused,
    GuestTimeout,
    Hypervisor,
)
from bisector.vm.definition import DomainSpec
from tests.guestshell import Answer

# What a shell makes of a command, which the fake is told.
COMMANDS = {
    "echo out; echo err >&2; exit 7": Answer("out\n", "err\n", 7),
    "kill -9 $$": Answer(exit_status=-1),
    r"printf 'one\ntwo\rthree\r\nrest' >&2": Answer(stderr="one\ntwo\rthree\r\nrest"),
    "sleep 600": Answer(takes_s=600.0),
    "sleep 1; echo done": Answer("done\n", takes_s=1.0),
    "echo next": Answer("next\n"),
}
T = TypeVar("T")
PANIC = KernelFault(Stage.WORKLOAD, FaultKind.PANIC, "Kernel panic - not syncing")


class Watch:
    """Is called while a guest is waited for, and counts that; blocks once, and raises from the second time on."""

    def __init__(self) -> None:
        self.calls = 0
        self.raises: Exception | None = None
        self.blocks: Callable[[], None] | None = None

    def __call__(self) -> None:
        self.calls += 1
        block, self.blocks = self.blocks, None
        if block is not None:
            block()
        if self.raises is not None and self.calls > 1:
            raise self.raises


class LinkCase(Protocol):
    """A guest that is spoken to, and what happens to it."""

    link: GuestLink
    watch: Watch
    directory: str  # of the guest, empty
    release: str
    short_s: float  # longer than a round trip
    clock: Clock

    def make_directory(self, name: str) -> None:
        """Make one in the directory."""

    def is_executable(self, name: str) -> bool:
        """Whether a file in the directory is a program."""

    def fall_silent(self) -> None:
        """The other end stays, and answers no more."""


class ConnectionCase(LinkCase, Protocol):
    """A guest that is connected to."""

    def break_connection(self) -> None:
        """The other end is gone."""

    def log_in_nowhere(self) -> AbstractContextManager[GuestLink]:
        """Connect to a port that nobody listens on."""

    def log_in_as_stranger(self) -> AbstractContextManager[GuestLink]:
        """Connect with another key."""


class LinkContract:
    """A root shell in a guest, as storage, workload and the blame for a lost guest rely on it."""

    def test_a_command_has_an_exit_status_and_two_streams(self, case: LinkCase) -> None:
        command = "echo out; echo err >&2; exit 7"
        result = case.link.run(command)
        assert (result.command, result.exit_status, result.stdout, result.stderr) == (command, 7, "out\n", "err\n")

    def test_a_command_ended_by_a_signal_is_a_result(self, case: LinkCase) -> None:
        assert case.link.run("kill -9 $$").exit_status == -1

    def test_lines_of_standard_error_are_handed_over(self, case: LinkCase) -> None:
        """A carriage return ends one, too; the last one needs no end."""
        lines: list[str] = []
        result = case.link.stream(r"printf 'one\ntwo\rthree\r\nrest' >&2", lines.append, 20)
        assert [line for line in lines if line] == ["one", "two", "three", "rest"]
        assert result.stderr == "one\ntwo\rthree\r\nrest"

    def test_what_a_listener_raises_ends_the_command(self, case: LinkCase) -> None:
        class BugError(Exception):
            pass

        def on_line(line: str) -> None:
            raise BugError

        with pytest.raises(BugError):
            case.link.stream(r"printf 'one\ntwo\rthree\r\nrest' >&2", on_line, 20)
        assert case.link.run("echo next").stdout == "next\n"

    def test_the_guest_is_watched_while_it_works(self, case: LinkCase) -> None:
        before = case.watch.calls
        assert case.link.run("sleep 1; echo done").stdout == "done\n"
        assert case.watch.calls >= before + 3

    def test_what_the_watch_raises_ends_the_wait(self, case: LinkCase) -> None:
        case.watch.raises = PANIC
        with pytest.raises(KernelFault) as caught:
            case.link.run("sleep 600", 60)
        assert caught.value is PANIC

    def test_time_in_which_nobody_could_look_does_not_count(self, case: LinkCase) -> None:
        """As while this process is stopped."""
        case.watch.blocks = lambda: case.clock.sleep(2.5)
        assert case.link.run("sleep 1; echo done", 2.0).stdout == "done\n"

    def test_text_goes_in_and_comes_out(self, case: LinkCase, tmp_path: Path) -> None:
        case.link.put("größer\n", f"{case.directory}/note")
        case.link.get(f"{case.directory}/note", tmp_path / "copy")
        assert (tmp_path / "copy").read_text(encoding="utf-8") == "größer\n"

    def test_a_file_of_any_kind_goes_in_with_its_mode(self, case: LinkCase, tmp_path: Path) -> None:
        tool = tmp_path / "tool"
        tool.write_bytes(bytes(range(256)) * 5000)
        tool.chmod(0o755)
        case.link.send(tool, f"{case.directory}/tool")
        case.link.get(f"{case.directory}/tool", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == tool.read_bytes()
        assert case.is_executable("tool")
        with pytest.raises(GuestCopyFailed, match=r"tool to .*/missing/tool"):
            case.link.send(tool, f"{case.directory}/missing/tool")

    def test_what_is_not_there(self, case: LinkCase, tmp_path: Path) -> None:
        missing = f"{case.directory}/missing"
        with pytest.raises(GuestCopyFailed, match=missing):
            case.link.get(missing, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()
        with pytest.raises(GuestCopyFailed, match=f"{missing}/note"):
            case.link.put("x", f"{missing}/note")
        assert case.link.run("echo next").stdout == "next\n"

    def test_what_is_no_regular_file_is_not_copied(self, case: LinkCase, tmp_path: Path) -> None:
        case.make_directory("fio.json")
        with pytest.raises(GuestNonsense, match="is not a regular file"):
            case.link.get(f"{case.directory}/fio.json", tmp_path / "copy")
        assert not (tmp_path / "copy").exists()

    @pytest.mark.parametrize("there", ["file", "dangling link"])
    def test_a_copy_replaces_nothing(self, case: LinkCase, tmp_path: Path, there: str) -> None:
        case.link.put("of the guest", f"{case.directory}/note")
        copy, precious = tmp_path / "copy", tmp_path / "precious"
        if there == "file":
            copy.write_text("precious", encoding="utf-8")
        else:
            copy.symlink_to(precious)
        with pytest.raises(InfraError, match="File exists"):
            case.link.get(f"{case.directory}/note", copy)
        assert not precious.exists()
        assert there != "file" or copy.read_text(encoding="utf-8") == "precious"

    def test_what_the_kernel_says_of_itself(self, case: LinkCase) -> None:
        assert machine.running_release(case.link) == case.release
        assert re.fullmatch(r"[0-9a-f]*", machine.running_build_id(case.link))

    def test_a_guest_that_does_not_answer_is_given_up_at_the_deadline_and_then_for_good(self, case: LinkCase) -> None:
        case.fall_silent()
        with pytest.raises(GuestTimeout):
            case.link.run("echo next", case.short_s)
        with pytest.raises(GuestLost):  # at once: nothing waits for that answer any more
            case.link.run("echo next", 600)


class ConnectionContract(LinkContract):
    """What a guest with a network does besides: it hears the host while it works, and takes connections, or none.

    A guest that is served by its mailbox does neither. It looks into that when it has told something: a command that
    does not end keeps it for good. And nobody but the host that shares its memory can speak to it.
    """

    def test_a_command_over_its_time_leaves_the_connection(self, case: ConnectionCase) -> None:
        with pytest.raises(GuestTimeout, match=r"the end of `sleep 600` in the guest not seen within"):
            case.link.run("sleep 600", case.short_s)
        assert case.link.run("echo next").stdout == "next\n"

    def test_a_connection_that_breaks_is_lost_for_good(self, case: ConnectionCase, tmp_path: Path) -> None:
        case.break_connection()
        uses: tuple[Callable[[], object], ...] = (
            lambda: case.link.run("echo next"),
            lambda: case.link.put("x", f"{case.directory}/note"),
            lambda: case.link.send(Path(__file__), f"{case.directory}/note"),
            lambda: case.link.get(f"{case.directory}/note", tmp_path / "copy"),
            lambda: machine.running_release(case.link),
        )
        for use in uses:
            with pytest.raises(GuestLost):
                use()

    def test_nobody_there(self, case: ConnectionCase) -> None:
        with pytest.raises(GuestLost):
            case.log_in_nowhere()

    def test_another_key_is_refused(self, case: ConnectionCase) -> None:
        with pytest.raises(GuestRefused) as caught:
            case.log_in_as_stranger()
        assert caught.value.hint


class DomainCase(Protocol):
    """A hypervisor, and guests of which the first line on the console is :attr:`words`."""

    hypervisor: Hypervisor
    words: str
    clock: Clock

    def spec(self, *, ends: bool) -> DomainSpec:
        """A guest that speaks, and then ends by itself or does not."""

    def kill_qemu(self) -> None:
        """Somebody ends the one guest that runs."""

    def taken(self, spec: DomainSpec) -> AbstractContextManager[object]:
        """Meanwhile the guest's port is somebody else's."""


class DomainContract:
    """A guest that was started, as the watch over it relies on it."""

    def test_a_guest_speaks_works_and_is_destroyed(self, case: DomainCase) -> None:
        with case.hypervisor.start(case.spec(ends=False)) as domain:
            assert heard(case, domain).startswith(case.words)
            assert domain.is_running()
            before = domain.cpu_time_s()
            assert wait(case, "CPU time", lambda: domain.cpu_time_s() - before or None) > 0
            domain.destroy()
            assert not domain.is_running()
            assert domain.read_console() == ""
            domain.destroy()
            assert domain.cpu_time_s() > before

    def test_the_last_words_of_a_guest_that_ended_by_itself_are_read(self, case: DomainCase) -> None:
        spec = case.spec(ends=True)
        with case.hypervisor.start(spec) as domain:
            wait(case, "its end", lambda: None if domain.is_running() else True)
            assert domain.read_console().startswith(case.words)
            assert domain.read_console() == ""
        assert case.words in spec.console.read_bytes().decode("latin-1")

    def test_a_guest_that_somebody_ends_is_not_the_kernels_fault(self, case: DomainCase) -> None:
        with case.hypervisor.start(case.spec(ends=False)) as domain:
            heard(case, domain)
            case.kill_qemu()
            with pytest.raises(InfraError):
                wait(case, "its end", lambda: None if domain.is_running() else True)

    def test_a_guest_that_does_not_start_is_not_the_kernels_fault(self, case: DomainCase) -> None:
        spec = case.spec(ends=False)
        with case.taken(spec), pytest.raises(InfraError, match=r"did not start: .*host forwarding rule"):
            case.hypervisor.start(spec)

    def test_closing_ends_what_is_left(self, case: DomainCase) -> None:
        domain = case.hypervisor.start(case.spec(ends=False))
        assert domain.is_running()
        case.hypervisor.close()
        assert not domain.is_running()
        assert not case.hypervisor.is_alive
        case.hypervisor.close()


def heard(case: DomainCase, domain: Domain) -> str:
    """What the guest says until it has said its first line."""
    text = ""

    def listen() -> bool | None:
        nonlocal text
        text += domain.read_console()
        domain.is_running()
        return case.words in text or None

    wait(case, "its words", listen)
    return text


def wait(case: DomainCase, what: str, probe: Callable[[], T | None]) -> T:
    return Deadline.by(case.clock, what, 30.0).poll(probe)
