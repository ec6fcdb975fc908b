"""The common parts of device-mapper layers: reading dmsetup's answers, and caches that LVM makes."""

import math
import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bisector.core.errors import BisectorError, InfraError, UserError
from bisector.core.setting import Problem
from bisector.core.shell import CommandResult, Step
from bisector.core.units import size_text
from bisector.storage.disks import answer, fault, kernel_fault, not_an_answer, steps
from bisector.storage.layer import Capacity, Counters, Device, Files, Layer, LayerPlan

_MIB = 1 << 20
SECTOR_BYTES = 512
_EXTENT_BYTES = 4 << 20  # vgcreate(8): the default physical extent size, to which LVs are rounded up
_LONGEST_LINE = 4096  # about as long as the kernel's buffer (drivers/md/dm-ioctl.c); real lines are shorter
_NAMED = re.compile(r"(\S+) (\d+) (\d+)")
_DEVICE_NUMBER = re.compile(r"\((\d+),\s*(\d+)\)")
# With this libdevmapper makes the device nodes itself instead of waiting for udev's rules at each step: under emulation
# a volume group takes 4.5 s instead of 6 (dmsetup(8), DM_DISABLE_UDEV).
WITHOUT_UDEV = "export DM_DISABLE_UDEV=1"
# Prints the devices below each device-mapper device, for :func:`parse_dependencies`.
TREE = steps("dmsetup deps", "dmsetup info -c --noheadings --separator ' ' -o name,major,minor")


def arguments(line: str, target: str) -> list[str]:
    """The words after ``[NAME:] START LENGTH TARGET``; raises :class:`KernelFault` for a line of another target."""
    words = line.split() if len(line) <= _LONGEST_LINE else []
    if target not in words[:4]:
        raise not_an_answer(f"dmsetup, asked about a {target},", line)
    return words[words.index(target) + 1 :]


def numbers_of(names: str) -> dict[str, str]:
    """Return ``major:minor`` of each device by its name, from ``dmsetup info``; raises :class:`KernelFault`."""
    numbers = {}
    for line in names.splitlines():
        if (named := _NAMED.fullmatch(line.strip())) is None:
            raise not_an_answer("dmsetup info", line)
        numbers[named[1]] = f"{named[2]}:{named[3]}"
    return numbers


def parse_dependencies(deps: str, names: str) -> dict[str, tuple[str, ...]]:
    """The devices directly below each, as ``major:minor``, by what :data:`TREE` prints; raises :class:`KernelFault`."""
    numbers = numbers_of(names)
    below = {}
    for line in deps.splitlines():
        name, _, devices = line.partition(":")
        if name.strip() not in numbers:
            raise not_an_answer("dmsetup deps, about a device that dmsetup info does not name,", line)
        below[numbers[name.strip()]] = tuple(f"{major}:{minor}" for major, minor in _DEVICE_NUMBER.findall(devices))
    return below


def check_place(what: str, device: str, below: Mapping[str, tuple[str, ...]], disks: Collection[str]) -> None:
    """Check that a device lies on exactly these disks; one in a ring of devices lies on none.

    Raises :class:`InfraError` if it does not, since tools and the host's disks decide that, never the kernel under
    test; and :class:`KernelFault` if the kernel does not say where the device lies.
    """
    if device not in below:  # it is device-mapper's
        raise fault(f"dmsetup deps has nothing about {what}, {device[:40]!r}")
    bottom, seen, waiting = set(), {device}, [device]
    while waiting:
        upper = waiting.pop()
        if upper in below:
            lower = set(below[upper]) - seen
            seen |= lower
            waiting += lower
        else:  # device-mapper did not make it
            bottom.add(upper)
    if bottom != set(disks):
        where, instead = (", ".join(sorted(one)) for one in (bottom, disks))
        raise InfraError(f"{what} is on {where or 'no disk'} instead of {instead}")


def whole_extents(size_bytes: int) -> int:
    """The size that LVM rounds ``size_bytes`` up to."""
    return -(-size_bytes // _EXTENT_BYTES) * _EXTENT_BYTES


@dataclass(frozen=True, slots=True)
class LvmCacheLayer(Layer):
    """A cache on a fast device for a slow one, in the volume group ``group``; the origin has the whole slow device.

    ``size_keys`` are the settings that determine how much of the fast device is used. In messages ``takes`` is the
    subject and verb before that size, and ``filled`` names what a run has to fill.
    """

    needs = ("cache device", "origin device")
    origin = 1
    is_mapped = True
    group: ClassVar[str]
    size_keys: ClassVar[tuple[str, ...]]
    filled: ClassVar[str] = "the cache"
    takes: ClassVar[str] = "the cache needs"

    @abstractmethod
    def volume_bytes(self) -> int:
        """The size of the volumes on the fast device."""

    @abstractmethod
    def volumes(self, group: str, fast: str, slow: str) -> Iterator[Step]:
        """Yield the steps that make the volumes, and from them the cache."""

    @abstractmethod
    def read_status(self, line: str) -> Any:
        """The status from a line of ``dmsetup status``; raises :class:`KernelFault`, also for a failed cache."""

    @abstractmethod
    def check_made(self, table_line: str, status_line: str) -> Mapping[str, str]:
        """Compare what was made with what was asked for; return ``major:minor`` of each part, including the origin.

        Raises :class:`KernelFault` if the kernel made something else, and :class:`InfraError` if LVM did.
        """

    @abstractmethod
    def counted(self, before: Any, after: Any) -> Iterator[tuple[str, float]]:
        """Yield the metrics of a run from the status before and after it, as name and value."""

    def fast_bytes(self) -> int:
        """How much of the fast device is used: the volumes, and one extent for the header of the volume group."""
        return self.volume_bytes() + _EXTENT_BYTES

    def problems(self, below: Sequence[Capacity], files: Files) -> Iterator[Problem]:
        """Yield a problem if the cache does not fit on its device, or if the files of a run cannot fill it."""
        yield from below[0].lacks(self.fast_bytes(), self.takes, *self.size_keys)
        if files.total_bytes < (wanted := self.filled_by()):
            size = size_text(math.ceil(wanted * files.share / _MIB) * _MIB)
            larger = files.advice or (f"{files.setting}{size}" if files.setting else "")
            yield Problem(
                (*files.keys, self.size_keys[0]),
                f"{files.sentence}, which never fills {self.filled}; the run that tells is the one with a full cache",
                ", or ".join(filter(None, (larger, "a stack without a cache: --stack hdd"))),
            )

    def written(self, below: Sequence[Capacity], data_bytes: int) -> tuple[int, ...]:
        """The whole cache, and all data on the origin."""
        return self.fast_bytes(), data_bytes + _EXTENT_BYTES

    def make(self, below: Sequence[Device], suffix: str) -> LayerPlan:
        """A cached logical volume, which is checked against what device-mapper shows."""
        group = f"{self.group}{suffix}"
        device = f"{group}-origin"  # device-mapper's name of the logical volume
        fast, slow = below

        def verify(answers: Sequence[str], numbers: Mapping[str, str]) -> None:
            table_line, status_line, *tree = answers
            self.read_status(status_line)  # of a failed cache nothing else is worth telling
            tables = parse_dependencies(*tree)
            for part, number in self.check_made(table_line, status_line).items():
                disks = {numbers[leaf] for leaf in (slow if part == "origin" else fast).leaves}
                check_place(f"the cache's {part}", number, tables, disks)

        made = (
            # The host's two disks may differ in logical block size, and then the guest's do, too. Only vgcreate objects
            # to that (lvm.conf(5), since LVM 2.03.06). ext4's blocks of 4 KiB are no smaller than either.
            *steps(
                WITHOUT_UDEV,
                f"pvcreate -y {fast.path} {slow.path}",
                f"vgcreate -y --config devices/allow_mixed_block_sizes=1 {group} {fast.path} {slow.path}",
            ),
            *self.volumes(group, fast.path, slow.path),
        )
        show = f"dmsetup status {device}"
        checks = (*steps(f"dmsetup table {device}", show), *TREE)
        counters = Counters(lambda shell: self.read_status(answer(shell, show)), self.counted)
        return LayerPlan(f"/dev/{group}/origin", made, checks, verify, (*fast.leaves, *slow.leaves), counters)

    def volume_fault(self, failed: CommandResult) -> BisectorError:
        """Return :class:`UserError` if lvcreate lacks space; any other failure is the kernel's fault."""
        if not any("insufficient" in line.lower() for line in failed.tail):
            return kernel_fault(failed)
        return UserError(
            f"the cache does not fit on its disk: {failed.reason}",
            f"{' and '.join(self.size_keys)} must fit on the disk of the cache, with a few MiB for LVM",
        )
