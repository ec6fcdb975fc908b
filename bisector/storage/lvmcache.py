"""dm-cache by LVM's own commands (lvmcache(7)): an HDD with a cache on an SSD."""

from dataclasses import dataclass

from bisector.config import StorageSettings
from bisector.core.errors import BisectorError, InfraError, KernelFault, UserError
from bisector.core.figures import CacheStatus
from bisector.core.guest_steps import FailedStep, Step, run_steps
from bisector.core.model import FaultKind, Shell, Stage
from bisector.storage import disks, dmcache, ext4

_GROUP = "bisector"
_DEVICE = f"{_GROUP}-origin"  # device-mapper's name of the logical volume
_PATH = f"/dev/{_GROUP}/origin"
# lvconvert calls cache_check from thin-provisioning-tools on every cache it activates.
_TOOLS = ("pvcreate", "vgcreate", "lvcreate", "lvconvert", "dmsetup", "cache_check", *ext4.TOOLS)
_STATUS_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class LvmCacheStack:
    """A cached logical volume, formatted and mounted."""

    mountpoint: str
    description: tuple[str, ...]

    def cache_status(self, shell: Shell) -> CacheStatus | None:
        """The kernel's own figures of the cache; raises :class:`KernelFault` when it gave up."""
        step = Step(f"dmsetup status {_DEVICE}", _workload_fault)
        (line,) = run_steps(shell, (step,), _STATUS_DEADLINE_S)
        return _target(line, Stage.WORKLOAD).status


def layout(shell: Shell, settings: StorageSettings, file_bytes: int, deadline_s: float) -> LvmCacheStack:
    """Lay the stack out on two empty disks and check that the kernel made what was asked for.

    Raises :class:`KernelFault` when a command fails or policy or mode differ, :class:`UserError`
    for missing tools and sizes that do not fit, :class:`InfraError` when a part of the cache is
    on the wrong disk.
    """
    before = (disks.tools_step(_TOOLS), disks.disks_step(disks.SSD, disks.HDD))
    made = (*_volume_steps(settings), *ext4.ext4_steps(_PATH))
    checks = (
        Step(f"dmsetup table {_DEVICE}", disks.kernel_fault),
        Step(f"dmsetup status {_DEVICE}", disks.kernel_fault),
        Step("dmsetup deps", disks.kernel_fault),
        Step("dmsetup info -c --noheadings --separator ' ' -o name,major,minor", disks.kernel_fault),
    )
    outputs = run_steps(shell, (*before, *made, *checks), deadline_s)
    ssd, hdd = disks.device_numbers(outputs[1], 2)
    room, table, status, deps, names = outputs[-len(checks) - 1 :]
    _check_target(status, settings)
    try:
        _check_devices(dmcache.parse_table(table), dmcache.parse_dependencies(deps, names), ssd, hdd)
    except dmcache.CacheUnusable as error:
        raise KernelFault(Stage.STORAGE, FaultKind.COMMAND_FAILED, str(error)) from error
    ext4.check_room(room, file_bytes)
    return LvmCacheStack(ext4.MOUNTPOINT, tuple(step.command for step in made))


def _volume_steps(settings: StorageSettings) -> tuple[Step, ...]:
    """The order is the pool's: what lies on the SSD first, then the origin over the whole HDD."""
    group = _GROUP
    return (
        # libdevmapper makes the device nodes itself instead of waiting for udev's rules at each step:
        # under emulation that is 4.5 s instead of 6 (dmsetup(8), DM_DISABLE_UDEV).
        Step("export DM_DISABLE_UDEV=1", disks.kernel_fault),
        Step(f"pvcreate -y {disks.SSD} {disks.HDD}", disks.kernel_fault),
        # The host's two disks may differ in logical block size, and the guest's then do, too; vgcreate alone minds
        # (lvm.conf(5), since LVM 2.03.06). ext4's blocks of 4 KiB are no smaller than either.
        Step(
            f"vgcreate -y --config devices/allow_mixed_block_sizes=1 {group} {disks.SSD} {disks.HDD}",
            disks.kernel_fault,
        ),
        Step(f"lvcreate -y -n meta -L {settings.metadata_bytes}b {group} {disks.SSD}", _volume_fault),
        Step(f"lvcreate -y -n data -L {settings.cache_bytes}b {group} {disks.SSD}", _volume_fault),
        Step(f"lvcreate -y -n origin -l 100%PVS {group} {disks.HDD}", _volume_fault),
        Step(
            # No spare metadata volume: it takes room on the SSD, and nothing here outlives the trial.
            f"lvconvert -y --type cache-pool --cachemode {settings.cache_mode} --poolmetadataspare n "
            f"--poolmetadata {group}/meta {group}/data",
            disks.kernel_fault,
        ),
        Step(
            f"lvconvert -y --type cache --cachepool {group}/data --cachepolicy {settings.cache_policy} {group}/origin",
            disks.kernel_fault,
        ),
    )


def _volume_fault(failed: FailedStep) -> BisectorError:
    """No room is a matter of sizes (lvcreate says so itself), everything else the kernel's."""
    if any("insufficient" in line.lower() for line in failed.tail):
        return UserError(
            f"the cache does not fit on its disk: {failed.reason}",
            "storage.cache_size and storage.metadata_size need room on storage.ssd.size, with a few MiB for LVM",
        )
    return disks.kernel_fault(failed)


def _workload_fault(failed: FailedStep) -> BisectorError:
    return KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, failed.reason, failed.tail)


def _target(line: str, stage: Stage) -> dmcache.CacheTarget:
    try:
        target = dmcache.parse_status(line)
    except dmcache.CacheUnusable as error:
        raise KernelFault(stage, FaultKind.IO_ERROR, str(error), (line.strip(),)) from error
    if target.read_only or target.needs_check:
        raise KernelFault(stage, FaultKind.IO_ERROR, "the kernel made the cache's metadata read-only", (line.strip(),))
    return target


def _check_target(line: str, settings: StorageSettings) -> None:
    """Another policy or mode than asked for is the kernel's doing: LVM asked for these by name."""
    status = _target(line, Stage.STORAGE).status
    asked = (settings.cache_policy, settings.cache_mode.value)
    if settings.cache_policy == "default":  # an alias of whatever the kernel prefers
        asked = (status.policy, asked[1])
    if (status.policy, status.mode) != asked:
        raise KernelFault(
            Stage.STORAGE,
            FaultKind.COMMAND_FAILED,
            f"dmsetup: the cache is {status.policy}, {status.mode}; asked for {', '.join(asked)}",
            (line.strip(),),
        )


def _check_devices(devices: dmcache.CacheDevices, below: dict[str, tuple[str, ...]], ssd: str, hdd: str) -> None:
    """Where a volume lies is decided by LVM and by our disks, never by the kernel under test.

    Raises :class:`InfraError`, and :class:`dmcache.CacheUnusable` when the kernel does not say where.
    """
    wanted = (("metadata", devices.metadata, ssd), ("data", devices.cache, ssd), ("origin", devices.origin, hdd))
    for part, device, disk in wanted:
        if device not in below:  # a logical volume is device-mapper's
            raise dmcache.CacheUnusable(f"dmsetup deps has nothing about the cache's {part}, {device[:40]!r}")
        if (found := dmcache.disks_below(device, below)) != {disk}:
            raise InfraError(f"the cache's {part} is on {', '.join(sorted(found)) or 'no disk'} instead of {disk}")
