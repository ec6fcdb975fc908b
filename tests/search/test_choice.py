"""Which runs an answer rests on."""

from dataclasses import replace

import numpy as np

from bisector.core.verdict import Verdict
from bisector.search.choice import (
    SearchProblem,
    borne_out,
    may_be_luck,
    missing_whole_runs,
    stopped_undone,
)
from bisector.search.graph import RangeGraph
from bisector.search.likelihood import Weighing
from bisector.search.noise import Rates
from bisector.search.posterior import posterior, prior
from bisector.search.readings import Kernel, Reading, SearchFacts, as_mask

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


def test_an_end_whose_runs_were_all_stopped_early_bears_no_answer() -> None:
    problem = SearchProblem(FORK, prior(5))
    early, whole = (SearchFacts((Reading(1, Kernel.PICKED, NEW, full=full),)) for full in (False, True))
    assert stopped_undone(problem, early, 1) is Kernel.PICKED
    assert stopped_undone(problem, early, 2) is None
    assert stopped_undone(problem, early.with_failed(1, Kernel.PICKED), 1) is None
    assert stopped_undone(problem, whole, 1) is None


def test_the_answer_is_borne_out_by_itself_and_its_parents() -> None:
    problem = SearchProblem(FORK, prior(5))
    for readings, wanted in (
        ((), True),
        ((commit(3, NEW), commit(1, OLD), commit(2, OLD)), True),
        ((commit(3, OLD),), False),
        ((commit(2, NEW),), False),
        ((commit(4, OLD), commit(0, NEW)), True),
        ((Reading(3, Kernel.REVERTED, NEW),), False),
    ):
        belief = posterior(FORK, problem.log_prior, SearchFacts(readings), Weighing())
        assert borne_out(problem, belief, 3) is wanted


def test_what_may_be_luck_on_a_loud_host_is_read_again_without_the_suspect() -> None:
    """Four kernels as they should be, and the new end without the suspect: sure by rates of 2 %, not if 20 % may be."""
    problem = SearchProblem(LINE, prior(10))
    reverted = Reading(5, Kernel.REVERTED, OLD)
    first = SearchFacts((*(Reading(n, Kernel.COMMIT, OLD if n < 5 else NEW) for n in (3, 4, 5, 6)), reverted))

    def may_be(*rates: float, facts: SearchFacts = first) -> bool:
        a = np.array(rates)
        noise = Rates(a, a, np.full_like(a, 0.003), np.log(np.full_like(a, 1 / len(a))))
        belief = posterior(LINE, problem.log_prior, facts, Weighing(noise))
        assert belief.best == 5
        return may_be_luck(problem, facts, belief, 0.95, 3)

    assert not may_be(0.02)
    assert may_be(0.02, 0.2)
    assert not may_be(0.02, 0.2, facts=replace(first, readings=(*first.readings, reverted, reverted)))  # three times
    assert not may_be(0.02, 0.2, facts=replace(first, readings=first.readings[:-1]))  # it was not read at all
    assert not may_be(0.02, 0.2, facts=first.with_failed(5, Kernel.REVERTED))
