"""Commits measured outside of any search: their trials are facts in a store of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from bisector.analysis.judgement import Again, Numbered, Settlement
from bisector.analysis.verdicts import Judging
from bisector.campaign.equipment import Equip, Equipment, clean_up
from bisector.campaign.instructions import (
    Done,
    Instruction,
    Notify,
    Submit,
    Transient,
    Wait,
    back_off,
    settled,
)
from bisector.campaign.loop import Loop
from bisector.config import RetryPolicy, Settings, options
from bisector.core.errors import UserError
from bisector.core.events import Listener, Planned, TrialJudged
from bisector.core.subject import Cell, Commit, Subject
from bisector.core.verdict import State
from bisector.git.repository import Repository
from bisector.status.view import TrialView
from bisector.store.facts import RunHeader
from bisector.store.run_files import compared, fingerprint
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest

_ELSEWHERE = "choose another --run-dir, or none"


@dataclass(frozen=True, slots=True)
class SingleState:
    """What there is to decide by: the commit, and its ``trials`` since this process began.

    On ``host``, or on any where none is named. With ``once`` one trial is enough, whatever it is worth, and an attempt
    that fails is not made again.
    """

    settings: Settings
    commit: Commit
    purpose: str
    trials: tuple[Numbered, ...]
    next_n: int
    host: str = ""
    once: bool = False

    @property
    def judging(self) -> Judging:
        """What these trials say by themselves: nothing else is in the same evidence."""
        return Judging(self.settings, self.trials)


def step(known: SingleState, now: Transient) -> Instruction:
    """Measure a commit as often as a search would: once, unless the evidence is weak.

    Raises what the last attempt failed with when none is left, and :class:`UserError` when a sound run has no value
    that can decide: no other run has one.
    """
    commit, judging = known.commit, known.judging
    for attempt in now.arrived:
        return settled(attempt)
    for n, trial, judgement in judging.judged_trials():
        if (key := f"trial {n}") not in now.notified:
            told = TrialJudged(
                n, trial, judgement.verdict, judgement.why, judging.terms, judging.objective, judging.direction
            )
            return Notify((told,), (key,))
    judging.check_metric(commit.sha)
    settlement = judging.settlement(commit.sha)
    is_settled = bool(known.trials) and (known.once or not isinstance(settlement, Again))
    host = known.host or next(iter(now.idle), "")
    if now.in_flight or not (is_settled or host in now.idle):
        return Wait()
    if is_settled:
        return Done(State.MEASURED)
    if (pause := back_off(now, host, RetryPolicy(()) if known.once else known.settings.retries)) is not None:
        return pause
    again = f"{known.purpose}, again: {settlement.why}" if known.trials and isinstance(settlement, Again) else ""
    request = TrialRequest(known.next_n, Cell(Subject(commit), known.settings.setup), {}, again=bool(known.trials))
    planned = Planned(known.next_n, commit, again or known.purpose, 0, 0)
    return Submit(request, f"trial {commit.sha}", (planned,), host)


@dataclass(frozen=True, slots=True)
class Settled:
    """What the trials of a commit amount to; they are numbered."""

    trials: tuple[Numbered, ...]
    settlement: Settlement


@dataclass(slots=True)
class SingleTrials:
    """A process's part of a store of single commits, which measures one after another.

    Trials of before do not count.
    """

    store: Store
    settings: Settings
    equipment: Equipment
    tell: Listener
    _before: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self._before = frozenset(n for n, _ in self.store.trials())

    def settle(self, commit: Commit, purpose: str, host: str = "", *, once: bool = False) -> Settled:
        """Measure a commit; each trial is on record before anything is concluded from it. Raises as :func:`step`."""

        def recorded() -> SingleState:
            new = ((n, trial) for n, trial in self.store.trials() if n not in self._before)
            own = tuple((n, one) for n, one in new if one.commit.sha == commit.sha and host in ("", one.host))
            return SingleState(self.settings, commit, purpose, own, self.store.next_n, host, once)

        told = Transient(notified=frozenset(f"trial {n}" for n, _ in self.store.trials()))
        Loop(self.store, self.equipment, self.tell, recorded, step, transient=told).run()
        found = recorded()
        return Settled(found.trials, found.judging.settlement(commit.sha))


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

        The directory is locked by the caller.
        """
        if not run.database.exists():
            with Store.create(run.database, RunHeader.of(settings, repository.top)) as store:
                yield cls(run, store, repository.top, settings)
            return
        with Store.open(run.database) as store:
            clean_up(run, store)
            yield cls(run, store, repository.top, settings)

    def measure(self, commit: Commit, tell: Listener, equip: Equip) -> tuple[TrialView, Judging]:
        """One trial of a commit, on record when this returns, and all trials of the store, seen together.

        Raises :class:`bisector.core.errors.AttemptFailed` for trouble of the tool or the host, which is on record, too.
        """
        with (
            Repository.open(self.repository, run_marker=self.run.path) as marked,
            equip(self.settings, self.run.path, marked, tell) as equipment,
        ):
            *_, (n, trial) = (
                SingleTrials(self.store, self.settings, equipment, tell).settle(commit, "test", once=True).trials
            )
        judging = Judging(self.settings, self.store.trials())
        judgement = next(one for m, _, one in judging.judged_trials() if m == n)
        return TrialView(n, trial, judgement.verdict, judgement.why, value=judging.value(trial)), judging


def settings_for(run: RunDirectory, repository: Repository, settings: Settings, *, given: bool) -> Settings:
    """The settings to measure with in a run directory: those on record in it, whose input files are kept, if any are.

    Raises :class:`UserError` for one that holds something else than single commits of this repository, or was measured
    with other settings than those that are ``given``.
    """
    if not run.database.exists():
        return settings
    with Store.open(run.database, readonly=True) as store:
        asked, recorded = store.bisection(), store.settings
        by_others, compared_there = store.by_others, store.plan is not None
    if asked.has_ends or by_others or compared_there or asked.repository is None:
        what = "an import" if by_others else "a comparison" if compared_there else "a bisection"
        raise UserError(f"{run.path} is {what}; a single trial needs a run directory of its own", _ELSEWHERE)
    if asked.repository != repository.top:
        raise UserError(f"{run.path} holds trials of commits of {asked.repository}", _ELSEWHERE)
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
