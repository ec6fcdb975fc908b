"""The driver of guests: a connection to libvirt, and the guests that it starts, none of which is left running.

The *embedded* driver (``qemu:///embed``, the default) is libvirt's QEMU driver inside this process: no daemon, nothing
to configure (https://libvirt.org/drvqemu.html, "Embedded driver"). Each process has one directory for it, named after
the run for which it first opens the driver. Guests of any run are found by their names, in the directories of all
processes of this user. Other URIs address a libvirt daemon on this host.
"""

import atexit
import errno
import fcntl
import functools
import hashlib
import json
import os
import pwd
import re
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import libvirt
import libvirt_qemu

from bisector.config import EMBEDDED, Accelerator
from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError, UserError
from bisector.host import process
from bisector.host.locks import locked, try_lock
from bisector.host.packages import install
from bisector.vm.console import ConsoleFile
from bisector.vm.definition import DomainSpec, domain_xml

# Short, since of the 108 bytes of sockaddr_un (unix(7)) libvirt takes "/lib/qemu/domain-ID-NAME(20)/monitor.sock"; and
# kept: $XDG_RUNTIME_DIR is removed at the last logout of its user (pam_systemd(8)), after which a run goes on.
PARENT = Path("/var/tmp")  # noqa: S108 - created private, and checked
# The user of QEMU under libvirt's own daemon: on Debian and Arch, on Fedora and openSUSE. libvirt needs that user.
GUEST_USERS = ("libvirt-qemu", "qemu")
_SHARE_DEADLINE_S = 10.0
_BECOME_S = 10.0
_MARKER = "bisector-libvirt"  # only a directory with it is ever removed
_MARKER_TEXT = "bisector keeps libvirt's embedded driver here; it may be removed when no bisector runs\n"
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

T = TypeVar("T")
# libvirt keeps the first directory of its embedded driver for the life of the process, and so does this module.
_opened: list[Path] = []


def embedded_directory(root: Path, cache: Path | None) -> Path:
    """The directory of this process's embedded driver, private and configured; the first call names it after ``root``.

    ``cache`` keeps what the driver learns about QEMU. Raises as :func:`make_private` does.
    """
    directory = _opened[0] if _opened else directory_of(root)
    make_private(directory)  # it may have been cleaned up meanwhile
    if _opened:
        return directory
    let_go = hold(directory)
    _opened.append(directory)
    (directory / "etc").mkdir(exist_ok=True)
    # No daemons, QEMU as this user, and no file changes its owner.
    lines = (
        'stdio_handler = "file"',
        'security_driver = "none"',
        f'user = "+{os.getuid()}"',
        f'group = "+{os.getgid()}"',
        "dynamic_ownership = 0",
        "remember_owner = 0",
        "namespaces = []",
        "cgroup_controllers = []",
        # libvirt's filter of system calls forbids QEMU to become another user; this module passes a filter of its own.
        *(() if guest_user() is None else ("seccomp_sandbox = 0",)),
    )
    (directory / "etc/qemu.conf").write_text("\n".join(lines) + "\n", encoding="ascii")
    link = directory / "cache"
    if cache is not None and not link.exists():
        with suppress(OSError):  # then the driver learns it again; the check of the cache directory says what is wrong
            cache.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(cache.resolve())
    atexit.register(remove_if_idle, directory)
    atexit.register(let_go)  # called before remove_if_idle: the order is the reverse
    return directory


def directory_of(root: Path) -> Path:
    """The driver's directory of a process whose first run is in ``root``; after a kill, guests may be left there."""
    return PARENT / f"bisector-{os.getuid()}-{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:10]}"


def _directories() -> Iterator[Path]:
    """The directories of all processes of this user: private, and named by :func:`directory_of`."""
    name = re.compile(rf"bisector-{os.getuid()}-[0-9a-f]{{10}}")
    return (path for path in sorted(PARENT.glob("bisector-*")) if name.fullmatch(path.name) and _is_private(path))


def _is_marked(directory: Path) -> bool:
    marker = directory / _MARKER
    return marker.is_file() and not marker.is_symlink()


def _is_private(path: Path) -> bool:
    with suppress(OSError):
        status = path.lstat()
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    return False


def make_private(directory: Path) -> None:
    """Create the directory, with the marker in it, unless it exists; libvirt creates what it needs below.

    Raises :class:`UserError` if something else is in its place, and :class:`InfraError` if it cannot be created.
    """
    try:
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
            if directory in _opened:  # the held one is gone, and other processes could end this one's guests
                atexit.register(hold(directory))
        if not _is_private(directory):
            raise UserError(
                f"{directory} exists and is not a private directory of yours", f"remove it: rm -rf {directory}"
            )
        if not _is_marked(directory):
            (directory / _MARKER).write_text(_MARKER_TEXT, encoding="ascii")
    except OSError as error:
        raise InfraError(
            f"cannot make {directory} for libvirt: {error.strerror}",
            f"df {directory.parent}; ls -ld {directory.parent}",
        ) from error


def hold(directory: Path) -> Callable[[], None]:
    """Keep the directory from being removed until the returned function is called; several processes may hold it.

    A process that looks for abandoned guests locks it exclusively for a moment, which is waited for. systemd-tmpfiles
    ignores locked directories (tmpfiles.d(5), "AGE"). Raises :class:`InfraError` if it cannot be locked.
    """
    with ExitStack() as stack:
        try:
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, lock)
            Deadline("its lock", _SHARE_DEADLINE_S).poll(lambda: try_lock(lock, fcntl.LOCK_SH))
        except (OSError, DeadlineExpired) as error:
            message = f"cannot keep other processes from ending the guests in {directory}: {error}"
            raise InfraError(message, f"fuser -v {directory}") from error
        return stack.pop_all().close


def remove_if_idle(directory: Path) -> None:
    """Remove the driver's directory if no guest runs in it and no process holds it.

    If that fails, the next process finds the rest.
    """
    if directory not in _directories() or not _is_marked(directory):
        return
    with suppress(OSError), locked(directory, fcntl.LOCK_EX):
        if not any(_guest_pids(directory, "")):
            shutil.rmtree(directory, ignore_errors=True)


def guest_user() -> pwd.struct_passwd | None:
    """The user that QEMU becomes before a guest starts, if root starts it; None if QEMU keeps its user.

    By then QEMU has opened all files of the guest. Code that breaks out of the guest is not root and has no
    capabilities. In a container, root may lack the right to become another user.
    """
    for name in GUEST_USERS if os.geteuid() == 0 else ():
        with suppress(KeyError, process.CommandMissing, process.CommandTimeout):
            user = pwd.getpwnam(name)
            words = ("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "true")
            if process.run(words, deadline_s=_BECOME_S, check=False).exit_status == 0:
                return user
    return None


def runs_guest(pid: int, name: str) -> bool:
    """Whether ``pid`` is QEMU with this guest, and not another process that got its number later."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.startswith(b"guest=" + os.fsencode(name) + b",") for word in words)


def end_guest(pid: int, name: str) -> bool:
    """End a guest by its process, and return whether it still ran. Raises :class:`InfraError` if it does not end."""
    return process.end(pid, functools.partial(runs_guest, name=name))


def guests(prefix: str) -> Iterator[tuple[str, int]]:
    """Name and process of each running guest of this user's runs whose name starts with ``prefix``."""
    for directory in _directories():
        yield from _guest_pids(directory, prefix)


def _guest_pids(root: Path, prefix: str) -> Iterator[tuple[str, int]]:
    """Name and process of each running guest of this directory whose name starts with ``prefix``."""
    for file in (root / "run/qemu").glob(f"{prefix}*.pid"):
        with suppress(OSError, ValueError):  # libvirt removes the file when the guest ends
            pid = int(file.read_text(encoding="ascii"))
            if runs_guest(pid, file.stem):
                yield file.stem, pid


def end_abandoned(spared: tuple[str, ...] = ()) -> tuple[str, ...]:
    """End the guests of killed processes, except those whose names begin with one of ``spared``; return their names.

    A directory in use is held (:func:`hold`). Raises :class:`InfraError` for a guest that does not end.
    """
    ended = []
    for directory in filter(_is_marked, _directories()):
        found = {name: pid for name, pid in _guest_pids(directory, "") if not name.startswith(spared)}
        if found:
            with suppress(BlockingIOError), locked(directory, fcntl.LOCK_EX):
                ended += [name for name, pid in found.items() if end_guest(pid, name)]
    return tuple(ended)


# Guests and their connection


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
    def versions(self) -> str:
        """The versions of the libvirt library of this process and of that which drives QEMU; a daemon's may differ."""
        library, driver = map(_version_text, (libvirt.getVersion(), self._connection.getLibVersion()))
        return f"library {library}, driver {driver}"

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
            if disk.was_replaced:
                raise InfraError(f"{disk.path} is another device by now, or gone", "see: dmesg; lsblk")
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
