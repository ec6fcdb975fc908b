"""When a phase that fills a cache is done: the cache is full, and its figures no longer change.

The rule is in docs/stacks.md, "Filling a cache": full at :data:`FULL_PERCENT`, steady within :data:`STEADY_POINTS` from
round to round. (SNIA's Solid State Storage Performance Test Specification 2.0.2, 2.1.24, allows an excursion of 20 %
around the mean and a slope of 10 % over five rounds; here two rounds are compared.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from bisector.core.figures import Run

FULL_PERCENT = 95.0
STEADY_POINTS = 5.0
_LEAST_GAIN_POINTS = 1.0
# Metrics of a run, in percent. Every layer with a phase that fills it has the first one: how full the cache was at the
# end. The second one, how full it was at the start, is for layers that have nothing else on record that says so.
FILLED, FILLED_BEFORE = "cache.filled", "cache.filled_before"
FILL = "cache.fill"  # seconds
HIT_RATIO = "cache.hit_ratio"


class FillMode(StrEnum):
    """Whether runs that fill a cache may end once the cache is settled, after that was shown to be harmless.

    AUTO measures whether it is harmless only if a short fill can save more than that costs; SHORT does so in any case.
    """

    AUTO = "auto"
    SHORT = "short"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Settling:
    """How long the policy of a cache takes to settle once the cache is full: ``periods`` of ``period_s`` seconds.

    Whatever the kernel does by a clock it does at the end of each period, in every kernel that the layer supports.
    """

    period_s: float
    periods: int = 1

    @property
    def least_s(self) -> float:
        """For how many seconds the cache has to have been full."""
        return self.period_s * self.periods


def goes_on(rounds: Sequence[Run], least: int = 1) -> bool:
    """Whether another round is needed and can help; a cache that counts how full it is gets at least ``least``."""
    filled = [value for run in rounds if (value := _value(run, FILLED)) is not None]
    if not filled:  # the layer does not count it, or the cache takes no blocks
        return False
    if len(rounds) < least:
        return True
    if filled[-1] < FULL_PERCENT:
        return all(later - earlier >= _LEAST_GAIN_POINTS for earlier, later in pairwise(filled[-2:]))
    return any(unsteady(rounds))


def unsteady(rounds: Sequence[Run]) -> Iterator[str]:
    """Yield a sentence for each figure that still changed between the last two rounds."""
    if len(rounds) < 2 or _value(rounds[-1], FILL) is not None:  # noqa: PLR2004 - a change is between two
        return
    for name in (FILLED, HIT_RATIO):
        before, after = (_value(run, name) for run in rounds[-2:])
        if before is not None and after is not None and abs(after - before) > STEADY_POINTS:
            yield f"the cache was not steady after {len(rounds)} rounds: {name} went from {before:.1f} to {after:.1f} %"


def not_full_before(run: Run) -> Iterator[str]:
    """Yield why a run did not begin with a full cache, by :data:`FILLED_BEFORE`."""
    filled = _value(run, FILLED_BEFORE)
    if filled is not None and filled < FULL_PERCENT:
        yield f"the cache was not full before the {run.name} run: {filled:.1f} %"


def _value(run: Run, name: str) -> float | None:
    return dict(run.counters).get(name)
