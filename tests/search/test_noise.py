"""Student's t by hand, what noise costs at least, and what searches find."""

import math

import numpy as np
import pytest

from bisector.search.noise import Level, Levels, Noise, SideLevels, beyond, expected_runs, least_factor

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


def test_densities_are_densities() -> None:
    x = np.linspace(-200, 200, 40_001)
    assert SideLevels.of(Level(3.0, 0.5)).density(x, np.zeros(1))[0].sum() * 0.01 == pytest.approx(1, abs=1e-3)


def test_the_tail_is_that_of_students_t() -> None:
    draws = np.random.default_rng(5).standard_t(4, 200_000)
    for z in (0.0, 0.5, 2.0):
        assert float(beyond(np.array(z))) == pytest.approx((draws > z).mean(), abs=0.005)
    assert Levels(Level(0.0, 1.0), Level(-1.5, 2.0)).overlap == pytest.approx((draws > 0.5).mean(), abs=0.005)
    np.testing.assert_allclose(SideLevels.of(Level(0.0, 2.0)).above(1.0, 0.0), beyond(np.array([0.5])))
