"""One commit measured by itself, until it is known what it does or that it cannot be known."""

from dataclasses import dataclass

from bisector.analysis.settle import Again, Settlement
from bisector.analysis.verdicts import Judging, Numbered
from bisector.bisect.retry import Attempts
from bisector.config import Settings
from bisector.core.cell import Cell, Subject
from bisector.core.commit import Commit
from bisector.core.events import Planned, TrialJudged
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest


@dataclass(frozen=True, slots=True)
class Settled:
    """What the trials of a commit amount to; they are numbered."""

    trials: tuple[Numbered, ...]
    settlement: Settlement


def settle(settings: Settings, commit: Commit, attempts: Attempts, store: Store, purpose: str) -> Settled:
    """Measure a commit as often as the loop over commits would: once, unless the evidence is weak.

    Each trial is on record before anything is concluded from it; earlier ones of the commit do not count.

    Raises :class:`AttemptFailed` when an infrastructure error stays, and :class:`bisector.core.errors.UserError` when a
    sound run has no value that can decide: no other run has one.
    """
    trials: tuple[Numbered, ...] = ()
    while isinstance(now := Judging(settings, trials).settlement(commit.sha), Again):
        n = store.next_n
        attempts.tell(Planned(n, commit, f"{purpose}, again: {now.why}" if trials else purpose, 0, 0))
        trial = attempts.at(TrialRequest(n, Cell(Subject(commit), settings.setup), {}, again=bool(trials)))
        store.add_trial(trial)
        trials = (*trials, (n, trial))
        judging = Judging(settings, trials)
        *_, (_, _, judgement) = judging.judged_trials()
        attempts.tell(TrialJudged(n, trial, judgement.verdict, judgement.why, judging.terms, judging.objective))
        judging.check_metric(commit.sha)
    return Settled(trials, now)
