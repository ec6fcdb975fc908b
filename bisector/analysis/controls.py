"""When a kernel that is known to be good has to be tried again before faults are believed to be the kernels' own.

A header that an upgrade removed, an image with a flipped bit, bad memory: each makes every commit look broken, in a
way that depends on the commit as little as on chance. What a host breaks it breaks for the ends of the range, too,
and both of those worked. So an end is tried again after several faults in a row, and before an answer that rests on
what could not be tested. A trial of any kernel that came further than the faults did says as much, and costs nothing.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from bisector.core.trial import Stage, Trial

_ORDER = tuple(Stage)
_MAKING = (Stage.CHECKOUT, Stage.CONFIG, Stage.BUILD)

Numbered = tuple[int, Trial]


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
    by_stage: dict[Stage, list[Numbered]] = {}
    for one in _open(trials, ends, skipped):
        by_stage.setdefault(reach(_stage(one)), []).append(one)
    for stage, found in by_stage.items():
        if len({trial.commit.sha for _, trial in found}) >= like_faults:
            return Due(stage, tuple(n for n, _ in found))
    return None


def before_an_answer(trials: Sequence[Numbered], ends: Collection[str], skipped: Callable[[str], bool]) -> Due | None:
    """The control that is due before an answer is given: while there are faults that nothing speaks for.

    One that comes through the last stage of those of a running kernel speaks for all of them.
    """
    found = tuple(_open(trials, ends, skipped))
    made = [one for one in found if reach(_stage(one)) is Stage.BUILD]
    ran = [one for one in found if one not in made]
    for faults in (ran, made):
        if faults:
            stage = max((reach(_stage(one)) for one in faults), key=_ORDER.index)
            return Due(stage, tuple(n for n, _ in faults))
    return None


def _open(
    trials: Sequence[Numbered], ends: Collection[str], skipped: Callable[[str], bool]
) -> Iterator[tuple[int, Trial]]:
    """The faults of skipped commits that no control was asked about, and that no later trial speaks for.

    One that is known from an earlier build is of the source beyond doubt, and nothing was tried.
    """
    for index, (n, trial) in enumerate(trials):
        fault = trial.fault
        if fault is None or fault.cached or trial.control is not None or trial.commit.sha in ends:
            continue
        later = (other for _, other in trials[index + 1 :])
        if not _came_further(later, fault.stage) and skipped(trial.commit.sha):
            yield n, trial


def _came_further(trials: Iterable[Trial], stage: Stage) -> bool:
    if reach(stage) is Stage.BUILD:
        return any(trial.kernel is not None and not trial.kernel.cached for trial in trials)
    booted = (trial for trial in trials if trial.same_kernel_as is None)
    return any(_ORDER.index(trial.fault.stage if trial.fault else Stage.DONE) > _ORDER.index(stage) for trial in booted)


def _stage(one: Numbered) -> Stage:
    _, trial = one
    return trial.fault.stage if trial.fault is not None else trial.stage
