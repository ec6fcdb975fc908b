"""What the step asks of the repository and of git's bisection, carried out; nothing is decided here."""

from dataclasses import dataclass, field

from bisector.bisect.equal_kernels import Kin
from bisector.bisect.facts import GitState
from bisector.bisect.instructions import (
    ChangedEnd,
    CommitsOf,
    LeftInRange,
    ParentsOf,
    Question,
    ShowGit,
    TwinOf,
    WhatMatters,
)
from bisector.core.verdict import Verdict
from bisector.git.apply import changed_end
from bisector.git.bisect import Bisect, Contradiction, Step, Try
from bisector.git.ranges import Range
from bisector.git.repository import Repository


@dataclass(slots=True)
class GitSide:
    """The repository of a range, its kernels as far as they are known without a build, and git's own bisection."""

    repository: Repository
    wanted: Range
    bisect: Bisect
    kin: Kin
    _shown: ShowGit | None = field(default=None, init=False)

    def answer(self, question: Question[object]) -> object:
        """The answer to a question."""
        match question:
            case CommitsOf(shas=shas):
                return self.repository.commits(shas)
            case ParentsOf(shas=shas):
                return {sha: self.kin.parents(sha) for sha in shas}
            case TwinOf(commit=commit, kernel=kernel):
                return self.kin.twin(commit, kernel)
            case WhatMatters(old=old, new=new):
                return self.kin.mattering(self.wanted, old, new)
            case ChangedEnd(kind=kind, commit=commit, end=end):
                return changed_end(self.repository, kind, commit, end, first_parent=self.wanted.first_parent)
            case LeftInRange():
                return self.bisect.in_range()
        raise RuntimeError(f"git is asked something that it cannot answer: {question}")

    def show(self, show: ShowGit) -> GitState:
        """Make git hold what it is to be shown: told what is new of it, or all from the start."""
        try:
            self._tell(show)
            says = self._proposed(dict(show.verdicts)) if show.proposes else None
        except Contradiction as error:
            if not show.proposes:
                raise
            self._shown = None
            return GitState(show, error)
        self._shown = show
        return GitState(show, says)

    def log(self) -> str:
        """``git bisect log``."""
        return self.bisect.log()

    def _tell(self, show: ShowGit) -> None:
        before, now = self._shown, dict(show.verdicts)
        same = before is not None and (before.terms, before.skips) == (show.terms, show.skips)
        if before is None or not same or any(now.get(sha) is not one for sha, one in before.verdicts):
            self.bisect.terms = show.terms
            self.bisect.start(show.skips, show.verdicts)
            return
        told = dict(before.verdicts)
        for sha, verdict in show.verdicts:
            if sha not in told:
                self.bisect.tell(sha, verdict)

    def _proposed(self, verdicts: dict[str, Verdict]) -> Step:
        """What git makes of it; a commit that it proposes and that has a verdict already is told of."""
        while isinstance(says := self.bisect.next(), Try) and says.commit.sha in verdicts:
            self.bisect.tell(says.commit.sha, verdicts[says.commit.sha])
        return says
