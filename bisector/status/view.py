"""The view of a bisection, from which tables, reports, plots and letters are made; it is also the document for scripts.

Its JSON document has the same fields (:mod:`bisector.core.json_document`): seconds and bytes are plain numbers, and so
are values of the deciding metric, in its unit. Strings are as git, the kernel and fio gave them, and not cleaned for a
terminal.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from bisector.analysis.comparison import (
    DELTA,
    MOST_BLOCKS,
    Effect,
    Outcome,
    Scale,
    blocks_for_exact,
    blocks_to_tell,
)
from bisector.analysis.levels import ReadingLevel
from bisector.core import units
from bisector.core.deadline import GuestTime
from bisector.core.json_document import FLAT, SCHEMA, Key
from bisector.core.objective import Factor, Objective
from bisector.core.subject import Commit, Kind, Relevance
from bisector.core.trial import Control, Taken, Trial
from bisector.core.verdict import Direction, SideWords, State, Strategy, Verdict
from bisector.search.noise import OF_HOSTS
from bisector.store.facts import InfraFault

MOST_PAIRS = 10
_LEAST_PAIRS = blocks_for_exact(1)
# The spread of one pair's log ratio: two trials, each with the spread assumed for a host that is not known yet.
_SPREAD_OF_A_PAIR = OF_HOSTS.spread * math.sqrt(2)
_ENDED = (State.MEASURED, State.FAILED)


@dataclass(frozen=True, slots=True)
class HostClock:
    """The change at the answer in counted time, and by the host's clock as far as that is measured, in ``run_dir``.

    ``label`` names the deciding metric. ``parent`` and ``counted`` are None if the parent is not (or no longer) known.
    ``state`` and ``message`` are the comparison's, None and empty before it begins; ``pairs`` counts its pairs that
    count. The ``outcome`` is ``fragile`` if the permutation test within pairs does not confirm it.
    """

    first: Commit
    label: str
    run_dir: Annotated[str, "path of the directory of the comparison, which is a run of its own"]
    parent: Annotated[Commit | None, "the parent; `null` where nobody tells it"] = None
    counted: Annotated[Factor | None, Key("by_instructions"), "how large the change is in counted time"] = None
    measured: Annotated[
        Factor | None, Key("by_host"), "how large it is by the host's clock; `null` until a pair counts"
    ] = None
    pairs: Annotated[int, "number of pairs that count"] = 0
    outcome: Annotated[Outcome | None, "what is said of the commit by the host's clock; `null` until a pair counts"] = (
        None
    )
    fragile: bool = False
    state: Annotated[State | None, "how that comparison stands; `null` before it is begun"] = None
    message: str = ""

    @property
    def needed(self) -> Annotated[int | None, Key("pairs_needed")]:
        """The number of pairs that a change of its size takes to show; ``null`` of too many, or if it is unknown."""
        return pairs_needed(self.counted.times) if self.counted is not None else None

    @property
    def is_due(self) -> bool:
        """Whether there is something left to measure."""
        shows = self.needed is not None and self.needed <= MOST_PAIRS
        return self.state not in _ENDED and (shows or self.state is not None)

    @property
    def waits(self) -> bool:
        """Whether something is left to measure and no process is measuring it."""
        return self.is_due and self.state is not State.RUNNING

    @property
    def plan(self) -> str:
        """One sentence: what will be measured, and why in so many pairs."""
        parent, pairs = self.parent.short if self.parent is not None else units.UNKNOWN, self.needed or 0
        return (
            f"{self.first.short} is measured beside its parent {parent} by the host's clock, in"
            f" {units.plural(pairs, 'pair')}, as a change of the size that it has by instructions takes there"
        )

    @property
    def sentence(self) -> Annotated[str, Key()]:
        """Both factors and what the second one says about the first, or why they are missing."""
        if self.parent is None or self.counted is None:
            return f"{self.first.short} has no parent on record to be measured beside by the host's clock"
        first = f"{self.label} is {self.counted.text} that of the parent {self.parent.short} by instructions"
        return f"{first}; by the host's clock {self._by_the_host}"

    @property
    def _by_the_host(self) -> str:
        ended = self.state in _ENDED
        if self.measured is not None:
            so_far = "" if ended else ", so far"
            return f"{self.measured.text} in {units.plural(self.pairs, 'pair')}: {self._compared}{so_far}"
        if self.state is not None:
            why = f", {self.message}" if self.message else ""
            return f"no pair counts{'' if ended else ' yet'}: {self.state}{why}"
        if self.is_due:
            return "it is yet to be measured"
        count = f"more than {MOST_BLOCKS:,}" if self.needed is None else f"about {self.needed:,}"
        return (
            f"it was not measured: figures of one kernel are some {100 * OF_HOSTS.spread:g} % apart there, so that a"
            f" change of this size takes {count} pairs to show, and at most {MOST_PAIRS} are measured"
        )

    @property
    def _compared(self) -> str:
        if self.measured is None or self.counted is None or self.outcome in (None, Outcome.UNCLEAR):
            return "not told apart from no change"
        if self.outcome is Outcome.SAME:
            return f"the same within {100 * DELTA:g} %, so that the change does not show there"
        same = math.log(self.measured.times) * math.log(self.counted.times) > 0
        what = "the change is seen there, too" if same else "a change the other way, which contradicts the answer"
        return f"{what} (fragile: the exact test does not show it)" if self.fragile else what


def pairs_needed(times: float) -> int | None:
    """The approximate number of pairs until a change by this factor shows by the host's clock; None above 1000.

    It is at least the number that the exact test needs.
    """
    guess = Effect(Scale.RATIO, 2, math.log(times), _SPREAD_OF_A_PAIR, math.log(times), p=1.0, exact_p=1.0, base=1.0)
    found = blocks_to_tell(guess, delta=0.0)
    return None if found is None else max(found, _LEAST_PAIRS)


@dataclass(frozen=True, slots=True)
class TrialView:
    """A trial with its verdict; ``why`` is one sentence."""

    n: Annotated[int, "number of the trial, from 1"]
    trial: Annotated[Trial, FLAT]
    verdict: Annotated[
        Verdict,
        "`old` or `new`, which `terms` has your words for, `skip`, `weak` (measured again) or `measured` (no side yet)",
    ]
    why: Annotated[str, Key("reason"), "one sentence"]
    taken_from: Annotated[Taken | None, "where it was measured; `null` for this run"] = None
    value: Annotated[float | None, "value of the judged run by the `objective`; `null` without one"] = None
    probability: Annotated[
        float | None, "that this kernel is on the new side; `null` where readings are not weighed"
    ] = None

    @property
    def changed(self) -> str:
        """How a subject was changed that is not a commit of the history; empty for a commit."""
        how = {Kind.REVERTED: "NEW with {} reverted", Kind.PICKED: "OLD with {} added"}.get(self.trial.subject.kind, "")
        return f"no commit: {how.format((self.trial.subject.changed_by or '')[:12])}" if how else ""

    def is_of(self, kind: Kind, changed_by: Commit) -> bool:
        """Whether this is a reading, on either side, of an end that was changed by this commit."""
        of = self.trial.subject
        return (of.kind, of.changed_by) == (kind, changed_by.sha) and self.verdict in (Verdict.OLD, Verdict.NEW)


@dataclass(frozen=True, slots=True)
class MeasuredCommit:
    """The trial of a single commit, with the path of its files."""

    trial: Annotated[TrialView, FLAT]
    run_dir: Annotated[str, "path of the directory that has its files"]
    schema: Annotated[Literal[3], SCHEMA] = 3


@dataclass(frozen=True, slots=True)
class LevelView:
    """A group of values that lie together: the least, the largest, and the number of trials."""

    low: Annotated[float, "least value"]
    high: Annotated[float, "largest value"]
    trials: Annotated[int, "number of trials"]

    @classmethod
    def of(cls, level: ReadingLevel, objective: Objective) -> "LevelView":
        """Convert a level of scores to the unit of the metric."""
        low, high = sorted(map(objective.value_of, (level.worst, level.best)))
        return cls(low, high, level.trials)


@dataclass(frozen=True, slots=True)
class Likely:
    """A commit and the probability that it is the first new one."""

    commit: Annotated[Commit, FLAT]
    probability: Annotated[float, "probability that it is"]


@dataclass(frozen=True, slots=True)
class EffectView:
    """The size of the change, from readings of a kernel without it and of one with it; values in order of measuring."""

    without: Annotated[str, "which kernel is without the change: its parent, or NEW with it reverted"]
    factor: Annotated[Factor, "how many times the value without the change the value with it is"]
    values_without: Annotated[tuple[float, ...], "the readings without the change, in the order of measuring"]
    values_with: Annotated[tuple[float, ...], "the readings with it"]

    def text(self, objective: Objective) -> str:
        """``read.iops is 0.909 times (95 %: 0.89 to 0.93) that of its parent 1a2b3c, by 9 and 8 readings``."""
        counts = f"{len(self.values_without)} and {units.plural(len(self.values_with), 'reading')}"
        return f"{objective.label} is {self.factor.text} that of {self.without}, by {counts}"

    def raw(self, objective: Objective) -> str:
        """All values: ``without it 1,000 IOPS, 1,010 IOPS; with it 905 IOPS, 911 IOPS``."""
        rows = ([objective.text(one) for one in values] for values in (self.values_without, self.values_with))
        return f"without it {', '.join(next(rows))}; with it {', '.join(next(rows))}"


@dataclass(frozen=True, slots=True)
class BeliefView:
    """What all readings together say: the fewest commits that have 99 % of the probability, likeliest first.

    ``confirmed`` says by which changed ends the likeliest commit was confirmed.
    """

    likely: Annotated[
        tuple[Likely, ...], "the fewest commits that have 99 % together, with the probability of each, likeliest first"
    ]
    contradictions: Annotated[int, "number of readings that contradict the likeliest commit"]
    expected_contradictions: Annotated[float, "number that the noise makes usual"]
    one_change: Annotated[bool, "whether one change can explain the readings"]
    confirmed: Annotated[tuple[Kind, ...], "how the likeliest commit was confirmed; may be empty"]
    without_suspects: Annotated[Likely, "the likeliest commit if no paths were suspected"]
    suspects: tuple[str, ...]
    trials_left: Annotated[int, "expected number of further trials; 0 at the end"]
    effect: Annotated[
        EffectView | None, "how large the change of the likeliest commit is; `null` before both its sides were read"
    ] = None
    no_change: Annotated[bool, "whether it is known that nothing in the range made the ends differ"] = False
    nothing: Annotated[float, Key("no_change_probability"), "that nothing in the range made the ends differ"] = 0.0

    @property
    def probability(self) -> Annotated[float, Key()]:
        """The probability of the first of ``likely``, if one commit made the change."""
        return self.best.probability

    @property
    def best(self) -> Likely:
        """The likeliest commit."""
        return self.likely[0]


@dataclass(frozen=True, slots=True)
class OptionChange:
    """An option of the effective .config with its value in the parent and in the child; ``n`` is off or absent."""

    option: Annotated[str, "name of the option"]
    parent: Annotated[str, "value in the parent; `n` is off or absent"]
    child: Annotated[str, "value in the child"]

    @property
    def text(self) -> str:
        """``CONFIG_HZ: 250 -> 1000``."""
        return f"{self.option}: {self.parent} -> {self.child}"


@dataclass(frozen=True, slots=True)
class ConfigChanges:
    """The differences of the first new commit's effective .config from that of one of its parents."""

    parent: Annotated[Commit, "the parent"]
    options: Annotated[tuple[OptionChange, ...], "every option that differs"]


@dataclass(frozen=True, slots=True)
class HostThreshold:
    """The threshold of a host that measured both ends; values of two hosts, or of two eras, are never compared."""

    host: Annotated[str, "name of the host"]
    threshold: Annotated[float, "value between the two sides there"]
    era: Annotated[str | None, "digest of the era in which it is the line; `null` where that is not known"] = None


@dataclass(frozen=True, slots=True)
class BudgetView:
    """How long the run may measure, how much of that is spent, and whether the search ended because of it."""

    budget_s: Annotated[float, "seconds of measuring that it allows, from when it was given"]
    spent_s: Annotated[float, "seconds that were spent since then"]
    is_over: Annotated[bool, "whether the search ended because no further trial would end in time"]

    @property
    def why_over(self) -> str:
        """The sentence for a search without enough time for another trial."""
        return why_over(self.budget_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectionView:
    """How a bisection stands, seen by the metric that decided or by another one."""

    schema: Annotated[Literal[3], SCHEMA] = 3
    state: Annotated[
        State, "how it stands; `imported` for an import without an answer, `measured` for trials of `bisector test`"
    ]
    message: Annotated[str, "one sentence"]
    repository: Annotated[str | None, "path; `null` for an import without one"]
    terms: Annotated[SideWords, "the words for the two sides"]
    direction: Annotated[Direction | None, "of the change; `null` until both ends are measured"]
    objective: Annotated[Objective, "what decides"]
    threshold: Annotated[float | None, "value between the two sides; `null` until both ends are measured"]
    threshold_origin: Annotated[str | None, "where the threshold comes from; `null` without one"] = None
    host_thresholds: Annotated[
        tuple[HostThreshold, ...], "that of each host that measured both ends; `threshold` is that of the first"
    ] = ()
    old: Annotated[Commit, "the old end"]
    new: Annotated[Commit, "the new end"]
    first_fixed: Annotated[
        Commit | None, "first commit on the new side, whatever that is called; `null` until it is found"
    ]
    config_changes: Annotated[
        tuple[ConfigChanges, ...], "how its effective .config differs from that of each parent on record"
    ] = ()
    candidates: Annotated[
        tuple[Commit, ...],
        "commits that can be the answer; with `bayes` the fewest that have 99 % together, likeliest first",
    ]
    strategy: Annotated[
        Strategy,
        "who chooses; the keys from `likely` to `probability` are `null` with `git`, and until both ends are measured",
    ] = Strategy.GIT
    belief: Annotated[BeliefView | None, FLAT] = None
    skips_in_the_way: Annotated[tuple[Commit, ...], "skipped commits that keep the candidates apart"]
    relevance: Annotated[Relevance | None, "how many commits matter; `null` until both ends are built"] = None
    levels: Annotated[
        tuple[LevelView, ...],
        "values between which the readings lie, the worst level first; two if there is one change",
    ] = ()
    other_steps: Annotated[tuple[float, ...], "values of the steps between levels that this run does not look for"] = ()
    next_step_command: Annotated[str | None, "what to type to look for them; `null` if there are none"] = None
    seen_again: Annotated[
        str | None,
        "how the verdicts compare with those by the metric that `--metric` names, one sentence; `null` without that "
        "option",
    ] = None
    trials: Annotated[tuple[TrialView, ...], "in the order of measuring"]
    baselines: Annotated[tuple[Trial, ...], "trials of the disks alone; the last run of each counts"] = ()
    clock: Annotated[GuestTime | None, "what makes the guests' time pass; `null` where others measured"] = None
    infra_faults: Annotated[tuple[InfraFault, ...], "infrastructure errors, which are never a verdict"]
    controls: Annotated[tuple[Control, ...], "ends that were tried again because of the faults of other commits"] = ()
    host_clock: Annotated[
        HostClock | None, "the answer by the host's clock, too; `null` without one, or where nobody asked for it"
    ] = None
    budget: Annotated[BudgetView | None, "for how long it may be measured; `null` if for as long as it takes"] = None
    started_at: Annotated[str, "time"]
    ended_at: Annotated[str | None, "time; `null` while it can go on"]
    run_dir: Annotated[str, "path of the run directory"]
    log: Annotated[str | None, "path of git's bisect log; `null` until git is asked"] = None
    resume_command: Annotated[str | None, "what to type to go on; `null` if there is nothing to do"]

    @property
    def evaluations(self) -> Annotated[int, Key()]:
        """The number of trials."""
        return len(self.trials)

    @property
    def skipped(self) -> Annotated[int, Key()]:
        """The number of trials that were skipped."""
        return sum(trial.verdict is Verdict.SKIP for trial in self.trials)

    @property
    def weak(self) -> Annotated[int, Key()]:
        """The number of trials with weak evidence."""
        return sum(trial.verdict is Verdict.WEAK for trial in self.trials)

    @property
    def is_no_change(self) -> bool:
        """Whether the run ended with the answer that nothing in its range made the ends differ."""
        return self.state is State.NARROWED and self.belief is not None and self.belief.no_change

    @property
    def is_unreadable(self) -> bool:
        """Whether there is an answer, and the repository with its commits cannot be read."""
        return self.state in (State.FOUND, State.NARROWED) and not self.candidates and not self.is_no_change

    @property
    def reused(self) -> Annotated[int, Key()]:
        """The number of commits whose kernel equals one that was measured already."""
        return sum(trial.trial.same_kernel_as is not None for trial in self.trials)


def why_over(budget_s: float) -> str:
    """The sentence for a search without enough time for another trial."""
    return f"another trial would end after the budget of {units.duration(budget_s)}"
