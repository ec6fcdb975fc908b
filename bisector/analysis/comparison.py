"""Whether two kernels differ in a figure, and by how much, from blocks in which each was measured once.

A block gives one number, d = ln(other / first): what drifts over hours is in both figures, and leaves their
difference. Student's t decides; a permutation test within blocks (Fisher 1935, 21) and the Hodges-Lehmann estimate
(1963, 34:598) stand beside it. Families: Holm (1979, 6:65), Benjamini and Hochberg (1995, 57:289). Two setups: Welch
(1947, 34:28).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated

import numpy as np
import numpy.typing as npt

from bisector.core.json_keys import Key
from bisector.core.metric import Better
from bisector.core.objective import Factor
from bisector.search.difference import p_value, quantile

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
ALPHA = 0.05
# What a lone interval is made with that ends a comparison once it is narrow: by chance that is sooner when the spread
# looks smaller than it is. With 5 % up to 7.3 % alarm without a difference, with 4 % from 4.05 to 5.98 %, whatever the
# noise is (100,000 simulated comparisons for each of 15). Where several have to be narrow at once, 4.9 to 5.9 % do.
LOOKED_ALPHA = 0.04
DELTA = 0.05  # the band of "the same", as bisect.least_effect has it by the host's clock
LOOKS = (6, 9, 12, 20)  # blocks after which --until looks at the widths; the last one ends it
MOST_BLOCKS = 1000  # that are told to tell
_ENUMERATED_BLOCKS = 16
_DRAWS = 20_000
_SEED = 19350101  # equal figures have equal p-values
_ROUNDING = 1e-12
_LARGEST_LOG = math.log(np.finfo(np.float64).max)


class Outcome(StrEnum):
    """What is said of a kernel against the first one."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNCLEAR = "unclear"


class Scale(StrEnum):
    """What is computed with: ratios, or where a figure is zero or negative, differences."""

    RATIO = "ratio"
    DIFFERENCE = "difference"


@dataclass(frozen=True, slots=True)
class Effect:
    """How a figure differs from the first kernel's; ``mean``, ``spread`` and ``median`` are of d, one of each block.

    d is the logarithm of the ratio, or the difference in the metric's unit. ``spread`` is its standard deviation, NaN
    of one block; ``base`` is the first kernel's mean figure, and ``alpha`` what the interval leaves out.
    """

    scale: Annotated[Scale, "whether what follows are ratios, or differences where a value is zero or negative"]
    blocks: Annotated[int, "number of blocks that both have a value in"]
    mean: float
    spread: float
    median: float
    p: Annotated[
        float,
        "two-sided p-value of Student's t, 1 of one block; 1.25 times that where a lone interval ends a setup "
        "(`--until`)",
    ]
    exact_p: Annotated[float, "two-sided p-value of the permutations within blocks, 1 of one block"]
    base: float
    alpha: float = ALPHA

    @property
    def half_width(self) -> float:
        """Half of the interval of d, infinite of one block."""
        return self.half_width_after(self.blocks)

    def half_width_after(self, blocks: int, family: int = 1) -> float:
        """What half of the interval would be after so many blocks that spread as these do, for so many tests."""
        if self.blocks < 2:  # noqa: PLR2004 - one number has no spread
            return math.inf
        return quantile(1 - self.alpha / family, blocks - 1) * self.spread / math.sqrt(blocks)

    @property
    def estimate(
        self,
    ) -> Annotated[float, "ratio to the first kernel (geometric mean over blocks), or difference from it"]:
        """The ratio to the first kernel, or the difference from it."""
        return self._shown(self.mean)

    @property
    def interval(self) -> tuple[float, float]:
        """In which the true ratio or difference lies, 95 times of 100."""
        return self._shown(self.mean - self.half_width), self._shown(self.mean + self.half_width)

    @property
    def low(self) -> Annotated[float | None, "lower end of its 95 % interval, by Student's t; `null` of one block"]:
        """The lower end of the interval; None of one block."""
        return self.interval[0] if math.isfinite(self.half_width) else None

    @property
    def high(self) -> Annotated[float | None, "upper end"]:
        """The upper end of the interval; None of one block."""
        return self.interval[1] if math.isfinite(self.half_width) else None

    @property
    def hodges_lehmann(self) -> Annotated[float, "the same by the median of the Walsh averages"]:
        """The ratio or difference by the median of the Walsh averages."""
        return self._shown(self.median)

    def band(self, delta: float) -> float:
        """How far d may be from 0 to be the same within ``delta``, a share of the first kernel's figure."""
        return math.log1p(delta) if self.scale is Scale.RATIO else delta * abs(self.base)

    def is_within(self, delta: float) -> bool:
        """Whether the whole interval lies in the band."""
        return abs(self.mean) + self.half_width <= self.band(delta) * (1 + _ROUNDING)

    def is_narrow(self, delta: float) -> bool:
        """Whether the interval is as narrow as the band is; where it lies makes no difference."""
        return self.half_width <= self.band(delta) * (1 + _ROUNDING)

    def _shown(self, value: float) -> float:
        return value if self.scale is Scale.DIFFERENCE else _ratio(value)


def _ratio(log: float) -> float:
    return math.exp(log) if log < _LARGEST_LOG else math.inf


def effect(first: Sequence[float], other: Sequence[float], alpha: float = ALPHA) -> Effect:
    """The figures of two kernels, block by block; ratios if all of them are above zero.

    Raises :class:`ValueError` for a figure that is not finite, for no block, and for rows of different lengths.
    """
    before, after = (np.asarray(row, dtype=np.float64) for row in (first, other))
    if before.shape != after.shape or not before.size or not np.all(np.isfinite([before, after])):
        raise ValueError("a comparison needs as many finite figures of either kernel, and one at least")
    if before.min() > 0 and after.min() > 0:
        return _effect(np.log(after / before), Scale.RATIO, float(before.mean()), alpha)
    return _effect(after - before, Scale.DIFFERENCE, float(before.mean()), alpha)


def geometric_mean(rows: Iterable[Mapping[int, float]], alpha: float = ALPHA) -> Effect | None:
    """The mean over rows, each of which has a d for some rounds: of the rounds that all rows have, the mean of each.

    None without a row, or without a round that all of them have.
    """
    found = tuple(rows)
    rounds = sorted(set.intersection(*map(set, found))) if found else []
    if not rounds:
        return None
    return _effect(np.array([[row[one] for one in rounds] for row in found]).mean(axis=0), Scale.RATIO, 1.0, alpha)


@dataclass(frozen=True, slots=True)
class Contrast:
    """How far an effect on one setup is from that on another: the difference of both means of d, and Welch's test."""

    mean: float
    half_width: float
    p: Annotated[float, "two-sided p-value of Welch's t"]

    @property
    def low(self) -> Annotated[float, "lower end of its 95 % interval, by Welch's t"]:
        """The lower end of the interval."""
        return self.interval[0]

    @property
    def high(self) -> Annotated[float | None, "upper end; `null` where there is none"]:
        """The upper end of the interval."""
        return self.interval[1]

    @property
    def estimate(
        self,
    ) -> Annotated[float, "its ratio to the first kernel there, divided by that on the first stack"]:
        """The ratio of both ratios."""
        return _ratio(self.mean)

    @property
    def interval(self) -> tuple[float, float]:
        """In which the true one lies, 95 times of 100."""
        return _ratio(self.mean - self.half_width), _ratio(self.mean + self.half_width)


def contrast(one: Effect, other: Effect) -> Contrast | None:
    """Of two ratios, each with blocks of its own; the degrees of freedom are rounded down (Welch 1947).

    None of differences, of one block, and where neither of both spreads, so that nothing is known of the noise.
    """
    if {one.scale, other.scale} != {Scale.RATIO} or min(one.blocks, other.blocks) < 2:  # noqa: PLR2004 - as above
        return None
    parts = [(side.spread**2 / side.blocks, side.blocks - 1) for side in (one, other)]
    variance = math.fsum(part for part, _ in parts)
    if variance == 0:
        return None
    freedom = math.floor(variance**2 / math.fsum(part**2 / own for part, own in parts) * (1 + _ROUNDING))
    mean, error, alpha = one.mean - other.mean, math.sqrt(variance), min(one.alpha, other.alpha)
    return Contrast(mean, quantile(1 - alpha, freedom) * error, _of_alpha(p_value(mean / error, freedom), alpha))


def factor_between(before: Sequence[float], after: Sequence[float]) -> Factor | None:
    """How many times the values of ``before`` those of ``after`` are, which are above zero; None without either."""
    if not (before and after):
        return None
    # Each side against 1, so that what they are apart is the ratio of both.
    old, new = (effect([1.0] * len(one), one) for one in (before, after))
    found = contrast(new, old)
    return Factor.of_logs(new.mean - old.mean, found.half_width if found is not None else math.inf)


def _of_alpha(p: float, alpha: float) -> float:
    return min(1.0, p * (ALPHA / alpha))


def _effect(d: Floats, scale: Scale, base: float, alpha: float) -> Effect:
    mean, spread = map(float, moments(d))
    count = int(d.size)
    exact = exact_p(d) if count > 1 else 1.0
    # Figures that a counter rounds may be alike in each block: t has no noise then, the permutations count.
    p = exact
    if spread != 0:
        is_known = not math.isnan(spread) and mean != 0
        p = _of_alpha(p_value(mean / (spread / math.sqrt(count)), count - 1) if is_known else 1.0, alpha)
    one, other = np.triu_indices(d.size)
    walsh = float(np.median((d[one] + d[other]) / 2))  # of the means of all pairs of numbers, each with itself included
    return Effect(scale, count, mean, spread, walsh, p, exact, base, alpha)


def moments(d: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation along the last axis; the deviation of one number is NaN, and rounding has none."""
    mean = d.mean(axis=-1)
    if d.shape[-1] == 1:
        return mean, np.full_like(mean, math.nan)
    spread = d.std(axis=-1, ddof=1)
    return mean, np.where(spread <= _ROUNDING * np.abs(d).max(axis=-1), 0.0, spread)


def exact_p(d: Floats) -> float:
    """How often the mean would be as far from 0 if the labels within each block were drawn again, both ways.

    All 2^n ways are counted up to 16 blocks; of more, 20,000 are drawn and the one that was seen is added.
    """
    seen = abs(float(d.sum())) - _ROUNDING * float(np.abs(d).sum())
    if d.size > _ENUMERATED_BLOCKS:
        return float((1 + np.count_nonzero(np.abs(_drawn_signs(d.size) @ d) >= seen)) / (_DRAWS + 1))
    sums = d[:1]  # with the first sign turned, too, each sum would only be there twice
    for one in d[1:]:
        sums = np.concatenate((sums + one, sums - one))
    return float(np.count_nonzero(np.abs(sums) >= seen) / sums.size)


@cache  # a comparison has hundreds of figures, and to draw takes longer than to count
def _drawn_signs(blocks: int) -> Floats:
    tosses = np.random.default_rng(_SEED).integers(0, 2, size=(_DRAWS, blocks))
    return np.asarray(2 * tosses - 1, dtype=np.float64)


# From effects to what is said


@dataclass(frozen=True, slots=True)
class Decision:
    """What is said of an effect in its family: Holm's p-value, one of the four outcomes, and what goes with it."""

    outcome: Annotated[Outcome, "what is said of it; `null` of a row that does not decide"]
    adjusted_p: float
    fragile: Annotated[bool, "whether it differs by Student's t, and not by the permutations"] = False
    small: Annotated[bool, "whether it differs, but by less than `delta`"] = False
    needed: Annotated[int | None, Key("blocks_to_tell"), "after about so many blocks an unclear row would be clear"] = (
        None
    )


def decide(effects: Sequence[tuple[Effect, Better]], delta: float = DELTA) -> tuple[Decision, ...]:
    """What is said of each, as one family of tests: none of them is false with more than 5 % together."""
    found = []
    for (one, better), p in zip(effects, holm([one.p for one, _ in effects]), strict=True):
        if p <= ALPHA:
            outcome = Outcome.FASTER if one.mean * better.sign > 0 else Outcome.SLOWER
            found.append(Decision(outcome, p, fragile=one.exact_p > ALPHA, small=one.is_within(delta)))
        elif one.is_within(delta):
            found.append(Decision(Outcome.SAME, p))
        else:
            found.append(Decision(Outcome.UNCLEAR, p, needed=blocks_to_tell(one, delta, len(effects))))
    return tuple(found)


def blocks_to_tell(one: Effect, delta: float = DELTA, family: int = 1) -> int | None:
    """After how many blocks it would be clear, if mean and spread stayed what they are; None above a thousand."""

    def tells(blocks: int) -> bool:
        differs = one.half_width_after(blocks, family) < abs(one.mean)
        return differs or one.half_width_after(blocks) <= one.band(delta) - abs(one.mean)

    few, many = one.blocks, MOST_BLOCKS
    if one.spread == 0:  # only the permutations tell
        return max(few + 1, blocks_for_exact(family))
    if few < 2 or not tells(many):  # noqa: PLR2004 - one block has no spread
        return None
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if tells(middle) else (middle, many)
    return many


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted so that all that are at most 5 % are true together, 95 times of 100 (Holm 1979)."""
    p = np.sort(np.asarray(p_values, dtype=np.float64))
    return _adjusted(p_values, np.maximum.accumulate(p * (p.size - np.arange(p.size))))


def benjamini_hochberg(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted so that of those that are at most 5 %, 5 % are expected to be false (Benjamini and Hochberg 1995)."""
    p = np.sort(np.asarray(p_values, dtype=np.float64))
    return _adjusted(p_values, np.minimum.accumulate((p * p.size / np.arange(1, p.size + 1))[::-1])[::-1])


def _adjusted(p_values: Sequence[float], stepped: Floats) -> tuple[float, ...]:
    adjusted = np.empty_like(stepped)
    adjusted[np.argsort(p_values, kind="stable")] = np.minimum(stepped, 1.0)
    return tuple(adjusted.tolist())


# How many blocks


def least_exact_p(blocks: int) -> float:
    """What the permutations give at best: 2 of 2^n, 6.2 % of five blocks and 3.1 % of six."""
    return min(1.0, 2.0 ** (1 - blocks))


def blocks_for_exact(family: int) -> int:
    """From how many blocks on the permutations can reach 5 % in a family of so many tests, by Holm: 6, of 4 tests 8."""
    return 1 + math.ceil(math.log2(max(1, family) / ALPHA))
