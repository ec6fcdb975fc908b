"""dm-cache by LVM's own commands (lvmcache(7)): a slow device with a cache on a fast one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from bisector.core import kinds
from bisector.core.errors import BisectorError, InfraError, KernelFault, UserError
from bisector.core.figures import CacheStatus, Run
from bisector.core.kinds import Option, Problem
from bisector.core.shell import FailedStep, Shell, Step, run_steps
from bisector.core.trial import FaultKind, Stage
from bisector.core.units import size_text
from bisector.storage import dmcache
from bisector.storage.disks import kernel_fault
from bisector.storage.layer import Counters, Extent, Files, Layer, Made, Own, Phase, Site

_GROUP = "bisector"
_STATUS_DEADLINE_S = 60.0
_EXTENT_BYTES = 4 << 20  # vgcreate(8): the default physical extent size, to which LVs are rounded up
_METADATA_LEAST_BYTES = 8 << 20  # lvmcache(7): cache metadata "with a minimum size of 8MiB"
# The smq policy of a working kernel demotes a little ahead of need, so the last blocks may be free.
_LEAST_USED_SHARE = 0.95


class CacheMode(StrEnum):
    """dm-cache modes that lvmcache offers (lvmcache(7))."""

    WRITEBACK = "writeback"
    WRITETHROUGH = "writethrough"


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """The cache and its metadata in bytes, as LVM makes them; the policy is one of the kernel's."""

    cache_bytes: int
    metadata_bytes: int
    mode: CacheMode
    policy: str


def _full(run: Run) -> Iterator[str]:
    """A cache with free blocks takes what it is given; only a full one has to choose."""
    before = run.cache_before
    if before is not None and before.used_blocks < _LEAST_USED_SHARE * before.total_blocks:
        yield f"the cache was not full before the {run.name} run: {before.used_blocks} of {before.total_blocks} blocks"


class LvmCache(Layer):
    """The first run fills the cache, the second one shows which blocks it keeps."""

    name = "lvmcache"
    needs = ("cache device", "origin device")
    is_mapped = True
    alias = "lvmcache(ssd,hdd)+ext4"
    fragments = ("storage-lvmcache",)
    suspects = ("drivers/md",)
    # lvconvert calls cache_check from thin-provisioning-tools on every cache it activates.
    tools = ("pvcreate", "vgcreate", "lvcreate", "lvconvert", "dmsetup", "cache_check")
    # Read as a table, so laid out as one.
    # fmt: off
    options = (
        Option("storage.cache_size", "cache_bytes", kinds.size(1 << 20), "64MiB", "cache on the fast disk, bytes",
               "4GiB", flag="--cache-size", metavar="SIZE"),
        Option("storage.metadata_size", "metadata_bytes", kinds.size(1 << 20), "8MiB",
               "metadata of the cache, bytes", "50MiB"),
        Option("storage.cache_mode", "mode", kinds.choice(CacheMode), "writeback", "dm-cache mode"),
        Option("storage.cache_policy", "policy", kinds.choice(("smq", "mq")), "smq", "dm-cache policy"),
    )
    # fmt: on
    phases = (Phase("empty", judged=False), Phase("full", unready=_full))

    def extent(self, below: Sequence[Extent], own: Own) -> Extent:
        """As large as the origin."""
        _cache, origin = below
        return origin

    def problems(self, below: Sequence[Extent], own: Own, files: Files) -> Iterator[Problem]:
        """The cache has room on its device, and the files of a run fill it."""
        settings, fast = CacheSettings(**own), below[0]
        if settings.metadata_bytes < _METADATA_LEAST_BYTES:
            yield Problem(("storage.metadata_size",), f"LVM needs {size_text(_METADATA_LEAST_BYTES)} or more for it")
        # One extent more: the volume group's own header comes first on the disk.
        needed = _extents(settings.cache_bytes) + _extents(settings.metadata_bytes) + _EXTENT_BYTES
        if fast.size_bytes is not None and needed > fast.size_bytes:
            yield Problem(
                ("storage.cache_size", "storage.metadata_size", *fast.keys),
                f"the cache and its metadata need {size_text(needed)} on {fast.what}, which has "
                f"{size_text(fast.size_bytes)}",
            )
        if files.total_bytes < settings.cache_bytes:
            yield Problem(
                (*files.keys, "storage.cache_size"),
                f"{files.sentence}, which never fills the cache; the run that tells is the one with a full cache",
            )

    def written(self, below: Sequence[Extent], own: Own, data_bytes: int) -> tuple[int, ...]:
        """The whole cache, and all data on the origin."""
        settings = CacheSettings(**own)
        return settings.cache_bytes + settings.metadata_bytes + _EXTENT_BYTES, data_bytes + _EXTENT_BYTES

    def make(self, site: Site) -> Made:
        """A cached logical volume; its device is checked against what device-mapper shows."""
        group, settings = f"{_GROUP}{site.suffix}", CacheSettings(**site.own)
        device = f"{group}-origin"  # device-mapper's name of the logical volume
        fast, slow = site.below
        checks = (
            Step(f"dmsetup table {device}", kernel_fault),
            Step(f"dmsetup status {device}", kernel_fault),
            Step("dmsetup deps", kernel_fault),
            Step("dmsetup info -c --noheadings --separator ' ' -o name,major,minor", kernel_fault),
        )

        def verify(answers: Sequence[str], numbers: Mapping[str, str]) -> None:
            table, status, deps, names = answers
            _check_target(status, settings)
            cache, origin = ({numbers[leaf] for leaf in one.leaves} for one in site.below)
            try:
                _check_devices(dmcache.parse_table(table), dmcache.parse_dependencies(deps, names), cache, origin)
            except dmcache.CacheUnusable as error:
                raise KernelFault(Stage.STORAGE, FaultKind.COMMAND_FAILED, str(error)) from error

        steps = _steps(group, fast.path, slow.path, settings)
        leaves = (*fast.leaves, *slow.leaves)
        return Made(
            f"/dev/{group}/origin", steps, checks, verify, leaves, Counters(partial(_status, device), dmcache.counted)
        )


LVMCACHE = LvmCache()


def _extents(size_bytes: int) -> int:
    return -(-size_bytes // _EXTENT_BYTES) * _EXTENT_BYTES


def _steps(group: str, fast: str, slow: str, settings: CacheSettings) -> tuple[Step, ...]:
    """The order is the pool's: what lies on the fast device first, then the origin over the whole slow one."""
    return (
        # libdevmapper makes the device nodes itself instead of waiting for udev's rules at each step:
        # under emulation that is 4.5 s instead of 6 (dmsetup(8), DM_DISABLE_UDEV).
        Step("export DM_DISABLE_UDEV=1", kernel_fault),
        Step(f"pvcreate -y {fast} {slow}", kernel_fault),
        # The host's two disks may differ in logical block size, and the guest's then do, too; vgcreate alone minds
        # (lvm.conf(5), since LVM 2.03.06). ext4's blocks of 4 KiB are no smaller than either.
        Step(f"vgcreate -y --config devices/allow_mixed_block_sizes=1 {group} {fast} {slow}", kernel_fault),
        Step(f"lvcreate -y -n meta -L {settings.metadata_bytes}b {group} {fast}", _volume_fault),
        Step(f"lvcreate -y -n data -L {settings.cache_bytes}b {group} {fast}", _volume_fault),
        Step(f"lvcreate -y -n origin -l 100%PVS {group} {slow}", _volume_fault),
        Step(
            # No spare metadata volume: it takes room on the fast device, and nothing here outlives the trial.
            f"lvconvert -y --type cache-pool --cachemode {settings.mode} --poolmetadataspare n "
            f"--poolmetadata {group}/meta {group}/data",
            kernel_fault,
        ),
        Step(
            f"lvconvert -y --type cache --cachepool {group}/data --cachepolicy {settings.policy} {group}/origin",
            kernel_fault,
        ),
    )


def _volume_fault(failed: FailedStep) -> BisectorError:
    """No room is a matter of sizes (lvcreate says so itself), everything else the kernel's."""
    if any("insufficient" in line.lower() for line in failed.tail):
        return UserError(
            f"the cache does not fit on its disk: {failed.reason}",
            "storage.cache_size and storage.metadata_size need room on the disk of the cache, with a few MiB for LVM",
        )
    return kernel_fault(failed)


def _workload_fault(failed: FailedStep) -> BisectorError:
    return KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, failed.reason, failed.tail)


def _status(device: str, shell: Shell) -> CacheStatus:
    """The kernel's own figures of the cache; raises :class:`KernelFault` when it gave up."""
    (line,) = run_steps(shell, (Step(f"dmsetup status {device}", _workload_fault),), _STATUS_DEADLINE_S)
    return _target(line, Stage.WORKLOAD).status


def _target(line: str, stage: Stage) -> dmcache.CacheTarget:
    try:
        target = dmcache.parse_status(line)
    except dmcache.CacheUnusable as error:
        raise KernelFault(stage, FaultKind.IO_ERROR, str(error), (line.strip(),)) from error
    if target.read_only or target.needs_check:
        raise KernelFault(stage, FaultKind.IO_ERROR, "the kernel made the cache's metadata read-only", (line.strip(),))
    return target


def _check_target(line: str, settings: CacheSettings) -> None:
    """Another policy or mode than asked for is the kernel's doing: LVM asked for these by name."""
    status = _target(line, Stage.STORAGE).status
    asked = (settings.policy, settings.mode.value)
    if (status.policy, status.mode) != asked:
        raise KernelFault(
            Stage.STORAGE,
            FaultKind.COMMAND_FAILED,
            f"dmsetup: the cache is {status.policy}, {status.mode}; asked for {', '.join(asked)}",
            (line.strip(),),
        )


def _check_devices(
    devices: dmcache.CacheDevices, below: Mapping[str, tuple[str, ...]], cache: set[str], origin: set[str]
) -> None:
    """Where a volume lies is decided by LVM and by our disks, never by the kernel under test.

    ``cache`` and ``origin`` are what is at the bottom of each device, by ``major:minor``. Raises :class:`InfraError`,
    and :class:`dmcache.CacheUnusable` when the kernel does not say where.
    """
    wanted = (("metadata", devices.metadata, cache), ("data", devices.cache, cache), ("origin", devices.origin, origin))
    for part, device, disks in wanted:
        if device not in below:  # a logical volume is device-mapper's
            raise dmcache.CacheUnusable(f"dmsetup deps has nothing about the cache's {part}, {device[:40]!r}")
        if (found := dmcache.disks_below(device, below)) != disks:
            where, instead = (", ".join(sorted(one)) for one in (found, disks))
            raise InfraError(f"the cache's {part} is on {where or 'no disk'} instead of {instead}")
