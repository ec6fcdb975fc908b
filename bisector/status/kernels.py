"""The kernels that the arms of a comparison were, by the trials on record: which one is measured again, which differ.

A subject is built once, and its kernel is kept; but not for ever, and what builds it may change while a comparison
lasts for nights. The first kernel that was measured is what an arm is from then on.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

from bisector.core.trial import Trial
from bisector.store.comparison import Arm, Placed, Plan

Pairs = tuple[tuple[str, str], ...]


def first(plan: Plan, placed: Sequence[Placed], arm: int) -> Trial | None:
    """The first trial that had a kernel of what an arm is built of; arms of one build have one kernel."""
    wanted = plan.arms[arm].subject.built_of
    trials = (one.trial for one in placed if plan.arms[one.place.arm].subject.built_of == wanted)
    return next((trial for trial in trials if trial.kernel is not None), None)


def equal(plan: Plan, placed: Sequence[Placed]) -> Pairs:
    """Arms of two subjects whose kernels are the same: what differs between them is no part of the build."""
    arms = plan.arms
    contents = {one.place.arm: one.trial.kernel.content_sha256 for one in placed if one.trial.kernel is not None}
    return tuple(
        (arms[one].name, arms[other].name)
        for one, other in combinations(sorted(contents), 2)
        if contents[one] == contents[other]
        and arms[one].subject != arms[other].subject
        and arms[one].subject.parameters == arms[other].subject.parameters
    )


def several(plan: Plan, placed: Sequence[Placed]) -> tuple[str, ...]:
    """The names of arms that were more than one kernel; earlier versions measured on with what was built anew."""
    contents: defaultdict[int, set[str]] = defaultdict(set)
    for one in placed:
        contents[one.place.arm] |= {one.trial.kernel.content_sha256} if one.trial.kernel is not None else set()
    return tuple(plan.arms[arm].name for arm, found in sorted(contents.items()) if len(found) > 1)


def unlike(plan: Plan, placed: Sequence[Placed]) -> Pairs:
    """Arms that were made in another way than an earlier arm, each with that one, though nobody asked for that.

    Apart from an arm's own fragment all kernels of a comparison are made alike; one that could be built only after an
    upgrade of bisector may be made with other quirks.
    """
    found, made = [], dict[str, tuple[Arm, str]]()
    for n, arm in enumerate(plan.arms):
        trial = first(plan, placed, n)
        if arm.subject.is_built and trial is not None and trial.kernel is not None:
            earlier, family = made.setdefault(arm.subject.fragment, (arm, trial.kernel.family))
            found += [(earlier.name, arm.name)] if family != trial.kernel.family else []
    return tuple(found)
