"""Directories of this host and what they are good for, and how busy the host is at the moment."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from bisector.core.errors import UserError
from bisector.core.findings import Finding, Grade

_MOUNTINFO = Path("/proc/self/mountinfo")
_NETWORK = "over a network: the record's locks and the figures of disks in it depend on that"
# File system types as mountinfo shows them, and what is wrong with measuring on them.
_UNFIT: Mapping[str, str] = {
    "tmpfs": "memory: so would be the disks in it",
    "ramfs": "memory: so would be the disks in it",
    "overlay": "a container's: gone with it, and slower than a disk",
    **dict.fromkeys(("cifs", "smb3", "9p", "ceph", "fuse.sshfs", "fuse.glusterfs", "virtiofs"), _NETWORK),
    **dict.fromkeys(("nfs", "nfs4"), _NETWORK),
}
# "WAL does not work over a network filesystem" (https://sqlite.org/wal.html), and another host may have the same run.
_NO_RECORD = ("nfs", "nfs4")


def directory(name: str, path: Path, *, of_record: bool = False) -> Finding:
    """Whether a directory, there or still to be made, is writable, on a fit file system, and takes O_DIRECT.

    With ``of_record`` it is to hold a record. Raises :class:`UserError` when nothing can be written there, or a record
    is not safe there.
    """
    there = nearest(path)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"{path}: {there} is not a directory that this user can write", "name another: --run-dir DIR")
    kind = file_system(there)
    shown = f"{path} on {kind}"
    elsewhere = "bisector start OLD NEW --run-dir DIR  # on a disk of this host"
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
    """The path itself or its nearest parent that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def file_system(path: Path, mountinfo: Path = _MOUNTINFO) -> str:
    """The type of the file system that ``path`` is on, as ``ext4`` or ``fuse.sshfs`` (proc(5), mountinfo)."""
    place, found, length = path.resolve(), "unknown", 0
    for line in mountinfo.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        mount, _, source = line.partition(" - ")
        point = Path(_unescaped(mount.split()[4]))
        # A later mount on the same point hides the earlier one.
        if place.is_relative_to(point) and len(point.parts) >= length:
            found, length = source.split()[0], len(point.parts)
    return found


def _unescaped(field: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, char)
    return field


def disk_room_bytes(path: Path) -> int:
    """Bytes free for us on the file system of ``path``, or of its nearest parent that exists."""
    return shutil.disk_usage(nearest(path)).free


def direct_io(directory: Path) -> bool:
    """Whether files in ``directory`` can be opened with O_DIRECT (tmpfs could not before Linux 6.6)."""
    try:
        probe = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600)
    except OSError:  # EINVAL: no O_DIRECT; EOPNOTSUPP: no O_TMPFILE, ask again with a name
        return _direct_io_by_name(directory)
    os.close(probe)
    return True


def _direct_io_by_name(directory: Path) -> bool:
    name = directory / f".bisector-direct-{os.getpid()}"
    try:
        probe = os.open(name, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600)
    except OSError:
        return False
    finally:
        name.unlink(missing_ok=True)
    os.close(probe)
    return True
