"""Made-up worlds keep to their rates, and the search knows how sure it may be."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from bisector.core.verdict import Strategy, Verdict
from bisector.search.choice import Costs, prospects, skip_probability
from bisector.search.graph import Floats, RangeGraph
from bisector.search.likelihood import Kernel, Noise, Reading, Weighing
from bisector.search.posterior import SUSPECT_WEIGHT, Facts, as_mask, posterior, prior
from bisector.search.simulate.runs import Result, Summary, search_for, simulate, told
from bisector.search.simulate.world import (
    EARLY_NEW_MIN,
    EARLY_OLD_MIN,
    SETUP_MIN,
    SUSPECT_SHARE,
    WHOLE_RUN_MIN,
    Conditions,
    World,
)
from bisector.search.step import Ending
from tests.search.graphs import kernel_like, recorded

SEED = 20_170_714


def world(rates: Conditions | None = None, seed: int = 1) -> World:
    return World(recorded(), rates or Conditions(), np.random.default_rng(seed))


def of_500(strategy: Strategy, rates: Conditions, trials: int) -> tuple[Result, ...]:
    return tuple(simulate(kernel_like(500), strategy, rates, search_for(rates, told(rates)), seed=SEED, trials=trials))


def test_a_trial_does_not_depend_on_how_many_there_are() -> None:
    few, more = (of_500(Strategy.BAYES, Conditions(skip=0.1), trials) for trials in (2, 4))
    assert [replace(result, steps_ms=()) for result in few] == [replace(result, steps_ms=()) for result in more[:2]]


def test_rates_are_kept() -> None:
    made = world(Conditions(skip=0.05, relevant=0.07, suspects=0.7))
    assert made.untestable.mean() == pytest.approx(0.05, abs=0.01)
    assert not world(Conditions(skip=1.0)).untestable[made.graph.tip]
    assert made.relevant.mean() == pytest.approx(0.07, abs=0.01)
    assert made.relevant[made.culprit]
    assert made.suspects is not None
    assert made.suspects.mean() == pytest.approx(SUSPECT_SHARE, abs=0.01)
    worlds = [world(Conditions(suspects=0.7), seed) for seed in range(200)]
    right = [one.suspects[one.culprit] for one in worlds if one.suspects is not None]
    assert np.mean(right) == pytest.approx(0.7, abs=0.1)


def test_a_short_range_is_not_skipped_as_a_whole() -> None:
    line = RangeGraph.of([(), *((number,) for number in range(39))])
    worlds = [World(line, Conditions(skip=0.05), np.random.default_rng(seed)) for seed in range(400)]
    assert 0.025 < np.mean([one.untestable.mean() for one in worlds]) < 0.06


def test_runs_mislead_at_the_rates_of_their_side() -> None:
    made = world(Conditions(old_as_new=0.1, new_as_old=0.3))
    tip = [made.measure(made.graph.tip, whole=True) for _ in range(800)]
    assert np.mean([reading is not None and reading.verdict is Verdict.OLD for reading in tip]) == pytest.approx(
        0.3, abs=0.05
    )
    without = [made.measure_undone(made.culprit, Kernel.REVERTED) for _ in range(800)]
    assert np.mean([reading is not None and reading.verdict is Verdict.NEW for reading in without]) == pytest.approx(
        0.1, abs=0.04
    )


def test_a_sticky_commit_misleads_each_time() -> None:
    made = world(Conditions(sticky=1.0))
    tip, without = (made.graph.tip, Kernel.COMMIT), (made.culprit, Kernel.REVERTED)
    assert {made.measure(tip[0], whole=True) for _ in range(5)} == {Reading(*tip, Verdict.OLD)}
    assert {made.measure_undone(*without) for _ in range(5)} == {Reading(*without, Verdict.NEW)}


def test_minutes() -> None:
    made = world()
    made.measure(made.graph.tip, whole=False)
    assert made.minutes == pytest.approx(2 + SETUP_MIN + EARLY_NEW_MIN)  # the tree was there already
    made.measure(made.graph.tip, whole=True)
    assert made.minutes == pytest.approx(2 + 2 * SETUP_MIN + EARLY_NEW_MIN + WHOLE_RUN_MIN)  # and now the kernel is
    slow = world()
    old = next(commit for commit in range(len(slow.graph)) if not slow.graph.ancestors(commit)[slow.culprit])
    slow.measure(old, whole=False)
    assert slow.minutes == pytest.approx(12 + SETUP_MIN + EARLY_OLD_MIN, abs=0.01)  # from one end to the other


def test_what_does_not_revert_costs_nothing() -> None:
    made = world(Conditions(undo=0.0))
    assert made.measure_undone(5, Kernel.REVERTED) is None
    assert made.measure_undone(5, Kernel.PICKED) is None
    assert made.minutes == 0


def test_figures_lie_on_their_levels() -> None:
    made = world(Conditions(effect=1.5, spread=0.2))
    tip = [made.measure(made.graph.tip, whole=False) for _ in range(2_000)]
    figures = [reading.score for reading in tip if reading is not None and reading.score is not None]
    assert np.mean(figures) == pytest.approx(np.log(1.5), abs=0.03)
    assert np.std(figures) == pytest.approx(0.2, abs=0.04)
    wrong = np.mean([reading is not None and reading.verdict is Verdict.OLD for reading in tip])
    assert made.conditions.levels is not None
    assert wrong == pytest.approx(made.conditions.levels.overlap, abs=0.02)


def test_nobody_is_told_that_there_is_no_noise() -> None:
    assert told(Conditions(old_as_new=0.02)) == Noise(0.02, 0.001, 0.002)


def test_suspects_are_capped() -> None:
    suspects = as_mask(100, tuple(range(50)))
    shares = np.exp(prior(100, None, suspects))
    assert shares[suspects].sum() == pytest.approx(0.5)
    few = np.exp(prior(1_000, None, as_mask(1_000, (7, 8)), factor=1e6))
    assert few[7] / few[0] == pytest.approx(SUSPECT_WEIGHT)


def test_doubt_fades_beside_a_skip_and_ends_at_what_works() -> None:
    graph = recorded()
    longest = int(np.argmax(np.diff(graph.first)))
    line = graph.order[graph.first[longest] : graph.first[longest + 1]]
    assert len(line) > 60
    works = tuple(Reading(int(line[place]), Kernel.COMMIT, Verdict.OLD) for place in (40, 50))
    facts = Facts(works, (int(line[30]),))
    doubt = skip_probability(graph, facts, 0.03)[line]
    assert doubt[31] == pytest.approx(0.9 * np.exp(-1 / 25))
    assert list(doubt[40:43]) == [0.0, 0.03, 0.03]
    assert (np.diff(doubt[31:40]) < 0).all()
    assert (np.diff(doubt[:30]) >= 0).all()


def test_between_two_skips_hardly_anything_works() -> None:
    graph = RangeGraph.of([(), *((n,) for n in range(59))])
    doubt = skip_probability(graph, Facts(skips=(20, 30)), 0.03)
    near, far = 0.9 * np.exp(-3 / 25), 0.9 * np.exp(-7 / 25)
    assert doubt[23] == pytest.approx(1 - (1 - near) * (1 - far))
    assert doubt[33] == pytest.approx(near)  # the nearer one alone


def test_gain_is_the_mutual_information() -> None:
    graph = kernel_like(60)
    noise = Noise(0.1, 0.2, 0.05)
    facts = Facts((Reading(20, Kernel.COMMIT, Verdict.NEW), Reading(20, Kernel.COMMIT, Verdict.OLD)))
    belief = posterior(graph, prior(len(graph)), facts, Weighing(noise))
    outlook = prospects(graph, belief, facts, noise, Costs())
    for commit in (5, 20, 41):
        expected = entropy(belief.p)
        for verdict in (Verdict.OLD, Verdict.NEW):
            told_that = facts.with_reading(Reading(commit, Kernel.COMMIT, verdict))
            # P(verdict) by the chain rule: the likelihood of all facts with it, over that of all facts without
            chance = likelihood(graph, told_that, noise) / likelihood(graph, facts, noise)
            expected -= chance * entropy(posterior(graph, prior(len(graph)), told_that, Weighing(noise)).p)
        assert outlook.gain_bits[commit] == pytest.approx(expected if commit == 20 else expected * 0.97)


def entropy(p: Floats) -> float:
    return float(-(p[p > 0] * np.log2(p[p > 0])).sum())


def likelihood(graph: RangeGraph, facts: Facts, noise: Noise) -> float:
    """P(all readings), summed over the culprits."""
    total = np.exp(prior(len(graph)))
    for commit in {reading.commit for reading in facts.readings}:
        raw = Weighing(noise).of(reading for reading in facts.readings if reading.commit == commit)
        hard = raw.hardened(noise.sticky)
        total *= np.where(graph.ancestors(commit), np.exp(hard.new), np.exp(hard.old))
    return float(total.sum())


CALIBRATION = (
    ("a quiet host", Conditions(), 0.99, 12.0),
    ("noise", Conditions(old_as_new=0.05, new_as_old=0.05), 0.96, 17.0),
    ("a small effect", Conditions(effect=1.3, spread=0.15), 0.95, 25.0),
    ("all of it", Conditions(old_as_new=0.002, new_as_old=0.03, sticky=0.01, skip=0.05), 0.95, 16.0),
)


@pytest.mark.parametrize(("rates", "right", "evaluations"), [pytest.param(*row[1:], id=row[0]) for row in CALIBRATION])
def test_calibration(rates: Conditions, right: float, evaluations: float) -> None:
    """The longer one, on the recorded graph, is `make calibrate`."""
    results = of_500(Strategy.BAYES, rates, 60)
    summary = Summary.of(results)
    sys.stderr.write(f"seed {SEED}: {summary}\n")  # shown when the test fails
    assert summary.success_rate >= right
    assert abs(summary.claimed_mean - summary.success_rate) <= 0.04
    assert summary.in_set_rate >= 0.98
    assert summary.evaluations_mean <= evaluations
    assert summary.not_one_change_rate == 0


def test_git_believes_everything() -> None:
    rates = Conditions(old_as_new=0.05, new_as_old=0.05, early_stop=False)
    summary = Summary.of(of_500(Strategy.GIT, rates, 60))
    assert summary.success_rate < 0.8
    assert summary.claimed_mean == 1
    assert summary.evaluations_mean == pytest.approx(9, abs=0.5)


def test_a_relevant_few_and_a_suspicion_save_trials() -> None:
    few = Conditions(relevant=0.07, suspects=0.7)
    summaries = [Summary.of(of_500(Strategy.BAYES, rates, 20)) for rates in (Conditions(), few)]
    assert summaries[1].evaluations_mean < summaries[0].evaluations_mean - 2.5
    assert summaries[1].success_rate >= 0.95


def test_endings_are_told_apart() -> None:
    rates = Conditions(skip=0.3, undo=0.0)
    results = of_500(Strategy.BAYES, rates, 15)
    assert {result.ending for result in results} == {Ending.FOUND, Ending.NARROWED}
    assert all(result.in_set for result in results)
    assert all(result.right for result in results if result.ending is Ending.FOUND)
