"""Derive the view of a bisection from its record alone, by the metric that decided or by another one.

Counted time has no caches, no branch prediction and no second CPU, so a change that has some size in instructions may
have another size, or none, by the host's clock. The answer of a run in counted time can therefore be measured once more
by the host's clock: as a comparison of the answer with its parent (:mod:`bisector.compare`), whose record lies below
the run's. The comparison stands beside the answer and never changes it.
"""

import math
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from bisector.analysis.comparison import Scale, factor_between
from bisector.analysis.judgement import SoundMeasurement, judged_run
from bisector.analysis.verdicts import Judging
from bisector.config import ConfirmBy
from bisector.core import units
from bisector.core.errors import BisectorError, EndsDoNotReproduce, InfraError, UserError
from bisector.core.objective import Factor, Objective
from bisector.core.subject import Commit, NotChanged
from bisector.core.verdict import State, Strategy, Verdict
from bisector.git.ranges import Range, SearchRange
from bisector.git.repository import Repository, unreadable
from bisector.search.graph import Kernel
from bisector.status.blocks import Blocks, result_of
from bisector.status.conclusion import SearchState, config_changes, ends_by_others, outcome_by_others, outside_paths
from bisector.status.evidence import Case, Known
from bisector.status.view import (
    BeliefView,
    BisectionView,
    BudgetView,
    EffectView,
    HostClock,
    HostThreshold,
    LevelView,
    Likely,
    TrialView,
)
from bisector.store.facts import Budget, InfraFault, RunHeader
from bisector.store.rundir import GIT_LOG, RunDirectory
from bisector.store.store import Store, state_of

CONFIRMED = "confirmed"  # the directory of the comparison by the host's clock, in that of the run
_MIN_S = 60.0
_SPARE = 1.1  # so that a trial that takes a little longer than earlier ones still fits
_SIDES = (Verdict.OLD, Verdict.NEW)
_ENDED = (State.FOUND, State.NARROWED, State.FAILED, State.IMPORTED)


def view(run: RunDirectory, store: Store, by: Objective | None = None) -> BisectionView:
    """Return the view of a run, whether its process is alive or not.

    With ``by`` the trials are seen by that objective, while the state of the search stays as it was decided. Raises
    :class:`bisector.core.objective.MetricAbsent` if no run has a value by it. Without ``by``, a trial without a value
    says why it has none.
    """
    asked = store.bisection()
    settings, trials_of_all, by_others = store.settings, store.trials(), store.by_others
    old, new = ends_by_others(asked, trials_of_all) if by_others else (asked.old_sha, asked.new_sha)
    judging = Judging(settings, trials_of_all, old, new)
    last = store.state()
    state, message, candidates, belief, likely = _outcome(run, store, judging)
    if state in (State.FOUND, State.NARROWED) and belief is None and not candidates and asked.repository is not None:
        message = "; ".join(filter(None, (message, unreadable(asked.repository))))
    skipped = set(asked.skips) | {t.commit.sha for _, t, j in judging.judged_trials() if j.verdict is Verdict.SKIP}
    first = candidates[0] if state is State.FOUND and candidates else None
    trials = [trial for _, trial in judging.trials]
    log, taken, clock, budget, next_step = run.path / GIT_LOG, store.taken(), None, None, None
    if given := store.facts(Budget):
        spent_s, is_over = store.spent_s() - given[-1].spent_s, last is not None and last.out_of_time
        budget = BudgetView(given[-1].budget_s, spent_s, is_over)
    if first and settings.bisect.confirm_by is ConfirmBy.HOST:
        clock = host_clock(run.path, asked.repository, judging, first)
    own_steps = tuple(map(judging.objective.value_of, judging.other_lines))
    if own_steps and state in _ENDED:
        steps = " and ".join(map(judging.objective.text, own_steps))
        message += f"; the readings lie on more than two levels, so there is another step, at {steps}"
        if by is None and not by_others:
            next_step = run_command("next-step", run.path)
    ended_at = last.at if last is not None and state is not State.RUNNING else None
    seen = judging if by is None else _seen_by(judging, by)
    objective, origin = seen.objective, None
    if seen.settings.bisect.threshold is not None:
        origin = "as given"
    elif seen.line is not None:
        origin = "middle of the gap between the two sides' readings"
    made = BisectionView(
        state=state,
        message=message,
        repository=str(asked.repository) if asked.repository else None,
        terms=judging.terms,
        direction=seen.direction,
        objective=objective,
        threshold=seen.threshold_value,
        threshold_origin=origin,
        old=_commit(asked, judging.old, judging),
        new=_commit(asked, judging.new, judging),
        first_fixed=first,
        config_changes=(
            config_changes(asked.repository, asked.paths, run.path, trials, first) if first and asked.repository else ()
        ),
        relevance=store.relevance(),
        candidates=candidates,
        strategy=settings.bisect.strategy,
        belief=belief,
        skips_in_the_way=tuple(commit for commit in candidates if state is State.NARROWED and commit.sha in skipped),
        trials=tuple(
            TrialView(n, one, judged.verdict, judged.why, taken.get(n), seen.value(one), likely.get(one.commit.sha))
            for n, one, judged in seen.judged_trials()
        ),
        infra_faults=store.facts(InfraFault),
        started_at=asked.created_at,
        ended_at=asked.created_at if by_others else ended_at,
        run_dir=str(run.path),
        resume_command=None,
        log=str(log) if log.is_file() else None,
        levels=tuple(LevelView.of(one, objective) for one in seen.levels),
        other_steps=tuple(map(objective.value_of, seen.other_lines)),
        baselines=tuple(trial for _, trial in store.baselines()),
        controls=store.controls(),
        next_step_command=next_step,
        seen_again=seen_again(judging, seen) or None,
        budget=budget,
        host_thresholds=tuple(_host_thresholds(seen)),
        clock=None if by_others else settings.machine.time,
        host_clock=clock,
    )
    return replace(made, resume_command=_how_to_go_on(run, made)) if store.is_search else made


def _seen_by(judging: Judging, by: Objective) -> Judging:
    """The same trials by another objective; raises :class:`MetricAbsent` if no run has a value by it."""
    settings, trials = judging.settings, [trial for _, trial in judging.trials]
    seen = replace(judging, settings=replace(settings, bisect=settings.bisect.by(by)))
    runs = [judged_run(trial) for trial in trials if trial.runs and trial.fault is None]
    if runs and all(seen.value(trial) is None for trial in trials):
        with suppress(InfraError):  # runs that did nothing have a rate of zero, and their verdicts say so
            seen.objective.deciding(runs[-1])  # raises, and names the existing metrics
    return seen


def _host_thresholds(seen: Judging) -> Iterator[HostThreshold]:
    for host, own in seen.hosts.items():
        if (line := seen.line_on(host)) is not None and own.trials:
            _, first = own.trials[0]
            era = first.era.digest if first.era is not None else None
            yield HostThreshold(first.host, seen.objective.value_of(line), era)


def _outcome(
    run: RunDirectory, store: Store, judging: Judging
) -> tuple[State, str, tuple[Commit, ...], BeliefView | None, Mapping[str, float]]:
    """The state, a sentence, the possible first new commits, the belief, and each commit's probability of being new."""
    asked = store.bisection()
    if store.by_others:
        return *outcome_by_others(asked, judging), None, {}
    if not store.is_search:
        commits = units.plural(len({trial.commit.sha for _, trial in judging.trials}), "commit")
        return State.MEASURED, f"{units.plural(len(judging.trials), 'trial')} of {commits}", (), None, {}
    state, message = state_of(run, store)
    belief, likely = _belief(asked, judging, store)
    return state, message, _candidates(asked, judging, belief, state, message), belief, likely


def _how_to_go_on(run: RunDirectory, view: BisectionView) -> str | None:
    """The command to go on with, if any; after a budget is spent, with a new budget for the expected trials."""
    resume, budget, belief = run_command("resume", run.path), view.budget, view.belief
    waits = view.host_clock is not None and view.host_clock.waits
    if budget is not None and budget.is_over and not waits:
        took = [one.trial.timings.total_s for one in view.trials if one.trial.timings.total_s]
        left_s = belief.trials_left * math.fsum(took) / len(took) if belief is not None and took else 0.0
        more = f"{math.ceil(_SPARE * left_s / _MIN_S)}min" if left_s else units.duration_text(budget.budget_s)
        return f"{resume} --budget {more}"
    return resume if waits or view.state not in _ENDED else None


def run_command(name: str, run_dir: Path) -> str:
    """What to type for a command on this run."""
    return f"bisector {name} --run-dir {shlex.quote(str(run_dir))}"


def _case(asked: RunHeader, judging: Judging, store: Store) -> tuple[Repository, Case] | None:
    """The case of a bisection with its repository.

    None if readings are not weighed: git chooses the commits, an end is not measured yet, or there is no repository.
    """
    measured = judging.sound(asked.old_sha) and judging.sound(asked.new_sha)
    if judging.settings.bisect.strategy is not Strategy.BAYES or not measured or asked.repository is None:
        return None
    repository = Repository.open(asked.repository)
    search_range = SearchRange.of(repository, _range(repository, asked), judging.settings.bisect.suspects)
    bases = repository.merge_bases(asked.new_sha, asked.old_sha)
    known = Known(asked.skips, store.mattering(), store.facts(NotChanged), bases, store.earlier())
    return repository, Case(search_range, judging, known)


def case_of(store: Store) -> Case | None:
    """The case of a bisection from its record alone; None if readings are not weighed (yet)."""
    asked = store.bisection()
    judging = Judging(store.settings, store.trials(), asked.old_sha, asked.new_sha)
    found = _case(asked, judging, store)
    return None if found is None else found[1]


def _belief(asked: RunHeader, judging: Judging, store: Store) -> tuple[BeliefView | None, Mapping[str, float]]:
    """The belief of a run, and the probability of each commit that its kernel is on the new side.

    None and empty if readings are not weighed, or if the repository is gone.
    """
    with suppress(BisectorError):
        if (found := _case(asked, judging, store)) is not None:
            repository, search_state = found[0], SearchState(found[1])
            other, its_probability = search_state.without_suspects
            shas, probabilities = zip(*search_state.candidates, strict=True)
            belief = BeliefView(
                likely=tuple(map(Likely, repository.commits(shas), probabilities)),
                contradictions=search_state.fit.contradictions,
                expected_contradictions=search_state.fit.expected,
                one_change=search_state.one_change,
                confirmed=search_state.confirmed,
                without_suspects=Likely(repository.commits([other])[0], its_probability),
                suspects=judging.settings.bisect.suspects,
                trials_left=search_state.trials_left,
                effect=_effect(repository, search_state),
                no_change=search_state.no_change,
                nothing=search_state.belief.nothing,
            )
            return belief, search_state.probability_new
    return None, {}


def _effect(repository: Repository, search_state: SearchState) -> EffectView | None:
    """The effect of the likeliest commit; None until kernels with and without it were read."""
    found = search_state.effect
    if found is None or not all(found.counts):
        return None
    (commit, kernel), _ = found.sides
    without = "NEW with it reverted"
    if kernel is Kernel.COMMIT:
        (parent,) = repository.commits([search_state.case.commit_for(commit)])
        without = f"its parent {parent.short}"
    of = search_state.case.judging.objective
    rows = (tuple(of.value_of(one.score) for one in row if one.score is not None) for row in found.readings)
    return EffectView(without, of.factor(found.mean, found.half_width), *rows)


def _range(repository: Repository, asked: RunHeader) -> Range:
    old_end, new_end = repository.commits((asked.old_sha, asked.new_sha))
    return Range(old_end, new_end, asked.first_parent, asked.paths)


def _candidates(
    asked: RunHeader, judging: Judging, belief: BeliefView | None, state: State, message: str
) -> tuple[Commit, ...]:
    """The commits that can still be the first new one; empty if the repository is gone."""
    narrowed = state is State.NARROWED
    if belief is not None:
        likely = () if belief.no_change else tuple(one.commit for one in belief.likely)
        if state is State.FOUND or message != outside_paths(asked.paths):
            return likely[:1] if state is State.FOUND else likely
        asked, narrowed = replace(asked, paths=()), True
    if asked.repository is None:
        return ()
    # In git's order.
    new, olds = asked.new_sha, [asked.old_sha]
    for sha, verdict in judging.verdicts():
        if verdict is Verdict.NEW and sha not in (asked.old_sha, asked.new_sha):
            new = sha
        elif verdict is Verdict.OLD and sha not in (asked.old_sha, asked.new_sha):
            olds.append(sha)
    with suppress(BisectorError):
        repository = Repository.open(asked.repository)
        parents = partial(repository.parents, first_only=asked.first_parent)
        left = repository.commits(repository.ask("rev-list", *_range(repository, asked).limits(new, olds)).lines)
        return judging.possible(left, parents) if narrowed else left
    return ()


def _commit(asked: RunHeader, sha: str, judging: Judging) -> Commit:
    """An end of the range: from its trial, else from the repository, else with its hash alone."""
    found = next((trial.commit for _, trial in judging.trials if trial.commit.sha == sha), None)
    if found is None and asked.repository is not None and sha:
        with suppress(UserError):
            found = Repository.open(asked.repository).commits((sha,))[0]
    return found or Commit(sha, "", "", "")


def seen_again(judging: Judging, seen: Judging) -> str:
    """One sentence that compares the verdicts with those that the same trials give as ``seen``.

    Empty if there is nothing to compare (yet).
    """
    label = seen.objective.label
    if seen.objective == judging.objective or judging.line is None:
        return ""
    try:
        line = seen.threshold()
    except EndsDoNotReproduce as error:
        return f"the ends do not differ by {label}: {error.message}"
    if line is None:
        why = "an end has no value"
        unsound = [one for sha in (seen.old, seen.new) if not isinstance(one := seen.settlement(sha), SoundMeasurement)]
        if unsound:
            why = unsound[0].why
        elif all(seen.scores.get(sha) for sha in (seen.old, seen.new)):
            why = "their values lie close, and too few readings tell by how much those of one end differ"
        return f"by {label} the ends cannot be told apart: {why}"
    own, other = ({sha: verdict for sha, verdict in one.verdicts() if verdict in _SIDES} for one in (judging, seen))
    turned = [sha[:12] for sha, verdict in own.items() if other.get(sha, verdict) is not verdict]
    silent = sum(sha not in other for sha in own)
    told = len(own) - silent
    what = f"{len(turned)} of {units.plural(told, 'commit')} would be on the other side ({', '.join(turned)})"
    if not turned:
        what = f"{'the one commit is' if told == 1 else f'all {told} commits are'} on the side that the verdicts say"
    unknown = f"; of {silent} it says nothing" if silent else ""
    old, new = (seen.objective.text(seen.objective.value_of(score)) for score in (line.old, line.new))
    return f"by {label}, {line.direction} from {old} to {new}, {what}{unknown}"


# The answer by both clocks


def host_clock(run_dir: Path, repository: Path | None, judging: Judging, first: Commit) -> HostClock:
    """Return the change at the answer by both clocks, from the records of the run and of the comparison below it."""
    made = _measured(HostClock(first, judging.objective.label, str(run_dir / CONFIRMED)))
    parent = made.parent
    if parent is None and repository is not None:
        with suppress(BisectorError):
            opened = Repository.open(repository)
            parent = next(iter(opened.commits(opened.parents(first.sha, first_only=True))), None)
    if parent is None:
        return made
    # The readings of both kernels; if one has none of its own, all readings of its side.
    sides = []
    for commit, side in ((parent, Verdict.OLD), (first, Verdict.NEW)):
        of_side = [sha for sha, verdict in judging.verdicts() if verdict is side]
        scores = judging.scores_of((commit.sha,)) or judging.scores_of(of_side)
        sides.append([judging.objective.value_of(score) for score in scores])
    return replace(made, parent=parent, counted=factor_between(*sides))


def _measured(clock: HostClock) -> HostClock:
    """Add what the comparison has on record, if it has begun."""
    try:
        if not RunDirectory.is_at(Path(clock.run_dir)):
            return clock
        run = RunDirectory.open(Path(clock.run_dir))
        with Store.open(run.database, readonly=True) as store:
            if (plan := store.plan) is None:
                return clock
            state, message = state_of(run, store)
            known = replace(clock, parent=plan.arms[0].commit, state=state, message=message)
            ((change, *_), *_) = (row.changes for row in result_of(Blocks.of(plan, store)).rows)
    except BisectorError as error:
        return replace(clock, state=State.STOPPED, message=str(error))
    found = change.effect
    if found is None or found.scale is not Scale.RATIO:
        return known
    known = replace(known, measured=Factor.of_logs(found.mean, found.half_width), pairs=found.blocks)
    said = change.decision
    return known if said is None else replace(known, outcome=said.outcome, fragile=said.fragile)
