"""Curves as paths of a small SVG, by value."""

import re
from dataclasses import replace

import pytest

from bisector.core.objective import Objective
from bisector.report.curves import Curves, Measured, curves
from bisector.report.sketch import HEIGHT, WIDTH, Sketch, Tick, sketches
from tests.report.curve_examples import STOP, both_sides, steady


def made(*kernels: Measured, threshold: float | None = None) -> Curves:
    plot = curves("t", kernels, Objective(), threshold)
    assert plot is not None
    return plot


def coordinates(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path)]


def test_linear() -> None:
    """Two intervals of a second at 100 IOPS: the axis of IOPS goes to 115, that of time to 2 s."""
    (one,) = sketches(made(Measured("a", (steady(100.0, seconds=2),))))
    assert one.title == "full run"
    assert one.box == (52, 8, 392, 186)
    (stroke,) = one.strokes
    assert (stroke.job, stroke.points, stroke.smooth) == (1, "M137 31.2h0M307 31.2h0", "M137 31.2 307 31.2")
    assert one.x_ticks == (Tick(52, "0"), Tick(137, "0.5"), Tick(222, "1"), Tick(307, "1.5"), Tick(392, "2"))
    assert [tick.text for tick in one.y_ticks] == ["0", "20", "40", "60", "80", "100"]
    assert one.y_ticks[0].at == 186
    assert (one.threshold_at, one.stops_at) == (None, ())


def test_logarithmic_ticks_are_at_equal_ratios() -> None:
    (one,) = sketches(made(Measured("a", (steady(100.0, 10_000.0),))))
    at = {tick.text: tick.at for tick in one.y_ticks}
    assert list(at) == ["100", "200", "500", "1,000", "2,000", "5,000", "10,000"]
    assert at["100"] - at["1,000"] == pytest.approx(at["1,000"] - at["10,000"], abs=0.11)


def test_threshold_and_stop() -> None:
    (one,) = sketches(made(Measured("a", (steady(100.0, seconds=40, stop=STOP),)), threshold=50.0))
    assert one.threshold_at == one.y_ticks[0].at - round((one.y_ticks[0].at - 8) * 50 / 115, 1)
    assert one.stops_at == (round(52 + 340 * 20.25 / 40, 1),)


def test_threshold_above_every_curve_is_within_the_axes() -> None:
    (one,) = sketches(made(Measured("a", (steady(100.0),)), threshold=1000.0))
    assert one.threshold_at == round(186 - 178 / 1.15, 1)


def test_all_stays_within_the_axes() -> None:
    """A job that stands still, and a point far above the smooth curve, on either scale."""
    for plot in (made(*both_sides()), made(Measured("a", (steady(0.0, 5.0, 9_000.0),)))):
        odd = replace(plot.lines[0], rates=(0.0, 1e9, *plot.lines[0].rates[2:]))
        panel = replace(plot.rows[0][0], lines=(odd, *plot.rows[0][0].lines[1:]))
        for one in sketches(replace(plot, rows=((panel, *plot.rows[0][1:]), *plot.rows[1:]))):
            points = [
                xy for stroke in one.strokes for path in (stroke.points, stroke.smooth) for xy in coordinates(path)
            ]
            assert points
            assert all(52 <= x <= WIDTH - 8 and 8 <= y <= HEIGHT - 34 for x, y in points)


def test_points_of_a_sum_are_left_out() -> None:
    (one,) = sketches(made(Measured("a", (steady(100.0, 100.0),))))
    assert [bool(stroke.points) for stroke in one.strokes] == [True, True, False]
    assert isinstance(one, Sketch)


@pytest.mark.parametrize("seconds", [1, 7, 40, 60, 900, 3600])
def test_ticks_are_few_and_round(seconds: int) -> None:
    (one,) = sketches(made(Measured("a", (steady(100.0, seconds=seconds),))))
    assert 2 <= len(one.x_ticks) <= 7
    assert all(len(tick.text) <= 4 for tick in one.x_ticks)
