"""The strategies "git" and "bayes": pure functions that choose the next trial, or the answer.

The strategy "git" believes each verdict, and measures the commit that git bisect proposes. The strategy "bayes" goes by
the posterior of all readings: the trial that tells most for its time is next, until the answer is sure enough; git's
bisection mirrors the posterior.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bisector.analysis.judgement import Again
from bisector.bisect.ends import Outlook, check_measurable, ends_in_time, exactness_trial, measure, why_over
from bisector.bisect.state import BisectState, ChangedEnd, LeftInRange, ParentsOf, ShowGit
from bisector.campaign.instructions import Ask, Cancel, Done, Instruction, Record, Submit, Wait
from bisector.core.errors import EndsDoNotReproduce, InfraError
from bisector.core.events import Note
from bisector.core.subject import Commit, Kind, NotChanged, Subject
from bisector.core.units import share
from bisector.core.verdict import SideWords, State, Verdict
from bisector.git.bisect import (
    CommitToTry,
    Contradiction,
    FirstNewCommit,
    MergeBaseIsNew,
    OnlySkippedLeft,
    OutsidePaths,
)
from bisector.git.trees import CannotBeHad
from bisector.search.effect import NOTHING_CHANGED
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
from bisector.status.conclusion import SearchState, outside_paths
from bisector.trial.runner import TrialRequest

_LITTLE = 0.01  # the probability of "nothing changed" up to which a message about a commit leaves it out


# The strategy "git"


def by_git(facts: BisectState) -> Instruction:
    """Show git all verdicts, then measure the commit that it proposes, or give its answer.

    Raises :class:`bisector.core.errors.EndsDoNotReproduce` if a merge base shows that there is nothing to bisect,
    :class:`InfraError` if the verdicts contradict each other.
    """
    if facts.subjects_in_flight:
        return Wait()
    ends = {end.sha for end in facts.scope.ends}
    verdicts = tuple((sha, verdict) for sha, verdict in facts.judging.verdicts() if sha not in ends)
    tell = _turned(facts, dict(verdicts))
    show = ShowGit(facts.judging.terms, facts.scope.skips, verdicts, proposes=True, tell=tell)
    if facts.git is None or facts.git.shown != show:
        return Ask(show)
    match facts.git.says:
        case CommitToTry(commit=commit, candidates_left=left, steps_left=steps) as tried:
            return measure(facts, Subject(commit), "merge base" if tried.is_merge_base else "", Outlook(left, steps))
        case FirstNewCommit(commit=commit):
            return _whole_run(facts, commit) or _found(facts, commit)
        case OnlySkippedLeft(candidates=left, skipped=skipped):
            parents = facts.answer(ParentsOf(tuple(commit.sha for commit in left)))
            candidates = facts.judging.possible(left, parents.__getitem__)
            names = ", ".join(commit.short for commit in skipped)
            said = f"one of {len(candidates)} commits; {names} cannot be tested and stand in the way"
            return Done(State.NARROWED, said, candidates, skipped)
        case OutsidePaths(candidates=candidates):
            return Done(State.NARROWED, outside_paths(facts.scope.wanted.paths), candidates)
        case MergeBaseIsNew() as base:
            raise merge_base_is_new(base, facts.judging.terms)
        case Contradiction() as error:
            found = InfraError(
                f"the verdicts contradict each other: {error}; there is more than one change, or one verdict is wrong",
                "bisector table shows the figures; measure one of the two again: bisector test COMMIT,"
                " or begin with --strategy bayes, which weighs both",
            )
            found.skippable = error.sha
            raise found
        case None:
            raise RuntimeError("git was shown the verdicts and not asked")


def _turned(facts: BisectState, now: dict[str, Verdict]) -> tuple[Note, ...]:
    """Tell people that a verdict which git was told has changed; the search goes on from the new verdicts.

    Either a whole run contradicts a run that was stopped early, or a reading moved the threshold.
    """
    terms = facts.judging.terms
    for sha, before in facts.git.shown.verdicts if facts.git is not None else ():
        if (after := now.get(sha, before)) is not before:
            turned = f"{sha[:12]} is {terms.word(after)}, not {terms.word(before)}"
            *earlier, (_, last) = facts.judging.trials
            had_early = any(trial.commit.sha == sha and trial.runs and not trial.bears_answer for _, trial in earlier)
            if had_early and last.commit.sha == sha and last.bears_answer:
                early = "as one that was stopped early had said; the search goes on"
                return (Note(f"a whole run says that {turned}, {early}"),)
            return (Note(f"by all readings {turned}"),)
    return ()


def _whole_run(facts: BisectState, culprit: Commit) -> Submit | None:
    """A whole run of the culprit, or of one of its parents, if its only runs were stopped early."""
    parents = facts.answer(ParentsOf((culprit.sha,)))
    rests_on = (culprit.sha, *parents[culprit.sha])
    commit = next(filter(None, map(facts.judging.to_measure_whole, rests_on)), None)
    if commit is None:
        return None
    others = () if commit.sha == culprit.sha else (culprit.sha,)
    purpose = "a whole run before the answer is given"
    return measure(facts, Subject(commit), purpose, Outlook(1, 1), whole=True, clear_of=others)


def _found(facts: BisectState, commit: Commit) -> Done:
    """The answer; raises :class:`InfraError` if the commit has its parent's kernel, and so cannot have changed it."""
    term = facts.judging.terms.new
    twin = facts.parent_with_same_kernel(commit)
    if twin is not None:
        raise InfraError(
            f"{commit.short} is {term} and has the kernel of its parent {twin.short}, which counts as not {term}",
            "there is more than one change, or a verdict is wrong, or the change was made outside the paths given;"
            f" measure the parent: bisector test {twin.short}",
        )
    return Done(State.FOUND, f"{commit.short} is the first {term} commit: {commit.subject}", (commit,))


def merge_base_is_new(step: MergeBaseIsNew, terms: SideWords) -> EndsDoNotReproduce:
    """The error for a merge base that is new already, with advice how to go on."""
    return EndsDoNotReproduce(
        f"the merge base {step.merge_base.short} of both ends is {terms.new} already: "
        f"the change was made before it and undone on the way to {step.old.short}",
        f"what undid it: bisector start {step.merge_base.short} {step.old.short}",
    )


# The strategy "bayes"


def by_bayes(facts: BisectState) -> Instruction:
    """Return the next instruction: merge bases first, then a trial to be repeated, then the posterior's choice.

    Raises :class:`bisector.core.errors.EndsDoNotReproduce` if a merge base shows that there is nothing to bisect.
    """
    base = _base_to_measure(facts)
    search_state = facts.search_state
    shown, show = facts.git and facts.git.shown, _as_shown(facts, search_state.shown)
    if shown is None or shown not in (show, _as_shown(facts, search_state.final)):
        return Ask(show)
    if base is not None:
        if facts.is_in_flight(base.sha):
            return Wait()
        return measure(facts, Subject(base), "merge base", _outlook(search_state), whole=_overlaps(search_state))
    return (
        _begun(facts, search_state)
        or _broken_off(facts, search_state)
        or _exact(facts, search_state)
        or _decided(facts, search_state)
    )


def _overlaps(search_state: SearchState) -> bool:
    return figures_tell(search_state.case.search.rules, search_state.belief)


def _as_shown(facts: BisectState, sides: Mapping[str, Verdict]) -> ShowGit:
    # Sides from a posterior never contradict each other: each descendant of a new commit is new, too.
    judging = facts.judging
    bases = {sha: judgement.verdict for sha in facts.scope.bases if (judgement := judging.judge(sha)) is not None}
    told = {**bases, **sides}
    # A skipped commit may have a side by the readings around it; git takes no verdict on a commit that it skips.
    skips = tuple(sha for sha in facts.scope.skips if told.get(sha, Verdict.SKIP) is Verdict.SKIP)
    return ShowGit(judging.terms, skips, tuple(told.items()))


def _base_to_measure(facts: BisectState) -> Commit | None:
    """The first merge base without a verdict; raises :class:`EndsDoNotReproduce` if one is new already."""
    old, new = facts.scope.ends
    for sha in facts.scope.bases:
        judgement = facts.judging.judge(sha)
        if judgement is None and sha not in facts.scope.skips:
            return facts.commit(sha)
        if judgement is not None and judgement.verdict is Verdict.NEW:
            raise merge_base_is_new(MergeBaseIsNew(facts.commit(sha), old, new), facts.judging.terms)
    return None


def _begun(facts: BisectState, search_state: SearchState) -> Instruction | None:
    """The last trial once more, if it settled nothing.

    Such a trial is no reading, so the search decides as it did before, and the run is whole or not as before. If other
    readings have given the answer meanwhile, it is not repeated: the answer would cancel it, again and again.
    """
    _, last = facts.judging.trials[-1]
    if last.commit.sha in facts.scope.skips or facts.is_in_flight(last.commit.sha):
        return None
    if isinstance(search_state.decision, SearchAnswer) or not isinstance(facts.judging.since(last.commit.sha), Again):
        return None
    overlaps, decided, clear_of = _overlaps(search_state), search_state.decision, tuple[str, ...]()
    if last.subject.changed_by is not None:
        commit = facts.commit(last.subject.changed_by)
        return _changed(facts, search_state, last.subject.kind, commit, clear_of_end=not overlaps)
    if isinstance(decided, CommitToRead) and search_state.case.commit_for(decided.commit) == last.commit.sha:
        overlaps, clear_of = decided.whole, _beside(search_state, decided)
    return measure(facts, Subject(last.commit), "", _outlook(search_state), whole=overlaps, clear_of=clear_of)


def _broken_off(facts: BisectState, search_state: SearchState) -> Cancel | None:
    """Cancel the trial or build in flight that is least worth the minutes that it still takes, after a new reading.

    Without a new reading, the search could choose it again at once, for the time that a new trial is expected to take.
    """
    case, last = search_state.case, facts.chose_by
    if last is None or case.facts.readings == last.readings:
        return None
    left_min, ids = dict[Key, float](), dict[Key, int]()
    for id_, one in facts.in_flight.items():
        if id_ in facts.transient.cancelled:
            continue
        if id_ in facts.builds_in_flight and one.request.commit not in facts.scope.ends:
            # The gain of a build is that of its trial: nothing else waits for the build.
            subject, lasts_min = Subject(one.request.commit), _early_min(search_state)
        elif one.because is not None and isinstance(one.request, TrialRequest):
            subject = one.request.cell.subject
            lasts_min = max(0.0, one.expected_min - facts.transient.since_min.get(id_, 0.0))
        else:
            continue
        if (key := case.number(subject)) is not None:
            left_min[key], ids[key] = lasts_min, id_
    if not left_min:
        return None
    # Two trials need a guest if the suspect lacks a confirmation and exactness of counted time is not shown yet.
    decision = search_state.decision
    lacks = isinstance(decision, ChangedEndToRead) or (isinstance(decision, CommitToRead) and decision.confirms)
    about_to_end = any(id_ in facts.transient.cancelled for id_ in facts.in_flight)
    waits = lacks and not about_to_end and exactness_trial(facts) is not None
    found = pointless(case.problem, case.facts, case.search, search_state.belief, left_min, others_wait=waits)
    return None if found is None else Cancel(ids[found])


def _exact(facts: BisectState, search_state: SearchState) -> Instruction | None:
    """A trial that shows whether counted time is exact, once an answer is near; the answer has to wait for it."""
    decision, (old, _) = search_state.decision, facts.scope.ends
    answer = decision if isinstance(decision, SearchAnswer) and not decision.out_of_time else None
    is_near = isinstance(decision, Hold) or search_state.probability >= search_state.case.search.rules.suspect
    if answer is None and (isinstance(decision, SearchAnswer) or not is_near):
        return None
    if (trial := exactness_trial(facts)) is None:
        is_begun = facts.scope.settings.machine.is_counted and not facts.judging.same_again
        return Wait() if answer is not None and is_begun and facts.is_in_flight(old.sha, facts.host) else None
    if ends_in_time(facts, trial):
        return trial
    return None if answer is None else _concluded(facts, search_state, replace(answer, out_of_time=True))


def _expected_min(search_state: SearchState, commit: int | None, *, whole: bool) -> float:
    """The minutes that a trial takes, by the commit's number in the range; None for a changed end."""
    costs = search_state.case.search.costs
    build_min = costs.build_min if commit is None else costs.build_of(commit)
    return build_min + (costs.setup_min + costs.whole_run_min if whole else _early_min(search_state))


def _early_min(search_state: SearchState) -> float:
    """The minutes of a trial that needs no build and whose run may be stopped early."""
    costs = search_state.case.search.costs
    return costs.setup_min + (costs.old_run_min + costs.new_run_min) / 2


def _decided(facts: BisectState, search_state: SearchState) -> Instruction:
    known, search_range = search_state.case.facts, search_state.case.search_range
    match search_state.decision:
        case CommitToRead(commit=number, whole=whole) as one:
            purpose = "an answer rests on it" if one.confirms else ""
            commit = facts.commit(search_state.case.commit_for(number))
            if commit in facts.scope.ends:
                if facts.is_in_flight(commit.sha):
                    return Wait()
                check_measurable(facts, commit, commit.short)
            trial = measure(
                facts,
                Subject(commit),
                purpose,
                _outlook(search_state),
                whole=whole,
                because=known,
                clear_of=_beside(search_state, one),
            )
            return replace(trial, expected_min=_expected_min(search_state, number, whole=whole))
        case ChangedEndToRead(commit=number, kernel=kind) as one:
            commit = facts.commit(search_range.shas[number])
            step = _changed(facts, search_state, kind, commit, whole=one.whole, clear_of_end=one.beside_end)
            expected_min = _expected_min(search_state, None, whole=one.whole)
            return step if isinstance(step, Record) else replace(step, because=known, expected_min=expected_min)
        case Hold():
            measured = facts.without_builds
            if measured.in_flight or not facts.in_flight:
                return Wait()
            # An answer that needs no further reading does not wait for builds.
            alone = measured.search_state
            return _concluded(measured, alone, alone.decision) if isinstance(alone.decision, SearchAnswer) else Wait()
        case SearchAnswer() as answer:
            return _concluded(facts, search_state, answer)


def _changed(
    facts: BisectState, search_state: SearchState, kind: Kind, commit: Commit, *, whole: bool = True, clear_of_end: bool
) -> Submit | Record:
    """A trial of an end with the commit reverted or picked; if git cannot make that commit, record this as a fact."""
    end = facts.scope.wanted.new if kind is Kind.REVERTED else facts.scope.wanted.old
    made = facts.answer(ChangedEnd(kind, commit, end))
    name = f"{end.short} {'without' if kind is Kind.REVERTED else 'with'} {commit.short}"
    if isinstance(made, CannotBeHad):
        note = Note(f"there is no {name}: {made.reason}")
        return Record((NotChanged(kind, commit.sha, end.sha, made.reason),), tell=(note,))
    subject = Subject(made, kind, commit.sha)
    others = (end.sha,) if clear_of_end else ()
    return measure(facts, subject, name, _outlook(search_state), whole=whole, clear_of=others)


def _beside(search_state: SearchState, one: CommitToRead) -> tuple[str, ...]:
    """The commits whose whole runs a run is compared with; the old end stands for parents outside the range."""
    case = search_state.case
    before = () if case.search_range.graph.parents[one.commit] else (case.judging.old,)
    return (*before, *map(case.commit_for, one.beside)) if one.beside else ()


def _concluded(facts: BisectState, search_state: SearchState, answer: SearchAnswer) -> Instruction:
    search_range = search_state.case.search_range
    commit = facts.commit(search_range.shas[answer.commit])
    if answer.out_of_time or answer.ending is not SearchEnding.FOUND or search_range.is_outside(answer.commit):
        return _narrowed(facts, search_state, answer, commit)
    # A parent with the same kernel would contradict the answer, so it has to be tried first.
    twin = facts.parent_with_same_kernel(commit)
    if twin is not None and facts.judging.judge(twin.sha) is None:
        if twin.sha not in search_range.numbers:
            said = f"{outside_paths(facts.scope.wanted.paths)}: {commit.short} changes nothing"
            return Done(State.NARROWED, said, (commit,))
        if facts.is_in_flight(twin.sha):
            return Wait()
        return measure(facts, Subject(twin), "a parent with the same sources", _outlook(search_state))
    show = _as_shown(facts, search_state.final)
    if facts.git is None or facts.git.shown != show:
        return Ask(show)
    new = facts.judging.terms.new
    sure = f"{commit.short} is the first {new} commit: {commit.subject} ({share(answer.probability)})"
    return Done(State.FOUND, sure, (commit,))


def _narrowed(facts: BisectState, search_state: SearchState, answer: SearchAnswer, likeliest: Commit) -> Done:
    ending, search_range = answer.ending, search_state.case.search_range
    if answer.out_of_time:
        one_change = ending is not SearchEnding.NOT_ONE_CHANGE
        known = _likeliest(likeliest, answer) if one_change else _not_one_change(answer)
        candidates = facts.commits(sha for sha, _ in search_state.candidates)
        return Done(State.NARROWED, f"{known}; {why_over(facts)}", candidates, out_of_time=True)
    if ending is SearchEnding.NO_CHANGE:
        return Done(State.NARROWED, _no_change(facts, answer))
    if search_range.is_outside(answer.commit) and ending is not SearchEnding.NOT_ONE_CHANGE:
        if facts.git is None:
            raise RuntimeError("git is asked what is left before it was shown anything")
        left = facts.commits(facts.answer(LeftInRange(facts.git.shown)))
        return Done(State.NARROWED, outside_paths(facts.scope.wanted.paths), left)
    candidates = facts.commits(sha for sha, _ in search_state.candidates)
    skips = {search_range.shas[number] for number in search_state.case.facts.untestable}
    skipped = tuple(one for one in candidates if one.sha in skips)
    if ending is SearchEnding.NOT_ONE_CHANGE:
        said = _not_one_change(answer)
    else:
        said = _one_of(facts, likeliest, answer, skipped)
    return Done(State.NARROWED, said, candidates, skipped)


def _no_change(facts: BisectState, answer: SearchAnswer) -> str:
    if (all_of := answer.of_all) is None:
        raise RuntimeError("no change is concluded from readings of both ends")
    objective, counts = facts.judging.objective, " and ".join(map(str, all_of.counts))
    first, since = objective.factor(all_of.of_ends, math.inf), objective.factor(all_of.mean, all_of.half_width)
    return (
        f"{NOTHING_CHANGED} {objective.label}: the new end's was {first.text} the old end's"
        f" when the search began, and {since.text} by {counts} readings in turn since then"
        f" (probability {share(answer.nothing)})"
    )


def _outlook(search_state: SearchState) -> Outlook:
    return Outlook(len(search_state.candidates), search_state.trials_left, search_state.probability)


def _one_of(facts: BisectState, likeliest: Commit, answer: SearchAnswer, skipped: Sequence[Commit]) -> str:
    """Name the likeliest commit, and why it is not the answer: skips, no confirmation, or too small an effect."""
    nothing = f"; that nothing in the range changed has {share(answer.nothing)}" if answer.nothing > _LITTLE else ""
    why, effect = "", answer.effect
    if skipped:
        names = ", ".join(commit.short for commit in skipped)
        why = f"; {names} cannot be tested and stand in the way"
    elif not answer.confirmed:
        why = "; no end without it, or with it, could be had to confirm it"
    elif effect is not None and not effect.is_shown and all(effect.counts):
        seen = facts.judging.objective.factor(effect.mean, effect.half_width)
        needed = facts.judging.objective.factor(effect.of_ends / 2, math.inf)
        why = (
            f"; {' and '.join(map(str, effect.counts))} readings without it and with it differ by {seen.text}, where"
            f" {needed.text} would be half of what the ends differ by"
        )
    return f"{_likeliest(likeliest, answer)}{nothing}{why}"


def _likeliest(commit: Commit, answer: SearchAnswer) -> str:
    count = len(answer.candidates)
    return f"{f'one of {count} commits, ' if count > 1 else ''}most likely {commit.short} ({share(answer.probability)})"


def _not_one_change(answer: SearchAnswer) -> str:
    return (
        f"not one change: {answer.fit.contradictions} readings contradict any single one,"
        f" where the noise alone would make about {answer.fit.expected:.1f}; each reading is in the table"
    )
