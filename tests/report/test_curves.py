"""Rates over time: the grid, the sum, the smooth curve, what stands in which panel."""

from dataclasses import replace

import numpy as np
import pytest

from bisector.core.objective import Objective
from bisector.report.plots import TOGETHER, CurvesPlot, Logged, TracedKernel, on_grid, smooth, step_of_grid_ms
from bisector.workload.fio.logs import Series
from tests import examples
from tests.examples import baseline
from tests.report.curve_examples import STOP, both_sides, real, steady
from tests.report.drawn import Drawn, panels

LINE = "threshold 1,363 IOPS"


def shown(*kernels: TracedKernel, threshold: float | None = 1363.0) -> list[Drawn]:
    return panels(CurvesPlot("title", kernels, line=threshold))


def test_real_logs_of_two_kernels() -> None:
    """fio's intervals of 500 ms come a few ms late, each job's at its own time; the grid is of 500 ms."""
    found = shown(*both_sides())
    assert [panel.title for panel in found] == [
        "empty run, each job",
        "full run, each job",
        "empty run, all jobs together",
        "full run, all jobs together",
    ]
    full = found[1]
    curves = [label for label in full.points if label and label != LINE]
    assert curves == [
        f"{name}, job {job}" for name in ("aaaaaaaaaaaa (broken)", "bbbbbbbbbbbb (fixed)") for job in (1, 2)
    ]
    assert [len(full.points[label]) for label in curves] == [79] * 4
    assert [at for at, _ in full.points[curves[0]][:3]] == [0.25, 0.75, 1.25]
    assert [round(np.mean(full.values(label)), -2) for label in curves] == [500, 500, 3100, 3100]
    assert found[0].axes.get_yscale() == "log"
    # The line is for each job of the run that counts.
    assert [LINE in panel.points for panel in found] == [False, True, False, False]
    assert not any(LINE in panel.points for panel in shown(*both_sides(), threshold=None))


def rates(*iops: Series) -> dict[str, list[float]]:
    logged = Logged(examples.run("full", *(1.0 for _ in iops)), iops)
    return {job: found.tolist() for job, found in on_grid(logged, Objective(), step_of_grid_ms([logged])).items()}


def test_sum_is_that_of_the_jobs_at_each_moment_and_no_ios_are_lost() -> None:
    logs = real("fixed").logs
    found = rates(*logs)
    assert list(found) == ["job 1", "job 2", TOGETHER]
    assert found[TOGETHER] == pytest.approx(np.add(found["job 1"], found["job 2"]))
    whole = float((logs[0].iops * (logs[0].end_ms - logs[0].start_ms)).sum()) / 1000
    assert sum(found["job 1"]) * 0.5 == pytest.approx(whole, rel=0.01)


def test_jobs_of_different_length_are_summed_as_far_as_both_go() -> None:
    found = rates(*steady(10.0, seconds=10).logs, *steady(20.0, seconds=6).logs)
    assert [len(one) for one in found.values()] == [10, 6, 6]
    assert set(found[TOGETHER]) == {30.0}


def test_job_without_a_log_leaves_no_sum() -> None:
    lacking = Logged(examples.run("full", 500.0, 500.0, 500.0), real("fixed").logs)
    assert list(on_grid(lacking, Objective(), 500.0)) == ["job 1", "job 2"]


def test_long_run_has_no_more_points_than_can_be_seen() -> None:
    (found,) = rates(*steady(100.0, seconds=900).logs).values()
    assert (len(found), set(found)) == (225, {100.0})


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


def test_early_stop_is_marked_where_it_was() -> None:
    found = shown(TracedKernel("a", (steady(1.0),)), TracedKernel("b", (steady(9.0, stop=STOP),)))
    assert [panel.points["b, stopped early"][0][0] for panel in found] == [20.25] * 2
    assert not any("a, stopped early" in panel.points for panel in found)


@pytest.mark.parametrize("logs", [None, (), (Series(*(np.zeros(0) for _ in range(3))),)])
def test_nothing_to_draw(logs: tuple[Series, ...] | None) -> None:
    kernels = () if logs is None else (TracedKernel("a", (Logged(examples.run("full", 1.0), logs),)),)
    assert not CurvesPlot("t", kernels).runs


def test_baselines_are_bands_of_one_job_and_of_all() -> None:
    disks = (baseline("hdd", 90.0, 110.0), baseline("ssd", 17_000.0, 16_000.0))
    kernels = (TracedKernel("a", (steady(1.0),)), TracedKernel("b", (steady(9.0),)))
    assert [panel.bands for panel in panels(CurvesPlot("t", kernels, baselines=disks))] == [
        {"SSD alone": pytest.approx((16_000, 17_000)), "HDD alone": pytest.approx((90, 110))},
        {"SSD alone": pytest.approx((33_000, 33_000)), "HDD alone": pytest.approx((200, 200))},
    ]


def test_curves_of_writes() -> None:
    run = replace(examples.run("full"), jobs=(examples.job("w", 5.0, "write"),))
    kernels = (TracedKernel("a", (Logged(run, steady(5.0).logs),)),)
    (panel,) = panels(CurvesPlot("t", kernels, Objective("write.iops")))
    assert panel.axes.get_ylabel() == "write IOPS (points: means of 1 s)"
    assert panel.values("a, job 1") == pytest.approx([5.0] * 10)


@pytest.mark.parametrize(("paces", "scale"), [((100.0, 250.0), "linear"), ((100.0, 300.0), "log"), ((0.0,), "linear")])
def test_scale(paces: tuple[float, ...], scale: str) -> None:
    found = shown(*(TracedKernel(f"{pace}", (steady(pace),)) for pace in paces))
    assert found[0].axes.get_yscale() == scale
