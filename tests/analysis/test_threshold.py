import math

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from bisector.analysis.threshold import Ends, Threshold, from_scores, given, told_apart
from bisector.core.errors import EndsDoNotReproduce
from bisector.core.objective import Objective
from bisector.core.verdict import Direction, Terms, Verdict

UP, DOWN = Direction.IMPROVEMENT, Direction.REGRESSION
IOPS, LATENCY = Objective(), Objective("read.clat.p50")


def ends(old: float, new: float, expected: Direction | None = UP, objective: Objective = IOPS) -> Ends:
    """Of values, in the objective's unit."""
    return Ends(objective.score(old), objective.score(new), objective, expected, Terms.usual(expected))


def scores(**values: float) -> dict[str, list[float]]:
    return {kernel: [IOPS.score(value)] for kernel, value in values.items()}


def value(found: Threshold, objective: Objective = IOPS) -> float:
    return objective.value_of(found.score)


def test_the_threshold_is_the_middle_of_the_gap_beside_the_new_end() -> None:
    readings = scores(a=1000, b=4000)
    assert value(from_scores(ends(1000, 4000), readings, 2)) == pytest.approx(2000)
    assert value(from_scores(ends(4000, 1000, DOWN), readings, 2)) == pytest.approx(2000)
    between = {**readings, **scores(c=1500, d=1500)}
    assert value(from_scores(ends(1000, 4000), between, 2)) == pytest.approx((1500 * 4000) ** 0.5)


@pytest.mark.parametrize("objective", [IOPS, LATENCY], ids=lambda one: one.metric)
def test_equal_ends_are_refused_however_little_is_asked_for(objective: Objective) -> None:
    """A least factor of 1 may be set, and some metrics are whole numbers."""
    for expected in (None, UP):
        equal = ends(1000, 1000, expected, objective)
        with pytest.raises(EndsDoNotReproduce, match="no difference to bisect") as caught:
            from_scores(equal, {"a": [equal.old], "b": [equal.new]}, 1)
        assert "swapped" not in caught.value.hint


@pytest.mark.parametrize("objective", [IOPS, LATENCY], ids=lambda one: one.metric)
@hypothesis_given(least=st.floats(1, 1e7), ratio=st.floats(2.001, 100), turned=st.booleans())
def test_a_found_threshold_puts_each_end_on_its_side(
    objective: Objective, least: float, ratio: float, turned: bool
) -> None:
    values = (least * ratio, least) if turned else (least, least * ratio)
    found = from_scores(ends(*values, None, objective), {}, 2)
    assert found.direction.verdict(found.old > found.score) is Verdict.OLD
    assert found.direction.verdict(found.new > found.score) is Verdict.NEW
    assert not found.given


@pytest.mark.parametrize(
    ("objective", "old", "new", "direction"),
    [(IOPS, 1000, 4000, UP), (IOPS, 4000, 1000, DOWN), (LATENCY, 16e6, 0.6e6, UP), (LATENCY, 0.6e6, 16e6, DOWN)],
)
def test_the_ends_say_in_which_direction_the_change_is(
    objective: Objective, old: float, new: float, direction: Direction
) -> None:
    assert from_scores(ends(old, new, None, objective), {}, 2).direction is direction
    line = math.sqrt(old * new)
    assert given(objective.score(line), ends(old, new, None, objective)).direction is direction


def test_what_was_found_is_said_with_its_unit() -> None:
    found = from_scores(ends(16e6, 1e6, None, LATENCY), {}, 2)
    assert found.sentence(LATENCY) == (
        "an improvement: read.clat.p50 of the worst job from 16.0 ms to 1.00 ms; "
        "threshold 4.00 ms, the middle of the gap between the ends"
    )


def test_exactly_the_least_ratio_is_enough() -> None:
    assert value(from_scores(ends(1000, 2000), {}, 2)) == pytest.approx(1414.2, abs=0.1)


@pytest.mark.parametrize(("expected", "words"), [(UP, ("broken", "fixed")), (None, ("old", "new"))])
def test_ends_too_close_are_refused_with_what_was_measured(expected: Direction | None, words: tuple[str, str]) -> None:
    with pytest.raises(EndsDoNotReproduce) as caught:
        from_scores(ends(1002, 1800, expected), {}, 2)
    measured = f"the {words[0]} end measured 1,002 IOPS, the {words[1]} end 1,800 IOPS (read.iops of the worst job)"
    assert measured in caught.value.message
    assert "1.80 times apart" in caught.value.message
    assert "swapped" not in caught.value.hint


def test_ends_that_do_not_differ_in_a_latency_are_refused_with_it() -> None:
    with pytest.raises(EndsDoNotReproduce, match=r"measured 19\.0 ms, the new end 16\.0 ms \(read\.clat\.p99"):
        from_scores(ends(19e6, 16e6, None, Objective("read.clat.p99")), {}, 2)


@pytest.mark.parametrize(("values", "direction"), [((4000, 1000), UP), ((1000, 4000), DOWN)])
def test_swapped_ends_get_a_hint_where_a_direction_is_expected(
    values: tuple[float, float], direction: Direction
) -> None:
    with pytest.raises(EndsDoNotReproduce) as caught:
        from_scores(ends(*values, direction), {}, 2)
    assert "4.00 times in the other direction" in caught.value.message
    assert "swapped: bisector start NEW OLD" in caught.value.hint
    assert "--expect" in caught.value.hint


def test_where_any_factor_will_do_none_is_called_for() -> None:
    with pytest.raises(EndsDoNotReproduce, match=r": 1\.10 times, in the other direction than expected$") as caught:
        from_scores(ends(1100, 1000, UP), {}, 1)
    assert "swapped" in caught.value.hint


def test_a_little_in_the_wrong_direction_is_not_swapped() -> None:
    with pytest.raises(EndsDoNotReproduce) as caught:
        from_scores(ends(1100, 1000), {}, 2)
    assert "swapped" not in caught.value.hint


def test_a_given_threshold_needs_no_ratio() -> None:
    found = given(IOPS.score(20_000), ends(19_000, 20_077))
    assert (value(found), found.given) == (20_000, True)
    assert value(given(IOPS.score(2000), ends(4000, 1000, DOWN))) == 2000


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


@pytest.mark.parametrize(
    ("old", "new", "means"),
    [
        ([197], [400], (197, 400)),  # a factor of 2, or not enough to be asked for: nothing is read again
        ([197], [200], (197, 200)),
        ([197], [197], (197, 197)),
        ([197], [207], None),
        ([197, 198], [207], None),
        ([197, 198], [207, 209], None),  # two of each tell 13 deviations apart, and these are 11
        ([197.0, 197.1], [207.0, 207.1], (197.05, 207.05)),
        ([197.0, 197.1, 300], [207.0, 207.1, 120], (197.05, 207.05)),  # what was told stays so
        ([197, 198, 196], [207, 206, 208], (197, 207)),
        ([197, 200, 194], [207, 204, 210], None),
    ],
)
def test_of_ends_that_lie_close_nothing_is_told_before_they_differ_by_more_than_their_own_readings(
    old: list[float], new: list[float], means: tuple[float, float] | None
) -> None:
    latency = Objective("read.clat.p50")
    read = [latency.score(one * 1e3) for one in old], [latency.score(one * 1e3) for one in new]
    found = told_apart(ends(old[0] * 1e3, new[0] * 1e3, None, latency), *read, min_ratio=1.03)
    values = None if found is None else tuple(latency.value_of(one) / 1e3 for one in (found.old, found.new))
    assert values == (None if means is None else pytest.approx(means, rel=1e-4))


def test_ends_that_four_readings_of_each_do_not_tell_apart_are_alike() -> None:
    read = list(map(IOPS.score, (197, 204, 199, 206))), list(map(IOPS.score, (207, 198, 203, 201)))
    with pytest.raises(EndsDoNotReproduce) as caught:
        told_apart(ends(197, 207, None), *read, min_ratio=1.03)
    assert "measured 201 IOPS" in caught.value.message
    assert "means of 4 readings of each, which are not told apart: the change is between -7." in caught.value.message
