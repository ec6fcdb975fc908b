"""Room on the disks of this host, and the disks under test."""

import os
import stat
from pathlib import Path

from bisector import resources
from bisector.errors import UserError
from bisector.machine.host import disk_room_bytes
from bisector.machine.places import nearest
from bisector.report.units import size
from bisector.settings import DiskSettings, KernelSettings, Settings

# Measured on Linux 6.1 with the fragments of this tree: 1.5 GiB of sources, 0.2 GiB of build; a
# distribution's configuration builds to 10 GiB and more, which `kernel.base_config` brings.
_SOURCES_BYTES = 1800 << 20
_SMALL_BUILD_BYTES = 512 << 20
_LARGE_BUILD_BYTES = 12 << 30
_IMAGE_BYTES = 1 << 30


def check_room(settings: Settings, run_dir: Path) -> str:
    """How much is free and needed, on each file system that is written; raises :class:`UserError` for too little."""
    disks = [disk for disk in (settings.storage.ssd, settings.storage.hdd) if disk.path is None]
    needed = {run_dir: _build_bytes(settings.kernel) + sum(disk.size_bytes for disk in disks)}
    if settings.machine.image is None:
        needed[resources.cache_home()] = _IMAGE_BYTES
    return _compared(needed)


def check_build_room(settings: KernelSettings, run_dir: Path) -> str:
    """The same for a build alone."""
    return _compared({run_dir: _build_bytes(settings)})


def _build_bytes(settings: KernelSettings) -> int:
    return _SOURCES_BYTES + (_SMALL_BUILD_BYTES if settings.base_config is None else _LARGE_BUILD_BYTES)


def _compared(needed: dict[Path, int]) -> str:
    seen = []
    for path, needed_bytes in _by_file_system(needed).items():
        free = disk_room_bytes(path)
        if free < needed_bytes:
            raise UserError(
                f"{path} has {size(free)} free; sources, build, disks and image need up to {size(needed_bytes)} there",
                "make room, or name another place: --run-dir DIRECTORY (and XDG_CACHE_HOME for kernels and images)",
            )
        seen.append(f"{size(free)} free for {path}, up to {size(needed_bytes)} needed")
    return "; ".join(seen)


def _by_file_system(needed: dict[Path, int]) -> dict[Path, int]:
    """Needs that fall on one file system add up; the first path stands for it."""
    first: dict[int, Path] = {}
    total: dict[Path, int] = {}
    for path, needed_bytes in needed.items():
        place = first.setdefault(nearest(path).stat().st_dev, path)
        total[place] = total.get(place, 0) + needed_bytes
    return total


def check_disk(key: str, disk: DiskSettings) -> str:
    """What a disk under test is made of; raises :class:`UserError` when it cannot be used.

    A block device is overwritten in every trial: it must be ours, whole and used by nobody else.
    """
    if disk.path is None:
        return f"a file of {size(disk.size_bytes)} in the run directory"
    if disk.path.startswith("volume:"):
        return f"{disk.path} of libvirt"
    path = Path(disk.path)
    if not path.exists():
        raise UserError(f"{key}: {path} does not exist")
    if not stat.S_ISBLK(path.stat().st_mode):
        if path.is_dir() and not os.access(path, os.W_OK):
            raise UserError(f"{key}: {path} is not writable")
        return f"a file of {size(disk.size_bytes)} in {path}" if path.is_dir() else f"the file {path}"
    try:
        # O_EXCL without O_CREAT on a block device: EBUSY while it is mounted or held by another (open(2)).
        os.close(os.open(path, os.O_RDWR | os.O_EXCL))
    except OSError as error:
        raise UserError(
            f"{key}: {path} cannot be used: {error.strerror}",
            "every trial overwrites it: it must not be mounted or in use, and this user must be able to write it",
        ) from error
    return f"{path}, overwritten in every trial"
