"""Files and directories: errors, paths that stay inside, temporary directories, removal, file systems.

An error of one of this tool's own files is the host's fault (:func:`our_files`). A record may come from somebody else,
so the paths in it must stay in its run (:func:`inside`). Directories that a tree or its make has filled are walked and
removed at any depth: os.walk() and shutil.rmtree() recurse into each nested directory.
"""

import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from bisector.core.errors import Finding, Grade, InfraError, UserError
from bisector.host import process
from bisector.host.locks import locked

_WHAT_TO_DO: Mapping[int | None, str] = MappingProxyType(
    {
        errno.ENOSPC: "make room: df -h {directory}",
        errno.EDQUOT: "make room below the quota: quota; df -h {directory}",
        errno.EROFS: "the file system has become read-only, often after an error of its disk: dmesg; findmnt -T {path}",
        errno.EIO: "the disk reports errors: dmesg",
        errno.EMFILE: "too many files are open: ulimit -n",
        errno.ENFILE: "too many files are open on this host: sysctl fs.file-max",
        errno.ENOMEM: "the host has no memory left: free -h",
    }
)

_PREFIX = "bisector-tmp-"
_NAMED = re.compile(re.escape(_PREFIX) + r"[a-z]+-[a-z0-9_]{8}")

_REMOVE_S = 600.0
_LONGEST_PATH = 4095  # PATH_MAX of the kernel, without the terminating byte

_FINDMNT_S = 10.0
_NETWORK = "over a network: the record's locks and the figures of disks in it depend on that"
# File system types as in mountinfo, and what is wrong with measuring on them.
_UNFIT: Mapping[str, str] = {
    "tmpfs": "memory: so would be the disks in it",
    "ramfs": "memory: so would be the disks in it",
    "overlay": "a container's: gone with it, and slower than a disk",
    **dict.fromkeys(("cifs", "smb3", "9p", "ceph", "fuse.sshfs", "fuse.glusterfs", "virtiofs"), _NETWORK),
    **dict.fromkeys(("nfs", "nfs4"), _NETWORK),
}
# "WAL does not work over a network filesystem" (https://sqlite.org/wal.html), and another host may use the same run.
_NO_RECORD = ("nfs", "nfs4")


@contextmanager
def our_files(directory: Path) -> Iterator[None]:
    """Raise :class:`InfraError` for an :class:`OSError`, which names ``directory`` if the error has no path."""
    try:
        yield
    except OSError as error:
        path = error.filename or directory
        hint = _WHAT_TO_DO.get(error.errno, "ls -ld {path}").format(path=path, directory=directory)
        raise InfraError(f"{path}: {error.strerror or error}", hint) from error


def inside(directory: Path, name: str | Path) -> Path:
    """The file ``name`` of ``directory``, with links followed; it need not exist yet.

    A record names files, the console of trial 3 for example, which are shown in a report that is sent to other people.

    Raises :class:`OSError` if the file is outside or not regular, so that it is treated like an unreadable one.
    """
    named = directory / name
    try:
        path = Path(os.path.realpath(named))
        if not path.is_relative_to(os.path.realpath(directory)):
            raise OSError(errno.EXDEV, "it leads out of the run directory", str(named))
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "it is not a regular file", str(named))
    except ValueError as error:  # a NUL
        raise OSError(errno.EINVAL, "it is not the name of a file", str(named)) from error
    return path


def bounded_content(path: Path, most_bytes: int) -> bytes:
    """The content of a regular file that the user names.

    Raises :class:`UserError` if it cannot be read, or is larger than ``most_bytes``. Devices and FIFOs, which may never
    end, are not even waited for (O_NONBLOCK, fifo(7)).
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # before fdopen(), which accepts no directory
            os.close(descriptor)
            raise UserError(f"{path} is not a regular file")
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(most_bytes + 1)
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}") from error
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        raise UserError(f"cannot read {str(path)!r}: {error}") from error
    if len(data) > most_bytes:
        raise UserError(f"{path} has more than {most_bytes >> 20} MiB")
    return data


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, computed without loading it as a whole; raises ``OSError``."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Create or replace a file, durably: a kill or a power cut meanwhile leaves either the old or the new content.

    Nobody else can read the new content before the file has its ``mode``. Raises ``OSError``.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Flush a file's content, or a directory's names, to the disk; raises ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def text_of(data: bytes, path: Path) -> str:
    """The data as UTF-8 text; raises :class:`UserError` with the number of the first line that is not."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: not UTF-8 text") from error


@contextmanager
def scratch(purpose: str, parent: Path | None = None, mode: int = 0o700) -> Iterator[Path]:
    """A new directory below ``parent`` (default: the system's temporary directory), removed after the block.

    ``purpose`` is a word for people who find it. The directory is locked (flock(2)) while it is in use, and the kernel
    releases the lock however the process ends: a directory with such a name, of this user and not locked, is abandoned.
    Raises ``OSError``.
    """
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-", dir=parent))
        with suppress(FileNotFoundError):  # removed as an abandoned one before it was locked
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                break
            os.close(lock)
    try:
        path.chmod(mode)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def is_scratch(path: Path) -> bool:
    """Whether the path is a directory of this user that bisector made, judging by its name."""
    with suppress(OSError):
        status = path.lstat()
        return bool(_NAMED.fullmatch(path.name)) and stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return False


def abandoned(parent: Path | None = None) -> Iterator[Path]:
    """Temporary directories that killed processes have left below ``parent``; each is locked until the next one."""
    for path in (parent or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*"):
        if not is_scratch(path):
            continue
        with suppress(OSError), locked(path):  # another process removes it, or uses it
            yield path


def remove_abandoned(parent: Path | None = None) -> tuple[Path, ...]:
    """Remove the directories that killed processes have left below ``parent``; return the removed ones."""
    found = []
    for path in abandoned(parent):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            found.append(path)
    return tuple(found)


def files_below(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Every entry below a directory except directories, links included; entries too deep to have a path are skipped.

    Raises ``OSError``.
    """
    below = [os.fspath(directory)]
    while below:
        with os.scandir(below.pop()) as entries:
            for entry in entries:
                if len(os.fsencode(entry.path)) > _LONGEST_PATH:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
                else:
                    yield entry


def remove_tree(path: Path) -> None:
    """Remove a file, or a directory with all below it, at any depth and whatever its rights; raises ``OSError``."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    with suppress(OSError, RecursionError):
        shutil.rmtree(path)
        return
    try:
        for words in (("chmod", "-R", "u+rwx"), ("rm", "-rf")):
            process.run([*words, "--", path], deadline_s=_REMOVE_S, check=False)
    except (process.CommandMissing, process.CommandTimeout) as error:
        raise OSError(errno.EBUSY, str(error), str(path)) from error
    if os.path.lexists(path):
        raise OSError(errno.EBUSY, "it cannot be removed", str(path))


def discard(directory: Path) -> None:
    """Try to remove a directory that is no longer needed; a link in its place stays as it is."""
    with suppress(OSError):
        if not directory.is_symlink():
            remove_tree(directory)


def directory(name: str, path: Path, *, of_record: bool = False) -> Finding:
    """Check that a directory, existing or not, is writable, on a suitable file system, and takes O_DIRECT.

    With ``of_record`` it is to hold a record. Raises :class:`UserError` if it is not writable, or not safe for a
    record.
    """
    there, other = nearest(path), "--run-dir DIR" if of_record else "XDG_CACHE_HOME=DIR"
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"{path}: {there} is not a directory that this user can write", f"name another: {other}")
    kind = file_system(there)
    shown = f"{path} on {kind}"
    elsewhere = f"name one on a disk of this host: {other}"
    if of_record and kind in _NO_RECORD:
        raise UserError(
            f"{shown}: a record is not safe there: its database (SQLite in WAL mode) and its lock need memory and "
            "locks that all processes share, which hosts do not",
            elsewhere,
        )
    if kind in _UNFIT:
        return Finding(name, Grade.WARN, f"{shown}, which is {_UNFIT[kind]}", elsewhere)
    if not direct_io(there):
        return Finding(name, Grade.WARN, f"{shown}, without O_DIRECT: disks in it are cached by this host", elsewhere)
    return Finding(name, Grade.OK, f"{shown}, with O_DIRECT")


def nearest(path: Path) -> Path:
    """The path itself or its nearest existing parent."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def file_system(path: Path) -> str:
    """The type of the file system of ``path``, as ``ext4`` or ``fuse.sshfs`` (findmnt(8)); ``unknown`` if not found."""
    words = ("findmnt", "--noheadings", "--output", "FSTYPE", "--target", path)
    try:
        return process.run(words, deadline_s=_FINDMNT_S, check=False).stdout.strip() or "unknown"
    except (process.CommandMissing, process.CommandTimeout):
        return "unknown"


def disk_room_bytes(path: Path) -> int:
    """The free bytes, for this user, on the file system of ``path`` or of its nearest existing parent."""
    return shutil.disk_usage(nearest(path)).free


def direct_io(directory: Path) -> bool:
    """Whether files in ``directory`` can be opened with O_DIRECT (on tmpfs only since Linux 6.6)."""
    probe = directory / f".bisector-direct-{os.getpid()}"
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600))
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)
    return True
