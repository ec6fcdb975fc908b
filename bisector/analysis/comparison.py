"""Whether two kernels differ in a figure, and by how much, from blocks in which each was measured once.

A block gives one number, d = ln(other / first): a drift over hours is in both figures, and leaves their difference
unchanged. Student's t decides; a permutation test within blocks (Fisher 1935, 21) and the Hodges-Lehmann estimate
(1963, 34:598) are shown beside it. Families of tests: Holm (1979, 6:65), Benjamini and Hochberg (1995, 57:289). Two
setups: Welch (1947, 34:28).
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated

import numpy as np
import numpy.typing as npt

from bisector.core.json_document import Key
from bisector.core.metric import Better
from bisector.core.objective import Factor
from bisector.search.effect import p_value, quantile

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
ALPHA = 0.05
# The alpha of a single interval that ends a comparison once it is narrow, which happens sooner by chance if the spread
# looks smaller than it is. With 5 %, up to 7.3 % of comparisons raise an alarm without a difference; with 4 %, from
# 4.05 to 5.98 %, whatever the noise is (100,000 simulated comparisons for each of 15). If several intervals have to be
# narrow at once, 5 % gives 4.9 to 5.9 %.
LOOKED_ALPHA = 0.04
DELTA = 0.05  # the band of "the same", the default of bisect.least_effect by the host's clock
LOOKS = (6, 9, 12, 20)  # blocks after which --until looks at the widths of intervals; the last look ends the comparison
MOST_BLOCKS = 1000  # the largest number of blocks that a hint names
_ENUMERATED_BLOCKS = 16
_DRAWS = 20_000
_SEED = 19350101  # fixed, so that equal figures have equal p-values
_ROUNDING = 1e-12
_LARGEST_LOG = math.log(np.finfo(np.float64).max)


class Outcome(StrEnum):
    """The conclusion about a kernel, compared with the first one."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNCLEAR = "unclear"


class Scale(StrEnum):
    """The scale of an effect: ratios, or differences if a figure is zero or negative."""

    RATIO = "ratio"
    DIFFERENCE = "difference"


@dataclass(frozen=True, slots=True)
class Effect:
    """The difference of a figure from the first kernel's, by d of each block.

    d is the logarithm of the ratio, or the difference in the metric's unit. ``spread`` is its standard deviation, NaN
    for a single block; ``median`` is the Hodges-Lehmann estimate of d. ``base`` is the first kernel's mean figure, and
    ``alpha`` the error probability of the interval.
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
        """Half of the width of the interval of d; infinite for a single block."""
        return self.half_width_after(self.blocks)

    def half_width_after(self, blocks: int, family: int = 1) -> float:
        """Half of the width after ``blocks`` blocks with the same spread, in a family of so many tests."""
        if self.blocks < 2:  # noqa: PLR2004 - one number has no spread
            return math.inf
        return quantile(1 - self.alpha / family, blocks - 1) * self.spread / math.sqrt(blocks)

    @property
    def estimate(self) -> Annotated[float, Key()]:
        """Ratio to the first kernel (geometric mean over blocks), or difference from it."""
        return self._shown(self.mean)

    @property
    def interval(self) -> tuple[float, float]:
        """The interval that holds the true ratio or difference, 95 times of 100."""
        return self._shown(self.mean - self.half_width), self._shown(self.mean + self.half_width)

    @property
    def low(self) -> Annotated[float | None, Key()]:
        """Lower end of its 95 % interval, by Student's t; ``null`` of one block."""
        return self.interval[0] if math.isfinite(self.half_width) else None

    @property
    def high(self) -> Annotated[float | None, Key()]:
        """Upper end; ``null`` of one block."""
        return self.interval[1] if math.isfinite(self.half_width) else None

    @property
    def hodges_lehmann(self) -> Annotated[float, Key()]:
        """The same by the median of the Walsh averages."""
        return self._shown(self.median)

    def band(self, delta: float) -> float:
        """The largest distance of d from 0 that is the same within ``delta``, a share of the first kernel's figure."""
        return math.log1p(delta) if self.scale is Scale.RATIO else delta * abs(self.base)

    def is_within(self, delta: float) -> bool:
        """Whether the whole interval lies in the band."""
        return abs(self.mean) + self.half_width <= self.band(delta) * (1 + _ROUNDING)

    def is_narrow(self, delta: float) -> bool:
        """Whether the interval is at most as wide as the band, wherever it lies."""
        return self.half_width <= self.band(delta) * (1 + _ROUNDING)

    def _shown(self, value: float) -> float:
        return value if self.scale is Scale.DIFFERENCE else _ratio(value)


def _ratio(log: float) -> float:
    return math.exp(log) if log < _LARGEST_LOG else math.inf


def effect(first: Sequence[float], other: Sequence[float], alpha: float = ALPHA) -> Effect:
    """Return the effect from the figures of two kernels, block by block: ratios if all figures are above zero.

    Raises :class:`ValueError` if a figure is not finite, if there is no block, or if the rows differ in length.
    """
    before, after = (np.asarray(row, dtype=np.float64) for row in (first, other))
    if before.shape != after.shape or not before.size or not np.all(np.isfinite([before, after])):
        raise ValueError("a comparison needs as many finite figures of either kernel, and one at least")
    if before.min() > 0 and after.min() > 0:
        return _effect(np.log(after / before), Scale.RATIO, float(before.mean()), alpha)
    return _effect(after - before, Scale.DIFFERENCE, float(before.mean()), alpha)


def geometric_mean(rows: Iterable[Mapping[int, float]], alpha: float = ALPHA) -> Effect | None:
    """Return the effect of the mean of d over all rows, from the rounds that all rows have; a row has d by round.

    None if there is no row, or no round that all of them have.
    """
    found = tuple(rows)
    rounds = sorted(set.intersection(*map(set, found))) if found else []
    if not rounds:
        return None
    return _effect(np.array([[row[one] for one in rounds] for row in found]).mean(axis=0), Scale.RATIO, 1.0, alpha)


@dataclass(frozen=True, slots=True)
class Contrast:
    """The difference of the effects on two setups: of both means of d, with Welch's test."""

    mean: float
    half_width: float
    p: Annotated[float, "two-sided p-value of Welch's t"]

    @property
    def low(self) -> Annotated[float, Key()]:
        """Lower end of its 95 % interval, by Welch's t."""
        return self.interval[0]

    @property
    def high(self) -> Annotated[float | None, Key()]:
        """Upper end; ``null`` where there is none."""
        return self.interval[1]

    @property
    def estimate(self) -> Annotated[float, Key()]:
        """Its ratio to the first kernel there, divided by that on the first stack."""
        return _ratio(self.mean)

    @property
    def interval(self) -> tuple[float, float]:
        """The interval that holds the true ratio of both ratios, 95 times of 100."""
        return _ratio(self.mean - self.half_width), _ratio(self.mean + self.half_width)


def contrast(one: Effect, other: Effect) -> Contrast | None:
    """Return the contrast of two ratios, each with blocks of its own; degrees of freedom are rounded down (Welch 1947).

    None for differences, for a single block, and if neither effect has any spread, because the noise is then unknown.
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
    """Return the ratio of ``after`` to ``before``, whose values are above zero; None if either is empty."""
    if not (before and after):
        return None
    # Each side is compared with 1, so that their difference is the logarithm of the ratio of both.
    old, new = (effect([1.0] * len(one), one) for one in (before, after))
    found = contrast(new, old)
    return Factor.of_logs(new.mean - old.mean, found.half_width if found is not None else math.inf)


def _of_alpha(p: float, alpha: float) -> float:
    return min(1.0, p * (ALPHA / alpha))


def _effect(d: Floats, scale: Scale, base: float, alpha: float) -> Effect:
    mean, spread = map(float, moments(d))
    count = int(d.size)
    exact = exact_p(d) if count > 1 else 1.0
    # Figures that a counter rounds may be equal in each block: t has no noise then, and the permutations decide.
    p = exact
    if spread != 0:
        is_known = not math.isnan(spread) and mean != 0
        p = _of_alpha(p_value(mean / (spread / math.sqrt(count)), count - 1) if is_known else 1.0, alpha)
    one, other = np.triu_indices(d.size)
    walsh = float(np.median((d[one] + d[other]) / 2))  # means of all pairs, each number also paired with itself
    return Effect(scale, count, mean, spread, walsh, p, exact, base, alpha)


def moments(d: Floats) -> tuple[Floats, Floats]:
    """Return mean and standard deviation along the last axis.

    The deviation of one number is NaN; deviations that rounding may explain are 0.
    """
    mean = d.mean(axis=-1)
    if d.shape[-1] == 1:
        return mean, np.full_like(mean, math.nan)
    spread = d.std(axis=-1, ddof=1)
    return mean, np.where(spread <= _ROUNDING * np.abs(d).max(axis=-1), 0.0, spread)


def exact_p(d: Floats) -> float:
    """The share of sign changes within blocks with which the mean would be as far from 0, on either side.

    All 2^n sign changes are counted up to 16 blocks; for more, 20,000 are drawn and the observed one is added.
    """
    seen = abs(float(d.sum())) - _ROUNDING * float(np.abs(d).sum())
    if d.size > _ENUMERATED_BLOCKS:
        return float((1 + np.count_nonzero(np.abs(_drawn_signs(d.size) @ d) >= seen)) / (_DRAWS + 1))
    sums = d[:1]  # turning the first sign, too, would only repeat each sum
    for one in d[1:]:
        sums = np.concatenate((sums + one, sums - one))
    return float(np.count_nonzero(np.abs(sums) >= seen) / sums.size)


@cache  # a comparison has hundreds of figures, and drawing takes longer than counting
def _drawn_signs(blocks: int) -> Floats:
    tosses = np.random.default_rng(_SEED).integers(0, 2, size=(_DRAWS, blocks))
    return np.asarray(2 * tosses - 1, dtype=np.float64)


# From effects to conclusions


@dataclass(frozen=True, slots=True)
class Decision:
    """The conclusion about an effect in its family: Holm's p-value, one of the four outcomes, and details."""

    outcome: Annotated[Outcome, "what is said of it; `null` of a row that does not decide"]
    adjusted_p: float
    fragile: Annotated[bool, "whether it differs by Student's t, and not by the permutations"] = False
    small: Annotated[bool, "whether it differs, but by less than `delta`"] = False
    needed: Annotated[int | None, Key("blocks_to_tell"), "after about so many blocks an unclear row would be clear"] = (
        None
    )


def decide(effects: Sequence[tuple[Effect, Better]], delta: float = DELTA) -> tuple[Decision, ...]:
    """Return the conclusion about each effect, as one family of tests: with 95 % confidence none of them is false."""
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
    """After how many blocks the effect would be clear with the same mean and spread; None above a thousand."""

    def tells(blocks: int) -> bool:
        differs = one.half_width_after(blocks, family) < abs(one.mean)
        return differs or one.half_width_after(blocks) <= one.band(delta) - abs(one.mean)

    if one.spread == 0:  # only the permutations tell
        return max(one.blocks + 1, blocks_for_exact(family))
    if one.blocks < 2 or not tells(MOST_BLOCKS):  # noqa: PLR2004 - one block has no spread
        return None
    more = range(one.blocks + 1, MOST_BLOCKS)
    return more.start + bisect_left(more, True, key=tells)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return p-values adjusted so that those of at most 5 % are all true together, 95 times of 100 (Holm 1979)."""
    p = np.sort(np.asarray(p_values, dtype=np.float64))
    return _adjusted(p_values, np.maximum.accumulate(p * (p.size - np.arange(p.size))))


def benjamini_hochberg(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return p-values adjusted so that 5 % of those of at most 5 % are false (Benjamini and Hochberg 1995)."""
    p = np.sort(np.asarray(p_values, dtype=np.float64))
    return _adjusted(p_values, np.minimum.accumulate((p * p.size / np.arange(1, p.size + 1))[::-1])[::-1])


def _adjusted(p_values: Sequence[float], stepped: Floats) -> tuple[float, ...]:
    adjusted = np.empty_like(stepped)
    adjusted[np.argsort(p_values, kind="stable")] = np.minimum(stepped, 1.0)
    return tuple(adjusted.tolist())


# How many blocks


def least_exact_p(blocks: int) -> float:
    """The least p-value that the permutations can give: 2 of 2^n, 6.2 % for five blocks and 3.1 % for six."""
    return min(1.0, 2.0 ** (1 - blocks))


def blocks_for_exact(family: int) -> int:
    """The least number of blocks with which permutations can reach 5 % in a family, by Holm: 6, for 4 tests 8."""
    return 1 + math.ceil(math.log2(max(1, family) / ALPHA))
