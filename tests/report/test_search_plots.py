"""What the two plots of a search show: the value of each commit, and how the range narrowed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bisector.core.subject import Kind
from bisector.core.verdict import Verdict
from bisector.report import reporting
from bisector.report.curves import Band
from bisector.report.document import Report, Row
from bisector.report.search_plots import After, Belief, How, Mark, commits, narrowed, narrowing
from bisector.search.graph import RangeGraph
from bisector.search.likelihood import Weighing
from bisector.search.posterior import posterior
from bisector.search.readings import Facts
from bisector.status.view import LevelView, TrialView
from bisector.store.store import Store
from tests import examples as records
from tests import recorded_run
from tests.examples import cell
from tests.git import histories
from tests.recorded_run import FAST, SLOW, RecordedRun
from tests.report import documents, examples
from tests.report.curve_examples import STOP


def test_found() -> None:
    plot = commits(documents.found())
    assert plot is not None
    assert plot.names == tuple(f"{place}: {examples.COMMITS[place].short}" for place in (0, 2, 3, 5))
    assert plot.marks == (
        Mark(0, 1, Verdict.OLD, How.WHOLE, 1001.6),
        Mark(1, 3, Verdict.OLD, How.WHOLE, 1002.0),
        Mark(2, 4, Verdict.NEW, How.WHOLE, 4011.5),
        Mark(2, 5, Verdict.NEW, How.WHOLE, 4400.0),
        Mark(3, 2, Verdict.NEW, How.WHOLE, 4006.0),
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
    assert marks[3] == Mark(1, 3, Verdict.SKIP, How.NONE, None)
    assert marks[5] == Mark(3, 5, Verdict.NEW, How.SAME, 4011.5)
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
    assert plot.marks[1] == Mark(1, 9, Verdict.OLD, How.EARLY, 2000.0)
    assert sum(level.trials for level in plot.levels) == 4


def test_weak_figures_are_shown_and_make_no_level() -> None:
    plot = commits(_with(Verdict.WEAK, early=False))
    assert plot is not None
    assert plot.marks[1] == Mark(1, 9, Verdict.WEAK, How.WHOLE, 2000.0)
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
    rows = tuple(Row(None, shown) for shown in added)
    made = documents.found()
    plot = commits(replace(made, bisection=whole, rows=(*rows, *made.rows)))
    assert plot is not None
    assert plot.names[-2:] == ("NEW, 3a5b3c7d9e1f reverted", "OLD, 3a5b3c7d9e1f added")
    assert plot.names[0] == "0: 0a5b3c7d9e1f"
    assert plot.marks[0] == Mark(4, 6, Verdict.OLD, How.WHOLE, 1002.0)
    assert plot.step == 2
    assert sum(level.trials for level in plot.levels) == 7


def test_nothing_measured_yet() -> None:
    assert commits(documents.running()) is None
    assert commits(documents.document(examples.view(examples.SKIPPED))) is None


WORDS = ((Verdict.OLD, "broken"), (Verdict.NEW, "fixed"))


def belief(n: int, verdict: Verdict, *p: float) -> Belief:
    shown = np.array(p or (0.1, 0.2, 0.4, 0.2, 0.1))
    line = RangeGraph.of([(), *((n,) for n in range(len(shown) - 1))])
    nothing = posterior(line, np.zeros(len(shown)), Facts(), Weighing())
    return Belief(n, n - 1, verdict, replace(nothing, p=shown))


def test_each_commit_of_a_short_range_has_its_own_part() -> None:
    made = narrowing("t", [belief(3, Verdict.OLD, 0.0, 0.25, 0.7, 0.05)], 0.9, WORDS)
    assert made is not None
    assert made.edges == (0, 1, 2, 3, 4)
    assert made.steps == (After(3, 2, Verdict.OLD, (0.0, 0.25, 0.7, 0.05), 2, 2, 0.7),)


def test_long_range_is_cut_into_parts_that_lose_nothing() -> None:
    p = np.zeros(14_565)
    p[0], p[7_000], p[14_564] = 0.2, 0.5, 0.3
    made = narrowing("t", [belief(1, Verdict.NEW, *p)], 0.99, WORDS)
    assert made is not None
    (step,) = made.steps
    assert (made.commits, len(step.mass), made.edges[-1]) == (14_565, 200, 14_565)
    assert sum(step.mass) == pytest.approx(1.0)
    assert (step.mass[0], max(step.mass), step.mass[-1]) == (0.2, 0.5, 0.3)
    assert made.edges[step.mass.index(0.5)] <= 7_000 < made.edges[step.mass.index(0.5) + 1]
    assert (step.likely, step.best, step.probability) == (3, 7_000, 0.5)


def test_nothing_was_believed() -> None:
    assert narrowing("t", [], 0.99, WORDS) is None


def test_replay_of_a_record_ends_with_what_its_report_says(tmp_path: Path) -> None:
    run = recorded_run.found(tmp_path)
    with Store.open(run.run.database, readonly=True) as store:
        made = narrowed(store)
        believed = reporting.report(run.run, store).bisection.belief
    assert made is not None
    assert believed is not None
    assert [(step.n, step.tested, step.verdict) for step in made.steps] == [
        (2, 3, Verdict.NEW),
        (3, 1, Verdict.OLD),
        (4, 0, Verdict.SKIP),
        (5, 2, Verdict.NEW),
    ]
    assert made.commits == 4  # c0, the old end, is before the range
    assert made.steps[0].mass == (0.25,) * 4
    assert made.steps[-1].probability == pytest.approx(believed.best.probability, abs=1e-6)
    assert [step.best for step in made.steps[2:]] == [2, 2]
    assert dict(made.words)[Verdict.NEW] == "fixed"
    assert made.title.startswith("c0..c4: ")


def test_no_replay_before_both_ends_are_measured_by_git_or_without_the_repository(tmp_path: Path) -> None:
    for name, flags in (("early", {}), ("git", {"bisect.strategy": "git"}), ("gone", {})):
        (tmp_path / name).mkdir()
        run = RecordedRun(tmp_path / name, histories.linear(3), flags)
        run.add("c0", SLOW)
        if name != "early":
            run.add("c2", FAST)
        if name == "gone":
            run.repository.rename(tmp_path / "elsewhere")
        with Store.open(run.run.database, readonly=True) as store:
            assert narrowed(store) is None
