"""bcache: a slow device with a cache on a fast one, set up and read by sysfs (Documentation/admin-guide/bcache.rst).

A cache is as large as its device, so a smaller cache is made on a partition that only the kernel knows of (addpart(8)):
no partition table is written, and the kernel needs no code for one. bcache bypasses a cache device that seems slow, and
under emulation it always seems slow: both ``congested_*`` thresholds are 0 here, which turns that off.

Its counters of hits and bypassed data mislead (``move_stat()`` in drivers/md/bcache/stats.c; docs/stacks.md). So the
hit ratio is computed from the sectors read from bcache and from the device below it (Documentation/block/stat.rst).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from bisector.core.errors import UserError
from bisector.core.metric import Better, Metric, Unit
from bisector.core.setting import AUTO, Block, Meta, Option, Problem, Size
from bisector.core.shell import CommandResult, Step
from bisector.core.trial import FaultKind
from bisector.core.units import size_text
from bisector.storage.disks import answer, fault, kernel_fault, kernel_fault_in_run, steps
from bisector.storage.layer import (
    FILLED,
    FILLED_BEFORE,
    HIT_RATIO,
    Capacity,
    Counters,
    Device,
    Files,
    Layer,
    LayerPlan,
    Phase,
    not_full_before,
)

_GREATEST = 2**63  # integers on record are below this
_QUOTED, _LONGEST = 200, 64 << 10
_CHOSEN = re.compile(r"\[([\w-]{1,20})\]")
_NUMBER = re.compile(r"(-?\d{1,19})(?:\.(\d{1,4}))?([kMGTPEZY]?)")
_UNITS = "kMGTPEZY"
_READ_SECTORS = 2  # the third field of /sys/block/DEVICE/stat (Documentation/block/stat.rst)
_UNUSED = "cache/cache0/priority_stats:Unused"
_FILL_END = "fill_end"  # a line that filling the cache adds to what sysfs shows
# The allocator frees a few buckets at a time, four if there are up to 1,024 (cache_alloc()). One of these takes the
# priorities of all buckets (bch_prio_write()), and the bucket that held the priorities before becomes unused. lru
# reuses that bucket next; the other policies reuse it only when its turn comes. So with them a quarter of such a cache
# is always unused, and with buckets of 16 KiB a third, since nodes of the btree come and go, too (both seen with v6.1).
# If more than half is unused, there is another reason.
_LEAVE_SOME = ("fifo", "random")
_LEAST_PERCENT, _ALL_PERCENT = 50, 100
# The files of sysfs with a fixed value: the kernels' own defaults, except for both thresholds.
FIXED: Mapping[str, str] = {
    "writeback_delay": "30",  # seconds
    "writeback_metadata": "1",
    "writeback_rate_minimum": "8",  # sectors a second
    "writeback_consider_fragment": "1",
    "readahead": "0",
    "readahead_cache_policy": "all",
    "cache/internal/idle_max_writeback_rate": "1",
    "cache/internal/gc_after_writeback": "0",
    "cache/journal_delay_ms": "100",
    "cache/congested_read_threshold_us": "0",
    "cache/congested_write_threshold_us": "0",
    "cache/cache0/discard": "0",
}
# Files that some kernels lack: readahead was removed in v5.13 ("bcache: remove bcache device self-defined readahead"),
# its policy was added in v5.6 ("bcache: add readahead cache policy options via sysfs interface"). The files of
# writeback came with its newer rate controllers: v4.11 has none of them, v6.1 has all.
_NOT_EVERYWHERE = frozenset(
    {"readahead", "readahead_cache_policy", "cache/cache0/discard", "writeback_rate_minimum"}
    | {"writeback_consider_fragment", "cache/internal/idle_max_writeback_rate", "cache/internal/gc_after_writeback"}
)

_SECTOR = 512
_START_BYTES = 1 << 20  # where the partition begins
_LEAST_BUCKETS = 513  # cache_alloc() in drivers/md/bcache/super.c: "ca->sb.nbuckets is too small"
_MOST_WRITEBACK_PERCENT = 40  # CUTOFF_WRITEBACK in drivers/md/bcache/writeback.h
# Before v5.9 a bucket of metadata was one contiguous allocation (alloc_bucket_pages()), which can have 4 MiB at most.
_LEAST_BUCKET_BYTES, _MOST_BUCKET_BYTES = 4 << 10, 4 << 20
_MOST_CUTOFF_BYTES = 2**31 - 1  # it was read as an int before v5.1 (drivers/md/bcache/sysfs.c)
_WAITS = 100  # tenths of a second
_FILL_CHUNK_BYTES, _READS_OF_BUCKET = 4 << 20, 4
_LEFT_PERCENT = 3  # unused in a full cache: some buckets are always kept free


def _chosen(words: str) -> str:
    if (found := _CHOSEN.search(words)) is None:
        raise ValueError(words)
    return found[1]


def _whole(word: str) -> int:
    if not (word.isascii() and word.isdecimal() and int(word) < _GREATEST):
        raise ValueError(word)
    return int(word)


def _size(word: str) -> int:
    """Return the bytes of ``4.0M``, ``1.2k`` or ``512`` (``bch_hprint()`` in drivers/md/bcache/util.c).

    Old kernels print the remainder of 1024 divided by 100 after the point: it can be 10.
    """
    if (found := _NUMBER.fullmatch(word)) is None:
        raise ValueError(word)
    factor = 1024 ** (_UNITS.index(found[3]) + 1) if found[3] else 1
    tenths = min(int(found[2] or 0), 9)
    return max(0, min(int(found[1]) * factor + tenths * factor // 10, _GREATEST - 1))


# The files that the settings determine, and how each is read.
_ASKED: Mapping[str, Callable[[str], str | int]] = {
    "cache_mode": _chosen,
    "sequential_cutoff": _size,
    "writeback_percent": _whole,
    "cache/cache0/cache_replacement_policy": _chosen,
    "cache/cache0/bucket_size": _size,
    "cache/cache0/block_size": _size,
    "cache/cache0/nbuckets": _whole,
}
# The files that are read, relative to the bcache directory of the backing device, as "NAME:VALUE" lines of grep(1).
_FILES = (
    *(*_ASKED, *FIXED, "state", "dirty_data", "stats_total/*", "dev/stat"),
    *("../stat", "cache/cache0/priority_stats"),
)


@dataclass(frozen=True, slots=True)
class BcacheStatus:
    """A bcache as sysfs shows it. ``bypassed_bytes`` and ``dirty_bytes`` are exact to two or three digits only.

    ``has`` are the settings by the names of their files, including the files of :data:`FIXED` that the kernel has.
    ``fill_end_percent`` is how full the cache was when reading more no longer filled it; None if that did not happen.
    """

    has: Mapping[str, str | int]
    state: str
    unused_percent: int
    dirty_bytes: int
    hits: int
    misses: int
    bypassed_bytes: int
    read_sectors: int
    read_sectors_below: int
    fill_end_percent: int | None = None

    @property
    def fills_up_to_percent(self) -> int:
        """The share of buckets that can be in use: where filling ended, if the policy leaves some unused, else all."""
        end, replacement = self.fill_end_percent, self.has["cache/cache0/cache_replacement_policy"]
        return _ALL_PERCENT if replacement not in _LEAVE_SOME or end is None or end < _LEAST_PERCENT else end

    @property
    def filled_percent(self) -> float:
        """How full the cache is, relative to :attr:`fills_up_to_percent`."""
        return min(100.0, 100.0 * (_ALL_PERCENT - self.unused_percent) / self.fills_up_to_percent)


def parse_status(text: str) -> BcacheStatus:
    """Read the lines of :data:`_FILES`.

    Raises :class:`KernelFault` if sysfs lacks a file, or shows what no kernel writes, and for a bcache that has failed.
    """
    if len(text) > _LONGEST:
        raise fault(f"sysfs shows {len(text):,} characters of a bcache")
    pairs = []
    for line in text.splitlines():
        path, _, content = line.partition(":")
        if path.endswith("priority_stats"):  # a file of several lines, each with its own name
            name, _, content = content.partition(":")
            path = f"{path}:{name}"
        pairs.append((path, content.strip()))
    shown = dict(pairs)
    try:
        # A file shows the chosen word of a list, a number, or a size, of which 0 is "0.0k".
        fixed = {name: shown[name] for name in FIXED if name in shown or name not in _NOT_EVERYWHERE}
        chosen = {name: found[1] for name, text in fixed.items() if (found := _CHOSEN.search(text))}
        status = BcacheStatus(
            has={name: read(shown[name]) for name, read in _ASKED.items()}
            | {name: "0" if text == "0.0k" else text[:_QUOTED] for name, text in fixed.items()}
            | chosen,
            state=shown["state"][:_QUOTED],
            unused_percent=min(_whole(one.removesuffix("%")) for name, one in pairs if name == _UNUSED),
            dirty_bytes=_size(shown["dirty_data"]),
            hits=_whole(shown["stats_total/cache_hits"]),
            misses=_whole(shown["stats_total/cache_misses"]),
            bypassed_bytes=_size(shown["stats_total/bypassed"]),
            read_sectors=_whole(shown["dev/stat"].split()[_READ_SECTORS]),
            read_sectors_below=_whole(shown["../stat"].split()[_READ_SECTORS]),
            fill_end_percent=_whole(shown[_FILL_END]) if _FILL_END in shown else None,
        )
    except KeyError as error:
        raise fault(f"sysfs has no {str(error.args[0])[:_QUOTED]} of the bcache") from error
    except (ValueError, IndexError) as error:
        raise fault(f"sysfs shows what is not a bcache: {text.strip()[:_QUOTED]!r}") from error
    if status.state not in ("clean", "dirty"):
        raise fault(f"the state of the bcache is {status.state!r}", kind=FaultKind.IO_ERROR)
    return status


def counted(before: BcacheStatus, after: BcacheStatus) -> Iterator[tuple[str, float]]:
    """Yield the metrics of a run, as name and value."""
    reads = after.read_sectors - before.read_sectors
    below = after.read_sectors_below - before.read_sectors_below
    if reads > 0:
        yield HIT_RATIO, 100 * max(0.0, 1 - below / reads)
    yield "cache.hits", float(after.hits - before.hits)
    yield "cache.misses", float(after.misses - before.misses)
    yield "cache.bypassed", float(after.bypassed_bytes - before.bypassed_bytes)
    yield "cache.dirty", float(after.dirty_bytes)
    if after.has["cache_mode"] != "none":  # in mode none no data goes into the cache
        yield FILLED_BEFORE, before.filled_percent
        yield FILLED, after.filled_percent
        if before.fills_up_to_percent < _ALL_PERCENT:
            yield "cache.fills_up_to", float(before.fills_up_to_percent)


@dataclass(frozen=True, slots=True)
class Bcache(Layer):
    """A bcache: the first run fills the cache, the second one is judged."""

    name = "bcache"
    needs = ("cache device", "backing device")
    origin = 1
    alias = "bcache(ssd,hdd)+ext4"
    fragments = ("storage-bcache",)
    # Parts of bcache lie elsewhere, and a change there has changed its latencies: 866898efbb25 ("bcache: remove
    # heap-related macros and switch to generic min_heap"), reverted by 48fd7ebe00c1. Closures moved to lib/ in v6.7.
    suspects = (
        "drivers/md/bcache",
        "include/linux/min_heap.h",
        "lib/min_heap.c",
        "lib/closure.c",
        "include/linux/closure.h",
        "include/trace/events/bcache.h",
    )
    tools = ("wipefs", "addpart", "make-bcache", "blockdev", "dd")
    metrics = (
        Metric("cache.hits", Unit.COUNT, Better.HIGHER, "reads that bcache answered, as it counts: see docs/stacks.md"),
        Metric("cache.misses", Unit.COUNT, Better.LOWER, "reads that it did not answer, as it counts"),
        Metric("cache.bypassed", Unit.BYTES, None, "I/O that did not go through it, as it counts"),
        Metric("cache.dirty", Unit.BYTES, Better.LOWER, "data that was still to be written back at the end"),
        Metric("cache.fills_up_to", Unit.PERCENT, None, "how full it gets, where filling it ended before it was full"),
    )
    phases = (Phase("empty", judged=False, fills=True), Phase("full", unready=not_full_before))

    # The settings, laid out as a table.
    # fmt: off
    cache_bytes: Annotated[Annotated[Size, Meta(ge=1 << 20)] | None, Option(
        "storage.bcache.cache_size", "64MiB", "bcache on the fast disk, bytes", "4GiB",
        absent=(AUTO, "the whole device"))]
    bucket_bytes: Annotated[Size, Meta(ge=_LEAST_BUCKET_BYTES), Option(
        "storage.bcache.bucket_size", "64KiB", "bucket of bcache, bytes; the cache needs more than 512 of them",
        "512KiB")]
    block_bytes: Annotated[Block, Option(
        "storage.bcache.block_size", 512, "block of bcache, bytes, and no less than a sector of either disk")]
    mode: Annotated[Literal["writethrough", "writeback", "writearound", "none"], Option(
        "storage.bcache.cache_mode", "writethrough", "what bcache caches")]
    cutoff_bytes: Annotated[Size, Meta(ge=0), Option(
        "storage.bcache.sequential_cutoff", "4MiB",
        "from how much I/O in a row on bcache leaves it to the slow device, bytes; 0 for never")]
    replacement: Annotated[Literal["lru", "fifo", "random"], Option(
        "storage.bcache.replacement", "lru", "which bucket bcache uses again")]
    writeback_percent: Annotated[int, Meta(ge=0, le=_MOST_WRITEBACK_PERCENT), Option(
        "storage.bcache.writeback_percent", 10,
        "how much of the cache bcache leaves dirty in writeback mode, percent; 0 for nothing")]
    # fmt: on

    def problems(self, below: Sequence[Capacity], files: Files) -> Iterator[Problem]:
        """Yield what bcache does not take, a cache that does not fit on its device, and one that cannot be filled."""
        fast, slow = below
        size_key, bucket_key = "storage.bcache.cache_size", "storage.bcache.bucket_size"
        bucket, cache = self.bucket_bytes, self.cache_bytes or fast.size_bytes
        if bucket & (bucket - 1) or bucket > _MOST_BUCKET_BYTES:
            yield Problem((bucket_key,), f"bcache takes a power of two, up to {size_text(_MOST_BUCKET_BYTES)}")
        if self.cutoff_bytes > _MOST_CUTOFF_BYTES:
            yield Problem(("storage.bcache.sequential_cutoff",), "bcache takes less than 2GiB")
        if self.cache_bytes is not None and not fast.has_partitions:
            yield Problem(
                (size_key,),
                f"a cache of less than its device is on a partition, and device-mapper's have none: set {AUTO!r}",
            )
        if cache is None:
            return
        if cache // bucket < _LEAST_BUCKETS:
            yield Problem((size_key, bucket_key), f"bcache needs {_LEAST_BUCKETS} buckets or more")
        if self.cache_bytes is not None:
            yield from fast.lacks(cache + _START_BYTES, "the cache needs", size_key)
        if self.mode != "none" and slow.size_bytes is not None and slow.size_bytes < cache:
            yield Problem(
                (*slow.keys, size_key),
                f"{slow.what} has {size_text(slow.size_bytes)}, which never fills the cache; the run that tells is the"
                " one with a full cache",
            )

    def written(self, below: Sequence[Capacity], data_bytes: int) -> tuple[int, ...]:
        """The whole cache on the cache device, and all data on the backing device."""
        cache = self.cache_bytes or below[0].size_bytes or data_bytes
        return cache + _START_BYTES, data_bytes + _START_BYTES

    def make(self, below: Sequence[Device], suffix: str) -> LayerPlan:
        """Register and attach a bcache, and write its settings, which are checked in sysfs afterwards."""
        fast, slow = (one.path for one in below)
        device = f"/dev/bisector-bcache{suffix}"
        cache, sysfs, fill_end = (f"{device}-{name}" for name in ("cache", "sysfs", "fill-end"))

        def no_partition(failed: CommandResult) -> UserError:
            return UserError(
                f"the cache device of bcache takes no partition: {failed.reason}",
                f'set storage.bcache.cache_size = "{AUTO}", for a cache on the whole device',
            )

        # Link to the device of the cache: the whole fast device, or a partition of it that is made here.
        partition = [Step(f'ln -sfn "$(readlink -f {fast})" {cache}', kernel_fault)]
        if self.cache_bytes is not None:
            start, sectors = _START_BYTES // _SECTOR, self.cache_bytes // _SECTOR
            partition = [
                Step(f'fast=$(readlink -f {fast}); addpart "$fast" 1 {start} {sectors}', no_partition),
                # "sda" and "sda1", "nvme0n1" and "nvme0n1p1" (disk_name() in block/partitions)
                Step(f'case $fast in *[0-9]) fast=${{fast}}p;; esac; ln -sfn "${{fast}}1" {cache}', kernel_fault),
            ]
        # udev may register both devices at the same time; they are attached a moment later.
        there = f"[ -e {sysfs}/dev/stat ] && [ -e {sysfs}/cache/cache0 ]"
        register = f'for one in {cache} {slow}; do readlink -f "$one" > /sys/fs/bcache/register_quiet; done 2>/dev/null'
        written = {
            "cache_mode": self.mode,
            "sequential_cutoff": self.cutoff_bytes,
            "writeback_percent": self.writeback_percent,
        }
        made = steps(
            f"wipefs -a -q {cache} {slow}",
            f"make-bcache --block {self.block_bytes} --bucket {self.bucket_bytes} "
            f"--cache_replacement_policy={self.replacement} -C {cache} -B {slow}",
            f'slow=$(readlink -f {slow}); ln -sfn "/sys/class/block/${{slow##*/}}/bcache" {sysfs}',
            f"n=0; until {there} || [ $n -ge {_WAITS} ]; do {register}; n=$((n + 1)); sleep 0.1; done; {there}",
            f'dev=$(readlink -f {sysfs}/dev); ln -sfn "/dev/${{dev##*/}}" {device}',
            *(f"echo {value} > {sysfs}/{name}" for name, value in written.items()),
            *(f"[ ! -e {sysfs}/{name} ] || echo {value} > {sysfs}/{name}" for name, value in FIXED.items()),
        )
        # While bcache collects garbage, buckets that it has not reached yet count as unused (btree_gc_start()); in a
        # guest under load that was so for 0.1 s every 4 s. So if the cache does not seem full, the figure is read
        # again, and the smaller one counts.
        stats = "cache/cache0/priority_stats"
        again = f"case $(grep Unused {stats}) in *[!0-9][0-5]%) ;; *) sleep 0.5; grep -H Unused {stats};; esac"
        of_fill = f"sed 's/^/{_FILL_END}:/' {fill_end} 2>/dev/null"
        show = f"( cd {sysfs} && {{ grep -s -H . {' '.join(_FILES)}; {again}; {of_fill}; true; }} )"

        def verify(answers: Sequence[str], numbers: Mapping[str, str]) -> None:
            # sysfs shows the cutoff with two or three digits only. Any other difference is the kernel's fault.
            has = parse_status(answers[0]).has
            cutoff, buckets = int(has["sequential_cutoff"]), has["cache/cache0/nbuckets"]
            is_near = abs(cutoff - self.cutoff_bytes) <= self.cutoff_bytes / 10
            asked = {
                **written,
                "sequential_cutoff": cutoff if is_near else self.cutoff_bytes,
                "cache/cache0/cache_replacement_policy": self.replacement,
                "cache/cache0/bucket_size": self.bucket_bytes,
                "cache/cache0/block_size": self.block_bytes,
                "cache/cache0/nbuckets": buckets if self.cache_bytes is None else self.cache_bytes // self.bucket_bytes,
                **FIXED,
            }
            others = [f"{name} {value}; asked for {asked[name]}" for name, value in has.items() if value != asked[name]]
            if others:
                tail = [line for line in answers[0].splitlines() if line.isprintable()][:20]
                raise fault(f"sysfs: the bcache has {', '.join(others)}", *tail)

        return LayerPlan(
            device,
            (*partition, *made),
            steps(show),
            verify,
            counters=Counters(lambda shell: parse_status(answer(shell, show)), counted),
            fill=partial(self._fill, device, sysfs, fill_end),
        )

    def _fill(self, device: str, sysfs: str, fill_end: str, seconds: float) -> tuple[Step, ...]:
        """Read the device from its beginning, with the cutoff 0, until the cache is full: see docs/stacks.md.

        Every mode but none caches data that is read, unless

        - the read needs more buckets than are free at the moment (bch_data_insert_start()): so several reads share a
          bucket, and the device may be read more than once;
        - the last garbage collection left 5 % (CUTOFF_CACHE_ADD) or less for reuse: so a collection is triggered before
          each chunk;
        - a node of the btree is full (bcache.rst, "Still getting cache misses, of the same data"): reads of this length
          need few keys.

        Reading ends without a full cache if twice the size of the cache was read to no effect. Then, and only then, how
        full the cache is goes into the file ``fill_end``. The figure is read twice, since the cache seems less full
        while garbage is collected.
        """
        read_bytes = max(self.bucket_bytes // _READS_OF_BUCKET, _LEAST_BUCKET_BYTES)
        count = _FILL_CHUNK_BYTES // read_bytes
        read = f"dd if={device} of=/dev/null iflag=direct bs={read_bytes} count={count} skip=$((n % all * {count}))"
        stats, collect = f"{sysfs}/cache/cache0/priority_stats", f"echo 1 > {sysfs}/cache/internal/trigger_gc"
        conditions = (
            f"read -r _ unused < {stats}",
            f"[ ${{unused%\\%}} -gt {_LEFT_PERCENT} ]",
            "{ [ ${unused%\\%} -ge $least ] || { least=${unused%\\%}; gained=$n; }; }",
            "[ $((n - gained)) -le $patience ]",
            "read -r now _ < /proc/uptime",
            "[ ${now%.*} -lt $end ]",
            collect,
            f"{read} 2>/dev/null",
        )
        least = f"read -r _ again < {stats}; [ ${{again%\\%}} -ge ${{unused%\\%}} ] || unused=$again"
        chunks = f"/ {_FILL_CHUNK_BYTES} + 1))"
        commands = (
            f"echo 0 > {sysfs}/sequential_cutoff",
            f"n=0; gained=0; least=100; all=$(($(blockdev --getsize64 {device}) / {_FILL_CHUNK_BYTES}))",
            f"patience=$((2 * $(cat {sysfs}/cache/cache0/nbuckets) * {self.bucket_bytes} {chunks}",
            f"read -r now _ < /proc/uptime; end=$((${{now%.*}} + {int(seconds)}))",
            f"while {' && '.join(conditions)}; do n=$((n + 1)); done",
            f"[ $((n - gained)) -le $patience ] || "
            f"{{ sleep 0.5; {least}; echo $((100 - ${{unused%\\%}})) > {fill_end}; }}",
            collect,
            f"echo {self.cutoff_bytes} > {sysfs}/sequential_cutoff",
        )
        return tuple(Step(one, kernel_fault_in_run) for one in commands)
