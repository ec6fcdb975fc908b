"""The guest's disks under test: what the settings name, empty, for one trial."""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from bisector.config import DiskSettings, StorageSettings
from bisector.core.errors import InfraError, UserError
from bisector.host.files import direct_io
from bisector.vm import test_disk
from bisector.vm.block_device import BlockDevice, block_sizes
from bisector.vm.definition import DiskSource, DiskSpec, SourceKind
from bisector.vm.test_disk import UsedDisks

FindVolume = Callable[[str, str], AbstractContextManager[test_disk.ExistingDisk]]


class DiskUnavailable(UserError):
    """A disk that is not there, in use, or read-only: when a run had it before, that is its host's doing."""


@contextmanager
def attached(
    serial: str,
    chosen: DiskSettings,
    run_dir: Path,
    prefix: str,
    find_volume: FindVolume,
    *,
    overwrite: Collection[str] = (),
) -> Iterator[DiskSpec]:
    """A disk of the settings, empty; in a directory a new sparse file is made, and removed again.

    ``find_volume`` is given a volume's pool and name. ``overwrite`` names disks whose content may go, whatever it is,
    when the run uses them for the first time: later ones want the label. Raises :class:`UserError` for a disk that may
    not be overwritten, of its kind :class:`DiskUnavailable`.
    """
    used = UsedDisks.of(run_dir)
    with existing(serial, chosen, find_volume, overwrite, used) as there:
        if there is not None:
            offset_and_length = test_disk.empty(there)
            used.add(there.own_name)
            limits = chosen.iops_limit, chosen.bytes_per_s_limit
            number = there.device_number
            blocks = None if number is None else block_sizes(number)
            yield DiskSpec(serial, there.source, True, *limits, offset_and_length, blocks)
            return
    directory = Path(chosen.path) if chosen.path is not None else run_dir
    file = directory / _file_name(prefix, serial)
    try:
        _make(serial, file, chosen.size_bytes)
        source = DiskSource(SourceKind.FILE, str(file.resolve()))
        blocks = block_sizes(file.stat().st_dev)
        yield DiskSpec(serial, source, direct_io(directory), chosen.iops_limit, chosen.bytes_per_s_limit, blocks=blocks)
    finally:
        file.unlink(missing_ok=True)


def leftovers(storage: StorageSettings, run_dir: Path, prefix: str) -> Iterator[Path]:
    """Files of disks that a killed process of the run has left."""
    for serial, chosen in storage.disks.items():
        file = (run_dir if chosen.path is None else Path(chosen.path)) / _file_name(prefix, serial)
        if file.is_file():
            yield file


def _file_name(prefix: str, serial: str) -> str:
    return f"{prefix}{serial}.img"


def _make(serial: str, file: Path, size_bytes: int) -> None:
    try:
        file.unlink(missing_ok=True)
        with file.open("wb") as made:
            made.truncate(size_bytes)
    except OSError as error:
        raise InfraError(f"cannot make the {serial} disk {file}: {error.strerror}", f"df {file.parent}") from error


@contextmanager
def existing(
    serial: str,
    chosen: DiskSettings,
    find_volume: FindVolume,
    overwrite: Collection[str] = (),
    used: UsedDisks | None = None,
) -> Iterator[test_disk.ExistingDisk | None]:
    """The block device or volume that the settings name, ours alone meanwhile; None for a file yet to be made.

    Raises :class:`DiskUnavailable` when it is not there or in use, and :class:`UserError` when it holds something.
    """
    if chosen.path is None or Path(chosen.path).is_dir():
        if chosen.path is not None and not os.access(chosen.path, os.W_OK | os.X_OK):
            raise UserError(f"storage.{serial}.path: {chosen.path} is not writable")
        yield None
        return
    with ExitStack() as stack:
        disk: test_disk.ExistingDisk
        with _about(serial, DiskUnavailable):
            if chosen.is_volume:
                source = DiskSource.parse(chosen.path)
                disk = stack.enter_context(find_volume(source.pool, source.name))
            else:
                disk = stack.enter_context(BlockDevice.claimed(Path(chosen.path)))
        with _about(serial, UserError):
            test_disk.check(disk, overwrite, used)
        yield disk


@contextmanager
def _about(serial: str, kind: type[UserError]) -> Iterator[None]:
    """Say which setting it is, and of what kind the error."""
    try:
        yield
    except UserError as error:
        raise kind(f"storage.{serial}.path: {error}", error.hint) from error
