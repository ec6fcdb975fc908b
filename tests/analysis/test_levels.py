"""Levels and the line between the sides: by hand, on made-up noise, and on the readings of 2017."""

import csv
from itertools import pairwise
from math import exp, log

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bisector.analysis.levels import MeasuredEnds, from_scores, levels, line_between
from bisector.core.objective import Objective
from bisector.core.verdict import Direction, SideWords
from tests.analysis.recorded import RECORDED, fio_2_run

IOPS = Objective()


def one_each(*values: float) -> dict[str, list[float]]:
    """The scores of kernels that were read once each."""
    return {str(number): [log(one)] for number, one in enumerate(values)}


def found(scores: dict[str, list[float]]) -> tuple[tuple[float, float, int], ...]:
    """The levels as values."""
    return tuple((IOPS.value_of(one.worst), IOPS.value_of(one.best), one.trials) for one in levels(scores))


def line(old: float, new: float, scores: dict[str, list[float]]) -> float:
    """The line as a value, between ends that are given as values."""
    return exp(line_between(log(old), log(new), scores))


def test_two_levels_and_the_middle_of_their_gap() -> None:
    scores = one_each(1000, 8000, 1250, 6400)
    assert found(scores) == ((1000, 1250, 2), (6400, 8000, 2))
    assert line(1000, 8000, scores) == pytest.approx(np.sqrt(1250 * 6400))
    assert line(8000, 1000, scores) == pytest.approx(np.sqrt(1250 * 6400))


def test_what_is_between_is_not_yet_new() -> None:
    scores = one_each(1000, 20_000, 4000)
    assert line(1000, 20_000, scores) == pytest.approx(np.sqrt(4000 * 20_000))
    assert line(20_000, 1000, scores) == pytest.approx(np.sqrt(1000 * 4000))


def test_a_run_that_went_astray_once_makes_no_level() -> None:
    astray = {"a": [log(1000)], "b": [log(20_000), log(4000)], "c": [log(20_500)]}
    assert found(astray) == ((1000, 1000, 1), (20_000, 20_500, 2))
    assert line(1000, 20_000, astray) == pytest.approx(np.sqrt(1000 * 20_000))
    assert len(levels(astray | {"d": [log(4100)]})) == 3


def test_a_gap_has_to_be_wide_against_the_spread() -> None:
    near, far = one_each(1000, 1900, 3500, 8000, 15_000), one_each(1000, 1010, 1020, 2500, 2510)
    assert found(near) == ((1000, 15_000, 5),)
    assert len(levels(far)) == 2


@settings(max_examples=40)
@given(st.floats(100, 1e5), st.floats(2, 100), st.lists(st.floats(50, 1e6), max_size=12))
def test_the_line_is_between_the_ends_and_the_scale_does_not_matter(
    least: float, factor: float, others: list[float]
) -> None:
    scores = one_each(least, least * factor, *others)
    gaps = sorted(np.diff(np.unique([log(least), log(least * factor), *map(log, others)])))
    assume(all(abs(gap - log(2)) > 1e-6 for gap in gaps))  # where rounding decides
    assume(all(after - before > 1e-6 for before, after in pairwise(gaps)))
    at = line(least, least * factor, scores)
    assert least < at < least * factor
    scaled = {kernel: [log(4) + score for score in all_of] for kernel, all_of in scores.items()}
    scaled_line = line_between(log(4) + log(least), log(4) + log(least * factor), scaled)
    assert exp(scaled_line) == pytest.approx(4 * at)


@pytest.mark.parametrize(("spread", "heavy", "most"), [(0.1, False, 0), (0.3, False, 1), (0.1, True, 4)])
def test_two_noisy_levels_are_seldom_three(spread: float, heavy: bool, most: int) -> None:
    rng = np.random.default_rng(5)
    alarms = 0
    for _ in range(300):
        noise = rng.standard_t(4, 20) * spread / np.sqrt(2) if heavy else rng.normal(0, spread, 20)
        sides = np.where(rng.random(20) < 0.5, np.log(1000), np.log(4000))
        alarms += len(levels(one_each(*np.exp(sides + noise)))) > 2
    assert alarms <= most


def test_the_levels_of_2017() -> None:
    """Between the ends lies a parent of the fix at 6,120 IOPS, neither as slow nor as fast as they.

    The middle between the ends alone calls it fixed, the person's 20,000 did not: with several steps in a range the
    threshold decides which of them is looked for. The line among all readings is the person's again.
    """
    with (RECORDED / "expected-verdicts.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["order"].zfill(2), row["kernel"], row["verdict"] == "fixed") for row in csv.DictReader(file)]
    scores, is_fixed = dict[str, list[float]](), {kernel: fixed for _, kernel, fixed in rows}
    for order, kernel, _ in rows:
        full = RECORDED / "lvmcache-bisect-2017" / f"{order}-{kernel}-full.txt"
        scores[kernel] = [IOPS.score(IOPS.value(fio_2_run(full, "full")))]
    assert found(scores) == ((689, 738, 4), (6120, 6120, 1), (20_077, 22_791, 11))
    (old,), (new,), *_ = scores.values()
    ends = MeasuredEnds(old, new, IOPS, None, SideWords())
    of_ends, of_all = from_scores(ends, {}), from_scores(ends, scores)
    assert of_ends.direction is Direction.IMPROVEMENT
    assert IOPS.value_of(of_ends.score) == pytest.approx(3828, abs=1)
    called_otherwise = [
        [kernel for kernel, (one,) in scores.items() if (one > line.score) is not is_fixed[kernel]]
        for line in (of_ends, of_all)
    ]
    assert called_otherwise == [["4.12.0-rc1+4d44ec5ab751"], []]
