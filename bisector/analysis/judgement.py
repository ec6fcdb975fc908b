"""From a trial to its verdict, from all trials of a commit to what is believed of it, and when a control is due.

A fault is believed at once where it cannot be chance, else on the second time, and not at all when a kernel known to
be good failed right after it. What a host breaks it breaks for the ends of the range, too: so an end is tried again (a
*control*) after several faults in a row, and before an answer that rests on what could not be tested.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from bisector.analysis.early_stop import holds
from bisector.config import RetryPolicy
from bisector.core.errors import InfraError, UserError
from bisector.core.figures import EarlyStop, Run, run_words
from bisector.core.objective import Objective
from bisector.core.trial import Stage, Trial
from bisector.core.verdict import Direction, Verdict

Numbered = tuple[int, Trial]

_ORDER = tuple(Stage)
_MAKING = (Stage.CHECKOUT, Stage.CONFIG, Stage.BUILD)


# One trial


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
    found = objective.deciding_text(run) + " in" if stop is None else f"stopped after {stop.at_s:.0f} s of"
    why = f"{found} the {run_words(run.name)}, {side} the threshold of {objective.text(threshold)}"
    why += f": {stop.why}" if stop is not None else ""
    return Judgement(Verdict.MEASURED if direction is None else direction.verdict(better), why)


def unclear(stop: EarlyStop | None, threshold: float, objective: Objective) -> str:
    """Why a run that was stopped early tells nothing, when :func:`bisector.analysis.early_stop.holds` does not know."""
    if stop is not None and (stop.metric, stop.over) != (objective.metric, objective.over):
        return f"stopped early by {Objective(stop.metric, stop.over).label}, which says nothing of {objective.label}"
    return f"stopped early, before it was clear of a threshold of {objective.text(threshold)}"


# All trials of a commit


@dataclass(frozen=True, slots=True)
class TrialEvidence:
    """A trial and its weaknesses; without any, and without a fault, it is a measurement.

    A weak one that is ``forgiven`` does not count among those after which a commit is given up.
    """

    trial: Trial
    weaknesses: tuple[str, ...] = ()
    forgiven: bool = False

    @property
    def sound(self) -> bool:
        """Whether its figures may decide."""
        return self.trial.fault is None and not self.weaknesses

    @property
    def weak(self) -> bool:
        """Whether it is one more measurement that came to nothing."""
        return self.trial.fault is None and bool(self.weaknesses) and not self.forgiven


@dataclass(frozen=True, slots=True)
class SoundMeasurement:
    """The commit has figures that count: those of ``trial``."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class Untestable:
    """The commit is skipped; ``weak``: no fault of its own, but that no measurement of it was sound."""

    why: str
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """Nothing is certain yet; ``why`` it has to be measured (again)."""

    why: str


Settlement = SoundMeasurement | Untestable | Again


def settle(evidence: Sequence[TrialEvidence], policy: RetryPolicy) -> Settlement:
    """What all trials of one commit, in the order of measuring, amount to; those whose fault is doubted, to nothing."""
    doubted = [one.trial.fault for one in evidence if one.trial.doubted and one.trial.fault is not None]
    evidence = [one for one in evidence if not one.trial.doubted]
    for one in sorted(evidence, key=lambda one: (not one.trial.bears_answer, one.trial.stopped_early is not None)):
        if one.sound:
            return SoundMeasurement(one.trial)
    faults = [one.trial.fault for one in evidence if one.trial.fault is not None]
    vouched_for = any(one.trial.vouched_for for one in evidence)
    if faults and (vouched_for or faults[-1].kind.of_compiling or len(faults) >= policy.faults_believed):
        return Untestable(faults[-1].sentence)
    weak = [one for one in evidence if one.weak]
    if len(weak) > policy.weak_repeats:
        return Untestable(f"no sound measurement in {len(weak)}: {weak[-1].weaknesses[0]}", weak=True)
    if not evidence:
        return Again(f"{doubted[-1].kind}, doubted since a sound end failed, too" if doubted else "not measured yet")
    last = evidence[-1]
    return Again(f"{last.trial.fault.kind}, once" if last.trial.fault else last.weaknesses[0])


def lacks_whole_run(evidence: Sequence[TrialEvidence], policy: RetryPolicy) -> bool:
    """Whether what is known of a commit rests on what no answer may rest on, and better is still to be tried.

    That is a run that was stopped early by the threshold alone, or a short fill. One that ends weak or with a fault is
    tried again as often as any.
    """
    counts = settle(evidence, policy)
    counted = (one for one in evidence if not (one.forgiven or one.trial.doubted))
    whole = sum(one.trial.bears_answer or not one.trial.runs for one in counted)
    return isinstance(counts, SoundMeasurement) and not counts.trial.bears_answer and whole <= policy.weak_repeats


# When a sound end is tried again


@dataclass(frozen=True, slots=True)
class Due:
    """A control that is due: through which stage a sound end has to come, and which trials' faults it is about."""

    stage: Stage
    trials: tuple[int, ...]


def reach(stage: Stage) -> Stage:
    """Through which stage a sound end has to come to speak for a fault at ``stage``: a kernel is made as a whole."""
    return Stage.BUILD if stage in _MAKING else stage


def can_be_vouched_for(fault: Stage) -> bool:
    """Whether any sound end speaks for trouble at a stage.

    None does for a checkout: an end's files are in the repository already, while a partial clone has to fetch those of
    another commit over the network (git-clone(1), ``--filter``).
    """
    return fault is not Stage.CHECKOUT


def speaks_for(control: Stage, fault: Stage) -> bool:
    """Whether a sound end that came through the stage ``control`` speaks for a fault at the stage ``fault``.

    An end that boots is from the cache, and tells nothing about compilers.
    """
    if not can_be_vouched_for(fault):
        return False
    made = reach(fault) is Stage.BUILD
    return control is Stage.BUILD if made else _ORDER.index(control) >= _ORDER.index(fault)


def after_a_row(
    trials: Sequence[Numbered], ends: Collection[str], skipped: Callable[[str], bool], like_faults: int
) -> Due | None:
    """The control that is due after ``like_faults`` commits that are ``skipped`` for faults at one stage.

    The kind of the fault is not looked at: bad memory shows as panics, hangs and compilers' errors alike. The row is
    broken by any trial that came further.
    """
    by_stage: defaultdict[Stage, list[Numbered]] = defaultdict(list)
    for stage, one in _open(trials, ends, skipped):
        by_stage[stage].append(one)
    for stage, found in by_stage.items():
        if len({trial.commit.sha for _, trial in found}) >= like_faults:
            return Due(stage, tuple(n for n, _ in found))
    return None


def before_an_answer(trials: Sequence[Numbered], ends: Collection[str], skipped: Callable[[str], bool]) -> Due | None:
    """The control that is due before an answer is given: while there are faults that nothing speaks for.

    One that comes through the last stage of those of a running kernel speaks for all of them.
    """
    found = tuple(_open(trials, ends, skipped))
    if not (faults := [one for one in found if one[0] is not Stage.BUILD] or found):
        return None
    return Due(max((stage for stage, _ in faults), key=_ORDER.index), tuple(n for _, (n, _) in faults))


def _open(
    trials: Sequence[Numbered], ends: Collection[str], skipped: Callable[[str], bool]
) -> Iterator[tuple[Stage, Numbered]]:
    """The faults of skipped commits that no control was asked about, and that no later trial speaks for.

    With the stage through which a sound end has to come for each. One that is known from an earlier build is of the
    source beyond doubt, and nothing was tried.
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
