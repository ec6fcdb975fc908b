"""What is promised of the statistics of a comparison: on planted data of many seeds, and not of one."""

import math

import numpy as np
import pytest

from bisector.analysis.comparison import LOOKED_ALPHA, LOOKS, Floats, contrast, moments
from bisector.search.effect import quantile
from tests.analysis.test_comparison import planted

COMPARISONS = 2000
NOISE = 0.03
DRIFT = 0.01


def runs(rng: np.random.Generator, ratio: float, blocks: int, drift: float = 0.0) -> Floats:
    """d of each block of many comparisons: figures with noise, that drift from run to run, in a random order."""
    place = 2 * np.arange(blocks)[:, None] + rng.permuted(np.tile([0, 1], (COMPARISONS, blocks, 1)), axis=2)
    logs = rng.normal(0.0, NOISE, (COMPARISONS, blocks, 2)) - drift * place
    return np.asarray(logs[:, :, 1] - logs[:, :, 0] + math.log(ratio), dtype=np.float64)


def intervals(d: Floats) -> tuple[Floats, Floats]:
    mean, spread = moments(d)
    half = quantile(0.95, d.shape[1] - 1) * spread / math.sqrt(d.shape[1])
    return mean - half, mean + half


def share(found: np.ndarray) -> float:
    return float(np.count_nonzero(found)) / len(found)


SEEDS = 10


def pooled(ratio: float, blocks: int, drift: float = 0.0) -> tuple[Floats, Floats]:
    """Of ten times 2,000 comparisons, whose shares chance moves by 0.15 %: one seed alone would move by 0.5 %."""
    found = [intervals(runs(np.random.default_rng(seed), ratio, blocks, drift)) for seed in range(SEEDS)]
    low, high = zip(*found, strict=True)
    return np.concatenate(low), np.concatenate(high)


@pytest.mark.parametrize(("blocks", "drift"), [(3, DRIFT), (6, 0.0), (12, DRIFT)])
def test_no_difference_alarms_5_times_of_100(blocks: int, drift: float) -> None:
    low, high = pooled(1.0, blocks, drift)
    assert 0.04 <= share((low > 0) | (high < 0)) <= 0.06


@pytest.mark.parametrize(("ratio", "drift"), [(1.1, 0.0), (1 / 1.1, DRIFT)])
def test_difference_of_10_percent_is_found_with_5_runs(ratio: float, drift: float) -> None:
    low, high = pooled(ratio, 5, drift)
    assert share((low > 0) if ratio > 1 else (high < 0)) >= 0.9


def until_narrow(rng: np.random.Generator, spread: float, alpha: float) -> int:
    """How many of 2,000 comparisons without a difference alarm that end once their interval is within 5 %."""
    d = rng.normal(0.0, spread, (COMPARISONS, LOOKS[-1]))
    live, alarms = np.ones(COMPARISONS, dtype=bool), 0
    for blocks in LOOKS:
        mean, deviation = moments(d[:, :blocks])
        half = quantile(1 - alpha, blocks - 1) * deviation / math.sqrt(blocks)
        ends = live & ((half <= math.log1p(0.05)) | (blocks == LOOKS[-1]))
        alarms += int(np.count_nonzero(ends & (np.abs(mean) > half)))
        live &= ~ends
    return alarms


@pytest.mark.parametrize("spread", [0.02, 0.075, 0.2])
def test_comparison_that_ends_once_it_is_narrow_alarms_4_to_6_times_of_100(spread: float) -> None:
    """Of 20,000, which chance moves by 0.17 %; with less spread it ends after 6 blocks, with more after 20."""
    alarms = sum(until_narrow(np.random.default_rng(seed), spread, LOOKED_ALPHA) for seed in range(SEEDS))
    assert 0.0385 <= alarms / SEEDS / COMPARISONS <= 0.0615


def test_ratio_of_two_ratios_is_covered_95_times_of_100() -> None:
    """+30 % with a noise of 1 % in five blocks, and +1 % with one of 3 % in seven."""
    rng, truth, hits = np.random.default_rng(0), math.log(1.30 / 1.01), 0
    for _ in range(200):
        sides = (rng.normal(math.log(ratio), noise, n) for ratio, noise, n in ((1.30, 0.01, 5), (1.01, 0.03, 7)))
        found = contrast(*(planted(*side) for side in sides))
        assert found is not None
        hits += abs(found.mean - truth) <= found.half_width
    assert 0.91 <= hits / 200 <= 0.985
