"""From a trial to its verdict, from all trials of a commit to a conclusion, and when a control trial is due.

A fault is believed at once if it cannot be chance, otherwise the second time, and not at all if a kernel known to be
good failed right after it. A broken host breaks the ends of the range, too: so an end is tried again (a *control*)
after several faults in a row, and before an answer that rests on commits that could not be tested.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from bisector.config import RetryPolicy
from bisector.core.errors import InfraError, UserError
from bisector.core.figures import EarlyStop, Run, StopReason, run_words
from bisector.core.objective import Objective
from bisector.core.trial import Stage, Trial
from bisector.core.verdict import Direction, Verdict

Numbered = tuple[int, Trial]

# A run that is called slow before its end has to be so by more than the noise of a batch: by this factor.
CLEARLY = 1.5
_ORDER = tuple(Stage)
_MAKING = (Stage.CHECKOUT, Stage.CONFIG, Stage.BUILD)


# One trial


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and the sentence that gives its reason."""

    verdict: Verdict
    why: str


def judged_run(trial: Trial) -> Run:
    """Return the run whose value decides, the last one; raises :class:`InfraError` for a trial without runs."""
    if not trial.runs:
        raise InfraError(f"{trial.commit.short}: the trial has neither a fault nor a run")
    return trial.runs[-1]


def why_unscored(trial: Trial, objective: Objective) -> str:
    """The reason why a trial has no score, in a sentence; empty if it has one."""
    try:
        objective.value(judged_run(trial))
    except (UserError, InfraError) as error:
        return error.message
    return ""


def classify(trial: Trial, line: float, direction: Direction | None, objective: Objective) -> Judgement:
    """Return the side of a trial that has neither a fault nor a weakness; ``line`` is the score of the threshold.

    A value equal to the threshold is on the worse side. The side of a run that was stopped early is decided by the rule
    that stopped it, not by its mean; the trial is weak if the run was not clear of this threshold. While the direction
    is not known, the verdict is MEASURED. Raises what :func:`judged_run` and :meth:`Objective.deciding` raise.
    """
    run, stop, threshold = judged_run(trial), trial.stopped_early, objective.value_of(line)
    value = objective.value(run)
    better = objective.score(value) > line if stop is None else holds(stop, threshold, objective)
    if better is None:
        return Judgement(Verdict.WEAK, unclear(stop, threshold, objective))
    side = "above" if better else "not above"  # only rates stop a run early, and more of a rate is better
    if stop is None:
        side = "above" if value > threshold else "below" if value < threshold else "at"
    found = objective.deciding_text(run) + " in" if stop is None else f"stopped after {stop.at_s:.0f} s of"
    why = f"{found} the {run_words(run.name)}, {side} the threshold of {objective.text(threshold)}"
    why += f": {stop.why}" if stop is not None else ""
    return Judgement(Verdict.MEASURED if direction is None else direction.verdict(better), why)


def holds(stop: EarlyStop, threshold: float, objective: Objective) -> bool | None:
    """Whether a run that was stopped is above a threshold, possibly another one than it was stopped by.

    None if it was not clear of this threshold, or was stopped by another objective.
    """
    if (stop.metric, stop.over) != (objective.metric, objective.over):
        return None
    if stop.reason is StopReason.ABOVE:
        return True if stop.bound > threshold else None
    return False if stop.bound * CLEARLY < threshold else None


def unclear(stop: EarlyStop | None, threshold: float, objective: Objective) -> str:
    """Return why a run that was stopped early tells nothing.

    It is for runs of which :func:`holds` gives None.
    """
    if stop is not None and (stop.metric, stop.over) != (objective.metric, objective.over):
        return f"stopped early by {Objective(stop.metric, stop.over).label}, which says nothing of {objective.label}"
    return f"stopped early, before it was clear of a threshold of {objective.text(threshold)}"


# All trials of a commit


@dataclass(frozen=True, slots=True)
class TrialEvidence:
    """A trial and its weaknesses; without weaknesses and without a fault it is a sound measurement.

    A weak trial, or a fault, that is ``forgiven`` does not count towards giving up its commit.
    """

    trial: Trial
    weaknesses: tuple[str, ...] = ()
    forgiven: bool = False

    @property
    def sound(self) -> bool:
        """Whether the figures of the trial may decide."""
        return self.trial.fault is None and not self.weaknesses

    @property
    def weak(self) -> bool:
        """Whether the trial counts as a failed measurement."""
        return self.trial.fault is None and bool(self.weaknesses) and not self.forgiven


@dataclass(frozen=True, slots=True)
class SoundMeasurement:
    """The commit has figures that count, those of ``trial``."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class Untestable:
    """The commit is skipped; if ``weak``, not for a fault of its own, but because no measurement of it was sound."""

    why: str
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """The commit has to be measured (again); ``why`` is the reason."""

    why: str


Settlement = SoundMeasurement | Untestable | Again


def settle(evidence: Sequence[TrialEvidence], policy: RetryPolicy) -> Settlement:
    """Return the conclusion from all trials of a commit, in the order of measuring; doubted faults do not count."""
    doubted = [one.trial.fault for one in evidence if one.trial.doubted and one.trial.fault is not None]
    evidence = [one for one in evidence if not one.trial.doubted]
    for one in sorted(evidence, key=lambda one: (not one.trial.bears_answer, one.trial.stopped_early is not None)):
        if one.sound:
            return SoundMeasurement(one.trial)
    faults = [one.trial.fault for one in evidence if one.trial.fault is not None and not one.forgiven]
    vouched_for = any(one.trial.vouched_for for one in evidence)
    if faults and (vouched_for or faults[-1].kind.of_compiling or len(faults) >= policy.faults_believed):
        return Untestable(faults[-1].sentence)
    weak = [one for one in evidence if one.weak]
    if len(weak) > policy.weak_repeats:
        return Untestable(f"no sound measurement in {len(weak)}: {weak[-1].weaknesses[0]}", weak=True)
    if not evidence:
        return Again(f"{doubted[-1].kind}, doubted since a sound end failed, too" if doubted else "not measured yet")
    last = evidence[-1]
    how = "which may be the host's" if last.forgiven else "once"
    return Again(f"{last.trial.fault.kind}, {how}" if last.trial.fault else last.weaknesses[0])


# When a sound end is tried again


@dataclass(frozen=True, slots=True)
class Due:
    """A control trial that is due: the stage that a sound end has to pass, and the trials whose faults it is about."""

    stage: Stage
    trials: tuple[int, ...]


def reach(stage: Stage) -> Stage:
    """The stage that a sound end has to pass to speak for a fault at ``stage``: BUILD for all that make a kernel."""
    return Stage.BUILD if stage in _MAKING else stage


def can_be_vouched_for(fault: Stage) -> bool:
    """Whether a sound end can speak for a fault at a stage.

    It cannot for a checkout: an end's files are in the repository already, while a partial clone has to fetch those of
    another commit over the network (git-clone(1), ``--filter``).
    """
    return fault is not Stage.CHECKOUT


def speaks_for(control: Stage, fault: Stage) -> bool:
    """Whether a sound end that passed the stage ``control`` speaks for a fault at the stage ``fault``.

    The kernel of an end that is booted comes from the cache, and says nothing about compilers.
    """
    if not can_be_vouched_for(fault):
        return False
    made = reach(fault) is Stage.BUILD
    return control is Stage.BUILD if made else _ORDER.index(control) >= _ORDER.index(fault)


def after_a_row(
    trials: Sequence[Numbered], ends: Collection[str], skipped: Callable[[str], bool], like_faults: int
) -> Due | None:
    """Return the control that is due after ``like_faults`` skipped commits with faults at the same stage.

    The kind of the fault does not matter: bad memory shows as panics, hangs and compiler errors alike. A trial that
    came further ends the row.
    """
    by_stage: defaultdict[Stage, list[Numbered]] = defaultdict(list)
    for stage, one in _open(trials, ends, skipped):
        by_stage[stage].append(one)
    for stage, found in by_stage.items():
        if len({trial.commit.sha for _, trial in found}) >= like_faults:
            return Due(stage, tuple(n for n, _ in found))
    return None


def before_an_answer(trials: Sequence[Numbered], ends: Collection[str], skipped: Callable[[str], bool]) -> Due | None:
    """Return the control that is due before an answer is given, if there are faults that no sound end speaks for.

    A control that passes the last stage of the faults of running kernels speaks for all of them.
    """
    found = tuple(_open(trials, ends, skipped))
    if not (faults := [one for one in found if one[0] is not Stage.BUILD] or found):
        return None
    return Due(max((stage for stage, _ in faults), key=_ORDER.index), tuple(n for _, (n, _) in faults))


def _open(
    trials: Sequence[Numbered], ends: Collection[str], skipped: Callable[[str], bool]
) -> Iterator[tuple[Stage, Numbered]]:
    """Yield the faults of skipped commits that no control was made for, and that no later trial speaks for.

    Each comes with the stage that a sound end has to pass. A fault that is known from an earlier build is certainly due
    to the source, and nothing was tried.
    """
    for index, (n, trial) in enumerate(trials):
        fault = trial.fault
        if fault is None or fault.cached or trial.control is not None or trial.commit.sha in ends:
            continue
        later, stage = [other for _, other in trials[index + 1 :]], reach(fault.stage)
        if stage is Stage.BUILD:
            came_further = any(one.kernel is not None and not one.kernel.cached for one in later)
        else:
            came = [one.fault.stage if one.fault else Stage.DONE for one in later if one.same_kernel_as is None]
            came_further = any(_ORDER.index(one) > _ORDER.index(stage) for one in came)
        if not came_further and skipped(trial.commit.sha):
            yield stage, (n, trial)
