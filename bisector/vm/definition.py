"""What a guest is made of, and libvirt's XML of it (domain.xml; https://libvirt.org/formatdomain.html).

Only what the experiment needs is defined: each absent device is probe time saved in every boot.
"""

import hashlib
import json
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, starmap
from pathlib import Path

from bisector.config import Accelerator
from bisector.host.disks import BlockSizes
from bisector.storage.disks import Bus

MODULES_SERIAL = "modules"
GUEST_INIT = "/sbin/bisector-init"

# panic=-1 resets at once, which ends the domain: a panic is an event, not a time-out. oops=panic
# for the same reason, and because a kernel with a dead task in it measures nothing. A stall is
# *not* made a panic (softlockup_panic, hung_task_panic): under emulation on a busy host it may be the
# host's fault, so it is judged from the console. earlyprintk, since a kernel that dies before its
# console is up prints nothing otherwise. nokaslr makes the traces of two boots comparable. norandmaps puts the
# libraries of all processes at the same addresses: QEMU 7.2 translates code anew for each address that it is run at,
# which took half of a trial's time.
BASE_COMMAND_LINE = (
    *("root=/dev/vda", "rw", "console=ttyS0", "earlyprintk=ttyS0", "net.ifnames=0"),
    *("panic=-1", "oops=panic", "nokaslr", "norandmaps"),
)

# libvirt numbers its own devices from 2 upward on this bus; this slot stays free for the network card.
_NIC_SLOT = "0x10"
_NVME_SLOT = 0x11  # and those behind it
BELL_PORT = 1512  # which nothing else in the PC answers, and vm-images/mailbox writes to
_SAME_UUID = "b15ec702-0000-4000-8000-000000000000"
_DIMM_SPARE_BYTES = 1 << 30  # for the alignment of each


class SourceKind(StrEnum):
    """What a virtual disk is made of; the values are libvirt's disk types."""

    FILE = "file"
    BLOCK = "block"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class DiskSource:
    """A file, a block device, or what an NBD server on this host serves.

    ``name`` is a path, or that of the server's socket. ``number`` is the device number (``st_rdev``) of the block
    device that was claimed.
    """

    kind: SourceKind
    name: str
    number: int | None = None

    @property
    def was_replaced(self) -> bool:
        """Whether the name leads to another device by now than to the one that was claimed."""
        if self.number is None:
            return False
        try:
            return Path(self.name).stat().st_rdev != self.number
        except OSError:
            return True


@dataclass(frozen=True, slots=True)
class DiskSpec:
    """A raw disk under test; the guest finds it by its serial number (:func:`bisector.storage.disks.path_of`).

    ``direct`` bypasses the host's page cache (O_DIRECT), so that the figure is the device's and not the host's memory;
    it is False only on a file system that cannot do it. Limits of 0 are no limit. ``part`` is the offset and length in
    bytes of what the guest sees; None is the whole disk. ``blocks`` are the block sizes that the guest is told; None is
    QEMU's default, 512 bytes. ``server`` is the process that QEMU has the disk from, if it does not open it itself.
    """

    serial: str
    source: DiskSource
    direct: bool = True
    iops_limit: int = 0
    bytes_per_s_limit: int = 0
    part: tuple[int, int] | None = None
    blocks: BlockSizes | None = None
    bus: Bus = Bus.VIRTIO
    server: int | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """What a guest has whose clock is its instructions, of 2^``shift`` ns each (qemu(1), ``-icount``).

    It has one virtual CPU, no network, and no disk that its host has a part in. Its root, and the ``mailbox`` that it
    shares with the host, are memory that it sees as NVDIMMs (docs/nvdimm.txt of QEMU). The ``bells`` are the pipes at
    the other ends of two debug consoles (:mod:`bisector.vm.mailbox`). All of QEMU runs on one ``cpu`` of the host: its
    main loop and its virtual CPU take turns at each timer, and on two CPUs each turn waits for the other one to wake up
    (two trials of the default stack at a time took 100 s, and 74 s so, with the same figures).
    """

    shift: int
    mailbox: Path
    bells: tuple[Path, Path]
    cpu: int

    @property
    def arguments(self) -> tuple[str, ...]:
        """QEMU's own: where nothing is waited for, the clock is put forward to the next timer.

        The main loop does that, and may do it between the instruction that halts the CPU and the moment at which QEMU
        has counted what that CPU executed: two of four trials of the default stack went another way. While QEMU records
        for a later replay, the main loop waits until they are counted (docs/devel/replay.rst; ``replay_mutex_lock()``
        in ``icount_prepare_for_run()``, accel/tcg/tcg-accel-ops-icount.c). The record itself is of no use.

        libvirt's UUID is another one each time, and what the firmware tells is among the seeds of the kernel's random
        numbers (dmi_walk_early() in drivers/firmware/dmi_scan.c).
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
    """Everything about one guest.

    ``root`` is a throw-away qcow2 overlay; ``root_base`` its raw backing file, named so that libvirt leaves its owner
    alone. Without a root the kernel panics after its banner, which is enough for a probe. ``modules`` is a file system
    that the guest finds as the read-only disk with the serial number :data:`MODULES_SERIAL`. ``ssh_port`` is on the
    loopback interface of the host. ``run_as`` is the user and group of QEMU under a daemon that would choose its own. A
    ``counted`` guest has ``root_base`` itself for its root, of which what it writes is not kept, and needs no port.
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
    counted: Counted | None = None

    @property
    def on_nvme(self) -> tuple[DiskSpec, ...]:
        """The disks that libvirt is not told of."""
        return tuple(disk for disk in self.disks if disk.bus is Bus.NVME)

    @property
    def dimms(self) -> tuple[tuple[Path, bool], ...]:
        """The files that a counted guest sees as memory, in the order of their numbers, and which it writes to."""
        if self.counted is None:
            return ()
        kept = (self.root_base, self.modules)
        root, *modules = ((path, False) for path in kept if path is not None)
        return root, (self.counted.mailbox, True), *modules


def command_line(
    append: str = "", own_init: bool = False, of_storage: tuple[str, ...] = (), *, counted: bool = False, seed: int = 0
) -> tuple[str, ...]:
    """The kernel's arguments; the person's come last, and with most of them the last one counts.

    With ``own_init`` the image's own init starts, as in a person's own image. ``of_storage`` are those that the layers
    and disks of the storage stack ask for. The root of a ``counted`` guest is memory, and it is told of its mailbox;
    with another ``seed`` than 0 it does everything a little later, and in other pages.
    """
    init = () if own_init else (f"init={GUEST_INIT}",)
    root = ("root=/dev/pmem0", "rootwait", "BISECTOR_MAILBOX=yes") if counted else ()
    shift = (f"BISECTOR_SEED={seed}",) if counted and seed else ()
    return (*BASE_COMMAND_LINE, *root, *shift, *init, *of_storage, *append.split())


def domain_prefix(run_dir: Path) -> str:
    """What the names of a run's domains and disks begin with: it finds them again after a kill."""
    return f"bisector-{hashlib.sha256(os.fsencode(run_dir.resolve())).hexdigest()[:10]}-"


def free_port() -> int:
    """A loopback TCP port that was free a moment ago; QEMU says so when it no longer is."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def domain_xml(spec: DomainSpec, arguments: Sequence[str] = ()) -> str:
    """Libvirt's description of the guest; the ``arguments`` are QEMU's own."""
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
        # Controllers have numbers without gaps: libvirt would make others of its own choice in between.
        disks=[(disk, [one.bus for one in told[:at]].count(disk.bus)) for at, disk in enumerate(told)],
        arguments=(*own, *nvme, *arguments),
    )


def _dimms(spec: DomainSpec) -> Iterator[str]:
    """In QEMU's words, for libvirt has QEMU touch all of an NVDIMM, and a daemon leaves the file to root afterwards.

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
    """A disk on a controller of its own, in QEMU's words (qemu(1), ``-blockdev``; docs/system/devices/nvme.rst).

    Its guest gets the host's I/O errors, for the device has no error policy (``rerror``, ``werror``); what tells them
    apart is the count of those that failed (:meth:`bisector.vm.driver.LibvirtDomain.is_running`).
    """
    name = f"nvme{number}"
    if disk.source.kind is SourceKind.NETWORK:
        file: dict[str, object] = {"driver": "nbd", "server": {"type": "unix", "path": disk.source.name}}
    else:
        file = {
            "driver": "host_device" if disk.source.kind is SourceKind.BLOCK else "file",
            "filename": disk.source.name,
        }
        file |= {"aio": "native" if disk.direct else "threads"}
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

    On QEMU's command line, because libvirt forwards ports only with passt. The empty ``romfile``
    keeps iPXE out of the boot.
    """
    backend = f"user,id=ssh,restrict=on,ipv6=off,hostfwd=tcp:127.0.0.1:{ssh_port}-:22"
    card = f"virtio-net-pci,netdev=ssh,bus=pci.0,addr={_NIC_SLOT},romfile="
    return "-netdev", backend, "-device", card
