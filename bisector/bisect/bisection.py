"""A bisection on the loop: it connects the step to the record, git's bisection and fio's logs, and decides nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from bisector.bisect.state import (
    Aim,
    BisectState,
    ChangedEnd,
    CommitsOf,
    GitState,
    Installed,
    KeptKernels,
    LeftInRange,
    ParentsOf,
    ParentWithSameKernel,
    Recorded,
    Scope,
    ShowGit,
    WhatMatters,
)
from bisector.bisect.step import step
from bisector.bisect.stop_rule import rule_alike, rule_clear_of, stop_rule
from bisector.campaign.equipment import Equipment, KernelEquality
from bisector.campaign.instructions import Crew, Done, Instruction, Question, Submit, Transient
from bisector.campaign.loop import Loop
from bisector.config import Settings
from bisector.core.events import Listener
from bisector.core.verdict import Strategy
from bisector.executor.base import Request
from bisector.git.bisect import Bisect, CommitToTry, Contradiction
from bisector.git.ranges import Range, SearchRange
from bisector.git.repository import Repository
from bisector.git.trees import changed_end
from bisector.host.files import write_atomically
from bisector.search.readings import SearchFacts as Readings
from bisector.store.rundir import GIT_LOG
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest


@dataclass(slots=True)
class GitSide:
    """The repository of a range, what is known of its kernels without a build, and git's own bisection."""

    repository: Repository
    wanted: Range
    bisect: Bisect
    kernels: KernelEquality
    _shown: ShowGit | None = field(default=None, init=False)

    def answer(self, question: Question[object]) -> object:
        """Return the answer to a question of the step."""
        return _ANSWERS[type(question)](self, question)

    def show(self, show: ShowGit) -> GitState:
        """Make git's bisection hold ``show``, by telling it new verdicts if that suffices, else from the start."""
        verdicts, says = dict(show.verdicts), None
        try:
            self._tell(show)
            if show.proposes:  # git may propose a commit that has a verdict already
                while isinstance(says := self.bisect.next(), CommitToTry) and says.commit.sha in verdicts:
                    self.bisect.tell(says.commit.sha, verdicts[says.commit.sha])
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


_ANSWERS: Mapping[type[Question[object]], Callable[[GitSide, Any], object]] = {
    CommitsOf: lambda git, asked: git.repository.commits(asked.shas),
    ParentsOf: lambda git, asked: {sha: git.kernels.parents(sha) for sha in asked.shas},
    ParentWithSameKernel: lambda git, asked: git.kernels.parent_with_same_kernel(asked.commit, asked.kernel),
    WhatMatters: lambda git, asked: git.kernels.mattering(git.wanted, asked.old, asked.new),
    KeptKernels: lambda git, asked: git.kernels.kept(git.wanted, asked.compilers),
    ChangedEnd: lambda git, asked: changed_end(
        git.repository, asked.kind, asked.commit, asked.end, first_parent=git.wanted.first_parent
    ),
    LeftInRange: lambda git, asked: git.bisect.in_range(),
}


@dataclass(slots=True)
class Bisection:
    """The part of a bisection that one process does."""

    scope: Scope
    store: Store
    git: GitSide
    equipment: Equipment
    tell: Listener
    _shown: GitState | None = field(default=None, init=False)
    _chose_by: Readings | None = field(default=None, init=False)

    def run(self) -> Done:
        """Go on until the aim is reached.

        Raises :class:`bisector.core.errors.EndsDoNotReproduce` if there is nothing to bisect, :class:`InfraError` if an
        infrastructure error persists. Everything measured is in the store either way.
        """
        recorded = partial(Recorded.of, self.scope, self.store)
        loop = Loop(self.store, self.equipment, self.tell, recorded, self._step, self._answer, self._complete)
        return loop.run()

    def _step(self, recorded: Recorded, transient: Transient) -> Instruction:
        return step(BisectState(self.scope, recorded, transient, self._shown, self._chose_by))

    def _answer(self, question: Question[object]) -> object:
        if isinstance(question, ShowGit):
            for event in question.tell:
                self.tell(event)
            self._shown = self.git.show(question)
            write_atomically(self.scope.run_dir / GIT_LOG, self.git.log().encode())
            return self._shown
        return self.equipment.executor.compilers() if isinstance(question, Installed) else self.git.answer(question)

    def _complete(self, recorded: Recorded, submit: Submit) -> Request:
        """The request of a submission, with the rule by which its last run may end early."""
        if submit.because is not None:
            self._chose_by = submit.because
        request, run_dir = submit.request, self.scope.run_dir
        if not isinstance(request, TrialRequest):
            return request
        judging, rule = recorded.on(submit.host).judging, None
        if submit.may_stop_early:
            rule = stop_rule(judging, run_dir, request.fill)
        elif submit.alike:
            rule = rule_alike(judging, run_dir, request.commit.sha)
        elif submit.clear_of:
            rule = rule_clear_of(judging, run_dir, submit.clear_of)
        return replace(request, stop=rule)


def scope_of(
    git: GitSide, store: Store, settings: Settings, skips: tuple[str, ...], crew: Crew, *, aim: Aim = Aim.ANSWER
) -> Scope:
    """The scope of a process that begins now; a person knows the commits of the hashes ``skips`` to be untestable."""
    trials = store.trials()
    weighs = aim is Aim.ANSWER and settings.bisect.strategy is Strategy.BAYES
    return Scope(
        wanted=git.wanted,
        settings=settings,
        run_dir=store.path.parent,
        skips=skips,
        bases=git.bisect.bases,
        search_range=SearchRange.of(git.repository, git.wanted, settings.bisect.suspects) if weighs else None,
        forgiven=trials[-1][0] if trials else 0,
        aim=aim,
        crew=crew,
    )
