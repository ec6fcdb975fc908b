"""Rates over time (the grid, the sum, the smooth curve, what stands in which panel), and the value of each commit."""

from dataclasses import replace

import numpy as np
import pytest

from bisector.core.objective import Objective
from bisector.core.subject import Kind
from bisector.core.verdict import Verdict
from bisector.report.document import PlacedTrial, Report
from bisector.report.plots import TOGETHER, CurvesPlot, Logged, TracedKernel, commits, on_grid, smooth, step_of_grid_ms
from bisector.status.view import TrialView
from bisector.workload.fio.logs import Series
from tests import examples as records
from tests.examples import baseline, cell
from tests.report import documents, examples
from tests.report.curve_examples import STOP, both_sides, real, steady
from tests.report.drawn import Drawn, panels

LINE = "threshold 1,363 IOPS"
NOWHERE = 0.03  # of the height of the axes


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
    logged = Logged(records.run("full", *(1.0 for _ in iops)), iops)
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
    lacking = Logged(records.run("full", 500.0, 500.0, 500.0), real("fixed").logs)
    assert list(on_grid(lacking, Objective(), 500.0)) == ["job 1", "job 2"]


def test_long_run_has_no_more_points_than_can_be_seen() -> None:
    (found,) = rates(*steady(100.0, seconds=900).logs).values()
    assert (len(found), set(found)) == (225, {100.0})


def test_smooth_curve_stays_within_the_points_and_follows_a_step() -> None:
    for size in (1, 2, 5, 79):
        assert smooth(np.full(size, 7.0)) == pytest.approx(np.full(size, 7.0))
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
    kernels = () if logs is None else (TracedKernel("a", (Logged(records.run("full", 1.0), logs),)),)
    assert not CurvesPlot("t", kernels).runs


def test_baselines_are_bands_of_one_job_and_of_all() -> None:
    disks = (baseline("hdd", 90.0, 110.0), baseline("ssd", 17_000.0, 16_000.0))
    kernels = (TracedKernel("a", (steady(1.0),)), TracedKernel("b", (steady(9.0),)))
    assert [panel.bands for panel in panels(CurvesPlot("t", kernels, baselines=disks))] == [
        {"SSD alone": pytest.approx((16_000, 17_000)), "HDD alone": pytest.approx((90, 110))},
        {"SSD alone": pytest.approx((33_000, 33_000)), "HDD alone": pytest.approx((200, 200))},
    ]


def test_curves_of_writes() -> None:
    run = replace(records.run("full"), jobs=(records.job("w", 5.0, "write"),))
    kernels = (TracedKernel("a", (Logged(run, steady(5.0).logs),)),)
    (panel,) = panels(CurvesPlot("t", kernels, Objective("write.iops")))
    assert panel.axes.get_ylabel() == "write IOPS (points: means of 1 s)"
    assert panel.values("a, job 1") == pytest.approx([5.0] * 10)


@pytest.mark.parametrize(("paces", "scale"), [((100.0, 250.0), "linear"), ((100.0, 300.0), "log"), ((0.0,), "linear")])
def test_scale(paces: tuple[float, ...], scale: str) -> None:
    found = shown(*(TracedKernel(f"{pace}", (steady(pace),)) for pace in paces))
    assert found[0].axes.get_yscale() == scale


# The values of commits


def drawn(report: Report) -> Drawn:
    plot = commits(report)
    assert plot is not None
    (panel,) = panels(plot)
    return panel


def test_found() -> None:
    panel = drawn(documents.found())
    assert panel.ticks == [f"{place}: {examples.COMMITS[place].short}" for place in (0, 2, 3, 5)]
    assert panel.points["broken"] == [(0, 1001.6), (1, 1002.0)]
    assert panel.points["fixed"] == [(2, 4011.5), (2, 4400.0), (3, 4006.0)]
    assert panel.points["the step"] == [(1.5, 0), (1.5, 1)], "directly before the answer"
    assert set(panel.values("threshold 2,003 IOPS")) == {2003.1}
    assert panel.bands == {
        "level of 2 whole runs": pytest.approx((1001.6, 1002.0)),
        "level of 3 whole runs": pytest.approx((4006.0, 4400.0)),
        "SSD alone": pytest.approx((5012.0, 9310.5)),
        "HDD alone": pytest.approx((500.5, 501.0)),
    }


def test_order_is_called_what_it_is() -> None:
    by_place, by_date = commits(documents.found()), commits(documents.recorded())
    assert by_place is not None
    assert by_date is not None
    assert by_place.title == "v5.0..v5.1-rc1, commits in the order of history"
    assert by_date.title == "2ea659a9ef48..701e03e4e180, commits by date"
    assert panels(by_date)[0].axes.get_xlabel() == "commit"


def test_skipped_and_equal_kernels() -> None:
    points = drawn(documents.narrowed()).points
    assert points["skip"] == [(1, NOWHERE)]
    assert points["fixed, same kernel as another commit"] == [(3, 4011.5)]
    assert "the step" not in points


@pytest.mark.parametrize(
    ("verdict", "early", "label"), [(Verdict.OLD, True, "broken, stopped early"), (Verdict.WEAK, False, "weak")]
)
def test_figures_that_do_not_count_are_shown_as_what_they_are(verdict: Verdict, early: bool, label: str) -> None:
    run = records.run("full", 2000.0, 9000.0)
    trial = records.trial(examples.COMMITS[1], replace(run, stopped_early=STOP if early else None))
    one = replace(examples.BROKEN, n=9, trial=trial, verdict=verdict, value=2000.0)
    whole = examples.found()
    panel = drawn(documents.document(replace(whole, trials=(*whole.trials, one))))
    assert panel.points[label] == [(1, 2000.0)]


def test_step_is_directly_before_the_answer() -> None:
    """Also where commits before it could not be tested: the answer is beyond them."""
    whole = examples.found()
    skipped = replace(examples.SKIPPED, n=3)
    made = documents.document(replace(whole, trials=(*whole.trials[:2], skipped, *whole.trials[3:])))
    points = drawn(made).points
    assert [points[word][0][0] for word in ("broken", "skip", "fixed", "the step")] == [0, 1, 2, 1.5]
    without_old = tuple(row for row in made.rows if row.shown.verdict is not Verdict.OLD)
    assert "the step" not in drawn(replace(made, rows=without_old)).points
    # An old commit on another branch stands after it.
    later = examples.judged(6, examples.COMMITS[4], Verdict.OLD, (1002.0, 7701.0), (1002.0, 12701.0))
    made = documents.document(replace(whole, trials=(*whole.trials, later)))
    assert drawn(made).points["the step"][0][0] == 1.5


def test_ends_without_the_commit_and_with_it_stand_last() -> None:
    """They are in no history, and what they measure is no step of it."""
    whole = examples.found()
    slow, culprit = records.run("full", 1002.0, 9000.0), examples.COMMITS[3]
    added = [
        TrialView(n, replace(records.trial(records.commit(n), slow), cell=cell(records.commit(n), kind, culprit.sha)),
                  verdict, "", value=1002.0)
        for n, kind, verdict in ((6, Kind.REVERTED, Verdict.OLD), (7, Kind.PICKED, Verdict.NEW))
    ]  # fmt: skip
    rows = tuple(PlacedTrial(None, one) for one in added)
    made = documents.found()
    panel = drawn(replace(made, bisection=whole, rows=(*rows, *made.rows)))
    assert panel.ticks[0] == "0: 0a5b3c7d9e1f"
    assert panel.ticks[-2:] == ["NEW, 3a5b3c7d9e1f reverted", "OLD, 3a5b3c7d9e1f added"]
    assert panel.points["broken"][0] == (4, 1002.0)
    assert panel.points["the step"][0][0] == 1.5


def test_the_answer_is_named_at_its_step_however_many_commits_there_are() -> None:
    made = documents.found()
    first = made.rows[0].shown
    many = [replace(records.commit(n), sha=f"{n:040x}") for n in range(500)]
    many[333] = answer = replace(records.commit(333), sha="14d".ljust(40, "0"))
    rows = (
        PlacedTrial(n, replace(first, n=n, trial=replace(first.trial, cell=cell(one)))) for n, one in enumerate(many)
    )
    panel = drawn(replace(made, rows=tuple(rows), bisection=replace(made.bisection, first_fixed=answer)))
    assert "333: 14d000000000" in panel.ticks
    assert len(panel.ticks) < 80
    assert "first fixed: 14d000000000" in {text.get_text() for text in panel.axes.texts}


def test_nothing_measured_yet() -> None:
    assert commits(documents.running()) is None
    assert commits(documents.document(examples.view(examples.SKIPPED))) is None
