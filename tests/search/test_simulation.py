"""Simulated searches: the search knows how sure it may be, and what tells it most."""

import sys

import numpy as np
import pytest

from bisector.core.verdict import Strategy, Verdict
from bisector.search.choice import skip_probability
from bisector.search.graph import Kernel, Reading, SearchFacts, as_mask
from bisector.search.posterior import SUSPECT_WEIGHT, prior
from bisector.search.simulate.runs import SimulatedResult, Summary, search_for, simulate
from bisector.search.simulate.world import Conditions
from tests.calibrate import too_few
from tests.search.graphs import kernel_like, recorded

SEED = 20_170_714


def of_500(strategy: Strategy, rates: Conditions, trials: int) -> tuple[SimulatedResult, ...]:
    return tuple(simulate(kernel_like(500), strategy, rates, search_for(rates), seed=SEED, trials=trials))


def test_suspects_are_capped() -> None:
    suspects = as_mask(100, tuple(range(50)))
    shares = np.exp(prior(100, None, suspects))
    assert shares[suspects].sum() == pytest.approx(0.5)
    few = np.exp(prior(1_000, None, as_mask(1_000, (7, 8))))
    assert few[7] / few[0] == pytest.approx(SUSPECT_WEIGHT)


def test_doubt_fades_beside_a_skip_and_ends_at_what_works() -> None:
    graph = recorded()
    longest = int(np.argmax(np.diff(graph.first)))
    line = graph.order[graph.first[longest] : graph.first[longest + 1]]
    assert len(line) > 60
    works = tuple(Reading(int(line[place]), Kernel.COMMIT, Verdict.OLD) for place in (40, 50))
    facts = SearchFacts(works, (int(line[30]),))
    doubt = skip_probability(graph, facts, 0.03)[line]
    assert doubt[31] == pytest.approx(0.9 * np.exp(-1 / 25))
    assert list(doubt[40:43]) == [0.0, 0.03, 0.03]
    assert (np.diff(doubt[31:40]) < 0).all()
    assert (np.diff(doubt[:30]) >= 0).all()


def test_a_search_is_as_sure_as_it_may_be() -> None:
    """On a quiet host, of which it is told nothing; noise, small effects and skips are rows of `make calibrate`."""
    summary = Summary.of(of_500(Strategy.BAYES, Conditions(), 12))
    sys.stderr.write(f"seed {SEED}: {summary}\n")  # shown when the test fails
    assert summary.success_rate >= 0.99
    assert -0.08 <= summary.claimed_mean - summary.success_rate <= 0.04
    assert summary.in_set_rate >= 0.98
    assert summary.evaluations_mean <= 14.0
    assert summary.not_one_change_rate == 0


def test_a_bound_of_make_calibrate_is_missed_by_what_chance_does_not_explain() -> None:
    assert not too_few(38, 40, 0.98)
    assert too_few(950, 1_000, 0.98)
    assert [too_few(hits, 10, 0.5) for hits in (0, 1)] == [True, False]  # 1 and 11 of 1,024 ways
    assert not too_few(0, 40, 0.0)


def test_git_believes_everything() -> None:
    rates = Conditions(old_as_new=0.05, new_as_old=0.05, early_stop=False)
    summary = Summary.of(of_500(Strategy.GIT, rates, 60))
    assert summary.success_rate < 0.8
    assert summary.claimed_mean == 1
    assert summary.evaluations_mean == pytest.approx(9, abs=0.5)


def test_a_relevant_few_and_a_suspicion_save_trials() -> None:
    few = Conditions(relevant=0.07, suspects=0.7)
    summaries = [Summary.of(of_500(Strategy.BAYES, rates, 8)) for rates in (Conditions(), few)]
    assert summaries[1].evaluations_mean < summaries[0].evaluations_mean - 2.5
    assert summaries[1].success_rate >= 0.95
