"""A hypervisor whose guests answer from a script, in a time of their own, and die when the test says so.

Domain and console file are the real ones; what libvirt, QEMU, the kernel and sshd do is played. Whoever waits for
such a guest sleeps on its clock, so an hour of it takes milliseconds. The contract that the real ones pass, too, is
in contract.py.
"""

import errno
import math
import os
import shlex
import struct
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

import libvirt

from bisector.config import Accelerator
from bisector.core.deadline import AttentiveClock, Deadline
from bisector.core.errors import InfraError
from bisector.vm import machine
from bisector.vm.base import DEFAULT_BOUNDS, GuestCopyFailed, GuestLink, GuestLost, GuestRefused, GuestTimeout
from bisector.vm.console import ALIVE_LINE, READY_LINE
from bisector.vm.definition import DomainSpec, SourceKind
from bisector.vm.driver import DomainEnd, LibvirtDomain
from bisector.vm.image import GuestImage
from tests.guestshell import Answer, answer_of, steps_of

RELEASE, BUILD_ID = "5.0.0-test", "0f" * 20  # those of examples.kernel()
BANNER = f"[    0.000000] Linux version {RELEASE} (a stand-in)"

_FIRMWARE_S = 0.5
_ALIVE_EVERY_S = 10.0
_LOOK_EVERY_S = 0.2
_LOST_AFTER_S = 180.0  # of silence in a command: guest.Bounds
_COPY_S = 300.0
_LATE_S = 1.0
_STILL_S = 3600.0
_PANIC = "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000009"
_OOPS = "[   12.000000] BUG: kernel NULL pointer dereference, address: 0000000000000010"
_GNU, _NT_GNU_BUILD_ID = b"GNU\0", 3


class FakeClock:
    """A :class:`bisector.core.deadline.Clock` that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self._now_s = 1000.0

    def now_s(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        self._now_s += seconds


class Trouble(StrEnum):
    """What befalls a guest; its command is not answered any more."""

    PANIC = "panic"
    LATE_PANIC = "panic that is told a second after the connection broke"
    OOPS = "a process dies in the kernel, which goes on"
    STALLS = "two reports of a stall"
    HANG = "the kernel does nothing any more"
    STUCK = "this command never ends, the kernel is well"
    RESET = "reset without a word"
    POWER_OFF = "power off"
    NETWORK_LOST = "no packet gets through, the kernel is well"
    CONNECTION_BROKEN = "this connection breaks, the next one holds"
    QEMU_DIED = "QEMU crashes"
    QEMU_KILLED = "somebody kills QEMU"
    HOST_FULL = "the host has no room for the guest's disk"
    HOST_STANDS_STILL = "nothing happens for an hour, neither here nor in the guest"


@dataclass(frozen=True)
class Script:
    """What a guest does: the answer to the first key that is in a command; what befalls it, and when, as it boots.

    Without ``ready_s`` it never comes to its user space. ``speaks`` says whether its init is ours.
    """

    answers: Mapping[str, Answer] = field(default_factory=dict)
    ready_s: float | None = 3.0
    at_boot: tuple[float, Trouble] | None = None
    speaks: bool = True
    release: str = RELEASE
    build_id: str = BUILD_ID
    refuses_keys: bool = False
    sends_nonsense: bool = False  # where one of the two above is asked for


class Computer:
    """One guest from power-on to power-off; implements as much of libvirt's domain as is called."""

    def __init__(self, spec: DomainSpec, script: Script, clock: FakeClock, files: Path) -> None:
        self.spec, self.script, self.clock, self.files = spec, script, clock, files
        self.state_and_reason = (libvirt.VIR_DOMAIN_RUNNING, 0)
        self.ending: DomainEnd | None = None
        self.io_error: str | None = None
        self.network = True
        self.alive = True  # its kernel, as opposed to QEMU
        self.sshd = True
        files_of = {disk.serial: disk.path for disk in spec.disks if disk.kind is SourceKind.FILE}
        self.sizes = {serial: path.stat().st_size for serial, path in files_of.items()}
        self.commands: list[str] = []
        self.links: list[FakeLink] = []
        self._on_at_s = clock.now_s()
        self._still_s = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []
        files.mkdir(parents=True, exist_ok=True)
        self._boot()

    @property
    def up_s(self) -> float:
        """Seconds of the guest's own time."""
        return self.clock.now_s() - self._on_at_s - self._still_s

    @property
    def gone(self) -> bool:
        return self.ending is not None

    @property
    def listens(self) -> bool:
        """Whether sshd does."""
        return self.sshd and self.script.ready_s is not None and self.up_s >= self.script.ready_s

    def say(self, line: str) -> None:
        with self.spec.console.open("a", encoding="ascii", newline="") as console:
            console.write(f"{line}\r\n")

    def live_on(self) -> None:
        """Do what was due until now."""
        while self.alive and self._due and self._due[0][0] <= self.up_s:
            _, act = self._due.pop(0)
            act()

    def befall(self, trouble: Trouble) -> None:
        self.live_on()
        self._TROUBLES[trouble](self)

    def _boot(self) -> None:
        script = self.script
        self._at(_FIRMWARE_S, lambda: self.say(BANNER))
        if script.ready_s is not None and script.speaks:
            self._at(script.ready_s, lambda: self.say(f"[    {script.ready_s:.6f}] {READY_LINE}"))
            self._at(script.ready_s + _ALIVE_EVERY_S, self._pulse)
        if script.at_boot is not None:
            at_s, trouble = script.at_boot
            self._at(at_s, lambda: self.befall(trouble))

    def _at(self, up_s: float, act: Callable[[], None]) -> None:
        self._due = sorted([*self._due, (up_s, act)], key=lambda one: one[0])

    def _pulse(self) -> None:
        self.say(f"[   {self.up_s:.6f}] {ALIVE_LINE}")
        self._at(self.up_s + _ALIVE_EVERY_S, self._pulse)

    def _end(self, ending: DomainEnd) -> None:
        self.alive = self.network = False
        self.state_and_reason = (libvirt.VIR_DOMAIN_SHUTOFF, 0)
        self.ending = ending
        for link in self.links:
            link.broken = True

    def _end_with(self, words: str) -> None:
        self.say(f"[   12.000000] {words}")
        self._end(DomainEnd.GUEST)

    def _late_panic(self) -> None:
        self._break_connection()
        self.sshd = False
        self._due = []
        self._at(self.up_s + _LATE_S, lambda: self._end_with(_PANIC))

    def _stall(self) -> None:
        for cpu_s in (26, 52):
            self.say(f"[   {cpu_s}.000000] watchdog: BUG: soft lockup - CPU#0 stuck for {cpu_s}s! [fio:77]")
        self._hang()

    def _hang(self) -> None:
        self.alive = self.network = False

    def _break_connection(self) -> None:
        for link in self.links:
            link.broken = True

    def _pause(self) -> None:
        self.alive = self.network = False
        self.state_and_reason = (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR)
        self.io_error = f"write of a disk: {os.strerror(errno.ENOSPC)}"

    def _stand_still(self) -> None:
        self._still_s += _STILL_S
        self.clock.sleep(_STILL_S)

    _TROUBLES: Mapping[Trouble, Callable[["Computer"], None]] = MappingProxyType(
        {
            Trouble.PANIC: lambda self: self._end_with(_PANIC),
            Trouble.LATE_PANIC: _late_panic,
            Trouble.OOPS: lambda self: self.say(_OOPS),
            Trouble.STALLS: _stall,
            Trouble.HANG: _hang,
            Trouble.STUCK: lambda self: None,
            Trouble.RESET: lambda self: self._end(DomainEnd.GUEST),
            Trouble.POWER_OFF: lambda self: self._end_with("reboot: Power down"),
            Trouble.NETWORK_LOST: lambda self: setattr(self, "network", False),
            Trouble.CONNECTION_BROKEN: _break_connection,
            Trouble.QEMU_DIED: lambda self: self._end(DomainEnd.QEMU),
            Trouble.QEMU_KILLED: lambda self: self._end(DomainEnd.OUTSIDE),
            Trouble.HOST_FULL: _pause,
            Trouble.HOST_STANDS_STILL: _stand_still,
        }
    )

    # libvirt's virDomain

    def state(self) -> tuple[int, int]:
        self.live_on()
        return self.state_and_reason

    def info(self) -> list[int]:
        return [0, 0, 0, 0, round(self.up_s * 1e9)]

    def destroy(self) -> None:
        self._end(self.ending or DomainEnd.OUTSIDE)


class FakeLink(GuestLink):
    """A :class:`bisector.vm.base.GuestLink` to a computer; its files are those below a directory here."""

    def __init__(self, computer: Computer, watch: Callable[[], None]) -> None:
        super().__init__(watch, DEFAULT_BOUNDS, AttentiveClock(computer.clock))
        self.computer = computer
        self.broken = self.closed = False
        computer.links.append(self)

    def __exit__(self, *_: object) -> None:
        self.closed = self.broken = True

    def _execute(
        self, command: str, data: bytes, on_line: Callable[[str], None], deadline: Deadline
    ) -> tuple[int, bytes, str]:
        self._reach(deadline)
        if (told := self._of_the_kernel().get(command)) is not None:
            self._check_output(len(told) + self.computer.script.sends_nonsense * DEFAULT_BOUNDS.output_bytes, command)
            return 0, told.encode(), ""
        parts = []
        for step in steps_of(command):
            self.computer.commands.append(step)
            answer = answer_of(self.computer.script.answers, step)
            self._perform(answer, command, deadline)
            for line in answer.lines:
                on_line(line)
            parts.append(answer)
            if answer.exit_status:
                break
        result = Answer.joined(command, parts)
        self._check_output(len(result.stdout) + len(result.stderr), command)
        return result.exit_status, result.stdout.encode(), result.stderr

    def _copied(self, command: str, what: str, data: bytes = b"") -> bytes:
        """By the same command, on the files here."""
        self._reach(Deadline.by(self._clock, f"{what} in the guest", _COPY_S))
        remote = shlex.split(command)[-1]
        here = command.replace(shlex.quote(remote), shlex.quote(f"{self._path(remote)}"))
        ran = subprocess.run(["sh", "-c", here], input=data, capture_output=True, check=False)
        if ran.returncode:
            raise GuestCopyFailed(f"{what} in the guest failed: {ran.stderr.decode().strip()}")
        return ran.stdout

    def _of_the_kernel(self) -> dict[str, str]:
        """What it says of itself; the GNU build-id is one of the notes (elf(5))."""
        script = self.computer.script
        own = bytes.fromhex(script.build_id)
        note = struct.pack("<III", len(_GNU), len(own), _NT_GNU_BUILD_ID) + _GNU + own
        return {"uname -r": f"{script.release}\n", machine._NOTES: note.hex(" ")}

    def _path(self, remote: str) -> Path:
        return self.computer.files / remote.lstrip("/")

    def _reach(self, deadline: Deadline) -> None:
        """Send something, and have it accepted."""
        try:
            self._wait(deadline, lambda: self.computer.network, "")
        except GuestTimeout:
            self.broken = True  # whatever comes late is the answer to this
            raise

    def _perform(self, answer: Answer, command: str, deadline: Deadline) -> None:
        computer, clock = self.computer, self.computer.clock
        ends_at_s = clock.now_s() + answer.takes_s
        self._wait(deadline, lambda: clock.now_s() >= ends_at_s, command)
        if answer.trouble is not None:
            computer.befall(Trouble(answer.trouble))
            goes_on_s = clock.now_s() + 1.0 if answer.trouble == Trouble.HOST_STANDS_STILL else math.inf
            self._wait(deadline, lambda: clock.now_s() >= goes_on_s, command)
        for path, text in answer.files.items():
            self._path(path if text is None else str(Path(path).parent)).mkdir(parents=True, exist_ok=True)
            if text is not None:
                self._path(path).write_text(text, encoding="utf-8")

    def _wait(self, deadline: Deadline, over: Callable[[], bool], command: str) -> None:
        """Until then, or until whatever the real guest's connection would raise; ``command`` is one that has begun."""
        deaf_s = 0.0
        while True:
            if self.broken:
                self._watch()
                raise GuestLost(f"the connection to the guest broke during `{command}`" if command else "not connected")
            if over():
                return
            self._guard(deadline)
            if command and not self.computer.network and deaf_s > _LOST_AFTER_S:
                raise GuestLost(f"nothing was heard of the guest for {_LOST_AFTER_S:g} s during `{command}`")
            wait_s = min(_LOOK_EVERY_S, max(deadline.remaining_s, 0.001))
            self._clock.sleep(wait_s)
            deaf_s += wait_s


class FakeHypervisor:
    """A :class:`bisector.vm.base.Hypervisor` whose guests follow a script; :meth:`log_in` connects to them.

    With ``does_not_start`` QEMU says that.
    """

    def __init__(self, script: Script, clock: FakeClock, files: Path) -> None:
        self.script, self.clock = script, clock
        self.does_not_start = ""
        self.computers: list[Computer] = []
        self.running: list[LibvirtDomain] = []
        self.is_alive = True
        self._files = files

    embedded = True
    run_as: tuple[int, int] | None = None
    qemu_version = "7.2.22"

    def offers(self, accelerator: Accelerator) -> bool:
        return True

    def start(self, spec: DomainSpec) -> LibvirtDomain:
        if self.does_not_start:
            raise InfraError(f"{spec.name} did not start: {self.does_not_start}")
        spec.console.write_bytes(b"")
        computer = Computer(spec, self.script, self.clock, self._files / f"{len(self.computers)}")
        self.computers.append(computer)
        domain = LibvirtDomain(spec, computer, self)  # type: ignore[arg-type] # it has what a domain asks
        self.running.append(domain)
        return domain

    @property
    def endings(self) -> dict[str, DomainEnd]:
        return {one.spec.name: one.ending for one in self.computers if one.ending is not None}

    @property
    def io_errors(self) -> dict[str, str]:
        return {one.spec.name: one.io_error for one in self.computers if one.io_error is not None}

    def last_words(self, name: str) -> str:
        return "qemu-system-x86_64: terminating"

    def forget(self, domain: LibvirtDomain) -> None:
        self.running.remove(domain)

    def close(self) -> None:
        for domain in tuple(self.running):
            domain.destroy()
        self.is_alive = False

    def log_in(self, port: int, image: GuestImage, deadline: Deadline, watch: Callable[[], None]) -> FakeLink:
        computer = next((one for one in self.computers if one.spec.ssh_port == port and not one.gone), None)
        if computer is None or (computer.network and not computer.listens):
            watch()
            raise GuestLost(f"{deadline.what} failed: Connection refused")
        if computer.script.refuses_keys:
            raise GuestRefused(f"{deadline.what}: Authentication failed", "are these the keys of this guest image?")
        with ExitStack() as stack:
            link = stack.enter_context(FakeLink(computer, watch))
            link._wait(deadline, lambda: computer.network, "")
            stack.pop_all()
        return link
