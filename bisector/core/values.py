"""What one run says: every value of every metric, from what was recorded of it."""

from collections.abc import Callable, Iterator, Mapping

from bisector.core.figures import JobFigures, Latency, Run
from bisector.core.metric import DIRECTIONS, Value, percentile_name

_KIB = 1024
# What is of the reads of a job, or of its writes, but for latencies: by what the metric's name has after the direction.
_RATES: Mapping[str, Callable[[JobFigures], float | None]] = {
    "iops": lambda job: job.iops_mean,
    "bw": lambda job: job.bw_kib_s * _KIB,
    "ios": lambda job: job.total_ios,
    "iops.stddev": lambda job: job.iops_stddev,
}


def values(run: Run) -> tuple[Value, ...]:
    """All values of a run: those of each job, and with an empty job those of the run as a whole."""
    of_whole_jobs = {(value.name, value.job): value for job in run.jobs for value in _of_whole_job(job)}
    of_directions = (value for job in run.jobs for value in _of_direction(job))
    of_layers = {name: Value(name, "", value) for name, value in run.counters}
    return (*of_directions, *of_whole_jobs.values(), *of_layers.values())


def values_of(run: Run, name: str) -> tuple[Value, ...]:
    """Those of one metric alone: what decides is asked for with every conclusion, and a run has hundreds of values."""
    direction, _, rest = name.partition(".")
    if direction not in DIRECTIONS:
        return tuple(value for value in values(run) if value.name == name)
    jobs, rate = [job for job in run.jobs if job.direction == direction], _RATES.get(rest)
    if rate is None:
        return tuple(value for job in jobs for value in _of_direction(job) if value.name == name)
    found = ((job.name, rate(job)) for job in jobs)
    return tuple(Value(name, job, float(value)) for job, value in found if value is not None)


def _of_direction(job: JobFigures) -> Iterator[Value]:
    rates = {f"{job.direction}.{name}": rate(job) for name, rate in _RATES.items()}
    # What imports and old records have without the whole distribution.
    alone = {f"{job.direction}.clat.mean": job.clat_mean_ns, f"{job.direction}.clat.p99": job.clat_p99_ns}
    latencies = {name: value for one in job.latencies for name, value in _latencies(job.direction, one)}
    yield from _named(job, {**rates, **alone, **latencies})


def _of_whole_job(job: JobFigures) -> Iterator[Value]:
    """What is of a job as a whole, and recorded with each of its directions."""
    yield from _named(job, {"elapsed": job.runtime_ms / 1000, **_cpu(job)})


def _named(job: JobFigures, named: Mapping[str, float | None]) -> Iterator[Value]:
    yield from (Value(name, job.name, float(value)) for name, value in named.items() if value is not None)


def _latencies(direction: str, one: Latency) -> Iterator[tuple[str, float]]:
    start = f"{direction}.{one.kind}"
    yield f"{start}.min", one.min_ns
    yield f"{start}.mean", one.mean_ns
    yield f"{start}.max", one.max_ns
    yield f"{start}.stddev", one.stddev_ns
    for percent, value_ns in one.percentiles_ns:
        yield percentile_name(direction, one.kind, percent), value_ns


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
