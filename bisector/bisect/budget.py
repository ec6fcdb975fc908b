"""No trial is begun that would end after the budget of its run; pure.

What the search chooses is chosen with the time in mind that is left (:mod:`bisector.search.step`). Here is the rest:
both ends, merge bases, a trial once more, git's own midpoints, the disks alone.
"""

from bisector.bisect.facts import Aim, Facts
from bisector.bisect.instructions import Done, Instruction, Submit
from bisector.core.verdict import State
from bisector.status import view
from bisector.status.costs import costs_of
from bisector.status.durations import asked_most_s
from bisector.store.comparison import PlannedSetup
from bisector.trial.runner import TrialRequest

_MIN_S = 60.0


def in_time(facts: Facts, instruction: Instruction) -> Instruction:
    """The instruction, or the end of the search where it is a trial that would end too late."""
    if not isinstance(instruction, Submit) or _was_chosen(facts, instruction) or ends_in_time(facts, instruction):
        return instruction
    return Done(State.NARROWED, (), (), why_over(facts), out_of_time=True)


def ends_in_time(facts: Facts, submit: Submit) -> bool:
    """Whether what is submitted will end in time, by what trials have taken so far; controls and builds always may."""
    request = submit.request
    if facts.recorded.budget is None or facts.task.aim is not Aim.ANSWER or not isinstance(request, TrialRequest):
        return True
    return _trial_s(facts, request.commit.sha, may_stop_early=submit.may_stop_early) <= facts.recorded.left_s


def why_over(facts: Facts) -> str:
    """The sentence of a search that has no time left."""
    budget = facts.recorded.budget
    if budget is None:
        raise RuntimeError("a run without a budget has all the time")
    return view.why_over(budget.budget_s)


def _was_chosen(facts: Facts, submit: Submit) -> bool:
    """Whether it is the search's own choice, and its first attempt."""
    return submit.because is not None and submit.matter not in facts.heard.matters


def _trial_s(facts: Facts, sha: str, *, may_stop_early: bool) -> float:
    if not facts.judging.sound():
        return asked_most_s(PlannedSetup(facts.task.settings))
    costs = costs_of(facts.judging)
    is_built = any(trial.commit.sha == sha and trial.kernel is not None for _, trial in facts.judging.trials)
    build_min = 0.0 if is_built else costs.build_min
    return _MIN_S * costs.longest(build_min, whole=not may_stop_early)
