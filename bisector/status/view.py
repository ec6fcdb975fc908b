"""The one view of a bisection that tables, reports and JSON are made of."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from bisector.analysis.threshold import ReadingLevel
from bisector.core import units
from bisector.core.guest_time import GuestTime
from bisector.core.objective import Objective
from bisector.core.subject import Commit, Kind, Relevance
from bisector.core.trial import Control, Taken, Timings, Trial
from bisector.core.verdict import Direction, State, Strategy, Terms, Verdict
from bisector.status.host_clock import Factor, HostClock


@dataclass(frozen=True, slots=True)
class TrialView:
    """A trial with what analysis made of it; ``why`` is one sentence."""

    n: int
    trial: Trial
    verdict: Verdict
    why: str
    taken_from: Taken | None = None
    value: float | None = None

    @property
    def changed(self) -> str:
        """Of what is no commit of the history: what it is; empty for a commit."""
        how = {Kind.REVERTED: "NEW with {} reverted", Kind.PICKED: "OLD with {} added"}.get(self.trial.subject.kind, "")
        return f"no commit: {how.format((self.trial.subject.changed_by or '')[:12])}" if how else ""

    def is_of(self, kind: Kind, changed_by: Commit) -> bool:
        """Whether it is a reading, on either side, of an end that is changed by that commit."""
        of = self.trial.subject
        return (of.kind, of.changed_by) == (kind, changed_by.sha) and self.verdict in (Verdict.OLD, Verdict.NEW)


@dataclass(frozen=True, slots=True)
class LevelView:
    """Values that lie together, the least and the largest, and how many trials they are of."""

    low: Annotated[float, "least value"]
    high: Annotated[float, "largest value"]
    trials: Annotated[int, "number of trials"]

    @classmethod
    def of(cls, level: ReadingLevel, objective: Objective) -> "LevelView":
        """A level of scores in the unit of the metric."""
        low, high = sorted(map(objective.value_of, (level.worst, level.best)))
        return cls(low, high, level.trials)


@dataclass(frozen=True, slots=True)
class Likely:
    """A commit and the probability that it is the first new one."""

    commit: Commit
    probability: float


@dataclass(frozen=True, slots=True)
class EffectView:
    """How large the change is, by readings of a kernel without it and of one with it, and their values in turn."""

    without: Annotated[str, "which kernel is without the change: its parent, or NEW with it reverted"]
    factor: Annotated[Factor, "how many times the value without the change the value with it is"]
    values_without: Annotated[tuple[float, ...], "the readings without the change, in the order of measuring"]
    values_with: Annotated[tuple[float, ...], "the readings with it"]

    def text(self, objective: Objective) -> str:
        """``read.iops is 0.909 times (95 %: 0.89 to 0.93) that of its parent 1a2b3c, by 9 and 8 readings``."""
        counts = f"{len(self.values_without)} and {units.plural(len(self.values_with), 'reading')}"
        return f"{objective.label} is {self.factor.text} that of {self.without}, by {counts}"

    def raw(self, objective: Objective) -> str:
        """All values, those without the change first: ``1,000, 1,010 and then 905, 911 IOPS``."""
        rows = ([objective.text(one) for one in values] for values in (self.values_without, self.values_with))
        return f"without it {', '.join(next(rows))}; with it {', '.join(next(rows))}"


@dataclass(frozen=True, slots=True)
class BeliefView:
    """What all readings together say: the fewest commits that have 99 % of the probability, likeliest first.

    ``confirmed`` says by which changed ends the likeliest was, ``without_suspects`` what it would be otherwise;
    ``probability_new`` gives for each commit, by its hash, how likely its kernel is on the new side. ``effect`` is
    that of the likeliest, as far as both its sides were read, ``nothing`` the probability that nothing in
    the range made the ends differ, which with ``no_change`` is known.
    """

    likely: tuple[Likely, ...]
    contradictions: int
    expected_contradictions: float
    one_change: bool
    confirmed: tuple[Kind, ...]
    without_suspects: Likely
    suspects: tuple[str, ...]
    trials_left: int
    probability_new: Mapping[str, float]
    effect: EffectView | None = None
    no_change: bool = False
    nothing: float = 0.0

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


@dataclass(frozen=True, slots=True)
class ConfigChanges:
    """What the first new commit's effective .config has otherwise than that of one of its parents."""

    parent: Commit
    options: tuple[OptionChange, ...]


@dataclass(frozen=True, slots=True)
class InfraFaultView:
    """Trouble of the tool, the host or the network; ``sha`` is what was tried when it happened."""

    at: Annotated[str, "time"]
    sha: Annotated[str | None, "what was tried; `null` where it was no commit"]
    host: Annotated[str, "name of the host"]
    message: Annotated[str, "one sentence"]


@dataclass(frozen=True, slots=True)
class HostThreshold:
    """The line on a host that measured both ends: figures of two hosts, or of two eras of one, are never compared."""

    host: Annotated[str, "name of the host"]
    threshold: Annotated[float, "value between the two sides there"]
    era: Annotated[str | None, "digest of the era in which it is the line; `null` where that is not known"] = None


@dataclass(frozen=True, slots=True)
class BudgetView:
    """For how long a person lets the run measure, how much of that is spent, and whether the search ended for it."""

    budget_s: float
    spent_s: float
    is_over: bool

    @property
    def why_over(self) -> str:
        """The sentence for a search that has no time left."""
        return why_over(self.budget_s)


@dataclass(frozen=True, slots=True)
class BisectionView:
    """How a bisection stands: all that is shown of it, in any form; ``clock`` is None where others measured."""

    state: State
    message: str
    repository: str
    terms: Terms
    direction: Direction | None
    objective: Objective
    threshold: float | None
    old: Commit
    new: Commit
    first_fixed: Commit | None
    candidates: tuple[Commit, ...]
    skips_in_the_way: tuple[Commit, ...]
    trials: tuple[TrialView, ...]
    infra_faults: tuple[InfraFaultView, ...]
    started_at: str
    ended_at: str | None
    run_dir: str
    resume_command: str
    threshold_origin: str = ""
    log: str = ""
    relevance: Relevance | None = None
    config_changes: tuple[ConfigChanges, ...] = ()
    strategy: Strategy = Strategy.GIT
    belief: BeliefView | None = None
    levels: tuple[LevelView, ...] = ()
    other_steps: tuple[float, ...] = ()
    next_step_command: str = ""
    seen_again: str = ""
    baselines: tuple[Trial, ...] = ()
    controls: tuple[Control, ...] = ()
    budget: BudgetView | None = None
    host_thresholds: tuple[HostThreshold, ...] = ()
    clock: GuestTime | None = None
    host_clock: HostClock | None = None

    @property
    def taken_over(self) -> int:
        """How many trials another run has measured."""
        return sum(trial.taken_from is not None for trial in self.trials)

    def count(self, verdict: Verdict) -> int:
        """How many trials ended in this verdict."""
        return sum(trial.verdict is verdict for trial in self.trials)

    @property
    def reused(self) -> int:
        """How many commits had the kernel of one already measured."""
        return sum(trial.trial.same_kernel_as is not None for trial in self.trials)

    @property
    def trials_s(self) -> float:
        """Wall seconds of all trials together."""
        return math.fsum(trial.trial.timings.total_s for trial in self.trials)


def why_over(budget_s: float) -> str:
    """The sentence for a search that has no time left."""
    return f"another trial would end after the budget of {units.duration(budget_s)}"


def ours_s(timings: Timings) -> float:
    """Seconds of a trial that are neither make nor guest boot nor storage nor fio."""
    parts = math.fsum((timings.build_s, timings.boot_s, timings.storage_s, timings.workload_s))
    return max(0.0, timings.total_s - parts)
