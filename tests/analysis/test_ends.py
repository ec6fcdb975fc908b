import math
from contextlib import suppress
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st

from bisector.analysis.levels import EndsAreTheSame, MeasuredEnds, Threshold, from_scores, given, told_apart
from bisector.core.errors import EndsDoNotReproduce
from bisector.core.objective import Objective
from bisector.core.verdict import Direction, SideWords, Verdict
from bisector.search.effect import InTurn, PairsRule, difference, pairs_to_tell

UP, DOWN = Direction.IMPROVEMENT, Direction.REGRESSION
IOPS, LATENCY = Objective(), Objective("read.clat.p50")


def ends(old: float, new: float, expected: Direction | None = UP, objective: Objective = IOPS) -> MeasuredEnds:
    """Of values, in the objective's unit."""
    return MeasuredEnds(objective.score(old), objective.score(new), objective, expected, SideWords.usual(expected))


def scores(**values: float) -> dict[str, list[float]]:
    return {kernel: [IOPS.score(value)] for kernel, value in values.items()}


def value(found: Threshold, objective: Objective = IOPS) -> float:
    return objective.value_of(found.score)


def test_the_threshold_is_the_middle_of_the_gap_beside_the_new_end() -> None:
    readings = scores(a=1000, b=4000)
    assert value(from_scores(ends(1000, 4000), readings)) == pytest.approx(2000)
    assert value(from_scores(ends(4000, 1000, DOWN), readings)) == pytest.approx(2000)
    between = {**readings, **scores(c=1500, d=1500)}
    assert value(from_scores(ends(1000, 4000), between)) == pytest.approx((1500 * 4000) ** 0.5)


@pytest.mark.parametrize("objective", [IOPS, LATENCY], ids=lambda one: one.metric)
def test_equal_ends_are_refused(objective: Objective) -> None:
    """Some metrics are whole numbers."""
    for expected in (None, UP):
        equal = ends(1000, 1000, expected, objective)
        with pytest.raises(EndsDoNotReproduce, match="no difference to bisect") as caught:
            from_scores(equal, {"a": [equal.old], "b": [equal.new]})
        assert "swapped" not in caught.value.hint


@pytest.mark.parametrize("objective", [IOPS, LATENCY], ids=lambda one: one.metric)
@hypothesis_given(least=st.floats(1, 1e7), ratio=st.floats(2.001, 100), turned=st.booleans())
def test_a_found_threshold_puts_each_end_on_its_side(
    objective: Objective, least: float, ratio: float, turned: bool
) -> None:
    values = (least * ratio, least) if turned else (least, least * ratio)
    found = from_scores(ends(*values, None, objective), {})
    assert found.direction.verdict(found.old > found.score) is Verdict.OLD
    assert found.direction.verdict(found.new > found.score) is Verdict.NEW
    assert not found.given


@pytest.mark.parametrize(("values", "direction"), [((4000, 1000), UP), ((1000, 4000), DOWN)])
def test_swapped_ends_get_a_hint_where_a_direction_is_expected(
    values: tuple[float, float], direction: Direction
) -> None:
    with pytest.raises(EndsDoNotReproduce) as caught:
        from_scores(ends(*values, direction), {})
    assert "4.00 times, in the other direction than expected" in caught.value.message
    assert "swapped: bisector start NEW OLD" in caught.value.hint
    assert "--expect" in caught.value.hint


@pytest.mark.parametrize(
    ("values", "expected", "wrong"),
    [
        ((21_000, 30_000), UP, "the broken end is on the wrong side"),
        ((1000, 20_000), UP, "the fixed end is on the wrong side"),
        ((30_000, 1000), UP, "the broken and the fixed end are on the wrong side"),
        ((1000, 900), DOWN, "the good end is on the wrong side"),
        ((21_000, 30_000), None, "both ends are on one side"),
        ((900, 1000), None, "both ends are on one side"),
    ],
)
def test_ends_on_the_wrong_side(values: tuple[float, float], expected: Direction | None, wrong: str) -> None:
    with pytest.raises(EndsDoNotReproduce) as caught:
        given(IOPS.score(20_000), ends(*values, expected))
    assert f"with a threshold of 20,000 IOPS {wrong}" in caught.value.message
    assert ("swapped" in caught.value.hint) is (" and the " in wrong)


RULE = PairsRule(least_effect=0.05, most_pairs=40)


def in_turn(old: list[float], new: list[float], objective: Objective = IOPS) -> InTurn:
    """Readings by their values, the old end's first in each pair."""
    score = objective.score
    pairs = zip_longest(old, new)
    return [(bool(is_new), score(one)) for pair in pairs for is_new, one in enumerate(pair) if one is not None]


def told(
    old: list[float], new: list[float], rule: PairsRule = RULE, objective: Objective = IOPS
) -> MeasuredEnds | None:
    return told_apart(ends(old[0], new[0], None, objective), in_turn(old, new, objective), rule)


@pytest.mark.parametrize(
    ("old", "new", "means"),
    [
        ([197], [400], (197, 400)),  # a factor of 2: nothing is read again
        ([400], [200], (400, 200)),
        ([197], [207], None),
        ([197, 198], [227], None),
        ([197, 198], [227, 229], None),  # two of each tell 110 standard errors, and these are 29
        ([197.0, 197.1], [227.0, 227.1], (197.05, 227.05)),
        ([197.0, 197.1, 300], [227.0, 227.1, 120], (197.05, 227.05)),  # what was told stays so
        ([197, 198, 196.5, 197.5], [227, 226, 228, 227], (197.1657, 226.9985)),
        ([197, 200, 194], [227, 214, 230], None),
        ([200] * 5, [220] * 5, None),  # a counter may have rounded all of them
        ([200] * 6, [220] * 6, (200, 220)),
    ],
)
def test_of_ends_that_lie_close_nothing_is_told_before_they_differ_by_more_than_their_own_readings(
    old: list[float], new: list[float], means: tuple[float, float] | None
) -> None:
    found = told(old, new, objective=LATENCY)
    values = None if found is None else tuple(map(LATENCY.value_of, (found.old, found.new)))
    assert values == (None if means is None else pytest.approx(means, rel=1e-4))


def test_ends_are_the_same_where_their_interval_lies_within_the_least_effect() -> None:
    old, new = [200, 201, 199, 200.5], [200.5, 199, 201, 200]
    with pytest.raises(EndsAreTheSame) as caught:
        told(old, new)
    assert caught.value.message == (
        "the old end measured 200 IOPS, the new end 200 IOPS (read.iops of the worst job, means of 2 readings of "
        "each): the same within 5%, 0.996 times (95 %: 0.977 to 1.016), by 2 pairs"
    )
    assert told(old, new, PairsRule(0.005, 40)) is None


def test_what_so_many_pairs_as_are_worth_it_do_not_tell_is_too_noisy() -> None:
    old, new = [200.0, 230, 180, 215, 190, 240], [210.0, 195, 240, 185, 225, 190]
    assert told(old, new) is None  # 40 pairs may tell
    for most in (6, 15):  # as many as there are; and as it is noisy, more in vain
        with pytest.raises(EndsAreTheSame, match="too noisy to tell on this host") as caught:
            told(old, new, PairsRule(0.05, most))
    assert "readings of one end spread by 12.1%: about 301 pairs tell a change of 5%" in caught.value.message
    assert "--least-effect" in caught.value.hint


def test_a_drift_of_the_host_is_no_difference() -> None:
    """Within 20 pairs the host becomes a third slower, and the old end was read first in each."""
    drift = [1000 * 0.99**place for place in range(40)]
    noise = [1 + 0.01 * ((place * 7) % 5 - 2) for place in range(40)]
    readings = [one * factor for one, factor in zip(drift, noise, strict=True)]
    with pytest.raises(EndsAreTheSame, match="the same within 5%"):
        told(readings[::2], readings[1::2])
    faster = [one * 1.2 for one in readings[1::2]]
    found = told(readings[::2], faster)
    assert found is not None
    assert found.difference is not None
    factor = IOPS.factor(found.difference.mean, found.difference.half_width())
    assert factor.interval is not None
    assert factor.interval[0] < 1.2 < factor.interval[1] < 1.25


def _expected_by_least_squares(readings: InTurn) -> tuple[float, float]:
    """The coefficient of the new end and its standard error, by the normal equations."""
    design = np.array([[not is_new, is_new, place] for place, (is_new, _) in enumerate(readings)], dtype=float)
    scores = np.array([score for _, score in readings])
    coefficients, residuals, *_ = np.linalg.lstsq(design, scores, rcond=None)
    covariance = np.linalg.inv(design.T @ design) * residuals[0] / (len(scores) - 3)
    contrast = np.array([-1.0, 1.0, 0.0])
    return float(contrast @ coefficients), float(np.sqrt(contrast @ covariance @ contrast))


@settings(max_examples=30)
@hypothesis_given(st.lists(st.tuples(st.floats(50, 500), st.floats(50, 500), st.booleans()), min_size=3, max_size=9))
def test_the_difference_is_that_of_least_squares(pairs: list[tuple[float, float, bool]]) -> None:
    readings: list[tuple[bool, float]] = []
    for old, new, is_first in pairs:
        pair = [(False, IOPS.score(old)), (True, IOPS.score(new))]
        readings += pair[::-1] if is_first else pair
    seen = difference(readings)
    assert seen is not None
    assert (seen.mean, seen.error) == pytest.approx(_expected_by_least_squares(readings), rel=1e-6, abs=1e-9)
    assert seen.freedom == len(readings) - 3


def test_the_factor_is_that_of_values_whichever_are_better() -> None:
    assert IOPS.factor(math.log(2), 0.01).text == "2.00 times (95 %: 1.98 to 2.02)"
    assert LATENCY.factor(math.log(2), 0.01).text == "0.500 times (95 %: 0.495 to 0.505)"


@pytest.mark.parametrize(
    ("spread", "effect", "pairs"), [(0.05, 0.05, 61), (0.05, 0.1, 19), (0.05, 0.2, 8), (9, 0.01, None)]
)
def test_how_many_pairs_tell_nine_of_ten_changes(spread: float, effect: float, pairs: int | None) -> None:
    assert pairs_to_tell(spread, effect) == pairs
    if pairs is not None:
        rng = np.random.default_rng(1)
        rows = rng.normal([0, math.log1p(effect)], spread, (200, pairs, 2))
        seen = [difference([(bool(i % 2), one) for i, one in enumerate(row.ravel())]) for row in rows]
        assert 0.83 <= sum(one is not None and one.is_told for one in seen) / len(rows) <= 0.99


@pytest.mark.parametrize("drift", [0.005])
def test_ends_that_are_the_same_are_hardly_ever_told_apart(drift: float) -> None:
    """At most 1 of 1,000 is to be, at any look: of 100 at most 2 then, but for once in 6,000 such tests."""
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(100):
        scores = 0.03 * rng.standard_t(4, 40) + drift * np.arange(40)
        readings = [(bool((place + place // 2 % 2) % 2), float(one)) for place, one in enumerate(scores)]
        with suppress(EndsAreTheSame):
            wrong += told_apart(ends(1000, 1001, None), readings, PairsRule(0.0001, 100_000)) is not None
    assert wrong <= 2
