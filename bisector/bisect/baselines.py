"""The new end on each disk of the stack alone, measured once: what the figures of a cache lie between; pure.

They are facts of this host and its disks. Nothing is concluded from them, so what cannot be measured is said and
stops nothing, unless they are all that is asked for.
"""

from collections.abc import Iterable

from bisector.analysis.judgement import Again, Numbered, SoundMeasurement, Untestable
from bisector.analysis.verdicts import Judging
from bisector.bisect.state import Aim, BisectState
from bisector.bisect.trials import ends_in_time
from bisector.campaign.instructions import Attempt, Notify, Record, Submit
from bisector.config import Settings
from bisector.core.errors import BisectorError, InfraError
from bisector.core.events import Note, Planned
from bisector.core.subject import Cell, Setup, Subject
from bisector.core.trial import Trial
from bisector.executor.base import Finished
from bisector.report.figures import baseline_text, setup_name
from bisector.store.facts import Ended, Ending, NumberedTrial
from bisector.trial.runner import TrialRequest


def missing(settings: Settings, baselines: Iterable[Numbered]) -> tuple[str, ...]:
    """The disks of the stack that are not measured yet, in the order of measuring."""
    known = {trial.setup for _, trial in baselines}
    return tuple(disk for disk in settings.storage.stack.baselines if settings.alone(disk) not in known)


def measure(facts: BisectState) -> Submit | Notify | None:
    """A whole run on a disk that is missing, again while the evidence is weak; None when there is none to be had.

    Raises :class:`InfraError` for a disk that cannot be measured, where the disks are all that is asked for.
    """
    for disk in missing(facts.scope.settings, facts.recorded.baselines):
        setup = facts.scope.settings.alone(disk)
        if _task(setup) not in facts.transient.notified:
            attempts = facts.transient.tasks.get(_task(setup), ())
            match _settlement(facts, attempts):
                case Again(why=why):
                    return in_time(facts, setup, _submit(facts, setup, why if attempts else ""))
                case Untestable(why=why):
                    message = f"the {setup_name(setup)} could not be measured: {why}"
                    return given_up(facts, setup, InfraError(message, "bisector baselines tries it again"))
                case SoundMeasurement():
                    raise RuntimeError(f"the baseline {setup} is measured and not on record")
    return None


def recorded(facts: BisectState, attempts: tuple[Attempt, ...], request: TrialRequest, trial: Trial) -> Record:
    """A baseline, for the record, which takes sound ones only."""
    last = attempts[-1]
    ended = Ended(last.id, Ending.DONE)
    if not isinstance(_settlement(facts, attempts), SoundMeasurement):
        return Record((ended,), last)
    note = Note(f"{setup_name(trial.setup)}: {baseline_text([trial], facts.judging.objective)}")
    return Record((NumberedTrial(request.n, trial), ended), last, over=True, tell=(note,))


def given_up(facts: BisectState, setup: Setup, error: BisectorError) -> Notify:
    """Go on without a baseline; raises ``error`` where baselines are all that is asked for."""
    if facts.scope.aim is Aim.BASELINES:
        raise error
    return Notify((Note(f"no baseline: {error}"),), (_task(setup),))


def in_time(facts: BisectState, setup: Setup, submit: Submit) -> Submit | Notify:
    """An attempt at a baseline; where it would end after the budget, only that is told, which costs no answer."""
    if ends_in_time(facts, submit):
        return submit
    note = Note(f"the {setup_name(setup)} would end after the budget: bisector baselines measures it")
    return Notify((note,), (_task(setup),))


def _submit(facts: BisectState, setup: Setup, again: str) -> Submit:
    # What is tried in vain is not recorded, so the number is that of the one that will be.
    commit, n = facts.scope.wanted.new, facts.recorded.next_n
    planned = Planned(n, commit, f"the {setup_name(setup)}{f', again: {again}' if again else ''}", 0, 0)
    request = TrialRequest(n, Cell(Subject(commit), setup), {}, facts.recorded.compilers, again=bool(again))
    return Submit(request, _task(setup), tell=(planned,))


def _task(setup: Setup) -> str:
    return f"baseline {setup}"


def _settlement(facts: BisectState, attempts: Iterable[Attempt]) -> SoundMeasurement | Untestable | Again:
    news = (one.news for one in attempts)
    trials = [one.result for one in news if isinstance(one, Finished) and isinstance(one.result, Trial)]
    return Judging(facts.scope.settings, tuple(enumerate(trials, 1))).settlement(facts.scope.wanted.new.sha)
