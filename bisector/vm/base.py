"""The interfaces between a trial and its guest, and between a guest and its hypervisor and connection.

Their contracts are in tests/vm/contract.py, which the fakes pass, too. The guest runs the kernel under test and is not
trusted: whatever it sends is bounded.
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

CONSOLE_CHUNK_BYTES = 1 << 20  # the most that is read from a console at once
_LONGEST_LINE = 65536
_PIECE_BYTES = 32 << 20
_COPY_S = 300.0  # for one piece; an emulated guest takes a few MiB/s


class Domain(Protocol):
    """A started guest; it is gone when its ``with`` block ends."""

    def is_running(self) -> bool:
        """Whether the guest still runs; False means that it ended itself (panic, reset, power-off).

        Raises :class:`bisector.core.errors.InfraError` if something else ended or paused it.
        """

    def cpu_time_s(self) -> float:
        """The host's CPU seconds that the guest has used; after its end the last known value."""

    def read_console(self) -> str:
        """The console output since the last call, at most :data:`CONSOLE_CHUNK_BYTES`."""

    def destroy(self) -> None:
        """End the guest at once; idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Hypervisor(Protocol):
    """Starts guests; after it is closed none of them is left running."""

    @property
    def is_alive(self) -> bool:
        """Whether the connection still works."""

    @property
    def embedded(self) -> bool:
        """Whether the hypervisor's driver runs in this process."""

    @property
    def run_as(self) -> tuple[int, int] | None:
        """The user and group that QEMU must be given; None if it has those of this process anyway."""

    @property
    def qemu_version(self) -> str:
        """QEMU's version, as ``7.2.22``; raises :class:`bisector.core.errors.UserError` if there is no QEMU."""

    def offers(self, accelerator: Accelerator) -> bool:
        """Whether it would start an x86_64 guest with this accelerator; it does not tell whether that guest would run.

        Raises :class:`bisector.core.errors.InfraError` if the hypervisor does not say.
        """

    def start(self, spec: DomainSpec) -> Domain:
        """Start a guest and record its console from the first byte; raises :class:`bisector.core.errors.InfraError`."""

    def close(self) -> None:
        """End the remaining guests; idempotent."""


class GuestError(InfraError):
    """SSH to the guest failed; :mod:`bisector.vm.machine` sees the console and decides who is to blame."""


class GuestLost(GuestError):
    """The connection could not be made, or broke."""


class GuestRefused(GuestError):
    """The guest runs, but rejects the image's key, or shows another host key than the pinned one."""


class GuestTimeout(GuestError):
    """The guest did not finish something in time; it may or may not answer the next command."""


class GuestCopyFailed(GuestError):
    """The guest runs, but a file could not be copied to or from it."""


class GuestNonsense(GuestError):
    """The guest runs, but sends what no sound guest does: too much output, or no valid answer to a request."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on the output of one command (both streams together), and on the size of one file.

    After ``silence_s`` without output the guest is asked for a sign of life, which must come within ``answer_s``.
    """

    output_bytes: int = 64 << 20
    silence_s: float = 60.0
    answer_s: float = 120.0


DEFAULT_BOUNDS = Bounds()


class StreamedText:
    """A stream of bytes as text: line by line while it arrives (CR ends a line, too), and as a whole at the end."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._on_line = on_line
        self._all: list[str] = []
        self._begun = ""
        self.read_bytes = 0

    def feed(self, data: bytes, final: bool = False) -> None:
        """Take the next piece; a line of more than 64 KiB is passed on in parts."""
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
        """Return the whole text, after passing on a last line without an end."""
        self.feed(b"", final=True)
        return "".join(self._all)


class GuestLink(ABC):
    """A :class:`Shell` of root in one guest, which is never reconnected; it works by commands alone.

    ``watch`` is called about five times a second during each wait for the guest; an exception of it (a
    :class:`bisector.core.trial.KernelFault` if the console shows a panic) ends the wait at once. ``bounds`` limit what
    the guest may send. Every method raises :class:`GuestLost` or :class:`GuestTimeout` if the guest does not answer,
    and :class:`GuestNonsense` if it sends more than the bounds allow.
    """

    def __init__(self, watch: Callable[[], None], bounds: Bounds, clock: Clock) -> None:
        self._watch = watch
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
        """Run a command to its end, whatever its exit status (-1: ended by a signal)."""
        return self.stream(command, lambda line: None, deadline_s)

    def stream(self, command: str, on_line: Callable[[str], None], deadline_s: float) -> CommandResult:
        """Run to the end, passing on each line of standard error (CR ends one, too), at most 64 KiB, as it arrives."""
        deadline = Deadline.by(self._clock, f"the end of `{command}` in the guest", deadline_s)
        status, stdout, stderr = self._execute(command, b"", on_line, deadline)
        return CommandResult(command, status, stdout.decode(errors="replace"), stderr)

    def put(self, text: str, remote: str) -> None:
        """Write a small text file in the guest; raises :class:`GuestCopyFailed`."""
        self._copied(f"cat > {shlex.quote(remote)}", f"the copy to {remote}", text.encode())

    def send(self, local: Path, remote: str) -> None:
        """Copy a file of this host, and its mode, into the guest.

        Raises :class:`GuestCopyFailed`, and :class:`InfraError` if ``local`` cannot be read.
        """
        what, quoted, into = f"the copy of {local.name} to {remote}", shlex.quote(remote), ">"
        with our_files(local.parent), local.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            while (piece := file.read(_PIECE_BYTES)) or into == ">":
                self._copied(f"cat {into} {quoted}", what, piece)
                into = ">>"
        self._copied(f"chmod {mode:o} {quoted}", what)

    def get(self, remote: str, local: Path) -> None:
        """Copy a regular file out of the guest to ``local``, which must not exist yet.

        Raises :class:`GuestCopyFailed`, :class:`GuestNonsense` if the guest's file is not regular or larger than the
        bound, and :class:`InfraError` if ``local`` exists or cannot be written.
        """
        name, most, what = shlex.quote(remote), self._bounds.output_bytes, f"the copy of {remote}"
        # Checked before the file is opened: opening a FIFO would block, and a device never ends.
        said = self._copied(f"env LC_ALL=C stat -L -c %F:%s {name}", what)  # %F is translated
        kind, _, size = said.decode(errors="replace").strip().rpartition(":")
        if not kind.startswith("regular") or not size.isdecimal():
            raise GuestNonsense(f"{remote} in the guest is not a regular file")
        if int(size) > most:
            raise GuestNonsense(f"{remote} in the guest has {int(size):,} bytes, more than {most:,}")
        content = self._copied(f"head -c {most + 1} {name}", what)
        with our_files(local.parent):
            local.touch(exist_ok=False)  # does not follow a link either
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

    def _guard(self, deadline: Deadline) -> None:
        """Call ``watch`` during a wait; raises :class:`GuestTimeout` after the deadline."""
        self._watch()
        if deadline.expired:
            raise GuestTimeout(f"{deadline.what} not seen within {deadline.seconds:g} s")

    def _check_output(self, size_bytes: int, command: str) -> None:
        """Raise :class:`GuestNonsense` for more output than the bound."""
        if size_bytes > self._bounds.output_bytes:
            raise GuestNonsense(f"the guest wrote more than {self._bounds.output_bytes:,} bytes of output: `{command}`")


class GuestLogin(Protocol):
    """Connects to a guest."""

    def __call__(self, port: int, image: GuestImage, deadline: Deadline, watch: Callable[[], None]) -> GuestLink:
        """Log in as root on the loopback port; ``watch`` is called during each wait for the guest, now and later.

        Raises whatever ``watch`` raises, and :class:`GuestError`.
        """


class Machine(Protocol):
    """One guest from its definition to its end, as a trial uses it."""

    @property
    def guest(self) -> Shell:
        """The root shell; available once :meth:`boot` has returned."""

    def facts(self) -> dict[str, str]:
        """Facts that limit this guest's figures, for the record: names and values for people."""

    def deadline(self, what: str, seconds: float) -> Deadline:
        """A deadline that counts only the time in which this guest is waited for, and could have run."""

    def boot(self) -> None:
        """Start the kernel and log in; raises ``KernelFault`` for a dead or silent kernel, otherwise ``InfraError``."""

    def blamed(self, stage: Stage) -> AbstractContextManager[None]:
        """Raise ``KernelFault`` if a guest stops answering because its kernel is dead, otherwise ``InfraError``."""

    def cpu_time_s(self) -> float:
        """The host's CPU seconds that the guest has used."""


class Machines(Protocol):
    """Makes the guests of one run."""

    def era(self, storage: StorageSettings) -> Era | None:
        """The era of figures measured on this stack now; None until the accelerator of the guests is known."""

    def prepared(
        self, name: str, kernel: Kernel, logs: Path, storage: StorageSettings, append: str, *, seed: int = 0
    ) -> AbstractContextManager[Machine]:
        """A guest that is defined but not started, with the stack's empty disks and kernel parameters.

        ``append`` are the trial's kernel parameters, which replace those of the settings. With another ``seed`` a guest
        whose time is counted does everything a little later and in other pages. Nothing of the guest outlives the
        block.
        """
