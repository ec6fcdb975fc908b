"""The objective: the value of a run that decides, and its score, on which all conclusions are based.

A score is the natural logarithm of the value, negated if a lower value is better: a larger score is always better, and
equal differences of scores are equal factors of values, whatever the metric and its unit.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from bisector.core.errors import InfraError, UserError
from bisector.core.figures import JobFigures, Run, run_words
from bisector.core.json_document import Key
from bisector.core.metric import (
    DIRECTIONS,
    SETTLED_AFTER,
    SYNCS,
    Better,
    LatencyKind,
    Metric,
    Unit,
    Value,
    is_of_split,
    named,
    percentile_name,
    short,
)

WORST, SUM, MEAN = OVER = ("worst", "sum", "mean")
# A factor is written with more digits near 1, and as a whole number from _WHOLE_FROM on.
_NEAR_ONE, _WHOLE_FROM, _MOST_DIGITS = 0.1, 100, 7


@dataclass(frozen=True, slots=True)
class Factor:
    """The ratio of one value to another, with the 95 % limits of its interval."""

    times: Annotated[float, "how many times the parent's value the commit's is"]
    interval: Annotated[
        tuple[float, float] | None, "in which the true one lies, 95 times of 100; `null` where the readings tell none"
    ]

    @classmethod
    def of_logs(cls, mean: float, half_width: float) -> "Factor":
        """Return a factor from the mean of its logarithm and half of that mean's interval, which may be infinite."""
        interval = (math.exp(mean - half_width), math.exp(mean + half_width)) if math.isfinite(half_width) else None
        return cls(math.exp(mean), interval)

    @property
    def text(self) -> str:
        """``1.020 times (95 %: 0.970 to 1.070)``, with enough digits to tell both ends of the interval apart."""
        if self.interval is None:
            return f"{_number(self.times)} times"
        apart = (
            digits for digits in range(3, _MOST_DIGITS) if len({_number(one, digits) for one in self.interval}) > 1
        )
        digits = next(apart, 3)
        low, high = (_number(one, digits) for one in self.interval)
        return f"{_number(self.times, digits)} times (95 %: {low} to {high})"


def _number(times: float, digits: int = 3) -> str:
    if abs(times - 1) < _NEAR_ONE or digits > 3:  # noqa: PLR2004 - as many as are usual
        return f"{times:.{digits}f}"
    return f"{times:#.3g}" if times < _WHOLE_FROM else f"{times:,.0f}"


class MetricAbsent(UserError):
    """A run has no value of the objective's metric, or of its job, or no value above zero."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A metric, and how the values of several jobs become one: the worst, their sum or mean, or that of one job."""

    metric: Annotated[str, "the [metric](metrics.md)"] = "read.iops"
    over: Annotated[str, "what several jobs amount to: `worst`, `sum`, `mean`, or the name of the job that counts"] = (
        WORST
    )

    @property
    def unit(self) -> Annotated[Unit, Key()]:
        """The unit of the metric's values."""
        return self.definition.unit

    @property
    def better_side(self) -> Annotated[Better | None, Key("better")]:
        """Whether higher or lower values are better; ``null`` if neither are."""
        return self.definition.better

    @property
    def definition(self) -> Metric:
        """The metric, with its unit and its better side."""
        return named(self.metric)

    @property
    def better(self) -> Better:
        """The better side; raises :class:`UserError` if neither higher nor lower values of the metric are better."""
        better = self.definition.better
        if better is None:
            raise UserError(f"neither more nor less of {self.metric} is better", "choose another --metric")
        return better

    def check(self) -> None:
        """Raise :class:`UserError` if the objective makes no sense.

        This is so if the metric does not exist or has no better side, for a sum of latencies, and for one job of a
        metric of the run as a whole.
        """
        _ = self.better
        if not self.is_of_jobs and self.over not in OVER:
            raise UserError(f"{self.metric} is of the run as a whole, and not of job {self.over!r}", "leave out --over")
        if self.over == SUM and not self.definition.unit.additive:
            raise UserError(
                f"the sum of {self.metric} over jobs is not a figure", "choose --over worst, mean, or a job"
            )

    @property
    def io_direction(self) -> str:
        """The direction of I/O that the metric measures; empty if it measures none."""
        first = self.metric.partition(".")[0]
        return first if first in DIRECTIONS else ""

    @property
    def is_of_jobs(self) -> bool:
        """Whether each job has a value of its own; counters of a layer are of the run as a whole."""
        first, dot, _ = self.metric.partition(".")
        of_whole_jobs = first == _CPU and bool(dot)
        return first in DIRECTIONS or self.metric == _ELAPSED or of_whole_jobs or self.metric.startswith(SYNCS)

    @property
    def label(self) -> str:
        """The objective for a person: ``read.clat.p99 of the worst job``."""
        if not self.is_of_jobs or (self.metric == _ELAPSED and self.over == WORST):
            return short(self.metric)
        return f"{self.metric} {_LABELS.get(self.over, f'of job {self.over}')}"

    @property
    def heading(self) -> str:
        """The heading of a column of :meth:`cell`: ``IOPS``, ``write IOPS``, ``read.clat.p99``."""
        return _HEADINGS.get(self.metric, short(self.metric))

    def cell(self, value: float) -> str:
        """Format a value for a column under :attr:`heading`, without the unit if the heading has it already."""
        text = self.text(value)
        return text.removesuffix(f" {Unit.IOPS}") if self.metric in _HEADINGS else text

    def worst_first(self, values: Iterable[float]) -> list[float]:
        """Sort values from the worst to the best."""
        return sorted(values, key=lambda value: self.better.sign * value)

    def of_jobs(self, run: Run) -> tuple[Value, ...]:
        """The value of each job that has one, in the order of jobs; a single value for a metric of the whole run."""
        return values_of(run, self.metric)

    def deciding(self, run: Run) -> Value:
        """Return the value that decides; its ``job`` is empty if it is of several jobs, or of the run as a whole.

        Raises :class:`MetricAbsent` if there is none, also if it is of all jobs and one of them has no value: the worst
        of the others is not the worst of all. Raises :class:`InfraError` if the run has no steady part that the metric
        needs, because another run may have one. For a value without a logarithm, it raises :class:`InfraError` if the
        metric is a rate, because a job that stood still or was not measured must not pass for a slow one, and otherwise
        :class:`MetricAbsent`.
        """
        found = self.of_jobs(run)
        if not found:
            raise _absent(self, run)
        if self.definition.live:
            for value in found:
                self._check_value(value)
        if self.over in OVER:
            has = {value.job for value in found}
            of_direction = (job.name for job in run.jobs if job.direction == self.io_direction)
            if (lacking := next((name for name in of_direction if name not in has), None)) is not None:
                raise MetricAbsent(
                    f"job {lacking} has no {self.metric}, and other jobs of the {run_words(run.name)} have",
                    f"choose another --metric, or one job: --over {next(iter(has))}",
                )
        deciding: Value | None
        if self.over == WORST:
            deciding = min(found, key=lambda value: self.better.sign * value.value)
        elif (reduce := _REDUCTIONS.get(self.over)) is not None:
            deciding = Value(self.metric, "", reduce([value.value for value in found]))
        else:
            deciding = next((value for value in found if value.job == self.over), None)
        if deciding is None:
            jobs = ", ".join(dict.fromkeys(job.name for job in run.jobs))
            raise MetricAbsent(f"no job {self.over!r} has {self.metric}", f"the jobs are: {jobs}")
        self._check_value(deciding)
        return deciding

    def _check_value(self, value: Value) -> None:
        if math.isfinite(value.value) and value.value > 0:
            return
        what = f"{f'job {value.job}' if value.job else 'the run'} has {self.metric} {value.value:g}"
        if self.definition.live:
            raise InfraError(f"{what}, which is not a measurement")
        raise MetricAbsent(f"{what}, and only values above zero can be compared", "choose another --metric")

    def value(self, run: Run) -> float:
        """Return the number of :meth:`deciding`; raises the same errors."""
        return self.deciding(run).value

    def deciding_text(self, run: Run) -> str:
        """Return the value of :meth:`deciding` with what it is of: ``worst job partial/2: 501 IOPS (read.iops)``."""
        value = self.deciding(run)
        whose = _WHOSE.get(self.over, "") if self.is_of_jobs else ""
        if value.job:
            several = self.over == WORST and len(self.of_jobs(run)) > 1
            whose = f"{'worst ' if several else ''}job {value.job}: "
        return f"{whose}{self.text(value.value)} ({short(self.metric)})"

    def score(self, value: float) -> float:
        """Return the score of a value, which is above zero."""
        return self.better.sign * math.log(value)

    def value_of(self, score: float) -> float:
        """Return the value of a score, to twelve digits, which makes it the very value that the score was made of."""
        return float(f"{math.exp(self.better.sign * score):.12g}")

    def factor(self, mean: float, half_width: float) -> Factor:
        """Return the factor of values whose scores differ by ``mean``, within ``half_width``."""
        return Factor.of_logs(self.better.sign * mean, half_width)

    def text(self, value: float) -> str:
        """Format a value with its unit, for a person."""
        return self.definition.unit.text(value)

    def range_text(self, *scores: float) -> str:
        """Format the range of the values of scores, ``689 to 738 IOPS``; one value if they look the same."""
        low, high = sorted(map(self.value_of, (min(scores), max(scores))))
        return self.text(low) if self.text(low) == self.text(high) else self.change_text(low, high)

    def change_text(self, before: float, after: float) -> str:
        """Format a change of a value: ``501 to 2,064 IOPS``, ``850 µs to 16.2 ms``."""
        old, new = self.text(before), self.text(after)
        (number, _, unit), (other, _, same) = old.rpartition(" "), new.rpartition(" ")
        # "1 min 5 s" is more than a number and its unit.
        shared = number and unit == same and " " not in number + other
        return f"{number if shared else old} to {new}"


_HEADINGS = {
    f"{direction}.{rate}": f"{direction} {heading}".removeprefix("read ")
    for direction in DIRECTIONS
    for rate, heading in (("iops", "IOPS"), ("iops.steady", "steady IOPS"))
}
# A job has these, too; a command has _ELAPSED as a whole, and no metric under _CPU.
_ELAPSED, _CPU = "elapsed", "cpu"
_WHOSE = {SUM: "sum over jobs: ", MEAN: "mean over jobs: "}
_LABELS = {WORST: "of the worst job", SUM: "summed over jobs", MEAN: "as the mean over jobs"}


_REDUCTIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    SUM: math.fsum,
    MEAN: lambda found: math.fsum(found) / len(found),
}


def _absent(objective: Objective, run: Run) -> MetricAbsent | InfraError:
    """Return the error for a missing metric.

    Without logs of its jobs, no run ever has a steady part, so the metric is absent; a run that settled until its end
    may have one another time, or if it is longer.
    """
    lacks = f"the {run_words(run.name)} has no {objective.metric}"
    if not is_of_split(objective.metric):
        return MetricAbsent(lacks, f"it has: {', '.join(available(run)) or 'no metric at all'}")
    jobs = [job for job in run.jobs if objective.io_direction in ("", job.direction)]
    lasted_s = max((job.settled_after_s or 0.0 for job in jobs if job.steady_iops is None), default=0.0)
    if not lasted_s:
        why = f"{lacks}: no log of the IOPS of each job was read"
        return MetricAbsent(why, "write_iops_log=NAME and log_avg_msec=500 in each job, or --part whole")
    why = f"the {run_words(run.name)} has no steady part in {lasted_s:.0f} s, and would have to be {2 * lasted_s:.0f} s"
    return InfraError(f"{why} long or more", f"--runtime {2 * lasted_s:.0f}s, or --part whole")


def available(run: Run) -> tuple[str, ...]:
    """Return the names of the metrics that a run has values of; those without a direction come last."""
    return tuple(dict.fromkeys(value.name for value in values(run)))


_KIB = 1024
# The figures of a job in one direction, except latencies, by the part of the metric's name after the direction
_RATES: Mapping[str, Callable[[JobFigures], float | None]] = {
    "iops": lambda job: job.iops_mean,
    "bw": lambda job: job.bw_kib_s * _KIB,
    "ios": lambda job: job.total_ios,
    "iops.stddev": lambda job: job.iops_stddev,
    "iops.steady": lambda job: job.steady_iops,
}


def values(run: Run) -> tuple[Value, ...]:
    """Return every value of every metric of a run; ``job`` is empty for values of the run as a whole."""
    of_whole_jobs = {}  # they are recorded with each of its directions
    for job in run.jobs:
        cpu: dict[str, float] = {}
        if job.cpu is not None:
            cpu = {"cpu.user": job.cpu.user_percent, "cpu.system": job.cpu.system_percent}
            cpu |= {"cpu.context_switches": job.cpu.context_switches, "cpu.major_faults": job.cpu.major_faults}
        named = {"elapsed": job.runtime_ms / 1000, **_latencies(job, syncs=True), **cpu}
        of_whole_jobs.update({(value.name, value.job): value for value in _named(job, named)})
    of_directions = (value for job in run.jobs for value in _of_direction(job))
    of_layers = {name: Value(name, "", value) for name, value in run.counters}
    # The settling of all jobs whose IOPS were logged, in all directions; absent if one of them never was steady
    logged = [job for job in run.jobs if job.settled_after_s is not None]
    settled: tuple[Value, ...] = ()
    if logged and all(job.steady_iops is not None for job in logged):
        settled = (Value(SETTLED_AFTER, "", max(job.settled_after_s or 0.0 for job in logged)),)
    return (*of_directions, *of_whole_jobs.values(), *settled, *of_layers.values())


def values_of(run: Run, name: str) -> tuple[Value, ...]:
    """Return the values of one metric.

    A run has hundreds of values, and the deciding one is needed for each conclusion: a rate is computed alone.
    """
    direction, _, rest = name.partition(".")
    if direction not in DIRECTIONS or (rate := _RATES.get(rest)) is None:
        return tuple(value for value in values(run) if value.name == name)
    found = ((job.name, rate(job)) for job in run.jobs if job.direction == direction)
    return tuple(Value(name, job, float(value)) for job, value in found if value is not None)


def _of_direction(job: JobFigures) -> Iterator[Value]:
    rates = {f"{job.direction}.{name}": rate(job) for name, rate in _RATES.items()}
    # Imports and old records have these without the whole distribution.
    alone = {f"{job.direction}.clat.mean": job.clat_mean_ns, f"{job.direction}.clat.p99": job.clat_p99_ns}
    yield from _named(job, {**rates, **alone, **_latencies(job, syncs=False)})


def _named(job: JobFigures, named: Mapping[str, float | None]) -> Iterator[Value]:
    yield from (Value(name, job.name, float(value)) for name, value in named.items() if value is not None)


def _latencies(job: JobFigures, *, syncs: bool) -> dict[str, float]:
    """The latencies of the job's syncs, or of its I/Os in its direction."""
    found = dict[str, float]()
    for one in job.latencies:
        if syncs is (one.kind is LatencyKind.SYNC):
            start = SYNCS if syncs else f"{job.direction}.{one.kind}"
            of_all = {"min": one.min_ns, "mean": one.mean_ns, "max": one.max_ns, "stddev": one.stddev_ns}
            found |= {f"{start}.{name}": value_ns for name, value_ns in of_all.items()}
            found |= {percentile_name(job.direction, one.kind, at): value_ns for at, value_ns in one.percentiles_ns}
    return found
