"""How the range narrowed, as values: from posteriors, and by replay of a record."""

from pathlib import Path

import numpy as np
import pytest

from bisector.core.verdict import Verdict
from bisector.report import reporting
from bisector.report.narrowing import After, Belief, narrowed, narrowing
from bisector.search.posterior import Posterior
from bisector.store.store import Store
from tests import recorded_run
from tests.git import histories
from tests.recorded_run import FAST, SLOW, RecordedRun

WORDS = ((Verdict.OLD, "broken"), (Verdict.NEW, "fixed"))


def belief(n: int, verdict: Verdict, *p: float) -> Belief:
    return Belief(n, n - 1, verdict, Posterior(np.array(p or (0.1, 0.2, 0.4, 0.2, 0.1)), {}, {}))


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
