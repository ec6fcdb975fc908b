"""A search that may take so long and no longer."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from bisector.core.verdict import Strategy
from bisector.search.choice import Costs
from bisector.search.graph import RangeGraph, SearchFacts
from bisector.search.likelihood import Weighing
from bisector.search.simulate.runs import SimulatedResult, Summary, search_for, simulate, simulate_from
from bisector.search.simulate.world import Conditions, Durations, World
from bisector.search.step import CommitToRead, Hold, Search, SearchAnswer, SearchEnding, decide
from tests.search.graphs import LINE, answer_of, plain, trial_of

# As long as they are expected to be, so that nothing but the choice can make a search too long.
EVEN = Durations(build_least_min=5.0, build_most_min=5.0, both_ways_min=0.0)
WORLD = Conditions(old_as_new=0.003, new_as_old=0.05, sticky=0.01, durations=EVEN)
BUDGETS_H = (0.5, 4.0, 10.0)


@cache
def searched(budget_h: float, strategy: Strategy = Strategy.BAYES) -> tuple[SimulatedResult, ...]:
    """Searches that have not to learn what the builds take."""
    world = replace(WORLD, budget_min=60 * budget_h)
    search, builds_min = search_for(world), np.full(len(LINE), EVEN.build_most_min)
    search = replace(search, costs=replace(search.costs, builds_min=builds_min))
    return tuple(simulate(LINE, strategy, world, search, seed=3, trials=8))


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("budget_h", BUDGETS_H)
def test_no_trial_is_begun_that_would_end_later(budget_h: float, strategy: Strategy) -> None:
    results = searched(budget_h, strategy)
    assert max(result.minutes for result in results) <= 60 * budget_h
    # What was left would not have been enough for another one, or by git for whole runs of the answer and its parent.
    over = [result for result in results if result.out_of_time]
    for result in over:
        waits = strategy is Strategy.GIT and result.set_size == 1
        assert 60 * budget_h - result.minutes < (2 * (3 + 30) if waits else 5 + 3 + 30)


def test_more_time_brings_a_better_answer() -> None:
    found = [Summary.of(searched(budget_h)) for budget_h in BUDGETS_H]
    named = [one.named_rate for one in found]
    assert named == sorted(named)
    assert named[0] == 0.0
    assert named[-1] >= 0.9
    sizes = [one.set_size_mean for one in found]
    assert sizes == sorted(sizes, reverse=True)
    assert all(one.in_set_rate >= 0.95 for one in found)


def test_nothing_is_named_that_could_not_be_confirmed() -> None:
    """What is found in time is found in the same way as with all the time there is."""
    for short, whole in zip(searched(4.0), searched(math.inf), strict=True):
        if short.ending is SearchEnding.FOUND:
            assert (short.minutes, short.claimed) == (whole.minutes, whole.claimed)
            assert not short.out_of_time
        else:
            assert short.out_of_time


def facts_of(search: Search, at_most: float = math.inf) -> list[SearchFacts]:
    """What is known before the first trial and after each of them."""
    world, known = World(LINE, WORLD, np.random.default_rng((3, 0))), [SearchFacts()]
    while len(known) <= at_most and not isinstance(step := decide(plain(LINE), known[-1], search), SearchAnswer):
        assert not isinstance(step, Hold)
        reading = (
            world.measure(step.commit, whole=step.whole)
            if isinstance(step, CommitToRead)
            else world.measure_undone(step.commit, step.kernel)
        )
        assert reading is not None
        known.append(known[-1].with_reading(reading))
    return known


def test_a_sure_commit_that_lacks_its_confirmation_is_not_named() -> None:
    """The last step of a search with all the time is a whole run; with less than that there is an answer that waits."""
    search = search_for(WORLD)
    *_, before, facts = facts_of(search)
    found = answer_of(facts, search)
    assert found.ending is SearchEnding.FOUND
    late = answer_of(before, replace(search, left_min=5.0))
    assert (late.ending, late.out_of_time, late.commit) == (SearchEnding.NARROWED, True, found.commit)
    # What is over is over, whatever time is left.
    assert answer_of(facts, replace(search, left_min=0.0)) == found


def test_a_run_that_can_be_stopped_early_is_tried_where_a_whole_one_is_too_long() -> None:
    """Of three commits each is likely enough to be run whole, but for the time."""
    costs = Costs(build_min=5.0, setup_min=3.0, old_run_min=10.0, new_run_min=12.0, whole_run_min=30.0)
    few, search = RangeGraph.of([(), (0,), (1,)]), Search(Weighing(), costs)
    steps = [trial_of(SearchFacts(), replace(search, left_min=left), few) for left in (38.0, 37.9, 20.0)]
    assert [step.whole for step in steps] == [True, False, False]
    answer_of(SearchFacts(), replace(search, left_min=19.9), few)


def test_a_search_goes_on_from_what_is_known() -> None:
    """The likelier a commit is by the facts, the more often it is the culprit of a simulated search from there."""
    search = search_for(WORLD)
    *_, facts = facts_of(search, at_most=6)
    on = Summary.of(tuple(simulate_from(plain(LINE), facts, WORLD, search, seed=1, trials=8)))
    anew = Summary.of(searched(math.inf))
    assert on.evaluations_mean - 6 < anew.evaluations_mean - 3
    assert on.success_rate >= 0.9
