"""What is read off one run: frozen records of figures; units are in the names. Nothing here concludes."""

from dataclasses import dataclass
from enum import StrEnum


class StopReason(StrEnum):
    """What was clear of a run before its time."""

    ABOVE = "above"
    NOT_ABOVE = "not above"


class LatencyKind(StrEnum):
    """What fio times: until an I/O is submitted, from then until it completes, and both together (fio(1))."""

    SUBMISSION = "slat"
    COMPLETION = "clat"
    TOTAL = "lat"


@dataclass(frozen=True, slots=True)
class Latency:
    """The distribution of one kind of latency; ``percentiles_ns`` holds pairs of percent and nanoseconds."""

    kind: LatencyKind
    min_ns: float
    max_ns: float
    mean_ns: float
    stddev_ns: float
    percentiles_ns: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class CpuUse:
    """What a job took of a CPU over its run time; it is the same in each direction of the job."""

    user_percent: float
    system_percent: float
    context_switches: int
    major_faults: int


@dataclass(frozen=True, slots=True)
class JobFigures:
    """One fio job in one direction, as fio reported it (fio HOWTO, "Interpreting the output").

    None is what was not reported: old versions of fio have no deviation of the IOPS, and a job can be told to
    compute no percentiles.
    """

    name: str
    direction: str
    iops_mean: float
    iops_stddev: float | None
    bw_kib_s: float
    clat_mean_ns: float | None
    clat_p99_ns: float | None
    total_ios: int
    runtime_ms: int
    error: int
    latencies: tuple[Latency, ...] = ()
    cpu: CpuUse | None = None
    depths_percent: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class DiskFigures:
    """What a block device did during an fio run, as in Documentation/admin-guide/iostats.rst."""

    name: str
    read_ios: int
    write_ios: int
    read_merges: int
    write_merges: int
    read_ticks_ms: int
    write_ticks_ms: int
    in_queue_ms: int
    util_percent: float


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """``dmsetup status`` of a dm-cache device (Documentation/admin-guide/device-mapper/cache.rst)."""

    policy: str
    mode: str
    used_blocks: int
    total_blocks: int
    dirty_blocks: int
    read_hits: int
    read_misses: int
    write_hits: int
    write_misses: int
    demotions: int
    promotions: int

    @property
    def full(self) -> bool:
        """Every cache block is in use, so the next promotion has to demote."""
        return self.total_blocks > 0 and self.used_blocks >= self.total_blocks


@dataclass(frozen=True, slots=True)
class Contention:
    """What the host did besides our guest while a run lasted.

    ``other_busy_cores`` is CPU time of everything but the guest, in cores; ``steal_share`` is the
    share of CPU time the hypervisor above took; ``psi_some_share`` is the ``some`` line of
    /proc/pressure/cpu over the run (Documentation/accounting/psi.rst).
    """

    other_busy_cores: float
    steal_share: float
    psi_some_share: float


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """A run was stopped ``at_s`` seconds after its start, because its side of ``threshold`` was clear.

    ``bound`` is what the mean of each deciding value was above (ABOVE) or what one was below (NOT_ABOVE), the margin
    for chance taken off or added: so the side holds for other thresholds, too, up to there. Both are values of
    ``metric`` over jobs as ``over`` says, and tell nothing of another metric.
    """

    reason: StopReason
    at_s: float
    bound: float
    threshold: float
    why: str
    metric: str = "read.iops"
    over: str = "worst"


@dataclass(frozen=True, slots=True)
class Run:
    """One fio run: its jobs, the cache before and after it, the host meanwhile.

    ``clock_drift_s`` is guest elapsed time minus host elapsed time over the run. It and ``contention`` are None when
    nobody looked, which only an imported run may be. ``counters`` are what the layers of the storage stack counted
    during the run, by the names of metrics. The figures of a run that was ``stopped_early`` are not to be compared with
    those of a whole one.
    """

    name: str
    started_at: str
    duration_s: float
    jobs: tuple[JobFigures, ...]
    cache_before: CacheStatus | None
    cache_after: CacheStatus | None
    contention: Contention | None
    clock_drift_s: float | None
    disks: tuple[DiskFigures, ...] = ()
    stopped_early: EarlyStop | None = None
    counters: tuple[tuple[str, float], ...] = ()

    @property
    def aside_s(self) -> float:
        """Host seconds of the run that are not fio's run time: its files were laid out, above all; 0 without fio."""
        return self.duration_s - max(job.runtime_ms for job in self.jobs) / 1000 if self.jobs else 0.0

    @property
    def direction(self) -> str:
        """What its figures are of where they are told without a word: the reads, if it reads."""
        directions = [job.direction for job in self.jobs]
        return "read" if "read" in directions or not directions else directions[0]

    @property
    def shown_jobs(self) -> tuple[JobFigures, ...]:
        """The figures of its jobs in that direction, in the order of the jobs."""
        return tuple(job for job in self.jobs if job.direction == self.direction)
