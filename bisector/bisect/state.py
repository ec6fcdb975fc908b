"""All that the step of a bisection decides by, and what it may ask of the repository, a build or the host; values."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Self, TypeVar, cast

from bisector.analysis.judgement import Judgement, Numbered, Untestable
from bisector.analysis.verdicts import Judging, host_of
from bisector.campaign.instructions import Crew, Question, Submit, Transient
from bisector.config import RetryPolicy, Settings
from bisector.core.events import Event
from bisector.core.subject import Commit, Compiler, Kernel, Kind, Mattering, NotChanged, Relevance, Subject
from bisector.core.trial import Control, Trial
from bisector.core.verdict import Terms, Verdict
from bisector.executor.base import BuildRequest
from bisector.git.bisect import Contradiction
from bisector.git.bisect import Step as Proposal
from bisector.git.ranges import Range, SearchRange
from bisector.git.trees import CannotBeHad
from bisector.search.noise import EarlierSearches
from bisector.search.readings import SearchFacts as Readings
from bisector.status.conclusion import Standing
from bisector.status.evidence import Case, Known
from bisector.store.comparison import Budget
from bisector.store.facts import BuildTry, KernelCheck
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest

T = TypeVar("T")


@dataclass(frozen=True)
class CommitsOf(Question[tuple[Commit, ...]]):
    """The commits of these hashes."""

    shas: tuple[str, ...]


@dataclass(frozen=True)
class ParentsOf(Question[Mapping[str, tuple[str, ...]]]):
    """The hashes of the parents of each of these commits, as far as the bisection follows them."""

    shas: tuple[str, ...]


@dataclass(frozen=True)
class Installed(Question[tuple[Compiler, ...]]):
    """What kernels can be built with here, as the settings ask for, the preferred one first."""


@dataclass(frozen=True)
class ParentWithSameKernel(Question[Commit | None]):
    """A parent of a commit with this kernel that surely has it, too."""

    commit: Commit
    kernel: Kernel


@dataclass(frozen=True)
class WhatMatters(Question[Mattering | None]):
    """Which commits of the range can matter, given the kernels of its ends."""

    old: Kernel
    new: Kernel


@dataclass(frozen=True)
class KeptKernels(Question[frozenset[str]]):
    """The hashes of the commits of the range of which a kernel is kept, made by one of these compilers."""

    compilers: tuple[Compiler, ...]


@dataclass(frozen=True)
class ChangedEnd(Question[Commit | CannotBeHad]):
    """An end without a commit, or with it."""

    kind: Kind
    commit: Commit
    end: Commit


@dataclass(frozen=True)
class ShowGit(Question["GitState"]):
    """Make git's bisection hold these skips and verdicts under these terms, and no others.

    With ``proposes``, ask what it makes of it. Unlike other answers this one holds only until git is shown something
    else.
    """

    terms: Terms
    skips: tuple[str, ...]
    verdicts: tuple[tuple[str, Verdict], ...]
    proposes: bool = False
    tell: tuple[Event, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class GitState:
    """What git's bisection was made to hold, and what it made of that, if it was asked."""

    shown: ShowGit
    says: Proposal | Contradiction | None


@dataclass(frozen=True)
class LeftInRange(Question[tuple[str, ...]]):
    """The hashes of the commits that git has left, whatever paths they touch, by what it was shown."""

    shown: ShowGit


class Unanswered(Exception):
    """The step needs the answer to a question that nobody has asked yet."""

    def __init__(self, question: Question[object]) -> None:
        super().__init__(question)
        self.question = question


class Aim(StrEnum):
    """What a process is to come to: an answer, both ends measured, or the disks alone."""

    ANSWER = "answer"
    ENDS = "ends"
    BASELINES = "baselines"


@dataclass(frozen=True, slots=True)
class Scope:
    """What is asked for, and what does not change while a process lasts.

    ``skips`` are the hashes a person knows to be untestable, ``bases`` those of the commits that both ends have and
    that are not the old end. ``search_range`` is the range as the posterior sees it, where readings are weighed.
    A weak trial up to the number ``forgiven`` is no reason (any more) to give up its commit: its host may have been
    busy, and this process tries it again.
    """

    wanted: Range
    settings: Settings
    run_dir: Path
    skips: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    search_range: SearchRange | None = None
    forgiven: int = 0
    aim: Aim = Aim.ANSWER
    crew: Crew = field(default_factory=Crew)

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
    """The record as of one moment. What follows from it is found when it is first asked for, and kept.

    ``built`` are the hashes of the commits of which there was a kernel on any host.
    """

    scope: Scope
    trials: tuple[Numbered, ...] = ()
    baselines: tuple[Numbered, ...] = ()
    controls: tuple[Control, ...] = ()
    next_n: int = 1
    compilers: tuple[Compiler, ...] = ()
    build_tries: tuple[BuildTry, ...] = ()
    relevance: Relevance | None = None
    mattering: frozenset[str] | None = None
    not_changed: tuple[NotChanged, ...] = ()
    budget: Budget | None = None
    spent_s: float = 0.0
    earlier: EarlierSearches = field(default_factory=EarlierSearches)
    built: frozenset[str] = frozenset()
    kernel_checks: tuple[KernelCheck, ...] = ()

    @classmethod
    def of(cls, scope: Scope, store: Store) -> Self:
        """What a store holds now."""
        trials, tries = store.trials(), store.facts(BuildTry)
        built = {one.sha for one in tries if not one.reason}
        return cls(
            scope,
            trials,
            store.baselines(),
            store.controls(),
            store.next_n,
            store.compilers(),
            tries,
            store.relevance(),
            store.mattering(),
            store.facts(NotChanged),
            next(reversed(store.facts(Budget)), None),
            store.spent_s(),
            store.earlier(),
            frozenset(built | {trial.commit.sha for _, trial in trials if trial.kernel is not None}),
            store.facts(KernelCheck),
        )

    @property
    def left_s(self) -> float:
        """For how long it may still be measured."""
        return math.inf if self.budget is None else self.budget.end_s - self.spent_s

    @cached_property
    def judging(self) -> Judging:
        """All verdicts."""
        old, new = self.scope.ends
        return Judging(self.scope.settings, self.trials, old.sha, new.sha, forgiven=self.scope.forgiven)

    @cached_property
    def judged(self) -> tuple[tuple[int, Trial, Judgement], ...]:
        """Every trial with what it says by itself."""
        return tuple(self.judging.judged_trials())

    def home(self, host: str) -> str:
        """With which trials the next one of a host can be compared: it is taken to be as in its last one."""
        return next((host_of(trial) for _, trial in reversed(self.trials) if trial.host == host), host)

    def on(self, host: str) -> "Recorded":
        """The same with the trials of one host alone, since it is as it is now."""
        home = self.home(host)
        if all(host_of(trial) == home for _, trial in self.trials):
            return self
        if home not in self._hosts:
            own = tuple((n, trial) for n, trial in self.trials if host_of(trial) == home)
            self._hosts[home] = replace(self, trials=own)
        return self._hosts[home]

    @cached_property
    def _hosts(self) -> dict[str, "Recorded"]:
        return {}

    def standing(self, kept: frozenset[str], host: str, in_flight: tuple[Subject, ...]) -> Standing:
        """What all readings say of the range, of which some kernels are kept, for a trial on a host beside others."""
        if (key := (kept, host, in_flight)) not in self._standings:
            if self.scope.search_range is None:
                raise RuntimeError("a strategy that weighs nothing asks for the posterior")
            known = Known(
                self.scope.skips,
                self.mattering,
                self.not_changed,
                self.scope.bases,
                self.earlier,
                left_s=self.left_s,
                kept=kept,
                in_flight=in_flight,
                host=host,
            )
            self._standings[key] = Standing(Case(self.scope.search_range, self.judging, known))
        return self._standings[key]

    @cached_property
    def _standings(self) -> dict[tuple[frozenset[str], str, tuple[Subject, ...]], Standing]:
        return {}

    def is_skipped(self, sha: str) -> bool:
        """Whether a commit is not to be measured any more for what its trials ended in."""
        return isinstance(self.judging.settlement(sha), Untestable)

    def was_tried(self, sha: str) -> bool:
        """Whether there is a trial of it."""
        return any(trial.commit.sha == sha for _, trial in self.trials)


@dataclass(frozen=True, slots=True)
class BisectState:
    """Everything that there is to decide by.

    ``git`` is what git was shown last, and ``chose_by`` are the readings by which the search chose last. ``hosts`` are
    those that are there and not excluded, and ``host`` the one that is asked for.
    """

    scope: Scope
    recorded: Recorded
    transient: Transient = field(default_factory=Transient)
    git: GitState | None = None
    chose_by: Readings | None = None
    hosts: tuple[str, ...] = ()
    host: str = ""

    @property
    def in_flight(self) -> Mapping[int, Submit]:
        """What was submitted and has not ended, by its number."""
        return self.transient.in_flight

    @property
    def is_shared(self) -> bool:
        """Whether several hosts share the search."""
        return len(self.hosts) > 1

    @property
    def home(self) -> str:
        """The host as it is now (:func:`bisector.analysis.verdicts.host_of`)."""
        return self.recorded.home(self.host)

    @property
    def here(self) -> "BisectState":
        """The same with the trials of this host alone: figures of two hosts, or of two eras, are never compared."""
        return self.on(self.host)

    def on(self, host: str) -> "BisectState":
        """The same with the trials of one host alone, which is asked for."""
        own = self.recorded.on(host)
        return self if own is self.recorded and host == self.host else replace(self, recorded=own, host=host)

    @property
    def failures(self) -> int:
        """How many attempts have failed on this host since it last finished one."""
        return len(self.transient.failures.get(self.host, ()))

    def is_in_flight(self, sha: str, host: str = "") -> bool:
        """Whether a trial of a commit is under way, on one host or on any."""
        return any(
            isinstance(one.request, TrialRequest) and one.request.commit.sha == sha and host in ("", one.host)
            for one in self.in_flight.values()
        )

    @property
    def builds_in_flight(self) -> Mapping[int, Commit]:
        """The commits whose kernels are being built and not measured, and are wanted still, by submission."""
        if not self.recorded.compilers:  # then it is found out which compiler builds the ends
            return {}
        return {
            id_: one.request.commit
            for id_, one in self.in_flight.items()
            if isinstance(one.request, BuildRequest)
            and one.request.measured is None
            and id_ not in self.transient.cancelled
        }

    def is_being_built(self, sha: str) -> bool:
        """Whether the kernel of a commit is about to be there: it is being built, and nothing else."""
        return any(commit.sha == sha for commit in self.builds_in_flight.values())

    @property
    def without_builds(self) -> "BisectState":
        """The same as if no kernel were being built that is not measured."""
        builds = self.builds_in_flight
        in_flight = {id_: one for id_, one in self.in_flight.items() if id_ not in builds}
        return replace(self, transient=replace(self.transient, in_flight=in_flight))

    @property
    def subjects_in_flight(self) -> tuple[Subject, ...]:
        """What the search has under way, measured or built for it: neither ends, nor the disks alone.

        A kernel that another host is building is chosen when it is there: until then, others tell more beside it. On
        this host a trial of it has the kernel sooner than one of another commit.
        """
        found, search_range = list[Subject](), self.scope.search_range
        builds = {} if self.scope.crew.builds_here or search_range is None else self.builds_in_flight
        for id_, one in self.in_flight.items():
            if id_ in self.transient.cancelled or one.request.commit in self.scope.ends:
                continue
            if isinstance(one.request, TrialRequest):
                found.append(one.request.cell.subject)
            elif search_range is not None and id_ in builds and builds[id_].sha in search_range.numbers:
                found.append(Subject(builds[id_]))
        return tuple(found)

    @property
    def judging(self) -> Judging:
        """All verdicts."""
        return self.recorded.judging

    @property
    def standing(self) -> Standing:
        """What all readings say of the range, and what a trial takes."""
        host = self.home if len(self.judging.hosts) > 1 else ""
        return self.recorded.standing(self.kept, host, self.subjects_in_flight)

    @property
    def kept(self) -> frozenset[str]:
        """The hashes of commits whose kernels need no build: of the range as it began, and all that was built since."""
        soon = [one.sha for one in self.builds_in_flight.values()] if self.scope.crew.builds_here else []
        return self.answer(KeptKernels(self.recorded.compilers)).union(self.recorded.built, soon)

    @property
    def words(self) -> tuple[str, str]:
        """What the ends are called, which may follow from what they measure."""
        return self.judging.terms.old, self.judging.terms.new

    def answer(self, question: Question[T]) -> T:
        """The answer to a question; raises :class:`Unanswered` when it has not been asked."""
        if question not in self.transient.answers:
            raise Unanswered(question)
        return cast("T", self.transient.answers[question])

    def commit(self, sha: str) -> Commit:
        """The commit of a hash."""
        found = next((end for end in self.scope.ends if end.sha == sha), None)
        return found or self.answer(CommitsOf((sha,)))[0]

    def commits(self, shas: Iterable[str]) -> tuple[Commit, ...]:
        """The commits of hashes."""
        wanted = tuple(shas)
        return self.answer(CommitsOf(wanted)) if wanted else ()

    def parent_with_same_kernel(self, commit: Commit) -> Commit | None:
        """A parent that surely has the kernel that was built of a commit."""
        kernel = self.judging.kernel_of(commit.sha)
        return self.answer(ParentWithSameKernel(commit, kernel)) if kernel is not None else None
