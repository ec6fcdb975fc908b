"""The definition of a guest: libvirt's XML for it (domain.xml), and its disks under test.

Only devices that the experiment needs are defined (https://libvirt.org/formatdomain.html): each absent device saves
probe time in every boot.

The disks under test are as the settings name them: empty, and for one trial. A disk with an added latency is served by
nbdkit on the host, whose delay filter sleeps before each request (nbdkit-delay-filter(1)). QEMU limits rates and cannot
delay requests itself (qemu(1), "throttling.*"), and a delay in the guest (dm-delay) would be code of the kernel under
test. Up to 16 requests are in flight at a time (MAX_NBD_REQUESTS in QEMU's block/nbd.c), and each of them waits
separately.
"""

import hashlib
import json
import os
import shutil
import socket
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import chain, starmap
from pathlib import Path

from bisector.config import Accelerator, DiskSettings, StorageSettings
from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError, UserError
from bisector.host import process
from bisector.host.disks import USED_DISKS, BlockDevice, BlockSizes, UsedDisks, block_sizes, disk_name
from bisector.host.files import direct_io, scratch
from bisector.host.packages import not_installed
from bisector.storage.disks import Bus

MODULES_SERIAL = "modules"
GUEST_INIT = "/sbin/bisector-init"

# panic=-1 resets at once, which ends the domain: a panic is an event, not a time-out. oops=panic for the same reason,
# and because a kernel with a dead task in it measures nothing. A stall is *not* made a panic (softlockup_panic,
# hung_task_panic): under emulation on a busy host it may be the host's fault, so the console decides. earlyprintk,
# since a kernel that dies before its console is up would print nothing. nokaslr makes the traces of two boots
# comparable. norandmaps puts the libraries of all processes at the same addresses: QEMU 7.2 translates code again for
# each address that it runs at, which took half of a trial's time.
BASE_COMMAND_LINE = (
    *("root=/dev/vda", "rw", "console=ttyS0", "earlyprintk=ttyS0", "net.ifnames=0"),
    *("panic=-1", "oops=panic", "nokaslr", "norandmaps"),
)

# libvirt numbers its own devices on this bus from 2 upward; this slot stays free for the network card.
_NIC_SLOT = "0x10"
_NVME_SLOT = 0x11  # and the slots behind it
BELL_PORT = 1512  # no other device of the PC uses this port; vm-images/mailbox writes to it
_SAME_UUID = "b15ec702-0000-4000-8000-000000000000"
_DIMM_SPARE_BYTES = 1 << 30  # for the alignment of each DIMM

_NBDKIT = "nbdkit"
_THREADS = 32  # more than QEMU has requests in flight
_STARTED_S = 20.0
_EVERY_S = 0.01
_SECTOR_BYTES = 512
_OF_PROCESS = 2  # CPUCLOCK_SCHED of the kernel's include/linux/posix-timers.h


class SourceKind(StrEnum):
    """The kind of a virtual disk's source; the values are libvirt's disk types."""

    FILE = "file"
    BLOCK = "block"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class DiskSpec:
    """A raw disk under test; the guest finds it by its serial number (:func:`bisector.storage.disks.path_of`).

    ``path`` is that of a file, a block device, or the socket of an NBD server on this host. ``number`` is the device
    number (``st_rdev``) of the block device that was claimed. ``direct`` bypasses the host's page cache (O_DIRECT), so
    that the device is measured and not the host's memory; it is False only on a file system that cannot do it. A limit
    of 0 means none. ``part`` is the offset and length in bytes that the guest sees, None for the whole disk. ``blocks``
    are the block sizes that the guest is told, None for QEMU's default, 512 bytes. ``server`` is the process that
    serves the disk to QEMU, None if QEMU opens it itself.
    """

    serial: str
    path: Path
    kind: SourceKind = SourceKind.FILE
    number: int | None = None
    direct: bool = True
    iops_limit: int = 0
    bytes_per_s_limit: int = 0
    part: tuple[int, int] | None = None
    blocks: BlockSizes | None = None
    bus: Bus = Bus.VIRTIO
    server: int | None = None

    @property
    def was_replaced(self) -> bool:
        """Whether the path now leads to another device than the one that was claimed."""
        if self.number is None:
            return False
        try:
            return self.path.stat().st_rdev != self.number
        except OSError:
            return True


@dataclass(frozen=True, slots=True)
class InstructionClock:
    """The special parts of a guest whose clock counts its instructions, at 2^``shift`` ns each (qemu(1), ``-icount``).

    It has one virtual CPU, no network, and no disk in which its host takes part. Its root, and the ``mailbox`` that it
    shares with the host, are memory that it sees as NVDIMMs (docs/nvdimm.txt of QEMU). The ``bells`` are the pipes at
    the other ends of two debug consoles (:mod:`bisector.vm.mailbox`). All of QEMU runs on one ``cpu`` of the host: its
    main loop and its virtual CPU take turns at each timer, and on two CPUs each turn waits for the other one to wake up
    (two concurrent trials of the default stack took 100 s without this, 74 s with it, with the same figures).
    """

    shift: int
    mailbox: Path
    bells: tuple[Path, Path]
    cpu: int

    @property
    def arguments(self) -> tuple[str, ...]:
        """QEMU's arguments; while the guest is idle, its clock jumps to the next timer.

        The main loop makes that jump, possibly between the instruction that halts the CPU and the moment at which QEMU
        has counted its instructions: two of four trials of the default stack took another course. While QEMU records
        for a later replay, the main loop waits until they are counted (docs/devel/replay.rst; ``replay_mutex_lock()``
        in ``icount_prepare_for_run()``, accel/tcg/tcg-accel-ops-icount.c). The record itself is not used.

        The UUID is fixed: libvirt would choose another one each time, and the firmware's tables are among the seeds of
        the kernel's random numbers (dmi_walk_early() in drivers/firmware/dmi_scan.c).
        """
        clock = (
            *("-icount", f"shift={self.shift},sleep=off,rr=record,rrfile=/dev/null"),
            *("-rtc", "base=2024-01-01,clock=vm"),
        )
        bells = (
            word
            for number, pipe in enumerate(self.bells)
            for word in (
                *("-chardev", f"file,id=bell{number},path={_escaped(pipe)}"),
                *("-device", f"isa-debugcon,iobase={BELL_PORT + number:#x},chardev=bell{number}"),
            )
        )
        return *clock, "-uuid", _SAME_UUID, *bells


@dataclass(frozen=True, slots=True)
class DomainSpec:
    """The complete definition of one guest.

    ``root`` is a throw-away qcow2 overlay; ``root_base`` its raw backing file, named so that libvirt does not change
    its owner. Without a root the kernel panics after its banner, which is enough for a probe. ``modules`` is a file
    system that the guest finds as the read-only disk with the serial number :data:`MODULES_SERIAL`. ``ssh_port`` is on
    the host's loopback interface. ``run_as`` is the user and group of QEMU under a daemon that would choose its own. A
    ``counted`` guest uses ``root_base`` itself as its root, without keeping what it writes there, and needs no port.
    """

    name: str
    kernel: Path
    console: Path
    ssh_port: int
    accelerator: Accelerator
    command_line: tuple[str, ...] = (*BASE_COMMAND_LINE, f"init={GUEST_INIT}")
    root: Path | None = None
    root_base: Path | None = None
    disks: tuple[DiskSpec, ...] = field(default=())
    modules: Path | None = None
    vcpus: int = 2
    memory_bytes: int = 1 << 30
    run_as: tuple[int, int] | None = None
    counted: InstructionClock | None = None

    @property
    def on_nvme(self) -> tuple[DiskSpec, ...]:
        """The disks that are missing in libvirt's XML."""
        return tuple(disk for disk in self.disks if disk.bus is Bus.NVME)

    @property
    def dimms(self) -> tuple[tuple[Path, bool], ...]:
        """The files that a counted guest sees as memory, in their order, each with whether the guest writes to it."""
        if self.counted is None:
            return ()
        kept = (self.root_base, self.modules)
        root, *modules = ((path, False) for path in kept if path is not None)
        return root, (self.counted.mailbox, True), *modules


def command_line(
    append: str = "", own_init: bool = False, of_storage: tuple[str, ...] = (), *, counted: bool = False, seed: int = 0
) -> tuple[str, ...]:
    """The kernel's parameters; the user's come last, as for most of them the last one counts.

    With ``own_init`` the image's own init starts, for a user's own image. ``of_storage`` are the parameters of the
    storage stack's layers and disks. The root of a ``counted`` guest is memory, and a parameter announces its mailbox;
    with a ``seed`` other than 0 it does everything a little later, and in other pages.
    """
    init = () if own_init else (f"init={GUEST_INIT}",)
    root = ("root=/dev/pmem0", "rootwait", "BISECTOR_MAILBOX=yes") if counted else ()
    shift = (f"BISECTOR_SEED={seed}",) if counted and seed else ()
    return (*BASE_COMMAND_LINE, *root, *shift, *init, *of_storage, *append.split())


def domain_prefix(run_dir: Path) -> str:
    """The prefix of the names of a run's domains and disks, by which they are found again after a kill."""
    return f"bisector-{hashlib.sha256(os.fsencode(run_dir.resolve())).hexdigest()[:10]}-"


def free_port() -> int:
    """A loopback TCP port that was free a moment ago; QEMU reports an error if it has been taken since."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def domain_xml(spec: DomainSpec, arguments: Sequence[str] = ()) -> str:
    """Libvirt's description of the guest; ``arguments`` are further ones for QEMU."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - not for every other command

    counted, told = spec.counted, [disk for disk in spec.disks if disk.bus is not Bus.NVME]
    own = _network(spec.ssh_port) if counted is None else (*counted.arguments, *_dimms(spec))
    nvme = chain.from_iterable(starmap(_nvme, enumerate(spec.on_nvme)))
    environment = Environment(
        loader=PackageLoader("bisector.vm", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("domain.xml").render(
        spec=spec,
        counted=counted,
        modules_serial=MODULES_SERIAL,
        most_bytes=spec.memory_bytes + sum(path.stat().st_size for path, _ in spec.dimms) + _DIMM_SPARE_BYTES,
        # Controllers are numbered without gaps: libvirt would fill gaps with controllers of its own choice.
        disks=[(disk, [one.bus for one in told[:at]].count(disk.bus)) for at, disk in enumerate(told)],
        arguments=(*own, *nvme, *arguments),
    )


def _dimms(spec: DomainSpec) -> Iterator[str]:
    """QEMU's own arguments: libvirt has QEMU touch all of an NVDIMM, and a daemon leaves the file to root afterwards.

    (qemuBuildMemoryBackendProps() in src/qemu/qemu_command.c, virSecurityDACRestoreMemoryLabel() in
    src/security/security_dac.c.)
    """
    yield from ("-machine", "nvdimm=on")
    for number, (path, shared) in enumerate(spec.dimms):
        share, size = "on" if shared else "off", path.stat().st_size
        backend = f"id=memnvdimm{number},mem-path={_escaped(path)},share={share},size={size}"
        yield from ("-object", f"memory-backend-file,{backend}")
        yield from ("-device", f"nvdimm,node=0,memdev=memnvdimm{number},id=nvdimm{number},slot={number}")


def _escaped(path: Path) -> str:
    return str(path).replace(",", ",,")


def _nvme(number: int, disk: DiskSpec) -> Iterator[str]:
    """QEMU's arguments for a disk on a controller of its own (qemu(1), ``-blockdev``; docs/system/devices/nvme.rst).

    Its guest sees the host's I/O errors as its own, for the device has no error policy (``rerror``, ``werror``); the
    count of failed operations tells them apart (:meth:`bisector.vm.driver.LibvirtDomain.is_running`).
    """
    name = f"nvme{number}"
    if disk.kind is SourceKind.NETWORK:
        file: dict[str, object] = {"driver": "nbd", "server": {"type": "unix", "path": str(disk.path)}}
    else:
        driver = "host_device" if disk.kind is SourceKind.BLOCK else "file"
        file = {"driver": driver, "filename": str(disk.path), "aio": "native" if disk.direct else "threads"}
    cache = {"direct": disk.direct, "no-flush": False}
    part = {} if disk.part is None else {"offset": disk.part[0], "size": disk.part[1]}
    raw = {"driver": "raw", "node-name": name, "file": file | {"cache": cache, "discard": "unmap"}, **part}
    yield from ("-blockdev", json.dumps(raw | {"cache": cache, "discard": "unmap"}))
    limits = {"iops-total": disk.iops_limit, "bps-total": disk.bytes_per_s_limit}
    node = name
    if any(limits.values()):
        node = f"{name}-limited"
        words = ",".join(f"x-{limit}={value}" for limit, value in limits.items() if value)
        yield from ("-object", f"throttle-group,id={name}-limit,{words}")
        limited = {"driver": "throttle", "node-name": node, "throttle-group": f"{name}-limit", "file": name}
        yield from ("-blockdev", json.dumps(limited))
    sizes = disk.blocks
    blocks = f",logical_block_size={sizes.logical},physical_block_size={sizes.physical}" if sizes is not None else ""
    slot = f"bus=pci.0,addr={_NVME_SLOT + number:#x}"
    yield from ("-device", f"nvme,id={name},{slot},serial={disk.serial},drive={node}{blocks}")


def _network(ssh_port: int) -> tuple[str, ...]:
    """User networking with one way in and none out.

    It is on QEMU's command line, because libvirt forwards ports only with passt. The empty ``romfile`` keeps iPXE out
    of the boot.
    """
    backend = f"user,id=ssh,restrict=on,ipv6=off,hostfwd=tcp:127.0.0.1:{ssh_port}-:22"
    card = f"virtio-net-pci,netdev=ssh,bus=pci.0,addr={_NIC_SLOT},romfile="
    return "-netdev", backend, "-device", card


# Disks under test


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
    used = UsedDisks(run_dir / USED_DISKS)
    iops, bytes_per_s = chosen.iops_limit, chosen.bytes_per_s_limit
    disk = partial(DiskSpec, serial, iops_limit=iops, bytes_per_s_limit=bytes_per_s, bus=chosen.guest.bus)
    with existing(serial, chosen, overwrite, used) as device:
        if device is not None:
            part, number = device.empty(), device.device_number
            used.add(device.own_name)
            blocks = _block_sizes(serial, chosen, number)
            yield disk(device.node, SourceKind.BLOCK, number, part=part, blocks=blocks)
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
        blocks = _block_sizes(serial, chosen, file.stat().st_dev)
        yield disk(file.resolve(), direct=direct_io(directory), blocks=blocks)
    finally:
        file.unlink(missing_ok=True)


def _block_sizes(serial: str, chosen: DiskSettings, number: int) -> BlockSizes | None:
    """The block sizes of the host's disk of this number, for a disk on it.

    Raises :class:`UserError` unless a disk on AHCI has sectors of 512 bytes (ide_dev_initfn() in hw/ide/qdev.c).
    """
    blocks = block_sizes(number)
    if chosen.guest.bus is Bus.SATA and blocks is not None and blocks.logical != _SECTOR_BYTES:
        raise UserError(
            f"storage.{serial}.bus: the sectors of its disk on this host have {blocks.logical} bytes, and a disk on "
            f"sata has sectors of {_SECTOR_BYTES}",
            f"--set storage.{serial}.bus={Bus.SCSI}, or {Bus.VIRTIO}",
        )
    return blocks


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
        served = ("file", f"{disk.path}", "cache=none", f"rdelay={delay}", f"wdelay={delay}", *part)

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
            yield replace(disk, path=socket, kind=SourceKind.NETWORK, number=None, part=None, server=server)
        finally:
            process.end(server, serves)  # if it ended by itself, a disk error has stopped the guest


def serving_s(disk: DiskSpec) -> float:
    """CPU seconds used by the process that serves a disk (clock_getcpuclockid(3)); 0 if there is none."""
    with suppress(OSError):  # it has ended
        return 0.0 if disk.server is None else time.clock_gettime(~disk.server << 3 | _OF_PROCESS)
    return 0.0
