"""dm-cache's table and status lines (Documentation/admin-guide/device-mapper/cache.rst)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bisector.figures import CacheStatus

_MODES = ("writeback", "writethrough", "passthrough")
_DEVICE_NUMBER = re.compile(r"\((\d+),\s*(\d+)\)")
_TABLE_DEVICES = 3


class CacheUnusable(Exception):
    """The kernel gave the cache up, or its status says nothing that we know."""


@dataclass(frozen=True, slots=True)
class CacheTarget:
    """A whole status line; block sizes are in bytes, kernels before v4.3 have no ``needs_check``."""

    status: CacheStatus
    metadata_block_bytes: int
    metadata_used_blocks: int
    metadata_total_blocks: int
    block_bytes: int
    features: tuple[str, ...]
    core_arguments: tuple[tuple[str, str], ...]
    policy_arguments: tuple[tuple[str, str], ...]
    read_only: bool
    needs_check: bool


@dataclass(frozen=True, slots=True)
class CacheDevices:
    """The ``major:minor`` of the devices in a table line, in the kernel's order."""

    metadata: str
    cache: str
    origin: str


def parse_status(line: str) -> CacheTarget:
    """Read ``dmsetup status DEVICE``; raises :class:`CacheUnusable`."""
    try:
        return _read_status(iter(_arguments(line)))
    except (ValueError, StopIteration) as error:
        raise CacheUnusable(f"not a dm-cache status line: {line.strip()!r}") from error


def parse_table(line: str) -> CacheDevices:
    """Read ``dmsetup table DEVICE``; raises :class:`CacheUnusable`."""
    words = _arguments(line)
    if len(words) < _TABLE_DEVICES:
        raise CacheUnusable(f"not a dm-cache table line: {line.strip()!r}")
    return CacheDevices(*words[:_TABLE_DEVICES])


def parse_dependencies(deps: str, names: str) -> dict[str, tuple[str, ...]]:
    """What each dm device lies on, by ``major:minor``.

    ``deps`` is ``dmsetup deps``, ``names`` is ``dmsetup info -c --noheadings --separator ' '
    -o name,major,minor``, both of all devices.
    """
    numbers = {name: f"{major}:{minor}" for name, major, minor in (line.split() for line in names.splitlines())}
    below = {}
    for line in deps.splitlines():
        name, _, devices = line.partition(":")
        below[numbers[name.strip()]] = tuple(f"{major}:{minor}" for major, minor in _DEVICE_NUMBER.findall(devices))
    return below


def disks_below(device: str, below: dict[str, tuple[str, ...]]) -> set[str]:
    """The devices at the bottom, those that are not device-mapper's."""
    if device not in below:
        return {device}
    return {disk for lower in below[device] for disk in disks_below(lower, below)}


def _arguments(line: str) -> list[str]:
    """The words after ``START LENGTH cache``, with or without the device's name before it."""
    words = line.split()
    if "cache" not in words[:4]:
        raise CacheUnusable(f"not a cache device: {line.strip()!r}")
    arguments = words[words.index("cache") + 1 :]
    if arguments[:1] in (["Fail"], ["Error"]):
        raise CacheUnusable(f"the kernel gave the cache up: its status is {arguments[0]!r}")
    return arguments


def _read_status(words: Iterator[str]) -> CacheTarget:
    metadata_sectors = int(next(words))
    metadata_used, metadata_total = _fraction(next(words))
    block_sectors = int(next(words))
    used, total = _fraction(next(words))
    read_hits, read_misses, write_hits, write_misses = (int(next(words)) for _ in range(4))
    demotions, promotions, dirty = (int(next(words)) for _ in range(3))
    features = _counted(words)
    core = _counted(words)
    policy = next(words)
    policy_arguments = _counted(words)
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
        metadata_block_bytes=metadata_sectors * 512,
        metadata_used_blocks=metadata_used,
        metadata_total_blocks=metadata_total,
        block_bytes=block_sectors * 512,
        features=features,
        core_arguments=_pairs(core),
        policy_arguments=_pairs(policy_arguments),
        read_only="ro" in rest,
        needs_check="needs_check" in rest,
    )


def _fraction(word: str) -> tuple[int, int]:
    used, total = word.split("/")
    return int(used), int(total)


def _counted(words: Iterator[str]) -> tuple[str, ...]:
    """``N`` and N words."""
    # A list, not a generator: StopIteration inside a generator would become RuntimeError (PEP 479).
    return tuple([next(words) for _ in range(int(next(words)))])


def _pairs(words: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple(zip(words[::2], words[1::2], strict=True))
