"""Whether a cache that was filled until it was settled measures the same as one that was filled by whole runs; pure.

Both ends are measured both ways. The run that counts goes its whole length after a short fill, too, or ends once it is
clear of the threshold and like the end's whole run in pieces of the same moments (:mod:`bisector.analysis.paired`). The
short fill is harmless when at each end

- the *verdict* is alike: both are on one side of the threshold, and
- the *level* is alike: their scores differ by no more than a quarter of what the ends differ by, and by no more than a
  factor of :data:`_MOST_FACTOR`. Of several readings of one kind the median counts.

With noise of 5 %, and ends that are three times apart, a harmless fill is called harmful at less than 1 of 100 ends:
two readings differ by 7 %, and the limit is three of these deviations. That costs time, and nothing else. One that
moves a level by half of what the ends differ by is called harmless at 1 of 100 ends that are twice apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self

from bisector.analysis.judgement import score
from bisector.core.objective import Objective
from bisector.core.trial import Trial

_MOST_FACTOR = 1.25
_SHARE_OF_GAP = 0.25


@dataclass(frozen=True, slots=True)
class BothWays:
    """An end: the scores with whole fills, those where a short one was asked for, and how often it was.

    ``in_vain`` counts those among the latter whose cache was not settled before the end of a whole run, and so was
    filled by that: then either way is the same.
    """

    sha: str
    whole: tuple[float, ...]
    short: tuple[float, ...]
    tries: int = 0
    in_vain: int = 0

    @classmethod
    def of(cls, sha: str, whole: tuple[float, ...], sound: Sequence[Trial], tries: int, objective: Objective) -> Self:
        """Of the sound trials for which a short fill was asked.

        One that was stopped for being like the first whole run is held against that piece by piece, not by its mean.
        """
        counted = sound if whole else ()
        short = (
            score(one, objective) if one.unlike is None else whole[0] + objective.better.sign * math.log(one.unlike)
            for one in counted
        )
        return cls(sha, whole, tuple(short), tries, sum(not one.filled_short for one in counted))


@dataclass(frozen=True, slots=True)
class ShortFill:
    """What is known of the short fill: ``harmless``, or the end that is ``missing``, or ``why`` it is of no use."""

    harmless: bool = False
    missing: str = ""
    why: str = ""


def most_moved(ends: Sequence[BothWays]) -> float:
    """By how much a score may differ where that is called alike; both ends have whole runs."""
    apart = abs(median(ends[0].whole) - median(ends[-1].whole))
    return min(math.log(_MOST_FACTOR), _SHARE_OF_GAP * apart)


def standing(ends: Sequence[BothWays], line: float | None, most_tries: int) -> ShortFill:
    """What both ends tell; an end is given up after so many tries of which none was sound."""
    if line is None or not all(end.whole for end in ends):
        return ShortFill(why="both ends are to be measured by whole runs first")
    if all(end.in_vain for end in ends):
        return ShortFill(why="the caches of both ends were not settled before the end of a whole run")
    for end in ends:
        if not end.short:
            if end.tries >= most_tries:
                return ShortFill(why=f"no sound measurement of an end in {end.tries}")
            return ShortFill(missing=end.sha, why="the ends are not measured both ways yet")
    most = most_moved(ends)
    return next((ShortFill(why=why) for end in ends if (why := _harm(end, line, most))), ShortFill(harmless=True))


def _harm(end: BothWays, line: float, most: float) -> str:
    whole, short = median(end.whole), median(end.short)
    if (whole > line) is not (short > line):
        return "with it an end is on the other side of the threshold"
    if (moved := abs(short - whole)) > most:
        return f"with it an end measures {math.exp(moved):.2f} times as much or as little, limit {math.exp(most):.2f}"
    return ""
