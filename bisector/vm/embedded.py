"""The directory of libvirt's embedded QEMU driver: its place, the driver's configuration, and the guests in it.

Each process has one, named after the run for which it first opens the driver. Guests of any run are found by their
names, in the directories of all processes of this user. Only a directory with the marker in it is ever removed.
"""

import atexit
import fcntl
import hashlib
import os
import pwd
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError, UserError
from bisector.host import process
from bisector.host.locks import locked, try_lock

# The path has to be short: sockaddr_un has 108 bytes (unix(7)), and libvirt adds
# "/lib/qemu/domain-ID-NAME(20)/monitor.sock". It is kept across reboots (file-hierarchy(7)). $XDG_RUNTIME_DIR is
# removed at the last logout of its user (pam_systemd(8)), after which a run goes on.
PARENT = Path("/var/tmp")  # noqa: S108 - created private, and checked
# The user of QEMU under libvirt's own daemon: on Debian and Arch, on Fedora and openSUSE. libvirt needs that user.
GUEST_USERS = ("libvirt-qemu", "qemu")
_SHARE_DEADLINE_S = 10.0
_BECOME_S = 10.0
_MARKER = "bisector-libvirt"
_MARKER_TEXT = "bisector keeps libvirt's embedded driver here; it may be removed when no bisector runs\n"

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
        # libvirt's filter of system calls forbids QEMU to become another user; vm/driver.py passes a filter of its own.
        *(() if guest_user() is None else ("seccomp_sandbox = 0",)),
    )
    (directory / "etc/qemu.conf").write_text("\n".join(lines) + "\n", encoding="ascii")
    link = directory / "cache"
    if cache is not None and not link.exists():
        cache.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(cache.resolve())
    atexit.register(remove_if_idle, directory)
    atexit.register(hold(directory))  # called before remove_if_idle: the order is the reverse
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
    ignores locked directories (tmpfiles.d(5), "AGE").
    """
    with ExitStack() as stack, suppress(OSError, DeadlineExpired):
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, lock)
        share = Deadline(f"a share of {directory}", _SHARE_DEADLINE_S)
        share.poll(lambda: try_lock(lock, fcntl.LOCK_SH))
        return stack.pop_all().close
    return lambda: None


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
    return process.end(pid, partial(runs_guest, name=name))


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
