"""Whether a kernel changes more on one stack than on another: +30 % on a cache and +1 % on its disk is the cache's.

"Significant here, and not there" is no answer to that: the difference between both may be noise (A. Gelman and
H. Stern, The American Statistician 2006, 60:328). So the change on each stack is compared with that on the first one.
All of it is exploratory: one family (Benjamini and Hochberg), and no verdict.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from bisector.analysis.comparison import Contrast, Effect, benjamini_hochberg, contrast
from bisector.core.json_document import FLAT, Key
from bisector.status.compared import ComparedRow


@dataclass(frozen=True, slots=True)
class OnStack:
    """What an arm changes on a stack."""

    row: ComparedRow
    effect: Effect


@dataclass(frozen=True, slots=True)
class StackContrast:
    """The change of an arm on a stack against that on the ``first`` one; ``adjusted_p`` is of the whole family."""

    arm: Annotated[str, "name of the kernel"]
    first: OnStack
    other: OnStack
    contrast: Annotated[Contrast, FLAT]
    adjusted_p: Annotated[float, "`p` adjusted for all of these, by Benjamini and Hochberg"]

    @property
    def workload(self) -> Annotated[str, "workload"]:
        """The workload of both."""
        return self.first.row.setup.workload

    @property
    def metric(self) -> Annotated[str, "the [metric](metrics.md)"]:
        """The metric of both."""
        return self.first.row.objective.metric

    @property
    def first_stack(self) -> Annotated[str, Key("first"), "the first stack that the kernel has"]:
        """The first stack."""
        return self.first.row.setup.stack

    @property
    def stack(self) -> Annotated[str, "the other one"]:
        """The other stack."""
        return self.other.row.setup.stack


def stack_contrasts(rows: Sequence[ComparedRow]) -> tuple[StackContrast, ...]:
    """Of rows that decide, for each arm but a placebo; only one figure of one workload is compared between stacks."""
    found = [one for place in range(max((len(row.changes) for row in rows), default=0)) for one in _of_arm(rows, place)]
    adjusted = benjamini_hochberg([contrasted.p for *_, contrasted in found])
    return tuple(StackContrast(*one, p) for one, p in zip(found, adjusted, strict=True))


def _of_arm(rows: Sequence[ComparedRow], place: int) -> Iterator[tuple[str, OnStack, OnStack, Contrast]]:
    """Each stack on which the arm can be compared, against the first of them."""
    for kind in dict.fromkeys((row.setup.workload, row.objective) for row in rows):
        alike = [row for row in rows if (row.setup.workload, row.objective) == kind]
        arm = alike[0].changes[place]
        sides = [OnStack(row, found) for row in alike if (found := row.changes[place].effect) is not None]
        for other in () if arm.placebo else sides[1:]:
            contrasted = contrast(other.effect, sides[0].effect)
            if contrasted is not None:
                yield arm.arm, sides[0], other, contrasted
