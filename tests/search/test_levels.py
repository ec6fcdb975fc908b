"""Student's t by hand."""

import numpy as np
import pytest

from bisector.search.noise import Level, Levels, SideLevels, beyond


def test_densities_are_densities() -> None:
    x = np.linspace(-200, 200, 40_001)
    assert SideLevels.of(Level(3.0, 0.5)).density(x, np.zeros(1))[0].sum() * 0.01 == pytest.approx(1, abs=1e-3)


def test_the_tail_is_that_of_students_t() -> None:
    draws = np.random.default_rng(5).standard_t(4, 200_000)
    for z in (0.0, 0.5, 2.0):
        assert float(beyond(np.array(z))) == pytest.approx((draws > z).mean(), abs=0.005)
    assert Levels(Level(0.0, 1.0), Level(-1.5, 2.0)).overlap == pytest.approx((draws > 0.5).mean(), abs=0.005)
    np.testing.assert_allclose(SideLevels.of(Level(0.0, 2.0)).above(1.0, 0.0), beyond(np.array([0.5])))
