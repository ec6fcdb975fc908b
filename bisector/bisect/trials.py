"""What is submitted, and what people are told once: the trial of a subject on the setup of the search; pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import count

from bisector.analysis.judgement import Again, SoundMeasurement
from bisector.analysis.short_fill import rule_for
from bisector.bisect.state import Aim, BisectState
from bisector.campaign.instructions import Done, Instruction, Notify, Submit
from bisector.core.events import Note, Planned
from bisector.core.subject import Cell, Commit, Subject
from bisector.core.trial import Fill
from bisector.core.verdict import State
from bisector.search.readings import SearchFacts as Readings
from bisector.status import view
from bisector.status.evidence import costs_of
from bisector.status.progress import asked_most_s
from bisector.store.comparison import PlannedSetup
from bisector.trial.runner import TrialRequest

_MIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Outlook:
    """How much is left: commits that may be the answer, trials to expect, and the likeliest commit's probability."""

    candidates: int = 0
    trials_left: int = 0
    probability: float | None = None


def measure(
    facts: BisectState,
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

    Runs of the two ends are never stopped early, because the threshold is derived from them, and neither are those of
    a ``whole`` trial. Two kinds stop early all the same: a whole run once it is ``clear_of`` the run of one of these
    commits, and an end's run after a short fill once it is like the end's whole run. Without a ``fill`` to use, the
    short one is used where it is harmless and the trial is not whole.
    """
    commit, judging, recorded = subject.commit, facts.judging, facts.recorded
    cell = Cell(subject, facts.scope.settings.setup)
    whole = whole or commit in facts.scope.ends
    if fill is None:
        may_be_short = (
            not whole and rule_for(facts.scope.settings) is not None and facts.here.judging.short_fill.harmless
        )
        fill = Fill.SHORT if may_be_short else Fill.WHOLE
    # A kernel that has its figures and is asked for again is not to be told that it has them.
    known = isinstance(judging.settlement(commit.sha), SoundMeasurement)
    others = judging.measured_kernels(whole=whole)
    # What is known of a build that is doubted is not believed either.
    anew = any(one.doubted and one.kernel is None for _, one in judging.trials if one.commit.sha == commit.sha)
    again = recorded.was_tried(commit.sha)
    n = recorded.next_n
    request = TrialRequest(n, cell, {} if known else others, recorded.compilers, again=again, anew=anew, fill=fill)
    return Submit(
        replace(request, guest_seed=_guest_seed(facts, commit)),
        f"trial {commit.sha} on {facts.host}",
        tell=(_planned(facts, commit, purpose, outlook),),
        may_stop_early=not whole,
        clear_of=tuple(clear_of) if commit not in facts.scope.ends else (),
        alike=commit in facts.scope.ends and fill is Fill.SHORT,
        because=because,
    )


def _guest_seed(facts: BisectState, commit: Commit) -> int:
    """Another one than those by which a commit was read; but the old end is read with the same one twice."""
    judging = facts.here.judging
    if not facts.scope.settings.machine.is_counted or (commit.sha == judging.old and not judging.same_again):
        return 0
    read = {trial.guest_seed for trial, _ in judging.sound(commit.sha) if trial.is_counted}
    return next(seed for seed in count() if seed not in read)


def once(facts: BisectState, key: str, note: Note) -> Notify | None:
    """Tell it, unless that was done."""
    return None if key in facts.transient.notified else Notify((note,), (key,))


def _planned(facts: BisectState, commit: Commit, purpose: str, outlook: Outlook) -> Planned:
    again = facts.judging.since(commit.sha)
    why = ""
    if facts.recorded.was_tried(commit.sha):
        why = f"again: {again.why}" if isinstance(again, Again) else "once more"
    text = ", ".join(filter(None, (purpose, why)))
    n = facts.recorded.next_n
    return Planned(n, commit, text, outlook.candidates, outlook.trials_left, outlook.probability)


# No trial is begun that would end after the budget of its run


def in_time(facts: BisectState, instruction: Instruction) -> Instruction:
    """The instruction, or the end of the search where it is a trial that would end too late."""
    if not isinstance(instruction, Submit) or _was_chosen(facts, instruction) or ends_in_time(facts, instruction):
        return instruction
    return Done(State.NARROWED, why_over(facts), out_of_time=True)


def ends_in_time(facts: BisectState, submit: Submit) -> bool:
    """Whether what is submitted will end in time, by what trials have taken so far; controls and builds always may."""
    request = submit.request
    if facts.recorded.budget is None or facts.scope.aim is not Aim.ANSWER or not isinstance(request, TrialRequest):
        return True
    return _trial_s(facts, request.commit.sha, may_stop_early=submit.may_stop_early) <= facts.recorded.left_s


def why_over(facts: BisectState) -> str:
    """The sentence of a search that has no time left."""
    budget = facts.recorded.budget
    if budget is None:
        raise RuntimeError("a run without a budget has all the time")
    return view.why_over(budget.budget_s)


def _was_chosen(facts: BisectState, submit: Submit) -> bool:
    """Whether it is the search's own choice, and its first attempt."""
    return submit.because is not None and submit.task not in facts.transient.tasks


def _trial_s(facts: BisectState, sha: str, *, may_stop_early: bool) -> float:
    if not facts.judging.sound():
        return asked_most_s(PlannedSetup(facts.scope.settings))
    costs = costs_of(facts.judging)
    is_built = any(trial.commit.sha == sha and trial.kernel is not None for _, trial in facts.judging.trials)
    build_min = 0.0 if is_built else costs.build_min
    return _MIN_S * costs.longest(build_min, whole=not may_stop_early)
