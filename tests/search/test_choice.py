"""Which runs an answer rests on."""

from bisector.core.verdict import Verdict
from bisector.search.choice import (
    SearchProblem,
    changed_end_lacking_whole_run,
    missing_whole_runs,
)
from bisector.search.graph import OLD_END, Kernel, RangeGraph, Reading, SearchFacts, as_mask
from bisector.search.posterior import prior

LINE = RangeGraph.of([(), *((n,) for n in range(9))])
FORK = RangeGraph.of([(), (0,), (0,), (1, 2), (3,)])
OLD, NEW = Verdict.OLD, Verdict.NEW


def commit(number: int, verdict: Verdict, *, full: bool = True) -> Reading:
    return Reading(number, Kernel.COMMIT, verdict, full=full)


def test_the_culprit_and_all_testable_parents_run_whole() -> None:
    problem = SearchProblem(FORK, prior(5))
    facts = SearchFacts((commit(3, NEW), commit(1, OLD, full=False)), skips=(2,))
    assert missing_whole_runs(problem, facts, 3, stand_ins=True) == (1,)
    assert missing_whole_runs(problem, SearchFacts(), 3, stand_ins=True) == (3, 1, 2)
    assert missing_whole_runs(problem, SearchFacts((commit(0, NEW),)), 0, stand_ins=True) == ()


def test_a_kernel_that_cannot_differ_stands_for_another() -> None:
    relevant = as_mask(10, (3, 6))
    problem = SearchProblem(LINE, prior(10, relevant), relevant)
    facts = SearchFacts((commit(4, OLD), commit(7, NEW)))
    assert missing_whole_runs(problem, facts, 6, stand_ins=True) == ()
    assert missing_whole_runs(problem, facts, 6, stand_ins=False) == (6, 5)
    assert missing_whole_runs(problem, facts, 3, stand_ins=True) == ()  # 2 is as the old end, 4 as 3
    assert missing_whole_runs(problem, SearchFacts((commit(2, OLD), commit(7, NEW))), 6, stand_ins=True) == (5,)
    assert missing_whole_runs(problem, SearchFacts((commit(OLD_END, OLD),)), 6, stand_ins=True) == (6, 5)


def test_an_end_whose_runs_were_all_stopped_early_bears_no_answer() -> None:
    problem = SearchProblem(FORK, prior(5))
    early, whole = (SearchFacts((Reading(1, Kernel.PICKED, NEW, full=full),)) for full in (False, True))
    assert changed_end_lacking_whole_run(problem, early, 1) is Kernel.PICKED
    assert changed_end_lacking_whole_run(problem, early, 2) is None
    assert changed_end_lacking_whole_run(problem, early.with_failed(1, Kernel.PICKED), 1) is None
    assert changed_end_lacking_whole_run(problem, whole, 1) is None
