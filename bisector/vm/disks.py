"""The guest's disks under test, as the settings name them: empty, and for one trial.

A disk with an added latency is served by nbdkit on the host, whose delay filter sleeps before each request
(nbdkit-delay-filter(1)). QEMU limits rates and cannot delay requests itself (qemu(1), "throttling.*"), and a delay in
the guest (dm-delay) would be code of the kernel under test. Up to 16 requests are in flight at a time (MAX_NBD_REQUESTS
in QEMU's block/nbd.c), and each of them waits separately.
"""

import os
import shutil
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from bisector.config import DiskSettings, StorageSettings
from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError, UserError
from bisector.host import process
from bisector.host.disks import BlockDevice, BlockSizes, UsedDisks, block_sizes, disk_name
from bisector.host.files import direct_io, scratch
from bisector.host.packages import not_installed
from bisector.storage.disks import Bus
from bisector.vm.definition import DiskSource, DiskSpec, SourceKind

_NBDKIT = "nbdkit"
_THREADS = 32  # more than QEMU has requests in flight
_STARTED_S = 20.0
_EVERY_S = 0.01
_SECTOR_BYTES = 512
_OF_PROCESS = 2  # CPUCLOCK_SCHED of the kernel's include/linux/posix-timers.h


class DiskUnavailable(UserError):
    """A disk that is missing, in use, or read-only; if the run had it before, the host is to blame."""


@contextmanager
def attached(
    serial: str, chosen: DiskSettings, run_dir: Path, prefix: str, *, overwrite: Collection[str] = ()
) -> Iterator[DiskSpec]:
    """A disk of the settings, empty; if they name a directory, a new sparse file there, which is removed again.

    ``overwrite`` names disks whose content may be lost, whatever it is, when the run uses them for the first time;
    later the disk must carry the label. Raises :class:`UserError` for a disk that may not be overwritten, and its
    subclass :class:`DiskUnavailable`.
    """
    used, limits = UsedDisks.of(run_dir), (chosen.iops_limit, chosen.bytes_per_s_limit)
    with existing(serial, chosen, overwrite, used) as device:
        if device is not None:
            part = device.empty()
            used.add(device.own_name)
            source = DiskSource(SourceKind.BLOCK, str(device.node), number=device.device_number)
            blocks = block_sizes(device.device_number)
            _check_sectors(serial, chosen, blocks)
            yield DiskSpec(serial, source, True, *limits, part, blocks, chosen.guest.bus)
            return
    directory = Path(chosen.path or run_dir)
    file = directory / f"{prefix}{serial}.img"
    try:
        try:
            file.unlink(missing_ok=True)
            with file.open("wb") as made:
                made.truncate(chosen.size_bytes)
        except OSError as error:
            raise InfraError(f"cannot make the {serial} disk {file}: {error.strerror}", f"df {file.parent}") from error
        blocks = block_sizes(file.stat().st_dev)
        _check_sectors(serial, chosen, blocks)
        source = DiskSource(SourceKind.FILE, str(file.resolve()))
        yield DiskSpec(serial, source, direct_io(directory), *limits, blocks=blocks, bus=chosen.guest.bus)
    finally:
        file.unlink(missing_ok=True)


def _check_sectors(serial: str, chosen: DiskSettings, blocks: BlockSizes | None) -> None:
    """Raise :class:`UserError` unless a disk on AHCI has sectors of 512 bytes (ide_dev_initfn() in hw/ide/qdev.c)."""
    if chosen.guest.bus is Bus.SATA and blocks is not None and blocks.logical != _SECTOR_BYTES:
        raise UserError(
            f"storage.{serial}.bus: the sectors of its disk on this host have {blocks.logical} bytes, and a disk on "
            f"sata has sectors of {_SECTOR_BYTES}",
            f"--set storage.{serial}.bus={Bus.SCSI}, or {Bus.VIRTIO}",
        )


def leftovers(storage: StorageSettings, run_dir: Path, prefix: str) -> Iterator[Path]:
    """The files of disks that a killed process of the run has left."""
    for serial, chosen in storage.disks.items():
        file = Path(chosen.path or run_dir) / f"{prefix}{serial}.img"
        if file.is_file():
            yield file


def own_names(storage: StorageSettings, run_dir: Path) -> Iterator[str]:
    """Each disk of the stack with the name, if known, of the host's disk that it is or that its file is on."""
    for serial, chosen in storage.attached_disks.items():
        with suppress(OSError):  # attaching reports a missing disk
            found = Path(chosen.path or run_dir).stat()
            number = found.st_rdev if stat.S_ISBLK(found.st_mode) else found.st_dev
            if block_sizes(number) is not None:
                yield f"{serial}: {disk_name(number)}"


@contextmanager
def existing(
    serial: str, chosen: DiskSettings, overwrite: Collection[str] = (), used: UsedDisks | None = None
) -> Iterator[BlockDevice | None]:
    """The block device that the settings name, claimed during the block; None for a file that is yet to be made.

    Raises :class:`DiskUnavailable` if it is missing or in use, and :class:`UserError` if it may hold something.
    """
    if chosen.path is None or Path(chosen.path).is_dir():
        if chosen.path is not None and not os.access(chosen.path, os.W_OK | os.X_OK):
            raise UserError(f"storage.{serial}.path: {chosen.path} is not writable")
        yield None
        return
    with ExitStack() as stack:
        with _about(serial, DiskUnavailable):
            device = stack.enter_context(BlockDevice.claimed(Path(chosen.path)))
        with _about(serial, UserError):
            device.check(overwrite, used)
        yield device


@contextmanager
def _about(serial: str, kind: type[UserError]) -> Iterator[None]:
    """Turn a :class:`UserError` into one of this kind that names the setting."""
    try:
        yield
    except UserError as error:
        raise kind(f"storage.{serial}.path: {error}", error.hint) from error


def check_nbdkit() -> None:
    """Raise :class:`bisector.core.errors.UserError` if nbdkit is not installed."""
    if shutil.which(_NBDKIT) is None:
        raise not_installed(_NBDKIT, _NBDKIT)


@contextmanager
def delayed(disk: DiskSpec, latency_s: float, run_dir: Path) -> Iterator[DiskSpec]:
    """The same disk with ``latency_s`` added to each request, rounded to whole milliseconds.

    The serving process is marked as the run's, so that a later process of the run ends it after a kill. Raises
    :class:`InfraError` if it does not start, and as :func:`check_nbdkit` does.
    """
    check_nbdkit()
    with scratch("nbd", mode=0o700) as place:  # a socket's path has at most 107 bytes (unix(7)), fewer than a run's
        socket, written = place / "socket", place / "pid"
        delay = f"{round(latency_s * 1000)}ms"
        part = () if disk.part is None else (f"offset={disk.part[0]}", f"range={disk.part[1]}")
        filters = ("--filter=delay", *(("--filter=offset",) if part else ()))
        where = ("--unix", str(socket), "--pidfile", str(written), f"--threads={_THREADS}")
        served = ("file", disk.source.name, "cache=none", f"rdelay={delay}", f"wdelay={delay}", *part)

        def number() -> int | None:
            # Written in the background (write_pidfile() in its main.c).
            text = written.read_text(encoding="ascii") if written.exists() else ""
            return int(text) if text.endswith("\n") else None

        def serves(pid: int) -> bool:
            with suppress(OSError):
                return str(socket).encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            return False

        try:
            # nbdkit goes into the background once it listens (nbdkit(1), "--foreground"), but stays in its process
            # group. process.run() ends whatever a command leaves in its group, so nbdkit gets a session of its own
            # (setsid(1)).
            words = ("setsid", "--wait", _NBDKIT, *where, *filters, *served)
            process.run(words, deadline_s=_STARTED_S, run_marker=run_dir)
            server = Deadline("the start of nbdkit", _STARTED_S).poll(number, _EVERY_S)
        except (process.CommandMissing, process.CommandFailed, process.CommandTimeout, DeadlineExpired) as error:
            raise InfraError(f"the {disk.serial} disk gets no latency: {error}") from error
        try:
            yield replace(disk, source=DiskSource(SourceKind.NETWORK, str(socket)), part=None, server=server)
        finally:
            process.end(server, serves)  # if it ended by itself, a disk error has stopped the guest


def serving_s(disk: DiskSpec) -> float:
    """CPU seconds used by the process that serves a disk (clock_getcpuclockid(3)); 0 if there is none."""
    with suppress(OSError):  # it has ended
        return 0.0 if disk.server is None else time.clock_gettime(~disk.server << 3 | _OF_PROCESS)
    return 0.0
