"""Room on the disks of this host, and the disks under test."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from bisector.config import KernelSettings, Settings, checks, usable_bytes
from bisector.core import resources
from bisector.core.errors import UserError
from bisector.core.units import size
from bisector.host.files import disk_room_bytes, nearest
from bisector.vm.block_device import BlockDevice
from bisector.vm.disks import existing
from bisector.vm.hypervisor import open_hypervisor
from bisector.vm.test_disk import ExistingDisk

# Measured on Linux 6.1 with the fragments of this tree: 1.5 GiB of sources, 0.2 GiB of build; a
# distribution's configuration builds to 10 GiB and more, which `kernel.base_config` brings.
_SOURCES_BYTES = 1800 << 20
_SMALL_BUILD_BYTES = 512 << 20
_LARGE_BUILD_BYTES = 12 << 30
_IMAGE_BYTES = 1 << 30
_LAYERS_BYTES = 4 << 20  # what layers write beside the data: labels and superblocks


def check_room(settings: Settings, run_dir: Path) -> str:
    """How much is free and needed, on each file system that is written; raises :class:`UserError` for too little."""
    images = [(resources.cache_home(), _IMAGE_BYTES)] if settings.machine.image is None else []
    return _compared([(run_dir, _build_bytes(settings.kernel)), *images, *_disk_files(settings, run_dir)])


def check_build_room(settings: KernelSettings, run_dir: Path) -> str:
    """Compare what a build alone needs with what is free; raises :class:`UserError` for too little."""
    return _compared([(run_dir, _build_bytes(settings))])


def _build_bytes(settings: KernelSettings) -> int:
    return _SOURCES_BYTES + (_SMALL_BUILD_BYTES if settings.base_config is None else _LARGE_BUILD_BYTES)


def _disk_files(settings: Settings, run_dir: Path) -> Iterator[tuple[Path, int]]:
    """Where a file is made for a disk, with what a trial writes into it at most; elsewhere it stays sparse."""
    storage = settings.storage
    files_bytes = settings.workload.files.total_bytes * len(storage.stack.phases)
    written = storage.stack.written(checks.extents(storage), storage.layers, files_bytes)
    for name, disk in storage.used_disks.items():
        place = run_dir if disk.path is None else Path(disk.path)
        if disk.path is None or place.is_dir():
            yield place, min(disk.size_bytes, written[name] + _LAYERS_BYTES)


def _compared(needed: list[tuple[Path, int]]) -> str:
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


def _by_file_system(needed: list[tuple[Path, int]]) -> dict[Path, int]:
    """Needs that fall on one file system add up; the first path stands for it."""
    first: dict[int, Path] = {}
    total: dict[Path, int] = {}
    for path, needed_bytes in needed:
        place = first.setdefault(nearest(path).stat().st_dev, path)
        total[place] = total.get(place, 0) + needed_bytes
    return total


def check_disk(settings: Settings, name: str, scratch: Path) -> str:
    """What one of the stack's disks is made of; raises :class:`UserError` when it cannot be used.

    One that is there already is overwritten in every trial: it must be whole, empty and used by nobody else, not
    even as a part of another one.
    """
    storage = settings.storage
    disks = dict(storage.used_disks)
    chosen = disks.pop(name)
    with ExitStack() as stack:

        def volume(pool: str, volume_name: str) -> AbstractContextManager[ExistingDisk]:
            hypervisor = open_hypervisor(settings.machine.connect, scratch, resources.cache_home() / "libvirt")
            return stack.enter_context(hypervisor).volume(pool, volume_name)

        for other in disks.values():
            if other.path is not None and Path(other.path).is_block_device():
                with suppress(UserError):  # it has a row of its own
                    stack.enter_context(BlockDevice.claimed(Path(other.path)))
        disk = stack.enter_context(existing(name, chosen, volume, storage.overwrite))
        if disk is None:
            return f"a file of {size(chosen.size_bytes)} in {chosen.path or 'the run directory'}"
        seen = replace(chosen, path=None, size_bytes=usable_bytes(disk.size_bytes))
        with_seen = replace(storage, disks={**storage.disks, name: seen})
        if (problem := checks.first_size_problem(replace(settings, storage=with_seen))) is not None:
            raise UserError(f"{', '.join(problem.keys)}: {problem.sentence}", problem.hint)
        return f"{disk.name}, {size(disk.size_bytes)}, overwritten in every trial"
