"""All readings weighed: what tells most for its time is measured next, until the answer is sure enough.

Everything is derived from the record at each step, so that a bisection that was killed goes on as if it had not been.
git's bisection is a mirror of it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from bisector.analysis.settle import Again
from bisector.analysis.verdicts import Judging
from bisector.bisect.by_git import merge_base_is_new
from bisector.bisect.mirror import Mirror
from bisector.bisect.steps import Kin, Measure, MeasureChanged, Now, Outcome, Outlook, Step
from bisector.core.model import Commit, Kind, State, Terms, Verdict
from bisector.core.units import share
from bisector.git.bisect import Bisect
from bisector.git.outcomes import MergeBaseIsNew
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from bisector.search.posterior import Facts
from bisector.search.step import Answer, Ending, Try, Undo
from bisector.status.conclusion import Standing, outside_paths
from bisector.status.evidence import Case, Known
from bisector.status.range_graph import Ground


@dataclass(slots=True)
class ByBayes:
    """A :class:`bisector.bisect.steps.Searcher`; ``known`` says what is on record beside the trials."""

    wanted: Range
    terms: Terms
    repository: Repository
    bisect: Bisect
    kin: Kin
    ground: Ground
    now: Now
    known: Callable[[], Known]
    mirror: Mirror
    _last: Facts | None = field(default=None, init=False)

    def begin(self) -> None:
        """Show git what is known."""
        self._show(self._standing().shown)

    def next(self) -> Step:
        """Merge bases, then what was begun, then what the posterior says."""
        judging = self.now()
        if (base := self._base_to_measure(judging)) is not None:
            return Measure(base, "merge base", self._outlook(self._standing()))
        standing = self._standing()
        self._show(standing.shown)
        if (begun := self._begun(judging, standing)) is not None:
            return begun
        return self._decided(standing)

    def log(self) -> str:
        """``git bisect log``."""
        return self.bisect.log()

    def _standing(self) -> Standing:
        return Standing(Case(self.ground, self.now(), self.known()))

    def _show(self, sides: dict[str, Verdict]) -> None:
        judging = self.now()
        bases = {sha: judgement.verdict for sha in self.bisect.bases if (judgement := judging.judge(sha)) is not None}
        self.mirror.show({**bases, **sides})

    def _base_to_measure(self, judging: Judging) -> Commit | None:
        """The first merge base that was not judged yet; raises when one is new already."""
        for sha in self.bisect.bases:
            judgement = judging.judge(sha)
            if judgement is None and sha not in self.mirror.skips:
                return self._commit(sha)
            if judgement is not None and judgement.verdict is Verdict.NEW:
                raise merge_base_is_new(MergeBaseIsNew(self._commit(sha), self.wanted.old, self.wanted.new), self.terms)
        return None

    def _begun(self, judging: Judging, standing: Standing) -> Step | None:
        """The last trial once more, when it settled nothing."""
        _, last = judging.trials[-1]
        if last.commit.sha in self.mirror.skips or not isinstance(judging.since(last.commit.sha), Again):
            return None
        if last.changed_by is not None:
            return self._changed(last.kind, self._commit(last.changed_by), standing)
        return Measure(last.commit, "", self._outlook(standing))

    def _decided(self, standing: Standing) -> Step:
        facts = standing.case.facts
        if facts == self._last:
            raise RuntimeError("the last trial changed nothing, and the search asks for it again")
        self._last = facts
        match standing.decision:
            case Try(commit=number, whole=whole) as step:
                purpose = "an answer rests on it" if step.confirms else ""
                commit = self._commit(standing.case.commit_for(number))
                return Measure(commit, purpose, self._outlook(standing), whole)
            case Undo(commit=number, kernel=kind):
                return self._changed(kind, self._commit(self.ground.shas[number]), standing)
            case Answer() as answer:
                return self._concluded(standing, answer)

    def _changed(self, kind: Kind, commit: Commit, standing: Standing) -> MeasureChanged:
        end = self.wanted.new if kind is Kind.REVERTED else self.wanted.old
        return MeasureChanged(kind, commit, end, self._outlook(standing))

    def _concluded(self, standing: Standing, answer: Answer) -> Step:
        commit = self._commit(self.ground.shas[answer.commit])
        candidates = self._commits(sha for sha, _ in standing.candidates)
        skips = {self.ground.shas[number] for number in standing.case.facts.untestable}
        skipped = tuple(one for one in candidates if one.sha in skips)
        if answer.ending is Ending.NOT_ONE_CHANGE:
            return Outcome(State.NARROWED, candidates, skipped, _not_one_change(answer))
        if self.ground.is_outside(answer.commit):
            return Outcome(State.NARROWED, self._commits(self.bisect.in_range()), (), outside_paths(self.wanted.paths))
        if answer.ending is Ending.NARROWED:
            return Outcome(State.NARROWED, candidates, skipped, _narrowed(commit, answer, skipped))
        twin = self._unmeasured_twin(standing, commit)
        if twin is not None:
            if twin.sha not in self.ground.numbers:
                return Outcome(
                    State.NARROWED, (commit,), (), f"{outside_paths(self.wanted.paths)}: {commit.short} changes nothing"
                )
            return Measure(twin, "a parent with the same sources", self._outlook(standing))
        self._show(standing.final)
        sure = f"{commit.short} is the first {self.terms.new} commit: {commit.subject} ({share(answer.probability)})"
        return Outcome(State.FOUND, (commit,), (), sure)

    def _unmeasured_twin(self, standing: Standing, commit: Commit) -> Commit | None:
        """A parent that has the kernel of the answer, which nobody has looked at yet."""
        judging = standing.case.judging
        kernel = judging.kernel_of(commit.sha)
        twin = self.kin.twin(commit, kernel) if kernel is not None else None
        tried = {trial.commit.sha for _, trial in judging.trials}
        return twin if twin is not None and twin.sha not in tried else None

    def _outlook(self, standing: Standing) -> Outlook:
        return Outlook(len(standing.candidates), standing.trials_left, standing.probability)

    def _commit(self, sha: str) -> Commit:
        return self.repository.commits([sha])[0]

    def _commits(self, shas: Iterable[str]) -> tuple[Commit, ...]:
        return self.repository.commits(shas)


def _narrowed(likeliest: Commit, answer: Answer, skipped: tuple[Commit, ...]) -> str:
    count = len(answer.candidates)
    names = ", ".join(commit.short for commit in skipped)
    why = f"; {names} cannot be tested and stand in the way" if skipped else ""
    unconfirmed = "" if answer.confirmed else "; no end without it, or with it, could be had to confirm it"
    return f"one of {count} commits, most likely {likeliest.short} ({share(answer.probability)}){why or unconfirmed}"


def _not_one_change(answer: Answer) -> str:
    return (
        f"not one change: {answer.fit.contradictions} readings contradict any single one,"
        f" where {answer.fit.expected:.1f} would be usual; each reading is in the table"
    )
