"""The statistics of a comparison: against values of SciPy 1.17 and of books, and on planted data."""

import math

import numpy as np
import pytest

from bisector.analysis.comparison import (
    ALPHA,
    LOOKED_ALPHA,
    Decision,
    Effect,
    Outcome,
    Scale,
    benjamini_hochberg,
    blocks_to_tell,
    contrast,
    decide,
    effect,
    exact_p,
    geometric_mean,
    holm,
)
from bisector.core.metric import Better
from bisector.search.effect import p_value, quantile

# Fisher, The Design of Experiments, 1935: Darwin's maize, crossed less self-fertilised, in eighths of an inch.
DARWIN = np.array([49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48], dtype=np.float64)
FIRST, OTHER = (412.0, 398, 431, 405, 420, 409), (391.0, 388, 415, 380, 402, 399)


@pytest.mark.parametrize(
    ("freedom", "t_95", "t_99", "p_at_2_5"),
    [  # scipy.stats.t.ppf(.975), .ppf(.995), 2 * .sf(2.5)
        (1, 12.706204736174694, 63.656741162871526, 0.24223788318168682),
        (2, 4.302652729749462, 9.924843200918287, 0.12961172022151082),
        (5, 2.5705818356363146, 4.032142983555228, 0.05449009934237626),
        (30, 2.0422724563012378, 2.7499956535672254, 0.01811564906806669),
        (99, 1.9842169515864174, 2.626405457280827, 0.014062596921149069),
    ],
)
def test_student_as_scipy_has_it(freedom: int, t_95: float, t_99: float, p_at_2_5: float) -> None:
    assert quantile(0.95, freedom) == pytest.approx(t_95, rel=1e-11)
    assert quantile(0.99, freedom) == pytest.approx(t_99, rel=1e-11)
    assert p_value(2.5, freedom) == pytest.approx(p_at_2_5, rel=1e-11)
    assert p_value(-2.5, freedom) == p_value(2.5, freedom)


def test_fishers_test_of_darwins_maize() -> None:
    """1,726 of 32,768 ways, and t = 2.148 with p = 4.97 %."""
    found = effect([0.0] * 15, DARWIN.tolist())
    assert found.exact_p == 1726 / 32768
    assert found.p == pytest.approx(0.049702944021800866, rel=1e-9)
    assert found.interval == pytest.approx((0.031193318392979563, 41.83547334827369), rel=1e-9)
    assert found.hodges_lehmann == 25.0


def test_ratio_as_scipy_has_it() -> None:
    """``ttest_1samp`` and ``permutation_test(permutation_type="samples")`` of the logarithms of the ratios."""
    found = effect(FIRST, OTHER)
    assert (found.scale, found.blocks) == (Scale.RATIO, 6)
    assert found.estimate == pytest.approx(0.9595309571853897, rel=1e-12)
    assert found.interval == pytest.approx((0.94426828, 0.97504034), abs=1e-8)
    assert found.p == pytest.approx(0.0011815240677493914, rel=1e-9)
    assert found.exact_p == 0.03125
    assert found.hodges_lehmann == pytest.approx(0.9600056623410516, rel=1e-12)


def test_holm_and_benjamini_hochberg() -> None:
    """``p.adjust`` of R, and ``false_discovery_control`` of SciPy."""
    assert holm((0.03, 0.01, 0.05, 0.02, 0.04)) == pytest.approx((0.09, 0.05, 0.09, 0.08, 0.09))
    p = (0.008, 0.001, 0.039, 0.041, 0.042, 0.06, 0.074, 0.205)
    assert benjamini_hochberg(p) == pytest.approx((0.032, 0.008, 0.0672, 0.0672, 0.0672, 0.08, 0.074 * 8 / 7, 0.205))
    assert holm((0.9, 0.8)) == (1.0, 1.0)
    assert holm(()) == benjamini_hochberg(()) == ()


def test_permutations_are_both_ways_and_ties_count() -> None:
    assert exact_p(np.array([1.0, 1.0, 1.0, 1.0, 1.0])) == 2 / 32
    assert exact_p(np.array([0.1, 0.2, -0.3])) == 1.0
    assert exact_p(np.array([3.0, 2.0, -1.0])) == 4 / 8


@pytest.mark.parametrize("wrong", [((), ()), ((1.0,), (1.0, 2.0)), ((1.0,), (math.nan,)), ((math.inf,), (1.0,))])
def test_what_cannot_be_compared(wrong: tuple[tuple[float, ...], tuple[float, ...]]) -> None:
    with pytest.raises(ValueError, match="finite figures"):
        effect(*wrong)


def test_one_block_has_no_interval() -> None:
    one = effect((10.0,), (20.0,))
    assert (one.estimate, one.p, one.exact_p) == (2.0, 1.0, 1.0)
    assert one.interval == (0.0, math.inf)
    assert decide([(one, Better.HIGHER)]) == (Decision(Outcome.UNCLEAR, 1.0, needed=None),)


# The four words


def planted(*d: float) -> Effect:
    return effect([100.0] * len(d), [100.0 * math.exp(one) for one in d])


FAR = planted(0.20, 0.21, 0.19, 0.22, 0.20, 0.18)
NEAR = planted(0.010, 0.012, 0.011, 0.009, 0.010, 0.011)
EQUAL = planted(0.01, -0.01, 0.02, -0.02, 0.01, -0.005)
WIDE = planted(0.1, -0.1, 0.15, -0.12, 0.05, -0.03)


def alone(one: Effect, better: Better = Better.HIGHER, delta: float = 0.05) -> Decision:
    return decide([(one, better)], delta)[0]


def test_four_outcomes() -> None:
    assert alone(FAR).outcome is Outcome.FASTER
    assert alone(FAR, Better.LOWER).outcome is Outcome.SLOWER
    assert alone(EQUAL).outcome is Outcome.SAME
    assert alone(WIDE).outcome is Outcome.UNCLEAR
    # Without a difference that is significant, the interval as a whole has to lie in the band.
    assert alone(EQUAL, delta=0.01).outcome is Outcome.UNCLEAR
    assert alone(WIDE, delta=0.5).outcome is Outcome.SAME


def test_small_difference_is_a_difference_and_is_called_small() -> None:
    assert alone(NEAR) == Decision(Outcome.FASTER, NEAR.p, small=True)
    assert not alone(FAR).small


def test_figures_without_noise_are_told_apart_by_permutations_alone() -> None:
    """A counter that rounds gives the same figures twice by chance."""
    constant = alone(effect((3.0,) * 2, (4.0,) * 2))
    assert (constant.outcome, constant.adjusted_p, constant.needed) == (Outcome.UNCLEAR, 0.5, 6)
    assert alone(effect((3.0,) * 6, (4.0,) * 6)) == Decision(Outcome.FASTER, 0.03125)


def test_fragile_where_permutations_do_not_agree() -> None:
    wild = planted(0.30, 0.25, 0.28, 0.33, 0.29, -0.02)
    assert wild.p < 0.05 < wild.exact_p
    assert alone(wild) == Decision(Outcome.FASTER, wild.p, fragile=True)
    five = planted(0.20, 0.21, 0.19, 0.22, 0.20)
    assert alone(five).fragile, "no permutation of five blocks reaches 5 %"


def test_holm_takes_a_word_back() -> None:
    weak = planted(0.10, 0.02, 0.12, 0.01, 0.11, 0.03)
    assert 0.0125 < weak.p < 0.05
    assert alone(weak).outcome is Outcome.FASTER
    family = decide([(weak, Better.HIGHER), *[(WIDE, Better.HIGHER)] * 3])
    assert [one.outcome for one in family] == [Outcome.UNCLEAR] * 4
    assert family[0].adjusted_p == pytest.approx(4 * weak.p)


# How many blocks


def test_blocks_that_would_tell() -> None:
    needed = alone(WIDE).needed
    assert needed is not None
    assert needed == blocks_to_tell(WIDE)
    assert needed > WIDE.blocks
    band = WIDE.band(0.05) - abs(WIDE.mean)
    assert WIDE.half_width_after(needed) <= band < WIDE.half_width_after(needed - 1)
    assert blocks_to_tell(WIDE, family=4) == needed, "in the band there is no family"
    assert blocks_to_tell(planted(3.0, -3.0, 3.0, -3.0)) is None, "more than a thousand"


# Several rows


def test_geometric_mean_is_of_rounds_that_all_rows_have() -> None:
    rows = [{1: 0.10, 2: 0.20, 3: 0.30}, {1: 0.30, 3: 0.10, 4: 9.0}]
    found = geometric_mean(rows)
    assert found is not None
    assert found.blocks == 2
    assert found.mean == pytest.approx(0.2)
    assert geometric_mean([]) is None
    assert geometric_mean([{1: 0.1}, {2: 0.1}]) is None


def test_contrast_by_hand() -> None:
    """Welch's t of the logarithms; its 7.75 degrees of freedom are rounded down."""
    there = (0.010, 0.030, -0.015, 0.022, 0.004)
    found = contrast(FAR, planted(*there))
    assert found is not None
    far = np.array([0.20, 0.21, 0.19, 0.22, 0.20, 0.18])
    error = math.sqrt(far.var(ddof=1) / 6 + np.var(there, ddof=1) / 5)
    assert found.estimate == pytest.approx(math.exp(far.mean() - np.mean(there)))
    assert found.p == pytest.approx(p_value((far.mean() - np.mean(there)) / error, 7))
    assert found.interval == pytest.approx(
        [math.exp(far.mean() - np.mean(there) + sign * quantile(0.95, 7) * error) for sign in (-1, 1)]
    )


@pytest.mark.parametrize("other", [planted(0.1), effect((0.0, 1.0), (1.0, 2.0))], ids=["one block", "differences"])
def test_what_has_no_contrast(other: Effect) -> None:
    assert contrast(FAR, other) is None
    assert contrast(other, FAR) is None
    assert contrast(planted(0.1, 0.1), planted(0.2, 0.2, 0.2)) is None, "without noise"
    assert contrast(planted(0.1, 0.1), FAR) is not None


def test_interval_and_p_of_a_lone_look_agree() -> None:
    usual, looked = effect(FIRST, OTHER), effect(FIRST, OTHER, LOOKED_ALPHA)
    assert looked.half_width == pytest.approx(usual.half_width * quantile(0.96, 5) / quantile(0.95, 5))
    assert looked.p == pytest.approx(1.25 * usual.p)
    for shift in np.linspace(0.0, 0.1, 101):
        moved = [math.exp(shift + 0.01 * one) for one in (9, -2, 8, 1, 7, -3)]
        edge = effect([1.0] * 6, moved, LOOKED_ALPHA)
        assert (edge.p <= ALPHA) == (abs(edge.mean) >= edge.half_width)
    mean = geometric_mean([{1: 0.1, 2: 0.2}, {1: 0.2, 2: 0.3}], LOOKED_ALPHA)
    assert mean is not None
    assert mean.half_width == pytest.approx(quantile(0.96, 1) * mean.spread / math.sqrt(2))
    against = contrast(looked, usual)
    assert against is not None
    assert against.half_width > (contrast(usual, usual) or against).half_width
