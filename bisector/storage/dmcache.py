"""dm-cache's table and status lines (Documentation/admin-guide/device-mapper/cache.rst)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bisector.core.figures import CacheStatus
from bisector.storage.filling import FILLED, Settling

_MODES = ("writeback", "writethrough", "passthrough")
_NAMED = re.compile(r"(\S+) (\d+) (\d+)")
_DEVICE_NUMBER = re.compile(r"\((\d+),\s*(\d+)\)")
SECTOR_BYTES = 512
PASSTHROUGH, CLEANER = "passthrough", "cleaner"
# The metrics that :func:`counted` gives.
COUNTS = ("cache.hit_ratio", "cache.promotions", "cache.demotions", "cache.dirty_blocks", FILLED)
# smq spreads the blocks over its levels at the end of each CACHE_UPDATE_PERIOD, and marks anew what it may demote at
# that of each DEMOTE_PERIOD (drivers/md/dm-cache-policy-smq.c, end_cache_period() and update_sentinels()). In v6.1 both
# are 60 s; the smq of before dm-cache's rework in v4.12 had 10 s and 60 s. The demonstration's fixed kernel becomes
# fast when that moment comes, and not before. mq is the same policy since v4.6; before, it counted hits, and no time.
SETTLING = Settling(period_s=60.0)
_THRESHOLD = "migration_threshold"
_GREATEST = 2**63  # of an integer that the record holds; the kernel's counters have 32 bits, or are block numbers
_QUOTED = 200
_LONGEST_LINE = 4096  # what the kernel has room for is about as long (drivers/md/dm-ioctl.c), what it writes is shorter


class CacheUnusable(Exception):
    """dm-cache gave up, or printed a status that is not known."""


@dataclass(frozen=True, slots=True)
class CacheTarget:
    """What a status line says of the cache and of its metadata; kernels before v4.3 have no ``needs_check``.

    ``migration_threshold`` is in sectors, and None where the kernel does not tell it. ``metadata_bytes`` is the size of
    the device that the metadata are on.
    """

    status: CacheStatus
    metadata_bytes: int
    read_only: bool
    needs_check: bool
    migration_threshold: int | None = None


@dataclass(frozen=True, slots=True)
class CacheTable:
    """A table line: the ``major:minor`` of the devices, the size of a block, the format of the metadata."""

    metadata: str
    cache: str
    origin: str
    block_sectors: int
    metadata_format: int


def parse_status(line: str) -> CacheTarget:
    """Read ``dmsetup status DEVICE``; raises :class:`CacheUnusable`."""
    try:
        return _read_status(iter(_arguments(line)))
    except (ValueError, StopIteration) as error:
        raise CacheUnusable(f"not a dm-cache status line: {_quoted(line)}") from error


def counted(before: CacheStatus | None, after: CacheStatus | None) -> Iterator[tuple[str, float]]:
    """The values of metrics over a run; dm-cache itself counts from the making of the cache on."""
    if before is None or after is None:
        return
    hits = after.read_hits + after.write_hits - before.read_hits - before.write_hits
    misses = after.read_misses + after.write_misses - before.read_misses - before.write_misses
    if hits + misses > 0:
        yield "cache.hit_ratio", 100 * hits / (hits + misses)
    yield "cache.promotions", float(after.promotions - before.promotions)
    yield "cache.demotions", float(after.demotions - before.demotions)
    yield "cache.dirty_blocks", float(after.dirty_blocks)
    if fills(after.mode, after.policy) and after.total_blocks > 0:
        yield FILLED, 100 * after.used_blocks / after.total_blocks


def fills(mode: str, policy: str) -> bool:
    """Whether blocks ever go into the cache: in passthrough mode none do, and the cleaner only writes back."""
    return mode != PASSTHROUGH and policy != CLEANER


def parse_table(line: str) -> CacheTable:
    """Read ``dmsetup table DEVICE``; raises :class:`CacheUnusable`."""
    words = iter(_arguments(line))
    try:
        metadata, cache, origin = [next(words) for _ in range(3)]
        block_sectors = _whole(next(words))
        features = _counted(words)
    except (ValueError, StopIteration) as error:
        raise CacheUnusable(f"not a dm-cache table line: {_quoted(line)}") from error
    return CacheTable(metadata, cache, origin, block_sectors, 2 if "metadata2" in features else 1)


def parse_dependencies(deps: str, names: str) -> dict[str, tuple[str, ...]]:
    """What each dm device lies on, by ``major:minor``.

    ``deps`` is ``dmsetup deps``, ``names`` is ``dmsetup info -c --noheadings --separator ' '
    -o name,major,minor``, both of all devices. Raises :class:`CacheUnusable`.
    """
    numbers = numbers_of(names)
    below = {}
    for line in deps.splitlines():
        name, _, devices = line.partition(":")
        if name.strip() not in numbers:
            raise CacheUnusable(f"dmsetup deps names a device that dmsetup info does not: {_quoted(line)}")
        below[numbers[name.strip()]] = tuple(f"{major}:{minor}" for major, minor in _DEVICE_NUMBER.findall(devices))
    return below


def numbers_of(names: str) -> dict[str, str]:
    """``major:minor`` of each dm device by its name, from ``dmsetup info``; raises :class:`CacheUnusable`."""
    numbers = {}
    for line in names.splitlines():
        if (named := _NAMED.fullmatch(line.strip())) is None:
            raise CacheUnusable(f"not a line of dmsetup info: {_quoted(line)}")
        numbers[named[1]] = f"{named[2]}:{named[3]}"
    return numbers


def disks_below(device: str, below: Mapping[str, tuple[str, ...]]) -> set[str]:
    """The devices at the bottom, those that are not device-mapper's; none where devices lie on each other in a ring."""
    bottom, seen, waiting = set(), {device}, [device]
    while waiting:
        upper = waiting.pop()
        if upper not in below:
            bottom.add(upper)
            continue
        lower = set(below[upper]) - seen
        seen |= lower
        waiting += lower
    return bottom


def _arguments(line: str) -> list[str]:
    """The words after ``START LENGTH cache``, with or without the device's name before it."""
    if len(line) > _LONGEST_LINE:
        raise CacheUnusable(f"a line of {len(line):,} characters about a cache: {_quoted(line)}")
    words = line.split()
    if "cache" not in words[:4]:
        raise CacheUnusable(f"not a cache device: {_quoted(line)}")
    arguments = words[words.index("cache") + 1 :]
    if arguments[:1] in (["Fail"], ["Error"]):
        raise CacheUnusable(f"dm-cache gave up: its status is {arguments[0]!r}")
    return arguments


def _quoted(line: str) -> str:
    return repr(line.strip()[:_QUOTED])


def _read_status(words: Iterator[str]) -> CacheTarget:
    # Lists, not generators: StopIteration inside a generator would become RuntimeError (PEP 479).
    metadata_sectors = _whole(next(words))  # of a block of metadata
    _, metadata_blocks = _fraction(next(words))
    _whole(next(words))  # sectors of a block of the cache
    used, total = _fraction(next(words))
    read_hits, read_misses, write_hits, write_misses = [_whole(next(words)) for _ in range(4)]
    demotions, promotions, dirty = [_whole(next(words)) for _ in range(3)]
    features = _counted(words)
    core = _counted(words)
    policy = next(words)
    _counted(words)
    rest = tuple(words)
    return CacheTarget(
        status=CacheStatus(
            policy=policy,
            # writeback is the kernel's default, and may go without saying
            mode=next((feature for feature in features if feature in _MODES), "writeback"),
            used_blocks=used,
            total_blocks=total,
            dirty_blocks=dirty,
            read_hits=read_hits,
            read_misses=read_misses,
            write_hits=write_hits,
            write_misses=write_misses,
            demotions=demotions,
            promotions=promotions,
        ),
        metadata_bytes=metadata_blocks * metadata_sectors * SECTOR_BYTES,
        read_only="ro" in rest,
        needs_check="needs_check" in rest,
        migration_threshold=_whole(core[core.index(_THRESHOLD) + 1]) if _THRESHOLD in core[:-1] else None,
    )


def _fraction(word: str) -> tuple[int, int]:
    used, total = word.split("/")
    return _whole(used), _whole(total)


def _whole(word: str) -> int:
    if not (word.isascii() and word.isdecimal() and int(word) < _GREATEST):
        raise ValueError(word)
    return int(word)


def _counted(words: Iterator[str]) -> tuple[str, ...]:
    return tuple([next(words) for _ in range(_whole(next(words)))])
