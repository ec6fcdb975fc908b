"""What each article found, and from where on it is called held: a table, written down before anything is measured."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bisector.core.objective import SUM
from scenarios.articles import sets
from scenarios.articles.findings import NEW, OLD, Cell, Finding, Named
from scenarios.articles.kernels import Kernels
from scenarios.articles.sets import BCACHE_0, BCACHE_4M, BCACHE_WRITEBACK, HDD, LVMCACHE, RAM, SSD
from scenarios.demo.run import verdict

_SLAT, _WRITE_SLAT = "read.slat.mean", "write.slat.mean"


@dataclass(frozen=True, slots=True)
class Article:
    """A recorded set: what it is, its findings, and the figures that they are made of."""

    name: str
    about: str
    findings: tuple[Finding | Named, ...]
    cells: tuple[Cell, ...]


def articles(kernels: Kernels) -> tuple[Article, ...]:
    """All five."""
    return (_stacks(), _kernels(kernels), _bisection(kernels), _submission(kernels), _cloud())


def _stacks() -> Article:
    name = sets.STACKS
    about = "One kernel on an SSD, on an HDD, and on both with bcache or lvmcache: read IOPS of two jobs."

    def cell(label: str, recorded: str, stack: str, phase: str = "") -> Cell:
        return Cell(label, name, recorded, name, stack, phase=phase, over=SUM)

    ssd, hdd = cell("SSD", "01-ssd", SSD), cell("HDD", "02-hdd", HDD)
    bcache_4m = cell("bcache, cutoff 4M", "03-bcache-sc4m", BCACHE_4M)
    bcache_0 = cell("bcache, cutoff 0", "04-bcache-sc0", BCACHE_0)
    empty = cell("lvmcache, empty", "05-lvmcache-empty", LVMCACHE, "empty")
    full = cell("lvmcache, full", "06-lvmcache-full", LVMCACHE)
    filling = (
        "The run in which the cache fills is seconds long here: reading 64 KiB for each block of it is a large part."
    )
    searches = [replace(cell(f"git grep, {what}", "", stack), run=sets.GREP, metric="elapsed")
                for what, stack in (("SSD", SSD), ("HDD", HDD), ("bcache, cutoff 0", BCACHE_0))]  # fmt: skip
    findings = (
        Finding(name, "The SSD is many times as fast as the HDD.", ssd, hdd, 10),
        Finding(name, "With a sequential_cutoff of 4M bcache stays far below the SSD.", bcache_4m, ssd, most=0.5,
                otherwise="A small cache is warm soon: the misses of the first seconds weigh less than they did."),
        Finding(name, "With a cutoff of 0 bcache is several times as fast.", bcache_0, bcache_4m, 2,
                otherwise="A small cache is warm soon: the misses of the first seconds weigh less than they did."),
        Finding(name, "With a cutoff of 0 bcache comes near the SSD.", bcache_0, ssd, 0.5),
        Finding(name, "An lvmcache comes near the SSD while it is empty at the start.", empty, ssd, 0.5,
                otherwise=filling),
        Finding(name, "A full lvmcache is near the HDD.", full, hdd, most=3),
        Finding(name, "An lvmcache is many times as fast empty as full.", empty, full, 5, otherwise=filling),
        Finding(name, "git grep takes longer on the HDD than on the SSD.", searches[1], searches[0], 1.5,
                otherwise="Under emulation the search itself takes longer than its reads."),
        Finding(name, "git grep takes longer on the HDD than on bcache.", searches[1], searches[2], 1.1,
                otherwise="Under emulation the search itself takes longer than its reads."),
    )  # fmt: skip
    return Article(name, about, findings, (ssd, hdd, bcache_4m, bcache_0, empty, full, *searches))


def _kernels(kernels: Kernels) -> Article:
    name, before = sets.KERNELS, kernels.slow_cache
    about = (
        "Three kernels on an SSD, an HDD, and an lvmcache that is empty and full: read IOPS of the slower of two jobs."
    )
    # Kernels by the versions that were recorded, each with the one that stands for it, and the first of its files.
    stand = [("4.12.3", kernels.newest, 1), ("4.11.6-1", before, 5), ("4.9.30-2", "", 9)]
    stand += [("", kernels.older, 0)] if kernels.older else []

    def of_kernel(version: str, arm: str, first: int) -> Iterator[tuple[str, Cell]]:
        for n, (what, stack, phase) in enumerate(_FOUR):
            recorded = f"{first + n:02d}-{what}-{version}" if version else ""
            label = f"{what.replace('-', ', ')}: {' for '.join(filter(None, (arm, version)))}"
            # What has no stand-in is shown with its recorded figure alone.
            yield what, Cell(label, name, recorded, name if arm else "", stack, arm=arm, phase=phase)

    cells = {version or kernels.older: dict(of_kernel(version, arm, first)) for version, arm, first in stand}
    old, new = cells["4.11.6-1"], cells["4.12.3"]
    short = "The mean of 40 s has the seconds in it in which the cache takes in what is read often."
    findings = [
        Finding(name, "Before v4.12 a full lvmcache is near the HDD.", old[_FULL], old["hdd"], most=3),
        Finding(name, "From v4.12 on it is not.", new[_FULL], new["hdd"], 4, otherwise=short),
        Finding(name, "A full lvmcache is many times as fast as before.", new[_FULL], old[_FULL], 3, otherwise=short),
        Finding(name, "The SSD by itself is as fast as before.", new["ssd"], old["ssd"], 0.8, 1.25,
                otherwise="Two blocks leave a wide interval."),
    ]  # fmt: skip
    if kernels.older:
        other = cells[kernels.older]
        recorded = new[_FULL].recorded, new["hdd"].recorded
        full, hdd = (
            replace(cell, recorded=one) for cell, one in zip((other[_FULL], other["hdd"]), recorded, strict=True)
        )
        findings.insert(2, Finding(name, f"With {kernels.older} it is not, either.", full, hdd, 4, otherwise=short))
    return Article(name, about, tuple(findings), tuple(cell for row in cells.values() for cell in row.values()))


_FULL = "lvmcache-full"
_FOUR = (("ssd", SSD, ""), ("hdd", HDD, ""), ("lvmcache-empty", LVMCACHE, "empty"), (_FULL, LVMCACHE, ""))


def _bisection(kernels: Kernels) -> Article:
    name = sets.BISECT
    about = (
        "A bisection by hand, of 16 kernels between v4.12-rc1 and v4.13-rc1, for the commit that made a full lvmcache"
        " fast: read IOPS of the slower of two jobs. It named 6cf4cc8f8b3b."
    )
    broken = Cell("lvmcache, full: the broken end", name, "01-4.12.0-rc1+-full", name, arm=OLD)
    fixed = Cell("lvmcache, full: the fixed end", name, "02-4.12.0+5518b69b7668-full", name, arm=NEW)
    findings = (
        Named(name, name, "The bisection names the commit that made it fast.", "6cf4cc8f8b3b in 16 kernels",
              lambda status: verdict(kernels.demo, status)),
        Finding(name, "The ends of the range differ many times over.", fixed, broken, 3),
    )  # fmt: skip
    return Article(name, about, findings, (broken, fixed))


def _submission(kernels: Kernels) -> Article:
    name, before = sets.SUBMIT, kernels.slow_submit
    after = f"{before} + {kernels.patch.name}"
    about = "A patch to io_submit(2), before and after, on a disk and on a RAM disk: how long submitting an I/O takes."

    def pair(what: str, stack: str, metric: str, files: tuple[str, str]) -> tuple[Cell, Cell]:
        labels = (f"{metric}, {what}, {when} the patch" for when in ("before", "after"))
        arms = (before, after)
        made = (Cell(label, name, file, name, stack, arm=arm, metric=metric)
                for label, file, arm in zip(labels, files, arms, strict=True))  # fmt: skip
        first, second = made
        return first, second

    disk = ("02-ext4-disk-unpatched", "01-ext4-disk-patched")
    ram = ("04-ext4-ramdisk-unpatched", "03-ext4-ramdisk-patched")
    reads, writes, iops = (pair("disk", HDD, metric, disk) for metric in (_SLAT, _WRITE_SLAT, "read.iops"))
    ram_reads, ram_iops = (pair("RAM disk", RAM, metric, ram) for metric in (_SLAT, "read.iops"))
    emulated = "Under emulation handing a request to a worker takes longer, too."
    findings = (
        Finding(name, "On a disk, submitting a read no longer waits for it.", *reads, 10, otherwise=emulated),
        Finding(name, "Submitting a write takes less, too.", *writes, 2,
                otherwise="A write did not wait here before the patch; it went straight to the queue of the disk."),
        Finding(name, "On a RAM disk, submitting a read takes a fraction of the time.", *ram_reads, 2,
                otherwise=emulated),
        Finding(name, "The RAM disk does more IOPS with the patch.", ram_iops[1], ram_iops[0], 1.01,
                otherwise=emulated),
        Finding(name, "The disk does fewer IOPS with the patch.", iops[1], iops[0], most=0.95,
                otherwise="The virtual disk is limited in IOPS, whatever their order, and has no head that moves."),
    )  # fmt: skip
    return Article(name, about, findings, (*reads, *writes, *iops, *ram_reads, *ram_iops))


def _cloud() -> Article:
    name = sets.CLOUD
    about = "Six workloads on an SSD, an HDD and a bcache, all of them virtual disks of a cloud with limits of its own."

    def three(first: int, what: str, job: str, metric: str) -> tuple[Cell, Cell, Cell]:
        """HDD, SSD and bcache, whose files follow each other in this order."""
        hdd, ssd, bcache = (
            Cell(f"{job}, {metric}: {label}", name, f"{first + n:02d}-{label.lower()}-{what}", name, stack, job,
                 metric=metric)
            for n, (label, stack) in enumerate((("HDD", HDD), ("SSD", SSD), ("bcache", BCACHE_WRITEBACK)))
        )  # fmt: skip
        return hdd, ssd, bcache

    writes = three(1, "rand_write", "rand-write-iops", "write.iops")
    reads = three(4, "rand_read", "rand-read-iops", "read.iops")
    write_bw = three(7, "write_bandwidth", "write-bandwidth", "write.bw")
    read_bw = three(10, "read_bandwidth", "read-bandwidth", "read.bw")
    write_p50 = three(13, "rand_write_latency", "rand-write-latency", "write.clat.p50")
    read_p50 = three(16, "rand_read_latency", "rand-read-latency", "read.clat.p50")
    write_mean = three(13, "rand_write_latency", "rand-write-latency", "write.clat.mean")
    bypass = (
        "The recorded bcache left a part of the I/O to the HDD, since its SSD seemed slow, so both disks' bandwidth"
        " counted; bisector turns that off (congested_*_threshold_us = 0)."
    )
    tail = (
        "The recorded mean has a tail of 7 ms in it, in one write of 30, which the median does not show: the provider's"
        " limit of the SSD. The limit here delays every I/O alike."
    )
    findings: list[Finding] = []
    for what, (hdd, ssd, bcache) in (("writes", writes), ("reads", reads)):
        findings += [
            Finding(name, f"In random {what} bcache comes near the SSD.", bcache, ssd, 0.75),
            Finding(name, f"In random {what} bcache is well above the HDD.", bcache, hdd, 1.5),
        ]
    for what, (hdd, ssd, bcache) in (("writes", write_bw), ("reads", read_bw)):
        findings += [
            Finding(name, f"In sequential {what} bcache is above the SSD.", bcache, ssd, 1.05, otherwise=bypass),
            Finding(name, f"In sequential {what} bcache is well above the HDD.", bcache, hdd, 1.5, otherwise=bypass),
        ]
    for what, (_, ssd, bcache) in (("write", write_p50), ("read", read_p50)):
        sentence = f"At depth 1 the median {what} takes as long as on the SSD."
        findings.append(Finding(name, sentence, bcache, ssd, most=1.25))
    _, ssd, bcache = write_mean
    findings.append(Finding(name, "The mean write takes longer by far.", bcache, ssd, 1.5, otherwise=tail))
    cells = (*writes, *reads, *write_bw, *read_bw, *write_p50, *read_p50, *write_mean)
    return Article(name, about, tuple(findings), cells)
