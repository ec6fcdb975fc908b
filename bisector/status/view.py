"""The one view of a bisection that tables and scripts are made of, and its JSON contract.

``bisector status --json`` prints one object, made by :func:`to_json`. Its ``schema`` counts up
when a key is renamed, removed or changes meaning; new keys may come at any time. Seconds and bytes are
plain numbers, and so are values of the metric that decides, in its unit; what is not known is ``null``,
never NaN. Times are ISO 8601 with zone. Strings are as git, the kernel and fio gave them (not cleaned for a terminal).
The keys are in :mod:`bisector.status.keys`.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bisector.analysis.classify import judged_run
from bisector.analysis.threshold import Level
from bisector.core.commit import Commit, Kind, Relevance
from bisector.core.figures import CacheStatus, Run
from bisector.core.objective import Objective
from bisector.core.trial import Control, Taken, Timings, Trial
from bisector.core.verdict import Direction, State, Strategy, Terms, Verdict
from bisector.storage.parse import lone_disk

SCHEMA = 2


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
        how = {Kind.REVERTED: "the new end without", Kind.PICKED: "the old end with"}.get(self.trial.subject.kind)
        return f"no commit: {how} {(self.trial.subject.changed_by or '')[:12]}" if how else ""


@dataclass(frozen=True, slots=True)
class LevelView:
    """Values that lie together, the least and the largest, and how many trials they are of."""

    low: float
    high: float
    trials: int

    @classmethod
    def of(cls, level: Level, objective: Objective) -> "LevelView":
        """A level of scores in the unit of the metric."""
        low, high = sorted(map(objective.value_of, (level.worst, level.best)))
        return cls(low, high, level.trials)


@dataclass(frozen=True, slots=True)
class Likely:
    """A commit and the probability that it is the first new one."""

    commit: Commit
    probability: float


@dataclass(frozen=True, slots=True)
class BeliefView:
    """What all readings together say: the fewest commits that have 99 % of the probability, likeliest first.

    ``confirmed`` says by which changed ends the likeliest was, ``without_suspects`` what it would be otherwise;
    ``probability_new`` gives for each commit, by its hash, how likely its kernel is on the new side.
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

    @property
    def best(self) -> Likely:
        """The likeliest commit."""
        return self.likely[0]


@dataclass(frozen=True, slots=True)
class OptionChange:
    """An option of the effective .config with its value in the parent and in the child; ``n`` is off or absent."""

    option: str
    parent: str
    child: str


@dataclass(frozen=True, slots=True)
class ConfigChanges:
    """What the first new commit's effective .config has otherwise than that of one of its parents."""

    parent: Commit
    options: tuple[OptionChange, ...]


@dataclass(frozen=True, slots=True)
class InfraFaultView:
    """Trouble of the tool, the host or the network; ``sha`` is what was tried when it happened."""

    at: str
    sha: str | None
    host: str
    message: str


@dataclass(frozen=True, slots=True)
class BisectionView:
    """How a bisection stands: all that is shown of it, in any form."""

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


def ours_s(timings: Timings) -> float:
    """Seconds of a trial that are neither make nor guest boot nor storage nor fio."""
    parts = math.fsum((timings.build_s, timings.boot_s, timings.storage_s, timings.workload_s))
    return max(0.0, timings.total_s - parts)


def to_json(view: BisectionView) -> dict[str, object]:
    """The documented contract as plain dictionaries, lists, strings, numbers and None."""
    whole = {
        "schema": SCHEMA,
        "state": view.state,
        "message": view.message,
        "repository": view.repository or None,
        "terms": {"old": view.terms.old, "new": view.terms.new},
        "direction": view.direction,
        "objective": objective_to_json(view.objective),
        "threshold": view.threshold,
        "threshold_origin": view.threshold_origin or None,
        "old": _commit(view.old),
        "new": _commit(view.new),
        "first_fixed": _first(view.first_fixed, view.config_changes) if view.first_fixed else None,
        "candidates": [commit.sha for commit in view.candidates],
        "strategy": view.strategy,
        **_belief(view.belief),
        "skips_in_the_way": [commit.sha for commit in view.skips_in_the_way],
        "relevance": asdict(view.relevance) if view.relevance else None,
        "levels": [asdict(level) for level in view.levels],
        "other_steps": view.other_steps,
        "next_step_command": view.next_step_command or None,
        "seen_again": view.seen_again or None,
        "evaluations": len(view.trials),
        "skipped": view.count(Verdict.SKIP),
        "weak": view.count(Verdict.WEAK),
        "reused": view.reused,
        "trials": [trial_to_json(trial, view.terms, view.belief) for trial in view.trials],
        "baselines": [_baseline(trial) for trial in view.baselines],
        "infra_faults": [asdict(fault) for fault in view.infra_faults],
        "controls": [asdict(control) for control in view.controls],
        "started_at": view.started_at,
        "ended_at": view.ended_at,
        "run_dir": view.run_dir,
        "log": view.log or None,
        "resume_command": view.resume_command or None,
    }
    return {key: plain(value) for key, value in whole.items()}


def objective_to_json(objective: Objective) -> dict[str, object]:
    """The metric that decides, how over jobs, and the unit of its values."""
    unit = objective.definition.unit
    return {"metric": objective.metric, "over": objective.over, "unit": unit, "better": objective.better}


def _belief(belief: BeliefView | None) -> dict[str, object]:
    if belief is None:
        return dict.fromkeys(_BELIEF)
    shown: tuple[object, ...] = (
        belief.best.probability,
        [one.probability for one in belief.likely],
        belief.contradictions,
        belief.expected_contradictions,
        belief.one_change,
        {"sha": belief.without_suspects.commit.sha, "probability": belief.without_suspects.probability},
        list(belief.confirmed),
        belief.trials_left,
    )
    return dict(zip(_BELIEF, shown, strict=True))


_BELIEF = (
    "probability",
    "candidate_probabilities",
    "contradictions",
    "expected_contradictions",
    "one_change",
    "without_suspects",
    "confirmed",
    "trials_left",
)


def trial_to_json(view: TrialView, terms: Terms, belief: BeliefView | None = None) -> dict[str, object]:
    """One element of ``trials``; ``bisector test --json`` prints it alone."""
    trial = view.trial
    whole = {
        "n": view.n,
        **_commit(trial.commit),
        "verdict": terms.word(view.verdict),
        "side": view.verdict,
        "stage": trial.stage,
        "value": view.value,
        "reason": view.why,
        "fault": asdict(trial.fault) if trial.fault else None,
        "runs": [_run(run) for run in trial.runs],
        **asdict(trial.timings),
        "ours_s": ours_s(trial.timings),
        "kernel": asdict(trial.kernel) if trial.kernel else None,
        "kind": trial.subject.kind,
        "changed_by": trial.subject.changed_by,
        "probability": belief.probability_new.get(trial.commit.sha) if belief else None,
        "same_kernel_as": trial.same_kernel_as,
        "same_sources": trial.same_sources,
        "doubted": trial.doubted,
        "artifacts": [asdict(artifact) for artifact in trial.artifacts],
        "host": trial.host,
        "started_at": trial.started_at,
        "setup": asdict(trial.setup),
        "taken_from": asdict(view.taken_from) if view.taken_from else None,
        "origin": asdict(trial.origin) if trial.origin else None,
    }
    return {key: plain(value) for key, value in whole.items()}


def _baseline(trial: Trial) -> dict[str, object]:
    return {
        "disk": lone_disk(trial.setup.stack),
        "setup": asdict(trial.setup),
        **_commit(trial.commit),
        "host": trial.host,
        "started_at": trial.started_at,
        "run": _run(judged_run(trial)),
        "artifacts": [asdict(artifact) for artifact in trial.artifacts],
        "origin": asdict(trial.origin) if trial.origin else None,
    }


def _commit(commit: Commit) -> dict[str, str]:
    return {"sha": commit.sha, "subject": commit.subject, "committed_at": commit.committed_at}


def _first(commit: Commit, changes: tuple[ConfigChanges, ...]) -> dict[str, object]:
    shown = [{"parent": one.parent.sha, "options": [asdict(option) for option in one.options]} for one in changes]
    return {**_commit(commit), "config_changes": shown}


def _run(run: Run) -> dict[str, object]:
    return {
        "name": run.name,
        "started_at": run.started_at,
        "duration_s": run.duration_s,
        "jobs": [asdict(job) for job in run.jobs],
        "cache": {"before": _cache(run.cache_before), "after": _cache(run.cache_after)},
        "counters": dict(run.counters),
        "contention": asdict(run.contention) if run.contention else None,
        "clock_drift_s": run.clock_drift_s,
        "disks": [asdict(disk) for disk in run.disks],
        "stopped_early": asdict(run.stopped_early) if run.stopped_early else None,
    }


def _cache(cache: CacheStatus | None) -> dict[str, object] | None:
    return {**asdict(cache), "full": cache.full} if cache else None


def plain(value: object) -> object:
    """JSON's own types only; what JSON cannot say (NaN, infinity) is null."""
    match value:
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case float() if not math.isfinite(value):
            return None
        case str() | Path():  # StrEnums and paths become the plain string
            return str(value)
        case _:
            return value
