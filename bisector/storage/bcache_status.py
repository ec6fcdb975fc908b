"""What sysfs shows of a bcache (Documentation/admin-guide/bcache.rst), and what it counted during a run.

Its counters of hits and bypassed data are kept as they are, and mislead: the kernel adds them up every 13.6 s, and what
was counted meanwhile is cut to 16 bits (``move_stat()`` in drivers/md/bcache/stats.c). So of more than 65,535 hits, or
32 MiB bypassed, in that time the most is lost, and a short run has counts of the run before. The hit ratio is taken
from the sectors that were read from bcache and from the device under it (Documentation/block/stat.rst): these are exact
at any time.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bisector.storage.filling import FILLED, FILLED_BEFORE

_GREATEST = 2**63  # of an integer that the record holds
_QUOTED, _LONGEST = 200, 64 << 10
_CHOSEN = re.compile(r"\[([\w-]{1,20})\]")
_NUMBER = re.compile(r"(-?\d{1,19})(?:\.(\d{1,4}))?([kMGTPEZY]?)")
_UNITS = "kMGTPEZY"
_READ_SECTORS = 2  # the third field of /sys/block/DEVICE/stat (Documentation/block/stat.rst)
_UNUSED = "cache/cache0/priority_stats:Unused"
_NO_SIZE = "0.0k"
_NOTHING = "none"  # the cache mode in which nothing goes into the cache
_FILL_END = "fill_end"  # what filling it left, beside what sysfs shows
# The allocator frees a few buckets at a time, four where there are up to 1,024 (cache_alloc()). One of them takes the
# priorities of all buckets (bch_prio_write()), and the one that had these before is unused. lru takes that one next,
# the others when its turn comes: so a quarter of such a cache is always unused, and with buckets of 16 KiB a third,
# since nodes of the btree come and go, too (both seen with v6.1). Where it is more than half, that is not why.
_LEAVE_SOME = frozenset({"fifo", "random"})
_LEAST_PERCENT, _ALL_PERCENT = 50, 100
# What is fixed here, by file: the kernels' own defaults, but for both thresholds.
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
# Files that some kernels do not have: readahead went in v5.13 ("bcache: remove bcache device self-defined readahead"),
# its policy came in v5.6 ("bcache: add readahead cache policy options via sysfs interface"). Those of writing back came
# with its newer rate controllers: v4.11 has none of them, v6.1 has all.
_NOT_EVERYWHERE = frozenset(
    {"readahead", "readahead_cache_policy", "cache/cache0/discard", "writeback_rate_minimum"}
    | {"writeback_consider_fragment", "cache/internal/idle_max_writeback_rate", "cache/internal/gc_after_writeback"}
)
# What is read of a bcache, relative to its directory of the device below: "NAME:VALUE" lines of grep(1).
_FILES = (
    *("cache_mode", "state", "sequential_cutoff", "writeback_percent", "dirty_data", "stats_total/*", "dev/stat"),
    *("../stat", "cache/cache0/cache_replacement_policy", "cache/cache0/bucket_size", "cache/cache0/block_size"),
    *("cache/cache0/nbuckets", "cache/cache0/priority_stats", *FIXED),
)


@dataclass(frozen=True, slots=True)
class BcacheStatus:
    """What sysfs shows; sizes in bytes, those of ``bypassed`` and ``dirty`` with two or three digits.

    ``fixed`` has those files of :data:`FIXED` that the kernel has. ``fill_end_percent`` is how full the cache was when
    filling it had brought nothing more; None where that did not come about.
    """

    mode: str
    state: str
    cutoff_bytes: int
    writeback_percent: int
    replacement: str
    bucket_bytes: int
    block_bytes: int
    buckets: int
    fixed: Mapping[str, str]
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
        """The share of its buckets that comes into use: all, or where filling it ended if some are always unused."""
        end = self.fill_end_percent
        if self.replacement not in _LEAVE_SOME or end is None or end < _LEAST_PERCENT:
            return _ALL_PERCENT
        return end

    @property
    def filled_percent(self) -> float:
        """How full it is, of what it fills up to."""
        used = _ALL_PERCENT - self.unused_percent
        return min(100.0, 100.0 * used / self.fills_up_to_percent)


class BcacheUnreadable(Exception):
    """sysfs has no such file, or shows something else than a kernel does."""


def parse_status(text: str) -> BcacheStatus:
    """Read the lines of :data:`_FILES`; raises :class:`BcacheUnreadable`."""
    if len(text) > _LONGEST:
        raise BcacheUnreadable(f"sysfs shows {len(text):,} characters of a bcache")
    pairs = [_pair(line) for line in text.splitlines()]
    shown = dict(pairs)
    try:
        return BcacheStatus(
            mode=_chosen(shown["cache_mode"]),
            state=shown["state"][:_QUOTED],
            cutoff_bytes=_size(shown["sequential_cutoff"]),
            writeback_percent=_whole(shown["writeback_percent"]),
            replacement=_chosen(shown["cache/cache0/cache_replacement_policy"]),
            bucket_bytes=_size(shown["cache/cache0/bucket_size"]),
            block_bytes=_size(shown["cache/cache0/block_size"]),
            buckets=_whole(shown["cache/cache0/nbuckets"]),
            fixed={name: _plain(shown[name]) for name in FIXED if name in shown or name not in _NOT_EVERYWHERE},
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
        raise BcacheUnreadable(f"sysfs has no {str(error.args[0])[:_QUOTED]} of the bcache") from error
    except (ValueError, IndexError) as error:
        raise BcacheUnreadable(f"sysfs shows what is no bcache: {text.strip()[:_QUOTED]!r}") from error


def counted(before: BcacheStatus, after: BcacheStatus) -> Iterator[tuple[str, float]]:
    """The values of metrics over a run."""
    reads = after.read_sectors - before.read_sectors
    below = after.read_sectors_below - before.read_sectors_below
    if reads > 0:
        yield "cache.hit_ratio", 100 * max(0.0, 1 - below / reads)
    yield "cache.hits", float(after.hits - before.hits)
    yield "cache.misses", float(after.misses - before.misses)
    yield "cache.bypassed", float(after.bypassed_bytes - before.bypassed_bytes)
    yield "cache.dirty", float(after.dirty_bytes)
    if after.mode != _NOTHING:
        yield FILLED_BEFORE, before.filled_percent
        yield FILLED, after.filled_percent
        if before.fills_up_to_percent < _ALL_PERCENT:
            yield "cache.fills_up_to", float(before.fills_up_to_percent)


def sysfs_command(directory: str, fill_end: str) -> str:
    """Shell text that prints what :func:`parse_status` reads; ``fill_end`` is a file of a fill's, if it left one.

    While bcache collects garbage, what it has not come to yet counts as unused (``btree_gc_start()``): in a guest that
    was under load for 0.1 s every 4 s. So a cache that does not seem full is looked at again, and the least counts.
    """
    stats = "cache/cache0/priority_stats"
    again = f"case $(grep Unused {stats}) in *[!0-9][0-5]%) ;; *) sleep 0.5; grep -H Unused {stats};; esac"
    of_fill = f"sed 's/^/{_FILL_END}:/' {fill_end} 2>/dev/null"
    return f"( cd {directory} && {{ grep -s -H . {' '.join(_FILES)}; {again}; {of_fill}; true; }} )"


def _pair(line: str) -> tuple[str, str]:
    """File and content of a line of grep's; of a file of several lines each has its own name in it."""
    path, _, content = line.partition(":")
    if path.endswith("priority_stats"):
        name, _, content = content.partition(":")
        path = f"{path}:{name}"
    return path, content.strip()


def _chosen(words: str) -> str:
    """The word in brackets."""
    if (found := _CHOSEN.search(words)) is None:
        raise ValueError(words)
    return found[1]


def _plain(text: str) -> str:
    """What was written to a file, of what it shows: one of a list, a number, or a size of nothing."""
    if (found := _CHOSEN.search(text)) is not None:
        return found[1]
    return "0" if text == _NO_SIZE else text[:_QUOTED]


def _whole(word: str) -> int:
    if not (word.isascii() and word.isdecimal() and int(word) < _GREATEST):
        raise ValueError(word)
    return int(word)


def _size(word: str) -> int:
    """Bytes of ``4.0M``, ``1.2k``, ``512`` (``bch_hprint()`` in drivers/md/bcache/util.c).

    Of old kernels what stands behind the point is a remainder of 1024, divided by 100: it can be 10.
    """
    found = _NUMBER.fullmatch(word)
    if found is None:
        raise ValueError(word)
    factor = 1024 ** (_UNITS.index(found[3]) + 1) if found[3] else 1
    tenths = min(int(found[2] or 0), 9)
    size = int(found[1]) * factor + tenths * factor // 10
    return max(0, min(size, _GREATEST - 1))
