"""A block device of the host: what it is called, who else uses it, and how it is held.

The name of a disk goes with the disk and not with a path: ``/dev/sdb`` is another disk after the next boot, and a link
in /dev/disk/by-id leads where udev last pointed it. Who says that the content of a disk may go, says so by this name.

The kernel refuses a second exclusive opener only (open(2), O_EXCL), and few ask for that: a virtual machine on a
logical volume, a database on a raw device and dd(1) do not. So processes that have a disk open are looked for.
"""

import errno
import fcntl
import os
import re
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError, UserError
from bisector.vm.definition import BlockSizes, DiskSource, SourceKind

_PROC = Path("/proc")
_SYS = Path("/sys/dev/block")
# linux/fs.h
_BLKDISCARD = 0x1277
_BLKGETSIZE64 = 0x80081272
_LARGEST_LOGICAL = 4096  # a page: what any kernel takes (blk_validate_limits(); larger ones since v6.14)
# What the kernel knows of the disk itself comes first: a virtio disk's serial number, an NVMe namespace's world-wide
# name. Then a SCSI disk's serial number, which is the one printed on it. The serial number of an NVMe device is the
# controller's, which all its namespaces share, so that it names a disk only where there is nothing else
# (Documentation/ABI: sysfs-block, sysfs-nvme; drivers/nvme/host/sysfs.c, drivers/scsi/scsi_sysfs.c).
_SERIALS = ("serial", "wwid", "device/vpd_pg80", "device/wwid", "device/serial")
_VPD_HEADER_BYTES = 4  # SPC-4, 7.8: of vital product data pages
# udev looks into a device for a moment after each writer has closed it (udev(7), OPTIONS="watch").
_MOMENT_S = 5.0
_HINTS = {
    errno.EBUSY: "every trial overwrites it: unmount it and whatever else holds it, or name another",
    errno.EACCES: "every trial overwrites it: this user must be able to write it",
}


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
        """The name that goes with the device: see :func:`disk_name`."""
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
        """A path of the device: the kernel's (devtmpfs), else udev's, else what the path of the settings led to.

        While the descriptor is open, no other device gets the number. Raises :class:`UserError` when no node has it.
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
        """The size that the kernel tells."""
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
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split(" ")
        if fields[2] == _text_of(number):
            yield f"mounted on {fields[4]}"
    for holder in sorted(_entry(number).glob("holders/*")):
        yield f"held by {holder.name}"


def _is_read_only(path: Path) -> bool:
    return _text(_entry(path.stat().st_rdev) / "ro") == "1"


def _entry(number: int, sys: Path | None = None) -> Path:
    """What sysfs has of the block device with this device number (``st_rdev``)."""
    return ((sys or _SYS) / _text_of(number)).resolve()


def _text_of(number: int) -> str:
    return f"{os.major(number)}:{os.minor(number)}"


def disk_name(number: int, sys: Path | None = None) -> str:
    """The name of the block device with this device number (``st_rdev``), which goes with the device.

    The serial number of a disk, the UUID of a logical volume or other device-mapper device, ``loop:FILE:INODE`` of a
    loop device; ``NAME-partN`` of a partition. A device of which nothing is known has the kernel's name with its size.
    """
    entry = _entry(number, sys)
    if part := _text(entry / "partition"):
        return f"{_whole(entry.parent)}-part{part}"
    return _whole(entry)


def _whole(entry: Path) -> str:
    return next(filter(None, map(_word, _known(entry))), f"{entry.name}:{_text(entry / 'size')}-sectors")


def _known(entry: Path) -> Iterator[str]:
    yield _text(entry / "dm/uuid")
    if backing := _text(entry / "loop/backing_file"):
        offset = _text(entry / "loop/offset")
        yield f"loop:{Path(backing).name}:{_inode(Path(backing))}{f'+{offset}' if offset != '0' else ''}"
    yield from (_text(entry / name) for name in _SERIALS)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:  # deleted, or in another mount namespace
        return 0


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError:
        return ""
    if path.name == "vpd_pg80":
        content = content[_VPD_HEADER_BYTES:]
    return content.decode("utf-8", "replace").strip("\0 \n")


def _word(text: str) -> str:
    """Typed without quotes: one word, without the comma that separates names."""
    return re.sub(r"[^\w.:+@/-]+", "_", text, flags=re.ASCII)


def block_sizes(number: int, sys: Path | None = None) -> BlockSizes | None:
    """The block sizes of a disk of the host by its device number (sysfs-block in Documentation/ABI/stable).

    A guest that is told others writes parts of blocks, which the host then has to read first; file systems are laid
    out by them, too. None where the kernel names no disk: tmpfs, btrfs and network file systems have numbers of no
    device. That of a partition is its disk's.
    """
    entry = _entry(number, sys)
    for queue in (entry / "queue", entry.parent / "queue"):
        with suppress(OSError, ValueError):
            logical, physical = (int((queue / f"{which}_block_size").read_text()) for which in ("logical", "physical"))
            return BlockSizes(min(logical, _LARGEST_LOGICAL), max(logical, physical))
    return None


def openers_of_device(number: int) -> tuple[str, ...]:
    """Processes that have the block device or a partition of it open, or write to the disk that it is a part of.

    As ``NAME (PID)``, as far as this user may look; who closes it within some seconds is not among them.
    """
    parts, whole = _partitions(number), _disk_of(number)

    def matches(status: os.stat_result, info: Path) -> bool:
        if not stat.S_ISBLK(status.st_mode):
            return False
        return status.st_rdev in parts or (status.st_rdev == whole and _writes(info))

    return _staying(matches)


def openers_of_file(path: Path) -> tuple[str, ...]:
    """Processes that have a regular file open, as :func:`openers_of_device` tells them."""
    mine = path.stat()

    def matches(status: os.stat_result, _info: Path) -> bool:
        return (status.st_dev, status.st_ino) == (mine.st_dev, mine.st_ino)

    return _staying(matches)


def _staying(matches: Callable[[os.stat_result, Path], bool]) -> tuple[str, ...]:
    found: tuple[str, ...] = ()

    def gone() -> bool | None:
        nonlocal found
        found = tuple(_openers(matches))
        return None if found else True

    with suppress(DeadlineExpired):
        Deadline("other openers of a disk", _MOMENT_S).poll(gone, 0.2)
    return found


def _openers(matches: Callable[[os.stat_result, Path], bool]) -> Iterator[str]:
    for process in _PROC.glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        with suppress(OSError):  # it has ended, or is somebody else's
            if any(_has(link, matches) for link in (process / "fd").iterdir()):
                yield f"{(process / 'comm').read_text(encoding='utf-8', errors='replace').strip()} ({process.name})"


def _has(link: Path, matches: Callable[[os.stat_result, Path], bool]) -> bool:
    with suppress(OSError):
        return str(link.readlink()).startswith("/") and matches(link.stat(), link.parent.parent / "fdinfo" / link.name)
    return False


def _writes(info: Path) -> bool:
    """Whether a descriptor is for writing: its flags in /proc/PID/fdinfo/FD are octal (proc(5))."""
    for line in info.read_text(encoding="ascii").splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _partitions(number: int) -> frozenset[int]:
    """The device itself and its partitions."""
    entry = _entry(number)
    return frozenset({number, *(_number(part.parent) for part in entry.glob("*/partition"))})


def _disk_of(number: int) -> int | None:
    """The disk that a partition is a part of."""
    entry = _entry(number)
    return _number(entry.parent) if (entry / "partition").exists() else None


def _number(entry: Path) -> int:
    major, minor = (entry / "dev").read_text(encoding="ascii").split(":")
    return os.makedev(int(major), int(minor))
