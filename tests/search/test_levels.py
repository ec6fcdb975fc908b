"""Student's t by hand, and particles that stand for what is not known."""

import numpy as np
import pytest

from bisector.search.graph import Floats
from bisector.search.levels import Level, Levels, Particles, Side, beyond


def test_densities_are_densities() -> None:
    x = np.linspace(-200, 200, 40_001)
    assert Side.of(Level(3.0, 0.5)).density(x, np.zeros(1))[0].sum() * 0.01 == pytest.approx(1, abs=1e-3)


def test_the_tail_is_that_of_students_t() -> None:
    draws = np.random.default_rng(5).standard_t(4, 200_000)
    for z in (0.0, 0.5, 2.0):
        assert float(beyond(np.array(z))) == pytest.approx((draws > z).mean(), abs=0.005)
    assert Levels(Level(0.0, 1.0), Level(-1.5, 2.0)).overlap == pytest.approx((draws > 0.5).mean(), abs=0.005)
    np.testing.assert_allclose(Side.of(Level(0.0, 2.0)).above(1.0, 0.0), beyond(np.array([0.5])))


def of_its_half(f_old: Floats, f_new: Floats) -> tuple[Floats, Floats]:
    half = np.arange(len(f_old)) < len(f_old) / 2
    return half.astype(np.float64), (~half).astype(np.float64)


@pytest.mark.parametrize("count", [1, 3, 30])
def test_particles_stand_for_the_posterior(count: int) -> None:
    """Against a sum over a fine grid of centres and spreads, of the old side alone."""
    rng = np.random.default_rng(count)
    old, new = 0.08 * rng.standard_t(4, count), 2 + 0.03 * rng.standard_t(4, count)
    hours = np.zeros(count)
    particles = Particles.learn(
        np.concatenate((old, new)), np.zeros(2 * count), (float(old[0]), float(new[0])), of_its_half
    )
    f_old, f_new = particles.old.density(old, hours), particles.new.density(new, hours)
    weight = np.exp(particles.log_weight) * f_old.prod(axis=1) * f_new.prod(axis=1)
    weight /= weight.sum()
    log_spread = np.linspace(np.log(0.06) - 4, np.log(0.06) + 4, 400)
    centre = np.linspace(-1, 1, 801)
    spread, centres = np.meshgrid(np.exp(log_spread), centre, indexing="ij")
    exact = np.exp(-0.5 * ((np.log(spread) - np.log(0.06)) / np.log(2.5)) ** 2)
    still = np.zeros(spread.size)
    exact *= Side(centres.ravel(), spread.ravel(), still).density(old, hours).prod(axis=1).reshape(exact.shape)
    exact /= exact.sum()
    assert weight @ np.log(particles.old.spread) == pytest.approx((exact * np.log(spread)).sum(), abs=0.15)
    deviation = np.sqrt((exact * np.log(spread) ** 2).sum() - (exact * np.log(spread)).sum() ** 2)
    about = weight @ np.log(particles.old.spread)
    assert np.sqrt(weight @ (np.log(particles.old.spread) - about) ** 2) == pytest.approx(deviation, rel=0.35)
    assert (weight**2).sum() < 0.3  # no particle stands for all


@pytest.mark.parametrize("drift", [0.0, 0.01, -0.02])
def test_what_moves_both_sides_is_learnt(drift: float) -> None:
    rng = np.random.default_rng(8)
    hours = np.concatenate((np.linspace(0, 6, 12), np.linspace(0, 12, 12)))
    scores = np.repeat([0.0, 0.15], 12) + drift * hours + 0.02 * rng.standard_t(4, 24)
    particles = Particles.learn(scores, hours, (float(scores[0]), float(scores[12])), of_its_half)
    assert particles.mode.drift == pytest.approx(drift, abs=0.003)
    assert particles.mode.new.spread == pytest.approx(0.02, rel=0.5)
    assert float(particles.new.at(12).mean()) == pytest.approx(0.15 + 12 * drift, abs=0.02)
    assert particles.new.drift.std() < 0.005  # and is not known exactly


def test_readings_of_one_moment_tell_nothing_of_what_moves() -> None:
    scores = np.array([0.0, 0.02, 1.0, 1.01])
    particles = Particles.learn(scores, np.zeros(4), (0.0, 1.0), of_its_half)
    assert particles.mode.drift == 0
    assert particles.new.drift.std() == pytest.approx(0.01, rel=0.5)
