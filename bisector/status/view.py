"""The one view of a bisection that tables and scripts are made of, and its JSON contract.

``bisector status --json`` prints one object, made by :func:`to_json`. Its ``schema`` counts up
when a key is renamed, removed or changes meaning; new keys may come at any time. Seconds and bytes are
plain numbers, and so are values of the metric that decides, in its unit; what is not known is ``null``,
never NaN. Times are ISO 8601 with zone. Strings are as git, the kernel and fio gave them (not cleaned for a terminal).

=====================  ============================================================================
``schema``             2
``state``              ``running``, ``found``, ``narrowed``, ``failed``, ``stopped`` or, of facts of others without
                       an answer, ``imported``
``message``            one sentence for a person
``repository``         path of the kernel repository; ``null`` when an import has none
``terms``              ``{old, new}``: the words for the two sides: those chosen, or ``broken`` and ``fixed`` of an
                       improvement, ``good`` and ``bad`` of a regression, ``old`` and ``new`` before that is known
``direction``          ``improvement`` or ``regression``, ``null`` while it is not known
``objective``          ``{metric, over, unit, better}``: what decides; ``better`` is ``higher`` or ``lower``
``threshold``          value, or ``null`` while it is not known; ``threshold_origin`` says whence
``old``, ``new``       ``{sha, subject, committed_at}``: the ends of the range
``first_fixed``        the same of the first commit on the new side (whatever it is called), or ``null``;
                       with ``config_changes``: ``[{parent, options: [{option, parent, child}]}]``,
                       what its effective .config has otherwise than that of each parent whose
                       .config is on record; every option that differs is there
``candidates``         ``[sha]``: what the first new commit can still be; one when ``found``. By ``bayes``: the
                       fewest that are it with 99 %, likeliest first
``strategy``           ``bayes`` or ``git``; the keys down to ``confirmed`` are ``null`` by ``git``, and before
                       both ends are measured
``probability``        that the first of ``candidates`` is it, if there is one change
``candidate_probabilities``  one number for each of ``candidates``
``contradictions``     readings that contradict the likeliest commit; ``expected_contradictions``: how many would
                       be usual; ``one_change``: whether the readings can be of a single change
``without_suspects``   ``{sha, probability}``: the likeliest commit if no paths were suspected
``confirmed``          ``["reverted"]``, ``["picked"]``, both or none: how the likeliest commit was confirmed
``trials_left``        about how many trials are to be expected; 0 at the end
``skips_in_the_way``   ``[sha]``: skipped commits that keep the candidates apart
``relevance``          ``{commits, can_matter}``: the size of the range, and how many of its commits touch what
                       the kernels of its ends were built from; ``null`` before both ends are built
``levels``             ``[{low, high, trials}]``, the worst first: values between which the sound readings lie, two
                       levels when there is one change; ``other_steps`` are the values of the steps that this
                       run did not look for, and ``next_step_command`` does (``null`` when there is none)
``seen_again``         where the trials are seen by another metric than the one that decided: a sentence that says how
                       the verdicts compare, else ``null``
``evaluations``        number of trials; ``skipped``, ``weak`` and ``reused`` are those among them
``trials``             in the order of measuring, see below
``baselines``          ``[{disk, sha, subject, committed_at, host, started_at, run, artifacts, origin}]``: a disk alone,
                       ``ssd`` or ``hdd``, under the same job and the kernel of ``sha``; ``run`` and the others are
                       as in ``trials``; it says nothing of a commit
``infra_faults``       ``[{at, sha, host, message}]``: trouble of ours, never a verdict
``controls``           ``[{at, host, sha, stage, trials, failed}]``: an end that was tried again because of the
                       faults of some trials, by their numbers, and had to come through the stage; ``failed`` is
                       empty when it did, and else those faults are doubted
``started_at``         time; ``ended_at`` is ``null`` while it runs
``run_dir``, ``log``   paths; ``log`` is ``null`` when there is none
``resume_command``     what to type to go on, or ``null``
=====================  ============================================================================

Each trial:

=======================  ==========================================================================
``n``                    its number, from 1
``sha``, ``subject``     of the commit, with ``committed_at``
``verdict``              in the person's terms, or ``skip`` or ``weak``
``side``                 the same as ``old``, ``new``, ``skip`` or ``weak``, whatever the terms
``stage``                how far it came: ``checkout``, ``config``, … ``workload``, ``done``
``value``                of the last run, by the objective; ``null`` where there is none
``reason``               one sentence; ``fault`` is ``{stage, kind, reason, tail, cached}`` or ``null``
``runs``                 ``[{name, started_at, duration_s, jobs, cache, counters, contention, …}]``
``runs[].jobs``          ``[{name, direction, iops_mean, iops_stddev, bw_kib_s, clat_mean_ns, …}]``
``runs[].cache``         ``{before, after}``: dm-cache status each, or ``null``; ``full`` is among it
``runs[].counters``      ``{metric: value}``: what the layers of the storage stack counted during the run
``runs[].contention``    ``{other_busy_cores, steal_share, psi_some_share}``, or ``null`` where nobody looked
``runs[].disks``         ``[{name, read_ios, write_ios, …, util_percent}]``, as fio tells them; may be empty
``runs[].stopped_early`` ``{reason, at_s, bound, threshold, why, metric, over}``, ``null`` of a whole run: ``reason``
                         is ``above`` or ``not above``; what the jobs did is not to be compared with whole runs
``build_s``, ``boot_s``  wall seconds of each part, with ``storage_s``, ``workload_s``, ``total_s``
                         and ``ours_s``, which is the rest
``kernel``               ``{release, config, image, toolchain, quirks, unmet, cached, …}`` or ``null``
``kind``                 ``commit``, or ``reverted`` or ``picked``: an end without a commit, or with it, whose
                         sha is ``changed_by``; ``sha`` is then of a commit that no branch has
``probability``          that this kernel is on the new side, by all readings, or ``null``
``same_kernel_as``       sha of the commit whose equal kernel was measured instead, or ``null``
``same_sources``         whether nothing was even built, because no build input differs from that of another commit
``taken_from``           ``{run_dir, n}`` of the run that measured it, or ``null``: it was this one
``doubted``              whether its fault may be the host's, because an end that worked before failed, too
``artifacts``            ``[{name, path, sha256, size_bytes}]``; paths are relative to ``run_dir``
``host``, ``started_at`` where and when
``origin``               ``null``, or of an imported trial ``{tool, kernel, verdict}``: with what and on what kernel
                         others measured, and the side that they gave it, or ``null``
=======================  ==========================================================================
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bisector.analysis.levels import Level
from bisector.core.figures import CacheStatus, Run
from bisector.core.model import (
    Commit,
    Control,
    Direction,
    Kind,
    Relevance,
    State,
    Strategy,
    Taken,
    Terms,
    Timings,
    Trial,
    Verdict,
)
from bisector.core.objective import Objective

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
        how = {Kind.REVERTED: "the new end without", Kind.PICKED: "the old end with"}.get(self.trial.kind)
        return f"no commit: {how} {(self.trial.changed_by or '')[:12]}" if how else ""


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
    """Trouble of ours, the host's or the network's; ``sha`` is what was tried when it happened."""

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
        "objective": _objective(view.objective),
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


def _objective(objective: Objective) -> dict[str, object]:
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
        "kind": trial.kind,
        "changed_by": trial.changed_by,
        "probability": belief.probability_new.get(trial.commit.sha) if belief else None,
        "same_kernel_as": trial.same_kernel_as,
        "same_sources": trial.same_sources,
        "doubted": trial.doubted,
        "artifacts": [asdict(artifact) for artifact in trial.artifacts],
        "host": trial.host,
        "started_at": trial.started_at,
        "taken_from": asdict(view.taken_from) if view.taken_from else None,
        "origin": asdict(trial.origin) if trial.origin else None,
    }
    return {key: plain(value) for key, value in whole.items()}


def _baseline(trial: Trial) -> dict[str, object]:
    return {
        "disk": trial.alone,
        **_commit(trial.commit),
        "host": trial.host,
        "started_at": trial.started_at,
        "run": _run(trial.runs[-1]),
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
