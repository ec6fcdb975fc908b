"""On what each change shows: the words of a person for ``bisector start``, and how long a trial is expected to take.

What decides a figure is a limit or a delay of a virtual disk, so that a change shows by a factor of 3 at least on any
host: with a delay of 10 ms, 16 requests in flight have 1,600 IOPS and one alone has 100; with a limit of 100 IOPS,
requests of 128 KiB have 12.8 MB/s and those of 8 KiB 0.8. null_blk has requests of 127 KiB at most, unless it is told
otherwise, which it can be since v5.11 alone. Times and factors are expected, not measured.

Three more changes are of 10 to 30 %, in counted time, which has no noise of the host's; and ends without a change are
read by the host's clock, beside other work that comes and goes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

JOBS = Path(__file__).parent / "jobs"
# One configuration for all kernels, by either clock, so that one that two histories have is built once.
FRAGMENTS = ("tiny", "vm", "counted", "disk-null_blk", "storage-lvmcache", "storage-ram")
_SLOW_ANSWERS = {"storage.ssd.latency": "10ms"}


class Family(StrEnum):
    """What kind of stack a setup is of: there is a history of each."""

    CACHE = "cache"
    FILES = "files"
    DEVICE = "device"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Setup:
    """A stack and a job: the words for them, seconds of a trial without its build, and the keys of what shows on it.

    ``pair`` are two changes that show one after the other: the first makes it slow, the second slower, each by a factor
    of 2 at least, which readings on two levels are apart by (bisector.analysis.levels). With ``drifts`` the host has
    other work while it is measured.
    """

    name: str
    family: Family
    words: tuple[str, ...]
    trial_s: float
    changes: tuple[str, ...]
    pair: tuple[str, str] | None = None
    drifts: bool = False


def _words(stack: str, runtime: str, *words: str, **settings: str) -> tuple[str, ...]:
    return ("--stack", stack, "--runtime", runtime, *words, *_each("--set", settings))


def _each(flag: str, settings: Mapping[str, str]) -> Iterator[str]:
    for key, value in settings.items():
        yield from (flag, f"{key}={value}")


def _own(name: str) -> tuple[str, str]:
    return "--job", str(JOBS / f"{name}.fio")


# As in the demonstration: smq looks its cache over once a minute, and two runs have to last longer than that.
_OF_A_CACHE = "40s"
# Files as large as the cache, as there, and half as large: they are in it sooner.
_SMALL_CACHE = ("--file-size", "16MiB", "--cache-size", "32MiB")

SETUPS = (
    Setup("lvmcache", Family.CACHE, _words("lvmcache", _OF_A_CACHE, *_SMALL_CACHE), 105.0, ("spoil",)),
    Setup(
        "lvmcache, written through", Family.CACHE,
        _words("lvmcache(ssd,hdd,cache_mode=writethrough)+ext4", _OF_A_CACHE, *_SMALL_CACHE), 105.0,
        ("clean-from-origin",),
    ),
    Setup(
        "deep reads", Family.FILES, _words("ssd", "12s", "--job", "rand-read-iops", **_SLOW_ANSWERS), 35.0,
        ("waits", "waits-in-iomap", "two-in-flight"),
    ),
    Setup(
        "deep writes", Family.FILES, _words("ssd", "12s", "--job", "rand-write-iops", **_SLOW_ANSWERS), 35.0,
        ("writes-wait",),
    ),
    Setup(
        "single reads", Family.FILES,
        _words("ssd", "12s", "--job", "rand-read-latency", "--metric", "read.lat.mean"), 30.0,
        ("plug-waits",),
    ),
    Setup(
        "large reads", Family.FILES,
        _words("ssd", "12s", *_own("large-reads"), **{"storage.ssd.iops_limit": "200"}), 35.0,
        ("requests-of-32k",),
    ),
    Setup(
        "buffered reads", Family.FILES,
        _words(
            "ssd", "12s", *_own("buffered-reads"), "--file-size", "192MiB", **{"storage.ssd.iops_limit": "100"},
        ), 45.0,
        ("window-of-24k", "disks-read-8k-ahead"), ("window-of-24k", "disks-read-8k-ahead"),
    ),
    Setup(
        "buffered writes", Family.FILES,
        _words(
            "ssd", "12s", *_own("buffered-writes"), "--file-size", "64MiB", **{"storage.ssd.iops_limit": "500"},
        ), 35.0,
        ("dirty-ratio",),
    ),
    Setup(
        "synced writes", Family.FILES,
        _words("ssd", "12s", *_own("synced-writes"), **{"storage.ssd.iops_limit": "100"}), 35.0,
        ("datasync-commits",),
    ),
    Setup(
        "raw reads", Family.DEVICE, _words("ssd+raw", "12s", *_own("deep-raw-reads"), **_SLOW_ANSWERS), 30.0,
        ("reads-on-the-stack",),
    ),
    Setup(
        "ram", Family.MEMORY, _words("ram", "12s", "--job", "randrw", **{"storage.ram.size": "128MiB"}), 30.0,
        ("brd-takes-its-time",),
    ),
)  # fmt: skip

_COUNTED, _BY_HOST = ("--clock", "instructions"), ("--clock", "host")
_RAM_READS = ("--job", "rand-read-latency", "--metric", "read.iops")
# Expected of what kernels without these changes showed in counted time. A read of the RAM disk takes 8,700
# instructions and with the change 2,570 more: 23 % fewer IOPS. Of the default cache's reads 87 % are hits; its 5,150
# IOPS are 15 % less than a CPU could alone, and take 670 of the origin's 1,000. With a tenth of the hits, too, the
# origin has no more than 4,600, and so 11 % less, or with another 15 % of them 24 % less. Of 32 reads of 16 KiB in a
# row requests of 127 KiB have seven each, those of 96 KiB six: six requests for five, 17 % less.
SMALL = (
    Setup(
        "ram, one by one", Family.MEMORY,
        _words("ram", "12s", *_RAM_READS, *_COUNTED, **{"storage.ram.size": "128MiB"}), 30.0,
        ("counts-zeroes",),
    ),
    Setup(
        "lvmcache, misses", Family.CACHE, _words("lvmcache", _OF_A_CACHE, *_COUNTED), 105.0,
        ("every-tenth-hit-missed",),
    ),
    Setup(
        "merged reads", Family.FILES,
        _words("ssd", "12s", *_own("batched-reads"), *_COUNTED, **{"storage.ssd.iops_limit": "200"}), 35.0,
        ("merges-up-to-96k",),
    ),
)  # fmt: skip
# For ends that do not differ. What is read is in memory, so that the figure is the speed of a core.
DRIFTING = Setup(
    "ram, on a host that drifts", Family.MEMORY,
    _words("ram", "12s", *_RAM_READS, *_BY_HOST, **{"storage.ram.size": "128MiB"}), 30.0,
    (), drifts=True,
)  # fmt: skip
