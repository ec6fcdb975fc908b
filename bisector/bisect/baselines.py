"""Each disk of a stack alone, measured once by the same job: what the figures of a cache lie between; pure.

They are facts of this host and its disks. Nothing is concluded from them, so what cannot be measured is said and
stops nothing, unless they are all that is asked for.
"""

from collections.abc import Iterable

from bisector.analysis.settle import Again, Measured, Untestable
from bisector.analysis.verdicts import Judging, Numbered
from bisector.bisect.facts import Aim, Facts
from bisector.bisect.instructions import Attempt, Record, Submit, Tell
from bisector.config import Settings
from bisector.core.errors import BisectorError, InfraError
from bisector.core.events import Note, Planned
from bisector.core.trial import Trial, alone_name
from bisector.executor.base import Finished
from bisector.report.figures import baseline_text
from bisector.store.facts import Ended, Ending, NumberedTrial
from bisector.trial.runner import TrialRequest


def missing(settings: Settings, baselines: Iterable[Numbered]) -> tuple[str, ...]:
    """The disks of the stack that are not measured yet, in the order of measuring."""
    known = {trial.alone for _, trial in baselines}
    return tuple(disk for disk in settings.storage.stack.baselines if disk not in known)


def measure(facts: Facts) -> Submit | Tell | None:
    """A whole run on a disk that is missing, again while the evidence is weak; None when there is none to be had.

    Raises :class:`InfraError` for a disk that cannot be measured, where the disks are all that is asked for.
    """
    for disk in missing(facts.task.settings, facts.recorded.baselines):
        if _matter(disk) not in facts.heard.told:
            attempts = facts.heard.matters.get(_matter(disk), ())
            match _settlement(facts, attempts):
                case Again(why=why):
                    return _submit(facts, disk, why if attempts else "")
                case Untestable(why=why):
                    message = f"the {alone_name(disk)} could not be measured: {why}"
                    return given_up(facts, disk, InfraError(message, "bisector baselines tries it again"))
                case Measured():
                    raise RuntimeError(f"the baseline of the {disk} is measured and not on record")
    return None


def recorded(facts: Facts, attempts: tuple[Attempt, ...], request: TrialRequest, trial: Trial) -> Record:
    """A trial of a disk alone, for the record, which takes sound ones only."""
    last = attempts[-1]
    ended = Ended(last.id, Ending.DONE)
    if trial.alone is None or not isinstance(_settlement(facts, attempts), Measured):
        return Record((ended,), last)
    note = Note(f"{alone_name(trial.alone)}: {baseline_text([trial], facts.judging.objective)}")
    return Record((NumberedTrial(request.n, trial), ended), last, over=True, tell=(note,))


def given_up(facts: Facts, disk: str, error: BisectorError) -> Tell:
    """Go on without a disk; raises ``error`` where the disks are all that is asked for."""
    if facts.task.aim is Aim.BASELINES:
        raise error
    return Tell((Note(f"no baseline: {error}"),), (_matter(disk),))


def _submit(facts: Facts, disk: str, again: str) -> Submit:
    # What is tried in vain is not recorded, so the number is that of the one that will be.
    commit, n = facts.task.wanted.new, facts.recorded.next_n
    planned = Planned(n, commit, f"the {alone_name(disk)}{f', again: {again}' if again else ''}", 0, 0)
    request = TrialRequest(n, commit, {}, facts.recorded.compilers, alone=disk, again=bool(again))
    return Submit(request, _matter(disk), tell=(planned,))


def _matter(disk: str) -> str:
    return f"baseline {disk}"


def _settlement(facts: Facts, attempts: Iterable[Attempt]) -> Measured | Untestable | Again:
    news = (one.news for one in attempts)
    trials = [one.result for one in news if isinstance(one, Finished) and isinstance(one.result, Trial)]
    return Judging(facts.task.settings, tuple(enumerate(trials, 1))).settlement(facts.task.wanted.new.sha)
