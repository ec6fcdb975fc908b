"""git's own midpoints; each verdict is believed."""

from dataclasses import dataclass, field

from bisector.bisect.steps import Kin, Measure, Now, Outcome, Outlook, Step
from bisector.core.errors import EndsDoNotReproduce, InfraError
from bisector.core.events import Listener, Note
from bisector.core.model import Commit, State, Terms, Verdict
from bisector.git.bisect import Bisect
from bisector.git.outcomes import Contradiction, Found, MergeBaseIsNew, OnlySkippedLeft, OutsidePaths, Try
from bisector.git.ranges import Range
from bisector.status.conclusion import outside_paths


@dataclass(slots=True)
class ByGit:
    """A :class:`bisector.bisect.steps.Searcher`; ``skips`` are the hashes a person knows to be untestable."""

    wanted: Range
    skips: tuple[str, ...]
    terms: Terms
    bisect: Bisect
    kin: Kin
    now: Now
    tell: Listener
    _tried: Commit | None = field(default=None, init=False)
    _relied_on: dict[str, Verdict] = field(default_factory=dict, init=False)

    def begin(self) -> None:
        """Tell git all verdicts there are; those it can make no use of are no contradiction."""
        judging = self.now()
        ends = {self.wanted.old.sha, self.wanted.new.sha}
        verdicts = [(sha, verdict) for sha, verdict in judging.verdicts() if sha not in ends]
        try:
            self.bisect.start(self.skips, verdicts)
        except Contradiction as error:
            raise _contradiction(error) from error

    def next(self) -> Step:
        """Tell git the verdict on what was tried, then what git proposes, or its answer."""
        if self._has_turned():
            self.begin()
        while True:
            self._tell()
            match self.bisect.next():
                case Try() as step:
                    self._tried = step.commit
                    if self.now().judge(step.commit.sha) is None:
                        purpose = "merge base" if step.is_merge_base else ""
                        return Measure(step.commit, purpose, Outlook(step.candidates_left, step.steps_left))
                case Found(commit=commit):
                    return self._whole_run(commit) or self._found(commit)
                case OnlySkippedLeft(candidates=left, skipped=skipped):
                    candidates = self.now().possible(left, self.kin.parents)
                    return Outcome(State.NARROWED, candidates, skipped, _narrowed(candidates, skipped))
                case OutsidePaths(candidates=candidates):
                    return Outcome(State.NARROWED, candidates, (), outside_paths(self.wanted.paths))
                case MergeBaseIsNew() as step:
                    raise merge_base_is_new(step, self.terms)

    def log(self) -> str:
        """``git bisect log``."""
        return self.bisect.log()

    def _tell(self) -> None:
        if self._tried is None:
            return
        judgement = self.now().judge(self._tried.sha)
        if judgement is not None:
            try:
                self.bisect.tell(self._tried.sha, judgement.verdict)
            except Contradiction as error:
                raise _contradiction(error) from error
        self._tried = None

    def _whole_run(self, culprit: Commit) -> Measure | None:
        """A whole run that the answer lacks: of the culprit or a parent that had only one that was stopped early."""
        judging = self.now()
        rests_on = (culprit.sha, *self.kin.parents(culprit.sha))
        commit = next(filter(None, map(judging.to_measure_whole, rests_on)), None)
        if commit is None:
            return None
        self._relied_on = {sha: verdict for sha, verdict in judging.verdicts() if sha in rests_on}
        return Measure(commit, "a whole run before the answer is given", Outlook(1, 1), whole=True)

    def _has_turned(self) -> bool:
        """Whether what was told does not hold any more: the search goes on from the facts.

        A whole run said otherwise than one that was stopped early, or a reading moved the threshold.
        """
        now = dict(self.now().verdicts())
        for sha, before in self.bisect.told:
            if (after := now.get(sha, before)) is not before and sha not in self._relied_on:
                self.tell(
                    Note(f"by all readings {sha[:12]} is {self.terms.word(after)}, not {self.terms.word(before)}")
                )
                return True
        for sha, before in self._relied_on.items():
            if (after := now.get(sha, before)) is not before:
                text = f"a whole run says that {sha[:12]} is {self.terms.word(after)}, not {self.terms.word(before)}"
                self.tell(Note(f"{text}, as one that was stopped early had said; the search goes on"))
                self._relied_on = {}
                return True
        return False

    def _found(self, commit: Commit) -> Outcome:
        """The answer; a commit that has its parent's kernel cannot be it, whatever was concluded of the parent."""
        term = self.terms.new
        kernel = self.now().kernel_of(commit.sha)
        twin = self.kin.twin(commit, kernel) if kernel is not None else None
        if twin is not None:
            raise InfraError(
                f"{commit.short} is {term} and has the kernel of its parent {twin.short}, which counts as not {term}",
                "there is more than one change, or a verdict is wrong, or the change was made outside the paths given;"
                f" measure the parent: bisector test {twin.short}",
            )
        return Outcome(State.FOUND, (commit,), (), f"{commit.short} is the first {term} commit: {commit.subject}")


def merge_base_is_new(step: MergeBaseIsNew, terms: Terms) -> EndsDoNotReproduce:
    """What to say, and to do, of a merge base that is new already."""
    return EndsDoNotReproduce(
        f"the merge base {step.merge_base.short} of both ends is {terms.new} already: "
        f"the change was made before it and undone on the way to {step.old.short}",
        f"what undid it: bisector start {step.merge_base.short} {step.old.short}",
    )


def _narrowed(candidates: tuple[Commit, ...], skipped: tuple[Commit, ...]) -> str:
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
