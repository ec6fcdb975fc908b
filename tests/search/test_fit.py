"""When the readings are not of one change, and that noise that nobody told of is no second change."""

import numpy as np
import pytest

from bisector.core.verdict import Verdict
from bisector.search.effect import fit
from bisector.search.graph import Kernel, Mask, RangeGraph, Reading, SearchFacts
from bisector.search.likelihood import Weighing
from bisector.search.noise import Noise, Rates
from bisector.search.posterior import posterior, prior

COUNT = 20
LINE = RangeGraph.of([(), *((n,) for n in range(COUNT - 1))])
OLD, NEW = Verdict.OLD, Verdict.NEW
UNKNOWN = Weighing(Rates.unknown())


def sides(new: set[int]) -> list[Reading]:
    return [Reading(n, Kernel.COMMIT, NEW if n in new else OLD) for n in range(COUNT)]


def test_contradictions_are_counted_by_side() -> None:
    noise = Noise(old_as_new=0.1, new_as_old=0.2, sticky=0.0)
    readings = [*sides({*range(8, COUNT)}), Reading(3, Kernel.COMMIT, NEW), Reading(8, Kernel.REVERTED, NEW)]
    belief = posterior(LINE, prior(COUNT), SearchFacts(tuple(readings)), Weighing(Rates.known(noise)))
    found = fit(belief, 8)
    assert found.contradictions == 2
    assert found.expected == pytest.approx(0.1 * 10 + 0.2 * 12)


def test_the_ratio_is_that_of_both_stories() -> None:
    """Against a sum over all histories, one by one, in which a change came, went, and came for good."""
    noise = Noise(0.05, 0.1, 0.02)
    readings = sides({2, 3, 4, 5, *range(12, COUNT)})
    belief = posterior(LINE, prior(COUNT), SearchFacts(tuple(readings)), Weighing(Rates.known(noise)))
    last, said = belief.best, np.array([one.verdict is NEW for one in readings])

    def chance(is_new: Mask) -> float:
        right, wrong = np.where(is_new, 1 - 0.1, 1 - 0.05), np.where(is_new, 0.1, 0.05)
        other = np.where(is_new, 0.05, 0.1), np.where(is_new, 1 - 0.05, 1 - 0.1)
        shown = np.where(said == is_new, right, wrong)
        stuck = np.where(said == is_new, *other)
        return float(np.prod(0.98 * shown + 0.02 * stuck))

    numbers = np.arange(COUNT)
    one = sum(chance(numbers >= first) for first in range(COUNT)) / COUNT
    two = sum(
        chance((numbers >= last) | (numbers >= came) & (numbers < went))
        for came in range(COUNT)
        for went in range(COUNT)
    )
    odds = 0.01 * two / COUNT**3 / (0.99 * one)
    assert fit(belief, last).probability == pytest.approx(1 / (1 + odds))


@pytest.mark.parametrize("rates", [(0.2, 0.2), (0.2, 0.003), (0.003, 0.2), (0.05, 0.05)])
def test_noise_that_nobody_told_of_is_no_second_change(rates: tuple[float, float]) -> None:
    rng = np.random.default_rng(11)
    for _ in range(20):
        first = int(rng.integers(COUNT))
        readings = []
        for n in np.repeat(np.arange(COUNT), 2):
            flipped = rng.random() < rates[int(n >= first)]
            readings.append(Reading(int(n), Kernel.COMMIT, NEW if bool(n >= first) is not bool(flipped) else OLD))
        belief = posterior(LINE, prior(COUNT), SearchFacts(tuple(readings)), UNKNOWN)
        assert fit(belief, belief.best).one_change
