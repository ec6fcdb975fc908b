"""What is run for each recorded set: commands of bisector, scaled to two cores without KVM, and what each may take.

Each run has one directory. Virtual disks are limited to what emulation surely reaches, and to less: so the figures come
from the stack and not from the CPU. ``recorded`` tells what was scaled, and why.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from scenarios import kept_runs
from scenarios.articles.kernels import Kernels
from scenarios.demo.history import NEW_TAG, OLD_TAG

# The sets, by their names in tests/data/recorded-runs.
STACKS, KERNELS, BISECT = "bcache-lvmcache-2017", "lvmcache-kernels-2017", "lvmcache-bisect-2017"
SUBMIT, CLOUD = "io-submit-2012", "bcache-cloud-2022"
GREP = f"{STACKS}-grep"

SSD, HDD, RAM, LVMCACHE = "ssd+ext4", "hdd+ext4", "ram+ext4", "lvmcache(ssd,hdd)+ext4"
# A cutoff of 4 MiB is bcache's default; of 0, everything goes through the cache.
BCACHE_4M = "bcache(ssd,hdd,sequential_cutoff=4MiB)+ext4"
BCACHE_0 = "bcache(ssd,hdd,sequential_cutoff=0)+ext4"
# Of the recorded writes none reached the slow disk while a run lasted. Here the file of the run before may still be
# dirty, and bcache writes through when much of it is (CUTOFF_WRITEBACK_SYNC in drivers/md/bcache/writeback.h): dirty
# data are written back at once.
BCACHE_WRITEBACK = "bcache(ssd,hdd,cache_mode=writeback,sequential_cutoff=0,writeback_percent=0)+ext4"

# A bcache that writes through keeps 1/1024 of its buckets ready (cache_alloc() in drivers/md/bcache/super.c), here one,
# and what is written while none is ready passes by it (bch_data_insert_start()). The recorded one had thousands of
# times as many: so files are laid out a bucket at a time, and not by writes of a MiB.
BUCKET_DIRTY = "sysctl.vm.dirty_bytes=65536 sysctl.vm.dirty_background_bytes=32768"

JOBS = (
    "rand-write-iops", "rand-read-iops", "write-bandwidth", "read-bandwidth",
    "rand-write-latency", "rand-read-latency",
)  # fmt: skip
# One configuration for all compared kernels, so that each is built once for all sets.
FRAGMENTS = ("tiny", "vm", "storage-lvmcache", "storage-bcache", "storage-ram")
SEED = 2017
BUDGET_S = 90 * 60.0
# No block is begun that would end later than so many times what is expected. A first block that fills a cache is
# thought to take as long as it may: stacks that do come first, and where there are several there is more to spare.
_SPARE, _SPARE_OF_CACHES = 1.2, 1.3
_SPARE_OF_A_SEARCH = 1.4  # nothing ends a bisection but its answer
_MIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Run(kept_runs.Run):
    """A run for a recorded set; the seconds are without builds. ``scaled`` says what is other than in the article."""

    article: str
    scaled: str
    spare: float = _SPARE

    @property
    def most_s(self) -> float:
        """What it may take."""
        return self.spare * self.expected_s


def runs(kernels: Kernels) -> tuple[Run, ...]:
    """All runs that say something on these sources, in the order in which they are run."""
    return (
        _stacks(kernels),
        _grep(kernels),
        _kernels(kernels),
        _bisect(kernels),
        *(() if kernels.no_patch else (_submit(kernels),)),
        _cloud(kernels),
    )


def fragments() -> tuple[str, ...]:
    """The flags that configure every kernel alike, for the disks with limits that the figures are scaled by."""
    return ("--set", "machine.clock=host", "--fragments-only", *_each("--fragment", *FRAGMENTS))


def _stacks(kernels: Kernels) -> Run:
    words = (
        *_compare(kernels, 11 * _SPARE_OF_CACHES, kernels.slow_cache, "--placebo", "--runs", "1"),
        *_each("--stack", LVMCACHE, BCACHE_0, BCACHE_4M, SSD, HDD),
        *("--job", "partial", "--metric", "read.iops", "--over", "sum"),
        *("--runtime", "20s", "--file-size", "24MiB", "--cache-size", "48MiB"),
        *_set({
            "storage.bcache.cache_size": "64MiB", "storage.ssd.iops_limit": "8000", "storage.hdd.iops_limit": "250",
            "storage.fill_deadline": "1min", "machine.append": BUCKET_DIRTY,
        }),
    )  # fmt: skip
    scaled = (
        "Runs take 20 s (30 min), files have 24 MiB (2 GiB), the cache of bcache has 64 MiB, so that it has room for"
        " both, and that of lvmcache 48 MiB. At most 64 KiB are dirty at once, since a bcache of this size lets in"
        " little at a time. The SSD is limited to 8,000 IOPS and the HDD to 250."
        f" The recorded kernel was older than v4.12; {kernels.slow_cache} has a fault of the same effect, which was"
        " made on purpose: a full dm-cache takes nothing in. A cache is filled and then judged with new files; what is"
        " recorded of a cache that was empty is compared with the run that fills it."
    )
    what = "SSD, HDD, bcache and lvmcache on one kernel, which is measured twice"
    return Run(STACKS, what, words, 11 * _MIN_S, STACKS, scaled, _SPARE_OF_CACHES)


def _grep(kernels: Kernels) -> Run:
    words = (
        *_compare(kernels, 5 * _SPARE, kernels.slow_cache, "--placebo", "--runs", "1"),
        *_each("--stack", BCACHE_0, SSD, HDD),
        *("--grep", "EXPORT_SYMBOL_GPL"),
        *_set({
            "workload.gitgrep.commit": kernels.newest, "workload.gitgrep.path": "kernel",
            "workload.gitgrep.runs": "3", "workload.gitgrep.size": "64MiB",
            "storage.bcache.cache_size": "12MiB", "storage.bcache.bucket_size": "16KiB",
            "storage.ssd.iops_limit": "8000", "storage.hdd.iops_limit": "250", "storage.fill_deadline": "2min",
        }),
    )  # fmt: skip
    scaled = (
        "git grep searches the directory kernel of the tree, three times with a cold page cache. Its figures are not"
        " among the recorded runs. An lvmcache is left out: it takes in what is read often, and nothing is here."
    )
    return Run(GREP, "git grep on three stacks, on the same kernel", words, 5 * _MIN_S, STACKS, scaled)


def _kernels(kernels: Kernels) -> Run:
    others = tuple(filter(None, (kernels.newest, kernels.older)))
    words = (
        *_compare(kernels, 20 * _SPARE, kernels.slow_cache, *others, "--runs", "2"),
        *_each("--stack", LVMCACHE, SSD, HDD),
        *("--job", "partial", "--metric", "read.iops", "--over", "worst", "--runtime", "40s"),
        *_set({"storage.ssd.iops_limit": "8000", "storage.hdd.iops_limit": "1000", "storage.fill_deadline": "3min"}),
    )
    scaled = (
        "The recorded kernels are 4.9, 4.11 and 4.12, which this distribution does not have: its own stand for 4.12,"
        f" and {kernels.slow_cache}, in which a full dm-cache takes nothing in, for those before. Runs take 40 s"
        " (15 min), since dm-cache looks its cache over once a minute, and two runs have to last longer than that;"
        " files have 32 MiB, the cache 64 MiB, the HDD is limited to 1,000 IOPS. The slower job counts."
    )
    what = f"{1 + len(others)} kernels on SSD, HDD and lvmcache"
    return Run(KERNELS, what, words, 20 * _MIN_S, KERNELS, scaled)


def _bisect(kernels: Kernels) -> Run:
    # The person had the means of whole runs, as the other articles have.
    words = ("start", OLD_TAG, NEW_TAG, "--repo", kernels.demo.repo, "--part", "whole")
    scaled = (
        f"The history is that of the demonstration: {len(kernels.demo.commits)} commits made on purpose on the"
        " distribution's source, two of which do not boot, and one of which repairs dm-cache."
    )
    return Run(
        BISECT, "a bisection by the IOPS of a full lvmcache", words, 10 * _MIN_S, BISECT, scaled, _SPARE_OF_A_SEARCH
    )


def _submit(kernels: Kernels) -> Run:
    words = (
        *_compare(kernels, 8 * _SPARE, kernels.slow_submit, "--patch", str(kernels.patch), "--runs", "7"),
        *_each("--stack", HDD, RAM),
        *("--job", "randrw", "--runtime", "6s", "--file-size", "32MiB"),
        *_set({"storage.hdd.iops_limit": "500", "storage.ram.size": "128MiB"}),
    )
    scaled = (
        "The recorded patch of 2012 cannot be applied to a kernel of today. Two edits of the distribution's source have"
        f" its effect: {kernels.slow_submit} waits for each direct read of ext4 where it is submitted, and the patch"
        " leaves the submission to a worker. Runs take 6 s on a file of 32 MiB, the disk is limited to 500 IOPS."
    )
    what = "a patch, before and after, on a disk and on a RAM disk, by the submission latency of reads"
    return Run(SUBMIT, what, words, 8 * _MIN_S, SUBMIT, scaled)


def _cloud(kernels: Kernels) -> Run:
    words = (
        *_compare(kernels, 18 * _SPARE, kernels.newest, "--placebo", "--runs", "1"),
        *_each("--stack", BCACHE_WRITEBACK, SSD, HDD),
        *_each("--job", *JOBS),
        *("--runtime", "8s", "--file-size", "16MiB"),
        *_set({
            "storage.bcache.cache_size": "128MiB", "storage.fill_deadline": "110s",
            "storage.ssd.iops_limit": "3000", "storage.ssd.bandwidth_limit": "48MiB",
            "storage.hdd.iops_limit": "600", "storage.hdd.bandwidth_limit": "24MiB",
        }),
    )  # fmt: skip
    scaled = (
        "Runs take 8 s on a file of 16 MiB (1 and 2 GiB). The recorded file was smaller than its cache, which was new;"
        " the cache of 128 MiB is filled with other data here before a run is judged. The SSD is limited to 3,000 IOPS"
        " and 48 MiB/s, the HDD to 600 and 24 MiB/s."
    )
    what = "six workloads on SSD, HDD and bcache, on one kernel, which is measured twice"
    return Run(CLOUD, what, words, 18 * _MIN_S, CLOUD, scaled)


def _compare(kernels: Kernels, minutes: float, *words: str) -> tuple[str, ...]:
    """A comparison that takes so many minutes at most."""
    budget = ("--budget", f"{round(minutes * _MIN_S)}s")
    return ("compare", *words, "--repo", str(kernels.repo), "--seed", str(SEED), *budget, *fragments())


def _each(flag: str, *values: str) -> Iterator[str]:
    for value in values:
        yield from (flag, value)


def _set(values: Mapping[str, str]) -> Iterator[str]:
    yield from _each("--set", *(f"{key}={value}" for key, value in values.items()))
