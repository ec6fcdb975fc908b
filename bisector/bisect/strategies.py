"""What to measure next, and when that is the answer, by one of two strategies; pure.

By git each verdict is believed, and git's own midpoint is next. By Bayes all readings are weighed: what tells most for
its time is next, until the answer is sure enough, and git's bisection is a mirror of what is believed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from bisector.analysis import kernels
from bisector.analysis.judgement import Again
from bisector.bisect.budget import why_over
from bisector.bisect.facts import Facts, measure
from bisector.bisect.instructions import (
    ChangedEnd,
    Done,
    Instruction,
    LeftInRange,
    Outlook,
    ParentsOf,
    Record,
    ShowGit,
    Submit,
    TwinOf,
    Wait,
)
from bisector.core.errors import EndsDoNotReproduce, InfraError
from bisector.core.events import Note
from bisector.core.subject import Commit, Kind, NotChanged, Subject
from bisector.core.units import plural, share
from bisector.core.verdict import State, Terms, Verdict
from bisector.git.bisect import Contradiction, Found, MergeBaseIsNew, OnlySkippedLeft, OutsidePaths
from bisector.git.bisect import Try as Midpoint
from bisector.git.trees import CannotBeHad
from bisector.search.decision import Answer, Ending, Hold, Try, Undo
from bisector.search.step import figures_tell
from bisector.status.conclusion import Standing, outside_paths

# By git


def by_git(facts: Facts) -> Instruction:
    """Show git all verdicts, then try what it proposes, or give its answer.

    Raises :class:`bisector.core.errors.EndsDoNotReproduce` when a merge base shows that there is nothing to bisect,
    :class:`InfraError` when the verdicts contradict each other.
    """
    ends = {end.sha for end in facts.task.ends}
    verdicts = tuple((sha, verdict) for sha, verdict in facts.judging.verdicts() if sha not in ends)
    told = _turned(facts, dict(verdicts))
    show = ShowGit(facts.judging.terms, facts.task.skips, verdicts, proposes=True, tell=told)
    if facts.heard.git is None or facts.heard.git.shown != show:
        return show
    match facts.heard.git.says:
        case Midpoint(commit=commit, candidates_left=left, steps_left=steps) as tried:
            return measure(facts, Subject(commit), "merge base" if tried.is_merge_base else "", Outlook(left, steps))
        case Found(commit=commit):
            return _whole_run(facts, commit) or _found(facts, commit)
        case OnlySkippedLeft(candidates=left, skipped=skipped):
            parents = facts.answer(ParentsOf(tuple(commit.sha for commit in left)))
            candidates = kernels.possible(facts.judging.trials, left, parents.__getitem__)
            return Done(State.NARROWED, candidates, skipped, _skips_in_the_way(candidates, skipped))
        case OutsidePaths(candidates=candidates):
            return Done(State.NARROWED, candidates, (), outside_paths(facts.task.wanted.paths))
        case MergeBaseIsNew() as found:
            raise _merge_base_is_new(found, facts.judging.terms)
        case Contradiction() as error:
            raise _contradiction(error)
        case None:
            raise RuntimeError("git was shown the verdicts and not asked")


def _turned(facts: Facts, now: dict[str, Verdict]) -> tuple[Note, ...]:
    """What people are told when something that git was told does not hold any more; the search goes on from the facts.

    A whole run said otherwise than one that was stopped early, or a reading moved the threshold.
    """
    terms = facts.judging.terms
    for sha, before in facts.heard.git.shown.verdicts if facts.heard.git is not None else ():
        if (after := now.get(sha, before)) is not before:
            turned = f"{sha[:12]} is {terms.word(after)}, not {terms.word(before)}"
            if _a_whole_run_came_last(facts, sha):
                early = "as one that was stopped early had said; the search goes on"
                return (Note(f"a whole run says that {turned}, {early}"),)
            return (Note(f"by all readings {turned}"),)
    return ()


def _a_whole_run_came_last(facts: Facts, sha: str) -> bool:
    """Whether the last trial of all is a whole run of a commit that had one that was stopped early before."""
    *before, (_, last) = facts.judging.trials
    early = any(trial.commit.sha == sha and trial.runs and not trial.bears_answer for _, trial in before)
    return early and last.commit.sha == sha and last.bears_answer


def _whole_run(facts: Facts, culprit: Commit) -> Submit | None:
    """A whole run that the answer lacks: of the culprit or a parent that had only one that was stopped early."""
    parents = facts.answer(ParentsOf((culprit.sha,)))
    rests_on = (culprit.sha, *parents[culprit.sha])
    commit = next(filter(None, map(facts.judging.to_measure_whole, rests_on)), None)
    if commit is None:
        return None
    others = () if commit.sha == culprit.sha else (culprit.sha,)
    purpose = "a whole run before the answer is given"
    return measure(facts, Subject(commit), purpose, Outlook(1, 1), whole=True, clear_of=others)


def _found(facts: Facts, commit: Commit) -> Done:
    """The answer; a commit that has its parent's kernel cannot be it, whatever was concluded of the parent."""
    term = facts.judging.terms.new
    twin = _twin(facts, commit)
    if twin is not None:
        raise InfraError(
            f"{commit.short} is {term} and has the kernel of its parent {twin.short}, which counts as not {term}",
            "there is more than one change, or a verdict is wrong, or the change was made outside the paths given;"
            f" measure the parent: bisector test {twin.short}",
        )
    return Done(State.FOUND, (commit,), (), f"{commit.short} is the first {term} commit: {commit.subject}")


def _skips_in_the_way(candidates: Sequence[Commit], skipped: Sequence[Commit]) -> str:
    names = ", ".join(commit.short for commit in skipped)
    return f"one of {len(candidates)} commits; {names} cannot be tested and stand in the way"


def _contradiction(error: Contradiction) -> InfraError:
    found = InfraError(
        f"the verdicts contradict each other: {error}; there is more than one change, or one verdict is wrong",
        "bisector table shows the figures; measure one of the two again: bisector test COMMIT,"
        " or begin with --strategy bayes, which weighs both",
    )
    found.skippable = error.sha
    return found


# By Bayes


def by_bayes(facts: Facts) -> Instruction:
    """Merge bases, then what was begun, then what the posterior says.

    Raises :class:`bisector.core.errors.EndsDoNotReproduce` when a merge base shows that there is nothing to bisect.
    """
    base = _base_to_measure(facts)
    standing = facts.standing
    return (
        (None if _holds(facts, standing.final) else _show(facts, standing.shown))
        or (_of_base(facts, standing, base) if base is not None else None)
        or _begun(facts, standing)
        or _decided(facts, standing)
    )


def _show(facts: Facts, sides: Mapping[str, Verdict]) -> ShowGit | None:
    """Show git the sides of kernels, unless it holds just those.

    A belief puts sides on kernels without contradiction: what is new stays so in whatever has it.
    """
    return None if _holds(facts, sides) else _as_shown(facts, sides)


def _holds(facts: Facts, sides: Mapping[str, Verdict]) -> bool:
    return facts.heard.git is not None and facts.heard.git.shown == _as_shown(facts, sides)


def _as_shown(facts: Facts, sides: Mapping[str, Verdict]) -> ShowGit:
    judging = facts.judging
    bases = {sha: judgement.verdict for sha in facts.task.bases if (judgement := judging.judge(sha)) is not None}
    told = {**bases, **sides}
    # An untestable commit may be known from what was measured around it; git takes no verdict on a skip.
    skips = tuple(sha for sha in facts.task.skips if told.get(sha, Verdict.SKIP) is Verdict.SKIP)
    return ShowGit(judging.terms, skips, tuple(told.items()))


def _base_to_measure(facts: Facts) -> Commit | None:
    """The first merge base that was not judged yet; raises when one is new already."""
    old, new = facts.task.ends
    for sha in facts.task.bases:
        judgement = facts.judging.judge(sha)
        if judgement is None and sha not in facts.task.skips:
            return facts.commit(sha)
        if judgement is not None and judgement.verdict is Verdict.NEW:
            raise _merge_base_is_new(MergeBaseIsNew(facts.commit(sha), old, new), facts.judging.terms)
    return None


def _of_base(facts: Facts, standing: Standing, base: Commit) -> Submit:
    overlaps = figures_tell(standing.case.search.rules, standing.belief)
    return measure(facts, Subject(base), "merge base", _outlook(standing), whole=overlaps)


def _begun(facts: Facts, standing: Standing) -> Instruction | None:
    """The last trial once more, when it settled nothing.

    Such a trial is no fact for the search, which decides as it did before: the run is whole, or not, as it was to be.
    """
    _, last = facts.judging.trials[-1]
    if last.commit.sha in facts.task.skips or not isinstance(facts.judging.since(last.commit.sha), Again):
        return None
    overlaps = figures_tell(standing.case.search.rules, standing.belief)
    if last.subject.changed_by is not None:
        commit = facts.commit(last.subject.changed_by)
        return _changed(facts, standing, last.subject.kind, commit, clear_of_end=not overlaps)
    decided = standing.decision
    if isinstance(decided, Try) and standing.case.commit_for(decided.commit) == last.commit.sha:
        others = _beside(standing, decided)
        return measure(facts, Subject(last.commit), "", _outlook(standing), whole=decided.whole, clear_of=others)
    return measure(facts, Subject(last.commit), "", _outlook(standing), whole=overlaps)


def _decided(facts: Facts, standing: Standing) -> Instruction:
    known = standing.case.facts
    if known == facts.heard.chose_by:
        raise RuntimeError("the last trial changed nothing, and the search asks for it again")
    ground = standing.case.ground
    match standing.decision:
        case Try(commit=number, whole=whole) as one:
            purpose = "an answer rests on it" if one.confirms else ""
            commit = facts.commit(standing.case.commit_for(number))
            others = _beside(standing, one)
            return measure(
                facts, Subject(commit), purpose, _outlook(standing), whole=whole, because=known, clear_of=others
            )
        case Undo(commit=number, kernel=kind) as one:
            commit = facts.commit(ground.shas[number])
            step = _changed(facts, standing, kind, commit, whole=one.whole, clear_of_end=one.beside_end)
            return step if isinstance(step, Record) else replace(step, because=known)
        case Hold():
            return Wait()
        case Answer() as answer:
            return _concluded(facts, standing, answer)


def _changed(
    facts: Facts, standing: Standing, kind: Kind, commit: Commit, *, whole: bool = True, clear_of_end: bool
) -> Submit | Record:
    """One trial of an end without a commit, or with it; where that cannot be had, this is the fact."""
    end = facts.task.wanted.new if kind is Kind.REVERTED else facts.task.wanted.old
    made = facts.answer(ChangedEnd(kind, commit, end))
    if isinstance(made, CannotBeHad):
        note = Note(f"there is no {_changed_name(kind, commit, end)}: {made.reason}")
        return Record((NotChanged(kind, commit.sha, end.sha, made.reason),), tell=(note,))
    subject = Subject(made.commit, kind, commit.sha)
    name = _changed_name(kind, commit, end)
    others = (end.sha,) if clear_of_end else ()
    return measure(facts, subject, name, _outlook(standing), whole=whole, clear_of=others)


def _beside(standing: Standing, one: Try) -> tuple[str, ...]:
    """The commits that a whole run may be held against; the old end stands for what is before the range."""
    case = standing.case
    before = () if case.ground.graph.parents[one.commit] else (case.judging.old,)
    return (*before, *map(case.commit_for, one.beside)) if one.beside else ()


def _changed_name(kind: Kind, commit: Commit, end: Commit) -> str:
    """What a person calls an end without a commit, or with it."""
    return f"{end.short} {'without' if kind is Kind.REVERTED else 'with'} {commit.short}"


def _concluded(facts: Facts, standing: Standing, answer: Answer) -> Instruction:
    ground = standing.case.ground
    commit = facts.commit(ground.shas[answer.commit])
    paths = facts.task.wanted.paths
    if answer.out_of_time:
        return _out_of_time(facts, standing, answer, commit)
    if ground.is_outside(answer.commit) and answer.ending is not Ending.NOT_ONE_CHANGE:
        return Done(State.NARROWED, _left_by_git(facts), (), outside_paths(paths))
    if answer.ending is not Ending.FOUND:
        return _narrowed(facts, standing, answer, commit)
    twin = _unmeasured_twin(facts, commit)
    if twin is not None:
        if twin.sha not in ground.numbers:
            message = f"{outside_paths(paths)}: {commit.short} changes nothing"
            return Done(State.NARROWED, (commit,), (), message)
        return measure(facts, Subject(twin), "a parent with the same sources", _outlook(standing))
    new = facts.judging.terms.new
    sure = f"{commit.short} is the first {new} commit: {commit.subject} ({share(answer.probability)})"
    return _show(facts, standing.final) or Done(State.FOUND, (commit,), (), sure)


def _out_of_time(facts: Facts, standing: Standing, answer: Answer, likeliest: Commit) -> Done:
    candidates = facts.commits(sha for sha, _ in standing.candidates)
    one_change = answer.ending is not Ending.NOT_ONE_CHANGE
    known = _likeliest(likeliest, answer) if one_change else _not_one_change(answer)
    return Done(State.NARROWED, candidates, (), f"{known}; {why_over(facts)}", out_of_time=True)


def _narrowed(facts: Facts, standing: Standing, answer: Answer, likeliest: Commit) -> Done:
    candidates = facts.commits(sha for sha, _ in standing.candidates)
    skips = {standing.case.ground.shas[number] for number in standing.case.facts.untestable}
    skipped = tuple(one for one in candidates if one.sha in skips)
    if answer.ending is Ending.NOT_ONE_CHANGE:
        return Done(State.NARROWED, candidates, skipped, _not_one_change(answer))
    return Done(State.NARROWED, candidates, skipped, _one_of(likeliest, answer, skipped))


def _left_by_git(facts: Facts) -> tuple[Commit, ...]:
    if facts.heard.git is None:
        raise RuntimeError("git is asked what is left before it was shown anything")
    left = facts.answer(LeftInRange(facts.heard.git.shown))
    return facts.commits(left)


def _unmeasured_twin(facts: Facts, commit: Commit) -> Commit | None:
    """A parent that has the kernel of the answer, which nobody has looked at yet."""
    twin = _twin(facts, commit)
    return twin if twin is not None and not facts.recorded.was_tried(twin.sha) else None


def _outlook(standing: Standing) -> Outlook:
    return Outlook(len(standing.candidates), standing.trials_left, standing.probability)


def _one_of(likeliest: Commit, answer: Answer, skipped: Iterable[Commit]) -> str:
    names = ", ".join(commit.short for commit in skipped)
    why = f"; {names} cannot be tested and stand in the way" if names else ""
    unconfirmed = "" if answer.confirmed else "; no end without it, or with it, could be had to confirm it"
    return f"{_likeliest(likeliest, answer)}{why or unconfirmed}"


def _likeliest(commit: Commit, answer: Answer) -> str:
    what = plural(len(answer.candidates), "commit")
    return f"one of {what}, most likely {commit.short} ({share(answer.probability)})"


def _not_one_change(answer: Answer) -> str:
    return (
        f"not one change: {answer.fit.contradictions} readings contradict any single one,"
        f" where {answer.fit.expected:.1f} would be usual; each reading is in the table"
    )


# By either


def _twin(facts: Facts, commit: Commit) -> Commit | None:
    """A parent that surely has the kernel that was built of a commit."""
    kernel = kernels.kernel_of(facts.judging.trials, commit.sha)
    return facts.answer(TwinOf(commit, kernel)) if kernel is not None else None


def _merge_base_is_new(step: MergeBaseIsNew, terms: Terms) -> EndsDoNotReproduce:
    """What to say, and to do, of a merge base that is new already."""
    return EndsDoNotReproduce(
        f"the merge base {step.merge_base.short} of both ends is {terms.new} already: "
        f"the change was made before it and undone on the way to {step.old.short}",
        f"what undid it: bisector start {step.merge_base.short} {step.old.short}",
    )
