"""Whether the short fill was shown to be harmless, by both ends measured both ways."""

import math

import numpy as np
import pytest

from bisector.analysis.early_stop import BothWays, standing

SLOW, FAST = "5" * 40, "f" * 40
LINE = math.log(2_000.0)


def end(sha: str, whole: float, *short: float, tries: int | None = None, in_vain: int = 0) -> BothWays:
    count = len(short) if tries is None else tries
    return BothWays(sha, (math.log(whole),), tuple(map(math.log, short)), count, in_vain)


@pytest.mark.parametrize(("slow", "fast"), [(1_000, 4_000), (1_180, 3_400), (900, 4_900)])
def test_ends_that_measure_the_same_show_it(slow: float, fast: float) -> None:
    assert standing((end(SLOW, 1_000, slow), end(FAST, 4_000, fast)), LINE, 4).harmless


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        # What a fill of half the time did to the demonstration's fixed kernel.
        ((end(SLOW, 501, 499), end(FAST, 3_200, 880)), "on the other side of the threshold"),
        ((end(SLOW, 1_000, 1_000), end(FAST, 4_000, 2_900)), r"measures 1\.38 times as much or as little, limit 1\.25"),
        ((end(SLOW, 1_900, 1_900), end(FAST, 2_200, 2_090)), "limit 1.04"),
        ((end(SLOW, 1_000, 2_100), end(FAST, 4_000, 4_000)), "on the other side"),
        (
            (end(SLOW, 1_000, 1_010, in_vain=1), end(FAST, 4_000, 4_010, in_vain=1)),
            "both ends were not settled before the end of a whole run",
        ),
        ((end(SLOW, 1_000, tries=4), end(FAST, 4_000)), "no sound measurement of an end in 4"),
    ],
)
def test_harm_is_named(ends: tuple[BothWays, BothWays], why: str) -> None:
    found = standing(ends, LINE, 4)
    assert not found.harmless
    assert not found.missing
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(found.why)


def test_an_end_that_fills_slowly_is_filled_whole_either_way() -> None:
    """The other one need not be."""
    slowly = end(SLOW, 1_000, 1_010, in_vain=1)
    assert standing((slowly, end(FAST, 4_000, 4_100)), LINE, 4).harmless
    assert standing((slowly, end(FAST, 4_000)), LINE, 4).missing == FAST
    assert not standing((slowly, end(FAST, 4_000, 1_100)), LINE, 4).harmless


def test_each_end_is_asked_for_in_turn() -> None:
    old, new = end(SLOW, 1_000), end(FAST, 4_000)
    assert standing((old, new), LINE, 4).missing == SLOW
    assert standing((end(SLOW, 1_000, tries=3), new), LINE, 4).missing == SLOW
    assert standing((end(SLOW, 1_000, 1_010), new), LINE, 4).missing == FAST
    assert standing((end(SLOW, 1_000, 1_010), end(FAST, 4_000, 3_900)), LINE, 4).missing == ""


def test_nothing_is_asked_for_before_there_is_a_line() -> None:
    found = standing((end(SLOW, 1_000), end(FAST, 4_000)), None, 4)
    assert (found.harmless, found.missing) == (False, "")


def called_harmless(apart: float, moved: float, noise: float) -> float:
    """How often at one end of 4,000, the other one being beyond doubt; ``moved`` is a share of what is between them."""
    rng = np.random.default_rng(5)
    old, new = 0.0, math.log(apart)
    draws = rng.normal(0, noise, (4_000, 2))
    fine = BothWays(SLOW, (old,), (old,), 1)
    found = [
        standing((fine, BothWays(FAST, (new + a,), (new * (1 - moved) + b,), 1)), new / 2, 4).harmless for a, b in draws
    ]
    return float(np.mean(found))


def test_how_often_it_is_right() -> None:
    assert called_harmless(3.0, 0.0, 0.05) > 0.99
    assert called_harmless(2.0, 0.5, 0.05) < 0.011
    assert called_harmless(7.0, 0.5, 0.1) < 0.001
