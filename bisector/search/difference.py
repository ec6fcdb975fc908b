"""Whether two sides differ, and by how much, from readings of both in turn (docs/method.md). All functions are pure.

A reading is the level of its side, plus a linear drift of the host, plus noise (least squares with the place in the
order as a covariate: Fisher, Statistical Methods for Research Workers, 1932, 49.1). In all looks together, two equal
sides are said to differ at most once in 1,000 times (100,000 simulated ends each, with and without drift, normal and
heavy tails). Student's t has whole degrees of freedom, and so is a finite sum (Abramowitz and Stegun 26.7.3, 26.7.4):
no SciPy is needed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from statistics import fmean

_LEAST_STEP = 1e-14  # the precision of a quantile: the limit is rounding


def within(t: float, freedom: int) -> float:
    """P(abs(T) <= ``t``) of Student's t with ``freedom`` degrees of freedom."""
    if math.isinf(t):
        return 1.0
    angle = math.atan2(abs(t), math.sqrt(freedom))
    odd, square = freedom % 2, math.cos(angle) ** 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for power in range(2 + odd, freedom - 1, 2):
        term *= square * (power - 1) / power
        total += term
    total *= math.sin(angle)
    return min(1.0, 2 / math.pi * (angle + total) if odd else total)


def p_value(t: float, freedom: int) -> float:
    """The two-sided p-value of ``t``; values below 1e-15 are lost to rounding."""
    return max(0.0, 1.0 - within(t, freedom))


@cache
def quantile(share: float, freedom: int) -> float:
    """The distance from 0 within which ``share`` of Student's t lies: 2.571 for 0.95 and 5 degrees of freedom."""
    low, high = 0.0, 1.0
    while within(high, freedom) < share:
        low, high = high, 2 * high
    while high - low > _LEAST_STEP * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if within(middle, freedom) < share else (low, middle)
    return (low + high) / 2


CONFIDENCE = 0.95
# The error probabilities of one look: two equal sides are said to differ, and sides that differ by the least effect are
# said to be the same.
_BY_CHANCE = 1 / 12_000
_MISSED = 0.02
# From the second look on, each look has this share more pairs than the one before.
_MORE = 0.15
# A counter rounds its figures, so four of them may be two equal pairs by chance: without any spread, this many pairs
# are needed.
_WITHOUT_SPREAD = 6
# With fewer pairs the spread is not known well enough to say that more pairs would be in vain.
_SPREAD_IS_KNOWN = 6
_POWER = 1.28  # standard errors: nine of ten differences of that size are found
_MOST_PAIRS = 100_000

# Readings of whole runs show a difference of a factor of 2 without further pairs.
LARGE = math.log(2)

# For each reading, in the order of measuring: whether it is of the new end, and its score.
InTurn = Sequence[tuple[bool, float]]


@dataclass(frozen=True, slots=True)
class PairsRule:
    """The least effect to look for, as a share of the old end's value, and the number of pairs that it is worth."""

    least_effect: float
    most_pairs: int

    @property
    def band(self) -> float:
        """The largest difference of two scores that count as the same."""
        return math.log1p(self.least_effect)

    @property
    def looks(self) -> Iterator[int]:
        """The numbers of pairs after which the readings are looked at."""
        pairs = 2
        while pairs < self.most_pairs:
            yield pairs
            pairs = max(pairs + 1, math.ceil(pairs * (1 + _MORE)))
        yield max(2, self.most_pairs)


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How far the score of the new end is above the old end's, from ``pairs`` pairs of readings.

    ``error`` is the standard error of ``mean``, ``freedom`` its degrees of freedom.
    """

    pairs: int
    mean: float
    error: float
    freedom: int

    def half_width(self, share: float = CONFIDENCE) -> float:
        """Half of the width of the confidence interval that has this share."""
        return quantile(share, self.freedom) * self.error

    @property
    def spread(self) -> float:
        """The standard deviation of the readings of one end."""
        return self.error * math.sqrt(self.pairs / 2)

    @property
    def is_told(self) -> bool:
        """Whether the difference is too large for chance."""
        if not self.error:
            return bool(self.mean) and self.pairs >= _WITHOUT_SPREAD
        return abs(self.mean) > self.half_width(1 - _BY_CHANCE)

    def is_within(self, band: float) -> bool:
        """Whether the difference is known to be at most ``band``."""
        return abs(self.mean) + self.half_width(1 - _MISSED) <= band


class PairsConclusion(StrEnum):
    """The conclusion from readings of two sides in turn."""

    DIFFER = "differ"
    SAME = "same"
    NOISY = "too noisy"


def told(readings: InTurn, rule: PairsRule) -> tuple[PairsConclusion, PairedDifference] | None:
    """Return the conclusion of the first look that permits one, and its readings; None if more readings are needed."""
    for pairs in rule.looks:
        if (seen := difference(readings, pairs)) is None:
            return None
        if seen.is_told:
            return PairsConclusion.DIFFER, seen
        if seen.is_within(rule.band):
            return PairsConclusion.SAME, seen
        # Whether the largest number of pairs could still tell the sides apart, or show that they are the same, given
        # the spread so far: the true difference may be two standard errors above its estimate, or 0
        may_be_same = (
            quantile(1 - _MISSED, 2 * rule.most_pairs) * seen.spread * math.sqrt(2 / rule.most_pairs) < rule.band
        )
        at_most = math.expm1(abs(seen.mean) + 2 * seen.error)
        may_be_told = may_be_same or _tells(seen.spread, at_most, rule.most_pairs)
        if pairs >= rule.most_pairs or (pairs >= _SPREAD_IS_KNOWN and not may_be_told):
            return PairsConclusion.NOISY, seen
    return None


def difference(readings: InTurn, pairs: int | None = None) -> PairedDifference | None:
    """Return the difference of the first ``pairs`` readings of both ends, or of all; None if there are fewer than two.

    Two readings of each end say nothing about a drift.
    """
    old, new = (
        [(place, score) for place, (is_new, score) in enumerate(readings) if is_new == one] for one in (False, True)
    )
    there = min(len(old), len(new))
    pairs = there if pairs is None else pairs
    if there < pairs or pairs < 2:  # noqa: PLR2004 - one reading of each has no spread
        return None
    old, new = old[:pairs], new[:pairs]
    (place_old, score_old), (place_new, score_new) = (map(fmean, zip(*row, strict=True)) for row in (old, new))
    apart = [(place - place_old, score - score_old) for place, score in old]
    apart += [(place - place_new, score - score_new) for place, score in new]
    of_places = math.fsum(place**2 for place, _ in apart)
    drifts = pairs > 2  # noqa: PLR2004 - as above
    drift = math.fsum(place * score for place, score in apart) / of_places if drifts else 0.0
    squares = math.fsum((score - drift * place) ** 2 for place, score in apart)
    freedom, shift = 2 * (pairs - 1) - drifts, place_new - place_old
    variance = squares / freedom * (2 / pairs + (shift**2 / of_places if drifts else 0.0))
    return PairedDifference(pairs, score_new - score_old - drift * shift, math.sqrt(variance), freedom)


def pairs_to_tell(spread: float, effect: float) -> int | None:
    """How many pairs find nine of ten changes of ``effect``, given the standard deviation of one kernel's readings.

    None if more pairs are needed than anybody has time for.
    """
    few, many = 1, 2
    while not _tells(spread, effect, many, _POWER):
        few, many = many, 2 * many
        if many > _MOST_PAIRS:
            return None
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if _tells(spread, effect, middle, _POWER) else (middle, many)
    return many


def _tells(spread: float, effect: float, pairs: int, power: float = 0.0) -> bool:
    error, freedom = spread * math.sqrt(2 / pairs), max(2, 2 * pairs - 3)
    return (quantile(1 - _BY_CHANCE, freedom) + power) * error < math.log1p(effect)
