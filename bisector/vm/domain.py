"""A guest that libvirt runs: watched, and gone afterwards."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

import libvirt

from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError
from bisector.vm.console_file import ConsoleFile
from bisector.vm.definition import DomainSpec

_END_DEADLINE_S = 5.0
_REASON_DEADLINE_S = 2.0
_GONE = (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID)


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
            return True
        if state == libvirt.VIR_DOMAIN_PAUSED:
            of_a_disk = reason == libvirt.VIR_DOMAIN_PAUSED_IOERROR
            why = f"an I/O error on the host, {self._why_paused()}" if of_a_disk else f"libvirt's reason {reason}"
            raise InfraError(f"{self.spec.name} was paused: {why}", "; ".join(self._qemu_log()[-2:]))
        return self._ended()

    def cpu_time_s(self) -> float:
        """CPU seconds of the host that the whole QEMU process has used; after its end the last known."""
        if self._handle is not None:
            with suppress(libvirt.libvirtError):
                self._cpu_time_s = max(self._cpu_time_s, self._handle.info()[4] / 1e9)
        return self._cpu_time_s

    def read_console(self) -> str:
        """What the guest has written to its console since the last call, at most 1 MiB of it.

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
