"""The figures of one run, as frozen records, with units in the names. Conclusions are drawn elsewhere."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from bisector.core.json_document import PAIRS, Key
from bisector.core.metric import LatencyKind

_ROUND_MARK = "@"


@dataclass(frozen=True, slots=True)
class DiskQueue:
    """How the guest's kernel queued the requests of a disk (Documentation/ABI/stable/sysfs-block)."""

    disk: Annotated[str, "name of the disk"]
    bus: Annotated[str, "how the guest sees it: `virtio`, `scsi`, `sata`, `nvme`, `null_blk` or `brd`"]
    scheduler: Annotated[str, "I/O scheduler, `none` without one; empty where the kernel does not tell"]
    read_ahead_kb: Annotated[int | None, "read-ahead, KiB; `null` where the kernel does not tell"]
    nr_requests: Annotated[int | None, "requests that its queue holds; `null` where the kernel does not tell"]
    wbt_lat_usec: Annotated[
        int | None,
        "read latency in microseconds from which on buffered writes are throttled, 0 for never; `null` for a kernel "
        "that does not throttle them",
    ]

    @property
    def text(self) -> str:
        """All known properties of the queue, for a person."""
        values = ((name, getattr(self, name)) for name in ("read_ahead_kb", "nr_requests", "wbt_lat_usec"))
        known = (f"{name} {value}" for name, value in values if value is not None)
        return ", ".join((self.bus, f"scheduler {self.scheduler or 'unknown'}", *known))


class StopReason(StrEnum):
    """The reason why a run was stopped early."""

    ABOVE = "above"
    NOT_ABOVE = "not above"
    SETTLED = "settled"  # a run that fills a cache: the cache was full, and its figures held still


@dataclass(frozen=True, slots=True)
class Latency:
    """The distribution of one kind of latency."""

    kind: Annotated[
        LatencyKind,
        "what is timed: `slat` until an I/O is submitted, `clat` from then until it completes, `lat` both together; "
        "`sync` an fsync(2), fdatasync(2) or sync_file_range(2), the same in each direction of the job",
    ]
    min_ns: Annotated[float, "shortest"]
    max_ns: Annotated[float, "longest"]
    mean_ns: Annotated[float, "mean"]
    stddev_ns: Annotated[float, "standard deviation"]
    percentiles_ns: Annotated[
        tuple[tuple[float, float], ...], "pairs of percent and nanoseconds; empty where the job computes none"
    ] = ()


@dataclass(frozen=True, slots=True)
class CpuUse:
    """The CPU use of a job over its run time; it is the same in each direction of the job."""

    user_percent: Annotated[float, "of a CPU in user mode"]
    system_percent: Annotated[float, "of a CPU in the kernel"]
    context_switches: Annotated[int, "number of context switches"]
    major_faults: Annotated[int, "number of page faults that needed I/O"]


@dataclass(frozen=True, slots=True)
class JobFigures:
    """The figures of one fio job in one direction, as fio reported them (fio HOWTO, "Interpreting the output")."""

    name: Annotated[str, "name of the job"]
    direction: Annotated[
        str, "`read`, `write` or `trim`; `mixed` of all together, where fio was told to make one figure of them"
    ]
    iops_mean: Annotated[float, "I/Os per second"]
    iops_stddev: Annotated[float | None, "standard deviation of the samples; `null` from old versions of fio"]
    bw_kib_s: Annotated[float, "KiB per second"]
    clat_mean_ns: Annotated[float | None, "mean completion latency in nanoseconds; `null` where fio reported none"]
    clat_p99_ns: Annotated[float | None, "99th percentile of it; `null` where the job computes none"]
    total_ios: Annotated[int, "number of I/Os"]
    runtime_ms: Annotated[int, "milliseconds"]
    error: Annotated[int, "error number (errno) of the job, 0 for none"]
    latencies: Annotated[tuple[Latency, ...], "distributions of latency; empty where fio reported none"] = ()
    cpu: Annotated[CpuUse | None, "CPU time, the same in each direction of the job; `null` where fio reported none"] = (
        None
    )
    depths_percent: Annotated[
        tuple[tuple[str, float], ...], "pairs of queue depth and share of the I/Os in percent"
    ] = ()
    steady_iops: Annotated[
        float | None, "I/Os per second of the steady part of the run; `null` without one, or without a log of the IOPS"
    ] = None
    settled_after_s: Annotated[
        float | None,
        "seconds until the steady part was there; of a run without one its length; `null` where that is not known: "
        "without a log, and of a run that was stopped early",
    ] = None


@dataclass(frozen=True, slots=True)
class DiskFigures:
    """The I/O of a block device during an fio run, as in Documentation/admin-guide/iostats.rst."""

    name: Annotated[str, "name of the block device"]
    read_ios: Annotated[int, "reads completed"]
    write_ios: Annotated[int, "writes completed"]
    read_merges: Annotated[int, "reads merged with others in the queue"]
    write_merges: Annotated[int, "writes merged with others in the queue"]
    read_ticks_ms: Annotated[int, "milliseconds of all reads together"]
    write_ticks_ms: Annotated[int, "milliseconds of all writes together"]
    in_queue_ms: Annotated[int, "milliseconds of all I/Os in the queue together"]
    util_percent: Annotated[float, "share of the time in which it was busy"]


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """``dmsetup status`` of a dm-cache device (Documentation/admin-guide/device-mapper/cache.rst)."""

    policy: Annotated[str, "replacement policy"]
    mode: Annotated[str, "`writethrough`, `writeback` or `passthrough`"]
    used_blocks: Annotated[int, "cache blocks in use"]
    total_blocks: Annotated[int, "cache blocks in all"]
    dirty_blocks: Annotated[int, "cache blocks that differ from the origin"]
    read_hits: Annotated[int, "reads found in the cache"]
    read_misses: Annotated[int, "reads not found in it"]
    write_hits: Annotated[int, "writes found in the cache"]
    write_misses: Annotated[int, "writes not found in it"]
    demotions: Annotated[int, "blocks removed from the cache"]
    promotions: Annotated[int, "blocks moved to the cache"]

    @property
    def full(self) -> Annotated[bool, Key()]:
        """Whether every cache block is in use, so that the next promotion has to demote."""
        return self.total_blocks > 0 and self.used_blocks >= self.total_blocks


@dataclass(frozen=True, slots=True)
class Contention:
    """The host's other work while a run lasted (Documentation/accounting/psi.rst).

    The speed of its cores is measured before and after the run, by a fixed piece of work.
    """

    other_busy_cores: Annotated[float, "CPU time of everything but the guest, in cores"]
    steal_share: Annotated[float, "share of CPU time that the hypervisor above took"]
    psi_some_share: Annotated[
        float, "share of the time in which some task waited for a CPU: the line `some` of /proc/pressure/cpu"
    ]
    mib_s_before: Annotated[
        float | None, "MiB that a core hashed a second before the run, mean of all cores; `null` where nobody looked"
    ] = None
    mib_s_after: Annotated[float | None, "the same, after the run"] = None


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """How a run was stopped early: its side of the threshold was clear, or the cache that it filled was settled.

    The bound is below the mean of each deciding value (ABOVE), or above the mean of one of them (NOT_ABOVE), with a
    margin for chance, so that the side also holds for other thresholds up to the bound. For a run that filled a cache
    (SETTLED) it is how full the cache was at least.
    """

    reason: Annotated[
        StopReason,
        "whether the values were clear above the threshold, or clear not above it; `settled` of a run that filled a "
        "cache, which was full and steady",
    ]
    at_s: Annotated[float, "seconds from the start of the run"]
    bound: Annotated[float, "value of `metric` that the run is above, or not above, with a margin for chance"]
    threshold: Annotated[float, "value of `metric` between the two sides"]
    why: Annotated[str, "one sentence"]
    metric: Annotated[str, "the [metric](metrics.md); the bound tells nothing of another one"] = "read.iops"
    over: Annotated[str, "what several jobs amounted to"] = "worst"
    against: Annotated[
        str, "commit of the whole run that it was clear of, too, or like, if it is its own; empty without one"
    ] = ""
    apart: Annotated[
        float | None,
        "by what factor at least, moment by moment, with a margin for chance; on average where it is its own commit; "
        "`null` without one",
    ] = None


def round_name(phase: str, number: int) -> str:
    """Return the name of the run of a phase in one of its rounds: ``empty``, ``empty@2``, ``empty@3``."""
    return phase if number == 1 else f"{phase}{_ROUND_MARK}{number}"


def phase_name(run: str) -> str:
    """Return the name of the phase that a run belongs to."""
    return run.partition(_ROUND_MARK)[0]


def run_words(name: str) -> str:
    """Return the words for a run in a sentence; the only run of a stack is just "run"."""
    return name if name == "run" else f"{name} run"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the workload."""

    name: Annotated[str, "name of its phase, such as `empty` or `full`; `empty@2` is its second round"]
    started_at: Annotated[str, "time"]
    duration_s: Annotated[float, "seconds"]
    jobs: Annotated[tuple[JobFigures, ...], "what fio reported for each job and direction"]
    cache_before: Annotated[CacheStatus | None, "the cache before the run; `null` for a stack without one"]
    cache_after: Annotated[CacheStatus | None, "the cache after it"]
    contention: Annotated[Contention | None, "what else the host was doing; `null` if nobody measured it"]
    clock_drift_s: Annotated[float | None, "seconds that the guest's clock gained; `null` if nobody measured it"]
    disks: Annotated[tuple[DiskFigures, ...], "what fio reported for each disk; may be empty"] = ()
    stopped_early: Annotated[
        EarlyStop | None, "why it was stopped before its time, `null` for a full run, whose figures differ from those"
    ] = None
    counters: Annotated[
        tuple[tuple[str, float], ...],
        PAIRS,
        "what the layers of the stack counted, and of a command what it took and printed: a value for each metric",
    ] = ()

    @property
    def repeats(self) -> bool:
        """Whether the run is a further round of a phase whose first round did not fill its cache."""
        return self.name != phase_name(self.name)

    @property
    def aside_s(self) -> float:
        """Seconds on the host's clock beyond fio's run time, mostly for laying out files; 0 without fio."""
        return self.duration_s - max(job.runtime_ms for job in self.jobs) / 1000 if self.jobs else 0.0

    @property
    def direction(self) -> str:
        """The direction whose figures are shown by default: reads, if it reads."""
        directions = [job.direction for job in self.jobs]
        return "read" if "read" in directions or not directions else directions[0]
