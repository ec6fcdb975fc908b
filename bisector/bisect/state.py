"""The values by which the step of a bisection decides, and its questions to the repository, a build or the host."""

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
from bisector.config import Settings
from bisector.core.events import Event
from bisector.core.subject import Commit, Compiler, Kernel, Kind, Mattering, NotChanged, Relevance, Subject
from bisector.core.trial import Control, Trial
from bisector.core.verdict import SideWords, Verdict
from bisector.executor.base import BuildRequest
from bisector.git.bisect import Contradiction
from bisector.git.bisect import Step as Proposal
from bisector.git.ranges import Range, SearchRange
from bisector.git.trees import CannotBeHad
from bisector.search.graph import SearchFacts
from bisector.search.noise import EarlierSearches
from bisector.status.conclusion import SearchState
from bisector.status.evidence import Case, Known
from bisector.store.facts import Budget, BuildTry, KernelCheck
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest

T = TypeVar("T")


@dataclass(frozen=True)
class CommitsOf(Question[tuple[Commit, ...]]):
    """The commits of these hashes."""

    shas: tuple[str, ...]


@dataclass(frozen=True)
class ParentsOf(Question[Mapping[str, tuple[str, ...]]]):
    """The hashes of each commit's parents; the first parent alone if the bisection follows no other."""

    shas: tuple[str, ...]


@dataclass(frozen=True)
class Installed(Question[tuple[Compiler, ...]]):
    """The compilers installed here that the settings allow, the preferred one first."""


@dataclass(frozen=True)
class ParentWithSameKernel(Question[Commit | None]):
    """A parent of ``commit`` that surely has the same kernel as ``commit``."""

    commit: Commit
    kernel: Kernel


@dataclass(frozen=True)
class WhatMatters(Question[Mattering | None]):
    """Which commits of the range can matter, given the kernels of its ends."""

    old: Kernel
    new: Kernel


@dataclass(frozen=True)
class KeptKernels(Question[frozenset[str]]):
    """The hashes of the commits of the range whose kernel, made by one of these compilers, is in the cache."""

    compilers: tuple[Compiler, ...]


@dataclass(frozen=True)
class ChangedEnd(Question[Commit | CannotBeHad]):
    """An end with a commit reverted or picked, as a commit."""

    kind: Kind
    commit: Commit
    end: Commit


@dataclass(frozen=True)
class ShowGit(Question["GitState"]):
    """Make git's bisection hold exactly these skips and verdicts, under these terms.

    With ``proposes``, also ask git for its next step. Unlike other answers, this one is valid only until git is shown
    something else.
    """

    terms: SideWords
    skips: tuple[str, ...]
    verdicts: tuple[tuple[str, Verdict], ...]
    proposes: bool = False
    tell: tuple[Event, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class GitState:
    """The verdicts that git's bisection holds, and its next step or contradiction; None if it was not asked."""

    shown: ShowGit
    says: Proposal | Contradiction | None


@dataclass(frozen=True)
class LeftInRange(Question[tuple[str, ...]]):
    """The hashes of the commits that git still has in range after ``shown``, whatever paths they touch."""

    shown: ShowGit


class Unanswered(Exception):
    """The step needs the answer to a question that was not asked yet."""

    def __init__(self, question: Question[object]) -> None:
        super().__init__(question)
        self.question = question


class Aim(StrEnum):
    """What a process works for: an answer, both ends measured, or the baselines."""

    ANSWER = "answer"
    ENDS = "ends"
    BASELINES = "baselines"


@dataclass(frozen=True, slots=True)
class Scope:
    """What is asked for; constant while a process lasts.

    A person knows the commits of the hashes ``skips`` to be untestable; ``bases`` are the hashes of the ends' merge
    bases other than the old end. ``search_range`` is the range as the posterior sees it, None if readings are not
    weighed. A weak trial up to the number ``forgiven`` does not count towards giving up its commit: its host may have
    been busy, so this process tries the commit again.
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
    def ends(self) -> tuple[Commit, Commit]:
        """The old end and the new end."""
        return self.wanted.old, self.wanted.new


@dataclass(frozen=True)
class Recorded:
    """The record as of one moment; conclusions from it are computed on first use and kept.

    ``built`` are the hashes of the commits whose kernel was built on any host, and ``worked`` those of the ends that
    were measured on one.
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
    worked: frozenset[str] = frozenset()
    _of_hosts: dict[str, Self] = field(default_factory=dict, init=False, repr=False, compare=False)
    _states: dict[object, SearchState] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, scope: Scope, store: Store) -> Self:
        """The present contents of a store."""
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
            frozenset(one.commit.sha for _, one in trials if one.commit in scope.ends and one.runs and not one.fault),
        )

    @property
    def left_s(self) -> float:
        """The seconds of measuring that the budget has left; infinite if there is no budget."""
        return math.inf if self.budget is None else self.budget.end_s - self.spent_s

    @cached_property
    def judging(self) -> Judging:
        """The verdicts by all trials on record."""
        old, new = self.scope.ends
        return Judging(self.scope.settings, self.trials, old.sha, new.sha, self.scope.forgiven, self.worked)

    @cached_property
    def judged(self) -> tuple[tuple[int, Trial, Judgement], ...]:
        """Every trial with its number and the judgement of it alone."""
        return tuple(self.judging.judged_trials())

    def home(self, host: str) -> str:
        """The key of the trials that a host's next trial can be compared with: host and era of its last trial."""
        return next((host_of(trial) for _, trial in reversed(self.trials) if trial.host == host), host)

    def on(self, host: str) -> Self:
        """The record with the trials of one host in its present era alone."""
        home = self.home(host)
        if all(host_of(trial) == home for _, trial in self.trials):
            return self
        if home not in self._of_hosts:
            own = tuple((n, trial) for n, trial in self.trials if host_of(trial) == home)
            self._of_hosts[home] = replace(self, trials=own)
        return self._of_hosts[home]

    def search_state(self, kept: frozenset[str], host: str, in_flight: tuple[Subject, ...]) -> SearchState:
        """The posterior for a trial on ``host``; ``kept`` commits need no build, ``in_flight`` is under way."""
        if (key := (kept, host, in_flight)) not in self._states:
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
            self._states[key] = SearchState(Case(self.scope.search_range, self.judging, known))
        return self._states[key]

    def is_skipped(self, sha: str) -> bool:
        """Whether the results of a commit's trials make it untestable."""
        return isinstance(self.judging.settlement(sha), Untestable)

    def was_tried(self, sha: str) -> bool:
        """Whether a trial of the commit is on record."""
        return any(trial.commit.sha == sha for _, trial in self.trials)


@dataclass(frozen=True, slots=True)
class BisectState:
    """Everything that the step of a bisection decides by.

    ``git`` is the last known state of git's bisection, and ``chose_by`` the readings by which the search chose last.
    ``hosts`` are connected and not excluded, and ``host`` is the one that the next instruction is for.
    """

    scope: Scope
    recorded: Recorded
    transient: Transient = field(default_factory=Transient)
    git: GitState | None = None
    chose_by: SearchFacts | None = None
    hosts: tuple[str, ...] = ()
    host: str = ""

    @property
    def in_flight(self) -> Mapping[int, Submit]:
        """The submissions that have not ended, by number."""
        return self.transient.in_flight

    @property
    def is_shared(self) -> bool:
        """Whether several hosts share the search."""
        return len(self.hosts) > 1

    @property
    def home(self) -> str:
        """The host with its present era (:func:`bisector.analysis.verdicts.host_of`)."""
        return self.recorded.home(self.host)

    @property
    def here(self) -> "BisectState":
        """The state with the trials of this host alone: figures of two hosts, or of two eras, are never compared."""
        return self.on(self.host)

    def on(self, host: str) -> "BisectState":
        """The state for ``host``, with the trials of that host alone."""
        own = self.recorded.on(host)
        return self if own is self.recorded and host == self.host else replace(self, recorded=own, host=host)

    @property
    def failures(self) -> int:
        """The number of attempts that have failed on this host since it last finished one."""
        return len(self.transient.failures.get(self.host, ()))

    def is_in_flight(self, sha: str, host: str = "") -> bool:
        """Whether a trial of a commit is under way on ``host``, or on any host if ``host`` is empty."""
        return any(
            isinstance(one.request, TrialRequest) and one.request.commit.sha == sha and host in ("", one.host)
            for one in self.in_flight.values()
        )

    @property
    def builds_in_flight(self) -> Mapping[int, Commit]:
        """The commits that are being built without a trial, by submission; cancelled builds and rechecks excepted."""
        if not self.recorded.compilers:  # builds only try compilers until one is settled
            return {}
        return {
            id_: one.request.commit
            for id_, one in self.in_flight.items()
            if isinstance(one.request, BuildRequest)
            and one.request.measured is None
            and id_ not in self.transient.cancelled
        }

    def is_being_built(self, sha: str) -> bool:
        """Whether the kernel of a commit is being built without a trial."""
        return any(commit.sha == sha for commit in self.builds_in_flight.values())

    @property
    def without_builds(self) -> "BisectState":
        """The state as if no build without a trial were in flight."""
        builds = self.builds_in_flight
        in_flight = {id_: one for id_, one in self.in_flight.items() if id_ not in builds}
        return replace(self, transient=replace(self.transient, in_flight=in_flight))

    @property
    def subjects_in_flight(self) -> tuple[Subject, ...]:
        """The subjects that the search has under way, being measured or built; ends, and so baselines, are excepted.

        A commit that another host is building counts as under way: the search chooses it once it is built, and until
        then what tells most beside it. A commit that this host is building does not count: no other is built sooner.
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
        """The verdicts by all trials on record."""
        return self.recorded.judging

    @property
    def search_state(self) -> SearchState:
        """The posterior of the range by all readings, and the decision that follows from it on this host."""
        host = self.home if len(self.judging.hosts) > 1 else ""
        return self.recorded.search_state(self.kept, host, self.subjects_in_flight)

    @property
    def kept(self) -> frozenset[str]:
        """The hashes of commits that need no build: kept at first, built since, or being built ahead on this host."""
        soon = [one.sha for one in self.builds_in_flight.values()] if self.scope.crew.builds_here else []
        return self.answer(KeptKernels(self.recorded.compilers)).union(self.recorded.built, soon)

    @property
    def words(self) -> tuple[str, str]:
        """The terms for the old end and the new end, which may follow from their figures."""
        return self.judging.terms.old, self.judging.terms.new

    def answer(self, question: Question[T]) -> T:
        """Return the answer to a question; raises :class:`Unanswered` if it was not asked yet."""
        if question not in self.transient.answers:
            raise Unanswered(question)
        return cast("T", self.transient.answers[question])

    def commit(self, sha: str) -> Commit:
        """Return the commit of a hash."""
        found = next((end for end in self.scope.ends if end.sha == sha), None)
        return found or self.answer(CommitsOf((sha,)))[0]

    def commits(self, shas: Iterable[str]) -> tuple[Commit, ...]:
        """Return the commits of these hashes, in their order."""
        wanted = tuple(shas)
        return self.answer(CommitsOf(wanted)) if wanted else ()

    def parent_with_same_kernel(self, commit: Commit) -> Commit | None:
        """Return a parent that surely has the commit's kernel; None if none is known to, or no kernel was built."""
        kernel = self.judging.kernel_of(commit.sha)
        return self.answer(ParentWithSameKernel(commit, kernel)) if kernel is not None else None
