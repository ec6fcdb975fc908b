"""The driver of guests: a connection to libvirt, and the guests that it starts, none of which is left running.

The *embedded* driver (``qemu:///embed``, the default) is libvirt's QEMU driver inside this process: no daemon, nothing
to configure (https://libvirt.org/drvqemu.html, "Embedded driver"). Other URIs address a libvirt daemon on this host.
"""

import errno
import functools
import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import libvirt
import libvirt_qemu

from bisector.config import EMBEDDED, Accelerator
from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError, UserError
from bisector.host.packages import install
from bisector.vm.console import ConsoleFile
from bisector.vm.definition import DomainSpec, domain_xml
from bisector.vm.embedded import embedded_directory, end_guest, guest_user, guests, make_private

T = TypeVar("T")
_LOCAL_SCHEMES = ("qemu", "qemu+unix")
_REAP_DEADLINE_S = 20.0
_END_DEADLINE_S = 5.0
_REASON_DEADLINE_S = 2.0

_VIRT_TYPES = {Accelerator.KVM: "kvm", Accelerator.TCG: "qemu"}
# libvirt's own filter, except that QEMU may become another user (qemu(1)); an unprivileged user still cannot.
_FILTER = ("-sandbox", "on,obsolete=deny,elevateprivileges=allow,spawn=deny,resourcecontrol=deny")
_RUN_WITH = 9_001_000  # since this version of QEMU, -runas is called -run-with
_BLOCK_STATS = '{"execute": "query-blockstats"}'
_GONE = (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID)


class DomainEnd(StrEnum):
    """How a domain ended."""

    GUEST = "the guest ended by itself"
    QEMU = "QEMU died"
    OUTSIDE = "somebody ended QEMU"


# virDomainEventStoppedDetailType
_ENDS = {
    libvirt.VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN: DomainEnd.GUEST,
    libvirt.VIR_DOMAIN_EVENT_STOPPED_CRASHED: DomainEnd.GUEST,
    libvirt.VIR_DOMAIN_EVENT_STOPPED_FAILED: DomainEnd.QEMU,
}


class LibvirtDomain:
    """A started guest; it is gone when its ``with`` block ends."""

    def __init__(self, spec: DomainSpec, handle: Any, hypervisor: "LibvirtHypervisor") -> None:
        self.spec = spec
        self._handle = handle
        self._hypervisor = hypervisor
        self._cpu_time_s = 0.0
        self._console = ConsoleFile(spec.console)

    def is_running(self) -> bool:
        """Whether the guest still runs; False means that it ended itself (panic, reset, power-off).

        Raises :class:`InfraError` if something else ended or paused it.
        """
        if self._handle is None:
            return False
        name, known = self.spec.name, self._hypervisor
        try:
            state, reason = self._handle.state()
        except libvirt.libvirtError as error:
            if error.get_error_code() not in _GONE:
                raise InfraError(f"libvirt does not answer about {name}: {error}") from error
            state, reason = libvirt.VIR_DOMAIN_SHUTOFF, 0
        if state in (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_BLOCKED):
            self._check_nvme()
            return True
        if state == libvirt.VIR_DOMAIN_PAUSED:
            why = f"libvirt's reason {reason}"
            if reason == libvirt.VIR_DOMAIN_PAUSED_IOERROR:
                words = _awaited(_REASON_DEADLINE_S, lambda: known.io_errors.get(name)) or "without a reason"
                full = " (is its disk full?)" if os.strerror(errno.ENOSPC) in words else ""
                why = f"an I/O error on the host, {words}{full}"
            raise InfraError(f"{name} was paused: {why}", known.last_words(name))
        ending = _awaited(_END_DEADLINE_S, lambda: known.endings.get(name))
        if ending is None:
            raise InfraError(f"{name} vanished, libvirt does not say why")
        if ending is not DomainEnd.GUEST:
            raise InfraError(f"{name}: {ending}", known.last_words(name))
        return False

    def _check_nvme(self) -> None:
        """Raise :class:`InfraError` if I/O of an NVMe disk failed on the host, which does not pause the guest."""
        if not self.spec.on_nvme:
            return
        try:
            told = json.loads(libvirt_qemu.qemuMonitorCommand(self._handle, _BLOCK_STATS, 0))["return"]
        except libvirt.libvirtError:  # the guest has just ended
            return
        for one in told:
            failed = sum(one["stats"].get(f"failed_{what}_operations", 0) for what in ("rd", "wr", "flush", "unmap"))
            if failed and "nvme" in str(one.get("qdev")):
                raise InfraError(
                    f"{self.spec.name}: {failed} I/Os of a disk on nvme failed on the host (is its disk full?)",
                    self._hypervisor.last_words(self.spec.name) or "dmesg; df",
                )

    def cpu_time_s(self) -> float:
        """The host's CPU seconds that the whole QEMU process has used; after its end the last known value."""
        if self._handle is not None:
            with suppress(libvirt.libvirtError):
                self._cpu_time_s = max(self._cpu_time_s, self._handle.info()[4] / 1e9)
        return self._cpu_time_s

    def read_console(self) -> str:
        """The console output since the last call, at most :data:`CONSOLE_CHUNK_BYTES`; raises :class:`InfraError`."""
        return self._console.read().decode("latin-1")  # a broken kernel sends any bytes, and each is a character

    def destroy(self) -> None:
        """End the guest at once; idempotent. Raises :class:`InfraError` if that fails."""
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
        self._hypervisor.forget(self)  # last: if destroy() was refused or interrupted, close() tries again by name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()


class LibvirtHypervisor:
    """A connection to libvirt; after it is closed no guest of this run is left running."""

    def __init__(self, connection: Any, directory: Path | None) -> None:
        self._connection = connection
        self.directory = directory
        # By the names of domains. A libvirt event may arrive later than the state that it explains.
        self.endings: dict[str, DomainEnd] = {}
        self.io_errors: dict[str, str] = {}
        self._domains: list[LibvirtDomain] = []
        # Includes a guest that was coming up when Ctrl-C was pressed, and has no domain object yet.
        self._names: set[str] = set()
        self._callback = connection.domainEventRegisterAny(
            None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._on_lifecycle, None
        )
        self._monitor: int | None = None
        with suppress(libvirt.libvirtError):  # without it, a pause is reported without QEMU's reason
            self._monitor = libvirt_qemu.qemuMonitorEventRegister(
                connection, None, "BLOCK_IO_ERROR", self._on_io_error, None
            )

    @property
    def is_alive(self) -> bool:
        """Whether libvirt is still connected; it is not after a restart of the daemon."""
        try:
            return self._connection is not None and self._connection.isAlive() == 1
        except libvirt.libvirtError:
            return False

    @property
    def embedded(self) -> bool:
        """Whether libvirt's driver runs in this process."""
        return self.directory is not None

    @property
    def run_as(self) -> tuple[int, int] | None:
        """The user and group that a daemon's QEMU must be given; None if it has those of this process anyway.

        A system daemon's QEMU cannot enter an ordinary home directory. So it gets this process's user, with the group
        that may open /dev/kvm.
        """
        if self.embedded or urlsplit(self._connection.getURI()).path != "/system":
            return None
        group = 0
        with suppress(OSError):
            group = Path("/dev/kvm").stat().st_gid
        return os.getuid(), group or os.getgid()

    @property
    def _becoming(self) -> tuple[str, ...]:
        """QEMU's arguments to become :func:`guest_user` before the guest's first instruction."""
        user = guest_user() if self.embedded else None
        if user is None:
            return ()
        who = f"{user.pw_uid}:{user.pw_gid}"
        renamed = self._connection.getVersion() >= _RUN_WITH
        return (*_FILTER, *(("-run-with", f"user={who}") if renamed else ("-runas", who)))

    @property
    def qemu_version(self) -> str:
        """QEMU's version, as ``7.2.22``; raises :class:`UserError` if there is no QEMU for x86_64."""
        try:
            return _version_text(self._connection.getVersion())
        except libvirt.libvirtError as error:
            raise UserError(f"libvirt finds no QEMU: {error}", install("qemu-system-x86")) from error

    @property
    def driver_version(self) -> str:
        """The version of the libvirt that drives QEMU; a daemon's may differ from the library's."""
        return _version_text(self._connection.getLibVersion())

    def offers(self, accelerator: Accelerator) -> bool:
        """Whether libvirt would start an x86_64 guest with this accelerator, not whether that guest would run.

        libvirt refuses to describe an accelerator that it does not have (virQEMUCapsCacheLookupDefault() in its
        qemu_capabilities.c). Raises :class:`InfraError` for any other refusal.
        """
        try:
            self._connection.getDomainCapabilities(arch="x86_64", virttype=_VIRT_TYPES[accelerator])
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_INVALID_ARG:
                return False
            raise InfraError(f"libvirt does not say whether it offers {accelerator}: {error}") from error
        return True

    def start(self, spec: DomainSpec) -> LibvirtDomain:
        """Start a transient guest; the console file is created first, so it receives the first byte.

        Raises :class:`InfraError` with QEMU's own message if the guest does not start.
        """
        if self.directory is not None:
            make_private(self.directory)  # it may have been cleaned up since the last guest
        spec.console.write_bytes(b"")
        spec.console.chmod(0o644)
        for disk in spec.disks:
            if disk.source.was_replaced:
                raise InfraError(f"{disk.source.name} is another device by now, or gone", "see: dmesg; lsblk")
        self.endings.pop(spec.name, None)
        self.io_errors.pop(spec.name, None)
        # The embedded driver refuses this flag; a guest of a killed process is then left to reap().
        flags = 0 if self.embedded else libvirt.VIR_DOMAIN_START_AUTODESTROY
        self._names.add(spec.name)
        try:
            handle = self._connection.createXML(domain_xml(spec, self._becoming), flags)
        except libvirt.libvirtError as error:
            self._names.discard(spec.name)
            log = self.last_words(spec.name)
            raise InfraError(
                f"{spec.name} did not start: {error}", f"{self._log(spec.name)}: {log}" if log else ""
            ) from error
        domain = LibvirtDomain(spec, handle, self)
        self._domains.append(domain)
        return domain

    def forget(self, domain: LibvirtDomain) -> None:
        """Stop tracking a guest that has ended, so that :meth:`close` does not end it again."""
        self._domains.remove(domain)
        self._names.discard(domain.spec.name)

    def reap(self, prefix: str) -> tuple[str, ...]:
        """End every domain whose name starts with ``prefix``, whoever started it, and return their names.

        Raises :class:`InfraError` if one cannot be ended.
        """
        names = {handle.name() for handle in self._active(prefix)}
        if self.embedded:
            # Embedded guests are ended by their processes. Another process may have left one in a directory of its own.
            # And if the orchestrator was killed while QEMU was starting, libvirt waits for the monitor and refuses for
            # half a minute.
            names |= {name for name, pid in list(guests(prefix)) if end_guest(pid, name)}

        def all_ended() -> bool | None:
            handles = self._active(prefix)
            for handle in handles:
                with suppress(libvirt.libvirtError):  # it may be ending
                    handle.destroy()
            return None if handles else True

        try:
            Deadline(f"end of the guests {prefix}*", _REAP_DEADLINE_S).poll(all_ended, 0.2)
        except DeadlineExpired as error:
            raise InfraError(str(error), f"end them by hand: pkill -9 -f guest={prefix}") from error
        return tuple(sorted(names))

    def close(self) -> None:
        """End the remaining guests and a daemon's connection, not the embedded driver's; idempotent."""
        if self._connection is None:
            return
        for domain in tuple(self._domains):
            domain.destroy()
        for name in tuple(self._names):
            with suppress(libvirt.libvirtError):  # it never started
                self._connection.lookupByName(name).destroy()
        connection, self._connection = self._connection, None
        with suppress(libvirt.libvirtError):  # the daemon may be gone, and its callbacks with it
            connection.domainEventDeregisterAny(self._callback)
            if self._monitor is not None:
                libvirt_qemu.qemuMonitorEventDeregister(connection, self._monitor)
        if self.directory is None:
            with suppress(libvirt.libvirtError):
                connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _active(self, prefix: str) -> list[Any]:
        try:
            handles = self._connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)
        except libvirt.libvirtError as error:
            raise InfraError(f"libvirt lists no domains: {error}") from error
        return [handle for handle in handles if handle.name().startswith(prefix)]

    def _log(self, name: str) -> Path:
        return (self.directory / "log" if self.directory else Path("/var/log/libvirt")) / f"qemu/{name}.log"

    def last_words(self, name: str) -> str:
        """The end of QEMU's log of a guest, for a hint; empty if it cannot be read: a daemon's log belongs to root."""
        with suppress(OSError):
            return "; ".join(self._log(name).read_text(encoding="utf-8", errors="replace").splitlines()[-2:])
        return ""

    def _on_lifecycle(self, _connection: Any, handle: Any, event: int, detail: int, _opaque: Any) -> None:
        """Record how a domain ended; runs in the event thread. The first event about an end is the accurate one."""
        if event == libvirt.VIR_DOMAIN_EVENT_STOPPED:
            self.endings.setdefault(handle.name(), _ENDS.get(detail, DomainEnd.OUTSIDE))
        elif (event, detail) == (libvirt.VIR_DOMAIN_EVENT_SHUTDOWN, libvirt.VIR_DOMAIN_EVENT_SHUTDOWN_HOST):
            self.endings.setdefault(handle.name(), DomainEnd.OUTSIDE)

    def _on_io_error(
        self, _connection: Any, handle: Any, _event: str, _seconds: int, _micros: int, details: str, _opaque: Any
    ) -> None:
        """Record QEMU's first I/O error (qapi/block-core.json, BLOCK_IO_ERROR); runs in the event thread."""
        with suppress(ValueError):
            told = json.loads(details)
            what = f"{told.get('operation', 'use')} of a disk: {told.get('reason', 'no reason given')}"
            self.io_errors.setdefault(handle.name(), what)


def open_hypervisor(uri: str, root: Path, cache: Path | None = None) -> LibvirtHypervisor:
    """Connect to ``uri``: ``qemu:///embed`` for the embedded driver, else a libvirt daemon of this host.

    The embedded driver's directory is named after ``root``, the run's directory. ``cache`` keeps what the driver learns
    about QEMU between runs. Raises :class:`UserError` if the connection fails.
    """
    _start_library()
    directory = None
    if uri == EMBEDDED:
        directory = embedded_directory(root, cache)
        uri = f"qemu:///embed?root={directory}"
    elif urlsplit(uri).scheme not in _LOCAL_SCHEMES or urlsplit(uri).netloc:
        raise UserError(
            f"{uri}: the guest is reached over this host's loopback, so libvirt must be local",
            "use --connect qemu:///embed, or --connect qemu:///system",
        )
    try:
        connection = _embedded_connection(uri) if directory else libvirt.open(uri)
    except libvirt.libvirtError as error:
        hint = (
            "`make setup` installs libvirt's QEMU driver and the user it wants"
            if directory
            else f"is libvirtd running, and are you in its group? virsh -c '{uri}' version; or --connect {EMBEDDED}"
        )
        raise UserError(f"{uri}: {error}", hint) from error
    return LibvirtHypervisor(connection, directory)


def library_version() -> str:
    """The version of the libvirt library in this process."""
    return _version_text(libvirt.getVersion())


@functools.cache
def _embedded_connection(uri: str) -> Any:
    """Open one per process: the 22nd is refused ("Too many drivers", MAX_DRIVERS in libvirt's src/libvirt.c)."""
    return libvirt.open(uri)


@functools.cache  # libvirt's event loop and error handler exist once in a process
def _start_library() -> None:
    libvirt.registerErrorHandler(lambda *_: None, None)  # would be printed, too; exceptions report them
    libvirt.virEventRegisterDefaultImpl()

    def run_events() -> None:
        while True:
            libvirt.virEventRunDefaultImpl()

    threading.Thread(target=run_events, name="libvirt-events", daemon=True).start()


def _awaited(seconds: float, known: Callable[[], T | None]) -> T | None:
    with suppress(DeadlineExpired):
        return Deadline("an event of libvirt", seconds).poll(known)
    return None


def _version_text(number: int) -> str:
    """A version as text; virConnectGetVersion() encodes it as 1,000,000 * major + 1,000 * minor + release."""
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"
