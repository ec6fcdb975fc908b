"""What the plot of a search shows: the value of each commit."""

from dataclasses import replace

import pytest

from bisector.core.subject import Kind
from bisector.core.verdict import Verdict
from bisector.report.document import PlacedTrial, Report
from bisector.report.plots import commits
from bisector.status.view import TrialView
from tests import examples as records
from tests.examples import cell
from tests.report import documents, examples
from tests.report.curve_examples import STOP
from tests.report.drawn import Drawn, panels

NOWHERE = 0.03  # of the height of the axes


def shown(report: Report) -> Drawn:
    plot = commits(report)
    assert plot is not None
    (panel,) = panels(plot)
    return panel


def test_found() -> None:
    panel = shown(documents.found())
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
    points = shown(documents.narrowed()).points
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
    panel = shown(documents.document(replace(whole, trials=(*whole.trials, one))))
    assert panel.points[label] == [(1, 2000.0)]


def test_step_is_directly_before_the_answer() -> None:
    """Also where commits before it could not be tested: the answer is beyond them."""
    whole = examples.found()
    skipped = replace(examples.SKIPPED, n=3)
    made = documents.document(replace(whole, trials=(*whole.trials[:2], skipped, *whole.trials[3:])))
    points = shown(made).points
    assert [points[word][0][0] for word in ("broken", "skip", "fixed", "the step")] == [0, 1, 2, 1.5]
    without_old = tuple(row for row in made.rows if row.shown.verdict is not Verdict.OLD)
    assert "the step" not in shown(replace(made, rows=without_old)).points


def test_step_is_not_at_an_old_commit_on_another_branch_after_it() -> None:
    whole = examples.found()
    later = examples.judged(6, examples.COMMITS[4], Verdict.OLD, (1002.0, 7701.0), (1002.0, 12701.0))
    made = documents.document(replace(whole, trials=(*whole.trials, later)))
    assert shown(made).points["the step"][0][0] == 1.5


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
    panel = shown(replace(made, bisection=whole, rows=(*rows, *made.rows)))
    assert panel.ticks[0] == "0: 0a5b3c7d9e1f"
    assert panel.ticks[-2:] == ["NEW, 3a5b3c7d9e1f reverted", "OLD, 3a5b3c7d9e1f added"]
    assert panel.points["broken"][0] == (4, 1002.0)
    assert panel.points["the step"][0][0] == 1.5


def test_the_answer_is_named_at_its_step_however_many_commits_there_are() -> None:
    made = documents.found()
    rows = [
        replace(made.rows[0], place=n, shown=replace(made.rows[0].shown, n=n, trial=replace(
            made.rows[0].shown.trial, cell=cell(replace(records.commit(n), sha=f"{n:040x}")))))
        for n in range(500)
    ]  # fmt: skip
    answer = replace(records.commit(333), sha="14d".ljust(40, "0"))
    rows[333] = replace(
        rows[333], shown=replace(rows[333].shown, trial=replace(rows[333].shown.trial, cell=cell(answer)))
    )
    panel = shown(replace(made, rows=tuple(rows), bisection=replace(made.bisection, first_fixed=answer)))
    assert "333: 14d000000000" in panel.ticks
    assert len(panel.ticks) < 80
    assert "first fixed: 14d000000000" in {text.get_text() for text in panel.axes.texts}


def test_nothing_measured_yet() -> None:
    assert commits(documents.running()) is None
    assert commits(documents.document(examples.view(examples.SKIPPED))) is None
