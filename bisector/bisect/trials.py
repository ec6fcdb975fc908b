"""Pure functions that make a trial on the setup of the search, check that it ends in time, or tell something once."""

from collections.abc import Iterable
from dataclasses import dataclass
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
from bisector.status.progress import longest_planned_trial_s
from bisector.trial.runner import TrialRequest


@dataclass(frozen=True, slots=True)
class Outlook:
    """The work left: commits that may be the answer, trials to expect, and the likeliest commit's probability."""

    candidates: int = 0
    trials_left: int = 0
    probability: float | None = None


UNKNOWN = Outlook()


def measure(
    facts: BisectState,
    subject: Subject,
    purpose: str,
    outlook: Outlook = UNKNOWN,
    *,
    whole: bool = False,
    because: Readings | None = None,
    fill: Fill | None = None,
    clear_of: Iterable[str] = (),
) -> Submit:
    """Return one trial on the setup of the search.

    Runs of the two ends are not stopped early by the usual rule, because the threshold is derived from them, and
    neither are runs of a ``whole`` trial. Yet a whole run may end once it is ``clear_of`` the run of one of these
    commits, and an end's run after a short fill once it is like the end's whole run. If ``fill`` is None, the fill is
    short if that is harmless and the trial is not whole.
    """
    commit, judging, recorded, settings = subject.commit, facts.judging, facts.recorded, facts.scope.settings
    is_end, n = commit in facts.scope.ends, recorded.next_n
    whole = whole or is_end
    if fill is None:
        may_be_short = not whole and rule_for(settings) is not None and facts.here.judging.short_fill.harmless
        fill = Fill.SHORT if may_be_short else Fill.WHOLE
    # A kernel that is measured again on purpose must not end with "this kernel was measured already".
    known = isinstance(judging.settlement(commit.sha), SoundMeasurement)
    others = judging.measured_kernels(whole=whole)
    again = recorded.was_tried(commit.sha)
    request = TrialRequest(
        n,
        Cell(subject, settings.setup),
        {} if known else others,
        recorded.compilers,
        again=again,
        # If a failed build is doubted, its cached result is not believed either.
        anew=any(one.doubted and one.kernel is None for _, one in judging.trials if one.commit.sha == commit.sha),
        guest_seed=_guest_seed(facts, commit),
        fill=fill,
    )
    since = judging.since(commit.sha)
    why = "" if not again else f"again: {since.why}" if isinstance(since, Again) else "once more"
    text = ", ".join(filter(None, (purpose, why)))
    return Submit(
        request,
        f"trial {commit.sha} on {facts.host}",
        tell=(Planned(n, commit, text, outlook.candidates, outlook.trials_left, outlook.probability),),
        may_stop_early=not whole,
        clear_of=() if is_end else tuple(clear_of),
        alike=is_end and fill is Fill.SHORT,
        because=because,
    )


def _guest_seed(facts: BisectState, commit: Commit) -> int:
    """A seed that no sound reading of the commit had; but the old end is read twice with the same seed."""
    judging = facts.here.judging
    if not facts.scope.settings.machine.is_counted or (commit.sha == judging.old and not judging.same_again):
        return 0
    read = {trial.guest_seed for trial, _ in judging.sound(commit.sha) if trial.is_counted}
    return next(seed for seed in count() if seed not in read)


def once(facts: BisectState, key: str, said: str) -> Notify | None:
    """Tell people ``said``; None if ``key`` was told already, or if ``said`` is empty."""
    return Notify((Note(said),), (key,)) if said and key not in facts.transient.notified else None


def in_time(facts: BisectState, instruction: Instruction) -> Instruction:
    """Return the instruction, or the end of the search if it is a trial that would exceed the budget of its run.

    A trial that the search itself has chosen is begun, since that choice considers the budget.
    """
    if not isinstance(instruction, Submit) or ends_in_time(facts, instruction):
        return instruction
    if instruction.because is not None and instruction.task not in facts.transient.tasks:
        return instruction
    return Done(State.NARROWED, why_over(facts), out_of_time=True)


def ends_in_time(facts: BisectState, submit: Submit) -> bool:
    """Whether a trial will end within the budget, by the times of trials so far; true for controls and builds."""
    request, trials = submit.request, facts.judging.trials
    if facts.recorded.budget is None or facts.scope.aim is not Aim.ANSWER or not isinstance(request, TrialRequest):
        return True
    if not facts.judging.sound():
        return longest_planned_trial_s(facts.scope.settings) <= facts.recorded.left_s
    costs = costs_of(facts.judging)
    is_built = any(trial.commit.sha == request.commit.sha and trial.kernel is not None for _, trial in trials)
    trial_min = costs.longest(0.0 if is_built else costs.build_min, whole=not submit.may_stop_early)
    return 60 * trial_min <= facts.recorded.left_s


def why_over(facts: BisectState) -> str:
    """The sentence that says that the budget of the search is used up."""
    if facts.recorded.budget is None:
        raise RuntimeError("a run without a budget has all the time")
    return view.why_over(facts.recorded.budget.budget_s)
