"""dm-writecache by LVM's own commands (lvmcache(7)): what is written goes to a fast device first.

It caches no reads, but for those of blocks that are still to be written back. Kernels have it since v4.18
(48debafe4f2f, "dm: add writecache target"). They start to write back when more of the blocks than the high watermark
says are in use, and stop when fewer than the low one says are (Documentation/admin-guide/device-mapper/writecache.rst).
So a cache whose use has come near the low watermark counts as full.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, zip_longest
from typing import Annotated

from bisector.core.errors import InfraError, KernelFault
from bisector.core.metric import Metric, Unit
from bisector.core.setting import Count, Meta, Option, Problem, Size
from bisector.core.shell import Shell, Step, run_steps
from bisector.core.trial import FaultKind, Stage
from bisector.core.units import size_text
from bisector.storage.disks import kernel_fault, kernel_fault_in_run
from bisector.storage.dmcache import CacheUnusable
from bisector.storage.filling import FILLED, FILLED_BEFORE, Settling, not_full_before
from bisector.storage.layer import Capacity, Counters, Files, Layer, Made, Phase, Site
from bisector.storage.lvm import EXTENT_BYTES, TREE, VolumePart, check_parts, group_steps, volume_fault, whole_extents

_GROUP = "bisectorw"
_STATUS_DEADLINE_S = 60.0
_OLD_FIELDS, _NEW_FIELDS = 4, 14
_MOST_PERCENT = 100
_LEFT_SHARE = 0.9  # of the low watermark, after the last batch that is written back
_GREATEST = 2**63  # of an integer that the record holds
_LONGEST_LINE, _QUOTED = 4096, 200
_BLOCK_SIZES = (512, 4096)  # lvmcache(7), "dm-writecache block size"
# The kernel's own for an SSD: when what was written is made to last, in blocks and in milliseconds. And how many pieces
# may be written back at a time: without a limit until the middle of 2022, by the size of the memory since then, and at
# most so many (MAX_WRITEBACK_JOBS in drivers/md/dm-writecache.c).
_FIXED = {"writeback_jobs": 65536, "autocommit_blocks": 65536, "autocommit_time": 1000}
_DATA_SHARE = 0.9  # of the volume, beside 16 bytes of metadata for each block (struct wc_memory_entry)
# Nothing else goes by a clock: it writes back by the watermarks, and max_age is off (drivers/md/dm-writecache.c).
_SETTLING = Settling(_FIXED["autocommit_time"] / 1000)


# Read as a table, so laid out as one.
# fmt: off
@dataclass(frozen=True, slots=True)
class WritecacheSettings:
    """The cache and its block in bytes, and the watermarks in percent of its blocks."""

    cache_bytes: Annotated[Size, Meta(ge=1 << 20), Option(
        "storage.lvmwritecache.cache_size", "64MiB",
        "dm-writecache on the fast disk, with its metadata, bytes", "4GiB")]
    high_percent: Annotated[Count, Option(
        "storage.lvmwritecache.high_watermark", 50,
        "share of dm-writecache's blocks in use from which on it writes back, percent")]
    low_percent: Annotated[Count, Option(
        "storage.lvmwritecache.low_watermark", 45,
        "share of dm-writecache's blocks in use below which it stops writing back, percent")]
    block_bytes: Annotated[Size, Meta(ge=512), Option(
        "storage.lvmwritecache.block_size", "4096", "block of dm-writecache, 512 or 4096 bytes")]
    # fmt: on


@dataclass(frozen=True, slots=True)
class WritecacheStatus:
    """``dmsetup status`` of a dm-writecache.

    Kernels before v5.15 have the first three figures alone (e3a35d03407c, "dm writecache: add event counters"). From
    v5.15 to the middle of 2022 the counters were of requests, and since then they are of blocks (2c6e755b49d2,
    b2676e1482af).
    """

    blocks: int
    free: int
    writeback: int
    reads: int | None = None
    read_hits: int | None = None
    writes: int | None = None
    writes_around: int | None = None


@dataclass(frozen=True, slots=True)
class WritecacheTable:
    """A table line: ``major:minor`` of the devices, the block, and the arguments that were given by name.

    ``flags`` are those without a number, such as ``cleaner``.
    """

    origin: str
    cache: str
    block_bytes: int
    named: Mapping[str, int]
    flags: tuple[str, ...] = ()


def parse_status(line: str) -> WritecacheStatus:
    """Read ``dmsetup status DEVICE``; raises :class:`CacheUnusable`, also where the target met an error."""
    words = _arguments(line)
    if len(words) not in (_OLD_FIELDS, _NEW_FIELDS) or not all(map(_is_whole, words[1:])):
        raise CacheUnusable(f"not a dm-writecache status line: {_quoted(line)}")
    if words[0] != "0":
        raise CacheUnusable(f"dm-writecache met error {words[0][:_QUOTED]}")
    blocks, free, writeback, *more = map(int, words[1:])
    if not more:
        return WritecacheStatus(blocks, free, writeback)
    reads, read_hits, writes, _uncommitted, _committed, around, *_ = more
    return WritecacheStatus(blocks, free, writeback, reads, read_hits, writes, around)


def parse_table(line: str) -> WritecacheTable:
    """Read ``dmsetup table DEVICE``; raises :class:`CacheUnusable`."""
    words = _arguments(line)
    try:
        _kind, origin, cache, block, count, *rest = words
        arguments = rest[: int(count)]
        found = WritecacheTable(origin, cache, int(block), _named(arguments), tuple(_flags(arguments)))
    except ValueError as error:
        raise CacheUnusable(f"not a dm-writecache table line: {_quoted(line)}") from error
    return found


def counted(low_percent: int, before: WritecacheStatus, after: WritecacheStatus) -> Iterator[tuple[str, float]]:
    """The values of metrics over a run; the target itself counts from the making of the cache on."""
    yield FILLED_BEFORE, _filled(before, low_percent)
    yield FILLED, _filled(after, low_percent)
    yield "cache.blocks", float(after.blocks)
    yield "cache.free_blocks", float(after.free)
    yield "cache.writeback_blocks", float(after.writeback)
    # Whatever is in the cache is still to be written back.
    yield "cache.dirty_blocks", float(after.blocks - after.free)
    reads, hits, writes, around = (_gone_up(before, after, name) for name in _COUNTERS)
    if reads is not None and hits is not None and writes is not None and around is not None and reads + writes > 0:
        yield "cache.hit_ratio", 100 * (hits + writes - around) / (reads + writes)


class LvmWritecache(Layer[WritecacheSettings]):
    """The first run fills the cache up to where it is written back, the second one is judged."""

    name = "lvmwritecache"
    needs = ("cache device", "origin device")
    is_mapped = True
    settings = WritecacheSettings
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
        Phase("empty", judged=False, fills=True, settling=_SETTLING),
        Phase("full", unready=not_full_before),
    )

    def extent(self, below: Sequence[Capacity], own: WritecacheSettings) -> Capacity:
        """As large as the origin."""
        _cache, origin = below
        return origin

    def filled_by(self, own: WritecacheSettings) -> int:
        """Up to the low watermark: what is above is written back."""
        return -(-own.cache_bytes * own.low_percent // _MOST_PERCENT)

    def problems(self, below: Sequence[Capacity], own: WritecacheSettings, files: Files) -> Iterator[Problem]:
        """The cache has room on its device, and what a run writes fills it."""
        fast = below[0]
        if not own.low_percent <= own.high_percent <= _MOST_PERCENT:
            keys = ("storage.lvmwritecache.low_watermark", "storage.lvmwritecache.high_watermark")
            yield Problem(keys, "the low one is at most the high one, and that at most 100")
        if own.block_bytes not in _BLOCK_SIZES:
            yield Problem(("storage.lvmwritecache.block_size",), "LVM makes blocks of 512 or 4096 bytes")
        # One extent more: the volume group's own header comes first on the disk.
        needed = whole_extents(own.cache_bytes) + EXTENT_BYTES
        if fast.size_bytes is not None and needed > fast.size_bytes:
            yield Problem(
                ("storage.lvmwritecache.cache_size", *fast.keys),
                f"the cache needs {size_text(needed)} on {fast.what}, which has {size_text(fast.size_bytes)}",
            )
        if files.total_bytes < (wanted := self.filled_by(own)):
            yield Problem(
                (*files.keys, "storage.lvmwritecache.cache_size"),
                f"{files.sentence}, which never fills the cache up to its low watermark; "
                "the run that tells is the one with a full cache",
                files.to_fill(wanted),
            )

    def written(self, below: Sequence[Capacity], own: WritecacheSettings, data_bytes: int) -> tuple[int, ...]:
        """The whole cache, and all data on the origin."""
        return own.cache_bytes + EXTENT_BYTES, data_bytes + EXTENT_BYTES

    def make(self, site: Site[WritecacheSettings]) -> Made:
        """A logical volume with a writecache; its device is checked against what device-mapper shows."""
        group, settings = f"{_GROUP}{site.suffix}", site.own
        device = f"{group}-origin"  # device-mapper's name of the logical volume
        fast, slow = site.below

        def verify(answers: Sequence[str], numbers: Mapping[str, str]) -> None:
            table_line, status_line, *tree = answers
            cache, origin = (frozenset(numbers[leaf] for leaf in one.leaves) for one in site.below)
            try:
                status = parse_status(status_line)
                table = parse_table(table_line)
                _check_made(settings, table, table_line)
                _check_size(settings, status)
                check_parts((VolumePart("data", table.cache, cache), VolumePart("origin", table.origin, origin)), tree)
            except CacheUnusable as error:
                raise KernelFault(Stage.STORAGE, FaultKind.COMMAND_FAILED, str(error)) from error

        fault = volume_fault("storage.lvmwritecache.cache_size")
        named = {"block_size": settings.block_bytes, **_named_by(settings)}
        arguments = " ".join(f"{name}={value}" for name, value in named.items())
        steps = (
            *group_steps(group, fast.path, slow.path),
            # LVM attaches an inactive one alone, and cannot wipe what is not active: lvconvert formats it.
            Step(f"lvcreate -y -an -Zn -n data -L {settings.cache_bytes}b {group} {fast.path}", fault),
            Step(f"lvcreate -y -n origin -l 100%PVS {group} {slow.path}", fault),
            Step(
                f"lvconvert -y --type writecache --cachevol {group}/data --cachesettings '{arguments}' {group}/origin",
                kernel_fault,
            ),
        )
        checks = (Step(f"dmsetup table {device}", kernel_fault), Step(f"dmsetup status {device}", kernel_fault), *TREE)
        counters = Counters(partial(_status, device), partial(counted, settings.low_percent))
        return Made(f"/dev/{group}/origin", steps, checks, verify, (*fast.leaves, *slow.leaves), counters)


LVMWRITECACHE = LvmWritecache()

_COUNTERS = ("reads", "read_hits", "writes", "writes_around")


def _arguments(line: str) -> list[str]:
    """The words after ``START LENGTH writecache``."""
    if len(line) > _LONGEST_LINE:
        raise CacheUnusable(f"a line of {len(line):,} characters about a cache: {_quoted(line)}")
    words = line.split()
    if "writecache" not in words[:4]:
        raise CacheUnusable(f"not a writecache device: {_quoted(line)}")
    return words[words.index("writecache") + 1 :]


def _quoted(line: str) -> str:
    return repr(line.strip()[:_QUOTED])


def _is_whole(word: str) -> bool:
    return word.isascii() and word.isdecimal() and int(word) < _GREATEST


def _named(arguments: Sequence[str]) -> dict[str, int]:
    pairs = pairwise(arguments)
    return {name: int(value) for name, value in pairs if not _is_whole(name) and _is_whole(value)}


def _flags(arguments: Sequence[str]) -> Iterator[str]:
    following = zip_longest(arguments, arguments[1:], fillvalue="")
    return (name for name, value in following if not _is_whole(name) and not _is_whole(value))


def _filled(status: WritecacheStatus, low_percent: int) -> float:
    """In percent of what is in use after it was written back down to the low watermark.

    The kernel writes back in batches, and a last one takes it below: seen were 42.5 % of a small cache instead of 45.
    """
    if status.blocks <= 0:
        return 0.0
    used = _MOST_PERCENT * (status.blocks - status.free) / status.blocks
    return float(min(_MOST_PERCENT, _MOST_PERCENT * used / (low_percent * _LEFT_SHARE)))


def _gone_up(before: WritecacheStatus, after: WritecacheStatus, name: str) -> int | None:
    first, last = getattr(before, name), getattr(after, name)
    return None if first is None or last is None else last - first


def _named_by(settings: WritecacheSettings) -> dict[str, int]:
    return {"high_watermark": settings.high_percent, "low_watermark": settings.low_percent, **_FIXED}


def _check_made(settings: WritecacheSettings, table: WritecacheTable, line: str) -> None:
    """Other arguments than asked for are the kernel's doing: LVM asked for these by name.

    v4.18 reckons watermarks and times back from blocks and ticks, so that one can be off by one.
    """
    asked = _named_by(settings)
    found = {name: table.named.get(name) for name in asked}
    near = all(value is not None and abs(value - asked[name]) <= 1 for name, value in found.items())
    others = tuple(name for name in (*table.named, *table.flags) if name not in asked)
    if near and table.block_bytes == settings.block_bytes and not others:
        return
    told, wanted = (
        ", ".join([f"blocks of {block}", *(f"{name} {value}" for name, value in marks.items())])
        for block, marks in ((table.block_bytes, found), (settings.block_bytes, asked))
    )
    raise KernelFault(
        Stage.STORAGE,
        FaultKind.COMMAND_FAILED,
        f"dmsetup: the writecache has {', '.join((told, *others))[:_QUOTED]}; asked for {wanted}",
        (line.strip(),),
    )


def _check_size(settings: WritecacheSettings, status: WritecacheStatus) -> None:
    """How large its volume is is LVM's doing; the kernel lays blocks and metadata out in it."""
    whole, found = whole_extents(settings.cache_bytes), status.blocks * settings.block_bytes
    if not _DATA_SHARE * whole <= found <= whole:
        raise InfraError(f"dm-writecache has {found:,} bytes of blocks in a volume that should have {whole:,}")


def _status(device: str, shell: Shell) -> WritecacheStatus:
    (line,) = run_steps(shell, (Step(f"dmsetup status {device}", kernel_fault_in_run),), _STATUS_DEADLINE_S)
    try:
        return parse_status(line)
    except CacheUnusable as error:
        raise KernelFault(Stage.WORKLOAD, FaultKind.IO_ERROR, str(error), (line.strip(),)) from error
