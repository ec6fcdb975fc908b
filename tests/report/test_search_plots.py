"""What the plot of a search shows: the value of each commit."""

from dataclasses import replace

from bisector.core.subject import Kind
from bisector.core.verdict import Verdict
from bisector.report.curves import Band
from bisector.report.document import PlacedTrial, Report
from bisector.report.search_plots import CommitMark, How, commits
from bisector.status.view import LevelView, TrialView
from tests import examples as records
from tests.examples import cell
from tests.report import documents, examples
from tests.report.curve_examples import STOP


def test_found() -> None:
    plot = commits(documents.found())
    assert plot is not None
    assert plot.names == tuple(f"{place}: {examples.COMMITS[place].short}" for place in (0, 2, 3, 5))
    assert plot.marks == (
        CommitMark(0, 1, Verdict.OLD, How.WHOLE, 1001.6),
        CommitMark(1, 3, Verdict.OLD, How.WHOLE, 1002.0),
        CommitMark(2, 4, Verdict.NEW, How.WHOLE, 4011.5),
        CommitMark(2, 5, Verdict.NEW, How.WHOLE, 4400.0),
        CommitMark(3, 2, Verdict.NEW, How.WHOLE, 4006.0),
    )
    assert plot.levels == (LevelView(1001.6, 1002.0, 2), LevelView(4006.0, 4400.0, 3))
    assert (plot.threshold, plot.step) == (2003.1, 2)
    assert dict(plot.words)[Verdict.NEW] == "fixed"
    assert plot.bands == (Band("SSD alone", 5012.0, 9310.5), Band("HDD alone", 500.5, 501.0))


def test_order_is_called_what_it_is() -> None:
    by_place, by_date = commits(documents.found()), commits(documents.recorded())
    assert by_place is not None
    assert by_date is not None
    assert (by_place.title, by_place.axis) == (
        "v5.0..v5.1-rc1, commits in the order of history",
        "commit (place counted from the old end: hash)",
    )
    assert (by_date.title, by_date.axis) == ("2ea659a9ef48..701e03e4e180, commits by date", "commit")


def test_skipped_and_equal_kernels() -> None:
    plot = commits(documents.narrowed())
    assert plot is not None
    marks = {mark.n: mark for mark in plot.marks}
    assert marks[3] == CommitMark(1, 3, Verdict.SKIP, How.NONE, None)
    assert marks[5] == CommitMark(3, 5, Verdict.NEW, How.SAME, 4011.5)
    assert plot.step is None


def _with(verdict: Verdict, *, early: bool) -> Report:
    run = records.run("full", 2000.0, 9000.0)
    trial = records.trial(examples.COMMITS[1], replace(run, stopped_early=STOP if early else None))
    shown = replace(examples.BROKEN, n=9, trial=trial, verdict=verdict, value=2000.0)
    whole = examples.found()
    return documents.document(replace(whole, trials=(*whole.trials, shown)))


def test_early_figures_are_shown_and_make_no_level() -> None:
    plot = commits(_with(Verdict.OLD, early=True))
    assert plot is not None
    assert plot.marks[1] == CommitMark(1, 9, Verdict.OLD, How.EARLY, 2000.0)
    assert sum(level.trials for level in plot.levels) == 4


def test_weak_figures_are_shown_and_make_no_level() -> None:
    plot = commits(_with(Verdict.WEAK, early=False))
    assert plot is not None
    assert plot.marks[1] == CommitMark(1, 9, Verdict.WEAK, How.WHOLE, 2000.0)
    assert sum(level.trials for level in plot.levels) == 4


def test_step_is_directly_before_the_answer() -> None:
    """Also where commits before it could not be tested: the answer is beyond them."""
    whole = examples.found()
    skipped = replace(examples.SKIPPED, n=3)
    made = documents.document(replace(whole, trials=(*whole.trials[:2], skipped, *whole.trials[3:])))
    plot = commits(made)
    assert plot is not None
    assert [(mark.place, mark.verdict) for mark in plot.marks[:3]] == [
        (0, Verdict.OLD), (1, Verdict.SKIP), (2, Verdict.NEW),
    ]  # fmt: skip
    assert plot.step == 2
    without_old = [row for row in made.rows if row.shown.verdict is not Verdict.OLD]
    assert commits(replace(made, rows=tuple(without_old))).step is None  # type: ignore[union-attr] # it has figures


def test_step_is_not_at_an_old_commit_on_another_branch_after_it() -> None:
    whole = examples.found()
    later = examples.judged(6, examples.COMMITS[4], Verdict.OLD, (1002.0, 7701.0), (1002.0, 12701.0))
    plot = commits(documents.document(replace(whole, trials=(*whole.trials, later))))
    assert plot is not None
    assert plot.step == 2


def test_ends_without_the_commit_and_with_it_stand_last() -> None:
    """They are in no history, and what they measure is no step of it."""
    whole = examples.found()
    slow, culprit = records.run("full", 1002.0, 9000.0), examples.COMMITS[3]
    added = [
        TrialView(n, replace(records.trial(records.commit(n), slow), cell=cell(records.commit(n), kind, culprit.sha)),
                  verdict, "", value=1002.0)
        for n, kind, verdict in ((6, Kind.REVERTED, Verdict.OLD), (7, Kind.PICKED, Verdict.NEW))
    ]  # fmt: skip
    rows = tuple(PlacedTrial(None, shown) for shown in added)
    made = documents.found()
    plot = commits(replace(made, bisection=whole, rows=(*rows, *made.rows)))
    assert plot is not None
    assert plot.names[-2:] == ("NEW, 3a5b3c7d9e1f reverted", "OLD, 3a5b3c7d9e1f added")
    assert plot.names[0] == "0: 0a5b3c7d9e1f"
    assert plot.marks[0] == CommitMark(4, 6, Verdict.OLD, How.WHOLE, 1002.0)
    assert plot.step == 2
    assert sum(level.trials for level in plot.levels) == 7


def test_nothing_measured_yet() -> None:
    assert commits(documents.running()) is None
    assert commits(documents.document(examples.view(examples.SKIPPED))) is None
