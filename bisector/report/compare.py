"""Before and after the change, as kernel people are used to read it.

The layout is that of the 0-day robot (lkp-tests, lib/compare.rb, ``show_perf_change``): the parent
at the left, the culprit at the right, the standard deviation as a share of the mean and only where
it is above 2 %, the change in percent.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from bisector.core.figures import JobFigures, Run
from bisector.core.objective import Objective
from bisector.core.verdict import Direction
from bisector.report.document import Comparison, Side

_TIMES_FROM = 2.0
_SHOWN_STDDEV = 2.0  # percent
_ABS_WIDTH, _REL_WIDTH, _ERR_WIDTH = 10, 10, 6
_WHOLE_FROM, _SHORT_ABOVE, _CHANGE_SHORT_FROM = 1000, 1e8, 1e5
_READ_WITH_A_VOWEL = re.compile(r"8|1[18]\D")
_RULE = "=" * 72


@dataclass(frozen=True, slots=True)
class Change:
    """A magnitude and a word, never a sign and a word."""

    magnitude: str
    word: Direction

    def __str__(self) -> str:
        return f"{self.magnitude} {self.word}"

    @property
    def with_article(self) -> str:
        """``a 3.4x improvement``, ``an 8.1x improvement``: as it is read aloud."""
        return f"{'an' if _READ_WITH_A_VOWEL.match(self.magnitude) else 'a'} {self}"


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of each trial on both sides."""

    name: str
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def tells(self) -> bool:
        """Whether both sides have figures, and not only zeros."""
        figures = self.before + self.after
        return bool(self.before and self.after and any(figures)) and all(map(math.isfinite, figures))


def name_of(objective: Objective) -> str:
    """The metric that decides, as a robot would call it: ``fio.read_iops``."""
    return f"fio.{objective.metric.replace('.', '_')}" if objective.io_direction else objective.metric


def values(side: Side, objective: Objective) -> tuple[float, ...]:
    """What decides of each trial."""
    return tuple(map(objective.value, side.judged))


def change(before: float, after: float, objective: Objective) -> Change:
    """From twice the value on "3.4x", below it "21.3%" of the value before."""
    word = Direction.between(objective.score(before), objective.score(after))
    low, high = sorted((before, after))
    if low > 0 and high / low >= _TIMES_FROM:
        return Change(f"{high / low:.1f}x", word)
    return Change(f"{abs(after - before) / before:.1%}", word)


def change_of(comparison: Comparison) -> Change:
    """How much the figure that decides has changed, between the means of both sides."""
    objective = comparison.objective
    before, after = (fmean(values(side, objective)) for side in (comparison.before, comparison.after))
    return change(before, after, objective)


def metrics(comparison: Comparison) -> tuple[Metric, ...]:
    """The figure that decides first, then each job of each run, then what the cache did meanwhile."""
    before, after = comparison.before, comparison.after
    objective = comparison.objective
    found = [Metric(name_of(objective), *(values(side, objective) for side in (before, after)))]
    names = [run.name for run in after.trials[0].runs]
    for name in reversed(names):  # the run that decides first
        found += _job_metrics(name, _runs(before, name), _runs(after, name))
    found += _cache_metrics(before, after)
    return tuple(one for one in found if one.tells)


def _job_metrics(run: str, before: Sequence[Run], after: Sequence[Run]) -> Iterator[Metric]:
    """Only what both sides have of each job in a direction."""
    jobs = dict.fromkeys((job.name, job.direction) for one in after for job in one.shown_jobs)
    for name, direction in jobs:
        for suffix, (figure, unit) in _FIGURES.items():
            sides = [tuple(found / unit for run_ in runs for one in run_.jobs
                           if (one.name, one.direction) == (name, direction)
                           if (found := figure(one)) is not None) for runs in (before, after)]  # fmt: skip
            yield Metric(f"fio.{run}.{name}.{direction}_{suffix}", sides[0], sides[1])


# Of a job: the figure, in the record's unit, and what that is divided by to have the one in the name.
_FIGURES: dict[str, tuple[Callable[[JobFigures], float | None], float]] = {
    "iops": (lambda job: job.iops_mean, 1.0),
    "clat_mean_us": (lambda job: job.clat_mean_ns, 1e3),
    "clat_99%_us": (lambda job: job.clat_p99_ns, 1e3),
}


def _cache_metrics(before: Side, after: Side) -> Iterator[Metric]:
    for name in ("promotions", "demotions", "read_hits", "read_misses"):
        sides = [tuple(_during(run, name) for run in side.judged if run.cache_before and run.cache_after)
                 for side in (before, after)]  # fmt: skip
        yield Metric(f"dm-cache.{after.judged[0].name}.{name}", sides[0], sides[1])


def _during(run: Run, counter: str) -> float:
    """How far a counter of dm-cache went while a run lasted."""
    return float(getattr(run.cache_after, counter) - getattr(run.cache_before, counter))


def _runs(side: Side, name: str) -> list[Run]:
    return [run for trial in side.trials for run in trial.runs if run.name == name]


def lines(comparison: Comparison, axes: Sequence[tuple[str, str]]) -> list[str]:
    """The block of a robot's mail: what was run, the two commits, a line for each metric.

    ``axes`` are names and values of what both sides had in common.
    """
    before, after = comparison.before.commit, comparison.after.commit
    width = _ABS_WIDTH + _ERR_WIDTH
    wide = width + _REL_WIDTH + 1
    header = [
        _RULE,
        "/".join(name for name, _ in axes) + ":",
        "  " + "/".join(value for _, value in axes),
        "",
        "commit:",
        *(f'  {one.short} ("{one.subject}")' for one in (before, after)),
        "",
        f"{before.sha[:width]:>{width}} {after.sha[:wide]:>{wide}}",
        f"{'-' * width} {'-' * wide}",
        "         %stddev     %change         %stddev",
        "             \\          |                \\",
    ]
    return [*header, *(metric_line(one) for one in metrics(comparison))]


def metric_line(metric: Metric) -> str:
    """One line, in their widths; a standard deviation of one measurement is none."""
    before, after = fmean(metric.before), fmean(metric.after)
    percent = 100 * (after - before) / before if before else (math.copysign(math.inf, after) if after else 0.0)
    form = ".1f" if abs(percent) < _CHANGE_SHORT_FROM else ".2g"
    left, right = _figure(metric.before), _figure(metric.after)
    return f"{left}{percent:+{_REL_WIDTH}{form}}% {right}  {metric.name}"


def _figure(values: Sequence[float]) -> str:
    mean = fmean(values)
    if abs(mean) < _WHOLE_FROM:
        text = f"{mean:{_ABS_WIDTH}.2f}"
    elif abs(mean) > _SHORT_ABOVE:
        text = f"{mean:{_ABS_WIDTH}.4g}"
    else:
        text = f"{int(mean):{_ABS_WIDTH}d}"
    share = 100 * stdev(values) / mean if len(values) > 1 and mean else 0.0
    return text + (f" ±{share:{_ERR_WIDTH - 3}.0f}%" if share > _SHOWN_STDDEV else " " * _ERR_WIDTH)
