"""A guest's console: judging its text, and a watch that reads it during each wait for the guest.

:class:`Console` is pure: text in, findings out; each rule cites the kernel source that prints its text. :class:`Watch`
decides who is to blame if the guest ends or falls silent.
"""

import os
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from bisector.core.deadline import awake_s
from bisector.core.errors import InfraError
from bisector.core.printable import clean
from bisector.core.trial import FaultKind, KernelFault, Stage
from bisector.vm.base import CONSOLE_CHUNK_BYTES, Domain

READY_LINE = "bisector-guest: ready"
ALIVE_LINE = "bisector-guest: alive"

# A single report of a stall may be due to a host that gave the guest no CPU time (emulation, a suspended laptop); the
# kernel repeats it only while the stall lasts (kernel/watchdog.c, kernel/rcu/tree_stall.h).
_STALLS_TO_BE_SURE = 2
_KEPT_LINES = 200
_LONGEST_LINE = 8192
# The beginning and the end of a console, which are kept when its guest is gone.
_KEPT_HEAD_BYTES = 1 << 20
_KEPT_TAIL_BYTES = 15 << 20
# A serial line of 115,200 baud carries 41 MB in an hour; a console that writes more than this is flooded.
_MOST_CHARACTERS = 64 << 20


class ConsoleFinding(StrEnum):
    """The meaning of a console line."""

    BANNER = "kernel started"
    READY = "guest ready"
    STALL = "stall"
    OOPS = "oops"
    PANIC = "panic"
    SHUTDOWN = "shutdown"


_FAULTS = {ConsoleFinding.OOPS: FaultKind.OOPS, ConsoleFinding.PANIC: FaultKind.PANIC}

# The first matching rule decides. All rules match from the beginning of the message, so that a dying user process
# ("traps: fio[7] general protection fault ip:…") is not taken for an oops.
_RULES: tuple[tuple[ConsoleFinding, re.Pattern[str]], ...] = (
    # init/version.c: linux_banner
    (ConsoleFinding.BANNER, re.compile(r"Linux version \d")),
    # kernel/panic.c; with these three reasons the panic is only the end of what was reported before
    (ConsoleFinding.STALL, re.compile(r"Kernel panic - not syncing: (softlockup|hung_task|RCU Stall|Hard LOCKUP)")),
    (ConsoleFinding.PANIC, re.compile(r"Kernel panic - not syncing")),
    # arch/x86/kernel/head_64.S, head64.c: before anything could panic
    (ConsoleFinding.PANIC, re.compile(r"PANIC: (early exception|double fault)")),
    # arch/x86/boot/compressed/error.c: the decompressor gave up
    (ConsoleFinding.PANIC, re.compile(r"-- System halted$")),
    # kernel/watchdog.c, kernel/watchdog_hld.c, kernel/hung_task.c, kernel/workqueue.c, kernel/rcu/tree_stall.h
    (ConsoleFinding.STALL, re.compile(r"(watchdog: |NMI watchdog: )?BUG: (soft lockup|workqueue lockup)")),
    (ConsoleFinding.STALL, re.compile(r"((NMI )?watchdog: )?(CPU\d+: )?Watchdog detected hard LOCKUP")),
    (ConsoleFinding.STALL, re.compile(r"INFO: task .* blocked for more than \d+ seconds")),
    (ConsoleFinding.STALL, re.compile(r"(rcu: )?INFO: rcu\S* (self-)?detected (expedited )?stall")),
    # arch/x86/mm/fault.c: show_fault_oops(), its wording before and since v5.1
    (ConsoleFinding.OOPS, re.compile(r"BUG: (unable to handle|kernel NULL pointer dereference)")),
    # lib/bug.c: report_bug()
    (ConsoleFinding.OOPS, re.compile(r"kernel BUG at ")),
    # arch/x86/kernel/dumpstack.c: __die_header() counts every death, "general protection fault: 0000 [#1] SMP"
    (ConsoleFinding.OOPS, re.compile(r"[^\[]*: [0-9a-f]{4,16} \[#\d+\]")),
    # kernel/reboot.c
    (ConsoleFinding.SHUTDOWN, re.compile(r"reboot: (Restarting system|Power down|System halted)")),
)

# Every line that a rule can match has one of these; most lines have none, and one search is quicker than all rules.
_TELLING = re.compile(
    rf"{READY_LINE}|Linux version|Kernel panic|PANIC: |System halted|BUG|LOCKUP|blocked for|stall|\[#\d"
    r"|reboot: "
)

# "[    1.234567] ", with CONFIG_PRINTK_CALLER also "[    T1] "
_TIMESTAMP = re.compile(r"^(\[ *\d+\.\d+\]\s?)(\[ *[TC]\d+\]\s?)?")

# Lines of no use to a reader of a table of verdicts: firmware, decompressor, register dumps.
_NOISE = re.compile(
    rf"{ALIVE_LINE}|SeaBIOS|iPXE|Press Ctrl-B|Booting from |early console in|(input|output)_(data|len)|output: 0x"
    r"|(kernel_total|needed)_size|trampoline_32bit"
    r"|(R[A-ES][XPI]|RBP|R\d\d|FS|CS|DR\d|CR\d|EFLAGS|PKRU|Code|Hardware name|Modules linked in):"
    r"|Call Trace:|</?(TASK|IRQ|NMI)>|Kernel Offset:|---\[|-{5,}|\? "
)


class Console:
    """The findings in a guest's console so far; it is fed with text as it arrives."""

    def __init__(self) -> None:
        self.banner = False
        self.ready = False
        self._rest = ""
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._stalls: list[str] = []
        self._fatal: tuple[FaultKind, str] | None = None
        self._shutdown = ""
        self._characters = 0

    def feed(self, text: str) -> None:
        """Take more console text, and judge its complete lines."""
        self._characters += len(text)
        *complete, self._rest = (self._rest + text).split("\n")
        if len(self._rest) > _LONGEST_LINE:
            complete.append(self._rest)
            self._rest = ""
        for raw in complete:
            line = clean(raw.rstrip()).rstrip()
            if _meaningful(line):
                self._lines.append(line)
            finding, message = judge(line)
            match finding:
                case ConsoleFinding.BANNER:
                    self.banner = True
                case ConsoleFinding.READY:
                    self.ready = True
                case ConsoleFinding.STALL:
                    self._stalls += [message] * (2 if message.startswith("Kernel panic") else 1)
                case ConsoleFinding.OOPS | ConsoleFinding.PANIC:
                    self._fatal = self._fatal or (_FAULTS[finding], message)
                case ConsoleFinding.SHUTDOWN:
                    self._shutdown = message

    def tail(self, count: int = 20) -> tuple[str, ...]:
        """The last meaningful lines, with their timestamps."""
        last = clean(self._rest.rstrip()).rstrip()
        return (*self._lines, *([last] if _meaningful(last) else []))[-count:]

    def fault(self, stage: Stage) -> KernelFault | None:
        """The fatal fault that the kernel itself has reported, or None.

        The first report counts: everything after an oops, the panic included, is its consequence.
        """
        kind, reason = FaultKind.HANG, ""
        if self._fatal is not None:
            kind, reason = self._fatal
        elif len(self._stalls) >= _STALLS_TO_BE_SURE:
            reason = self._stalls[0]
        elif self._characters > _MOST_CHARACTERS:
            kind = FaultKind.COMMAND_FAILED
            reason = f"the console had more than {_MOST_CHARACTERS >> 20} MiB, and no end"
        return KernelFault(stage, kind, reason, self.tail()) if reason else None

    def fault_when_gone(self, stage: Stage) -> KernelFault:
        """The fault of a guest that ended by itself, as QEMU reports."""
        if (fault := self.fault(stage)) is not None:
            return fault
        if self._shutdown:
            reason = f"the guest shut down: {self._shutdown}"
        elif self.banner:
            reason = "the guest was reset without a word (triple fault?)"
        else:
            reason = "the guest was reset before its kernel said anything"
        return KernelFault(stage, FaultKind.EXITED, reason, self.tail())

    def fault_when_silent(self, stage: Stage, silence_s: float) -> KernelFault:
        """The fault of a guest that runs, but did not speak or answer within ``silence_s``."""
        if (fault := self.fault(stage)) is not None:
            return fault
        kind = FaultKind.HANG
        if self._stalls:
            reason = self._stalls[-1]
        elif not self.banner:
            reason = f"the kernel said nothing within {silence_s:g} s"
        elif not self.ready:
            reason = f"the kernel started, user space was not ready within {silence_s:g} s"
            kind = FaultKind.NO_SSH
        else:
            reason = f"the guest was ready, then nothing for {silence_s:g} s"
        return KernelFault(stage, kind, reason, self.tail())


def judge(line: str) -> tuple[ConsoleFinding | None, str]:
    """The meaning of a console line, None if it has none, and the line without its timestamp."""
    if not _TELLING.search(line):
        return None, line
    message = _TIMESTAMP.sub("", line).strip()
    if READY_LINE in message:  # anywhere: the kernel may have printed into the same line
        return ConsoleFinding.READY, message
    for finding, pattern in _RULES:
        if pattern.match(message) or (finding is ConsoleFinding.PANIC and pattern.search(message)):
            return finding, message
    return None, message


def _meaningful(line: str) -> bool:
    message = _TIMESTAMP.sub("", line).strip()
    return bool(message) and _NOISE.match(message) is None


class Watch:
    """Reads a guest's console during each wait for the guest, and decides who is to blame for its end.

    With ``pulse`` the guest gives signs of life on its console; otherwise it may be silent until it has given one.
    """

    def __init__(
        self, domain: Domain, silence_deadline_s: float, now: Callable[[], float] = awake_s, *, pulse: bool = False
    ) -> None:
        self.console = Console()
        self.stage = Stage.BOOT
        self._domain = domain
        self._silence_deadline_s = silence_deadline_s
        self._pulse = pulse
        self._now = now
        self._heard_at = now()

    @property
    def silence_s(self) -> float:
        """Seconds since the last console output."""
        return self._now() - self._heard_at

    def __call__(self) -> None:
        """Read on; raises :class:`KernelFault` for a dead or silent kernel, :class:`InfraError` for a dead QEMU."""
        running = self._domain.is_running()  # asked before reading, so that the guest's last words are read, too
        more = True
        while more:
            if text := self._domain.read_console():
                self.console.feed(text)
                self._heard_at = self._now()
                self._pulse = self._pulse or ALIVE_LINE in text
            if (fault := self.console.fault(self.stage)) is not None:
                raise fault
            more = len(text) >= CONSOLE_CHUNK_BYTES or bool(text and not running)  # read all if it is gone
        if not running:
            raise self.console.fault_when_gone(self.stage)
        silence_s = self.silence_s  # asked at each call: the clock counts only the time in which somebody looks at it
        # Our init gives a sign of life every ten seconds; the user's own image may be silent though it works.
        if self._pulse and silence_s > self._silence_deadline_s:
            raise self.silent()

    def silent(self) -> KernelFault:
        """The fault of a guest that should have spoken by now."""
        return self.console.fault_when_silent(self.stage, round(self.silence_s))


class ConsoleFile:
    """The file that a guest's console is written to; each byte is read once, even if the file is renamed meanwhile.

    The writer is QEMU, or libvirt's virtlogd, which renames the file at 2 MiB and begins a new one (max_size and
    max_backups in virtlogd.conf(5)). A limit for QEMU's files (RLIMIT_FSIZE, setrlimit(2)) is no help against a kernel
    that never stops printing: it would apply to the disks as well, so it would have to exceed the largest of them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self._closed = False

    def read(self) -> bytes:
        """The bytes written since the last call, at most :data:`CONSOLE_CHUNK_BYTES`; nothing after :meth:`close`.

        Raises :class:`InfraError` if the file cannot be read.
        """
        if self._closed:
            return b""
        try:
            if self._file is None:
                self._file = self.path.open("rb")
            while not (data := self._file.read(CONSOLE_CHUNK_BYTES)):
                newer = self._newer(os.fstat(self._file.fileno()))
                # Something may have been written between the last reading and the renaming; from now on nothing is.
                if newer is None or (data := self._file.read(CONSOLE_CHUNK_BYTES)):
                    break
                try:
                    opened = newer.open("rb")
                except FileNotFoundError:  # renamed this moment: the next call reads it
                    break
                self._file.close()
                self._file = opened
        except OSError as error:
            raise InfraError(
                f"the console {error.filename or self.path} cannot be read: {error.strerror}",
                "a new file of virtlogd's is root's: raise max_size in virtlogd.conf, or use --connect qemu:///embed",
            ) from error
        return data

    def _newer(self, mine: os.stat_result) -> Path | None:
        """The file that was begun after this one; None if this is the newest."""
        named = [path for path in self.path.parent.glob(f"{self.path.name}.*") if path.suffix[1:].isdecimal()]
        files = sorted(named, key=lambda path: -int(path.suffix[1:])) + [self.path] * self.path.exists()  # oldest first
        for number, path in enumerate(files, 1):
            with suppress(FileNotFoundError):
                if os.path.samestat(path.stat(), mine):
                    return files[number] if number < len(files) else None
        return files[0] if files else None  # renamed so often that it is gone: go on with the oldest that is kept

    def close(self) -> None:
        """Stop reading, and cut the middle out of a long file; call it when nothing is written any more. Idempotent."""
        self._closed = True
        if self._file is None:
            return
        self._file.close()
        self._file = None
        with suppress(OSError):  # virtlogd's files, which it bounds itself, may belong to root
            size = self.path.stat().st_size
            left_out = size - _KEPT_HEAD_BYTES - _KEPT_TAIL_BYTES
            if left_out > 0:
                with self.path.open("r+b") as file:
                    file.seek(size - _KEPT_TAIL_BYTES)
                    tail = file.read()
                    file.seek(_KEPT_HEAD_BYTES)
                    file.write(b"\n[bisector left out %d bytes here]\n" % left_out)
                    file.write(tail)
                    file.truncate()
