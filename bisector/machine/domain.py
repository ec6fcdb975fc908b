"""The only user of libvirt: guests that start, are watched, and are gone afterwards.

Two kinds of hypervisor, one code. The *embedded* driver (``qemu:///embed``, the default) is libvirt's QEMU
driver inside this process: no daemon, nothing to configure (https://libvirt.org/drvqemu.html,
"Embedded driver"). Everything else is a URI of a libvirt daemon on this host, ``qemu:///system``.
"""

import atexit
import functools
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from bisector.deadline import Deadline, DeadlineExpired
from bisector.errors import InfraError, UserError
from bisector.machine.definition import DomainSpec, domain_xml
from bisector.machine.embedded import configure, embedded_root, guest_pids, remove_if_idle, runs_guest
from bisector.packages import install
from bisector.settings import EMBEDDED, Accelerator

# The embedded driver logs to our standard error otherwise; libvirt reads this once, when it is loaded.
os.environ.setdefault("LIBVIRT_LOG_OUTPUTS", "4:file:/dev/null")

import libvirt

from bisector.machine.volume import Volume

_LOCAL_SCHEMES = ("qemu", "qemu+unix")
_END_DEADLINE_S = 5.0
_REAP_DEADLINE_S = 20.0
_LOG_TAIL_LINES = 12
_VIRT_TYPES = {Accelerator.KVM: "kvm", Accelerator.TCG: "qemu"}
_GONE = (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID)


class Ending(StrEnum):
    """How a domain came to its end."""

    GUEST = "the guest ended by itself"
    QEMU = "QEMU died"
    OUTSIDE = "somebody ended QEMU"


# virDomainEventStoppedDetailType
_ENDINGS = {
    libvirt.VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN: Ending.GUEST,
    libvirt.VIR_DOMAIN_EVENT_STOPPED_CRASHED: Ending.GUEST,
    libvirt.VIR_DOMAIN_EVENT_STOPPED_FAILED: Ending.QEMU,
}


class Hypervisor:
    """A connection to libvirt; closing it leaves nothing of ours running."""

    def __init__(self, connection: Any, embedded_root: Path | None) -> None:
        self._connection = connection
        self._embedded_root = embedded_root
        self._endings: dict[str, Ending] = {}
        self._domains: list[Domain] = []
        self._names: set[str] = set()  # also of a guest that came up while Ctrl-C was pressed, and has no Domain
        self._callback = connection.domainEventRegisterAny(
            None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._on_lifecycle, None
        )

    @property
    def embedded(self) -> bool:
        """Whether libvirt's driver runs in this process."""
        return self._embedded_root is not None

    @property
    def run_as(self) -> tuple[int, int] | None:
        """User and group that QEMU is to have; None where it has ours anyway.

        A system daemon's QEMU is a user of its own, who cannot enter an ordinary home directory. So it is
        told to be us, with the group that may open /dev/kvm: that of the daemon's own user.
        """
        if self.embedded or urlsplit(self._connection.getURI()).path != "/system":
            return None
        return os.getuid(), _kvm_group() or os.getgid()

    @property
    def qemu_version(self) -> str:
        """QEMU's version, as ``7.2.22``; raises :class:`UserError` when there is no QEMU for x86_64."""
        try:
            return _version(self._connection.getVersion())
        except libvirt.libvirtError as error:
            raise UserError(f"libvirt finds no QEMU: {error}", install("qemu-system-x86")) from error

    @property
    def driver_version(self) -> str:
        """The version of the libvirt that drives QEMU: a daemon's may be another than the library's."""
        return _version(self._connection.getLibVersion())

    def offers(self, accelerator: Accelerator) -> bool:
        """Whether libvirt would start an x86_64 guest so; that it *runs* is another question."""
        try:
            self._connection.getDomainCapabilities(arch="x86_64", virttype=_VIRT_TYPES[accelerator])
        except libvirt.libvirtError:
            return False
        return True

    def volume(self, pool: str, name: str) -> Volume:
        """A volume of libvirt's; raises :class:`UserError` when there is none that could be a test disk."""
        if self.embedded:
            raise UserError(
                f"volume:{pool}/{name} needs a libvirt daemon, the embedded driver knows no pools",
                "use --connect qemu:///system, or give a path",
            )
        return Volume.find(self._connection, pool, name)

    def start(self, spec: DomainSpec) -> "Domain":
        """Start a transient guest; the console file is made first, so it holds the first byte.

        Raises :class:`InfraError` with QEMU's own words when it does not start.
        """
        spec.console.write_bytes(b"")
        spec.console.chmod(0o644)
        self._endings.pop(spec.name, None)
        # The embedded driver refuses it; there, a killed process leaves its guest to reap().
        flags = 0 if self.embedded else libvirt.VIR_DOMAIN_START_AUTODESTROY
        self._names.add(spec.name)
        try:
            handle = self._connection.createXML(domain_xml(spec), flags)
        except libvirt.libvirtError as error:
            self._names.discard(spec.name)
            log = "; ".join(self._log_tail(spec.name)[-2:])
            raise InfraError(
                f"{spec.name} did not start: {error}", f"{self._log(spec.name)}: {log}" if log else ""
            ) from error
        domain = Domain(
            spec, handle, lambda: self._endings.get(spec.name), lambda: self._log_tail(spec.name), self._forget
        )
        self._domains.append(domain)
        return domain

    def _forget(self, domain: "Domain") -> None:
        self._domains.remove(domain)
        self._names.discard(domain.spec.name)

    def reap(self, prefix: str) -> tuple[str, ...]:
        """End every domain whose name starts with ``prefix``, whoever started it; their names.

        A guest whose orchestrator was killed is found here: the embedded driver reconnects to what
        runs under its directory. The pid files are a second way, for a guest that it has lost.
        Raises :class:`InfraError` when one cannot be ended.
        """
        leftover = dict(guest_pids(self._embedded_root, prefix)) if self._embedded_root else {}
        names = {handle.name() for handle in self._active(prefix)}
        try:
            Deadline(f"end of the guests {prefix}*", _REAP_DEADLINE_S).poll(lambda: self._all_ended(prefix), 0.2)
        except DeadlineExpired as error:
            raise InfraError(str(error), f"end them by hand: pkill -9 -f guest={prefix}") from error
        for name, pid in leftover.items():
            if runs_guest(pid, name):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                names.add(name)
        return tuple(sorted(names))

    def close(self) -> None:
        """End the guests that are left and the connection; idempotent."""
        if self._connection is None:
            return
        for domain in tuple(self._domains):
            domain.destroy()
        for name in tuple(self._names):
            with suppress(libvirt.libvirtError):  # it never came up
                self._connection.lookupByName(name).destroy()
        connection, self._connection = self._connection, None
        with suppress(libvirt.libvirtError):  # the daemon may be gone, and its callbacks with it
            connection.domainEventDeregisterAny(self._callback)
        if self._embedded_root is None:
            with suppress(libvirt.libvirtError):
                connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _active(self, prefix: str) -> list[Any]:
        try:
            handles = self._connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)
        except libvirt.libvirtError as error:
            raise InfraError(f"libvirt lists no domains: {error}") from error
        return [handle for handle in handles if handle.name().startswith(prefix)]

    def _all_ended(self, prefix: str) -> bool | None:
        handles = self._active(prefix)
        for handle in handles:
            with suppress(libvirt.libvirtError):  # it may be ending, or still be connected to: asked again
                handle.destroy()
        return None if handles else True

    def _log(self, name: str) -> Path:
        return (self._embedded_root / "log" if self._embedded_root else Path("/var/log/libvirt")) / f"qemu/{name}.log"

    def _log_tail(self, name: str) -> tuple[str, ...]:
        try:
            lines = self._log(name).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:  # not made yet, or only root may read the daemon's
            return ()
        return tuple(lines[-_LOG_TAIL_LINES:])

    def _on_lifecycle(self, _connection: Any, handle: Any, event: int, detail: int, _opaque: Any) -> None:
        """Runs in the event thread; the first word about an end is the true one."""
        if event == libvirt.VIR_DOMAIN_EVENT_STOPPED:
            self._endings.setdefault(handle.name(), _ENDINGS.get(detail, Ending.OUTSIDE))
        elif (event, detail) == (libvirt.VIR_DOMAIN_EVENT_SHUTDOWN, libvirt.VIR_DOMAIN_EVENT_SHUTDOWN_HOST):
            self._endings.setdefault(handle.name(), Ending.OUTSIDE)


class Domain:
    """A guest that was started; gone when its ``with`` block ends."""

    def __init__(
        self,
        spec: DomainSpec,
        handle: Any,
        ending: Callable[[], Ending | None],
        qemu_log: Callable[[], tuple[str, ...]],
        forget: Callable[["Domain"], None],
    ) -> None:
        self.spec = spec
        self._handle = handle
        self._ending = ending
        self._qemu_log = qemu_log
        self._forget = forget
        self._cpu_time_s = 0.0
        self._read_bytes = 0

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
            full = reason == libvirt.VIR_DOMAIN_PAUSED_IOERROR
            why = "an I/O error on the host (is its disk full?)" if full else f"libvirt's reason {reason}"
            raise InfraError(f"{self.spec.name} was paused: {why}", "; ".join(self._qemu_log()[-2:]))
        return self._ended()

    def cpu_time_s(self) -> float:
        """CPU seconds of the host that the whole QEMU process has used; after its end the last known."""
        if self._handle is not None:
            with suppress(libvirt.libvirtError):
                self._cpu_time_s = max(self._cpu_time_s, self._handle.info()[4] / 1e9)
        return self._cpu_time_s

    def read_console(self) -> str:
        """What the guest has written to its console since the last call."""
        size = self.spec.console.stat().st_size
        if size < self._read_bytes:  # virtlogd starts a new file at 2 MiB (max_size in virtlogd.conf)
            self._read_bytes = 0
        with self.spec.console.open("rb") as file:
            file.seek(self._read_bytes)
            new = file.read()
        self._read_bytes += len(new)
        return new.decode("latin-1")  # bytes of a broken kernel; no sequence can be cut in two

    def qemu_log_tail(self) -> tuple[str, ...]:
        """The last lines of QEMU's own log, where we may read it."""
        return self._qemu_log()

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
        self._forget(self)  # at the end: interrupted before it, close() tries again by name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.destroy()

    def _ended(self) -> bool:
        """False for an end by the guest's own doing; the event with the cause may lag behind the state."""
        try:
            ending = Deadline(f"the cause of {self.spec.name}'s end", _END_DEADLINE_S).poll(self._ending)
        except DeadlineExpired as error:
            raise InfraError(f"{self.spec.name} vanished, libvirt does not say why") from error
        if ending is not Ending.GUEST:
            raise InfraError(f"{self.spec.name}: {ending}", "; ".join(self._qemu_log()[-2:]))
        return False


def _kvm_group() -> int:
    with suppress(OSError):
        return Path("/dev/kvm").stat().st_gid
    return 0


def open_hypervisor(uri: str, root: Path, cache: Path | None = None) -> Hypervisor:
    """Connect to ``uri``: ``qemu:///embed`` for the embedded driver, else a libvirt daemon of this host.

    ``root`` is the directory of the run: the embedded driver's own directory is found again through
    it after a crash. ``cache`` keeps what that driver learns about QEMU (seconds) between runs.
    Raises :class:`UserError` when there is nothing at the other end.
    """
    _start_library()
    directory = None
    if uri == EMBEDDED:
        directory = _embedded_directory(root, cache)
        uri = f"qemu:///embed?root={directory}"
    elif urlsplit(uri).scheme not in _LOCAL_SCHEMES or urlsplit(uri).netloc:
        raise UserError(
            f"{uri}: the guest is reached over this host's loopback, so libvirt must be local",
            "use --connect qemu:///embed, or --connect qemu:///system",
        )
    try:
        connection = _embedded_driver().connected(uri) if directory else libvirt.open(uri)
    except libvirt.libvirtError as error:
        hint = (
            "`make setup` installs libvirt's QEMU driver and the user it wants"
            if directory
            else f"is libvirtd running, and are you in its group? virsh -c '{uri}' version; or --connect {EMBEDDED}"
        )
        raise UserError(f"{uri}: {error}", hint) from error
    return Hypervisor(connection, directory)


def library_version() -> str:
    """The version of the libvirt library in this process."""
    return _version(libvirt.getVersion())


def _version(number: int) -> str:
    """As virConnectGetVersion() encodes them: 1,000,000 * major + 1,000 * minor + release."""
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"


class _EmbeddedDriver:
    """libvirt keeps the first directory of its embedded driver for the life of the process; so do we.

    The connection, too: each one that is opened registers the driver again, and the 22nd is refused
    ("Too many drivers", MAX_DRIVERS in libvirt's src/libvirt.c).
    """

    def __init__(self) -> None:
        self.directory: Path | None = None
        self._connection: Any = None

    def connected(self, uri: str) -> Any:
        """The one connection; raises libvirt's error when it cannot be made."""
        if self._connection is None:
            self._connection = libvirt.open(uri)
        return self._connection


@functools.cache
def _embedded_driver() -> _EmbeddedDriver:
    return _EmbeddedDriver()


def _embedded_directory(root: Path, cache: Path | None) -> Path:
    """The directory of this process's embedded driver, the one that ``root`` had before if possible."""
    driver = _embedded_driver()
    directory = embedded_root(root, driver.directory)
    if driver.directory is None:
        driver.directory = directory
        configure(directory, cache)
        atexit.register(remove_if_idle, directory)
    return directory


@functools.cache  # libvirt's event loop and error handler exist once in a process
def _start_library() -> None:
    libvirt.registerErrorHandler(_ignore_error, None)  # printed otherwise; the exception says the same
    libvirt.virEventRegisterDefaultImpl()
    threading.Thread(target=_run_events, name="libvirt-events", daemon=True).start()


def _ignore_error(_opaque: Any, _error: Any) -> None:
    return


def _run_events() -> None:
    while True:
        libvirt.virEventRunDefaultImpl()
