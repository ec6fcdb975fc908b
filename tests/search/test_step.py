"""Any history, any culprit: a noiseless oracle finds it, skips never make it lie, order makes no difference."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bisector.core.verdict import Verdict
from bisector.search.choice import Costs, SearchProblem
from bisector.search.graph import OLD_END, Kernel, RangeGraph, Reading, SearchFacts
from bisector.search.likelihood import HostScale, Weighing
from bisector.search.noise import Noise, Rates
from bisector.search.posterior import prior
from bisector.search.step import (
    ChangedEndToRead,
    Decision,
    Rules,
    Search,
    SearchAnswer,
    SearchEnding,
    believe,
    decide,
)
from tests.search.graphs import LINE, QUIET, answer_of, graphs, kernel_like, oracle, plain, recorded, trial_of

PATIENT = Rules(least_bits=0.001, max_undone=40)
NOBODY: frozenset[int] = frozenset()
FULL = settings(max_examples=10, deadline=None, database=None)


def hunt(
    problem: SearchProblem,
    culprit: int,
    search: Search = QUIET,
    untestable: frozenset[int] = NOBODY,
    stuck: frozenset[int] = NOBODY,
) -> tuple[SearchAnswer, SearchFacts, list[Decision]]:
    facts, steps = SearchFacts(), list[Decision]()
    while not isinstance(step := decide(problem, facts, search), SearchAnswer):
        steps.append(step)
        facts = oracle(problem.graph, culprit, facts, step, untestable=untestable, stuck=stuck)
    return step, facts, [*steps, step]


def draw_commits(data: st.DataObject, graph: RangeGraph, label: str) -> frozenset[int]:
    return data.draw(st.frozensets(st.integers(0, graph.tip)), label)


@FULL
@given(graph=graphs(), data=st.data())
def test_the_culprit_is_found(graph: RangeGraph, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(0, graph.tip), "culprit")
    answer, facts, _ = hunt(plain(graph), culprit)
    assert answer.commit == culprit
    assert answer.candidates[0] == culprit
    assert answer.fit.contradictions == 0
    # A merge has no end without it, and the parents' readings alone may not reach the target.
    assert answer.ending is SearchEnding.FOUND or len(graph.parents[culprit]) > 1
    if answer.ending is SearchEnding.FOUND:
        assert {culprit, *graph.parents[culprit]} <= {reading.commit for reading in facts.readings if reading.full}


@FULL
@given(graph=graphs(), data=st.data())
def test_skips_never_make_a_wrong_single_answer(graph: RangeGraph, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(0, graph.tip), "culprit")
    untestable = draw_commits(data, graph, "untestable") - {graph.tip}
    stuck = draw_commits(data, graph, "neither revert nor pick")
    answer, facts, _ = hunt(plain(graph), culprit, untestable=untestable, stuck=stuck)
    assert culprit in answer.candidates
    assert answer.ending is not SearchEnding.NOT_ONE_CHANGE
    if answer.ending is SearchEnding.FOUND:
        assert answer.commit == culprit
        assert answer.candidates == (culprit,)
        assert answer.probability >= QUIET.rules.target
    assert set(facts.skips) <= untestable
    assert len(set(facts.skips)) == len(facts.skips)


@FULL
@given(graph=graphs(), data=st.data())
def test_the_order_of_recording_makes_no_difference(graph: RangeGraph, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(0, graph.tip), "culprit")
    untestable = draw_commits(data, graph, "untestable") - {graph.tip}
    _, facts, _ = hunt(plain(graph), culprit, untestable=untestable)
    shuffled = SearchFacts(
        tuple(data.draw(st.permutations(facts.readings), "readings")),
        tuple(data.draw(st.permutations(facts.skips), "skips")),
    )
    for one, other in ((facts, shuffled), (half(facts), half(facts, backwards=True))):
        np.testing.assert_array_equal(believe(plain(graph), one, QUIET).p, believe(plain(graph), other, QUIET).p)
        assert decide(plain(graph), one, QUIET) == decide(plain(graph), other, QUIET)


def half(facts: SearchFacts, *, backwards: bool = False) -> SearchFacts:
    readings = facts.readings[: len(facts.readings) // 2]
    return SearchFacts(readings[::-1] if backwards else readings, facts.skips)


@FULL
@given(graph=graphs(), data=st.data())
def test_weights_never_exclude_the_truth(graph: RangeGraph, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(0, graph.tip), "culprit")
    assume(len(graph.parents[culprit]) < 2)
    relevant = np.array([data.draw(st.booleans(), "relevant") and n != culprit for n in range(len(graph))])
    suspects = np.array([data.draw(st.booleans(), "suspect") and n != culprit for n in range(len(graph))])
    problem = SearchProblem(graph, prior(len(graph), relevant, suspects), relevant)
    answer, _, _ = hunt(problem, culprit)
    assert answer.ending is not SearchEnding.FOUND or answer.commit == culprit
    answer, _, _ = hunt(problem, culprit, Search(QUIET.weighing, rules=PATIENT))
    assert culprit in answer.candidates
    assert answer.commit == culprit


@FULL
@given(graph=graphs(), data=st.data())
def test_wrong_readings_are_outvoted(graph: RangeGraph, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(0, graph.tip), "culprit")
    assume(len(graph.parents[culprit]) < 2)
    search = Search(Weighing(Rates.known(Noise(0.05, 0.05, 0.01))))
    wrong = data.draw(st.integers(0, 4), "which reading is wrong")
    facts = SearchFacts()
    while not isinstance(step := decide(plain(graph), facts, search), SearchAnswer):
        told = oracle(graph, culprit, facts, step, untestable=NOBODY, stuck=NOBODY)
        if len(facts.readings) == wrong:
            last = told.readings[-1]
            flipped = Verdict.OLD if last.verdict is Verdict.NEW else Verdict.NEW
            told = facts.with_reading(Reading(last.commit, last.kernel, flipped, full=last.full))
        facts = told
    assert step.commit == culprit


def test_the_recorded_graph_takes_little_more_than_git() -> None:
    culprit = 5_000
    answer, facts, steps = hunt(plain(recorded()), culprit)
    assert (answer.ending, answer.commit, answer.confirmed) == (SearchEnding.FOUND, culprit, True)
    assert len(facts.readings) <= 18
    assert any(isinstance(step, ChangedEndToRead) for step in steps)


@pytest.mark.parametrize(("early_min", "whole"), [(30.0, True), (9.0, False)])
def test_a_run_is_not_made_whole_on_suspicion_where_others_take_a_third(early_min: float, whole: bool) -> None:
    """That of the middle of eight: the answer rests on it with two chances of eight."""
    costs = Costs(old_run_min=early_min, new_run_min=early_min)
    step = trial_of(SearchFacts(), replace(QUIET, costs=costs), RangeGraph.of([(), *((n,) for n in range(7))]))
    assert (step.commit, step.whole) == (3, whole)
    assert step.beside == ((2, 4, 7) if whole else ())


@pytest.mark.parametrize(("effect", "whole"), [(0.35, True), (2.0, False)])
def test_while_levels_overlap_no_run_is_stopped_early(effect: float, whole: bool) -> None:
    """Not at a line and not beside another run: where levels overlap, a figure tells more than its side."""
    ends = (Reading(OLD_END, Kernel.COMMIT, Verdict.OLD, 0.0), Reading(19, Kernel.COMMIT, Verdict.NEW, effect))
    weighing = Weighing(scales={"": HostScale((0.0, effect), effect / 2)})
    search = Search(weighing, Costs(old_run_min=9.0, new_run_min=9.0))
    line = RangeGraph.of([(), *((number,) for number in range(19))])
    trial = trial_of(SearchFacts(ends), search, line)
    assert (trial.commit, trial.whole, trial.beside) == (9, whole, ())
    undoing = decide(plain(line), SearchFacts(ends), replace(search, rules=Rules(suspect=0.0, target=0.01)))
    assert isinstance(undoing, ChangedEndToRead)
    assert undoing.beside_end is not whole


def test_a_revert_that_changes_nothing_brings_the_search_back() -> None:
    ten = plain(RangeGraph.of([(), *((n,) for n in range(9))]))
    misled = SearchFacts(tuple(Reading(n, Kernel.COMMIT, Verdict.NEW if n >= 5 else Verdict.OLD) for n in (4, 5, 4, 5)))
    assert decide(ten, misled, QUIET) == ChangedEndToRead(5, Kernel.REVERTED)
    facts = misled.with_reading(Reading(5, Kernel.REVERTED, Verdict.NEW))
    assert not isinstance(decide(ten, facts, QUIET), SearchAnswer)


def test_the_culprit_among_many_that_do_not_build_is_found_by_reverts() -> None:
    untestable = frozenset(range(90, 110))
    answer, facts, _ = hunt(plain(LINE), 104, untestable=untestable)
    assert (answer.ending, answer.commit) == (SearchEnding.FOUND, 104)
    assert not facts.measured & untestable


def test_two_changes_are_not_named_one() -> None:
    """New at 4, old again at 10, new at 16: whatever is named, whole kernels contradict it, each time."""
    graph = RangeGraph.of([(), *((n,) for n in range(19))])
    sides = {n: Verdict.NEW if 4 <= n < 10 or n >= 16 else Verdict.OLD for n in range(20)}
    many = SearchFacts(tuple(Reading(n, Kernel.COMMIT, sides[n]) for n in range(20) for _ in range(2)))
    for rates in (QUIET.weighing.rates, Rates.unknown()):
        answer = answer_of(many, Search(Weighing(rates), rules=Rules(max_runs=20, patience=0)), graph)
        assert answer.ending is SearchEnding.NOT_ONE_CHANGE
        assert answer.fit.contradictions == 12


def test_the_budget_ends_it_with_a_set() -> None:
    graph = kernel_like(200)
    answer, facts, _ = hunt(plain(graph), 77, Search(QUIET.weighing, rules=Rules(max_runs=4, patience=0)))
    assert answer.ending is SearchEnding.NARROWED
    assert len(facts.readings) == 4
    assert 77 in answer.candidates
    budgets = [Search(QUIET.weighing, rules=Rules(max_runs=runs, patience=0)) for runs in range(5, 12)]
    answers = [hunt(plain(graph), culprit, search)[0] for search in budgets for culprit in (77, 110, 143)]
    assert any(0.5 < answer.probability < QUIET.rules.target for answer in answers)
    for answer in answers:
        assert (answer.ending is SearchEnding.FOUND) is (answer.probability >= QUIET.rules.target)
