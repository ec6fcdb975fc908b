"""Changes of level in a series: found where they were made, and not where there is none."""

import numpy as np
import pytest

from bisector.analysis.levels import ALPHA, changes

NOISE = {
    "normal": lambda random, count: 4_000 * np.exp(random.normal(0, 0.03, count)),
    "outliers": lambda random, count: 4_000 * np.exp(0.02 * random.standard_t(1.5, count).clip(-60, 60)),
    "two values": lambda random, count: random.choice([3_900.0, 4_100.0], count),
}


def level(*levels: tuple[float, int], seed: int = 1, spread: float = 0.03) -> np.ndarray:
    random = np.random.default_rng(seed)
    means = np.concatenate([np.full(count, figure) for figure, count in levels])
    return means * np.exp(random.normal(0, spread, len(means)))


@pytest.mark.parametrize("noise", NOISE)
def test_constant_noise_rarely_looks_like_a_change(noise: str) -> None:
    """Twice the stated rate and a little for chance: of 30 histories at ALPHA, 0.3 are expected."""
    histories = 30
    alarms = 0
    for seed in range(histories):
        random = np.random.default_rng(seed)
        alarms += bool(changes(NOISE[noise](random, 10 + seed % 31)))
    assert alarms <= 2 * ALPHA * histories + 3, f"{alarms} of {histories}"


@pytest.mark.parametrize("seed", range(2))
def test_a_drop_of_a_tenth(seed: int) -> None:
    (found,) = changes(level((4_000, 20), (3_600, 15), seed=seed))
    assert abs(found.at - 20) <= 1
    assert found.after / found.before == pytest.approx(0.9, abs=0.03)
    assert found.p <= ALPHA


@pytest.mark.parametrize("seed", range(1, 3))
def test_a_dip_that_was_fixed_is_two_changes(seed: int) -> None:
    one, other = changes(level((4_000, 15), (3_400, 8), (4_000, 15), seed=seed))
    assert (one.at, other.at) == (15, 23)
    assert one.after < one.before
    assert other.after > other.before


def test_how_soon_a_drop_is_known() -> None:
    """After twenty nights of a level six of another one are needed, however far it is away: ranks have no distance."""
    known = [count for count in range(1, 8) if changes(level((4_000, 20), (1_000, count)))]
    assert known[0] == 6


def test_a_single_night_is_no_level() -> None:
    series = level((4_000, 30))
    series[12] = 1_000
    assert not changes(series)
