"""What noise costs at least, and what searches find."""

import math

import pytest

from bisector.core.verdict import Strategy
from bisector.search.noise import Noise, Rates, expected_runs, least_factor
from bisector.search.simulate.runs import Summary, search_for, simulate
from bisector.search.simulate.world import Conditions
from tests.search.graphs import kernel_like

SURE = Noise(0.001, 0.001, 0.002)


@pytest.mark.parametrize(("error", "runs"), [(0.01, 16.1), (0.05, 21.1), (0.10, 28.7)])
def test_runs_that_no_search_can_do_without(error: float, runs: float) -> None:
    """Burnashev's form for 14,565 commits at 99 %, as worked out beforehand by hand."""
    assert expected_runs(14_565, error, 0.01) == pytest.approx(runs, abs=0.1)


def test_guessing_takes_for_ever_and_certainty_the_logarithm() -> None:
    assert expected_runs(1024, 0.0, 0.01) == 10
    assert expected_runs(1024, 0.5, 0.01) == math.inf


def test_the_smallest_factor_grows_with_noise_and_shrinks_with_runs() -> None:
    assert least_factor(500, 0.2, SURE, miss=0.01, runs=36) > least_factor(500, 0.1, SURE, miss=0.01, runs=36)
    assert least_factor(500, 0.1, SURE, miss=0.01, runs=36) > least_factor(500, 0.1, SURE, miss=0.01, runs=60)
    assert least_factor(500, 0.1, SURE, miss=0.01, runs=5) == math.inf


@pytest.mark.parametrize("spread", [0.1, 0.3])
@pytest.mark.rare
def test_searches_find_the_smallest_factor_and_not_its_root(spread: float) -> None:
    """Searches that have to learn the levels, and may have more than these runs for it."""
    least = least_factor(500, spread, SURE, miss=0.01, runs=36)
    # Of 60 searches nine of ten are right, of 40 at the root one of five. Of so few as these, fewer than one of 200
    # draws are beyond the bounds by chance.
    for factor, trials, low, high in ((least, 12, 0.65, 1.0), (math.sqrt(least), 4, 0.0, 0.8)):
        world = Conditions(0.001, 0.001, 0.002, effect=factor, spread=spread, early_stop=False)
        drawn = simulate(
            kernel_like(500), Strategy.BAYES, world, search_for(world, Rates.known(SURE)), seed=3, trials=trials
        )
        assert low <= Summary.of(tuple(drawn)).success_rate <= high
