"""dm-cache by LVM's own commands (lvmcache(7)): a slow device with a cache on a fast one.

Every property that has a default, in LVM or in the kernel, is named in the commands and read back, since those defaults
differ between versions. The default policy was mq before v4.2 and is smq since; LVM makes metadata of format 2 where
the kernel has it, which kernels before v4.11 cannot read (629d0a8a1a10, "dm cache metadata: add "metadata2" feature").
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from bisector.core import kinds
from bisector.core.errors import InfraError, KernelFault
from bisector.core.figures import CacheStatus, Run
from bisector.core.kinds import AUTO, Option, Problem
from bisector.core.shell import FailedStep, Shell, Step, run_steps
from bisector.core.trial import FaultKind, Stage
from bisector.core.units import size_text
from bisector.storage import dmcache, filling
from bisector.storage.disks import kernel_fault
from bisector.storage.dmcache import SECTOR_BYTES
from bisector.storage.layer import Counters, Extent, Feature, Files, Layer, Made, Own, Phase, Since, Site
from bisector.storage.lvm import EXTENT_BYTES, TREE, Part, check_parts, group_steps, volume_fault, whole_extents
from bisector.storage.lvmcache_settings import (
    CHUNK_STEP_BYTES,
    NEWER_FORMAT,
    POLICY,
    CacheMode,
    CacheSettings,
    CacheVolume,
    chunk_problems,
    format_problems,
)

_GROUP = "bisector"
_STATUS_DEADLINE_S = 60.0


def _full(run: Run) -> Iterator[str]:
    """A cache with free blocks takes what it is given; only a full one has to choose."""
    before = run.cache_before
    if before is None or not dmcache.fills(before.mode, before.policy):
        return
    if before.used_blocks * 100 < filling.FULL_PERCENT * before.total_blocks:
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
        Option("storage.cache_policy", "policy", kinds.choice((POLICY, "mq", "cleaner")), POLICY, "dm-cache policy"),
        Option("storage.cache_chunk_size", "chunk_bytes",
               kinds.optional(kinds.size(CHUNK_STEP_BYTES), AUTO, "as LVM chooses"), "64KiB",
               "block of dm-cache, bytes", before=AUTO),
        Option("storage.cache_metadata_format", "metadata_format",
               kinds.optional(kinds.integer(1), AUTO, "as LVM chooses"), 1,
               "format of dm-cache's metadata, 1 or 2; kernels before v4.11 read 1 alone", before=AUTO),
        Option("storage.cache_migration_threshold", "threshold_bytes",
               kinds.optional(kinds.size(SECTOR_BYTES), AUTO, "1MiB, or 8 blocks where that is more"), AUTO,
               "most that dm-cache moves at a time, bytes"),
        Option("storage.cache_volume", "volume", kinds.choice(CacheVolume), "cachepool",
               "whether blocks and metadata of the cache are two volumes (cachepool) or one (cachevol)"),
    )
    # fmt: on
    counts = dmcache.COUNTS
    phases = (Phase("empty", judged=False, fills=True, settling=dmcache.SETTLING), Phase("full", unready=_full))

    def extent(self, below: Sequence[Extent], own: Own) -> Extent:
        """As large as the origin."""
        _cache, origin = below
        return origin

    def fragments_for(self, own: Own) -> tuple[str, ...]:
        """Old trees have each policy but smq as an option of its own."""
        return self.fragments if own["policy"] == POLICY else (*self.fragments, "storage-lvmcache-policies")

    def features(self, own: Own) -> Iterator[Feature]:
        """The newer format of the metadata, where it is asked for by name."""
        if own["metadata_format"] == NEWER_FORMAT:
            since = Since("v4.11", "drivers/md/dm-cache-target.c", "metadata2")
            yield Feature("metadata of format 2", since, ("storage.cache_metadata_format",))

    def filled_by(self, own: Own) -> int:
        """As much as the cache has room for."""
        settings = CacheSettings(**own)
        return settings.cache_bytes if settings.fills else 0

    def problems(self, below: Sequence[Extent], own: Own, files: Files) -> Iterator[Problem]:
        """The cache has room on its device, and the files of a run fill it."""
        settings, fast = CacheSettings(**own), below[0]
        yield from chunk_problems(settings)
        yield from format_problems(settings)
        if settings.metadata_bytes < settings.least_metadata_bytes:
            least = size_text(whole_extents(settings.least_metadata_bytes))
            yield Problem(("storage.metadata_size",), f"LVM needs {least} or more for it")
        # One extent more: the volume group's own header comes first on the disk.
        needed = whole_extents(settings.cache_bytes) + whole_extents(settings.metadata_bytes) + EXTENT_BYTES
        if fast.size_bytes is not None and needed > fast.size_bytes:
            yield Problem(
                ("storage.cache_size", "storage.metadata_size", *fast.keys),
                f"the cache and its metadata need {size_text(needed)} on {fast.what}, which has "
                f"{size_text(fast.size_bytes)}",
            )
        if files.total_bytes < (needed := self.filled_by(own)):
            yield Problem(
                (*files.keys, "storage.cache_size"),
                f"{files.sentence}, which never fills the cache; the run that tells is the one with a full cache",
                files.to_fill(needed),
            )

    def written(self, below: Sequence[Extent], own: Own, data_bytes: int) -> tuple[int, ...]:
        """The whole cache, and all data on the origin."""
        settings = CacheSettings(**own)
        return settings.cache_bytes + settings.metadata_bytes + EXTENT_BYTES, data_bytes + EXTENT_BYTES

    def make(self, site: Site) -> Made:
        """A cached logical volume; its device is checked against what device-mapper shows."""
        group, settings = f"{_GROUP}{site.suffix}", CacheSettings(**site.own)
        device = f"{group}-origin"  # device-mapper's name of the logical volume
        fast, slow = site.below
        checks = (Step(f"dmsetup table {device}", kernel_fault), Step(f"dmsetup status {device}", kernel_fault), *TREE)

        def verify(answers: Sequence[str], numbers: Mapping[str, str]) -> None:
            table_line, status_line, *tree = answers
            target = _target(status_line, Stage.STORAGE)
            cache, origin = (frozenset(numbers[leaf] for leaf in one.leaves) for one in site.below)
            try:
                table = dmcache.parse_table(table_line)
                _check_made(settings, table, target, (table_line, status_line))
                _check_sizes(settings, table, target)
                check_parts(
                    (
                        Part("metadata", table.metadata, cache),
                        Part("data", table.cache, cache),
                        Part("origin", table.origin, origin),
                    ),
                    tree,
                )
            except dmcache.CacheUnusable as error:
                raise KernelFault(Stage.STORAGE, FaultKind.COMMAND_FAILED, str(error)) from error

        return Made(
            f"/dev/{group}/origin",
            (*group_steps(group, fast.path, slow.path), *_steps(group, fast.path, slow.path, settings)),
            checks,
            verify,
            (*fast.leaves, *slow.leaves),
            Counters(partial(_status, device), dmcache.counted),
        )


LVMCACHE = LvmCache()


def _steps(group: str, fast: str, slow: str, settings: CacheSettings) -> tuple[Step, ...]:
    """The order is the pool's: what lies on the fast device first, then the origin over the whole slow one."""
    fault = volume_fault("storage.cache_size", "storage.metadata_size")
    chunk = "" if settings.chunk_bytes is None else f"--chunksize {settings.chunk_bytes}b "
    rest = f"--cachepolicy {settings.policy} "
    if settings.metadata_format is not None:
        rest += f"--cachemetadataformat {settings.metadata_format} "
    if settings.threshold_sectors is not None:
        rest += f"--cachesettings migration_threshold={settings.threshold_sectors} "
    origin = Step(f"lvcreate -y -n origin -l 100%PVS {group} {slow}", fault)
    if settings.volume is CacheVolume.VOLUME:
        both = whole_extents(settings.cache_bytes) + whole_extents(settings.metadata_bytes)
        return (
            Step(f"lvcreate -y -n data -L {both}b {group} {fast}", fault),
            origin,
            Step(
                f"lvconvert -y --type cache --cachevol {group}/data --cachemode {settings.mode} {chunk}"
                f"--poolmetadatasize {settings.metadata_bytes}b {rest}{group}/origin",
                kernel_fault,
            ),
        )
    return (
        Step(f"lvcreate -y -n meta -L {settings.metadata_bytes}b {group} {fast}", fault),
        Step(f"lvcreate -y -n data -L {settings.cache_bytes}b {group} {fast}", fault),
        origin,
        Step(
            # No spare metadata volume: it takes room on the fast device, and nothing here outlives the trial.
            f"lvconvert -y --type cache-pool --cachemode {settings.mode} {chunk}--poolmetadataspare n "
            f"--poolmetadata {group}/meta {group}/data",
            kernel_fault,
        ),
        Step(f"lvconvert -y --type cache --cachepool {group}/data {rest}{group}/origin", kernel_fault),
    )


def _workload_fault(failed: FailedStep) -> KernelFault:
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


def _check_made(
    settings: CacheSettings, table: dmcache.CacheTable, target: dmcache.CacheTarget, lines: Sequence[str]
) -> None:
    """Another policy, mode or size than asked for is the kernel's doing: LVM asked for these by name."""
    status = target.status
    found = [status.policy, status.mode]
    asked = [settings.policy, settings.mode.value]
    # A pair for each that was named; a kernel that does not tell its threshold leaves it out.
    sectors, threshold = settings.threshold_sectors, target.migration_threshold
    for name, wanted, has in (
        ("blocks of {} sectors", settings.chunk_bytes and settings.chunk_bytes // SECTOR_BYTES, table.block_sectors),
        ("metadata {}", settings.metadata_format, table.metadata_format),
        ("migration_threshold {}", sectors if threshold is not None else None, threshold),
    ):
        if wanted is not None and wanted != has:
            asked.append(name.format(wanted))
            found.append(name.format(has))
    if found != asked:
        raise KernelFault(
            Stage.STORAGE,
            FaultKind.COMMAND_FAILED,
            f"dmsetup: the cache is {', '.join(found)}; asked for {', '.join(asked)}",
            tuple(line.strip() for line in lines),
        )


def _check_sizes(settings: CacheSettings, table: dmcache.CacheTable, target: dmcache.CacheTarget) -> None:
    """How large its volumes are is LVM's doing, as is where they lie: no kernel has a part in it."""
    block_bytes = table.block_sectors * SECTOR_BYTES
    sizes = (
        (
            "cache",
            whole_extents(settings.cache_bytes) // block_bytes * block_bytes,
            target.status.total_blocks * block_bytes,
        ),
        ("metadata", whole_extents(settings.metadata_bytes), target.metadata_bytes),
    )
    for what, asked, found in sizes:
        if found != asked:
            raise InfraError(f"LVM made {found:,} bytes for the {what} of dm-cache instead of {asked:,}")
