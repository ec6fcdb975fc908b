"""The directory of libvirt's embedded QEMU driver: where it is, what it is told, what runs in it.

A run directory may come from elsewhere (an archive, another user), and its link to this directory with it. So the
link is followed only to a directory that is where we make them and named as we name them, and only what has our
marker in it is ever removed.
"""

import atexit
import fcntl
import functools
import hashlib
import os
import pwd
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError, UserError
from bisector.host import process

# Short: sockaddr_un has 108 bytes (unix(7)), and libvirt adds "/lib/qemu/domain-ID-NAME(20)/monitor.sock". Kept across
# reboots (file-hierarchy(7)), and not $XDG_RUNTIME_DIR: that is removed with the last logout of its user
# (pam_systemd(8)), after which a run goes on.
PARENT = Path("/var/tmp")  # noqa: S108 - made private, and checked
_SHARE_DEADLINE_S = 10.0
_BECOME_S = 10.0
# As whom libvirt's own daemon runs QEMU: on Debian and Arch, and on Fedora and openSUSE. libvirt needs its user.
GUEST_USERS = ("libvirt-qemu", "qemu")
_MARKER = "bisector-libvirt"
_MARKER_TEXT = "bisector keeps libvirt's embedded driver here; it may be removed when no bisector runs\n"


@dataclass
class _Driver:
    """libvirt keeps the first directory of its embedded driver for the life of the process; so do we."""

    directory: Path | None = None


@functools.cache
def _driver() -> _Driver:
    return _Driver()


def embedded_directory(root: Path, cache: Path | None) -> Path:
    """The directory of this process's embedded driver, the one that ``root`` had before if possible.

    It is there, private and configured. ``cache`` keeps what the driver learns about QEMU. Raises as
    :func:`embedded_root` and :func:`make_private` do.
    """
    driver = _driver()
    directory = embedded_root(root, driver.directory)
    make_private(directory)  # it may have been cleaned up meanwhile
    if driver.directory is None:
        driver.directory = directory
        _configure(directory, cache)
        atexit.register(remove_if_idle, directory)
        atexit.register(hold(directory))  # the last one registered is called first
    return directory


def embedded_root(root: Path, opened: Path | None = None) -> Path:
    """A short private directory for the embedded driver, remembered as the link ``root/libvirt``.

    In /var/tmp, because a run directory is too long for a socket's name. The link is followed first: a killed run
    may have left guests in the directory that it names. Once this process has ``opened`` one, there can be no other;
    guests of the linked one are then out of reach.

    Raises :class:`UserError` when there is something at its place that is not ours.
    """
    link = root / "libvirt"
    linked = _linked(link)
    if linked is not None and (linked == opened or (opened is None and _is_in_use(linked))):
        return linked
    if linked is not None and any(guest_pids(linked, "")):
        raise InfraError(f"guests of {root} are left over, and this process works in {opened}", "start it anew")
    made = opened or _make(root)
    root.mkdir(parents=True, exist_ok=True)
    try:
        link.unlink(missing_ok=True)
    except OSError as error:  # a directory
        raise UserError(
            f"{link} is not a link of bisector's: {error.strerror}", f"move it away: ls -l {link}"
        ) from error
    link.symlink_to(made)
    return made


def directories() -> Iterator[Path]:
    """The directories of all runs of this user, in each place where there can be some."""
    for parent in dict.fromkeys(_parents()):
        yield from filter(_is_ours, sorted(parent.glob(f"bisector-{os.getuid()}-*")))


def _linked(link: Path) -> Path | None:
    """Where a run's link leads, if this tool can have made that directory."""
    try:
        target = link.readlink()
    except OSError:  # it is not there, or no link
        return None
    return target if _is_ours(target) else None


def _is_ours(directory: Path) -> bool:
    """Whether it is private, named as we name them, and directly in a place where we make them, or made them once."""
    named = re.fullmatch(rf"bisector-{os.getuid()}-[0-9a-f]{{10}}", directory.name)
    return named is not None and directory.parent in _parents() and _is_private(directory)


def _parents() -> tuple[Path, ...]:
    """The present place, and those of earlier versions, where a killed run may have left guests."""
    earlier = (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{os.getuid()}", "/tmp")  # noqa: S108 - only looked at
    return PARENT, *(Path(parent) for parent in earlier if parent)


def _is_in_use(directory: Path) -> bool:
    return _is_marked(directory) or any(guest_pids(directory, ""))


def _is_marked(directory: Path) -> bool:
    marker = directory / _MARKER
    return marker.is_file() and not marker.is_symlink()


def _make(root: Path) -> Path:
    digest = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:10]
    made = PARENT / f"bisector-{os.getuid()}-{digest}"
    make_private(made)
    return made


def make_private(directory: Path) -> None:
    """Make the directory with our marker in it, unless it is there; libvirt makes what it needs below.

    Raises :class:`UserError` when there is something else in its place, and :class:`InfraError` when it cannot be made.
    """
    try:
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
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
    """Share the directory with others who hold it, and keep it from being removed, until what is returned is called.

    Who looks for guests that were left, or removes an idle directory, has it for itself for a moment: that is waited
    for. systemd-tmpfiles, which removes old files, leaves alone what somebody has locked (tmpfiles.d(5), "AGE").
    """

    def shared(lock: int) -> bool | None:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        return True

    with ExitStack() as stack, suppress(OSError, DeadlineExpired):
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, lock)
        Deadline(f"a share of {directory}", _SHARE_DEADLINE_S).poll(lambda: shared(lock))
        return stack.pop_all().close
    return lambda: None


def remove_if_idle(directory: Path) -> None:
    """Remove the driver's directory when no guest runs in it and nobody holds it.

    What is left is found by the next process. Two runs may have one directory: a copied run directory has the link.
    """
    if not (_is_ours(directory) and _is_marked(directory)):
        return
    with suppress(OSError), _held_by_nobody(directory):
        if not any(guest_pids(directory, "")):
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _held_by_nobody(directory: Path) -> Iterator[None]:
    """Keep others from holding it; raises ``BlockingIOError`` when one does, and other kinds of ``OSError``."""
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


def _is_private(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def guest_user() -> pwd.struct_passwd | None:
    """Whom QEMU becomes before a guest starts, where root starts it; None where it stays who it is.

    By then it has opened all files of the guest, which so need no other owner, nor a way to them for others. What
    breaks out of the guest is neither root nor has a capability.
    """
    for name in GUEST_USERS if os.geteuid() == 0 else ():
        with suppress(KeyError):
            if _can_become(user := pwd.getpwnam(name)):
                return user
    return None


def _can_become(user: pwd.struct_passwd) -> bool:
    """Root of a container may lack the right, or the number of the user."""
    words = ("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "true")
    try:
        return process.run(words, deadline_s=_BECOME_S, check=False).exit_status == 0
    except (process.CommandMissing, process.CommandTimeout):
        return False


def _configure(embedded_root: Path, cache: Path | None) -> None:
    """qemu.conf of the embedded driver: no daemons, QEMU as ourselves, and nobody's files change owner.

    libvirt's own filter of system calls denies QEMU to become another user, see ``_FILTER`` of the hypervisor's.
    """
    (embedded_root / "etc").mkdir(exist_ok=True)
    lines = (
        'stdio_handler = "file"',
        'security_driver = "none"',
        f'user = "+{os.getuid()}"',
        f'group = "+{os.getgid()}"',
        "dynamic_ownership = 0",
        "remember_owner = 0",
        "namespaces = []",
        "cgroup_controllers = []",
        *(() if guest_user() is None else ("seccomp_sandbox = 0",)),
    )
    (embedded_root / "etc/qemu.conf").write_text("\n".join(lines) + "\n", encoding="ascii")
    link = embedded_root / "cache"
    if cache is not None and not link.exists():
        cache.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(cache.resolve())


def runs_guest(pid: int, name: str) -> bool:
    """Whether ``pid`` is QEMU with this guest, and not a process that got its number later."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.startswith(b"guest=" + os.fsencode(name) + b",") for word in words)


def guests(prefix: str) -> Iterator[tuple[str, int]]:
    """Name and process of each running guest of this user's runs whose name starts with ``prefix``."""
    for directory in directories():
        yield from guest_pids(directory, prefix)


def guest_pids(root: Path, prefix: str) -> Iterator[tuple[str, int]]:
    """Name and process of each running guest of this directory whose name starts with ``prefix``."""
    for file in (root / "run/qemu").glob(f"{prefix}*.pid"):
        with suppress(OSError, ValueError):  # libvirt removes it when the guest ends
            pid = int(file.read_text(encoding="ascii"))
            if runs_guest(pid, file.stem):
                yield file.stem, pid


def end_abandoned(spared: tuple[str, ...] = ()) -> tuple[str, ...]:
    """End the guests of killed processes, but for those whose names begin as one of ``spared``; their names.

    Whoever uses a directory holds it, see :func:`hold`. Raises :class:`InfraError` for a guest that does not end.
    """
    marked = (directory for directory in directories() if _is_marked(directory))
    return tuple(name for directory in marked for name in _ended_in(directory, spared))


def _ended_in(directory: Path, spared: tuple[str, ...]) -> Iterator[str]:
    found = {name: pid for name, pid in guest_pids(directory, "") if not name.startswith(spared)}
    if not found:
        return
    with suppress(BlockingIOError), _held_by_nobody(directory):
        for name, pid in found.items():
            if process.end(pid, partial(runs_guest, name=name)):
                yield name
