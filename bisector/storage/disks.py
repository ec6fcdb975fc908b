"""The disks that a stack can be laid out on, and the checks that every stack makes before it touches them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from bisector.core.errors import BisectorError, UserError
from bisector.core.figures import DiskQueue
from bisector.core.setting import AUTO, Meta, NonNegative, Option
from bisector.core.shell import CommandResult, Shell, Step, run_steps
from bisector.core.trial import FaultKind, KernelFault, Stage

_QUOTED = 200
_ANSWER_S = 60.0
_NS = 1_000_000_000
_DEPTH = 64  # null_blk's default
_CONFIGFS = "/sys/kernel/config"
_CGROUPS = "/sys/fs/cgroup"
_SECTOR = 512
_MARGIN_BYTES = 1 << 20
_BY_ID = "/dev/disk/by-id"
_DEVICE = re.compile(r"[0-9a-f]{1,8}:[0-9a-f]{1,8}")


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk in the settings: its title in their help, and its defaults; the latency is that of a disk in memory."""

    title: str
    quick_size: str
    article_size: str
    quick_iops_limit: int = 0
    memory_latency_s: float = 1e-4


class Bus(StrEnum):
    """How the guest sees a disk: by virtio-blk, virtio-scsi, AHCI or NVMe, or in its own memory by null_blk or brd."""

    VIRTIO = "virtio"
    SCSI = "scsi"
    SATA = "sata"
    NVME = "nvme"
    NULL_BLK = "null_blk"
    BRD = "brd"

    @property
    def in_guest(self) -> bool:
        """Whether the disk is in the guest's memory, with nothing on the host."""
        return self in (Bus.NULL_BLK, Bus.BRD)

    @property
    def fragments(self) -> tuple[str, ...]:
        """The configuration fragments that the kernel needs besides the fragment for every guest."""
        return () if self is Bus.VIRTIO else (f"disk-{self}",)

    @property
    def drivers(self) -> tuple[str, ...]:
        """Paths of its drivers in the kernel's tree, besides the paths of all block devices."""
        return _BUSES.get(self, ((), ""))[0]

    @property
    def link(self) -> str:
        """The beginning of udev's link to a disk, before the serial number (60-persistent-storage.rules)."""
        return _BUSES.get(self, ((), ""))[1] or f"{self}-"


# The drivers of each bus, and the beginning of udev's link if it is not the name of the bus.
_BUSES = {
    Bus.SCSI: (("drivers/scsi",), "scsi-0QEMU_QEMU_HARDDISK_"),
    Bus.SATA: (("drivers/ata", "drivers/scsi"), "ata-QEMU_HARDDISK_"),
    Bus.NVME: (("drivers/nvme",), "nvme-QEMU_NVMe_Ctrl_"),
    Bus.NULL_BLK: (("drivers/block/null_blk", "drivers/block/null_blk.c"), ""),
    Bus.BRD: (("drivers/block/brd.c", "drivers/md/dm-delay.c", "block/blk-throttle.c"), ""),
}
# mq-deadline is also known by the name of its predecessor for queues without blk-mq (block/mq-deadline.c, "alias").
_ALIASES = {"deadline": "mq-deadline"}
_QUEUE_FILES = ("scheduler", "wbt_lat_usec", "nr_requests", "read_ahead_kb")
_CHOSEN = re.compile(r"\[([\w-]{1,40})\]|^([\w-]{1,40})$")
_NUMBER = re.compile(r"[0-9]{1,18}")
_SCHEDULERS = {
    "bfq": "scheduler-bfq",
    "cfq": "scheduler-cfq",
    "deadline": "scheduler-deadline",
    "kyber": "scheduler-kyber",
    "mq-deadline": "scheduler-mq-deadline",
}


@dataclass(frozen=True, slots=True)
class NullBlk:
    """A disk that null_blk keeps in the guest's memory (Documentation/block/null_blk.rst).

    A timer of the guest completes each request after ``completion_ns`` (``irqmode=2``); at most ``depth`` requests are
    in flight. Memory is allocated page by page as the disk is written.
    """

    size_bytes: int
    completion_ns: int
    depth: int
    bytes_per_s: int = 0

    @classmethod
    def of(cls, size_bytes: int, latency_s: float, iops_limit: int, bytes_per_s: int) -> "NullBlk":
        """A disk with about this latency and at most ``iops_limit`` IOPS; a limit of 0 means no limit.

        The number of requests in flight and the time of each enforce the limit (Little's law). If the latency is too
        short for that, there is one request at a time, and each takes as long as the limit asks for.
        """
        if not iops_limit:
            return cls(size_bytes, round(latency_s * _NS), _DEPTH, bytes_per_s)
        depth = max(1, min(_DEPTH, int(latency_s * iops_limit)))
        return cls(size_bytes, round(depth * _NS / iops_limit), depth, bytes_per_s)

    def make_step(self, disk: str) -> Step:
        """The step that makes the disk; its failure is the kernel's fault."""
        values = {
            "size": self.size_bytes >> 20,
            "memory_backed": 1,
            "discard": 1,
            "irqmode": 2,
            "completion_nsec": self.completion_ns,
            "submit_queues": 1,
            "hw_queue_depth": self.depth,
            **({"mbps": -(-self.bytes_per_s >> 20)} if self.bytes_per_s else {}),
            "power": 1,
        }
        # The device is named after the directory since v6.0; before that it has a number.
        return Step(
            f"(mountpoint -q {_CONFIGFS} || mount -t configfs configfs {_CONFIGFS}; mkdir {_CONFIGFS}/nullb/{disk} && "
            f"cd {_CONFIGFS}/nullb/{disk} && "
            + " && ".join(f"echo {value} >{name}" for name, value in values.items())
            + f" && mkdir -p {_BY_ID} && if test -b /dev/{disk}; then device={disk}; else device=nullb$(cat index); fi"
            f" && ln -s /dev/$device {path_of(disk, Bus.NULL_BLK)})",
            kernel_fault,
        )


@dataclass(frozen=True, slots=True)
class Brd:
    """A disk on the RAM disk with this ``number``, for trees before v4.14, whose null_blk stores no data.

    dm-delay provides the latency, in whole milliseconds and with the granularity of the kernel's ticks
    (Documentation/device-mapper/delay.txt). blk-throttle enforces the limits, separately for reads and for writes
    (Documentation/cgroup-v1/blkio-controller.txt). scsi_debug has delays in nanoseconds, but one delay for all its
    disks, and before v5.8 also one memory for all of them (drivers/scsi/scsi_debug.c).
    """

    number: int
    size_bytes: int
    latency_ms: int
    iops_limit: int = 0
    bytes_per_s: int = 0

    @property
    def below(self) -> str:
        """The path of the RAM disk, which is the lowest device that device-mapper sees."""
        return f"/dev/ram{self.number}"

    @staticmethod
    def parameters(disks: Sequence["Brd"]) -> tuple[str, ...]:
        """The kernel parameters for all disks on brd: all RAM disks have one size, in KiB."""
        if not disks:
            return ()
        size_bytes = max(disk.size_bytes for disk in disks) + _MARGIN_BYTES
        return f"brd.rd_nr={max(disk.number for disk in disks) + 1}", f"brd.rd_size={-(-size_bytes >> 10)}"

    def make_step(self, disk: str) -> Step:
        """The step that makes the disk; its failure is the kernel's fault."""
        # The disk does not start at sector 0 of the RAM disk, or LVM would find the same label on both devices.
        begin, length = _MARGIN_BYTES // _SECTOR, self.size_bytes // _SECTOR
        table = f"0 {length} delay {self.below} {begin} {self.latency_ms}"
        limits = {"iops": self.iops_limit, "bps": self.bytes_per_s}
        throttled = [
            f"echo $(cat /sys/class/block/${{device##*/}}/dev) {value} >{_CGROUPS}/blkio.throttle.{way}_{name}_device"
            for name, value in limits.items()
            if value
            for way in ("read", "write")
        ]
        mounted = f"(mountpoint -q {_CGROUPS} || mount -t cgroup -o blkio cgroup {_CGROUPS})"
        commands = (
            f"dmsetup create brd-{disk} --table '{table}'",
            f"device=$(readlink -e /dev/mapper/brd-{disk})",
            *((mounted, *throttled) if throttled else ()),
            f"mkdir -p {_BY_ID}",
            f"ln -s $device {path_of(disk, Bus.BRD)}",
        )
        return Step(f"({' && '.join(commands)})", kernel_fault)


MemoryDisk = NullBlk | Brd


_UNCHANGED = ("", "the kernel's default")


# The settings, laid out as a table; their keys are below the key of the disk.
# fmt: off
@dataclass(frozen=True, slots=True)
class GuestDisk:
    """A disk in the guest: its bus, and values for its files in /sys/block/*/queue; None keeps the kernel's default."""

    bus: Annotated[Bus, Option(
        "bus", AUTO, "how the guest sees it; null_blk and brd are in its memory, with nothing on the host",
        absent=(AUTO, "virtio; where instructions are counted null_blk, or brd if an end is older than v4.14")
    )] = Bus.VIRTIO
    scheduler: Annotated[Annotated[str, Meta(
        pattern=r"^[a-z][a-z0-9_-]{0,15}$",
        description="the name of an I/O scheduler such as none, mq-deadline, kyber or bfq")] | None, Option(
        "scheduler", "", "I/O scheduler in the guest", absent=_UNCHANGED)] = None
    read_ahead_kb: Annotated[NonNegative | None, Option(
        "read_ahead_kb", "", "read-ahead in the guest, KiB", absent=_UNCHANGED)] = None
    nr_requests: Annotated[NonNegative | None, Option(
        "nr_requests", "", "requests that the guest's queue holds", absent=_UNCHANGED)] = None
    wbt_lat_usec: Annotated[NonNegative | None, Option(
        "wbt_lat_usec", "", "read latency, us, from which on the guest throttles buffered writes, 0 for never",
        absent=_UNCHANGED)] = None
    # fmt: on

    @property
    def fragments(self) -> tuple[str, ...]:
        """The configuration fragments that the kernel needs besides the fragment for every guest."""
        scheduler = _SCHEDULERS.get(self.scheduler or "")
        wbt = "writeback-throttling" if self.wbt_lat_usec is not None else None
        return (*self.bus.fragments, *filter(None, (scheduler, wbt)))

    @property
    def asked(self) -> Mapping[str, str | int]:
        """The values for its files by their names; the scheduler first, since changing it resets the others."""
        values = {name: getattr(self, name) for name in _QUEUE_FILES}
        return {name: value for name, value in values.items() if value is not None}


# The disks by their names in a stack, in the settings, in the guest and on record.
DISKS: Mapping[str, Disk] = {
    "ssd": Disk("fast disk", "512MiB", "5GiB"),
    "hdd": Disk("slow disk", "1GiB", "50GiB", quick_iops_limit=1000, memory_latency_s=2e-3),
}
# Each further disk, which the user names.
EXTRA_DISK = Disk("further disk", "1GiB", "50GiB")
# Names are in lower case, since file systems and people may not distinguish "hdd" and "HDD". virtio-blk has room for 20
# bytes of a serial number (VIRTIO_BLK_ID_BYTES in include/uapi/linux/virtio_blk.h), and so has ATA (ATA_ID_SERNO_LEN).
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,19}")
_OF_GUEST = ("root", "modules")  # the serial numbers of the guest's own disks (bisector.vm.definition)


def objection_to(name: str) -> str | None:
    """Why no disk can have this name; None if a disk can."""
    if not _NAME.fullmatch(name):
        return "it has lower-case letters, digits, - and _, a letter first, and at most 20 of them"
    return "the guest has a disk of that name itself" if name in _OF_GUEST else None


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once, in the order of :data:`DISKS`; further disks come last, in alphabetical order."""
    known = list(DISKS)
    return tuple(sorted(set(names), key=lambda name: (known.index(name) if name in DISKS else len(known), name)))


def path_of(disk: str, bus: Bus = Bus.VIRTIO) -> str:
    """The path of a disk in the guest, whatever the kernel calls it: udev makes this link from the serial number."""
    return f"{_BY_ID}/{bus.link}{disk}"


def fault(reason: str, *tail: str, kind: FaultKind = FaultKind.COMMAND_FAILED) -> KernelFault:
    """A fault of this kernel while the stack was made, with the lines that show it."""
    return KernelFault(Stage.STORAGE, kind, reason, tail)


def kernel_fault(failed: CommandResult) -> BisectorError:
    """The kernel's fault for a failed command: tools and disks are the same for every commit."""
    return fault(failed.reason, *failed.tail)


def steps(*commands: str) -> tuple[Step, ...]:
    """The commands as steps; the failure of any of them is the kernel's fault."""
    return tuple(Step(command, kernel_fault) for command in commands)


def kernel_fault_in_run(failed: CommandResult) -> BisectorError:
    """Like :func:`kernel_fault`, for a command before, during or after a run of the workload."""
    return KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, failed.reason, failed.tail)


def answer(shell: Shell, command: str) -> str:
    """What a command in the guest prints before or after a run; its failure is the kernel's fault."""
    (text,) = run_steps(shell, (Step(command, kernel_fault_in_run),), _ANSWER_S)
    return text


def not_an_answer(what: str, output: str) -> KernelFault:
    """A fault for output that a tool of the guest never prints: the tool got its figures from the kernel under test."""
    return fault(f"{what} printed {output[:_QUOTED]!r}")


def tools_step(tools: Sequence[str]) -> Step:
    """A step that checks that all tools are installed in the guest; it raises :class:`UserError` with those missing."""

    def missing(failed: CommandResult) -> UserError:
        hint = "install them in the image that machine.image names, or leave it unset for the built image"
        return UserError(f"the guest image lacks: {failed.stdout.strip()}", hint)

    return Step(
        f'missing=$(for tool in {" ".join(tools)}; do command -v "$tool" >/dev/null || echo "$tool"; done); '
        'test -z "$missing" || { echo $missing; false; }',
        missing,
    )


def devices_steps(paths: Sequence[str]) -> tuple[Step, ...]:
    """Steps that check that the devices exist; the output has a line for each, for :func:`device_numbers`."""
    return steps(*([f"stat -L -c '%t:%T' {' '.join(paths)}"] if paths else []))


def device_numbers(answers: Sequence[str], paths: Sequence[str]) -> Mapping[str, str]:
    """``major:minor`` of each device in decimal, from stat's hexadecimal; raises :class:`KernelFault`."""
    lines = [line for one in answers for line in one.split()]
    if len(lines) != len(paths) or not all(map(_DEVICE.fullmatch, lines)):
        raise not_an_answer("stat", "".join(answers))
    pairs = (line.split(":") for line in lines)
    return {path: f"{int(major, 16)}:{int(minor, 16)}" for path, (major, minor) in zip(paths, pairs, strict=True)}


def queue_steps(disk: str, guest: GuestDisk) -> Iterator[Step]:
    """Steps that write the values of :attr:`GuestDisk.asked`.

    A step raises :class:`UserError`, with what the kernel has instead, if the kernel does not take a value. For a
    commit between the ends this becomes the kernel's fault if an end takes it (:mod:`bisector.bisect.failures`).
    """
    for name, value in guest.asked.items():

        def not_taken(failed: CommandResult, name: str = name, value: str | int = value) -> UserError:
            has = f"has {failed.stdout.strip()[:_QUOTED]}" if failed.stdout.strip() else "has no such file"
            return _not_so(disk, name, value, f"the kernel {has}")

        yield Step(f"{_in_queue_of(disk, guest)}echo {value} >{name} || {{ cat {name}; false; }})", not_taken)


def queue_check(disk: str, guest: GuestDisk) -> Step:
    """A step that prints the queue files, for :func:`queue`."""
    read = f"for name in {' '.join(_QUEUE_FILES)}; do value=; {{ read -r value <$name; }} 2>/dev/null"
    return Step(f'{_in_queue_of(disk, guest)}{read}; echo "$name=$value"; done)', kernel_fault)


def queue(disk: str, guest: GuestDisk, printed: str) -> DiskQueue:
    """The queue settings that the kernel shows; raises :class:`UserError` if they are not what was written."""
    found = dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)
    chosen = _CHOSEN.search(found.get("scheduler", "").strip())
    scheduler = (chosen[1] or chosen[2]) if chosen else ""
    numbers = {name: int(text) for name in _QUEUE_FILES if _NUMBER.fullmatch(text := found.get(name, "").strip())}
    for name, value in guest.asked.items():
        now = scheduler if name == "scheduler" else numbers.get(name)
        if now not in (value, _ALIASES.get(str(value), value)):
            raise _not_so(disk, name, value, f"the kernel took it, and has {'nothing' if now is None else now} now")
    return DiskQueue(disk, guest.bus, scheduler, **{name: numbers.get(name) for name in _QUEUE_FILES[1:]})


def _in_queue_of(disk: str, guest: GuestDisk) -> str:
    return f"(disk=$(readlink -f {path_of(disk, guest.bus)}) && cd /sys/class/block/${{disk##*/}}/queue && "


def _not_so(disk: str, name: str, value: str | int, what: str) -> UserError:
    return UserError(
        f"storage.{disk}.{name} = {value}: {what}",
        "choose what the kernels of the whole range have, or leave it out",
    )
