"""The report of a bisection as one document of facts, with the figures before and after the change.

The document is made from the record by :mod:`bisector.report.reporting`, and turned into sections by
:mod:`bisector.report.sections`. The figures have the form that kernel developers are used to, with the layout of the
0-day robot (lkp-tests, lib/compare.rb, ``show_perf_change``): the parent at the left, the culprit at the right, the
standard deviation as a share of the mean if it is above 2 %, and the change in percent.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean, stdev
from typing import Annotated, Literal

from bisector.analysis.comparison import factor_between
from bisector.analysis.judgement import judged_run
from bisector.analysis.verdicts import host_of
from bisector.core import units
from bisector.core.errors import UserError
from bisector.core.figures import Contention, Run, run_words
from bisector.core.json_document import PAIRS, SCHEMA, Key
from bisector.core.metric import Unit, named, short
from bisector.core.objective import Objective, values_of
from bisector.core.printable import clean
from bisector.core.subject import Commit
from bisector.core.trial import Trial
from bisector.core.verdict import Direction, State, Verdict
from bisector.git.repository import ShownCommit
from bisector.status.view import BisectionView, TrialView

_TIMES_FROM, _TENTHS_FROM = 2.0, 0.01
_SHOWN_STDDEV = 2.0  # percent
_ABS_WIDTH, _REL_WIDTH, _ERR_WIDTH = 10, 10, 6
_WHOLE_FROM, _SHORT_ABOVE, _FACTOR_FROM = 1000, 1e8, 10.0
_READ_WITH_A_VOWEL = re.compile(r"8|1[18]\D")
_RULE = "=" * 72
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
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")  # SHA-1 or SHA-256
STANDING = {
    State.RUNNING: "still running",
    State.STOPPED: "stopped",
    State.FAILED: "without an answer",
    State.FOUND: "finished",
    State.NARROWED: "finished",
    State.IMPORTED: "imported",
}


# The figures before and after the change


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
    def commit_before(self) -> Annotated[str, Key("before")]:
        """Commit before the change."""
        return self.before.commit.sha

    @property
    def commit_after(self) -> Annotated[str, Key("after")]:
        """Commit after it."""
        return self.after.commit.sha

    @property
    def metrics(self) -> Annotated[tuple["ComparedMetric", ...], Key()]:
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
    def change(self) -> str:
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


def change(before: float, after: float, objective: Objective) -> str:
    """``3.4x improvement`` from twice the value on, below it ``21.3% regression``: a word, and never a sign, too."""
    word = Direction.between(objective.score(before), objective.score(after))
    low, high = sorted((before, after))
    if low > 0 and high / low >= _TIMES_FROM:
        return f"{high / low:.1f}x {word}"
    share = abs(after - before) / before
    return f"{share:.{1 if share >= _TENTHS_FROM else 2}%} {word}"


def with_article(change: str) -> str:
    """``a 3.4x improvement``, ``an 8.1x improvement``: as it is read aloud."""
    return f"{'an' if _READ_WITH_A_VOWEL.match(change) else 'a'} {change}"


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
    """Say how many trials stand on each side, on which host, and of which commits."""
    before, after, objective = compared.before, compared.after, compared.objective
    basis = {
        Basis.PARENT: "",
        Basis.NEAREST: f" The parent has no whole run there; {before.commit.short} is the nearest before it that has.",
        Basis.ENDS: " These are the ends of the range.",
    }
    counts = f"{units.plural(len(before.trials), 'trial')} before and {len(after.trials)} after"
    what = f"{name_of(objective)} is {objective.label} in the {run_words(after.judged[0].name)}."
    host = f" on {after.trials[0].host}" if after.trials[0].host else ""
    return f"{what} Means of {counts} the change{host}; %stddev is between trials.{basis[compared.basis]}"


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
        text = f"{mean:{_ABS_WIDTH}.0f}"
    share = 100 * stdev(values) / mean if len(values) > 1 and mean else 0.0
    return text + (f" ±{share:{_ERR_WIDTH - 3}.0f}%" if share > _SHOWN_STDDEV else " " * _ERR_WIDTH)


# The document


@dataclass(frozen=True, slots=True)
class PlacedTrial:
    """A trial at its place in history: ``place`` counts commits from the old end (0); None if git was not asked."""

    place: Annotated[int | None, "number of commits from the old end; `null` where git is not asked"]
    shown: TrialView

    @property
    def n(self) -> Annotated[int, Key()]:
        """Number of the trial, as in ``status.trials``."""
        return self.shown.n

    @property
    def sha(self) -> Annotated[str, Key()]:
        """Commit."""
        return self.shown.trial.commit.sha

    @property
    def verdict(self) -> Annotated[Verdict, Key()]:
        """As in ``status.trials``."""
        return self.shown.verdict

    @property
    def why(self) -> Annotated[str, Key()]:
        """The reason of the verdict, in a sentence."""
        return self.shown.why


@dataclass(frozen=True, slots=True)
class Request:
    """What a person typed: revisions, limits, and the command that asks for the same again."""

    old_rev: Annotated[str, "the old end, as it was typed"]
    new_rev: Annotated[str, "the new end, as it was typed"]
    paths: Annotated[tuple[str, ...], "only commits that touch these; empty for all"]
    skips: Annotated[tuple[str, ...], "commits that were not to be tried"]
    first_parent: Annotated[bool, "whether only first parents were followed"]
    command: Annotated[str, "command that asks for the same again"]

    @property
    def span(self) -> str:
        """``v4.11..v4.13-rc1``; whole hashes, which nights ask for, are shortened."""
        return "..".join(clean(rev[:12] if _HASH.fullmatch(rev) else rev) for rev in (self.old_rev, self.new_rev))


@dataclass(frozen=True, slots=True)
class TreeOrigin:
    """Where the commits come from: the tree's name as kernel robots give it, a branch, an address; any may be empty."""

    tree: Annotated[str, "name of the tree, as kernel robots give it; empty where it is not known, as the others"]
    branch: Annotated[str, "branch"] = ""
    url: Annotated[str, "address"] = ""

    @property
    def name(self) -> str:
        """``linus:master``."""
        return ":".join(filter(None, (self.tree, self.branch)))


@dataclass(frozen=True, slots=True)
class MeasuringHost:
    """A host of trials: its recorded facts, and the other load during its runs."""

    name: Annotated[str, "name of the host"]
    trials: Annotated[int, "number of its trials"]
    facts: Annotated[tuple[tuple[str, str], ...], PAIRS, "what is on record of it; may be empty"]
    contention: Annotated[tuple[Contention, ...], "what else it was doing during each run"]


@dataclass(frozen=True, slots=True)
class JobFile:
    """The job file as it was used, with the variables that it was given.

    If the file is ``missing``, the text says so as a comment of a job file.
    """

    name: Annotated[str, "name of the file"]
    text: Annotated[str, "its contents"]
    variables: Annotated[tuple[tuple[str, str], ...], PAIRS, "the variables that it was given"]
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Envelope:
    """The letter that carries a report: addresses as ``Name <user@host>``, Message-IDs with their brackets.

    ``date`` is in the format of RFC 5322. ``references`` are the earlier letters of the thread, the first one first;
    ``subject`` is the thread's; ``follows`` says what this letter means for theirs. ``config`` is the .config of the
    named kernel, ``defconfig`` the same as ``make savedefconfig`` writes it; both are empty if none was kept.
    """

    sender: str
    message_id: str
    date: str
    to: tuple[str, ...] = ()
    cc: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    subject: str = ""
    follows: str = ""
    regzbot: bool = False
    config: str = ""
    defconfig: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The document of a bisection, whether finished, stopped or running; ``rows`` are in the order of history.

    ``testcase`` says what ran on which stack, the program first; ``disks`` says what each disk of the stack is.
    """

    schema: Annotated[Literal[2], SCHEMA] = 2
    bisection: Annotated[BisectionView, Key("status"), "its own `schema` included"]
    rows: Annotated[tuple[PlacedTrial, ...], "the trials in the order of history"]
    asked: Annotated[Request, "what was asked for"]
    origin: Annotated[TreeOrigin, "where the tree comes from"]
    workload: Annotated[JobFile, "the job file"]
    storage: Annotated[tuple[str, ...], "the commands that made the stack"]
    kernel: Annotated[tuple[tuple[str, str], ...], PAIRS, "sentences about the kernel"]
    hosts: Annotated[tuple[MeasuringHost, ...], "the hosts that measured"]
    bisect_log: Annotated[str | None, "git's bisect log; `null` until git is asked"]
    tool_version: Annotated[str, "version of bisector"]
    parents: tuple[Commit, ...] = ()
    envelope: Envelope | None = None
    answer: ShownCommit | None = None
    testcase: str = "fio"
    disks: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> Annotated[str, Key()]:
        """The request and its outcome in one line."""
        view = self.bisection
        if not self.asked.old_rev:
            what = "Results of others" if self.imported else "Single commits"
            return f"{what}: {units.plural(len(self.rows), 'trial')}"
        outcome = STANDING[view.state]
        if view.first_fixed is not None:
            by = f", {with_article(compared.change)}" if (compared := self.before_after) is not None else ""
            outcome = f"{view.first_fixed.short} is the first {view.terms.new} commit{by}"
        elif view.is_no_change:
            outcome = f"nothing in the range changed {view.objective.label}"
        elif view.state is State.NARROWED and not view.is_unreadable:
            outcome = f"narrowed to {units.plural(len(view.candidates), 'commit')}"
        return f"Bisection of {self.asked.span}: {outcome}"

    @property
    def imported(self) -> bool:
        """Whether others measured this."""
        return any(row.shown.trial.origin is not None for row in self.rows)

    @property
    def before_after(self) -> Annotated[BeforeAfter | None, Key("comparison")]:
        """The answer against what came before it, or the ends of a narrowed range; ``null`` if values are missing."""
        view = self.bisection
        if view.state is State.NARROWED:
            new, befores = view.new, [(Basis.ENDS, view.old)]
        elif view.first_fixed is not None:
            # The nearest is the last measured commit on the old side before the answer, in the order of history.
            place = next((index for index, row in enumerate(self.rows) if row.sha == view.first_fixed.sha), 0)
            earlier = [row.shown for row in reversed(self.rows[:place]) if row.verdict is Verdict.OLD]
            nearest = [one.trial.commit for one in earlier if one.trial.subject.is_commit]
            new, befores = view.first_fixed, [(Basis.PARENT, parent) for parent in self.parents]
            befores += [(Basis.NEAREST, commit) for commit in nearest]
        else:
            return None
        for basis, old in befores:
            before, after = self._by_host(old), self._by_host(new)
            # Figures of two hosts are never compared; the one that has the most trials of both sides stands for all.
            if shared := [host for host in before if host in after]:
                host = max(shared, key=lambda one: min(len(before[one]), len(after[one])))
                sides = CommitSide(old, tuple(before[host])), CommitSide(new, tuple(after[host]))
                return BeforeAfter(*sides, basis, view.objective)
        return None

    def _by_host(self, commit: Commit) -> dict[str, list[Trial]]:
        """The whole trials that count for a commit: its own, or those of the commit with the same kernel."""
        shas = {commit.sha, *(row.shown.trial.same_kernel_as for row in self.rows if row.sha == commit.sha)}
        found = defaultdict[str, list[Trial]](list)
        for row in sorted(self.rows, key=lambda row: row.n):
            trial, is_judged = row.shown.trial, row.verdict in (Verdict.OLD, Verdict.NEW)
            if row.sha in shas and is_judged and row.shown.value is not None and trial.stopped_early is None:
                found[host_of(trial)].append(trial)
        return found
