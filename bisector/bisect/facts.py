"""All that the step decides by: what was asked for, what is on record, and what this process has heard.

What was heard is no loss when the process is killed: it is asked for, or tried, anew. A trial is asked for with what
the record has of its commit and of equal kernels (:func:`measure`).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Self, TypeVar, cast

from bisector.analysis import kernels
from bisector.analysis.judgement import Again, Judgement, Measured, Numbered, Untestable
from bisector.analysis.settled import rule_for
from bisector.analysis.verdicts import Judging
from bisector.bisect.instructions import Attempt, CommitsOf, KeptKernels, Outlook, Question, ShowGit, Submit, Tell
from bisector.config import RetryPolicy, Settings
from bisector.core.events import Note, Planned
from bisector.core.subject import Cell, Commit, Compiler, NotChanged, Relevance, Subject
from bisector.core.trial import Control, Fill, Trial
from bisector.git.bisect import Contradiction
from bisector.git.bisect import Step as Proposal
from bisector.git.ranges import Ground, Range
from bisector.search.noise import Earlier
from bisector.search.readings import Facts as Readings
from bisector.status.conclusion import Standing
from bisector.status.evidence import Case, Known
from bisector.store.comparison import Budget
from bisector.store.facts import BuildTry, InFlight
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest

T = TypeVar("T")


class Aim(StrEnum):
    """What a process is to come to: an answer, both ends measured, or the disks alone."""

    ANSWER = "answer"
    ENDS = "ends"
    BASELINES = "baselines"


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked for, and what does not change while a process lasts.

    ``skips`` are the hashes a person knows to be untestable, ``bases`` those of the commits that both ends have and
    that are not the old end. ``ground`` is the range as the posterior sees it, for the strategy that weighs readings.
    A weak trial up to the number ``forgiven`` is no reason (any more) to give up its commit: its host may have been
    busy, and this process tries it again.
    """

    wanted: Range
    settings: Settings
    run_dir: Path
    skips: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    ground: Ground | None = None
    forgiven: int = 0
    aim: Aim = Aim.ANSWER

    @property
    def policy(self) -> RetryPolicy:
        """How often something is tried before it is believed or given up."""
        return self.settings.retries

    @property
    def ends(self) -> tuple[Commit, Commit]:
        """The old end and the new one."""
        return self.wanted.old, self.wanted.new


@dataclass(frozen=True)
class Recorded:
    """The record as of one moment. What follows from it is found when it is first asked for, and kept."""

    task: Task
    trials: tuple[Numbered, ...]
    baselines: tuple[Numbered, ...]
    controls: tuple[Control, ...]
    in_flight: tuple[InFlight, ...]
    next_n: int
    compilers: tuple[Compiler, ...]
    build_tries: tuple[BuildTry, ...]
    relevance: Relevance | None
    mattering: frozenset[str] | None
    not_changed: tuple[NotChanged, ...]
    budget: Budget | None = None
    spent_s: float = 0.0
    again: Mapping[str, float] = field(default_factory=dict)
    earlier: Earlier = field(default_factory=Earlier)

    @classmethod
    def of(cls, task: Task, store: Store) -> Self:
        """What a store holds now."""
        return cls(
            task,
            store.trials(),
            store.baselines(),
            store.controls(),
            store.in_flight(),
            store.next_n,
            store.compilers(),
            store.build_tries(),
            store.relevance(),
            store.mattering(),
            store.not_changed(),
            next(reversed(store.budgets()), None),
            store.spent_s(),
            store.again(),
            store.earlier(),
        )

    @property
    def left_s(self) -> float:
        """For how long it may still be measured."""
        return math.inf if self.budget is None else self.budget.end_s - self.spent_s

    @cached_property
    def judging(self) -> Judging:
        """All verdicts."""
        old, new = self.task.ends
        return Judging(self.task.settings, self.trials, old.sha, new.sha, forgiven=self.task.forgiven)

    @cached_property
    def judged(self) -> tuple[tuple[int, Trial, Judgement], ...]:
        """Every trial with what it says by itself."""
        return tuple(self.judging.judged_trials())

    def standing(self, kept: frozenset[str]) -> Standing:
        """What all readings say of the range, of which some kernels are kept."""
        if kept not in self._standings:
            if self.task.ground is None:
                raise RuntimeError("a strategy that weighs nothing asks for the posterior")
            known = Known(
                self.task.skips,
                self.mattering,
                self.not_changed,
                self.task.bases,
                self.earlier,
                left_s=self.left_s,
                kept=kept,
                again=self.again,
            )
            self._standings[kept] = Standing(Case(self.task.ground, self.judging, known))
        return self._standings[kept]

    @cached_property
    def _standings(self) -> dict[frozenset[str], Standing]:
        return {}

    def is_skipped(self, sha: str) -> bool:
        """Whether a commit is not to be measured any more for what its trials ended in."""
        return isinstance(self.judging.settlement(sha), Untestable)

    def was_tried(self, sha: str) -> bool:
        """Whether there is a trial of it."""
        return any(trial.commit.sha == sha for _, trial in self.trials)


@dataclass(frozen=True, slots=True)
class GitState:
    """What git's bisection was made to hold, and what it made of that, if it was asked."""

    shown: ShowGit
    says: Proposal | Contradiction | None


@dataclass(frozen=True, slots=True)
class Heard:
    """What this process has heard since it began.

    ``arrived`` are the ends of submissions that are not on record yet; ``matters`` the attempts of each matter that is
    not over, oldest first. ``chose_by`` is what the search knew when it last chose.
    """

    arrived: tuple[Attempt, ...] = ()
    matters: Mapping[str, tuple[Attempt, ...]] = field(default_factory=dict)
    answers: Mapping[Question[object], object] = field(default_factory=dict)
    git: GitState | None = None
    told: frozenset[str] = frozenset()
    chose_by: Readings | None = None


class Unanswered(Exception):
    """The step needs the answer to a question that nobody has asked yet."""

    def __init__(self, question: Question[object]) -> None:
        super().__init__(question)
        self.question = question


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that there is to decide by."""

    task: Task
    recorded: Recorded
    heard: Heard = field(default_factory=Heard)

    @property
    def judging(self) -> Judging:
        """All verdicts."""
        return self.recorded.judging

    @property
    def standing(self) -> Standing:
        """What all readings say of the range, and what a trial takes."""
        return self.recorded.standing(self.answer(KeptKernels(self.recorded.compilers)))

    @property
    def words(self) -> tuple[str, str]:
        """What the ends are called, which may follow from what they measure."""
        return self.judging.terms.old, self.judging.terms.new

    def answer(self, question: Question[T]) -> T:
        """The answer to a question; raises :class:`Unanswered` when it has not been asked."""
        if question not in self.heard.answers:
            raise Unanswered(question)
        return cast("T", self.heard.answers[question])

    def commit(self, sha: str) -> Commit:
        """The commit of a hash."""
        found = next((end for end in self.task.ends if end.sha == sha), None)
        return found or self.answer(CommitsOf((sha,)))[0]

    def commits(self, shas: Iterable[str]) -> tuple[Commit, ...]:
        """The commits of hashes."""
        wanted = tuple(shas)
        return self.answer(CommitsOf(wanted)) if wanted else ()


def measure(
    facts: Facts,
    subject: Subject,
    purpose: str,
    outlook: Outlook,
    *,
    whole: bool = False,
    because: Readings | None = None,
    fill: Fill | None = None,
    clear_of: Iterable[str] = (),
) -> Submit:
    """One trial on the setup of the search.

    Its runs are not stopped early if it is ``whole``, or of an end, of which the line is; a whole one may be once it
    is ``clear_of`` the run of one of these commits, too, and that of an end with a short fill once it is like its whole
    run. Without a ``fill`` to use, the short one is used where it is
    harmless and the trial is not whole.
    """
    commit, judging, recorded = subject.commit, facts.judging, facts.recorded
    cell = Cell(subject, facts.task.settings.setup)
    whole = whole or commit in facts.task.ends
    if fill is None:
        may_be_short = not whole and rule_for(facts.task.settings) is not None and judging.short_fill.harmless
        fill = Fill.SHORT if may_be_short else Fill.WHOLE
    # A kernel that has its figures and is asked for again is not to be told that it has them.
    known = isinstance(judging.settlement(commit.sha), Measured)
    others = kernels.measured_whole(judging) if whole else kernels.measured(judging)
    # What is known of a build that is doubted is not believed either.
    anew = any(one.doubted and one.kernel is None for _, one in judging.trials if one.commit.sha == commit.sha)
    again = recorded.was_tried(commit.sha)
    n = recorded.next_n
    return Submit(
        TrialRequest(n, cell, {} if known else others, recorded.compilers, again=again, anew=anew, fill=fill),
        f"trial {commit.sha}",
        tell=(_planned(facts, commit, purpose, outlook),),
        may_stop_early=not whole,
        clear_of=tuple(clear_of) if commit not in facts.task.ends else (),
        alike=commit in facts.task.ends and fill is Fill.SHORT,
        because=because,
    )


def once(facts: Facts, key: str, note: Note) -> Tell | None:
    """Tell it, unless that was done."""
    return None if key in facts.heard.told else Tell((note,), (key,))


def _planned(facts: Facts, commit: Commit, purpose: str, outlook: Outlook) -> Planned:
    again = facts.judging.since(commit.sha)
    why = ""
    if facts.recorded.was_tried(commit.sha):
        why = f"again: {again.why}" if isinstance(again, Again) else "once more"
    text = ", ".join(filter(None, (purpose, why)))
    n = facts.recorded.next_n
    return Planned(n, commit, text, outlook.candidates, outlook.trials_left, outlook.probability)
