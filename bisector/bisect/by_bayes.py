"""What to measure next, and when that is the answer, by Bayes; pure.

All readings are weighed: what tells most for its time is next, until the answer is sure enough, and git's bisection is
a mirror of what is believed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from bisector.analysis.judgement import Again, Untestable
from bisector.analysis.verdicts import Judging
from bisector.bisect.by_git import merge_base_is_new
from bisector.bisect.ends import the_same_again
from bisector.bisect.questions import ChangedEnd, LeftInRange, ShowGit
from bisector.bisect.state import BisectState
from bisector.bisect.trials import Outlook, ends_in_time, measure, why_over
from bisector.campaign.instructions import Ask, Cancel, Done, Instruction, Record, Submit, Wait
from bisector.core.errors import InfraError
from bisector.core.events import Note
from bisector.core.objective import Objective
from bisector.core.subject import Commit, Kind, NotChanged, Subject
from bisector.core.units import plural, share
from bisector.core.verdict import State, Verdict
from bisector.git.bisect import MergeBaseIsNew
from bisector.git.trees import CannotBeHad
from bisector.search.alternatives import NOTHING_CHANGED
from bisector.search.effect import SuspectEffect
from bisector.search.likelihood import Key
from bisector.search.step import (
    ChangedEndToRead,
    CommitToRead,
    Hold,
    SearchAnswer,
    SearchEnding,
    figures_tell,
    pointless,
)
from bisector.status.conclusion import Standing, outside_paths
from bisector.trial.runner import TrialRequest

_LITTLE = 0.01  # of a probability: a commit may be named
_SAME_SOURCES = "a parent with the same sources"


def by_bayes(facts: BisectState) -> Instruction:
    """Merge bases, then what was begun, then what the posterior says.

    Raises :class:`bisector.core.errors.EndsDoNotReproduce` when a merge base shows that there is nothing to bisect.
    """
    base = _base_to_measure(facts)
    standing = facts.standing
    return (
        (None if _holds(facts, standing.final) else _show(facts, standing.shown))
        or (_of_base(facts, standing, base) if base is not None else None)
        or _begun(facts, standing)
        or _broken_off(facts, standing)
        or _exact(facts, standing)
        or _decided(facts, standing)
    )


def _show(facts: BisectState, sides: Mapping[str, Verdict]) -> Ask | None:
    """Show git the sides of kernels, unless it holds just those.

    A belief puts sides on kernels without contradiction: what is new stays so in whatever has it.
    """
    return None if _holds(facts, sides) else Ask(_as_shown(facts, sides))


def _holds(facts: BisectState, sides: Mapping[str, Verdict]) -> bool:
    return facts.git is not None and facts.git.shown == _as_shown(facts, sides)


def _as_shown(facts: BisectState, sides: Mapping[str, Verdict]) -> ShowGit:
    judging = facts.judging
    bases = {sha: judgement.verdict for sha in facts.scope.bases if (judgement := judging.judge(sha)) is not None}
    told = {**bases, **sides}
    # An untestable commit may be known from what was measured around it; git takes no verdict on a skip.
    skips = tuple(sha for sha in facts.scope.skips if told.get(sha, Verdict.SKIP) is Verdict.SKIP)
    return ShowGit(judging.terms, skips, tuple(told.items()))


def _base_to_measure(facts: BisectState) -> Commit | None:
    """The first merge base that was not judged yet; raises when one is new already."""
    old, new = facts.scope.ends
    for sha in facts.scope.bases:
        judgement = facts.judging.judge(sha)
        if judgement is None and sha not in facts.scope.skips:
            return facts.commit(sha)
        if judgement is not None and judgement.verdict is Verdict.NEW:
            raise merge_base_is_new(MergeBaseIsNew(facts.commit(sha), old, new), facts.judging.terms)
    return None


def _of_base(facts: BisectState, standing: Standing, base: Commit) -> Submit | Wait:
    if facts.is_in_flight(base.sha):
        return Wait()
    overlaps = figures_tell(standing.case.search.rules, standing.belief)
    return measure(facts, Subject(base), "merge base", _outlook(standing), whole=overlaps)


def _begun(facts: BisectState, standing: Standing) -> Instruction | None:
    """The last trial once more, when it settled nothing.

    Such a trial is no fact for the search, which decides as it did before: the run is whole, or not, as it was to be.
    """
    _, last = facts.judging.trials[-1]
    if last.commit.sha in facts.scope.skips or facts.is_in_flight(last.commit.sha):
        return None
    if not isinstance(facts.judging.since(last.commit.sha), Again):
        return None
    overlaps = figures_tell(standing.case.search.rules, standing.belief)
    if last.subject.changed_by is not None:
        commit = facts.commit(last.subject.changed_by)
        return _changed(facts, standing, last.subject.kind, commit, clear_of_end=not overlaps)
    decided = standing.decision
    if isinstance(decided, CommitToRead) and standing.case.commit_for(decided.commit) == last.commit.sha:
        others = _beside(standing, decided)
        return measure(facts, Subject(last.commit), "", _outlook(standing), whole=decided.whole, clear_of=others)
    return measure(facts, Subject(last.commit), "", _outlook(standing), whole=overlaps)


def _broken_off(facts: BisectState, standing: Standing) -> Cancel | None:
    """What is under way on another host and least worth the minutes that it still takes, by what was just read.

    Only then: what is broken off may be chosen again, for the time that is expected of it.
    """
    case, last = standing.case, facts.chose_by
    if last is None or case.facts.readings == last.readings:
        return None
    left_min, ids = dict[Key, float](), dict[Key, int]()
    for id_, one in facts.in_flight.items():
        if id_ in facts.transient.cancelled:
            continue
        if id_ in facts.builds_in_flight and one.request.commit not in facts.scope.ends:
            # What would be broken off is its trial: nothing else waits for the build.
            if (key := case.number(Subject(one.request.commit))) is not None:
                left_min[key], ids[key] = _early_min(standing), id_
        elif (
            one.because is not None
            and isinstance(one.request, TrialRequest)
            and (key := case.number(one.request.cell.subject)) is not None
        ):
            left_min[key], ids[key] = max(0.0, one.expected_min - facts.transient.since_min.get(id_, 0.0)), id_
    if not left_min:
        return None
    waits = _proof_waits(facts, standing)
    found = pointless(case.problem, case.facts, case.search, standing.belief, left_min, others_wait=waits)
    return None if found is None else Cancel(ids[found])


def _proof_waits(facts: BisectState, standing: Standing) -> bool:
    """Whether one guest is not enough for what the suspect lacks and what shows that counted time is exact."""
    lacks = isinstance(standing.decision, ChangedEndToRead) or (
        isinstance(standing.decision, CommitToRead) and standing.decision.confirms
    )
    about_to_end = any(id_ in facts.transient.cancelled for id_ in facts.in_flight)
    return lacks and not about_to_end and the_same_again(facts) is not None


def _exact(facts: BisectState, standing: Standing) -> Instruction | None:
    """What shows that counted time is exact, if nothing did yet and an answer is near; there is none before."""
    decision, (old, _) = standing.decision, facts.scope.ends
    answer = decision if isinstance(decision, SearchAnswer) and not decision.out_of_time else None
    is_near = isinstance(decision, Hold) or standing.probability >= standing.case.search.rules.suspect
    if answer is None and (isinstance(decision, SearchAnswer) or not is_near):
        return None
    if (trial := the_same_again(facts)) is None:
        is_begun = facts.scope.settings.machine.is_counted and not facts.judging.same_again
        return Wait() if answer is not None and is_begun and facts.is_in_flight(old.sha, facts.host) else None
    if ends_in_time(facts, trial):
        return trial
    return None if answer is None else _concluded(facts, standing, replace(answer, out_of_time=True))


def _expected_min(standing: Standing, commit: int | None, *, whole: bool) -> float:
    """How long a trial of a commit takes, or of an end without one, or with it."""
    costs = standing.case.search.costs
    build_min = costs.build_min if commit is None else costs.build_of(commit)
    return build_min + (costs.setup_min + costs.whole_run_min if whole else _early_min(standing))


def _early_min(standing: Standing) -> float:
    """How long a trial takes whose kernel is there and whose run may be stopped early."""
    costs = standing.case.search.costs
    return costs.setup_min + (costs.old_run_min + costs.new_run_min) / 2


def _decided(facts: BisectState, standing: Standing) -> Instruction:
    known = standing.case.facts
    if known == facts.chose_by and not facts.in_flight:
        raise RuntimeError("the last trial changed nothing, and the search asks for it again")
    ground = standing.case.ground
    match standing.decision:
        case CommitToRead(commit=number, whole=whole) as one:
            purpose = "an answer rests on it" if one.confirms else ""
            commit = facts.commit(standing.case.commit_for(number))
            if commit in facts.scope.ends and (waits := _end_in_turn(facts, commit)) is not None:
                return waits
            others = _beside(standing, one)
            trial = measure(
                facts, Subject(commit), purpose, _outlook(standing), whole=whole, because=known, clear_of=others
            )
            return replace(trial, expected_min=_expected_min(standing, number, whole=whole))
        case ChangedEndToRead(commit=number, kernel=kind) as one:
            commit = facts.commit(ground.shas[number])
            step = _changed(facts, standing, kind, commit, whole=one.whole, clear_of_end=one.beside_end)
            expected_min = _expected_min(standing, None, whole=one.whole)
            return step if isinstance(step, Record) else replace(step, because=known, expected_min=expected_min)
        case Hold():
            return _held(facts)
        case SearchAnswer() as answer:
            return _concluded(facts, standing, answer)


def _end_in_turn(facts: BisectState, end: Commit) -> Wait | None:
    """Wait for a reading of an end that is under way; raises :class:`InfraError` where none can be had any more."""
    if facts.is_in_flight(end.sha):
        return Wait()
    if isinstance(since := facts.judging.since(end.sha), Untestable):
        raise InfraError(f"{end.short} could not be measured again: {since.why}", "bisector doctor")
    return None


def _held(facts: BisectState) -> Instruction:
    """Wait for what is in flight; an answer that lacks nothing does not wait for kernels that are being built."""
    measured = facts.without_builds
    if measured.in_flight or not facts.in_flight:
        return Wait()
    standing = measured.standing
    return _concluded(measured, standing, standing.decision) if isinstance(standing.decision, SearchAnswer) else Wait()


def _changed(
    facts: BisectState, standing: Standing, kind: Kind, commit: Commit, *, whole: bool = True, clear_of_end: bool
) -> Submit | Record:
    """One trial of an end without a commit, or with it; where that cannot be had, this is the fact."""
    end = facts.scope.wanted.new if kind is Kind.REVERTED else facts.scope.wanted.old
    made = facts.answer(ChangedEnd(kind, commit, end))
    if isinstance(made, CannotBeHad):
        note = Note(f"there is no {_changed_name(kind, commit, end)}: {made.reason}")
        return Record((NotChanged(kind, commit.sha, end.sha, made.reason),), tell=(note,))
    subject = Subject(made.commit, kind, commit.sha)
    name = _changed_name(kind, commit, end)
    others = (end.sha,) if clear_of_end else ()
    return measure(facts, subject, name, _outlook(standing), whole=whole, clear_of=others)


def _beside(standing: Standing, one: CommitToRead) -> tuple[str, ...]:
    """The commits that a whole run may be held against; the old end stands for what is before the range."""
    case = standing.case
    before = () if case.ground.graph.parents[one.commit] else (case.judging.old,)
    return (*before, *map(case.commit_for, one.beside)) if one.beside else ()


def _changed_name(kind: Kind, commit: Commit, end: Commit) -> str:
    """What a person calls an end without a commit, or with it."""
    return f"{end.short} {'without' if kind is Kind.REVERTED else 'with'} {commit.short}"


def _concluded(facts: BisectState, standing: Standing, answer: SearchAnswer) -> Instruction:
    ground = standing.case.ground
    commit = facts.commit(ground.shas[answer.commit])
    paths = facts.scope.wanted.paths
    if answer.out_of_time:
        return _out_of_time(facts, standing, answer, commit)
    if ground.is_outside(answer.commit) and answer.ending not in (SearchEnding.NOT_ONE_CHANGE, SearchEnding.NO_CHANGE):
        return Done(State.NARROWED, outside_paths(paths), _left_by_git(facts))
    if answer.ending is not SearchEnding.FOUND:
        return _narrowed(facts, standing, answer, commit)
    twin = _unmeasured_twin(facts, commit)
    if twin is not None:
        if twin.sha not in ground.numbers:
            message = f"{outside_paths(paths)}: {commit.short} changes nothing"
            return Done(State.NARROWED, message, (commit,))
        is_under_way = facts.is_in_flight(twin.sha)
        return Wait() if is_under_way else measure(facts, Subject(twin), _SAME_SOURCES, _outlook(standing))
    new = facts.judging.terms.new
    sure = f"{commit.short} is the first {new} commit: {commit.subject} ({share(answer.probability)})"
    return _show(facts, standing.final) or Done(State.FOUND, sure, (commit,))


def _out_of_time(facts: BisectState, standing: Standing, answer: SearchAnswer, likeliest: Commit) -> Done:
    candidates = facts.commits(sha for sha, _ in standing.candidates)
    one_change = answer.ending is not SearchEnding.NOT_ONE_CHANGE
    known = _likeliest(likeliest, answer) if one_change else _not_one_change(answer)
    return Done(State.NARROWED, f"{known}; {why_over(facts)}", candidates, out_of_time=True)


def _narrowed(facts: BisectState, standing: Standing, answer: SearchAnswer, likeliest: Commit) -> Done:
    candidates = facts.commits(sha for sha, _ in standing.candidates)
    skips = {standing.case.ground.shas[number] for number in standing.case.facts.untestable}
    skipped = tuple(one for one in candidates if one.sha in skips)
    if answer.ending is SearchEnding.NO_CHANGE:
        return Done(State.NARROWED, _no_change(facts.judging, answer))
    if answer.ending is SearchEnding.NOT_ONE_CHANGE:
        return Done(State.NARROWED, _not_one_change(answer), candidates, skipped)
    return Done(State.NARROWED, _one_of(likeliest, answer, skipped, facts.judging.objective), candidates, skipped)


def _no_change(judging: Judging, answer: SearchAnswer) -> str:
    """What is said where nothing in the range made the ends differ."""
    if (all_of := answer.of_all) is None:
        raise RuntimeError("no change is concluded from readings of both ends")
    objective, counts = judging.objective, " and ".join(map(str, all_of.counts))
    first, since = objective.factor(all_of.of_ends, 0.0).times, objective.factor(all_of.mean, all_of.half_width)
    return (
        f"{NOTHING_CHANGED} {judging.objective.label}: the new end's was {first:.2f} times the old end's"
        f" when the search began, and {since.text} by {counts} readings in turn since then"
        f" (probability {share(answer.nothing)})"
    )


def _left_by_git(facts: BisectState) -> tuple[Commit, ...]:
    if facts.git is None:
        raise RuntimeError("git is asked what is left before it was shown anything")
    left = facts.answer(LeftInRange(facts.git.shown))
    return facts.commits(left)


def _unmeasured_twin(facts: BisectState, commit: Commit) -> Commit | None:
    """A parent that has the kernel of the answer, which nobody has looked at yet."""
    twin = facts.parent_with_same_kernel(commit)
    return twin if twin is not None and not facts.recorded.was_tried(twin.sha) else None


def _outlook(standing: Standing) -> Outlook:
    return Outlook(len(standing.candidates), standing.trials_left, standing.probability)


def _one_of(likeliest: Commit, answer: SearchAnswer, skipped: Iterable[Commit], objective: Objective) -> str:
    names = ", ".join(commit.short for commit in skipped)
    why = f"; {names} cannot be tested and stand in the way" if names else ""
    unconfirmed = "" if answer.confirmed else "; no end without it, or with it, could be had to confirm it"
    nothing = f"; that nothing in the range changed has {share(answer.nothing)}" if answer.nothing > _LITTLE else ""
    return f"{_likeliest(likeliest, answer)}{nothing}{why or unconfirmed or _unshown(answer.effect, objective)}"


def _unshown(effect: SuspectEffect | None, objective: Objective) -> str:
    """Why a commit is not named whose own readings do not show it."""
    if effect is None or effect.is_shown or not all(effect.counts):
        return ""
    seen, counts = objective.factor(effect.mean, effect.half_width), " and ".join(map(str, effect.counts))
    needed = objective.factor(effect.of_ends / 2, 0.0).times
    return (
        f"; {counts} readings without it and with it differ by {seen.text}, where"
        f" {needed:.2f} times would be half of what the ends differ by"
    )


def _likeliest(commit: Commit, answer: SearchAnswer) -> str:
    what = plural(len(answer.candidates), "commit")
    return f"one of {what}, most likely {commit.short} ({share(answer.probability)})"


def _not_one_change(answer: SearchAnswer) -> str:
    return (
        f"not one change: {answer.fit.contradictions} readings contradict any single one,"
        f" where the noise alone would make about {answer.fit.expected:.1f}; each reading is in the table"
    )
