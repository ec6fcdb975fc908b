import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from bisector.analysis.threshold import Ends, from_readings, given
from bisector.core.errors import EndsDoNotReproduce
from bisector.core.model import Direction, Terms, Verdict

UP, DOWN = Direction.IMPROVEMENT, Direction.REGRESSION


def ends(old: float, new: float, direction: Direction = UP) -> Ends:
    return Ends(old, new, direction, Terms())


def test_the_threshold_is_the_middle_of_the_gap_beside_the_new_end() -> None:
    readings = {"a": [1000.0], "b": [4000.0]}
    assert from_readings(ends(1000, 4000), readings, 2).iops == pytest.approx(2000)
    assert from_readings(ends(4000, 1000, DOWN), readings, 2).iops == pytest.approx(2000)
    between = {**readings, "c": [1500.0], "d": [1500.0]}
    assert from_readings(ends(1000, 4000), between, 2).iops == pytest.approx((1500 * 4000) ** 0.5)


@hypothesis_given(st.floats(1, 1e7), st.floats(2.001, 100), st.sampled_from(list(Direction)))
def test_a_found_threshold_puts_each_end_on_its_side(least: float, ratio: float, direction: Direction) -> None:
    figures = (least, least * ratio) if direction is UP else (least * ratio, least)
    found = from_readings(ends(*figures, direction), {}, 2)
    assert direction.verdict(found.old_iops > found.iops) is Verdict.OLD
    assert direction.verdict(found.new_iops > found.iops) is Verdict.NEW
    assert not found.given


def test_exactly_the_least_ratio_is_enough() -> None:
    assert from_readings(ends(1000, 2000), {}, 2).iops == pytest.approx(1414.2, abs=0.1)


def test_ends_too_close_are_refused_with_what_was_measured() -> None:
    with pytest.raises(EndsDoNotReproduce) as caught:
        from_readings(ends(1002, 1800), {}, 2)
    assert "broken end measured 1,002 IOPS, the fixed end 1,800 IOPS" in caught.value.message
    assert "1.80 times apart" in caught.value.message
    assert "swapped" not in caught.value.hint


@pytest.mark.parametrize(("figures", "direction"), [((4000, 1000), UP), ((1000, 4000), DOWN)])
def test_swapped_ends_get_a_hint(figures: tuple[float, float], direction: Direction) -> None:
    with pytest.raises(EndsDoNotReproduce) as caught:
        from_readings(ends(*figures, direction), {}, 2)
    assert "4.00 times in the other direction" in caught.value.message
    assert "swapped: bisector start NEW OLD" in caught.value.hint
    assert "--regression" in caught.value.hint


def test_a_little_in_the_wrong_direction_is_not_swapped() -> None:
    with pytest.raises(EndsDoNotReproduce) as caught:
        from_readings(ends(1100, 1000), {}, 2)
    assert "swapped" not in caught.value.hint


def test_a_given_threshold_needs_no_ratio() -> None:
    found = given(20_000, ends(19_000, 20_077))
    assert (found.iops, found.given) == (20_000, True)
    assert given(2000, ends(4000, 1000, DOWN)).iops == 2000


@pytest.mark.parametrize(
    ("figures", "direction", "wrong"),
    [
        ((21_000, 30_000), UP, "the broken end is on the wrong side"),
        ((1000, 20_000), UP, "the fixed end is on the wrong side"),
        ((30_000, 1000), UP, "the broken and the fixed end are on the wrong side"),
        ((1000, 900), DOWN, "the broken end is on the wrong side"),
    ],
)
def test_ends_on_the_wrong_side(figures: tuple[float, float], direction: Direction, wrong: str) -> None:
    with pytest.raises(EndsDoNotReproduce) as caught:
        given(20_000, ends(*figures, direction))
    assert wrong in caught.value.message
    assert ("swapped" in caught.value.hint) is (" and the " in wrong)
