"""Block devices of the host as test disks: their names, who may overwrite them, and how they are held.

``/dev/sdb`` may be another disk after the next boot. So a user who allows a disk to be overwritten gives its own name.
A disk may hold somebody's data even without a signature (wipefs(8)). So a disk is refused while it is in use or carries
a signature, and until a user has named it once. Then it gets a :class:`DiskLabel`.

The guest gets all but :data:`bisector.config.DISK_MARGIN_BYTES` at either end. So no LVM of the host activates the
guest's volume group (lvmautoactivation(7)), and a signature is never left by a trial. The label is in the first margin.
"""

import errno
import fcntl
import json
import os
import re
import shlex
import stat
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import UUID, uuid4

from bisector.config import DISK_MARGIN_BYTES, usable_bytes
from bisector.core.errors import InfraError, UserError
from bisector.host import process
from bisector.host.files import our_files, write_atomically
from bisector.host.identity import machine_id

_SYS = Path("/sys/dev/block")
_BLKDISCARD = 0x1277  # linux/fs.h
_LARGEST_LOGICAL = 4096  # a page: any kernel accepts that (blk_validate_limits(); larger ones since v6.14)
# Files in which the kernel identifies the disk itself come first: a virtio disk's serial number, an NVMe namespace's
# world-wide name. Then a SCSI disk's serial number, which is the one printed on it. An NVMe device's serial number is
# the controller's, which all its namespaces share, so it names a disk only if there is nothing else (Documentation/ABI:
# sysfs-block, sysfs-nvme; drivers/nvme/host/sysfs.c, drivers/scsi/scsi_sysfs.c).
_SERIALS = ("serial", "wwid", "device/vpd_pg80", "device/wwid", "device/serial")
_VPD_HEADER_BYTES = 4  # SPC-4, 7.8: the header of vital product data pages
_HINTS = {
    errno.EBUSY: "every trial overwrites it: unmount it and whatever else holds it, or name another",
    errno.EACCES: "every trial overwrites it: this user must be able to write it",
}
# The ends of a disk that mkfs(8) and pvcreate(8) read first; they stop at an earlier trial's data there, or keep it.
_ERASED_BYTES = 4 << 20
_WIPEFS_S = 30.0
USED_DISKS = "used-disks"  # in a run's directory: the disks that it has labelled
_SUPERUSER_DIRECTORIES = ("/usr/sbin", "/sbin")

# The label is before the guest's part, and behind everything that file systems, volume managers and RAID write at the
# beginning of a disk, as far as wipefs(8) knows them (the second label of ZFS ends at 512 KiB).
LABEL_AT = 768 << 10
LABEL_BYTES = 4096
_TITLE = "bisector test disk"
_PURPOSE = "purpose: each trial of bisector overwrites this disk; there is nothing on it that anybody needs"


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """The smallest unit that a disk addresses, and the smallest that it writes without reading it first, in bytes."""

    logical: int
    physical: int


@dataclass(frozen=True, slots=True)
class DiskLabel:
    """The label in a disk's margin: a UUID, and the size of the disk that it was written to."""

    uuid: UUID
    size_bytes: int

    @classmethod
    def parse(cls, block: bytes) -> Self | None:
        """The label in a block of a disk; None if the block holds anything else."""
        lines = block.rstrip(b"\0").decode("ascii", "replace").splitlines()
        try:
            title, uuid, size, _purpose = lines
            found = cls(UUID(uuid.removeprefix("uuid: ")), int(size.removeprefix("size: ")))
        except ValueError:
            return None
        return found if title == _TITLE and found.block == block else None

    @property
    def block(self) -> bytes:
        """The label as written to the disk: text, readable with hexdump(1)."""
        lines = (_TITLE, f"uuid: {self.uuid}", f"size: {self.size_bytes}", _PURPOSE, "")
        return "\n".join(lines).encode("ascii").ljust(LABEL_BYTES, b"\0")


@dataclass(frozen=True, slots=True)
class UsedDisks:
    """The disks that a run has labelled, by their own names, one on each line of ``file``.

    The user who named a disk to be overwritten knew what was on it at that time, not what somebody puts there later. So
    from its second use of a disk on, a run requires the label, unless a user who knows better removes ``file``.
    """

    file: Path

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all of them; raises :class:`InfraError` if the file cannot be read."""
        with our_files(self.file.parent):
            return tuple(self.file.read_text(encoding="utf-8").splitlines()) if self.file.exists() else ()

    def add(self, name: str) -> None:
        """Record that a disk has its label; durable on return. Raises :class:`InfraError`."""
        if name not in self.names:
            with our_files(self.file.parent):
                write_atomically(self.file, "".join(f"{one}\n" for one in (*self.names, name)).encode())


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """A block device that nobody else can claim while ``descriptor`` is open."""

    path: Path
    descriptor: int

    @classmethod
    @contextmanager
    def claimed(cls, path: Path) -> Iterator[Self]:
        """Hold the device; raises :class:`UserError` if it is in use or cannot be written.

        O_EXCL without O_CREAT fails with EBUSY while a device, its whole disk or a part of it is mounted or held
        (open(2)), and then keeps others from doing so. QEMU opens it without O_EXCL, and so can use it beside this
        process.
        """
        if not path.is_block_device():
            raise UserError(f"{path} is not a block device (any more)")
        number = path.stat().st_rdev
        read_only = _text(_entry(number) / "ro") == "1"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
        except OSError as error:
            why = "is read-only" if read_only else f"cannot be used: {error.strerror}"
            if error.errno == errno.EBUSY:
                # Mounts by device number (proc_pid_mountinfo(5)), and holders in sysfs, as far as they are shown.
                mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
                places = [fields[4] for fields in (line.split(" ") for line in mounts) if fields[2] == _text_of(number)]
                users = [f"mounted on {place}" for place in places]
                users += [f"held by {holder.name}" for holder in sorted(_entry(number).glob("holders/*"))]
                why = ": ".join(filter(None, ("is in use", ", ".join(users))))
            raise UserError(f"{path} {why}", _HINTS.get(error.errno or 0, "")) from error
        try:
            if read_only:  # older kernels open it for writing all the same
                raise UserError(f"{path} is read-only")
            yield cls(path, descriptor)
        finally:
            os.close(descriptor)

    @property
    def own_name(self) -> str:
        """The name that stays with the device: see :func:`disk_name`."""
        return disk_name(self.device_number)

    @property
    def device_number(self) -> int:
        """The kernel's device number (``st_rdev``)."""
        return os.fstat(self.descriptor).st_rdev

    @property
    def node(self) -> Path:
        """A path to the very device that is held: a link may lead elsewhere by the time that QEMU follows it.

        It is the kernel's node (devtmpfs), else udev's, else the target of the path in the settings. While the
        descriptor is open, no other device gets the number. Raises :class:`UserError` if no node has it.
        """
        number = self.device_number
        for node in (Path("/dev") / _entry(number).name, Path("/dev/block") / _text_of(number), self.path.resolve()):
            with suppress(OSError):
                found = node.stat()
                if stat.S_ISBLK(found.st_mode) and found.st_rdev == number:
                    return node
        raise UserError(f"{self.path} leads to another device now than a moment ago", "ls -lL /dev/disk/by-id")

    @property
    def size_bytes(self) -> int:
        """The size that the kernel reports, including the margins."""
        return os.lseek(self.descriptor, 0, os.SEEK_END)

    def check(self, overwrite: Collection[str] = (), used: UsedDisks | None = None) -> None:
        """Raise :class:`UserError` for a disk that may hold data, or has no room for a guest's part.

        ``overwrite`` are the disks, by their :attr:`own_name`, whose content may be lost according to the user; that
        does not cover data written to a disk after the run has ``used`` it.
        """
        if usable_bytes(self.size_bytes) <= 0:
            raise UserError(f"{self.path} is too small: {self.size_bytes} bytes")
        wanted = "every trial overwrites it; if nothing on it is wanted any more, say so:"
        named = f"--overwrite {shlex.quote(self.own_name)}"
        if found := self._signatures():
            raise UserError(
                f"{self.path} is not empty: {', '.join(found)}", f"{wanted} wipefs --all {self.path}; and {named}"
            )
        if self._is_labelled():
            return
        if self.own_name not in overwrite:
            raise UserError(
                f"{self.path} is not labelled as a test disk: there is no signature on it, but it may be an encrypted "
                "disk, or belong to a database or a virtual machine",
                f"{wanted} {named}",
            )
        if used is not None and self.own_name in used.names:
            raise UserError(
                f"{self.path} has lost the label that this run gave it: somebody has written to it since",
                f"{wanted} rm {used.file}; bisector resume",
            )

    def empty(self) -> tuple[int, int]:
        """Make the guest's part as good as new, and return its offset and length in bytes. Call :meth:`check` first.

        A disk that is used for the first time gets its label. Raises :class:`InfraError` for a broken disk.
        """
        offset, length = DISK_MARGIN_BYTES, usable_bytes(self.size_bytes)
        if not self._is_labelled():
            for margin in (0, self.size_bytes - DISK_MARGIN_BYTES):
                self._write(margin, bytes(DISK_MARGIN_BYTES))
            self._write(LABEL_AT, DiskLabel(uuid4(), self.size_bytes).block)
        with suppress(OSError):  # gives an SSD the same state before each trial; many disks cannot do it
            fcntl.ioctl(self.descriptor, _BLKDISCARD, struct.pack("QQ", offset, length))
        edge = min(_ERASED_BYTES, length)
        self._write(offset, bytes(edge))
        self._write(offset + length - edge, bytes(edge))
        return offset, length

    def _signatures(self) -> tuple[str, ...]:
        """Signatures on it, as ``ext4 (label data)``: file systems, partition tables, members of RAID or LVM, swap."""
        path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_SUPERUSER_DIRECTORIES))
        try:
            finished = process.run(("wipefs", "--json", self.node), deadline_s=_WIPEFS_S, env={"PATH": path})
        except process.CommandMissing as error:
            raise UserError(f"{error}; so nothing tells what {self.path} holds", "apt install util-linux") from error
        except (process.CommandFailed, process.CommandTimeout) as error:
            raise InfraError(str(error)) from error
        found = dict[str, None]()
        for one in json.loads(finished.stdout)["signatures"] if finished.stdout.strip() else ():
            known = next((f" ({key} {one[key]})" for key in ("label", "uuid") if one.get(key)), "")
            found[f"{one.get('type')}{known}"] = None
        return tuple(found)

    def _is_labelled(self) -> bool:
        """Whether this disk's own label is there, and nothing else is in the margins.

        No guest writes there. Anything that somebody else puts on the disk begins there, even an encrypted file system
        without a signature. On a partition that was moved or enlarged the label does not fit.
        """
        size = self.size_bytes
        try:
            head, tail = (os.pread(self.descriptor, DISK_MARGIN_BYTES, at) for at in (0, size - DISK_MARGIN_BYTES))
        except OSError as error:
            raise InfraError(f"{self.path} cannot be read: {error.strerror}", "see: dmesg") from error
        rest = head[:LABEL_AT] + head[LABEL_AT + LABEL_BYTES :] + tail
        label = DiskLabel.parse(head[LABEL_AT : LABEL_AT + LABEL_BYTES])
        return label is not None and label.size_bytes == size and not any(rest)

    def _write(self, offset: int, data: bytes) -> None:
        try:
            os.pwrite(self.descriptor, data, offset)
            os.fsync(self.descriptor)
        except OSError as error:
            raise InfraError(f"{self.path} cannot be written: {error.strerror}", "see: dmesg") from error


def _entry(number: int) -> Path:
    return (_SYS / _text_of(number)).resolve()


def _text_of(number: int) -> str:
    return f"{os.major(number)}:{os.minor(number)}"


def disk_name(number: int) -> str:
    """The name that stays with a block device, which is given by its device number (``st_rdev``).

    It is the serial number of a disk, the UUID of a logical volume or other device-mapper device, ``loop:FILE:INODE``
    of a loop device, ``NAME-partN`` of a partition. A device without any of these has the kernel's name with its size
    and the machine's id, so that an equal device in another machine does not pass for it.
    """
    entry = _entry(number)
    part = _text(entry / "partition")
    disk = entry.parent if part else entry
    known = [_text(disk / "dm/uuid")]
    if backing := _text(disk / "loop/backing_file"):
        inode, offset = 0, _text(disk / "loop/offset")
        with suppress(OSError):  # deleted, or in another mount namespace
            inode = Path(backing).stat().st_ino
        known.append(f"loop:{Path(backing).name}:{inode}{f'+{offset}' if offset != '0' else ''}")
    known += (_text(disk / name) for name in _SERIALS)
    # One word that needs no quotes in a shell, and no comma, which separates names.
    words = (re.sub(r"[^\w.:+@/-]+", "_", text, flags=re.ASCII) for text in known)
    name = next(filter(None, words), f"{disk.name}:{_text(disk / 'size')}-sectors@{machine_id()[:8]}")
    return f"{name}-part{part}" if part else name


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError:
        return ""
    if path.name == "vpd_pg80":
        content = content[_VPD_HEADER_BYTES:]
    return content.decode("utf-8", "replace").strip("\0 \n")


def block_sizes(number: int) -> BlockSizes | None:
    """The block sizes of a disk of the host by its device number (sysfs-block in Documentation/ABI/stable).

    A guest that is told other sizes writes parts of blocks, which the host then has to read first; file systems also
    use them for their layout. None if the kernel names no disk: the numbers of tmpfs, btrfs and network file systems
    belong to no device. A partition has its disk's sizes.
    """
    entry = _entry(number)
    for queue in (entry / "queue", entry.parent / "queue"):
        with suppress(OSError, ValueError):
            logical, physical = (int((queue / f"{which}_block_size").read_text()) for which in ("logical", "physical"))
            return BlockSizes(min(logical, _LARGEST_LOGICAL), max(logical, physical))
    return None
