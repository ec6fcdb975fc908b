"""Single commits that are measured outside of any search, with their trials in a store of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bisector.analysis.judgement import Again, Numbered
from bisector.analysis.verdicts import Judging
from bisector.campaign.equipment import Equipment, MeasurerFactory
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
from bisector.campaign.life import clean_up
from bisector.campaign.loop import Loop
from bisector.config import RetryPolicy, Settings, options
from bisector.core.errors import UserError
from bisector.core.events import Listener, Planned, TrialJudged
from bisector.core.subject import Cell, Commit, Subject
from bisector.core.verdict import State
from bisector.git.repository import Repository
from bisector.status.view import TrialView
from bisector.store.facts import RunHeader
from bisector.store.rundir import RunDirectory, compared, fingerprint
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest

_ELSEWHERE = "choose another --run-dir, or none"


@dataclass(frozen=True, slots=True)
class SingleState:
    """Everything that the step decides by; ``trials`` are those of the commit since this process began.

    They are made on ``host``, or on any host if that is empty. With ``once``, one trial is enough even if its evidence
    is weak, and a failed attempt is not repeated.
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
        """The verdicts by these trials alone."""
        return Judging(self.settings, self.trials)


def step(known: SingleState, now: Transient) -> Instruction:
    """Return the instruction that measures a commit as often as a search would: once, unless the evidence is weak.

    Raises the last attempt's error if there is to be no other attempt, and :class:`UserError` if a sound run lacks the
    metric, as every other run would.
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


@dataclass(slots=True)
class SingleTrials:
    """The measurements of one process in a store of single commits; earlier processes' trials do not count."""

    store: Store
    settings: Settings
    equipment: Equipment
    tell: Listener
    _before: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self._before = frozenset(n for n, _ in self.store.trials())

    def settle(self, commit: Commit, purpose: str, host: str = "", *, once: bool = False) -> Judging:
        """Measure a commit, and return the verdicts by its trials of this process alone. Raises as :func:`step`.

        Each trial is recorded before anything is concluded from it.
        """

        def recorded() -> SingleState:
            new = ((n, trial) for n, trial in self.store.trials() if n not in self._before)
            own = tuple((n, one) for n, one in new if one.commit.sha == commit.sha and host in ("", one.host))
            return SingleState(self.settings, commit, purpose, own, self.store.next_n, host, once)

        told = Transient(notified=frozenset(f"trial {n}" for n, _ in self.store.trials()))
        Loop(self.store, self.equipment, self.tell, recorded, step, transient=told).run()
        return recorded().judging


@contextmanager
def opened(run: RunDirectory, repository: Repository, settings: Settings) -> Iterator[Store]:
    """Open or create the store of a run directory, which the caller has locked, and which has the input files."""
    if not run.database.exists():
        with Store.create(run.database, RunHeader.of(settings, repository.top)) as store:
            yield store
        return
    with Store.open(run.database) as store:
        clean_up(run, store)
        yield store


def measure(
    run: RunDirectory,
    repository: Repository,
    settings: Settings,
    commit: Commit,
    tell: Listener,
    *,
    equip: MeasurerFactory,
) -> TrialView:
    """Measure one trial of a commit, record it, and return it with its judgement by all trials of the store.

    Raises :class:`bisector.core.trial.AttemptFailed` for trouble of the tool or the host, which is recorded, too.
    """
    with (
        opened(run, repository, settings) as store,
        equip(settings, run.path, Repository.open(repository.top, run_marker=run.path), tell) as equipment,
    ):
        *_, (n, trial) = SingleTrials(store, settings, equipment, tell).settle(commit, "test", once=True).trials
        judging = Judging(settings, store.trials())
    judgement = next(one for m, _, one in judging.judged_trials() if m == n)
    return TrialView(n, trial, judgement.verdict, judgement.why, value=judging.value(trial))


def settings_for(run: RunDirectory, repository: Repository, settings: Settings, *, given: bool) -> Settings:
    """Return the settings to measure with in a run directory: the recorded ones, or ``settings`` in a new directory.

    Raises :class:`UserError` if the directory holds anything but single commits of this repository, or if ``settings``
    were ``given`` by a person and differ from the recorded ones.
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
    for key in {**before, **now}:  # either stack may have disks that the other lacks
        was, is_now = before.get(key, ""), now.get(key, "")
        if was != is_now:
            yield f"{key} was {options.shown(was)}, and is {options.shown(is_now)}"
