"""IOPS over time as values: the grid, the sum, the smooth curve, what stands in which panel."""

from dataclasses import replace

import numpy as np
import pytest

from bisector.core.objective import Objective
from bisector.report.curves import TOGETHER, Band, CurvePlot, Logged, Stop, TracedKernel, curves, smooth
from bisector.workload.fio.logs import Series
from tests import examples
from tests.examples import baseline
from tests.report.curve_examples import STOP, both_sides, real, steady


def made(*kernels: TracedKernel, threshold: float | None = 1363.0) -> CurvePlot:
    found = curves("title", kernels, Objective(), threshold)
    assert found is not None
    return found


def test_real_logs_of_two_kernels() -> None:
    """fio's intervals of 500 ms come a few ms late, each job's at its own time; the grid is of 500 ms."""
    plot = made(*both_sides())
    assert plot.interval_s == 0.5
    assert [[panel.title for panel in row] for row in plot.rows] == [
        ["empty run, each job", "full run, each job"],
        ["empty run, all jobs together", "full run, all jobs together"],
    ]
    full = plot.rows[0][1]
    assert [(line.kernel, line.job) for line in full.lines] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert full.lines[0].at_s[:3] == (0.25, 0.75, 1.25)
    assert [len(line.at_s) for line in full.lines] == [79, 79, 79, 79]
    assert [round(np.mean(line.rates)) for line in full.lines] == [501, 502, 3102, 3101]
    assert plot.logarithmic


def test_sum_is_that_of_the_jobs_at_each_moment() -> None:
    (panel,) = made(TracedKernel("a", (real("fixed"),))).rows[0]
    first, second, both = panel.lines
    assert (both.job, both.at_s) == (TOGETHER, first.at_s)
    assert both.rates == pytest.approx([a + b for a, b in zip(first.rates, second.rates, strict=True)], abs=0.11)


def test_no_ios_are_lost_on_the_grid() -> None:
    log = real("fixed").logs[0]
    line = made(TracedKernel("a", (real("fixed"),))).lines[0]
    whole = float((log.iops * (log.end_ms - log.start_ms)).sum()) / 1000
    assert sum(line.rates) * 0.5 == pytest.approx(whole, rel=0.01)


def test_long_run_has_no_more_points_than_can_be_seen() -> None:
    plot = made(TracedKernel("a", (steady(100.0, seconds=900),)))
    (line,) = plot.lines
    assert plot.interval_s == 4.0
    assert len(line.at_s) == 225
    assert set(line.rates) == {100.0}


@pytest.mark.parametrize("size", [1, 2, 5, 79])
def test_smooth_curve_of_a_steady_pace_is_that_pace(size: int) -> None:
    assert smooth(np.full(size, 7.0)) == pytest.approx(np.full(size, 7.0))


def test_smooth_curve_stays_within_the_points_and_follows_a_step() -> None:
    step = np.concatenate((np.full(40, 500.0), np.full(40, 5000.0)))
    line = smooth(step)
    assert line.min() >= 500 * (1 - 1e-12)  # rounding is the CPU's
    assert line.max() <= 5000 * (1 + 1e-12)
    assert line[:30] == pytest.approx(np.full(30, 500.0))
    assert line[-30:] == pytest.approx(np.full(30, 5000.0))
    assert 500 < line[40] < 5000


def test_threshold_is_for_each_job_of_the_run_that_counts() -> None:
    plot = made(*both_sides())
    assert [[panel.threshold for panel in row] for row in plot.rows] == [[None, 1363.0], [None, None]]
    assert made(*both_sides(), threshold=None).rows[0][1].threshold is None


def test_early_stop_is_marked_where_it_was() -> None:
    plot = made(TracedKernel("a", (steady(1.0),)), TracedKernel("b", (steady(9.0, stop=STOP),)))
    assert [panel.stops for row in plot.rows for panel in row] == [(Stop(1, 20.25),)] * 2


def test_job_without_a_log_leaves_no_sum() -> None:
    run = examples.run("full", 500.0, 500.0, 500.0)
    plot = made(TracedKernel("a", (Logged(run, real("fixed").logs),)))
    assert [line.job for line in plot.lines] == [1, 2]


def test_jobs_of_different_length_are_summed_as_far_as_both_go() -> None:
    long, short = steady(10.0, seconds=10), steady(20.0, seconds=6)
    run = examples.run("full", 10.0, 20.0)
    plot = made(TracedKernel("a", (Logged(run, (*long.logs, *short.logs)),)))
    assert [(line.job, len(line.rates)) for line in plot.lines] == [(1, 10), (2, 6), (TOGETHER, 6)]
    assert set(plot.lines[-1].rates) == {30.0}


def test_nothing_to_draw() -> None:
    empty = Series(*(np.zeros(0) for _ in range(3)))
    assert curves("t", [], Objective(), 1.0) is None
    assert curves("t", [TracedKernel("a", (Logged(examples.run("full", 1.0), ()),))], Objective(), 1.0) is None
    assert curves("t", [TracedKernel("a", (Logged(examples.run("full", 1.0), (empty,)),))], Objective(), 1.0) is None


def test_baselines_are_bands_of_one_job_and_of_all() -> None:
    disks = [baseline("hdd", 90.0, 110.0), baseline("ssd", 17_000.0, 16_000.0)]
    plot = curves("t", [TracedKernel("a", (steady(1.0),)), TracedKernel("b", (steady(9.0),))], Objective(), 2.0, disks)
    assert plot is not None
    assert [row[0].bands for row in plot.rows] == [
        (Band("SSD alone", 16_000, 17_000), Band("HDD alone", 90, 110)),
        (Band("SSD alone", 33_000, 33_000), Band("HDD alone", 200, 200)),
    ]


def test_curves_of_writes() -> None:
    run = replace(examples.run("full"), jobs=(examples.job("w", 5.0, "write"),))
    writes = Objective("write.iops")
    plot = curves("t", [TracedKernel("a", (Logged(run, steady(5.0).logs),))], writes)
    assert plot is not None
    assert plot.objective == writes
    assert [line.job for line in plot.lines] == [1]


@pytest.mark.parametrize(("paces", "logarithmic"), [((100.0, 250.0), False), ((100.0, 300.0), True), ((0.0,), False)])
def test_scale(paces: tuple[float, ...], logarithmic: bool) -> None:
    plot = made(*(TracedKernel(f"{pace}", (steady(pace),)) for pace in paces))
    assert plot.logarithmic is logarithmic
