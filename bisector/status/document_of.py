"""The documents of a bisection for scripts, from its view."""

from dataclasses import asdict
from typing import Any

from bisector.analysis.judgement import judged_run
from bisector.core.figures import CacheStatus, Run
from bisector.core.json_document import DecidingMetric, NamedCommit
from bisector.core.subject import Commit
from bisector.core.trial import Trial
from bisector.core.verdict import Terms, Verdict
from bisector.status.document import (
    Baseline,
    Baselines,
    Budget,
    ByHostsClock,
    CacheState,
    CacheStates,
    ConfigDifference,
    FirstNew,
    JudgedTrial,
    LikelyCommit,
    PhaseRun,
    Status,
    TestedCommit,
    VerdictTable,
)
from bisector.status.host_clock import HostClock
from bisector.status.view import BeliefView, BisectionView, ConfigChanges, TrialView, ours_s
from bisector.storage.stack import lone_disk


def status(view: BisectionView) -> Status:
    """The whole."""
    return Status(
        state=view.state,
        message=view.message,
        repository=view.repository or None,
        terms=view.terms,
        direction=view.direction,
        objective=DecidingMetric.of(view.objective),
        threshold=view.threshold,
        threshold_origin=view.threshold_origin or None,
        host_thresholds=view.host_thresholds,
        old=NamedCommit.of(view.old),
        new=NamedCommit.of(view.new),
        first_fixed=_first(view.first_fixed, view.config_changes) if view.first_fixed else None,
        candidates=tuple(commit.sha for commit in view.candidates),
        strategy=view.strategy,
        **_belief(view.belief),
        skips_in_the_way=tuple(commit.sha for commit in view.skips_in_the_way),
        relevance=view.relevance,
        levels=view.levels,
        other_steps=view.other_steps,
        next_step_command=view.next_step_command or None,
        seen_again=view.seen_again or None,
        evaluations=len(view.trials),
        skipped=view.count(Verdict.SKIP),
        weak=view.count(Verdict.WEAK),
        reused=view.reused,
        trials=tuple(judged(trial, view.terms, view.belief) for trial in view.trials),
        baselines=tuple(map(_baseline, view.baselines)),
        clock=view.clock,
        infra_faults=view.infra_faults,
        controls=view.controls,
        host_clock=_host_clock(view.host_clock) if view.host_clock is not None else None,
        budget=Budget(**asdict(view.budget)) if view.budget is not None else None,
        started_at=view.started_at,
        ended_at=view.ended_at,
        run_dir=view.run_dir,
        log=view.log or None,
        resume_command=view.resume_command or None,
    )


def table(view: BisectionView) -> VerdictTable:
    """The trials, and what they are judged by."""
    whole = status(view)
    return VerdictTable(
        objective=whole.objective,
        threshold=whole.threshold,
        seen_again=whole.seen_again,
        clock=whole.clock,
        trials=whole.trials,
    )


def baselines(view: BisectionView) -> Baselines:
    """The disks alone."""
    return Baselines(run_dir=view.run_dir, baselines=tuple(map(_baseline, view.baselines)))


def judged(view: TrialView, terms: Terms, belief: BeliefView | None = None) -> JudgedTrial:
    """A trial."""
    return JudgedTrial(**_trial(view, terms, belief))


def tested(view: TrialView, terms: Terms, run_dir: str) -> TestedCommit:
    """The trial of a single commit."""
    return TestedCommit(**_trial(view, terms, None), run_dir=run_dir)


def _trial(view: TrialView, terms: Terms, belief: BeliefView | None) -> dict[str, Any]:
    trial = view.trial
    return {
        "n": view.n,
        **_commit(trial.commit),
        "verdict": terms.word(view.verdict),
        "side": view.verdict,
        "stage": trial.stage,
        "value": view.value,
        "reason": view.why,
        "fault": trial.fault,
        "runs": tuple(map(_run, trial.runs)),
        "fill": trial.fill,
        **asdict(trial.timings),
        "ours_s": ours_s(trial.timings),
        "kernel": trial.kernel,
        "kind": trial.subject.kind,
        "changed_by": trial.subject.changed_by,
        "probability": belief.probability_new.get(trial.commit.sha) if belief else None,
        "same_kernel_as": trial.same_kernel_as,
        "same_sources": trial.same_sources,
        "doubted": trial.doubted,
        "artifacts": trial.artifacts,
        "host": trial.host,
        "era": trial.era,
        "started_at": trial.started_at,
        "setup": trial.setup,
        "queues": trial.queues,
        "runtime_s": trial.runtime_s,
        "guest_seed": trial.guest_seed,
        "taken_from": view.taken_from,
        "origin": trial.origin,
    }


def _belief(belief: BeliefView | None) -> dict[str, Any]:
    """What all readings together say; nothing with git, and until both ends are measured."""
    if belief is None:
        return {}
    other = belief.without_suspects
    return {
        "probability": belief.best.probability,
        "candidate_probabilities": tuple(one.probability for one in belief.likely),
        "contradictions": belief.contradictions,
        "expected_contradictions": belief.expected_contradictions,
        "one_change": belief.one_change,
        "without_suspects": LikelyCommit(sha=other.commit.sha, probability=other.probability),
        "confirmed": belief.confirmed,
        "effect": belief.effect,
        "no_change": belief.no_change,
        "no_change_probability": belief.nothing,
        "trials_left": belief.trials_left,
    }


def _host_clock(clock: HostClock) -> ByHostsClock:
    return ByHostsClock(
        parent=clock.parent.sha if clock.parent is not None else None,
        by_instructions=clock.counted,
        by_host=clock.measured,
        pairs=clock.pairs,
        pairs_needed=clock.needed,
        outcome=clock.outcome,
        state=clock.state,
        sentence=clock.sentence,
        run_dir=clock.run_dir,
    )


def _baseline(trial: Trial) -> Baseline:
    return Baseline(
        disk=lone_disk(trial.setup.stack) or "",
        setup=trial.setup,
        **_commit(trial.commit),
        host=trial.host,
        started_at=trial.started_at,
        run=_run(judged_run(trial)),
        artifacts=trial.artifacts,
        origin=trial.origin,
    )


def _commit(commit: Commit) -> dict[str, str]:
    return {"sha": commit.sha, "subject": commit.subject, "committed_at": commit.committed_at}


def _first(commit: Commit, changes: tuple[ConfigChanges, ...]) -> FirstNew:
    shown = (ConfigDifference(parent=one.parent.sha, options=one.options) for one in changes)
    return FirstNew(**_commit(commit), config_changes=tuple(shown))


def _run(run: Run) -> PhaseRun:
    return PhaseRun(
        name=run.name,
        started_at=run.started_at,
        duration_s=run.duration_s,
        jobs=run.jobs,
        cache=CacheStates(before=_cache(run.cache_before), after=_cache(run.cache_after)),
        counters=dict(run.counters),
        contention=run.contention,
        clock_drift_s=run.clock_drift_s,
        disks=run.disks,
        stopped_early=run.stopped_early,
    )


def _cache(cache: CacheStatus | None) -> CacheState | None:
    return CacheState(**asdict(cache), full=cache.full) if cache else None
