"""dm-cache and dm-writecache by LVM's own commands (lvmcache(7)): a slow device with a cache on a fast one.

Every property that has a default, in LVM or in the kernel, is named in the commands and read back, since defaults
differ between versions. The default policy of dm-cache was mq before v4.2 and is smq since then. LVM makes its metadata
of format 2 if the kernel has it; kernels before v4.11 cannot read it (629d0a8a1a10, "dm cache metadata: add
"metadata2" feature").

Kernels have dm-writecache since v4.18 (48debafe4f2f, "dm: add writecache target"). They stop writing back when the
share of blocks in use is below the low watermark (Documentation/admin-guide/device-mapper/writecache.rst), so a cache
whose use has come near it counts as full.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal

from bisector.core.errors import InfraError
from bisector.core.figures import CacheStatus, Run
from bisector.core.metric import Metric, Unit
from bisector.core.setting import AUTO, Block, Meta, Option, Problem, Size
from bisector.core.shell import Step
from bisector.core.trial import FaultKind
from bisector.core.units import size_text
from bisector.storage.device_mapper import SECTOR_BYTES, LvmCacheLayer, arguments, whole_extents
from bisector.storage.disks import fault, kernel_fault, not_an_answer
from bisector.storage.layer import (
    FILLED,
    FILLED_BEFORE,
    FULL_PERCENT,
    HIT_RATIO,
    Capacity,
    Feature,
    Files,
    Phase,
    Since,
    not_full_before,
)

_METADATA_LEAST_BYTES = 8 << 20  # lvmcache(7): cache metadata "with a minimum size of 8MiB"
# For each chunk the mapping, its hint and the hint's key; and room for a transaction (_cache_min_metadata_size() in
# LVM's lib/metadata/cache_manip.c).
_METADATA_OF_CHUNK_BYTES, _TRANSACTION_BYTES = 44, 4 << 20
_CHUNK_STEP_BYTES, _CHUNK_MOST_BYTES = 32 << 10, 1 << 30  # lvmcache(7), "dm-cache chunk size"
_MOST_CHUNKS = 1_000_000  # lvm.conf(5), allocation/cache_pool_max_chunks
_NEWER_FORMAT = 2
_MODES = ("writeback", "writethrough", "passthrough")  # lvmcache(7)
_AS_LVM_CHOOSES = (AUTO, "as LVM chooses")
POLICY = "smq"  # the policy in the fragment that every stack with a cache has
# LVM before 2.03.40 gives a cachevol this policy, whatever lvconvert or lvchange is told: it looks for the policy in
# the segment of the cachevol, which has none (LVM's a16979bc5, "cache: fix wrong segment used for cachevol policy
# name").
_CACHEVOL_POLICY = "mq"
_CLEANER = "cleaner"
_CLEANER_STACK = (
    f"such as lvmcache(ssd,hdd,cache_policy={_CLEANER},cache_mode=writethrough,cache_metadata_format=2)+ext4"
)
# lvmcache(7): the threshold "is at least 8 chunks in size"; the kernel's own default is 2048 sectors (cache.rst).
_THRESHOLD_LEAST_CHUNKS, _THRESHOLD_USUAL_BYTES = 8, 2048 * SECTOR_BYTES
_THRESHOLD = "migration_threshold"
# smq spreads the blocks over its levels at the end of each CACHE_UPDATE_PERIOD, and at the end of each DEMOTE_PERIOD
# marks anew which blocks it may demote (drivers/md/dm-cache-policy-smq.c, end_cache_period() and update_sentinels()).
# In v6.1 both are 60 s; before dm-cache's rework in v4.12 they were 10 s and 60 s. The demonstration's fixed kernel
# becomes fast at that moment and not before. mq is the same policy since v4.6; before, it counted hits and not time.
SMQ_PERIOD_S = 60.0
_N = r"(\d{1,18})"  # integers on record have 63 bits; the kernel's counters have 32, or are block numbers
_WHOLE = re.compile(_N, re.ASCII)
# Sectors per metadata block, metadata blocks in use and in all, sectors per cache block, cache blocks in use and in
# all, read hits and misses, write hits and misses, demotions, promotions, dirty blocks.
_STATUS = re.compile(rf"{_N} {_N}/{_N} {_N} {_N}/{_N} {_N} {_N} {_N} {_N} {_N} {_N} {_N} (.*)", re.ASCII)

# The fields of the status of a dm-writecache before v5.15, and since then.
_OLD_FIELDS, _NEW_FIELDS = 4, 14
_MOST_PERCENT = 100
_LEFT_SHARE = 0.9  # of the low watermark, after the last batch that is written back
_QUOTED = 200
# The kernel's defaults for an SSD: after how many blocks and how many milliseconds written data is committed. And how
# many jobs may write back at a time: the default was unlimited until the middle of 2022, and since then follows the
# size of the memory, up to this number (MAX_WRITEBACK_JOBS in drivers/md/dm-writecache.c).
_FIXED = {"writeback_jobs": 65536, "autocommit_blocks": 65536, "autocommit_time": 1000}
_DATA_SHARE = 0.9  # of the volume, besides 16 bytes of metadata for each block (struct wc_memory_entry)
# Nothing else goes by a clock: watermarks decide when to write back, and max_age is off (drivers/md/dm-writecache.c).
_WRITECACHE_PERIOD_S = _FIXED["autocommit_time"] / 1000


# dm-cache


def _cache_arguments(line: str) -> list[str]:
    words = arguments(line, "cache")
    if words[:1] in (["Fail"], ["Error"]):
        raise fault(f"dm-cache gave up: its status is {words[0]!r}", line.strip(), kind=FaultKind.IO_ERROR)
    return words


def _counted_words(words: Iterator[str]) -> tuple[str, ...]:
    """A list of words that its length precedes; raises :class:`ValueError` and :class:`StopIteration`."""
    return tuple([next(words) for _ in range(int(next(words)))])


def parse_status(line: str) -> tuple[CacheStatus, int, int | None]:
    """Read ``dmsetup status DEVICE``: the status, the bytes of the metadata device, and the threshold in sectors.

    The threshold is None if the kernel does not print it. Raises :class:`KernelFault`, also if the metadata are
    read-only.
    """
    strange = not_an_answer("dmsetup status", line)
    if (found := _STATUS.fullmatch(" ".join(_cache_arguments(line)))) is None:
        raise strange
    *figures, rest = found.groups()
    metadata_sectors, _, metadata_blocks, _, used, total, *counts, dirty = map(int, figures)
    words = iter(rest.split())
    try:
        features, core = _counted_words(words), _counted_words(words)
        policy = next(words)
        _counted_words(words)
        threshold = int(core[core.index(_THRESHOLD) + 1]) if _THRESHOLD in core[:-1] else None
    except (ValueError, StopIteration) as error:
        raise strange from error
    # Kernels before v4.3 do not print needs_check, and kernels before v3.16 not even whether metadata are read-only.
    if not {"ro", "needs_check"}.isdisjoint(words):
        raise fault("the kernel made the cache's metadata read-only", line.strip(), kind=FaultKind.IO_ERROR)
    # writeback is the kernel's default, which it may leave out.
    mode = next((one for one in features if one in _MODES), _MODES[0])
    read_hits, read_misses, write_hits, write_misses, demotions, promotions = counts
    status = CacheStatus(
        policy, mode, used, total, dirty, read_hits, read_misses, write_hits, write_misses, demotions, promotions
    )
    return status, metadata_blocks * metadata_sectors * SECTOR_BYTES, threshold


def parse_table(line: str) -> tuple[Mapping[str, str], int, int]:
    """``major:minor`` of each part, sectors per block, and metadata's format; raises :class:`KernelFault`."""
    found = re.fullmatch(r"(\S+) (\S+) (\S+) ([1-9]\d{0,9}) (.*)", " ".join(_cache_arguments(line)), re.ASCII)
    try:
        features = _counted_words(iter(found[5].split())) if found else ()
    except (ValueError, StopIteration):
        found = None
    if found is None:
        raise not_an_answer("dmsetup table", line)
    parts = dict(zip(("metadata", "data", "origin"), found.groups(), strict=False))
    return parts, int(found[4]), _NEWER_FORMAT if "metadata2" in features else 1


def takes_blocks(mode: str, policy: str) -> bool:
    """Whether blocks ever enter the cache: in passthrough mode none do, and the policy cleaner only writes back."""
    return mode != "passthrough" and policy != _CLEANER


def counted(before: CacheStatus | None, after: CacheStatus | None) -> Iterator[tuple[str, float]]:
    """Yield the metrics of a run, as name and value; dm-cache itself counts since the cache was made."""
    if before is None or after is None:
        return
    hits = after.read_hits + after.write_hits - before.read_hits - before.write_hits
    misses = after.read_misses + after.write_misses - before.read_misses - before.write_misses
    if hits + misses > 0:
        yield HIT_RATIO, 100 * hits / (hits + misses)
    yield "cache.promotions", float(after.promotions - before.promotions)
    yield "cache.demotions", float(after.demotions - before.demotions)
    yield "cache.dirty_blocks", float(after.dirty_blocks)
    if takes_blocks(after.mode, after.policy) and after.total_blocks > 0:
        yield FILLED, 100 * after.used_blocks / after.total_blocks


def _not_full(run: Run) -> Iterator[str]:
    """Yield why the cache was not full before the run: only a full cache has to choose which blocks it keeps."""
    before = run.cache_before
    if before is None or not takes_blocks(before.mode, before.policy):
        return
    if before.used_blocks * 100 < FULL_PERCENT * before.total_blocks:
        yield f"the cache was not full before the {run.name} run: {before.used_blocks} of {before.total_blocks} blocks"


@dataclass(frozen=True, slots=True)
class LvmCache(LvmCacheLayer):
    """A dm-cache: the first run fills it, the second one shows which blocks it keeps."""

    name = "lvmcache"
    group = "bisector"
    size_keys = ("storage.cache_size", "storage.metadata_size")
    takes = "the cache and its metadata need"
    alias = "lvmcache(ssd,hdd)+ext4"
    fragments = ("storage-lvmcache",)
    suspects = ("drivers/md",)
    # lvconvert calls cache_check from thin-provisioning-tools for each cache that it activates.
    tools = ("pvcreate", "vgcreate", "lvcreate", "lvconvert", "dmsetup", "cache_check")
    counts = (HIT_RATIO, "cache.promotions", "cache.demotions", "cache.dirty_blocks", FILLED)
    phases = (Phase("empty", judged=False, fills=True, period_s=SMQ_PERIOD_S), Phase("full", unready=_not_full))

    # The settings, laid out as a table.
    # fmt: off
    cache_bytes: Annotated[Size, Meta(ge=1 << 20), Option(
        "storage.cache_size", "64MiB", "cache on the fast disk, bytes", "4GiB", flag="--cache-size", metavar="SIZE")]
    metadata_bytes: Annotated[Size, Meta(ge=1 << 20), Option(
        "storage.metadata_size", "8MiB", "metadata of the cache, bytes", "50MiB")]
    mode: Annotated[Literal["writeback", "writethrough", "passthrough"], Option(
        "storage.cache_mode", "writeback", "dm-cache mode")]
    policy: Annotated[Literal["smq", "mq", "cleaner"], Option("storage.cache_policy", POLICY, "dm-cache policy")]
    chunk_bytes: Annotated[Annotated[Size, Meta(ge=_CHUNK_STEP_BYTES)] | None, Option(
        "storage.cache_chunk_size", "64KiB", "block of dm-cache, bytes", absent=_AS_LVM_CHOOSES)]
    metadata_format: Annotated[Literal[1, 2] | None, Option(
        "storage.cache_metadata_format", 1,
        "format of dm-cache's metadata, 1 or 2; kernels before v4.11 read 1 alone", absent=_AS_LVM_CHOOSES)]
    threshold_bytes: Annotated[Annotated[Size, Meta(ge=SECTOR_BYTES)] | None, Option(
        "storage.cache_migration_threshold", AUTO, "most that dm-cache moves at a time, bytes",
        absent=(AUTO, "1MiB, or 8 blocks where that is more"))]
    volume: Annotated[Literal["cachepool", "cachevol"], Option(
        "storage.cache_volume", "cachepool",
        "whether blocks and metadata of the cache are two volumes (cachepool) or one (cachevol)")]
    # fmt: on

    @property
    def threshold_sectors(self) -> int | None:
        """The migration threshold in sectors; None if LVM chooses it."""
        if self.threshold_bytes is not None:
            return self.threshold_bytes // SECTOR_BYTES
        if self.chunk_bytes is None:
            return None
        return max(_THRESHOLD_USUAL_BYTES, _THRESHOLD_LEAST_CHUNKS * self.chunk_bytes) // SECTOR_BYTES

    @property
    def least_metadata_bytes(self) -> int:
        """The least metadata that LVM takes for this number of chunks."""
        chunks = self.cache_bytes // (self.chunk_bytes or 2 * _CHUNK_STEP_BYTES)
        return max(_METADATA_LEAST_BYTES, _TRANSACTION_BYTES + chunks * _METADATA_OF_CHUNK_BYTES)

    def fragments_for(self) -> tuple[str, ...]:
        """The layer's fragments; old trees have an option for each policy, so policies other than smq need another."""
        return self.fragments if self.policy == POLICY else (*self.fragments, "storage-lvmcache-policies")

    def features(self) -> Iterator[Feature]:
        """Yield metadata of format 2, if the settings ask for it."""
        if self.metadata_format == _NEWER_FORMAT:
            since = Since("v4.11", "drivers/md/dm-cache-target.c", "metadata2")
            yield Feature("metadata of format 2", since, ("storage.cache_metadata_format",))

    def filled_by(self) -> int:
        """The bytes of the cache; 0 if no blocks enter it."""
        return self.cache_bytes if takes_blocks(self.mode, self.policy) else 0

    def volume_bytes(self) -> int:
        """The size of cache and metadata, whether in one volume or in two."""
        return whole_extents(self.cache_bytes) + whole_extents(self.metadata_bytes)

    def problems(self, below: Sequence[Capacity], files: Files) -> Iterator[Problem]:
        """Yield also what LVM refuses, or makes in another way than it is told to."""
        chunk, is_format_1 = self.chunk_bytes or _CHUNK_STEP_BYTES, self.metadata_format == 1
        least_threshold = _THRESHOLD_LEAST_CHUNKS * (self.chunk_bytes or 0)
        is_cachevol, is_cleaner = self.volume == "cachevol", self.policy == _CLEANER
        mq = f"cache_policy={_CACHEVOL_POLICY}, which is smq by another name since v4.6"
        # fmt: off
        for wrong, keys, sentence, hint in (
            (chunk % _CHUNK_STEP_BYTES or chunk > _CHUNK_MOST_BYTES,
             "chunk_size", "dm-cache takes multiples of 32KiB, up to 1GiB", ""),
            (self.chunk_bytes is not None and self.cache_bytes // chunk > _MOST_CHUNKS,
             "chunk_size size", f"LVM makes no cache of more than {_MOST_CHUNKS:,} blocks", ""),
            (self.chunk_bytes is not None and least_threshold > (self.threshold_sectors or 0) * SECTOR_BYTES,
             "migration_threshold chunk_size", f"LVM makes it {size_text(least_threshold)}, 8 blocks, or more", ""),
            (is_cachevol and self.policy != _CACHEVOL_POLICY,
             "policy volume", f"LVM gives a cachevol the policy {_CACHEVOL_POLICY}, whatever it is told", mq),
            (is_cachevol and is_format_1, "metadata_format volume", "LVM makes a cachevol with format 2 alone", ""),
            (is_cleaner and is_format_1, "metadata_format policy", "LVM gives the cleaner format 2", _CLEANER_STACK),
            (is_cleaner and self.mode != "writethrough",
             "mode policy", "LVM makes a cleaner's cache writethrough", _CLEANER_STACK),
        ):
            if wrong:
                yield Problem(tuple(f"storage.cache_{name}" for name in keys.split()), sentence, hint)
        # fmt: on
        if self.metadata_bytes < self.least_metadata_bytes:
            least = size_text(whole_extents(self.least_metadata_bytes))
            yield Problem(("storage.metadata_size",), f"LVM needs {least} or more for it")
        yield from LvmCacheLayer.problems(self, below, files)

    def volumes(self, group: str, fast: str, slow: str) -> Iterator[Step]:
        """Yield the steps in the order that a pool needs: volumes on the fast device, the origin, then the cache."""
        chunk = "" if self.chunk_bytes is None else f"--chunksize {self.chunk_bytes}b "
        rest = f"--cachepolicy {self.policy} "
        if self.metadata_format is not None:
            rest += f"--cachemetadataformat {self.metadata_format} "
        if self.threshold_sectors is not None:
            rest += f"--cachesettings {_THRESHOLD}={self.threshold_sectors} "
        data, origin = f"{group}/data", Step(f"lvcreate -y -n origin -l 100%PVS {group} {slow}", self.volume_fault)
        if self.volume == "cachevol":
            yield Step(f"lvcreate -y -n data -L {self.volume_bytes()}b {group} {fast}", self.volume_fault)
            yield origin
            yield Step(
                f"lvconvert -y --type cache --cachevol {data} --cachemode {self.mode} {chunk}"
                f"--poolmetadatasize {self.metadata_bytes}b {rest}{group}/origin",
                kernel_fault,
            )
            return
        for name, size_bytes in (("meta", self.metadata_bytes), ("data", self.cache_bytes)):
            yield Step(f"lvcreate -y -n {name} -L {size_bytes}b {group} {fast}", self.volume_fault)
        yield origin
        # No spare volume for metadata: it would use room on the fast device, and nothing here outlives the trial.
        yield Step(
            f"lvconvert -y --type cache-pool --cachemode {self.mode} {chunk}--poolmetadataspare n "
            f"--poolmetadata {group}/meta {data}",
            kernel_fault,
        )
        yield Step(f"lvconvert -y --type cache --cachepool {data} {rest}{group}/origin", kernel_fault)

    def read_status(self, line: str) -> CacheStatus:
        """The status; see :func:`parse_status`."""
        return parse_status(line)[0]

    def counted(self, before: CacheStatus, after: CacheStatus) -> Iterator[tuple[str, float]]:
        """Yield the metrics of a run; see :func:`counted`."""
        return counted(before, after)

    def check_made(self, table_line: str, status_line: str) -> Mapping[str, str]:
        """Check the properties of the cache and the sizes of its volumes; see :meth:`LvmCacheLayer.check_made`.

        LVM asks for policy, mode and blocks by name, so other ones are the kernel's fault. No kernel has a part in the
        sizes of LVM's volumes.
        """
        parts, block_sectors, metadata_format = parse_table(table_line)
        status, metadata_bytes, threshold = parse_status(status_line)
        found, asked = [status.policy, status.mode], [str(self.policy), str(self.mode)]
        # Properties that were named; the threshold is left out if the kernel does not print it.
        sectors = self.threshold_sectors if threshold is not None else None
        for name, wanted, has in (
            ("blocks of {} sectors", self.chunk_bytes and self.chunk_bytes // SECTOR_BYTES, block_sectors),
            ("metadata {}", self.metadata_format, metadata_format),
            (f"{_THRESHOLD} {{}}", sectors, threshold),
        ):
            if wanted is not None and wanted != has:
                asked.append(name.format(wanted))
                found.append(name.format(has))
        if found != asked:
            told = f"dmsetup: the cache is {', '.join(found)}; asked for {', '.join(asked)}"
            raise fault(told, table_line.strip(), status_line.strip())
        block_bytes = block_sectors * SECTOR_BYTES
        cache_bytes = whole_extents(self.cache_bytes) // block_bytes * block_bytes
        for what, size_bytes, has_bytes in (
            ("cache", cache_bytes, status.total_blocks * block_bytes),
            ("metadata", whole_extents(self.metadata_bytes), metadata_bytes),
        ):
            if has_bytes != size_bytes:
                raise InfraError(f"LVM made {has_bytes:,} bytes for the {what} of dm-cache instead of {size_bytes:,}")
        return parts


# dm-writecache


@dataclass(frozen=True, slots=True)
class WritecacheStatus:
    """``dmsetup status`` of a dm-writecache: blocks in all, free blocks, and blocks being written back.

    ``counts`` are reads, read hits, writes, and writes around the cache; empty before v5.15 (e3a35d03407c, "dm
    writecache: add event counters"). From v5.15 to the middle of 2022 they count requests, since then blocks
    (2c6e755b49d2, b2676e1482af).
    """

    blocks: int
    free: int
    writeback: int
    counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LvmWritecache(LvmCacheLayer):
    """A dm-writecache: the first run fills it until it is written back, the second one is judged."""

    name = "lvmwritecache"
    group = "bisectorw"
    size_keys = ("storage.lvmwritecache.cache_size",)
    filled = "the cache up to its low watermark"
    alias = "lvmwritecache(ssd,hdd)+ext4"
    fragments = ("storage-lvmwritecache",)
    suspects = ("drivers/md/dm-writecache.c", "drivers/md/dm-io-tracker.h", "drivers/md")
    tools = ("pvcreate", "vgcreate", "lvcreate", "lvconvert", "dmsetup")
    metrics = (
        Metric("cache.blocks", Unit.COUNT, None, "blocks of the cache"),
        Metric("cache.free_blocks", Unit.COUNT, None, "blocks of the cache that were free at the end"),
        Metric("cache.writeback_blocks", Unit.COUNT, None, "blocks that were being written back at the end"),
    )
    phases = (
        Phase("empty", judged=False, fills=True, period_s=_WRITECACHE_PERIOD_S),
        Phase("full", unready=not_full_before),
    )

    # The settings, laid out as a table.
    # fmt: off
    cache_bytes: Annotated[Size, Meta(ge=1 << 20), Option(
        "storage.lvmwritecache.cache_size", "64MiB",
        "dm-writecache on the fast disk, with its metadata, bytes", "4GiB")]
    high_percent: Annotated[int, Meta(ge=1, le=_MOST_PERCENT), Option(
        "storage.lvmwritecache.high_watermark", 50,
        "share of dm-writecache's blocks in use from which on it writes back, percent")]
    low_percent: Annotated[int, Meta(ge=1, le=_MOST_PERCENT), Option(
        "storage.lvmwritecache.low_watermark", 45,
        "share of dm-writecache's blocks in use below which it stops writing back, percent")]
    block_bytes: Annotated[Block, Option(  # lvmcache(7), "dm-writecache block size"
        "storage.lvmwritecache.block_size", 4096, "block of dm-writecache, bytes")]
    # fmt: on

    @property
    def named(self) -> Mapping[str, int]:
        """The arguments of the target by name, without the size of a block."""
        return {"high_watermark": self.high_percent, "low_watermark": self.low_percent, **_FIXED}

    def filled_by(self) -> int:
        """The bytes up to the low watermark; anything above it is written back."""
        return -(-self.cache_bytes * self.low_percent // _MOST_PERCENT)

    def volume_bytes(self) -> int:
        """The size of the one volume, which includes the metadata."""
        return whole_extents(self.cache_bytes)

    def problems(self, below: Sequence[Capacity], files: Files) -> Iterator[Problem]:
        """Yield also watermarks that the target does not take."""
        if self.low_percent > self.high_percent:
            keys = ("storage.lvmwritecache.low_watermark", "storage.lvmwritecache.high_watermark")
            yield Problem(keys, "the low one is at most the high one")
        yield from LvmCacheLayer.problems(self, below, files)

    def volumes(self, group: str, fast: str, slow: str) -> Iterator[Step]:
        """Yield the steps. LVM attaches only an inactive volume, and cannot wipe it: lvconvert formats it."""
        yield Step(f"lvcreate -y -an -Zn -n data -L {self.cache_bytes}b {group} {fast}", self.volume_fault)
        yield Step(f"lvcreate -y -n origin -l 100%PVS {group} {slow}", self.volume_fault)
        named = " ".join(f"{name}={value}" for name, value in {"block_size": self.block_bytes, **self.named}.items())
        yield Step(
            f"lvconvert -y --type writecache --cachevol {group}/data --cachesettings '{named}' {group}/origin",
            kernel_fault,
        )

    def read_status(self, line: str) -> WritecacheStatus:
        """The status; raises :class:`KernelFault` for any other line, and if the target met an error."""
        words = arguments(line, "writecache")
        if len(words) not in (_OLD_FIELDS, _NEW_FIELDS) or not all(map(_WHOLE.fullmatch, words[1:])):
            raise not_an_answer("dmsetup status", line)
        if words[0] != "0":
            raise fault(f"dm-writecache met error {words[0][:_QUOTED]}", line.strip(), kind=FaultKind.IO_ERROR)
        blocks, free, writeback, *more = map(int, words[1:])
        reads_hits_writes, around = more[:3], more[5:6]  # between them are hits of uncommitted and committed writes
        return WritecacheStatus(blocks, free, writeback, (*reads_hits_writes, *around))

    def counted(self, before: WritecacheStatus, after: WritecacheStatus) -> Iterator[tuple[str, float]]:
        """Yield the metrics of a run; the target itself counts since the cache was made."""
        for name, status in ((FILLED_BEFORE, before), (FILLED, after)):
            # 100 % is what remains in use after writing back down to the low watermark. The kernel writes back in
            # batches, and the last one goes below it: to 42.5 % of a small cache, for example, instead of 45 %.
            used = _MOST_PERCENT * (status.blocks - status.free) / max(status.blocks, 1)
            yield name, float(min(_MOST_PERCENT, _MOST_PERCENT * used / (self.low_percent * _LEFT_SHARE)))
        yield "cache.blocks", float(after.blocks)
        yield "cache.free_blocks", float(after.free)
        yield "cache.writeback_blocks", float(after.writeback)
        # All blocks in the cache are still to be written back.
        yield "cache.dirty_blocks", float(after.blocks - after.free)
        counts = (before.counts, after.counts)
        if all(counts):
            reads, hits, writes, around = (last - first for first, last in zip(*counts, strict=True))
            if reads + writes > 0:
                yield HIT_RATIO, 100 * (hits + writes - around) / (reads + writes)

    def check_made(self, table_line: str, status_line: str) -> Mapping[str, str]:
        """Check the arguments of the target and the size of the volume; see :meth:`LvmCacheLayer.check_made`.

        Other arguments than LVM asked for are the kernel's fault; LVM decides the size of the volume. v4.18 computes
        watermarks and times back from blocks and ticks, so each can be off by one.
        """
        asked = {"block_size": self.block_bytes, **self.named}
        try:
            _kind, origin, cache, block, count, *rest = arguments(table_line, "writecache")
            words = [*pairwise((*rest[: int(count)], ""))]
        except ValueError as error:
            raise not_an_answer("dmsetup table", table_line) from error
        given = {"block_size": block} | {name: value for name, value in words if not _WHOLE.fullmatch(name)}
        found = {name: int(value) if _WHOLE.fullmatch(value := given.get(name, "")) else None for name in asked}
        others = [name for name in given if name not in asked]  # some have a number, others such as cleaner have none
        near = all(value is not None and abs(value - asked[name]) <= 1 for name, value in found.items())
        if not near or others or found["block_size"] != self.block_bytes:
            told, wanted = (", ".join(f"{name} {value}" for name, value in one.items()) for one in (found, asked))
            has = ", ".join((told, *others))[:_QUOTED]
            raise fault(f"dmsetup: the writecache has {has}; asked for {wanted}", table_line.strip())
        whole = whole_extents(self.cache_bytes)
        data_bytes = self.read_status(status_line).blocks * self.block_bytes
        if not _DATA_SHARE * whole <= data_bytes <= whole:
            raise InfraError(f"dm-writecache has {data_bytes:,} bytes of blocks in a volume that should have {whole:,}")
        return {"data": cache, "origin": origin}
