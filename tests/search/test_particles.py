"""Particles stand for all levels that the readings leave open."""

import numpy as np
import pytest
from numpy.typing import NDArray

from bisector.core.verdict import Verdict
from bisector.search.graph import OLD_END, Floats, Kernel, Reading
from bisector.search.likelihood import HostScale, ReadingTable
from bisector.search.noise import Noise, Particles, Rates, SideLevels, beyond
from bisector.search.posterior import HostFigures, learn

QUIET = Rates.known(Noise(1e-4, 1e-4, 1e-4))


def halves(scores: Floats, hours: Floats) -> HostFigures:
    """Figures of which the first half is of the old end, and the rest of the new one."""
    half = len(scores) // 2
    readings = [
        Reading(OLD_END if n < half else 0, Kernel.COMMIT, Verdict.MEASURED, float(score), hour=float(hour))
        for n, (score, hour) in enumerate(zip(scores, hours, strict=True))
    ]
    scale = HostScale((float(scores[0]), float(scores[half])), float(scores.mean()))
    return HostFigures(ReadingTable.gather(readings), np.array([[False, True]]), np.zeros(1), QUIET, scale)


def posterior(particles: Particles, figures: HostFigures) -> Floats:
    """What each particle has of it."""
    log = particles.log_weight + figures.log_likelihood(particles)
    weight: Floats = np.exp(log - np.logaddexp.reduce(log))
    return weight


@pytest.mark.parametrize("count", [1, 30])
def test_particles_stand_for_the_posterior(count: int) -> None:
    """Against a sum over a fine grid of centres and spreads, of the old side alone."""
    rng = np.random.default_rng(count)
    old, new = 0.08 * rng.standard_t(4, count), 2 + 0.03 * rng.standard_t(4, count)
    hours = np.zeros(count)
    figures = halves(np.concatenate((old, new)), np.zeros(2 * count))
    particles = learn(figures)
    weight = posterior(particles, figures)
    log_spread = np.linspace(np.log(0.06) - 4, np.log(0.06) + 4, 400)
    centre = np.linspace(-1, 1, 801)
    spread, centres = np.meshgrid(np.exp(log_spread), centre, indexing="ij")
    exact = np.exp(-0.5 * ((np.log(spread) - np.log(0.06)) / np.log(2.5)) ** 2)
    still = np.zeros(spread.size)
    exact *= SideLevels(centres.ravel(), spread.ravel(), still).density(old, hours).prod(axis=1).reshape(exact.shape)
    exact /= exact.sum()
    log_spreads = np.log(particles.old.spread)
    assert weight @ log_spreads == pytest.approx((exact * np.log(spread)).sum(), abs=0.1)
    deviation = np.sqrt((exact * np.log(spread) ** 2).sum() - (exact * np.log(spread)).sum() ** 2)
    assert np.sqrt(weight @ (log_spreads - weight @ log_spreads) ** 2) == pytest.approx(deviation, rel=0.3)
    assert (weight**2).sum() < 0.1  # no particle stands for all


@pytest.mark.parametrize("drift", [0.0, -0.02])
def test_what_moves_both_sides_is_learnt(drift: float) -> None:
    rng = np.random.default_rng(8)
    hours = np.concatenate((np.linspace(0, 6, 12), np.linspace(0, 12, 12)))
    scores = np.repeat([0.0, 0.15], 12) + drift * hours + 0.02 * rng.standard_t(4, 24)
    particles = learn(halves(scores, hours))
    assert particles.mode.drift == pytest.approx(drift, abs=0.003)
    assert particles.mode.new.spread == pytest.approx(0.02, rel=0.5)
    assert float(particles.new.at(12).mean()) == pytest.approx(0.15 + 12 * drift, abs=0.03)
    assert particles.new.drift.std() < 0.005  # and is not known exactly


def on_a_line(apart: float, readings: int) -> HostFigures:
    """Both ends, and so many commits of a line between them, the second half of which is new."""
    rng = np.random.default_rng(4)
    ends = (0.0, apart)
    side = [0.0, *(0.0 if place < readings / 2 else apart for place in range(readings))]
    kernels = [(OLD_END, ends[0]), (readings, ends[1])]
    kernels += [(place - 1, side[place] + 0.1 * float(rng.standard_t(4))) for place in range(1, readings + 1)]
    record = ReadingTable.gather([Reading(commit, Kernel.COMMIT, Verdict.MEASURED, score) for commit, score in kernels])
    classes = np.arange(readings + 1)
    has: NDArray[np.bool_] = np.array([[commit >= first_new for commit, _ in record.kernels] for first_new in classes])
    even = np.full(len(classes), -np.log(len(classes)))
    return HostFigures(record, has, even, QUIET, HostScale(ends, apart / 2))


@pytest.mark.parametrize("apart", [0.02, 0.8])
def test_evidence_is_that_of_all_draws(apart: float) -> None:
    """The sum over the particles is what a sum over many draws of what levels have beforehand comes to.

    Divided by the chance that the first readings are in their order, that no search begins without.
    """
    figures = on_a_line(apart, 2)
    particles = learn(figures)
    log = particles.log_weight + figures.log_likelihood(particles)
    rng, count = np.random.default_rng(2), 200_000
    old, new = (
        SideLevels(
            rng.normal(apart / 2, 3.0, count), np.exp(rng.normal(np.log(0.06), np.log(2.5), count)), np.zeros(count)
        )
        for _ in range(2)
    )
    effect = new.centre - old.centre
    worth = np.exp(figures.log_likelihood(Particles(old, new, np.zeros(count), particles.mode)))
    worth *= (effect > 0) / beyond(-effect / np.hypot(old.spread, new.spread))
    assert np.exp(log).sum() == pytest.approx(worth.mean(), rel=0.15)


def test_levels_in_the_other_order_are_next_to_impossible() -> None:
    particles = learn(figures := on_a_line(0.02, 0))
    weight = posterior(particles, figures)
    assert weight[particles.new.centre < particles.old.centre].sum() < 0.02


def test_levels_of_two_hosts_are_paired_evenly() -> None:
    """Each stands once beside another, and how far the levels of one host are apart says nothing of the other's."""
    alone = [learn(on_a_line(apart, 6)) for apart in (1.0, 0.8, 0.6)]
    together = Particles.together(alone)
    effects = [one.new.centre - one.old.centre for one in together]
    for one, effect in zip(alone, effects, strict=True):
        np.testing.assert_array_equal(np.sort(effect), np.sort(one.new.centre - one.old.centre))
    for first, second in ((0, 1), (0, 2), (1, 2)):
        a, b = (np.argsort(np.argsort(effects[host])).astype(np.float64) for host in (first, second))
        assert abs(np.mean((a - a.mean()) * (b - b.mean()))) < 0.25 * a.std() * b.std()
