"""Test disks that outlive a trial: block devices, and volumes of libvirt.

Somebody's data may be on them. So four questions come before the first write: is the disk in use, may it be
written, does it carry the signature of anything (wipefs(8)), and is it blank? There is data without a signature:
encrypted disks with a detached header, raw databases, disks of virtual machines. So a disk that is not blank is
refused until a person names it, by a name that belongs to the disk (:mod:`bisector.vm.disk_name`). Then it gets a
label (:mod:`bisector.vm.label`), by which the next trial knows it.

The guest gets all but :data:`bisector.config.DISK_MARGIN_BYTES` at either end. What a trial makes is
then invisible from outside: no LVM of the host activates the guest's volume group and holds the disk
(lvmautoactivation(7)), and a signature that is found at the next look is never ours.
"""

import errno
import fcntl
import json
import os
import shlex
import stat
import struct
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bisector.config import DISK_MARGIN_BYTES, usable_bytes
from bisector.core.errors import InfraError, UserError
from bisector.host import process
from bisector.host.files import scratch
from bisector.vm.definition import DiskSource, SourceKind
from bisector.vm.disk_name import disk_name
from bisector.vm.label import LABEL_AT, Label, is_blank, is_labelled
from bisector.vm.openers import openers_of_device
from bisector.vm.used_disks import UsedDisks

# linux/fs.h
_BLKDISCARD = 0x1277
_BLKGETSIZE64 = 0x80081272
# What mkfs(8) and pvcreate(8) read before they write; they stop at, or keep, what an earlier trial left there.
_ERASED_BYTES = 4 << 20
_WIPEFS_S = 30.0
_SUPERUSER_DIRECTORIES = ("/usr/sbin", "/sbin")


class ExistingDisk(Protocol):
    """What is asked of a disk before it is given to a guest; ``name`` is as the settings spell it."""

    @property
    def name(self) -> str:
        """The path, or ``volume:POOL/NAME``."""
        ...

    @property
    def own_name(self) -> str:
        """What it is called wherever it turns up, for a person who says that its content may go."""
        ...

    @property
    def source(self) -> DiskSource:
        """What QEMU opens."""
        ...

    @property
    def device_number(self) -> int | None:
        """Of the host's block device that it is or lies on (``st_rdev``, ``st_dev``); None when it is not known."""
        ...

    @property
    def size_bytes(self) -> int:
        """All of it, margins included."""
        ...

    @property
    def how_to_erase(self) -> str:
        """What a person types to say that its content may go."""
        ...

    def looked_at(self) -> AbstractContextManager[Path]:
        """A path with the disk's size and margins, for reading."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """A part of it."""
        ...

    def write(self, offset: int, data: bytes) -> None:
        """Durable when this returns."""
        ...

    def discard(self, offset: int, length: int) -> None:
        """Tell the device that a range is not needed any more, where it can be told."""
        ...


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """A block device that is ours alone as long as ``descriptor`` is open."""

    path: Path
    descriptor: int

    @classmethod
    @contextmanager
    def claimed(cls, path: Path) -> "Iterator[BlockDevice]":
        """Hold the device; raises :class:`UserError` when it is in use or cannot be written.

        O_EXCL without O_CREAT fails with EBUSY while a device, its whole disk or a part of it is mounted
        or held (open(2)), and keeps others from doing so. QEMU, which does not ask for it, opens it beside us; so
        other processes that did likewise are looked for.
        """
        if not path.is_block_device():
            raise UserError(f"{path} is no block device (any more)")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(f"{path} {_why_not(path, error)}", _HINTS.get(error.errno or 0, "")) from error
        try:
            if _is_read_only(path):  # older kernels open it for writing all the same
                raise UserError(f"{path} is read-only")
            if openers := openers_of_device(os.fstat(descriptor).st_rdev):
                raise UserError(f"{path} is in use: open in {', '.join(openers)}", _HINTS[errno.EBUSY])
            yield cls(path, descriptor)
        finally:
            os.close(descriptor)

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def own_name(self) -> str:
        """By the kernel's knowledge of the device."""
        return disk_name(self.device_number)

    @property
    def source(self) -> DiskSource:
        """The node of the very device that is held: a link may lead elsewhere by the time that QEMU follows it."""
        return DiskSource(SourceKind.BLOCK, str(self._node), number=self.device_number)

    @property
    def device_number(self) -> int:
        """The kernel's."""
        return os.fstat(self.descriptor).st_rdev

    @property
    def _node(self) -> Path:
        """By the kernel's name (devtmpfs), by udev's or, where there is neither, what the path led to.

        While the descriptor is open, no other device gets the number. Raises :class:`UserError` when no node has it.
        """
        number = f"{os.major(self.device_number)}:{os.minor(self.device_number)}"
        known = Path("/sys/dev/block") / number
        for node in (Path("/dev") / known.resolve().name, Path("/dev/block") / number, self.path.resolve()):
            with suppress(OSError):
                found = node.stat()
                if stat.S_ISBLK(found.st_mode) and found.st_rdev == self.device_number:
                    return node
        raise UserError(f"{self.path} leads to another device now than a moment ago", "ls -lL /dev/disk/by-id")

    @property
    def size_bytes(self) -> int:
        """As the kernel says."""
        answer = fcntl.ioctl(self.descriptor, _BLKGETSIZE64, bytes(8))
        return int(struct.unpack("Q", answer)[0])

    @property
    def how_to_erase(self) -> str:
        """Take away what tells what a disk holds (wipefs(8) makes a backup of it on request)."""
        return f"wipefs --all {self.path}"

    @contextmanager
    def looked_at(self) -> Iterator[Path]:
        """The device itself."""
        yield self._node

    def read(self, offset: int, length: int) -> bytes:
        """A part of it; raises :class:`InfraError` for a broken disk."""
        try:
            return os.pread(self.descriptor, length, offset)
        except OSError as error:
            raise InfraError(f"{self.path} cannot be read: {error.strerror}", "see: dmesg") from error

    def write(self, offset: int, data: bytes) -> None:
        """Durable when this returns; raises :class:`InfraError` for a broken disk."""
        try:
            os.pwrite(self.descriptor, data, offset)
            os.fsync(self.descriptor)
        except OSError as error:
            raise InfraError(f"{self.path} cannot be written: {error.strerror}", "see: dmesg") from error

    def discard(self, offset: int, length: int) -> None:
        """For an SSD a state that is the same before each trial; many disks know nothing of it."""
        with suppress(OSError):
            fcntl.ioctl(self.descriptor, _BLKDISCARD, struct.pack("QQ", offset, length))


def check(disk: ExistingDisk, overwrite: Collection[str] = (), used: UsedDisks | None = None) -> None:
    """Raise :class:`UserError` for a disk that holds something, or has no room for a guest's part.

    ``overwrite`` are the disks of which a person says, by :attr:`ExistingDisk.own_name`, that their content may go;
    that is not said of what a disk holds that the run has ``used`` since.
    """
    if usable_bytes(disk.size_bytes) <= 0:
        raise UserError(f"{disk.name} is too small: {disk.size_bytes} bytes")
    if found := signatures(disk):
        raise UserError(
            f"{disk.name} is not empty: {', '.join(found)}",
            f"every trial overwrites it; if nothing on it is wanted any more, say so: {disk.how_to_erase}; and start "
            f"with --overwrite {shlex.quote(disk.own_name)}",
        )
    if is_labelled(disk.read, disk.size_bytes) or is_blank(disk.read, disk.size_bytes):
        return
    if disk.own_name in overwrite:
        if used is None or disk.own_name not in used:
            return
        raise UserError(
            f"{disk.name} has lost the label that this run gave it: somebody has written to it since",
            f"every trial overwrites it; if nothing on it is wanted any more, say so: rm {used.file}; bisector resume",
        )
    raise UserError(
        f"{disk.name} is not blank, and not labelled as a test disk: there is no signature on it, but it may be an "
        "encrypted disk, or belong to a database or a virtual machine",
        f"every trial overwrites it; if nothing on it is wanted any more, say so: --overwrite "
        f"{shlex.quote(disk.own_name)}",
    )


def empty(disk: ExistingDisk) -> tuple[int, int]:
    """Make the guest's part as good as new; its offset and length in bytes. :func:`check` comes before.

    A disk that is used for the first time gets its label.
    """
    offset, length = DISK_MARGIN_BYTES, usable_bytes(disk.size_bytes)
    if not is_labelled(disk.read, disk.size_bytes):
        for margin in (0, disk.size_bytes - DISK_MARGIN_BYTES):
            disk.write(margin, bytes(DISK_MARGIN_BYTES))
        disk.write(LABEL_AT, Label.new(disk.size_bytes).block)
    disk.discard(offset, length)
    edge = min(_ERASED_BYTES, length)
    disk.write(offset, bytes(edge))
    disk.write(offset + length - edge, bytes(edge))
    return offset, length


def signatures(disk: ExistingDisk) -> tuple[str, ...]:
    """What is on it, as ``ext4 (label data)``: file systems, partition tables, members of RAID or LVM, swap."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_SUPERUSER_DIRECTORIES))
    with disk.looked_at() as place:
        try:
            finished = process.run(("wipefs", "--json", place), deadline_s=_WIPEFS_S, env={"PATH": path})
        except process.CommandMissing as error:
            raise UserError(f"{error}; so nothing tells what {disk.name} holds", "apt install util-linux") from error
        except (process.CommandFailed, process.CommandTimeout) as error:
            raise InfraError(str(error)) from error
    listed = json.loads(finished.stdout)["signatures"] if finished.stdout.strip() else ()
    return tuple(dict.fromkeys(_spelt(one) for one in listed))


@contextmanager
def margins_copy(size_bytes: int, head: bytes, tail: bytes) -> Iterator[Path]:
    """A sparse file that looks like a disk of which only the margins can be read."""
    with scratch("margins") as directory:
        path = directory / "disk"
        with path.open("wb") as file:
            file.truncate(size_bytes)
            os.pwrite(file.fileno(), head, 0)
            os.pwrite(file.fileno(), tail, size_bytes - len(tail))
        yield path


def _spelt(signature: dict[str, Any]) -> str:
    known = [f"{key} {signature[key]}" for key in ("label", "uuid") if signature.get(key)]
    return f"{signature.get('type')}{f' ({known[0]})' if known else ''}"


_HINTS = {
    errno.EBUSY: "every trial overwrites it: unmount it and whatever else holds it, or name another",
    errno.EACCES: "every trial overwrites it: this user must be able to write it",
}


def _why_not(path: Path, error: OSError) -> str:
    if error.errno == errno.EBUSY:
        users = ", ".join(_users(path))
        return f"is in use{f': {users}' if users else ''}"
    if _is_read_only(path):
        return "is read-only"
    return f"cannot be used: {error.strerror}"


def _users(path: Path) -> Iterator[str]:
    """Who holds a device, as far as it is told: mounts by number (proc_pid_mountinfo(5)), and holders in sysfs."""
    number = path.stat().st_rdev
    wanted = f"{os.major(number)}:{os.minor(number)}"
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split(" ")
        if fields[2] == wanted:
            yield f"mounted on {fields[4]}"
    for holder in sorted(Path(f"/sys/dev/block/{wanted}/holders").glob("*")):
        yield f"held by {holder.name}"


def _is_read_only(path: Path) -> bool:
    number = path.stat().st_rdev
    try:
        text = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/ro").read_text(encoding="ascii")
    except OSError:  # it has gone
        return False
    return text.strip() == "1"
