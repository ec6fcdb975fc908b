"""What the layers that LVM makes have in common: the volume group, and where device-mapper shows that a volume lies."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bisector.core.errors import BisectorError, InfraError, UserError
from bisector.core.shell import FailedStep, Step
from bisector.storage import dmcache
from bisector.storage.disks import kernel_fault

EXTENT_BYTES = 4 << 20  # vgcreate(8): the default physical extent size, to which LVs are rounded up

# What every device of device-mapper lies on, for :func:`check_parts`.
TREE = (
    Step("dmsetup deps", kernel_fault),
    Step("dmsetup info -c --noheadings --separator ' ' -o name,major,minor", kernel_fault),
)


@dataclass(frozen=True, slots=True)
class VolumePart:
    """A part of a device: its title, its own ``major:minor``, and those of the disks that it has to be on."""

    title: str
    device: str
    disks: frozenset[str]


def whole_extents(size_bytes: int) -> int:
    """The size that LVM makes of one that is asked for."""
    return -(-size_bytes // EXTENT_BYTES) * EXTENT_BYTES


def group_steps(group: str, *devices: str) -> tuple[Step, ...]:
    """A volume group on the devices."""
    listed = " ".join(devices)
    return (
        # libdevmapper makes the device nodes itself instead of waiting for udev's rules at each step:
        # under emulation that is 4.5 s instead of 6 (dmsetup(8), DM_DISABLE_UDEV).
        Step("export DM_DISABLE_UDEV=1", kernel_fault),
        Step(f"pvcreate -y {listed}", kernel_fault),
        # The host's two disks may differ in logical block size, and the guest's then do, too; vgcreate alone minds
        # (lvm.conf(5), since LVM 2.03.06). ext4's blocks of 4 KiB are no smaller than either.
        Step(f"vgcreate -y --config devices/allow_mixed_block_sizes=1 {group} {listed}", kernel_fault),
    )


def volume_fault(*keys: str) -> Callable[[FailedStep], BisectorError]:
    """No room is a matter of sizes, which ``keys`` set (lvcreate reports it); everything else is the kernel's."""

    def blame(failed: FailedStep) -> BisectorError:
        if any("insufficient" in line.lower() for line in failed.tail):
            return UserError(
                f"the cache does not fit on its disk: {failed.reason}",
                f"{' and '.join(keys)} must fit on the disk of the cache, with a few MiB for LVM",
            )
        return kernel_fault(failed)

    return blame


def check_parts(parts: Iterable[VolumePart], tree: Sequence[str]) -> None:
    """Where a volume lies is decided by LVM and by our disks, never by the kernel under test.

    ``tree`` are the answers to :data:`TREE`. Raises :class:`InfraError`, and :class:`dmcache.CacheUnusable` when the
    kernel does not tell where.
    """
    below = dmcache.parse_dependencies(*tree)
    for part in parts:
        if part.device not in below:  # a logical volume is device-mapper's
            raise dmcache.CacheUnusable(
                f"dmsetup deps has nothing about the cache's {part.title}, {part.device[:40]!r}"
            )
        if (found := dmcache.disks_below(part.device, below)) != part.disks:
            where, instead = (", ".join(sorted(one)) for one in (found, part.disks))
            raise InfraError(f"the cache's {part.title} is on {where or 'no disk'} instead of {instead}")
