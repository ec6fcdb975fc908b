"""The figures before and after the change, in the form that kernel developers are used to.

The layout is that of the 0-day robot (lkp-tests, lib/compare.rb, ``show_perf_change``): the parent at the left, the
culprit at the right, the standard deviation as a share of the mean if it is above 2 %, and the change in percent.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean, stdev
from typing import Annotated

from bisector.analysis.comparison import factor_between
from bisector.analysis.judgement import judged_run
from bisector.core import units
from bisector.core.errors import UserError
from bisector.core.figures import Run, run_words
from bisector.core.json_keys import Key
from bisector.core.metric import Unit, named, short
from bisector.core.objective import Objective, values_of
from bisector.core.subject import Commit
from bisector.core.trial import Trial
from bisector.core.verdict import Direction

_TIMES_FROM = 2.0
_SHOWN_STDDEV = 2.0  # percent
_ABS_WIDTH, _REL_WIDTH, _ERR_WIDTH = 10, 10, 6
_WHOLE_FROM, _SHORT_ABOVE, _FACTOR_FROM = 1000, 1e8, 10.0
_READ_WITH_A_VOWEL = re.compile(r"8|1[18]\D")
_RULE = "=" * 72


@dataclass(frozen=True, slots=True)
class CommitSide:
    """A commit and the trials that stand for it."""

    commit: Commit
    trials: tuple[Trial, ...]

    @property
    def judged(self) -> tuple[Run, ...]:
        """The judged run of each trial."""
        return tuple(map(judged_run, self.trials))


class Basis(StrEnum):
    """What "before" is: a parent, the nearest measured commit before the answer, or the old end."""

    PARENT = "parent"
    NEAREST = "nearest"
    ENDS = "ends"


@dataclass(frozen=True, slots=True)
class BeforeAfter:
    """Both sides of the change."""

    before: CommitSide
    after: CommitSide
    basis: Annotated[
        Basis, "what `before` is: the parent, the nearest before it where no parent was measured, or the old end"
    ]
    objective: Objective = field(default_factory=Objective)

    @property
    def commit_before(self) -> Annotated[str, Key("before"), "commit before the change"]:
        """The hash of the commit before the change."""
        return self.before.commit.sha

    @property
    def commit_after(self) -> Annotated[str, Key("after"), "commit after it"]:
        """The hash of the commit after it."""
        return self.after.commit.sha

    @property
    def metrics(self) -> Annotated[tuple["ComparedMetric", ...], "the metric that decides comes first"]:
        """The deciding metric, then each job of each run, then the counters of the storage layers in the judged run."""
        objective, sides = self.objective, (self.before, self.after)
        found = [_compared(name_of(objective), objective.metric, *(values(side, objective) for side in sides))]
        names = [run.name for run in self.after.trials[0].runs if not run.repeats]
        for name in reversed(names):  # the judged run comes first
            found += _job_metrics(name, objective, *([run for trial in side.trials for run in trial.runs
                                                      if run.name == name] for side in sides))  # fmt: skip
        last = self.after.judged[0].name
        for counter in dict.fromkeys(name for run in self.after.judged for name, _ in run.counters):
            counts = ([value for run in side.judged for name, value in run.counters if name == counter]
                      for side in sides)  # fmt: skip
            found.append(_compared(f"{last}.{_name(counter)}", counter, *counts))
        return tuple(one for one in found if one.tells)

    @property
    def change(self) -> "MetricChange":
        """The change of the deciding metric between the means of both sides."""
        before, after = (fmean(values(side, self.objective)) for side in (self.before, self.after))
        return change(before, after, self.objective)

    @property
    def effect(self) -> str:
        """``501 → 3,194 IOPS, 6.4x improvement: 6.38 times (95 %: 6.1 to 6.7)``; an interval takes two trials each."""
        objective = self.objective
        sides = [values(side, objective) for side in (self.before, self.after)]
        before, after = map(fmean, sides)
        text = f"{objective.cell(before)} → {objective.text(after)}, {self.change}"
        factor = factor_between(*sides) if min(map(min, sides)) > 0 else None
        return text if factor is None or factor.interval is None else f"{text}: {factor.text}"


@dataclass(frozen=True, slots=True)
class MetricChange:
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
class ComparedMetric:
    """The values of a metric on both sides, one for each trial."""

    name: Annotated[
        str, "name of the metric, as kernel robots give it; ends with the unit of its values, if any: `_us`, `_MiB_s`"
    ]
    before: Annotated[tuple[float, ...], "value of each trial before the change"]
    after: Annotated[tuple[float, ...], "value of each trial after it"]

    @property
    def tells(self) -> bool:
        """Whether both sides have finite values that are not all zero."""
        figures = self.before + self.after
        return bool(self.before and self.after and any(figures)) and all(map(math.isfinite, figures))


_SCALES: Mapping[Unit, tuple[str, float]] = {
    Unit.BYTES_S: ("_MiB_s", 2.0**20),
    Unit.BYTES: ("_MiB", 2.0**20),
    Unit.NANOSECONDS: ("_us", 1e3),
    Unit.SECONDS: ("_s", 1.0),
    Unit.PERCENT: ("_percent", 1.0),
    Unit.RATE: ("_per_s", 1.0),
}
_PERCENTILE = re.compile(r"\.p([0-9.]+)$")
_DOT = re.compile(r"\.(?![0-9])")
# Metrics of each job besides the deciding one; the direction of I/O is put before them.
_BESIDE = ("iops", "clat.mean", "clat.p99")


def name_of(objective: Objective) -> str:
    """The deciding metric in a robot's notation: ``fio.read_clat_99%_us``."""
    return f"{'fio.' if objective.io_direction else ''}{_name(objective.metric)}"


def _name(metric: str) -> str:
    plain = short(metric).rpartition(":")[2]
    return _DOT.sub("_", _PERCENTILE.sub(r"_\1%", plain)) + _scale(metric)[0]


def _scale(metric: str) -> tuple[str, float]:
    """The suffix of a metric's name and the size of its unit; "" and 1 if the metric's layer no longer exists."""
    try:
        return _SCALES.get(named(metric).unit, ("", 1.0))
    except UserError:
        return "", 1.0


def _compared(name: str, metric: str, before: Iterable[float], after: Iterable[float]) -> ComparedMetric:
    unit = _scale(metric)[1]
    return ComparedMetric(name, tuple(one / unit for one in before), tuple(one / unit for one in after))


def values(side: CommitSide, objective: Objective) -> tuple[float, ...]:
    """The deciding value of each trial."""
    return tuple(map(objective.value, side.judged))


def change(before: float, after: float, objective: Objective) -> MetricChange:
    """``3.4x`` from twice the value on; below it ``21.3%`` of the value before."""
    word = Direction.between(objective.score(before), objective.score(after))
    low, high = sorted((before, after))
    if low > 0 and high / low >= _TIMES_FROM:
        return MetricChange(f"{high / low:.1f}x", word)
    return MetricChange(f"{abs(after - before) / before:.1%}", word)


def _job_metrics(
    run: str, objective: Objective, before: Sequence[Run], after: Sequence[Run]
) -> Iterator[ComparedMetric]:
    """For each job the deciding metric and those beside it, in the deciding direction or else in the run's."""
    directions = {job.direction for one in after for job in one.jobs}
    direction = objective.io_direction if objective.io_direction in directions else after[0].direction
    names = [f"{direction}.{one}" for one in _BESIDE]
    if objective.io_direction in ("", direction):
        names = list(dict.fromkeys((objective.metric, *names)))
    for job in dict.fromkeys(job.name for one in after for job in one.jobs if job.direction == direction):
        for name in names:
            sides = ([value.value for one in runs for value in values_of(one, name) if value.job == job]
                     for runs in (before, after))  # fmt: skip
            yield _compared(f"fio.{run}.{job}.{_name(name)}", name, *sides)


def note(compared: BeforeAfter) -> str:
    """Say how many trials stand on each side, and of which commits."""
    before, after, objective = compared.before, compared.after, compared.objective
    basis = {
        Basis.PARENT: "",
        Basis.NEAREST: f" The parent was not measured; {before.commit.short} is the nearest commit before it that was.",
        Basis.ENDS: " These are the ends of the range.",
    }
    counts = f"{units.plural(len(before.trials), 'trial')} before and {len(after.trials)} after"
    what = f"{name_of(objective)} is {objective.label} in the {run_words(after.judged[0].name)}."
    return f"{what} Means of {counts} the change; %stddev is between trials.{basis[compared.basis]}"


def lines(compared: BeforeAfter, axes: Sequence[tuple[str, str]]) -> list[str]:
    """The block of a robot's mail: what was run, the two commits, and a line for each metric.

    ``axes`` are names and values that both sides have in common.
    """
    before, after = compared.before.commit, compared.after.commit
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
    return [*header, *(metric_line(one) for one in compared.metrics)]


def metric_line(metric: ComparedMetric) -> str:
    """The line of a metric, in the robot's widths: a change in percent, a factor from 10 on, or neither from zero."""
    before, after = fmean(metric.before), fmean(metric.after)
    if not before:
        change = "from 0" if after else "0.0%"
    elif after / before >= _FACTOR_FROM:
        change = f"{after / before:,.0f}x"
    else:
        change = f"{100 * (after - before) / before:+.1f}%"
    left, right = _figure(metric.before), _figure(metric.after)
    return f"{left}{change:>{_REL_WIDTH + 1}} {right}  {metric.name}"


def _figure(values: Sequence[float]) -> str:
    """A mean and its standard deviation, which a single value does not have."""
    mean = fmean(values)
    if abs(mean) < _WHOLE_FROM:
        text = f"{mean:{_ABS_WIDTH}.2f}"
    elif abs(mean) > _SHORT_ABOVE:
        text = f"{mean:{_ABS_WIDTH}.4g}"
    else:
        text = f"{int(mean):{_ABS_WIDTH}d}"
    share = 100 * stdev(values) / mean if len(values) > 1 and mean else 0.0
    return text + (f" ±{share:{_ERR_WIDTH - 3}.0f}%" if share > _SHOWN_STDDEV else " " * _ERR_WIDTH)
