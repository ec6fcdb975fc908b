"""The strategy "git": pure functions that believe each verdict, and measure the commit that git bisect proposes."""

from bisector.bisect.state import BisectState, ParentsOf, ShowGit
from bisector.bisect.trials import Outlook, measure
from bisector.campaign.instructions import Ask, Done, Instruction, Submit, Wait
from bisector.core.errors import EndsDoNotReproduce, InfraError
from bisector.core.events import Note
from bisector.core.subject import Commit, Subject
from bisector.core.verdict import SideWords, State, Verdict
from bisector.git.bisect import (
    CommitToTry,
    Contradiction,
    FirstNewCommit,
    MergeBaseIsNew,
    OnlySkippedLeft,
    OutsidePaths,
)
from bisector.status.conclusion import outside_paths


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
