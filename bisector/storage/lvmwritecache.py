"""dm-writecache by LVM's own commands (lvmcache(7)): writes go to a fast device first.

It caches no reads, except of blocks that are not written back yet. Kernels have it since v4.18 (48debafe4f2f, "dm: add
writecache target"). They start to write back when the share of blocks in use is above the high watermark, and stop when
it is below the low watermark (Documentation/admin-guide/device-mapper/writecache.rst). So a cache whose use has come
near the low watermark counts as full.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from bisector.core.errors import InfraError
from bisector.core.metric import Metric, Unit
from bisector.core.setting import Block, Meta, Option, Problem, Size
from bisector.core.shell import Step
from bisector.storage.device_mapper import LvmCacheLayer, MapperUnreadable, arguments, quoted, whole_extents
from bisector.storage.disks import fault, kernel_fault
from bisector.storage.filling import FILLED, FILLED_BEFORE, Settling, not_full_before
from bisector.storage.layer import Capacity, Files, Phase

_OLD_FIELDS, _NEW_FIELDS = 4, 14
_MOST_PERCENT = 100
_LEFT_SHARE = 0.9  # of the low watermark, after the last batch that is written back
_GREATEST = 2**63  # integers on record are below this
_QUOTED = 200
# The kernel's defaults for an SSD: after how many blocks and how many milliseconds written data is committed. And how
# many jobs may write back at a time: the default was unlimited until the middle of 2022, and since then follows the
# size of the memory, up to this number (MAX_WRITEBACK_JOBS in drivers/md/dm-writecache.c).
_FIXED = {"writeback_jobs": 65536, "autocommit_blocks": 65536, "autocommit_time": 1000}
_DATA_SHARE = 0.9  # of the volume, besides 16 bytes of metadata for each block (struct wc_memory_entry)
# Nothing else goes by a clock: watermarks decide when to write back, and max_age is off (drivers/md/dm-writecache.c).
_SETTLING = Settling(_FIXED["autocommit_time"] / 1000)


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


def parse_status(line: str) -> WritecacheStatus:
    """Read ``dmsetup status DEVICE``; raises :class:`MapperUnreadable`, also if the target met an error."""
    words = arguments(line, "writecache")
    if len(words) not in (_OLD_FIELDS, _NEW_FIELDS) or not all(map(_is_whole, words[1:])):
        raise MapperUnreadable(f"not a dm-writecache status line: {quoted(line)}")
    if words[0] != "0":
        raise MapperUnreadable(f"dm-writecache met error {words[0][:_QUOTED]}")
    blocks, free, writeback, *more = map(int, words[1:])
    reads_hits_writes, around = more[:3], more[5:6]  # the two between them are hits of uncommitted and committed writes
    return WritecacheStatus(blocks, free, writeback, (*reads_hits_writes, *around))


def _is_whole(word: str) -> bool:
    return word.isascii() and word.isdecimal() and int(word) < _GREATEST


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
    phases = (Phase("empty", judged=False, fills=True, settling=_SETTLING), Phase("full", unready=not_full_before))

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
        """See :func:`parse_status`."""
        return parse_status(line)

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
                yield "cache.hit_ratio", 100 * (hits + writes - around) / (reads + writes)

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
            raise MapperUnreadable(f"not a dm-writecache table line: {quoted(table_line)}") from error
        given = {"block_size": block} | {name: value for name, value in words if not _is_whole(name)}
        found = {name: int(value) if _is_whole(value := given.get(name, "")) else None for name in asked}
        others = [name for name in given if name not in asked]  # some have a number, others such as cleaner have none
        near = all(value is not None and abs(value - asked[name]) <= 1 for name, value in found.items())
        if not near or others or found["block_size"] != self.block_bytes:
            told, wanted = (", ".join(f"{name} {value}" for name, value in one.items()) for one in (found, asked))
            has = ", ".join((told, *others))[:_QUOTED]
            raise fault(f"dmsetup: the writecache has {has}; asked for {wanted}", table_line.strip())
        whole, data_bytes = whole_extents(self.cache_bytes), parse_status(status_line).blocks * self.block_bytes
        if not _DATA_SHARE * whole <= data_bytes <= whole:
            raise InfraError(f"dm-writecache has {data_bytes:,} bytes of blocks in a volume that should have {whole:,}")
        return {"data": cache, "origin": origin}
