"""Facts of one sound trial to a verdict, by the score of its last run."""

from dataclasses import dataclass

from bisector.analysis.early_stop import holds
from bisector.core.errors import InfraError, UserError
from bisector.core.figures import EarlyStop, Run
from bisector.core.objective import Objective
from bisector.core.trial import Trial
from bisector.core.verdict import Direction, Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and the sentence that gives its reason."""

    verdict: Verdict
    why: str


def judged_run(trial: Trial) -> Run:
    """The run whose value decides, the last one; raises :class:`InfraError` for a trial without any."""
    if not trial.runs:
        raise InfraError(f"{trial.commit.short}: the trial has neither a fault nor a run")
    return trial.runs[-1]


def score(trial: Trial, objective: Objective) -> float:
    """The score of a trial; raises what :meth:`Objective.deciding` raises, and for a trial without runs."""
    return objective.score(objective.value(judged_run(trial)))


def why_unscored(trial: Trial, objective: Objective) -> str:
    """Why a trial has no score, in a sentence; empty when it has one."""
    try:
        objective.value(judged_run(trial))
    except (UserError, InfraError) as error:
        return error.message
    return ""


def classify(trial: Trial, line: float, direction: Direction | None, objective: Objective) -> Judgement:
    """Which side of the change a trial is on that has neither a fault nor a weakness; ``line`` is a score.

    A value equal to the threshold is on the worse side. Of a run that was stopped early the rule that stopped it
    tells the side, not its mean; it is weak when it was not clear of this threshold. While the direction is not known
    it is measured only. Raises what :func:`score` raises.
    """
    run, stop, threshold = judged_run(trial), trial.stopped_early, objective.value_of(line)
    value = objective.value(run)
    better = objective.score(value) > line if stop is None else holds(stop, threshold, objective)
    if better is None:
        return Judgement(Verdict.WEAK, unclear(stop, threshold, objective))
    side = "above" if better else "not above"  # only rates are stopped early, and of those more is better
    if stop is None:
        side = "above" if value > threshold else "below" if value < threshold else "at"
    found = objective.deciding_text(run) if stop is None else f"stopped after {stop.at_s:.0f} s: {stop.why},"
    figures = f"{found} in the {run.name} run, {side} the threshold of {objective.text(threshold)}"
    return Judgement(Verdict.MEASURED if direction is None else direction.verdict(better), figures)


def unclear(stop: EarlyStop | None, threshold: float, objective: Objective) -> str:
    """Why a run that was stopped early tells nothing, when :func:`bisector.analysis.early_stop.holds` does not know."""
    if stop is not None and (stop.metric, stop.over) != (objective.metric, objective.over):
        return f"stopped early by {Objective(stop.metric, stop.over).label}, which says nothing of {objective.label}"
    return f"stopped early, before it was clear of a threshold of {objective.text(threshold)}"
