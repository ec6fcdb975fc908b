"""What a reading is worth, and what it is not; what noise costs at least, and what searches find."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisector.core.objective import Objective
from bisector.core.verdict import Strategy, Verdict
from bisector.search.likelihood import (
    Evidence,
    Kernel,
    Level,
    Levels,
    Noise,
    Reading,
    Weighing,
    error_rate,
    expected_runs,
    least_factor,
)
from bisector.search.simulate.runs import Summary, search_for, simulate
from bisector.search.simulate.world import Conditions
from tests.analysis.test_recorded_bisect import VERDICTS, measured
from tests.search.graphs import kernel_like

SURE = Noise(0.001, 0.001, 0.002)
NOISE = Noise(old_as_new=0.003, new_as_old=0.05, sticky=0.01)
LEVELS = Levels(Level(math.log(1_000), 0.1), Level(math.log(20_000), 0.1))
OLD, NEW = Verdict.OLD, Verdict.NEW


def reading(verdict: Verdict, figure: float | None = None, kernel: Kernel = Kernel.COMMIT) -> Reading:
    return Reading(1, kernel, verdict, None if figure is None else math.log(figure))


def ratio(evidence: Evidence) -> float:
    return math.exp(evidence.new - evidence.old)


def test_a_verdict_counts_by_the_error_rates() -> None:
    weighing = Weighing(NOISE)
    assert ratio(weighing.of([reading(NEW)])) == pytest.approx(0.95 / 0.003)
    assert ratio(weighing.of([reading(OLD)])) == pytest.approx(0.05 / 0.997)
    assert ratio(weighing.of([reading(NEW), reading(OLD)])) == pytest.approx(0.95 / 0.003 * 0.05 / 0.997)


@given(st.lists(st.sampled_from([OLD, NEW]), max_size=30))
def test_trust_in_one_kernel_saturates(verdicts: list[Verdict]) -> None:
    raw = Weighing(NOISE).of([reading(verdict) for verdict in verdicts])
    hard = raw.hardened(0.01)
    assert abs(hard.new - hard.old) <= math.log(0.99 / 0.01) + 1e-9
    assert (hard.new - hard.old) * (raw.new - raw.old) >= 0


def test_hardened_is_the_mixture() -> None:
    raw = Evidence(old=math.log(0.2), new=math.log(0.7))
    hard = raw.hardened(0.1)
    assert math.exp(hard.new) == pytest.approx(0.9 * 0.7 + 0.1 * 0.2)
    assert math.exp(hard.old) == pytest.approx(0.9 * 0.2 + 0.1 * 0.7)
    assert raw.sticky_given(NEW, 0.1) == pytest.approx(0.1 * 0.2 / (0.9 * 0.7 + 0.1 * 0.2))
    assert raw.sticky_given(OLD, 0.1) == pytest.approx(0.1 * 0.7 / (0.9 * 0.2 + 0.1 * 0.7))
    assert Evidence(-5_000.0, 0.0).sticky_given(OLD, 0.01) == pytest.approx(1)


def test_a_figure_between_the_levels_says_little() -> None:
    weighing = Weighing(NOISE, LEVELS)
    assert ratio(weighing.of([reading(NEW, 20_000)])) > 200
    assert ratio(weighing.of([reading(OLD, 1_000)])) < 1 / 15
    assert 1 / 3 < ratio(weighing.of([reading(OLD, 4_500)])) < 3
    assert 1 / 3 < ratio(weighing.of([reading(NEW, 400_000)])) < 3


def test_a_hiccup_looks_like_the_other_level() -> None:
    """A figure exactly on the slow level is no stronger against "new" than the verdict would be."""
    slow = Weighing(NOISE, LEVELS).of([reading(OLD, 1_000)])
    assert ratio(slow) == pytest.approx(ratio(Weighing(NOISE).of([reading(OLD)])), rel=0.05)


def test_densities_are_densities() -> None:
    x = np.linspace(-200, 200, 400_001)
    level = Level(3.0, 0.5)
    assert sum(level.density(float(one)) for one in x[::10]) * 0.01 == pytest.approx(1, abs=1e-3)


def test_a_pick_in_vain_is_weak() -> None:
    weighing = Weighing(NOISE)
    assert ratio(weighing.of([reading(OLD, kernel=Kernel.PICKED)])) == pytest.approx(0.3 / 0.997)
    assert ratio(weighing.of([reading(NEW, kernel=Kernel.PICKED)])) == pytest.approx(0.7 / 0.003)


def test_levels_are_learnt_from_the_ends_and_the_rest() -> None:
    logs = [math.log(x) for x in (690, 700, 2_100, 6_000, 7_900, 17_400, 20_100, 24_700)]
    levels = Levels.learn([math.log(1_000)], [math.log(22_000), math.log(21_000)], logs[:3] + logs[5:])
    assert math.exp(levels.old.centre) == pytest.approx(math.sqrt(700 * 1_000))
    assert 19_000 < math.exp(levels.new.centre) < 22_000
    assert levels.old.spread > 0.1


def test_the_bisect_by_hand_of_2017() -> None:
    """Fifteen of its readings decide; the one between the levels, at 6,120 IOPS, is no evidence for either."""
    figures = {order: Objective().value(measured(order, kernel).runs[-1]) for order, kernel, _ in VERDICTS}
    logs = [math.log(figure) for figure in figures.values()]
    weighing = Weighing(NOISE, Levels.learn(logs[:1], logs[1:2], logs[2:]))
    for order, _, verdict in VERDICTS:
        says = ratio(weighing.of([reading(OLD, figures[order])]))
        if 6_000 < figures[order] < 7_000:
            assert 1 / 2 < says < 2
        else:
            assert (says > 200) if verdict == "fixed" else (says < 1 / 15)


def test_levels_that_overlap_make_verdicts_uncertain() -> None:
    draws = np.random.default_rng(5).standard_t(4, 200_000)
    for apart in (0.0, 1.0, 3.0):
        levels = Levels(Level(0.0, 1.0), Level(-apart, 2.0))
        assert levels.overlap == pytest.approx((draws > apart / 3).mean(), abs=0.005)
    assert Weighing(NOISE).expected == NOISE
    assert Weighing(NOISE, LEVELS).expected.new_as_old == pytest.approx(0.05, abs=1e-3)
    near = Weighing(NOISE, Levels(Level(0.0, 1.0), Level(0.0, 1.0))).expected
    assert near.old_as_new == pytest.approx(0.5)
    assert near.new_as_old == pytest.approx(0.5)


def test_levels_of_a_regression_and_of_two_readings() -> None:
    levels = Levels.learn([math.log(20_000)], [math.log(1_000)])
    assert levels == Levels(Level(math.log(20_000), 0.1), Level(math.log(1_000), 0.1))
    crowded = Levels.learn([math.log(20_000)], [math.log(1_000)], [math.log(19_000), math.log(1_100)])
    assert crowded.old.centre > math.log(19_000)
    assert crowded.new.centre < math.log(1_100)


def test_the_order_of_readings_makes_no_difference() -> None:
    rows = [reading(NEW, figure) for figure in (19_000.0, 21_000.0, 3_000.0, 22_500.0)]
    weighing = Weighing(NOISE, LEVELS)
    assert weighing.of(rows) == weighing.of(rows[::-1])


def test_readings_pickle() -> None:
    assert pickle.loads(pickle.dumps(reading(NEW, 5.0))) == reading(NEW, 5.0)


# What noise costs


@pytest.mark.parametrize(("error", "runs"), [(0.01, 16.1), (0.05, 21.1), (0.10, 28.7)])
def test_runs_that_no_search_can_do_without(error: float, runs: float) -> None:
    """Burnashev's form for 14,565 commits at 99 %, as worked out beforehand by hand."""
    assert expected_runs(14_565, error, 0.01) == pytest.approx(runs, abs=0.1)


def test_guessing_takes_for_ever_and_certainty_the_logarithm() -> None:
    assert expected_runs(1024, 0.0, 0.01) == 10
    assert expected_runs(1024, 0.5, 0.01) == math.inf


def test_levels_that_overlap_mislead() -> None:
    assert error_rate(4.0, 0.1, SURE) == pytest.approx(0.001, abs=1e-3)
    assert error_rate(1.0001, 0.1, SURE) == pytest.approx(0.5, abs=1e-2)
    rates = [error_rate(factor, 0.2, SURE) for factor in (1.1, 1.3, 1.6)]
    assert rates == sorted(rates, reverse=True)


def test_the_smallest_factor_grows_with_noise_and_shrinks_with_runs() -> None:
    assert least_factor(500, 0.2, SURE, miss=0.01, runs=36) > least_factor(500, 0.1, SURE, miss=0.01, runs=36)
    assert least_factor(500, 0.1, SURE, miss=0.01, runs=36) > least_factor(500, 0.1, SURE, miss=0.01, runs=60)
    assert least_factor(500, 0.1, SURE, miss=0.01, runs=5) == math.inf


@pytest.mark.parametrize("spread", [0.1, 0.3])
def test_searches_find_the_smallest_factor_and_not_its_root(spread: float) -> None:
    least = least_factor(500, spread, SURE, miss=0.01, runs=36)
    for factor, low, high in ((least, 0.9, 1.0), (math.sqrt(least), 0.0, 0.8)):
        world = Conditions(0.001, 0.001, 0.002, effect=factor, spread=spread, early_stop=False)
        drawn = simulate(kernel_like(500), Strategy.BAYES, world, search_for(world, SURE), seed=3, trials=20)
        assert low <= Summary.of(tuple(drawn)).success_rate <= high
