"""A guest that libvirt runs, and the file of its console: both watched, and gone or short afterwards.

QEMU appends to that file, or libvirt's virtlogd, which renames it at 2 MiB and begins a new one (max_size and
max_backups in virtlogd.conf(5)). A limit for QEMU's files (RLIMIT_FSIZE, setrlimit(2)) is no help against a kernel that
never stops: it would hold for the disks as well, so it would have to be above the largest of them.
"""

import errno
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import libvirt
import libvirt_qemu

from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError
from bisector.vm.base import CONSOLE_CHUNK_BYTES
from bisector.vm.definition import DomainSpec

_END_DEADLINE_S = 5.0
_REASON_DEADLINE_S = 2.0
_BLOCK_STATS = '{"execute": "query-blockstats"}'
_GONE = (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID)
# What is kept of a console when its guest is gone: how it began, and how it ended.
_KEPT_HEAD_BYTES = 1 << 20
_KEPT_TAIL_BYTES = 15 << 20
_BACKUP = re.compile(r"\.(\d{1,3})")


class Ending(StrEnum):
    """How a domain came to its end."""

    GUEST = "the guest ended by itself"
    QEMU = "QEMU died"
    OUTSIDE = "somebody ended QEMU"


class LibvirtDomain:
    """A guest that was started; gone when its ``with`` block ends."""

    def __init__(
        self,
        spec: DomainSpec,
        handle: Any,
        ending: Callable[[], Ending | None],
        qemu_log: Callable[[], tuple[str, ...]],
        forget: Callable[["LibvirtDomain"], None],
        *,
        io_error: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.spec = spec
        self._handle = handle
        self._ending = ending
        self._qemu_log = qemu_log
        self._forget = forget
        self._io_error = io_error
        self._cpu_time_s = 0.0
        self._console = ConsoleFile(spec.console)

    def is_running(self) -> bool:
        """Whether the guest is there; False means that it ended itself (panic, reset, power-off).

        Raises :class:`InfraError` when its end, or its pause, is not the guest's doing.
        """
        if self._handle is None:
            return False
        try:
            state, reason = self._handle.state()
        except libvirt.libvirtError as error:
            if error.get_error_code() not in _GONE:
                raise InfraError(f"libvirt does not answer about {self.spec.name}: {error}") from error
            state, reason = libvirt.VIR_DOMAIN_SHUTOFF, 0
        if state in (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_BLOCKED):
            self._check_nvme()
            return True
        if state == libvirt.VIR_DOMAIN_PAUSED:
            of_a_disk = reason == libvirt.VIR_DOMAIN_PAUSED_IOERROR
            why = f"an I/O error on the host, {self._why_paused()}" if of_a_disk else f"libvirt's reason {reason}"
            raise InfraError(f"{self.spec.name} was paused: {why}", "; ".join(self._qemu_log()[-2:]))
        return self._ended()

    def _check_nvme(self) -> None:
        """Raise :class:`InfraError` where I/O of a disk on NVMe failed on the host: no guest is paused for that."""
        if not self.spec.on_nvme:
            return
        try:
            told = json.loads(libvirt_qemu.qemuMonitorCommand(self._handle, _BLOCK_STATS, 0))["return"]
        except libvirt.libvirtError:  # it has just ended
            return
        for one in told:
            failed = sum(one["stats"].get(f"failed_{what}_operations", 0) for what in ("rd", "wr", "flush", "unmap"))
            if failed and "nvme" in str(one.get("qdev")):
                raise InfraError(
                    f"{self.spec.name}: {failed} I/Os of a disk on nvme failed on the host (is its disk full?)",
                    "; ".join(self._qemu_log()[-2:]) or "dmesg; df",
                )

    def cpu_time_s(self) -> float:
        """CPU seconds of the host that the whole QEMU process has used; after its end the last known."""
        if self._handle is not None:
            with suppress(libvirt.libvirtError):
                self._cpu_time_s = max(self._cpu_time_s, self._handle.info()[4] / 1e9)
        return self._cpu_time_s

    def read_console(self) -> str:
        """What the guest has written to its console since the last call, at most :data:`CONSOLE_CHUNK_BYTES`.

        Raises :class:`InfraError` when it cannot be read.
        """
        return self._console.read().decode("latin-1")  # bytes of a broken kernel; no sequence can be cut in two

    def destroy(self) -> None:
        """End the guest at once; idempotent. Raises :class:`InfraError` when it will not go."""
        if self._handle is None:
            return
        self.cpu_time_s()
        handle, self._handle = self._handle, None
        try:
            handle.destroy()
        except libvirt.libvirtError as error:
            if error.get_error_code() not in _GONE:
                raise InfraError(f"{self.spec.name} cannot be ended: {error}") from error
        finally:
            self._console.close()
        self._forget(self)  # at the end: refused or interrupted before it, close() tries again by name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.destroy()

    def _why_paused(self) -> str:
        """In QEMU's words; their event may lag behind the state, too."""
        try:
            told = Deadline("QEMU's reason", _REASON_DEADLINE_S).poll(self._io_error)
        except DeadlineExpired:
            return "without a reason"
        return f"{told} (is its disk full?)" if os.strerror(errno.ENOSPC) in told else told

    def _ended(self) -> bool:
        """False for an end by the guest's own doing; the event with the cause may lag behind the state."""
        try:
            ending = Deadline(f"the cause of {self.spec.name}'s end", _END_DEADLINE_S).poll(self._ending)
        except DeadlineExpired as error:
            raise InfraError(f"{self.spec.name} vanished, libvirt does not say why") from error
        if ending is not Ending.GUEST:
            raise InfraError(f"{self.spec.name}: {ending}", "; ".join(self._qemu_log()[-2:]))
        return False


class ConsoleFile:
    """The file that a guest's console is written to: each byte is read once, whatever the file is called by then."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self._closed = False

    def read(self) -> bytes:
        """What was written since the last call, at most :data:`CONSOLE_CHUNK_BYTES` of it; nothing once closed.

        Raises :class:`InfraError` when it cannot be read.
        """
        if self._closed:
            return b""
        try:
            return self._read()
        except OSError as error:
            raise InfraError(
                f"the console {error.filename or self.path} cannot be read: {error.strerror}",
                "a new file of virtlogd's is root's: raise max_size in virtlogd.conf, or use --connect qemu:///embed",
            ) from error

    def _read(self) -> bytes:
        if self._file is None:
            self._file = self.path.open("rb")
        while not (data := self._file.read(CONSOLE_CHUNK_BYTES)):
            following = self._following(os.fstat(self._file.fileno()))
            # Between that reading and the renaming something may have been written; from now on nothing is.
            if following is None or (data := self._file.read(CONSOLE_CHUNK_BYTES)):
                break
            try:
                newer = following.open("rb")
            except FileNotFoundError:  # it was renamed just now: next time
                break
            self._file.close()
            self._file = newer
        return data

    def _following(self, mine: os.stat_result) -> Path | None:
        """The file that was begun after this one; None while it is the newest one."""
        files = self._files()
        for older, newer in pairwise(files):
            if _same(older, mine):
                return newer
        # Renamed so often that it is gone: what was kept begins with the oldest.
        return files[0] if files and not _same(files[-1], mine) else None

    def _files(self) -> list[Path]:
        """The files that exist, oldest first."""
        numbers = []
        for path in self.path.parent.glob(f"{self.path.name}.*"):
            if found := _BACKUP.fullmatch(path.name.removeprefix(self.path.name)):
                numbers.append((int(found[1]), path))
        backups = [path for _, path in sorted(numbers, reverse=True)]
        return [*backups, self.path] if self.path.exists() else backups

    def close(self) -> None:
        """Read no more, and shorten the file; to be called when nobody writes any more. Idempotent."""
        self._closed = True
        if self._file is not None:
            self._file.close()
            self._file = None
            with suppress(OSError):  # of virtlogd, which bounds its files itself, and may be root's
                _shorten(self.path)


def _same(path: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), status)
    except FileNotFoundError:
        return False


def _shorten(path: Path) -> None:
    """Leave the beginning and the end of a file that is longer than both."""
    size = path.stat().st_size
    left_out = size - _KEPT_HEAD_BYTES - _KEPT_TAIL_BYTES
    if left_out <= 0:
        return
    with path.open("r+b") as file:
        file.seek(size - _KEPT_TAIL_BYTES)
        tail = file.read()
        file.seek(_KEPT_HEAD_BYTES)
        file.write(b"\n[bisector left out %d bytes here]\n" % left_out)
        file.write(tail)
        file.truncate()
