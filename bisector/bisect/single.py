"""Commits measured outside of any search: their trials are facts in a store of their own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

from bisector.analysis.judgement import Again, Numbered, Settlement
from bisector.analysis.verdicts import Judging
from bisector.bisect.session import clean_up
from bisector.campaign.equipment import Equip, Equipment
from bisector.campaign.instructions import again_note
from bisector.config import RetryPolicy, Settings, options
from bisector.core.errors import AttemptFailed, AttemptLost, BisectorError, UserError
from bisector.core.events import Listener, Planned, TrialJudged
from bisector.core.subject import Cell, Commit, Subject
from bisector.core.trial import Trial
from bisector.executor.base import Executor, Failed, Finished, Job, Progress, of_its_job
from bisector.git.repository import Repository
from bisector.status.view import TrialView
from bisector.store.facts import Ended, Ending, Fact, InfraFault, NumberedTrial, RunHeader, Submitted, Work
from bisector.store.log import now
from bisector.store.run_files import compared, fingerprint
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest

T = TypeVar("T")
_ELSEWHERE = "choose another --run-dir, or none"


@dataclass(frozen=True, slots=True)
class Single:
    """A store of single commits that is open for more, the repository, and the settings that all are measured with."""

    run: RunDirectory
    store: Store
    repository: Path
    settings: Settings

    @classmethod
    @contextmanager
    def open(cls, run: RunDirectory, repository: Repository, settings: Settings) -> Iterator[Self]:
        """The store of a run directory, made where there is none, with settings whose input files are kept there.

        The directory is locked by the caller. What a process that is gone measured here is lost; of what it had
        submitted to other hosts something may come (:func:`heard`).
        """
        if not run.database.exists():
            with Store.create(run.database, RunHeader.of(settings, repository.top)) as store:
                yield cls(run, store, repository.top, settings)
            return
        with Store.open(run.database) as store:
            clean_up(run, store)
            if lost := [Ended(one.id, Ending.LOST) for one in store.in_flight() if not one.submitted.host]:
                store.add(*lost)
            yield cls(run, store, repository.top, settings)

    def measure(self, commit: Commit, tell: Listener, equip: Equip) -> tuple[TrialView, Judging]:
        """One trial of a commit, on record when this returns, and all trials of the store, seen together.

        Raises :class:`AttemptFailed` for trouble of the tool or the host, which is on record, too.
        """
        with (
            Repository.open(self.repository, run_marker=self.run.path) as marked,
            equip(self.settings, self.run.path, marked, tell) as equipment,
        ):
            heard(self.store, equipment, tell)
            n = self.store.next_n
            tell(Planned(n, commit, "test", 0, 0))
            request = TrialRequest(n, Cell(Subject(commit), self.settings.setup), {})
            attempt(self.store, equipment.executor, request, tell)
        return self._seen(n, tell)

    def _seen(self, n: int, tell: Listener) -> tuple[TrialView, Judging]:
        judging = Judging(self.settings, self.store.trials())
        trial, judgement = next((trial, judgement) for m, trial, judgement in judging.judged_trials() if m == n)
        tell(
            TrialJudged(n, trial, judgement.verdict, judgement.why, judging.terms, judging.objective, judging.direction)
        )
        judging.check_metric(trial.commit.sha)
        return TrialView(n, trial, judgement.verdict, judgement.why, value=judging.value(trial)), judging


def attempt(store: Store, executor: Executor, request: TrialRequest, tell: Listener, host: str = "") -> Trial:
    """A trial on a host, if one is named; it is on record when this returns, with the end of its submission.

    Raises what it failed with, which is on record, too. On another host one that is interrupted here goes on, and is
    heard by the next process.
    """
    id_ = store.add(Submitted(Work.TRIAL, request.commit.sha, request.n, host))
    try:
        executor.submit(Job(id_, request), host)
    except BisectorError:
        store.add(Ended(id_, Ending.FAILED))
        raise
    while (news := next_end(store, executor, tell)).id != id_:
        pass
    if isinstance(news, Failed):
        raise news.error
    return next(trial for n, trial in store.trials() if n == request.n)


def heard(store: Store, equipment: Equipment, tell: Listener) -> tuple[Numbered, ...]:
    """The trials that come of what an earlier process has submitted to other hosts; each is waited for.

    What the executor does not hear of is lost.
    """
    known = {n for n, _ in store.trials()}
    left = {one.id for one in store.in_flight()}
    if gone := left - {*equipment.adopted}:
        store.add(*(Ended(id_, Ending.LOST) for id_ in sorted(gone)))
    left -= gone
    while left:
        left.discard(next_end(store, equipment.executor, tell).id)
    return tuple((n, trial) for n, trial in store.trials() if n not in known)


def next_end(store: Store, executor: Executor, tell: Listener) -> Finished | Failed:
    """The next end of any trial that was submitted, of this process or not, late or not; it is on record by then."""
    while isinstance(news := executor.next(), Progress):
        tell(news.event)
    under_way = {one.id: one.submitted for one in store.in_flight()}
    submitted = (under_way | {one.id: one.submitted for one in store.silent()}).get(news.id)
    if submitted is not None:
        news = of_its_job(news, submitted.n, submitted.sha)
    if facts := tuple(_facts(submitted, news, under_way=news.id in under_way)):
        store.add(*facts)
    executor.acknowledge(news.id)
    return news


def _facts(submitted: Submitted | None, news: Finished | Failed, *, under_way: bool) -> Iterator[Fact]:
    """A trial is that of the host as the executor knows it: by that name its figures are compared with others."""
    match submitted, news:
        case Submitted(n=int(n)), Finished(result=Trial() as trial, host=host):
            yield NumberedTrial(n, replace(trial, host=host))
        case Submitted(sha=sha), Failed(error=AttemptFailed() as error, at=at) if under_way:
            yield InfraFault(at, sha, error.stage, error.host, str(error))
    if under_way:
        yield Ended(news.id, _ending(news))


def _ending(news: Finished | Failed) -> Ending:
    if isinstance(news, Finished):
        return Ending.DONE
    return Ending.SILENT if isinstance(news.error, AttemptLost) else Ending.FAILED


def settings_for(run: RunDirectory, repository: Repository, settings: Settings, *, given: bool) -> Settings:
    """The settings to measure with in a run directory: those on record in it, whose input files are kept, if any are.

    Raises :class:`UserError` for one that holds something else than single commits of this repository, or was measured
    with other settings than those that are ``given``.
    """
    if not run.database.exists():
        return settings
    with Store.open(run.database, readonly=True) as store:
        asked, by_others, compared_there = store.bisection(), store.by_others, store.plan is not None
    if asked.has_ends or by_others or compared_there or asked.repository is None:
        what = "an import" if by_others else "a comparison" if compared_there else "a bisection"
        raise UserError(f"{run.path} is {what}; a single trial needs a run directory of its own", _ELSEWHERE)
    if asked.repository != repository.top:
        raise UserError(f"{run.path} holds trials of commits of {asked.repository}", _ELSEWHERE)
    recorded = options.from_json(asked.settings)
    if given and fingerprint(recorded) != fingerprint(settings):
        told = ", ".join(_otherwise(recorded, settings)) or "an input file has changed"
        raise UserError(f"{run.path} was measured with other settings: {told}", _ELSEWHERE)
    return recorded


def _otherwise(recorded: Settings, settings: Settings) -> Iterator[str]:
    before, now = compared(recorded), compared(settings)
    for key in {**before, **now}:  # of two stacks, either may have disks that the other has not
        was, is_now = before.get(key, ""), now.get(key, "")
        if was != is_now:
            yield f"{key} was {options.shown(was)}, and is {options.shown(is_now)}"


@dataclass(frozen=True, slots=True)
class Attempts:
    """Attempts at trials of which nothing is derived but their own figures, on a host, if one is named.

    Each is on record in ``store``; those that fail go to ``record``, too. Those that were ``heard`` of an earlier
    process count like its own.
    """

    store: Store
    executor: Executor
    record: Callable[[InfraFault], None]
    tell: Listener
    pause: Callable[[float], None]
    policy: RetryPolicy
    host: str = ""
    heard: tuple[Numbered, ...] = ()

    def of(self, commit: Commit) -> tuple[Numbered, ...]:
        """The trials of a commit that were heard, as far as they are of the same host."""
        alike = (commit.sha, self.host)
        return tuple((n, one) for n, one in self.heard if (one.commit.sha, one.host) == alike)

    def at(self, request: TrialRequest) -> Numbered:
        """The trial, and its number, which is the next one at each attempt.

        Raises the :class:`AttemptFailed` of the last attempt when all fail, anything else at once.
        """
        return patiently(lambda: self._once(request), self.tell, self.pause, self.policy)

    def _once(self, request: TrialRequest) -> Numbered:
        n = self.store.next_n
        try:
            return n, attempt(self.store, self.executor, replace(request, n=n), self.tell, self.host)
        except AttemptFailed as error:
            self.record(InfraFault(now(), request.commit.sha, error.stage, error.host, str(error)))
            raise


def patiently(attempt: Callable[[], T], tell: Listener, pause: Callable[[float], None], policy: RetryPolicy) -> T:
    """What an attempt comes to; it is made again after each that failed by no fault of its commit.

    Raises the :class:`AttemptFailed` of the last attempt when all fail, anything else at once.
    """
    failed = 0
    while True:
        try:
            return attempt()
        except AttemptFailed as error:
            failed += 1
            if (wait_s := policy.wait_s(failed)) is None:
                raise
            tell(again_note(wait_s, error))
            pause(wait_s)


@dataclass(frozen=True, slots=True)
class Settled:
    """What the trials of a commit amount to; they are numbered."""

    trials: tuple[Numbered, ...]
    settlement: Settlement


def settle(settings: Settings, commit: Commit, attempts: Attempts, purpose: str) -> Settled:
    """Measure a commit as often as the loop over commits would: once, unless the evidence is weak.

    Each trial is on record before anything is concluded from it; earlier ones of the commit do not count, unless they
    were under way when this process began.

    Raises :class:`AttemptFailed` when an infrastructure error stays, and :class:`bisector.core.errors.UserError` when a
    sound run has no value that can decide: no other run has one.
    """
    trials = attempts.of(commit)
    if trials:
        _tell_of(trials, settings, attempts.tell)
    while isinstance(found := Judging(settings, trials).settlement(commit.sha), Again):
        n = attempts.store.next_n
        attempts.tell(Planned(n, commit, f"{purpose}, again: {found.why}" if trials else purpose, 0, 0))
        request = TrialRequest(n, Cell(Subject(commit), settings.setup), {}, again=bool(trials))
        n, trial = attempts.at(request)
        trials = (*trials, (n, trial))
        _tell_of(trials, settings, attempts.tell)
    return Settled(trials, found)


def _tell_of(trials: tuple[Numbered, ...], settings: Settings, tell: Listener) -> None:
    """What the last one came to; raises :class:`bisector.core.errors.UserError` where no run has the metric."""
    judging = Judging(settings, trials)
    *_, (n, trial, judgement) = judging.judged_trials()
    tell(TrialJudged(n, trial, judgement.verdict, judgement.why, judging.terms, judging.objective, judging.direction))
    judging.check_metric(trial.commit.sha)
