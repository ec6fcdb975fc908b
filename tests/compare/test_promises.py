"""What is promised of a comparison, on planted figures in the very order in which it measures, by what it says of them.

``tests/analysis/test_comparison_planted.py`` has more of them, and faster; here nothing is computed but by the product.
"""

import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from bisector.analysis.comparison import Decision, Effect, Outcome, decide, effect
from bisector.compare.schedule import drawn
from bisector.core.metric import Better

COMPARISONS = 2000  # chance moves a share of 5 % by 0.5 %; the seed below is fixed
NOISE, DRIFT = 0.03, 0.01


@cache
def compared(ratio: float, blocks: int, drift: float) -> tuple[tuple[Effect, Decision], ...]:
    """Comparisons of two kernels; each figure has noise, and drifts from run to run."""
    return tuple(_compared(np.random.default_rng(1), ratio, blocks, drift))


def _compared(rng: np.random.Generator, ratio: float, blocks: int, drift: float) -> Iterator[tuple[Effect, Decision]]:
    for seed in rng.integers(2**32, size=COMPARISONS).tolist():
        noise = iter(rng.normal(0.0, NOISE, 2 * blocks).tolist())
        figures: tuple[list[float], list[float]] = ([], [])
        for n in range(1, blocks + 1):
            order, _ = drawn(seed, n, (0, 1))
            for place, arm in enumerate(order, 2 * (n - 1)):
                figures[arm].append(1_000.0 * ratio**arm * math.exp(next(noise) - drift * place))
        found = effect(*figures)
        yield found, decide([(found, Better.HIGHER)])[0]


def share(found: list[bool]) -> float:
    return sum(found) / COMPARISONS


@pytest.mark.parametrize("drift", [0.0, DRIFT])
def test_no_difference_alarms_5_times_of_100(drift: float) -> None:
    words = [decision.outcome for _, decision in compared(1.0, 6, drift)]
    assert 0.04 <= share([word in (Outcome.FASTER, Outcome.SLOWER) for word in words]) <= 0.06


@pytest.mark.parametrize("drift", [0.0, DRIFT])
def test_intervals_cover_the_truth_95_times_of_100(drift: float) -> None:
    found = [one.interval for one, _ in compared(0.9, 6, drift)]
    assert 0.94 <= share([low <= 0.9 <= high for low, high in found]) <= 0.96


@pytest.mark.parametrize("drift", [0.0, DRIFT])
def test_difference_of_10_percent_is_found_with_5_runs(drift: float) -> None:
    words = [decision.outcome for _, decision in compared(1.1, 5, drift)]
    assert share([word is Outcome.FASTER for word in words]) >= 0.9
    assert Outcome.SLOWER not in words


def test_both_orders_are_drawn_as_often() -> None:
    orders = [drawn(seed, n, (0, 1))[0] for seed in range(500) for n in range(1, 7)]
    assert 0.46 <= orders.count((0, 1)) / len(orders) <= 0.54
