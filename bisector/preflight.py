"""Everything that can be wrong before the first hour is spent, asked at once."""

import os
import stat
from pathlib import Path

from bisector import resources
from bisector.errors import UserError
from bisector.fleet.local import kernel_builder
from bisector.machine.domain import open_hypervisor
from bisector.machine.host import disk_room_bytes
from bisector.settings import DiskSettings, KernelSettings, Settings
from bisector.workload.runner import check_job

# Measured on Linux 6.1 with the fragments of this tree: 1.5 GiB of sources, 0.2 GiB of build; a
# distribution's configuration builds to 10 GiB and more, which `kernel.base_config` brings.
_SOURCES_BYTES = 1800 << 20
_SMALL_BUILD_BYTES = 512 << 20
_LARGE_BUILD_BYTES = 12 << 30
_IMAGE_BYTES = 1 << 30
_GIB = 1 << 30


def check(settings: Settings, run_dir: Path) -> None:
    """Raise :class:`UserError` for the first thing that would stop the run later."""
    check_job(settings.workload)
    kernel_builder(settings.kernel).check()
    disks = [disk for disk in (settings.storage.ssd, settings.storage.hdd) if disk.path is None]
    images = _IMAGE_BYTES if settings.machine.image is None else 0
    _check_room(run_dir, _build_bytes(settings.kernel) + sum(disk.size_bytes for disk in disks), images)
    for key, disk in (("storage.ssd.path", settings.storage.ssd), ("storage.hdd.path", settings.storage.hdd)):
        _check_disk(key, disk)
    with open_hypervisor(settings.machine.connect, run_dir, resources.cache_home() / "libvirt") as hypervisor:
        _ = hypervisor.qemu_version


def check_build(settings: KernelSettings, run_dir: Path) -> None:
    """The same for a build alone, which needs no guest."""
    kernel_builder(settings).check()
    _check_room(run_dir, _build_bytes(settings), 0)


def _build_bytes(settings: KernelSettings) -> int:
    return _SOURCES_BYTES + (_SMALL_BUILD_BYTES if settings.base_config is None else _LARGE_BUILD_BYTES)


def _check_room(run_dir: Path, run_bytes: int, cache_bytes: int) -> None:
    needed = {run_dir: run_bytes, **({resources.cache_home(): cache_bytes} if cache_bytes else {})}
    for path, needed_bytes in _by_file_system(needed).items():
        free = disk_room_bytes(path)
        if free < needed_bytes:
            raise UserError(
                f"{path} has {free / _GIB:.1f} GiB free; sources, build, disks and image need up to "
                f"{needed_bytes / _GIB:.1f} GiB there",
                "make room, or name another place: --run-dir DIRECTORY (and XDG_CACHE_HOME for kernels and images)",
            )


def _by_file_system(needed: dict[Path, int]) -> dict[Path, int]:
    """Needs that fall on one file system add up; the first path stands for it."""
    first: dict[int, Path] = {}
    total: dict[Path, int] = {}
    for path, needed_bytes in needed.items():
        there = path
        while not there.exists():
            there = there.parent
        place = first.setdefault(there.stat().st_dev, path)
        total[place] = total.get(place, 0) + needed_bytes
    return total


def _check_disk(key: str, disk: DiskSettings) -> None:
    """A block device is overwritten in every trial: it must be ours, whole and used by nobody else."""
    if disk.path is None or disk.path.startswith("volume:"):
        return
    path = Path(disk.path)
    if not path.exists():
        raise UserError(f"{key}: {path} does not exist")
    if not stat.S_ISBLK(path.stat().st_mode):
        if path.is_dir() and not os.access(path, os.W_OK):
            raise UserError(f"{key}: {path} is not writable")
        return
    try:
        # O_EXCL without O_CREAT on a block device: EBUSY while it is mounted or held by another (open(2)).
        os.close(os.open(path, os.O_RDWR | os.O_EXCL))
    except OSError as error:
        raise UserError(
            f"{key}: {path} cannot be used: {error.strerror}",
            "every trial overwrites it: it must not be mounted or in use, and this user must be able to write it",
        ) from error
