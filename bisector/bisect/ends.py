"""Pure functions for trials: of both ends until their difference is known, of baselines, and what all trials share.

Baselines measure the new end on each disk of the stack alone: a cache's figures lie between those of its disks.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from statistics import fmean

from bisector.analysis.early_stop import is_tried, rule_for, why_never
from bisector.analysis.judgement import Again, Numbered, SoundMeasurement, Untestable
from bisector.analysis.levels import are_far_apart
from bisector.analysis.verdicts import Judging
from bisector.bisect import failures
from bisector.bisect.state import Aim, BisectState
from bisector.campaign.instructions import Attempt, Done, Instruction, Notify, Record, Submit, Wait
from bisector.config import Settings
from bisector.core.errors import BisectorError, EndsDoNotReproduce, InfraError
from bisector.core.events import Note, Planned
from bisector.core.subject import Cell, Commit, Setup, Subject
from bisector.core.trial import Fill, Trial
from bisector.core.units import percent_text, share
from bisector.core.verdict import State, Verdict
from bisector.executor.base import Finished
from bisector.report.table import baseline_text, setup_name
from bisector.search.choice import end_to_read
from bisector.search.effect import difference, pairs_to_tell
from bisector.search.graph import SearchFacts
from bisector.search.step import figures_tell
from bisector.status import view
from bisector.status.blocks import longest_planned_trial_s
from bisector.status.evidence import costs_of
from bisector.storage.layer import FillMode
from bisector.store.facts import Ended, Ending, NumberedTrial
from bisector.trial.runner import TrialRequest

# Two readings are compared; if each build makes a different kernel, and none is kept, no two can be compared.
_MOST_WITH_ONE_SEED = 3
_TOLD = "short fill"


# What all trials share


@dataclass(frozen=True, slots=True)
class Outlook:
    """The work left: commits that may be the answer, trials to expect, and the likeliest commit's probability."""

    candidates: int = 0
    trials_left: int = 0
    probability: float | None = None


UNKNOWN = Outlook()


def measure(
    facts: BisectState,
    subject: Subject,
    purpose: str,
    outlook: Outlook = UNKNOWN,
    *,
    whole: bool = False,
    because: SearchFacts | None = None,
    fill: Fill | None = None,
    clear_of: Iterable[str] = (),
) -> Submit:
    """Return one trial on the setup of the search.

    Runs of the two ends are not stopped early by the usual rule, because the threshold is derived from them, and
    neither are runs of a ``whole`` trial. Yet a whole run may end once it is ``clear_of`` the run of one of these
    commits, and an end's run after a short fill once it is like the end's whole run. If ``fill`` is None, the fill is
    short if that is harmless and the trial is not whole.
    """
    commit, judging, recorded, settings = subject.commit, facts.judging, facts.recorded, facts.scope.settings
    is_end, n = commit in facts.scope.ends, recorded.next_n
    whole = whole or is_end
    if fill is None:
        may_be_short = not whole and rule_for(settings) is not None and facts.here.judging.short_fill.harmless
        fill = Fill.SHORT if may_be_short else Fill.WHOLE
    # A kernel that is measured again on purpose must not end with "this kernel was measured already".
    known = isinstance(judging.settlement(commit.sha), SoundMeasurement)
    others = judging.measured_kernels(whole=whole)
    again = recorded.was_tried(commit.sha)
    request = TrialRequest(
        n,
        Cell(subject, settings.setup),
        {} if known else others,
        recorded.compilers,
        again=again,
        # If a failed build is doubted, its cached result is not believed either.
        anew=any(one.doubted and one.kernel is None for _, one in judging.trials if one.commit.sha == commit.sha),
        guest_seed=_guest_seed(facts, commit),
        fill=fill,
    )
    since = judging.since(commit.sha)
    why = "" if not again else f"again: {since.why}" if isinstance(since, Again) else "once more"
    text = ", ".join(filter(None, (purpose, why)))
    return Submit(
        request,
        f"trial {commit.sha} on {facts.host}",
        tell=(Planned(n, commit, text, outlook.candidates, outlook.trials_left, outlook.probability),),
        may_stop_early=not whole,
        clear_of=() if is_end else tuple(clear_of),
        alike=is_end and fill is Fill.SHORT,
        because=because,
    )


def _guest_seed(facts: BisectState, commit: Commit) -> int:
    """A seed that no sound reading of the commit had; but the old end is read twice with the same seed."""
    judging = facts.here.judging
    if not facts.scope.settings.machine.is_counted or (commit.sha == judging.old and not judging.same_again):
        return 0
    read = {trial.guest_seed for trial, _ in judging.sound(commit.sha) if trial.is_counted}
    return next(seed for seed in count() if seed not in read)


def once(facts: BisectState, key: str, said: str) -> Notify | None:
    """Tell people ``said``; None if ``key`` was told already, or if ``said`` is empty."""
    return Notify((Note(said),), (key,)) if said and key not in facts.transient.notified else None


def in_time(facts: BisectState, instruction: Instruction) -> Instruction:
    """Return the instruction, or the end of the search if it is a trial that would exceed the budget of its run.

    A trial that the search itself has chosen is begun, since that choice considers the budget.
    """
    if not isinstance(instruction, Submit) or ends_in_time(facts, instruction):
        return instruction
    if instruction.because is not None and instruction.task not in facts.transient.tasks:
        return instruction
    return Done(State.NARROWED, why_over(facts), out_of_time=True)


def ends_in_time(facts: BisectState, submit: Submit) -> bool:
    """Whether a trial will end within the budget, by the times of trials so far; true for controls and builds."""
    request, trials = submit.request, facts.judging.trials
    if facts.recorded.budget is None or facts.scope.aim is not Aim.ANSWER or not isinstance(request, TrialRequest):
        return True
    if not facts.judging.sound():
        return longest_planned_trial_s(facts.scope.settings) <= facts.recorded.left_s
    costs = costs_of(facts.judging)
    is_built = any(trial.commit.sha == request.commit.sha and trial.kernel is not None for _, trial in trials)
    trial_min = costs.longest(0.0 if is_built else costs.build_min, whole=not submit.may_stop_early)
    return 60 * trial_min <= facts.recorded.left_s


def why_over(facts: BisectState) -> str:
    """The sentence that says that the budget of the search is used up."""
    if facts.recorded.budget is None:
        raise RuntimeError("a run without a budget has all the time")
    return view.why_over(facts.recorded.budget.budget_s)


# Both ends, until their difference is known


def measure_both(facts: BisectState) -> Submit | Wait | Notify | None:
    """Return a trial of an end that has to be read (again), or what precedes it; finally tell the threshold once.

    Raises :class:`EndsDoNotReproduce` if there is nothing to bisect, :class:`InfraError` if an end could not be
    measured, :class:`bisector.core.errors.UserError` if the metric is absent from the first end that was measured.
    """
    judging = facts.judging
    # First the end that no other host is building or measuring: the other end's kernel can be fetched from there later.
    ends = sorted(
        zip(facts.scope.ends, facts.words, strict=True),
        key=lambda end: (facts.is_being_built(end[0].sha), facts.is_in_flight(end[0].sha)),
    )
    for commit, word in ends:
        if (judgement := judging.judge(commit.sha)) is not None:
            if judgement.verdict is Verdict.SKIP:
                raise _no_end(facts, commit, word, judgement.why)
        elif not facts.is_in_flight(commit.sha, facts.host):
            judging.check_metric(commit.sha)
            return failures.before_end(facts, commit) or measure(facts, Subject(commit), f"the {word} end")
    if any(judging.judge(commit.sha) is None for commit in facts.scope.ends):
        return Wait()
    old, new = (judging.scores.get(end.sha, ()) for end in facts.scope.ends)
    # If the ends lie close, noise by the host's clock alone might differ as much.
    lie_close = not (old and new) or not are_far_apart(fmean(old), fmean(new))
    if (facts.scope.search_range is None or lie_close) and (again := exactness_trial(facts)) is not None:
        return again
    for seen in judging.same_again[:1]:
        if (tell := once(facts, f"exact on {facts.home}", seen.sentence)) is not None:
            return tell
    line = judging.threshold()
    if line is None:
        return _read_again(facts)
    told = line.sentence(judging.objective)
    return once(facts, f"threshold on {facts.home}", f"{facts.host}: {told}" if facts.is_shared else told)


def _no_end(facts: BisectState, commit: Commit, word: str, why: str) -> BisectorError:
    """The error for an end without a verdict; if the host is the reason, the next process measures the end again."""
    if commit.sha in (*facts.judging.given_up, *facts.recorded.worked):
        return InfraError(f"the {word} end {commit.short} could not be measured: {why}", "bisector doctor")
    return EndsDoNotReproduce(
        f"the {word} end {commit.short} cannot be judged: {why}",
        "choose an end that builds, boots and survives the workload",
    )


def check_measurable(facts: BisectState, end: Commit, name: str) -> None:
    """Raise :class:`InfraError` if no further reading of an end can be had."""
    if isinstance(since := facts.judging.since(end.sha), Untestable):
        raise InfraError(f"{name} could not be measured again: {since.why}", "bisector doctor")


def exactness_trial(facts: BisectState) -> Submit | None:
    """Return a trial of the old end with the same seed as before, which shows whether counted guest time is exact.

    If the ends lie close, it is measured first, otherwise before an answer is given; until then counted time is taken
    to be exact. Other guests do not wait for it: if it is not exact, their figures of the meantime count as noisy.
    None if time is not counted, if the trial was made or is under way, or if it was tried in vain too often.
    """
    judging, (old, _) = facts.judging, facts.scope.ends
    if not facts.scope.settings.machine.is_counted or judging.same_again or judging.judge(old.sha) is None:
        return None
    with_one_seed = sum(not trial.guest_seed for trial, _ in judging.sound(old.sha))
    if facts.is_in_flight(old.sha, facts.host) or with_one_seed >= _MOST_WITH_ONE_SEED:
        return None
    check_measurable(facts, old, f"the old end {old.short}")
    return measure(facts, Subject(old), "the same once more: is counted time exact here?")


def _read_again(facts: BisectState) -> Submit | Wait:
    """A trial of the end that was read less often, as the readings so far do not tell the ends apart.

    The end that comes first in a pair is drawn at random, so that no effect of the order is taken for a difference; the
    draw is a hash of the commits, so that the next process draws alike. While a reading of each end is under way that
    may decide, another guest measures the commit that the search would choose first.
    """
    judging, least_effect = facts.judging, facts.scope.settings.bisect.least_effect
    read = {end.sha: len(judging.scores.get(end.sha, ())) for end in facts.scope.ends}
    begun = {sha: count + facts.is_in_flight(sha, facts.host) for sha, count in read.items()}
    pair = min(begun.values()) + 1
    drawn = hashlib.sha256(f"{judging.old} {judging.new} {pair}".encode()).digest()[0] % 2
    ends = tuple(zip(facts.scope.ends, facts.words, strict=True))[:: -1 if drawn else 1]
    commit, word = min(ends, key=lambda end: begun[end[0].sha])
    if begun[commit.sha] > max(min(read.values()), 1):
        chosen = None if facts.scope.search_range is None else next(iter(facts.search_state.choices(1)), None)
        if chosen is None or judging.judge(chosen) is not None or facts.is_in_flight(chosen):
            return Wait()
        return measure(facts, Subject(facts.commit(chosen)), "while the ends are read again", whole=True)
    check_measurable(facts, commit, f"the {word} end {commit.short}")
    seen = difference([(is_new, judging.score(trial)) for is_new, trial in judging.ends_in_turn])
    needed = None if seen is None else pairs_to_tell(seen.spread, least_effect)
    expected = "" if needed is None else f"; {needed} pairs tell a change of {percent_text(least_effect)}"
    purpose = f"the {word} end, {read[commit.sha] + 1}, since the ends lie close{expected}"
    return measure(facts, Subject(commit), purpose)


def repeat(facts: BisectState) -> Submit | None:
    """Return a trial of the ends in turn, until each has the sound readings asked for, or cannot have another.

    After that, return a trial of an end whose level must be known better before the search, if there is time for it;
    never with the strategy "git", which believes each verdict.
    """
    asked = facts.scope.settings.bisect.calibrate
    ends = [
        (side, commit, word)
        for side, commit, word in zip((Verdict.OLD, Verdict.NEW), facts.scope.ends, facts.words, strict=True)
        if not isinstance(facts.judging.since(commit.sha), Untestable)
    ]
    for number in range(2, asked + 1):
        for _, commit, word in ends:
            if len(facts.judging.sound(commit.sha)) < number:
                return measure(facts, Subject(commit), f"the {word} end, {number} of {asked}")
    if facts.scope.search_range is None:
        return None
    search_state = facts.search_state
    side = end_to_read(search_state.case.problem.graph, search_state.case.facts, search_state.belief)
    for commit, word in ((commit, word) for one, commit, word in ends if one is side):
        purpose = f"the {word} end once more, as {share(search_state.belief.overlap)} of the figures may mislead"
        trial = measure(facts, Subject(commit), purpose)
        return trial if ends_in_time(facts, trial) else None
    return None


# Both ends are measured with a short fill, too, before any other commit is


def both_ways(facts: BisectState) -> Submit | Notify | None:
    """Return a trial of an end with a short fill, as long as one is needed; then tell the result once."""
    settings = facts.scope.settings
    told, where = (f"{_TOLD} on {facts.host}", f"{facts.host}: ") if facts.is_shared else (_TOLD, "")
    if why := why_never(settings):
        is_asked_for = settings.storage.fill is FillMode.SHORT
        return once(facts, _TOLD, f"caches are filled by whole runs: {why}") if is_asked_for else None
    known, begun = facts.judging.short_fill, any(trial.fill is Fill.SHORT for _, trial in facts.judging.trials)
    if known.missing and (begun or _is_tried(facts)):
        number = [end.sha for end in facts.scope.ends].index(known.missing)
        purpose = f"the {facts.words[number]} end, its cache filled until it is settled"
        trial = measure(facts, Subject(facts.scope.ends[number]), purpose, fill=Fill.SHORT)
        if ends_in_time(facts, trial):
            return trial
    changes_neither = "caches are filled until they are settled, which changes neither end"
    said = changes_neither if known.harmless else f"caches are filled by whole runs: {known.why}"
    return once(facts, told, where + said) if begun else None


def _is_tried(facts: BisectState) -> bool:
    """Whether short fills are worth trying, by the times of whole trials; false while no run may be stopped early."""
    commits: float | None = None
    if facts.scope.search_range is not None:
        belief = facts.search_state.belief
        if figures_tell(facts.search_state.case.search.rules, belief):
            return False
        commits = 2**belief.unknown_bits
    elif facts.recorded.relevance is not None:
        commits = facts.recorded.relevance.can_matter
    seconds = [
        trial.timings.boot_s + trial.timings.storage_s + trial.timings.workload_s
        for trial, _ in facts.judging.sound()
        if trial.bears_answer
    ]
    return is_tried(facts.scope.settings, commits, fmean(seconds), facts.recorded.left_s)


# Baselines: the new end on each disk of the stack alone, measured once. They are facts of this host and its disks.
# Nothing is concluded from them, so a failure is told and stops nothing, unless only baselines are asked for.


def missing_baselines(settings: Settings, baselines: Iterable[Numbered]) -> tuple[str, ...]:
    """The disks of the stack without a baseline, in the order of measuring."""
    known = {trial.setup for _, trial in baselines}
    return tuple(disk for disk in settings.storage.stack.baselines if settings.alone(disk) not in known)


def measure_baselines(facts: BisectState) -> Submit | Notify | None:
    """Return a trial for a missing baseline, again while its evidence is weak; None if no baseline is left to measure.

    Raises :class:`InfraError` if a disk cannot be measured and only baselines are asked for.
    """
    for disk in missing_baselines(facts.scope.settings, facts.recorded.baselines):
        setup = facts.scope.settings.alone(disk)
        task = f"baseline {setup}"
        if task in facts.transient.notified:
            continue
        attempts = facts.transient.tasks.get(task, ())
        match _baseline_settlement(facts, attempts):
            case Again(why=why):
                # A baseline that is not sound is not recorded, so its number is free for the next attempt.
                commit, n = facts.scope.wanted.new, facts.recorded.next_n
                again = f", again: {why}" if attempts else ""
                planned = Planned(n, commit, f"the {setup_name(setup)}{again}", 0, 0)
                cell, compilers = Cell(Subject(commit), setup), facts.recorded.compilers
                request = TrialRequest(n, cell, {}, compilers, again=bool(attempts))
                return baseline_in_time(facts, setup, Submit(request, task, tell=(planned,)))
            case Untestable(why=why):
                message = f"the {setup_name(setup)} could not be measured: {why}"
                return baseline_given_up(facts, setup, InfraError(message, "bisector baselines tries it again"))
            case SoundMeasurement():
                raise RuntimeError(f"the baseline {setup} is measured and not on record")
    return None


def baseline_recorded(facts: BisectState, attempts: tuple[Attempt, ...], request: TrialRequest, trial: Trial) -> Record:
    """Return the record of an attempt at a baseline; its trial is recorded only if it is sound."""
    last = attempts[-1]
    ended = Ended(last.id, Ending.DONE)
    if not isinstance(_baseline_settlement(facts, attempts), SoundMeasurement):
        return Record((ended,), last)
    note = Note(f"{setup_name(trial.setup)}: {baseline_text([trial], facts.judging.objective)}")
    return Record((NumberedTrial(request.n, trial), ended), last, over=True, tell=(note,))


def baseline_given_up(facts: BisectState, setup: Setup, error: BisectorError) -> Notify:
    """Tell that a baseline is given up; raises ``error`` instead if only baselines are asked for."""
    if facts.scope.aim is Aim.BASELINES:
        raise error
    return Notify((Note(f"no baseline: {error}"),), (f"baseline {setup}",))


def baseline_in_time(facts: BisectState, setup: Setup, submit: Submit) -> Submit | Notify:
    """Return an attempt at a baseline, or, if it would end after the budget, a note that says so."""
    if ends_in_time(facts, submit):
        return submit
    note = Note(f"the {setup_name(setup)} would end after the budget: bisector baselines measures it")
    return Notify((note,), (f"baseline {setup}",))


def _baseline_settlement(facts: BisectState, attempts: Iterable[Attempt]) -> SoundMeasurement | Untestable | Again:
    news = (one.news for one in attempts)
    trials = [one.result for one in news if isinstance(one, Finished) and isinstance(one.result, Trial)]
    return Judging(facts.scope.settings, tuple(enumerate(trials, 1))).settlement(facts.scope.wanted.new.sha)
