"""dm-cache by LVM's own commands (lvmcache(7)): a slow device with a cache on a fast one.

Every property that has a default, in LVM or in the kernel, is named in the commands and read back, since those defaults
differ between versions. The default policy was mq before v4.2 and is smq since; LVM makes metadata of format 2 where
the kernel has it, which kernels before v4.11 cannot read (629d0a8a1a10, "dm cache metadata: add "metadata2" feature").
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated, Literal

from bisector.core.errors import InfraError, KernelFault
from bisector.core.figures import CacheStatus, Run
from bisector.core.setting import AUTO, Count, Meta, Option, Problem, Size
from bisector.core.shell import Shell, Step, run_steps
from bisector.core.trial import FaultKind, Stage
from bisector.core.units import size_text
from bisector.storage import dmcache, filling
from bisector.storage.disks import kernel_fault, kernel_fault_in_run
from bisector.storage.dmcache import SECTOR_BYTES
from bisector.storage.layer import Capacity, Counters, Feature, Files, Layer, Made, Phase, Since, Site
from bisector.storage.lvm import EXTENT_BYTES, TREE, VolumePart, check_parts, group_steps, volume_fault, whole_extents

_METADATA_LEAST_BYTES = 8 << 20  # lvmcache(7): cache metadata "with a minimum size of 8MiB"
# For each chunk: the mapping, its hint and the hint's key, and room for a transaction (_cache_min_metadata_size() in
# LVM's lib/metadata/cache_manip.c).
_METADATA_OF_CHUNK_BYTES, _TRANSACTION_BYTES = 44, 4 << 20
CHUNK_STEP_BYTES, _CHUNK_MOST_BYTES = 32 << 10, 1 << 30  # lvmcache(7), "dm-cache chunk size"
_MOST_CHUNKS = 1_000_000  # lvm.conf(5), allocation/cache_pool_max_chunks
NEWER_FORMAT = 2
_AS_LVM_CHOOSES = (AUTO, "as LVM chooses")
POLICY = "smq"  # of the fragment that every stack with a cache has
# LVM before 2.03.40 gives a cachevol this one, whatever lvconvert or lvchange is told: it looks for the policy in the
# segment of the cachevol, which has none (its a16979bc5, "cache: fix wrong segment used for cachevol policy name").
_CACHEVOL_POLICY = "mq"
_CLEANER_STACK = (
    f"such as lvmcache(ssd,hdd,cache_policy={dmcache.CLEANER},cache_mode=writethrough,cache_metadata_format=2)+ext4"
)
# lvmcache(7): the threshold "is at least 8 chunks in size"; the kernel's own default is 2048 sectors (cache.rst).
_THRESHOLD_LEAST_CHUNKS, _THRESHOLD_USUAL_BYTES = 8, 2048 * SECTOR_BYTES


class DmCacheMode(StrEnum):
    """dm-cache modes that lvmcache offers (lvmcache(7))."""

    WRITEBACK = "writeback"
    WRITETHROUGH = "writethrough"
    PASSTHROUGH = "passthrough"


class CacheVolume(StrEnum):
    """Whether blocks and metadata are two logical volumes or parts of one (lvmcache(7))."""

    POOL = "cachepool"
    VOLUME = "cachevol"


# Read as a table, so laid out as one.
# fmt: off
@dataclass(frozen=True, slots=True)
class CacheSettings:
    """The cache and its metadata in bytes, as LVM makes them; the policy is one of the kernel's.

    None of chunk size, metadata format and threshold is what LVM chooses by itself.
    """

    cache_bytes: Annotated[Size, Meta(ge=1 << 20), Option(
        "storage.cache_size", "64MiB", "cache on the fast disk, bytes", "4GiB", flag="--cache-size", metavar="SIZE")]
    metadata_bytes: Annotated[Size, Meta(ge=1 << 20), Option(
        "storage.metadata_size", "8MiB", "metadata of the cache, bytes", "50MiB")]
    mode: Annotated[DmCacheMode, Option("storage.cache_mode", "writeback", "dm-cache mode")]
    policy: Annotated[Literal["smq", "mq", "cleaner"], Option("storage.cache_policy", POLICY, "dm-cache policy")]
    chunk_bytes: Annotated[Annotated[Size, Meta(ge=CHUNK_STEP_BYTES)] | None, Option(
        "storage.cache_chunk_size", "64KiB", "block of dm-cache, bytes", absent=_AS_LVM_CHOOSES, before=AUTO)]
    metadata_format: Annotated[Count | None, Option(
        "storage.cache_metadata_format", 1,
        "format of dm-cache's metadata, 1 or 2; kernels before v4.11 read 1 alone", absent=_AS_LVM_CHOOSES,
        before=AUTO)]
    threshold_bytes: Annotated[Annotated[Size, Meta(ge=SECTOR_BYTES)] | None, Option(
        "storage.cache_migration_threshold", AUTO, "most that dm-cache moves at a time, bytes",
        absent=(AUTO, "1MiB, or 8 blocks where that is more"))]
    volume: Annotated[CacheVolume, Option(
        "storage.cache_volume", "cachepool",
        "whether blocks and metadata of the cache are two volumes (cachepool) or one (cachevol)")]
    # fmt: on

    @property
    def threshold_sectors(self) -> int | None:
        """The migration threshold to name; None where that is left to LVM."""
        if self.threshold_bytes is not None:
            return self.threshold_bytes // SECTOR_BYTES
        if self.chunk_bytes is None:
            return None
        return max(_THRESHOLD_USUAL_BYTES, _THRESHOLD_LEAST_CHUNKS * self.chunk_bytes) // SECTOR_BYTES

    @property
    def fills(self) -> bool:
        """Whether blocks ever go into the cache."""
        return dmcache.fills(self.mode, self.policy)

    @property
    def least_metadata_bytes(self) -> int:
        """The least that LVM takes for this many chunks."""
        chunks = self.cache_bytes // (self.chunk_bytes or 2 * CHUNK_STEP_BYTES)
        return max(_METADATA_LEAST_BYTES, _TRANSACTION_BYTES + chunks * _METADATA_OF_CHUNK_BYTES)


def chunk_problems(settings: CacheSettings) -> Iterator[Problem]:
    """Blocks that LVM does not make."""
    chunk, key = settings.chunk_bytes, "storage.cache_chunk_size"
    if chunk is None:
        return
    if chunk % CHUNK_STEP_BYTES or chunk > _CHUNK_MOST_BYTES:
        yield Problem((key,), "dm-cache takes multiples of 32KiB, up to 1GiB")
    elif settings.cache_bytes // chunk > _MOST_CHUNKS:
        yield Problem((key, "storage.cache_size"), f"LVM makes no cache of more than {_MOST_CHUNKS:,} blocks")
    elif (least := _THRESHOLD_LEAST_CHUNKS * chunk) > (settings.threshold_sectors or 0) * SECTOR_BYTES:
        yield Problem(("storage.cache_migration_threshold", key), f"LVM makes it {size_text(least)}, 8 blocks, or more")


def format_problems(settings: CacheSettings) -> Iterator[Problem]:
    """What LVM refuses, or makes in another way than it was told to."""
    format_key, policy_key, volume_key = (f"storage.cache_{name}" for name in ("metadata_format", "policy", "volume"))
    chosen, policy = settings.metadata_format, settings.policy
    is_cachevol, is_cleaner = settings.volume is CacheVolume.VOLUME, policy == dmcache.CLEANER
    named_mq = f"LVM gives a cachevol the policy {_CACHEVOL_POLICY}, whatever it is told"
    mq = f"cache_policy={_CACHEVOL_POLICY}, which is smq by another name since v4.6"
    for wrong, keys, sentence, hint in (
        (chosen not in (None, 1, NEWER_FORMAT), (format_key,), "dm-cache has formats 1 and 2", ""),
        (is_cachevol and policy != _CACHEVOL_POLICY, (policy_key, volume_key), named_mq, mq),
        (is_cachevol and chosen == 1, (format_key, volume_key), "LVM makes a cachevol with format 2 alone", ""),
        (is_cleaner and chosen == 1, (format_key, policy_key), "LVM gives the cleaner format 2", _CLEANER_STACK),
        (
            is_cleaner and settings.mode is not DmCacheMode.WRITETHROUGH,
            ("storage.cache_mode", policy_key),
            "LVM makes a cleaner's cache writethrough",
            _CLEANER_STACK,
        ),
    ):
        if wrong:
            yield Problem(keys, sentence, hint)


_GROUP = "bisector"
_STATUS_DEADLINE_S = 60.0


def _full(run: Run) -> Iterator[str]:
    """A cache with free blocks takes what it is given; only a full one has to choose."""
    before = run.cache_before
    if before is None or not dmcache.fills(before.mode, before.policy):
        return
    if before.used_blocks * 100 < filling.FULL_PERCENT * before.total_blocks:
        yield f"the cache was not full before the {run.name} run: {before.used_blocks} of {before.total_blocks} blocks"


class LvmCache(Layer[CacheSettings]):
    """The first run fills the cache, the second one shows which blocks it keeps."""

    name = "lvmcache"
    needs = ("cache device", "origin device")
    is_mapped = True
    settings = CacheSettings
    alias = "lvmcache(ssd,hdd)+ext4"
    fragments = ("storage-lvmcache",)
    suspects = ("drivers/md",)
    # lvconvert calls cache_check from thin-provisioning-tools on every cache it activates.
    tools = ("pvcreate", "vgcreate", "lvcreate", "lvconvert", "dmsetup", "cache_check")
    counts = dmcache.COUNTS
    phases = (Phase("empty", judged=False, fills=True, settling=dmcache.SETTLING), Phase("full", unready=_full))

    def extent(self, below: Sequence[Capacity], own: CacheSettings) -> Capacity:
        """As large as the origin."""
        _cache, origin = below
        return origin

    def fragments_for(self, own: CacheSettings) -> tuple[str, ...]:
        """Old trees have each policy but smq as an option of its own."""
        return self.fragments if own.policy == POLICY else (*self.fragments, "storage-lvmcache-policies")

    def features(self, own: CacheSettings) -> Iterator[Feature]:
        """The newer format of the metadata, where it is asked for by name."""
        if own.metadata_format == NEWER_FORMAT:
            since = Since("v4.11", "drivers/md/dm-cache-target.c", "metadata2")
            yield Feature("metadata of format 2", since, ("storage.cache_metadata_format",))

    def filled_by(self, own: CacheSettings) -> int:
        """As much as the cache has room for."""
        return own.cache_bytes if own.fills else 0

    def problems(self, below: Sequence[Capacity], own: CacheSettings, files: Files) -> Iterator[Problem]:
        """The cache has room on its device, and the files of a run fill it."""
        fast = below[0]
        yield from chunk_problems(own)
        yield from format_problems(own)
        if own.metadata_bytes < own.least_metadata_bytes:
            least = size_text(whole_extents(own.least_metadata_bytes))
            yield Problem(("storage.metadata_size",), f"LVM needs {least} or more for it")
        # One extent more: the volume group's own header comes first on the disk.
        needed = whole_extents(own.cache_bytes) + whole_extents(own.metadata_bytes) + EXTENT_BYTES
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

    def written(self, below: Sequence[Capacity], own: CacheSettings, data_bytes: int) -> tuple[int, ...]:
        """The whole cache, and all data on the origin."""
        return own.cache_bytes + own.metadata_bytes + EXTENT_BYTES, data_bytes + EXTENT_BYTES

    def make(self, site: Site[CacheSettings]) -> Made:
        """A cached logical volume; its device is checked against what device-mapper shows."""
        group, settings = f"{_GROUP}{site.suffix}", site.own
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
                        VolumePart("metadata", table.metadata, cache),
                        VolumePart("data", table.cache, cache),
                        VolumePart("origin", table.origin, origin),
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


def _status(device: str, shell: Shell) -> CacheStatus:
    (line,) = run_steps(shell, (Step(f"dmsetup status {device}", kernel_fault_in_run),), _STATUS_DEADLINE_S)
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
