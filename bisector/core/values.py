"""What one run says: every value of every metric, from what was recorded of it."""

from collections.abc import Iterator, Mapping

from bisector.core.figures import JobFigures, Run
from bisector.core.metric import Value, percentile_name

_KIB = 1024


def values(run: Run) -> tuple[Value, ...]:
    """All values of a run: those of each job, and with an empty job those of the run as a whole."""
    of_whole_jobs = {(value.name, value.job): value for job in run.jobs for value in _of_whole_job(job)}
    of_directions = (value for job in run.jobs for value in _of_direction(job))
    of_layers = {name: Value(name, "", value) for name, value in run.counters}
    return (*of_directions, *of_whole_jobs.values(), *of_layers.values())


def _of_direction(job: JobFigures) -> Iterator[Value]:
    """What is of the reads of a job, or of its writes."""
    yield from _named(
        job,
        {
            f"{job.direction}.iops": job.iops_mean,
            f"{job.direction}.bw": job.bw_kib_s * _KIB,
            f"{job.direction}.ios": job.total_ios,
            f"{job.direction}.iops.stddev": job.iops_stddev,
            # What imports and old records have without the whole distribution.
            f"{job.direction}.clat.mean": job.clat_mean_ns,
            f"{job.direction}.clat.p99": job.clat_p99_ns,
            **dict(_latencies(job)),
        },
    )


def _of_whole_job(job: JobFigures) -> Iterator[Value]:
    """What is of a job as a whole, and recorded with each of its directions."""
    yield from _named(job, {"elapsed": job.runtime_ms / 1000, **_cpu(job)})


def _named(job: JobFigures, named: Mapping[str, float | None]) -> Iterator[Value]:
    yield from (Value(name, job.name, float(value)) for name, value in named.items() if value is not None)


def _latencies(job: JobFigures) -> Iterator[tuple[str, float]]:
    for one in job.latencies:
        start = f"{job.direction}.{one.kind}"
        yield f"{start}.min", one.min_ns
        yield f"{start}.mean", one.mean_ns
        yield f"{start}.max", one.max_ns
        yield f"{start}.stddev", one.stddev_ns
        for percent, value_ns in one.percentiles_ns:
            yield percentile_name(job.direction, one.kind, percent), value_ns


def _cpu(job: JobFigures) -> dict[str, float]:
    cpu = job.cpu
    if cpu is None:
        return {}
    return {
        "cpu.user": cpu.user_percent,
        "cpu.system": cpu.system_percent,
        "cpu.context_switches": cpu.context_switches,
        "cpu.major_faults": cpu.major_faults,
    }
