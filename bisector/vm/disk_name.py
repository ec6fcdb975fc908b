"""A name of a disk that goes with the disk and not with a path, from what the kernel tells of it in sysfs.

``/dev/sdb`` is another disk after the next boot, and a link in /dev/disk/by-id leads where udev last pointed it. Who
says that the content of a disk may go, says so by this name.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

_SYS = Path("/sys/dev/block")
# What the kernel knows of the disk itself comes first: a virtio disk's serial number, an NVMe namespace's world-wide
# name. Then a SCSI disk's serial number, which is the one printed on it. The serial number of an NVMe device is the
# controller's, which all its namespaces share, so that it names a disk only where there is nothing else
# (Documentation/ABI: sysfs-block, sysfs-nvme; drivers/nvme/host/sysfs.c, drivers/scsi/scsi_sysfs.c).
_SERIALS = ("serial", "wwid", "device/vpd_pg80", "device/wwid", "device/serial")
_VPD_HEADER_BYTES = 4  # SPC-4, 7.8: of vital product data pages


def disk_name(number: int, sys: Path = _SYS) -> str:
    """Of the block device with this device number (``st_rdev``).

    The serial number of a disk, the UUID of a logical volume or other device-mapper device, ``loop:FILE:INODE`` of a
    loop device; ``NAME-partN`` of a partition. A device of which nothing is known has the kernel's name with its size.
    """
    entry = (sys / f"{os.major(number)}:{os.minor(number)}").resolve()
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
