"""What a trial needs of a guest, and a guest of its hypervisor and of its connection.

The contract of each is in tests/vm/contract.py, which the fakes pass, too. The guest runs the kernel under test, and is
not trusted: whatever it sends is bounded.
"""

import codecs
import os
import re
import shlex
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from bisector.config import Accelerator, StorageSettings
from bisector.core.deadline import Clock, Deadline
from bisector.core.errors import InfraError
from bisector.core.shell import CommandResult, Shell
from bisector.core.subject import Kernel
from bisector.core.trial import Era, Stage
from bisector.host.files import our_files
from bisector.vm.definition import DomainSpec
from bisector.vm.image import GuestImage

CONSOLE_CHUNK_BYTES = 1 << 20  # the most that is read of a console at once
_LONGEST_LINE = 65536
_PIECE_BYTES = 32 << 20
_COPY_S = 300.0  # of a piece; an emulated guest takes a few MiB/s


class Domain(Protocol):
    """A guest that was started; gone when its ``with`` block ends."""

    def is_running(self) -> bool:
        """Whether the guest is there; False means that it ended itself (panic, reset, power-off).

        Raises :class:`bisector.core.errors.InfraError` when its end, or its pause, is not the guest's doing.
        """

    def cpu_time_s(self) -> float:
        """CPU seconds of the host that the guest has used; after its end the last known."""

    def read_console(self) -> str:
        """What the guest has written to its console since the last call, at most :data:`CONSOLE_CHUNK_BYTES`."""

    def destroy(self) -> None:
        """End the guest at once; idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Hypervisor(Protocol):
    """Starts guests; closing it leaves none of them running."""

    @property
    def is_alive(self) -> bool:
        """Whether it can still be asked."""

    @property
    def embedded(self) -> bool:
        """Whether it runs in this process."""

    @property
    def run_as(self) -> tuple[int, int] | None:
        """User and group that QEMU is to have; None where it has those of this process anyway."""

    @property
    def qemu_version(self) -> str:
        """QEMU's version, as ``7.2.22``; raises :class:`bisector.core.errors.UserError` when there is none."""

    def offers(self, accelerator: Accelerator) -> bool:
        """Whether it would start an x86_64 guest in this way; whether the guest then runs is another question.

        Raises :class:`bisector.core.errors.InfraError` when it does not say.
        """

    def start(self, spec: DomainSpec) -> Domain:
        """Start a guest whose console file holds its first byte; raises :class:`bisector.core.errors.InfraError`."""

    def close(self) -> None:
        """End the guests that are left; idempotent."""


class GuestError(InfraError):
    """SSH to the guest did not work; :mod:`bisector.vm.machine` sees the console and decides who is to blame."""


class GuestLost(GuestError):
    """The connection could not be made, or broke."""


class GuestRefused(GuestError):
    """The guest is there and refuses the key of the image, or shows a host key that is not the pinned one."""


class GuestTimeout(GuestError):
    """The guest did not finish something in its time; a next command may be answered or not."""


class GuestCopyFailed(GuestError):
    """The guest is there and a file could not be copied to or from it."""


class GuestNonsense(GuestError):
    """The guest is there and sends what no sound one does: too much of it, or no answer to what was asked."""


class GuestLink(Shell, Protocol):
    """A root shell that is connected to one guest, and is never connected again."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that is taken of the output of one command (both streams together), and of one file.

    After ``silence_s`` without output the guest is asked for a sign of life, for which it has ``answer_s``.
    """

    output_bytes: int = 64 << 20
    silence_s: float = 60.0
    answer_s: float = 120.0


DEFAULT_BOUNDS = Bounds()


class StreamedText:
    """A stream of bytes as text, line by line while it comes (CR ends a line, too) and all of it at the end."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._on_line = on_line
        self._all: list[str] = []
        self._begun = ""
        self.read_bytes = 0

    def feed(self, data: bytes, final: bool = False) -> None:
        """Take the next piece; a line of more than 64 KiB is handed over in parts."""
        self.read_bytes += len(data)
        text = self._decoder.decode(data, final)
        self._all.append(text)
        first, *others = re.split(r"\r\n|\r|\n", text)
        *lines, self._begun = self._begun + first, *others
        if len(self._begun) > _LONGEST_LINE or (final and self._begun):
            lines.append(self._begun)
            self._begun = ""
        for line in lines:
            self._on_line(line)

    def end(self) -> str:
        """Everything there was; a last line without an end is handed over, too."""
        self.feed(b"", final=True)
        return "".join(self._all)


class CommandLink(ABC):
    """Implements :class:`GuestLink` by commands alone, within ``bounds``.

    Every method raises :class:`GuestLost` or :class:`GuestTimeout` when it is not answered, and
    :class:`GuestNonsense` when more comes than the bounds allow.
    """

    def __init__(self, bounds: Bounds, clock: Clock) -> None:
        self._bounds = bounds
        self._clock = clock

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    @abstractmethod
    def _execute(
        self, command: str, data: bytes, on_line: Callable[[str], None], deadline: Deadline
    ) -> tuple[int, bytes, str]:
        """Exit status (-1: ended by a signal), standard output and error of a command with this standard input."""

    def run(self, command: str, deadline_s: float = 60.0) -> CommandResult:
        """Run to the end, whatever the exit status (-1: ended by a signal)."""
        return self.stream(command, lambda line: None, deadline_s)

    def stream(self, command: str, on_line: Callable[[str], None], deadline_s: float) -> CommandResult:
        """Run to the end, handing over each line of standard error (CR ends one, too), at most 64 KiB, as it comes."""
        deadline = Deadline.by(self._clock, f"the end of `{command}` in the guest", deadline_s)
        status, stdout, stderr = self._execute(command, b"", on_line, deadline)
        return CommandResult(command, status, stdout.decode(errors="replace"), stderr)

    def put(self, text: str, remote: str) -> None:
        """Write a small text file in the guest; raises :class:`GuestCopyFailed`."""
        self._copied(f"cat > {shlex.quote(remote)}", f"the copy to {remote}", text.encode())

    def send(self, local: Path, remote: str) -> None:
        """Copy a file of this host into the guest, with its mode.

        Raises :class:`GuestCopyFailed`, and :class:`InfraError` when ``local`` cannot be read.
        """
        what, quoted, into = f"the copy of {local.name} to {remote}", shlex.quote(remote), ">"
        with our_files(local.parent), local.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            while (piece := file.read(_PIECE_BYTES)) or into == ">":
                self._copied(f"cat {into} {quoted}", what, piece)
                into = ">>"
        self._copied(f"chmod {mode:o} {quoted}", what)

    def get(self, remote: str, local: Path) -> None:
        """Copy a regular file out of the guest, into one that is not there yet.

        Raises :class:`GuestCopyFailed`, :class:`GuestNonsense` for what is not a regular file or larger than the bound,
        and :class:`InfraError` when ``local`` is there already or cannot be written.
        """
        name, most, what = shlex.quote(remote), self._bounds.output_bytes, f"the copy of {remote}"
        # Before it is opened: opening a FIFO would wait, and a device never ends.
        kind, _, size = self._copied(f"stat -L -c %F:%s {name}", what).decode(errors="replace").strip().rpartition(":")
        if not kind.startswith("regular") or not size.isdecimal():
            raise GuestNonsense(f"{remote} in the guest is not a regular file")
        if int(size) > most:
            raise GuestNonsense(f"{remote} in the guest has {int(size):,} bytes, more than {most:,}")
        content = self._copied(f"head -c {most + 1} {name}", what)
        with our_files(local.parent):
            local.touch(exist_ok=False)  # nor through a link
            try:
                local.write_bytes(content)
            except OSError:
                local.unlink()
                raise

    def _copied(self, command: str, what: str, data: bytes = b"") -> bytes:
        deadline = Deadline.by(self._clock, f"{what} in the guest", _COPY_S)
        status, stdout, stderr = self._execute(command, data, lambda line: None, deadline)
        if status != 0:
            raise GuestCopyFailed(f"{what} in the guest failed: {stderr.strip()}")
        return stdout

    def _check_output(self, size_bytes: int, command: str) -> None:
        """Raise :class:`GuestNonsense` for more output than is taken."""
        if size_bytes > self._bounds.output_bytes:
            raise GuestNonsense(f"the guest wrote more than {self._bounds.output_bytes:,} bytes of output: `{command}`")


class GuestLogin(Protocol):
    """Connects to a guest."""

    def __call__(self, port: int, image: GuestImage, deadline: Deadline, watch: Callable[[], None]) -> GuestLink:
        """Log in as root on the loopback port; ``watch`` is called while the guest is waited for, then and later.

        Raises what ``watch`` raises, and :class:`GuestError`.
        """


class Machine(Protocol):
    """One guest from its definition to its end, as a trial sees it."""

    @property
    def guest(self) -> Shell:
        """The root shell; there is one once :meth:`boot` has returned."""

    def facts(self) -> dict[str, str]:
        """What bounds the figures of this guest, for the record: names and values for people."""

    def deadline(self, what: str, seconds: float) -> Deadline:
        """A deadline that counts only the time in which this guest is waited for, and could have run."""

    def boot(self) -> None:
        """Start the kernel and log in; raises ``KernelFault`` for a dead or silent kernel, else ``InfraError``."""

    def blamed(self, stage: Stage) -> AbstractContextManager[None]:
        """Sort out a guest that no longer answers: ``KernelFault`` when its kernel is dead, else ``InfraError``."""

    def cpu_time_s(self) -> float:
        """Host CPU seconds that the guest has used."""


class Machines(Protocol):
    """Makes the guests of one run."""

    def era(self, storage: StorageSettings) -> Era | None:
        """What figures on a stack depend on here; None until it is known what guests run under."""

    def prepared(
        self, name: str, kernel: Kernel, logs: Path, storage: StorageSettings, append: str, *, seed: int = 0
    ) -> AbstractContextManager[Machine]:
        """A guest that is defined and not started, with what the stack asks for: its disks, empty, and parameters.

        ``append`` are kernel parameters of the trial, in place of those of the settings. With another ``seed`` a guest
        whose time is counted does everything a little later and in other pages. Nothing of the guest outlives
        the block.
        """
