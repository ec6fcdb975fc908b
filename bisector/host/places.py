"""Directories of this host and what they are good for, and how busy the host is at the moment."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from bisector.config import ContentionSettings
from bisector.core.errors import UserError
from bisector.core.findings import Finding, Grade
from bisector.host.load import ContentionMeter, direct_io

_MOUNTINFO = Path("/proc/self/mountinfo")
_LOOK_S = 1.0
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


def contention(limits: ContentionSettings) -> Finding:
    """What else this host does in one second of looking."""
    meter = ContentionMeter(lambda: 0.0)
    time.sleep(_LOOK_S)
    seen = meter.stop()
    what = (
        f"{seen.other_busy_cores:.1f} cores busy, {seen.steal_share:.0%} of CPU time stolen, "
        f"{seen.psi_some_share:.0%} of the time somebody waited for a CPU"
    )
    if seen.other_busy_cores <= limits.max_other_cores and seen.steal_share <= limits.max_steal_share:
        return Finding("host load", Grade.OK, what)
    least = f"a run beside more than {limits.max_other_cores:g} cores, or {limits.max_steal_share:.0%} stolen, is weak"
    return Finding("host load", Grade.WARN, f"{what}; {least}", "ps -eo pcpu,pid,user,args --sort=-pcpu | head")
