"""What layers of device-mapper have in common: how dmsetup's answers are read, and caches that LVM makes."""

import math
import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from bisector.core.errors import BisectorError, InfraError, KernelFault, UserError
from bisector.core.setting import Problem
from bisector.core.shell import CommandResult, Shell, Step, run_steps
from bisector.core.trial import FaultKind, Stage
from bisector.core.units import size_text
from bisector.storage.disks import fault, kernel_fault, kernel_fault_in_run, steps
from bisector.storage.layer import Capacity, Counters, Files, Layer, Made, Site

_MIB = 1 << 20
SECTOR_BYTES = 512
_EXTENT_BYTES = 4 << 20  # vgcreate(8): the default physical extent size, to which LVs are rounded up
_STATUS_DEADLINE_S = 60.0
_QUOTED = 200
_LONGEST_LINE = 4096  # what the kernel has room for is about as long (drivers/md/dm-ioctl.c), what it writes is shorter
_NAMED = re.compile(r"(\S+) (\d+) (\d+)")
_DEVICE_NUMBER = re.compile(r"\((\d+),\s*(\d+)\)")
# libdevmapper makes the device nodes itself instead of waiting for udev's rules at each step: under emulation a volume
# group takes 4.5 s instead of 6 (dmsetup(8), DM_DISABLE_UDEV).
WITHOUT_UDEV = "export DM_DISABLE_UDEV=1"
# What every device of device-mapper lies on, for :func:`parse_dependencies`.
TREE = steps("dmsetup deps", "dmsetup info -c --noheadings --separator ' ' -o name,major,minor")


class MapperUnreadable(Exception):
    """device-mapper gave a target up, or printed what it never prints."""


def quoted(line: str) -> str:
    """The beginning of what a guest printed, for a message."""
    return repr(line.strip()[:_QUOTED])


def arguments(line: str, target: str) -> list[str]:
    """The words after ``START LENGTH TARGET``, with or without the device's name before it.

    Raises :class:`MapperUnreadable` for the line of another target.
    """
    if len(line) > _LONGEST_LINE:
        raise MapperUnreadable(f"a line of {len(line):,} characters about a {target}: {quoted(line)}")
    words = line.split()
    if target not in words[:4]:
        raise MapperUnreadable(f"not a {target} device: {quoted(line)}")
    return words[words.index(target) + 1 :]


def numbers_of(names: str) -> dict[str, str]:
    """``major:minor`` of each device by its name, from ``dmsetup info``; raises :class:`MapperUnreadable`."""
    numbers = {}
    for line in names.splitlines():
        if (named := _NAMED.fullmatch(line.strip())) is None:
            raise MapperUnreadable(f"not a line of dmsetup info: {quoted(line)}")
        numbers[named[1]] = f"{named[2]}:{named[3]}"
    return numbers


def parse_dependencies(deps: str, names: str) -> dict[str, tuple[str, ...]]:
    """What each device lies on, by ``major:minor``, from the answers to :data:`TREE`.

    Raises :class:`MapperUnreadable`.
    """
    numbers = numbers_of(names)
    below = {}
    for line in deps.splitlines():
        name, _, devices = line.partition(":")
        if name.strip() not in numbers:
            raise MapperUnreadable(f"dmsetup deps names a device that dmsetup info does not: {quoted(line)}")
        below[numbers[name.strip()]] = tuple(f"{major}:{minor}" for major, minor in _DEVICE_NUMBER.findall(devices))
    return below


def disks_below(device: str, below: Mapping[str, tuple[str, ...]]) -> set[str]:
    """The devices at the bottom, those that are not device-mapper's; none where devices lie on each other in a ring."""
    bottom, seen, waiting = set(), {device}, [device]
    while waiting:
        upper = waiting.pop()
        if upper not in below:
            bottom.add(upper)
            continue
        lower = set(below[upper]) - seen
        seen |= lower
        waiting += lower
    return bottom


def check_place(what: str, device: str, below: Mapping[str, tuple[str, ...]], disks: Collection[str]) -> None:
    """Where a device lies is decided by tools and by the host's disks, never by the kernel under test.

    Raises :class:`InfraError`, and :class:`MapperUnreadable` where the kernel does not tell where.
    """
    if device not in below:  # it is device-mapper's
        raise MapperUnreadable(f"dmsetup deps has nothing about {what}, {device[:40]!r}")
    if (found := disks_below(device, below)) != set(disks):
        where, instead = (", ".join(sorted(one)) for one in (found, disks))
        raise InfraError(f"{what} is on {where or 'no disk'} instead of {instead}")


def whole_extents(size_bytes: int) -> int:
    """The size that LVM makes of one that is asked for."""
    return -(-size_bytes // _EXTENT_BYTES) * _EXTENT_BYTES


@dataclass(frozen=True, slots=True)
class LvmCacheLayer(Layer):
    """A cache on a fast device before a slow one, in a volume group ``group``, with the origin over the whole slow one.

    ``size_keys`` are the settings of what lies on the fast device, which ``takes`` so many bytes in a sentence;
    ``filled`` is what a run has to fill.
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
        """Make the volumes, and of them the cache."""

    @abstractmethod
    def read_status(self, line: str) -> Any:
        """What the counters are read from; raises :class:`MapperUnreadable`, also of a cache that does not work."""

    @abstractmethod
    def check_made(self, table_line: str, status_line: str) -> Mapping[str, str]:
        """Hold what was made against what was asked for; the ``major:minor`` of each part, the origin among them.

        Raises :class:`KernelFault` for what the kernel did, :class:`InfraError` for what LVM did, and
        :class:`MapperUnreadable`.
        """

    @abstractmethod
    def counted(self, before: Any, after: Any) -> Iterator[tuple[str, float]]:
        """The values of metrics over a run, by what was read before and after."""

    def fast_bytes(self) -> int:
        """What it takes of the fast device: one extent more, since the volume group's own header comes first."""
        return self.volume_bytes() + _EXTENT_BYTES

    def problems(self, below: Sequence[Capacity], files: Files) -> Iterator[Problem]:
        """The cache has room on its device, and the files of a run fill it."""
        fast, needed = below[0], self.fast_bytes()
        if fast.size_bytes is not None and needed > fast.size_bytes:
            yield Problem(
                (*self.size_keys, *fast.keys),
                f"{self.takes} {size_text(needed)} on {fast.what}, which has {size_text(fast.size_bytes)}",
            )
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

    def make(self, site: Site) -> Made:
        """A cached logical volume; its device is checked against what device-mapper shows."""
        group = f"{self.group}{site.suffix}"
        device = f"{group}-origin"  # device-mapper's name of the logical volume
        fast, slow = site.below

        def verify(answers: Sequence[str], numbers: Mapping[str, str]) -> None:
            table_line, status_line, *tree = answers
            self._status(status_line, Stage.STORAGE)
            try:
                below = parse_dependencies(*tree)
                for part, number in self.check_made(table_line, status_line).items():
                    disks = {numbers[leaf] for leaf in (slow if part == "origin" else fast).leaves}
                    check_place(f"the cache's {part}", number, below, disks)
            except MapperUnreadable as error:
                raise fault(str(error)) from error

        made = (
            # The host's two disks may differ in logical block size, and the guest's then do, too; vgcreate alone minds
            # (lvm.conf(5), since LVM 2.03.06). ext4's blocks of 4 KiB are no smaller than either.
            *steps(
                WITHOUT_UDEV,
                f"pvcreate -y {fast.path} {slow.path}",
                f"vgcreate -y --config devices/allow_mixed_block_sizes=1 {group} {fast.path} {slow.path}",
            ),
            *self.volumes(group, fast.path, slow.path),
        )
        checks = (*steps(f"dmsetup table {device}", f"dmsetup status {device}"), *TREE)
        counters = Counters(partial(self._read, device), self.counted)
        return Made(f"/dev/{group}/origin", made, checks, verify, (*fast.leaves, *slow.leaves), counters)

    def volume_fault(self, failed: CommandResult) -> BisectorError:
        """No room is a matter of sizes (lvcreate reports it); everything else is the kernel's."""
        if not any("insufficient" in line.lower() for line in failed.tail):
            return kernel_fault(failed)
        return UserError(
            f"the cache does not fit on its disk: {failed.reason}",
            f"{' and '.join(self.size_keys)} must fit on the disk of the cache, with a few MiB for LVM",
        )

    def _read(self, device: str, shell: Shell) -> Any:
        (line,) = run_steps(shell, (Step(f"dmsetup status {device}", kernel_fault_in_run),), _STATUS_DEADLINE_S)
        return self._status(line, Stage.WORKLOAD)

    def _status(self, line: str, stage: Stage) -> Any:
        try:
            return self.read_status(line)
        except MapperUnreadable as error:
            raise KernelFault(stage, FaultKind.IO_ERROR, str(error), (line.strip(),)) from error
