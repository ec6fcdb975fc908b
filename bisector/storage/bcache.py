"""bcache: a slow device with a cache on a fast one, set up and read by sysfs (Documentation/admin-guide/bcache.rst).

The cache is as large as its device, so a smaller one is made on a partition that the kernel alone knows of
(addpart(8)): no partition table is written, and the kernel needs no code for one. bcache passes a cache by whose device
seems slow, which under emulation it always does: both ``congested_*`` thresholds are 0 here, which turns that off.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from bisector.core import kinds
from bisector.core.errors import KernelFault, UserError
from bisector.core.kinds import AUTO, Option, Problem
from bisector.core.metric import Better, Metric, Unit
from bisector.core.shell import FailedStep, Shell, Step, run_steps
from bisector.core.trial import FaultKind, Stage
from bisector.core.units import size_text
from bisector.storage.bcache_status import FIXED, BcacheStatus, BcacheUnreadable, counted, parse_status, sysfs_command
from bisector.storage.disks import kernel_fault
from bisector.storage.filling import not_full_before
from bisector.storage.layer import Counters, Extent, Files, Layer, Made, Own, Phase, Site

_STATUS_DEADLINE_S = 60.0
_SECTOR = 512
_START_BYTES = 1 << 20  # of the partition
_LEAST_BUCKETS = 513  # cache_alloc() in drivers/md/bcache/super.c: "ca->sb.nbuckets is too small"
_MOST_WRITEBACK_PERCENT = 40  # CUTOFF_WRITEBACK in drivers/md/bcache/writeback.h
# A bucket of metadata was one piece of memory before v5.9 (alloc_bucket_pages()): of the largest size there is.
_LEAST_BUCKET_BYTES, _MOST_BUCKET_BYTES = 4 << 10, 4 << 20
_BLOCK_SIZES = (512, 4096)
_MOST_CUTOFF_BYTES = 2**31 - 1  # it was read as an int before v5.1 (drivers/md/bcache/sysfs.c)
_WAITS = 100  # tenths of a second
_FILL_CHUNK_BYTES, _READS_OF_BUCKET = 4 << 20, 4
_LEFT_PERCENT = 3  # of a full cache: some buckets are always kept free


class CacheMode(StrEnum):
    """What is cached (bcache.rst, ``cache_mode``)."""

    WRITETHROUGH = "writethrough"
    WRITEBACK = "writeback"
    WRITEAROUND = "writearound"
    NONE = "none"


class Replacement(StrEnum):
    """Which bucket is used again (``cache_replacement_policy``)."""

    LRU = "lru"
    FIFO = "fifo"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class BcacheSettings:
    """Sizes in bytes; a cache of None is the whole device."""

    cache_bytes: int | None
    bucket_bytes: int
    block_bytes: int
    mode: CacheMode
    cutoff_bytes: int
    replacement: Replacement
    writeback_percent: int


class Bcache(Layer):
    """The first run fills the cache, the second one is judged."""

    name = "bcache"
    needs = ("cache device", "backing device")
    alias = "bcache(ssd,hdd)+ext4"
    fragments = ("storage-bcache",)
    # Parts of bcache that lie elsewhere, and changed its latencies: 866898efbb25 ("bcache: remove heap-related macros
    # and switch to generic min_heap") was reverted by 48fd7ebe00c1. Closures moved to lib/ in v6.7.
    suspects = (
        "drivers/md/bcache",
        "include/linux/min_heap.h",
        "lib/min_heap.c",
        "lib/closure.c",
        "include/linux/closure.h",
        "include/trace/events/bcache.h",
    )
    tools = ("wipefs", "addpart", "make-bcache", "blockdev", "dd")
    # Read as a table, so laid out as one.
    # fmt: off
    options = (
        Option("storage.bcache.cache_size", "cache_bytes",
               kinds.optional(kinds.size(1 << 20), AUTO, "the whole device"), "64MiB",
               "bcache on the fast disk, bytes", "4GiB"),
        Option("storage.bcache.bucket_size", "bucket_bytes", kinds.size(_LEAST_BUCKET_BYTES), "64KiB",
               "bucket of bcache, bytes; the cache needs more than 512 of them", "512KiB"),
        Option("storage.bcache.block_size", "block_bytes", kinds.size(512), "512",
               "block of bcache, 512 or 4096 bytes, and no less than a sector of either disk"),
        Option("storage.bcache.cache_mode", "mode", kinds.choice(CacheMode), "writethrough", "what bcache caches"),
        Option("storage.bcache.sequential_cutoff", "cutoff_bytes", kinds.size(0), "4MiB",
               "from how much I/O in a row on bcache leaves it to the slow device, bytes; 0 for never"),
        Option("storage.bcache.replacement", "replacement", kinds.choice(Replacement), "lru",
               "which bucket bcache uses again"),
        Option("storage.bcache.writeback_percent", "writeback_percent", kinds.integer(0), 10,
               "how much of the cache bcache leaves dirty in writeback mode, percent; 0 for nothing"),
    )
    # fmt: on
    metrics = (
        Metric("cache.hits", Unit.COUNT, Better.HIGHER, "reads that bcache answered, as it counts: see docs/stacks.md"),
        Metric("cache.misses", Unit.COUNT, Better.LOWER, "reads that it did not answer, as it counts"),
        Metric("cache.bypassed", Unit.BYTES, None, "I/O that did not go through it, as it counts"),
        Metric("cache.dirty", Unit.BYTES, Better.LOWER, "data that was still to be written back at the end"),
        Metric("cache.fills_up_to", Unit.PERCENT, None, "how full it gets, where filling it ended before it was full"),
    )
    phases = (Phase("empty", judged=False, fills=True), Phase("full", unready=not_full_before))

    def extent(self, below: Sequence[Extent], own: Own) -> Extent:
        """As large as the backing device, but for the superblock."""
        _cache, backing = below
        return backing

    def problems(self, below: Sequence[Extent], own: Own, files: Files) -> Iterator[Problem]:
        """The cache has room on its device, enough buckets, and the other device has as much to fill it with."""
        settings, (fast, slow) = BcacheSettings(**own), below
        size_key, bucket_key = "storage.bcache.cache_size", "storage.bcache.bucket_size"
        bucket, cache = settings.bucket_bytes, settings.cache_bytes or fast.size_bytes
        if bucket & (bucket - 1) or bucket > _MOST_BUCKET_BYTES:
            yield Problem((bucket_key,), f"bcache takes a power of two, up to {size_text(_MOST_BUCKET_BYTES)}")
        if settings.writeback_percent > _MOST_WRITEBACK_PERCENT:
            yield Problem(("storage.bcache.writeback_percent",), f"bcache takes at most {_MOST_WRITEBACK_PERCENT}")
        if settings.block_bytes not in _BLOCK_SIZES:
            yield Problem(("storage.bcache.block_size",), "bcache has blocks of 512 or 4096 bytes")
        if settings.cutoff_bytes > _MOST_CUTOFF_BYTES:
            yield Problem(("storage.bcache.sequential_cutoff",), "bcache takes less than 2GiB")
        if settings.cache_bytes is not None and not fast.has_partitions:
            yield Problem(
                (size_key,),
                f"a cache of less than its device is on a partition, and device-mapper's have none: set {AUTO!r}",
            )
        if cache is None:
            return
        if cache // bucket < _LEAST_BUCKETS:
            yield Problem((size_key, bucket_key), f"bcache needs {_LEAST_BUCKETS} buckets or more")
        needed = cache + _START_BYTES
        if settings.cache_bytes is not None and fast.size_bytes is not None and needed > fast.size_bytes:
            yield Problem(
                (size_key, *fast.keys),
                f"the cache needs {size_text(needed)} on {fast.what}, which has {size_text(fast.size_bytes)}",
            )
        if settings.mode is not CacheMode.NONE and slow.size_bytes is not None and slow.size_bytes < cache:
            yield Problem(
                (*slow.keys, size_key),
                f"{slow.what} has {size_text(slow.size_bytes)}, which never fills the cache; the run that tells is the"
                " one with a full cache",
            )

    def written(self, below: Sequence[Extent], own: Own, data_bytes: int) -> tuple[int, ...]:
        """The whole cache, and all data on the backing device."""
        cache = BcacheSettings(**own).cache_bytes or below[0].size_bytes or data_bytes
        return cache + _START_BYTES, data_bytes + _START_BYTES

    def make(self, site: Site) -> Made:
        """A bcache that is registered, attached and set; what sysfs shows is checked."""
        settings = BcacheSettings(**site.own)
        fast, slow = (one.path for one in site.below)
        device = f"/dev/bisector-bcache{site.suffix}"
        cache, sysfs, fill_end = (f"{device}-{name}" for name in ("cache", "sysfs", "fill-end"))

        def verify(answers: Sequence[str], numbers: Mapping[str, str]) -> None:
            _check_made(settings, _read(answers[0], Stage.STORAGE), answers[0])

        steps = (
            *_cache_device(settings, fast, cache),
            Step(f"wipefs -a -q {cache} {slow}", kernel_fault),
            Step(
                f"make-bcache --block {settings.block_bytes} --bucket {settings.bucket_bytes} "
                f"--cache_replacement_policy={settings.replacement} "
                f"-C {cache} -B {slow}",
                kernel_fault,
            ),
            Step(f'slow=$(readlink -f {slow}); ln -sfn "/sys/class/block/${{slow##*/}}/bcache" {sysfs}', kernel_fault),
            Step(_registered(sysfs, cache, slow), kernel_fault),
            Step(f'dev=$(readlink -f {sysfs}/dev); ln -sfn "/dev/${{dev##*/}}" {device}', kernel_fault),
            *(Step(f"echo {value} > {sysfs}/{name}", kernel_fault) for name, value in _set(settings).items()),
            *(
                Step(f"[ ! -e {sysfs}/{name} ] || echo {value} > {sysfs}/{name}", kernel_fault)
                for name, value in FIXED.items()
            ),
        )
        return Made(
            device,
            steps,
            (Step(sysfs_command(sysfs, fill_end), kernel_fault),),
            verify,
            counters=Counters(partial(_status, sysfs, fill_end), counted),
            fill=partial(_fill, settings, device, sysfs, fill_end),
        )


BCACHE = Bcache()


def _cache_device(settings: BcacheSettings, fast: str, cache: str) -> Iterator[Step]:
    """A link to the device that the cache is on: the whole one, or a partition of it that is made here."""
    if settings.cache_bytes is None:
        yield Step(f'ln -sfn "$(readlink -f {fast})" {cache}', kernel_fault)
        return
    start, sectors = _START_BYTES // _SECTOR, settings.cache_bytes // _SECTOR
    yield Step(f'fast=$(readlink -f {fast}); addpart "$fast" 1 {start} {sectors}', _no_partition)
    # "sda" and "sda1", "nvme0n1" and "nvme0n1p1" (disk_name() in block/partitions)
    yield Step(f'case $fast in *[0-9]) fast=${{fast}}p;; esac; ln -sfn "${{fast}}1" {cache}', kernel_fault)


def _registered(sysfs: str, cache: str, slow: str) -> str:
    """Shell text that registers both devices, which udev may do at the same time, and waits until they are attached."""
    there = f"[ -e {sysfs}/dev/stat ] && [ -e {sysfs}/cache/cache0 ]"
    register = f'for one in {cache} {slow}; do readlink -f "$one" > /sys/fs/bcache/register_quiet; done 2>/dev/null'
    return f"n=0; until {there} || [ $n -ge {_WAITS} ]; do {register}; n=$((n + 1)); sleep 0.1; done; {there}"


def _set(settings: BcacheSettings) -> dict[str, object]:
    """The settings that are written to sysfs, by file."""
    return {
        "cache_mode": settings.mode,
        "sequential_cutoff": settings.cutoff_bytes,
        "writeback_percent": settings.writeback_percent,
    }


def _fill(settings: BcacheSettings, device: str, sysfs: str, fill_end: str, seconds: float) -> tuple[Step, ...]:
    """Read the device from its beginning, with the cutoff 0, until the cache is full.

    A workload hardly fills it: the laying out of files is sequential and passes by the cache, and reads add to it only
    what was not read before. Every mode but none caches what is read, except where

    - a read needs more buckets than are free at the moment (bch_data_insert_start()): so a bucket is for several reads,
      and the device may be read more than once;
    - the last collection of garbage left 5 % (CUTOFF_CACHE_ADD) or less to be used again: so it is asked for;
    - a node of the btree is full (bcache.rst, "Still getting cache misses, of the same data"): reads of this length
      need few keys.

    It ends without a full cache when reading twice the cache's size brought nothing; then, and only then, how full the
    cache is goes into the file ``fill_end``. It seems less full while garbage is collected, so it is looked at twice.
    """
    read_bytes = max(settings.bucket_bytes // _READS_OF_BUCKET, _BLOCK_SIZES[-1])
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
    steps = (
        f"echo 0 > {sysfs}/sequential_cutoff",
        f"n=0; gained=0; least=100; all=$(($(blockdev --getsize64 {device}) / {_FILL_CHUNK_BYTES}))",
        f"patience=$((2 * $(cat {sysfs}/cache/cache0/nbuckets) * {settings.bucket_bytes} {chunks}",
        f"read -r now _ < /proc/uptime; end=$((${{now%.*}} + {int(seconds)}))",
        f"while {' && '.join(conditions)}; do n=$((n + 1)); done",
        f"[ $((n - gained)) -le $patience ] || {{ sleep 0.5; {least}; echo $((100 - ${{unused%\\%}})) > {fill_end}; }}",
        collect,
        f"echo {settings.cutoff_bytes} > {sysfs}/sequential_cutoff",
    )
    return tuple(Step(one, _workload_fault) for one in steps)


def _no_partition(failed: FailedStep) -> UserError:
    return UserError(
        f"the cache device of bcache takes no partition: {failed.reason}",
        f'set storage.bcache.cache_size = "{AUTO}", for a cache on the whole device',
    )


def _workload_fault(failed: FailedStep) -> KernelFault:
    return KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, failed.reason, failed.tail)


def _status(sysfs: str, fill_end: str, shell: Shell) -> BcacheStatus:
    """The kernel's own figures of the cache; raises :class:`KernelFault` when it gave up."""
    (text,) = run_steps(shell, (Step(sysfs_command(sysfs, fill_end), _workload_fault),), _STATUS_DEADLINE_S)
    return _read(text, Stage.WORKLOAD)


def _read(text: str, stage: Stage) -> BcacheStatus:
    try:
        status = parse_status(text)
    except BcacheUnreadable as error:
        raise KernelFault(stage, FaultKind.COMMAND_FAILED, str(error)) from error
    if status.state not in ("clean", "dirty"):
        raise KernelFault(stage, FaultKind.IO_ERROR, f"the state of the bcache is {status.state!r}")
    return status


def _check_made(settings: BcacheSettings, status: BcacheStatus, text: str) -> None:
    """Another setting than was written is the kernel's doing; sysfs shows a cutoff with two or three digits."""
    near = abs(status.cutoff_bytes - settings.cutoff_bytes) <= settings.cutoff_bytes / 10
    asked: dict[str, object] = {
        "cache_mode": settings.mode.value,
        "sequential_cutoff": status.cutoff_bytes if near else settings.cutoff_bytes,
        "replacement": settings.replacement.value,
        "writeback_percent": settings.writeback_percent,
        "bucket_size": settings.bucket_bytes,
        "block_size": settings.block_bytes,
        "nbuckets": status.buckets if settings.cache_bytes is None else settings.cache_bytes // settings.bucket_bytes,
        **{name: FIXED[name] for name in status.fixed},
    }
    found: dict[str, object] = {
        "cache_mode": status.mode,
        "sequential_cutoff": status.cutoff_bytes,
        "replacement": status.replacement,
        "writeback_percent": status.writeback_percent,
        "bucket_size": status.bucket_bytes,
        "block_size": status.block_bytes,
        "nbuckets": status.buckets,
        **status.fixed,
    }
    if others := [f"{name} {found[name]}; asked for {asked[name]}" for name in asked if found[name] != asked[name]]:
        tail = tuple(line for line in text.splitlines() if line.isprintable())[:20]
        raise KernelFault(Stage.STORAGE, FaultKind.COMMAND_FAILED, f"sysfs: the bcache has {', '.join(others)}", tail)
