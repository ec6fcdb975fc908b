"""Made-up worlds keep to their rates, and the search knows how sure it may be."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bisector.analysis.settled import FillRule, is_tried
from bisector.config import options
from bisector.core.verdict import Strategy, Verdict
from bisector.search.choice import Costs, prospects, skip_probability
from bisector.search.graph import Floats, RangeGraph
from bisector.search.levels import Side
from bisector.search.likelihood import Weighing
from bisector.search.noise import Noise, Rates
from bisector.search.posterior import SUSPECT_WEIGHT, posterior, prior
from bisector.search.readings import OLD_END, Facts, Kernel, Reading, as_mask
from bisector.search.simulate.durations import (
    ALIKE_MIN,
    APART_MIN,
    CACHED_SHARE,
    CLEAR_MIN,
    EARLY_NEW_MIN,
    MOST_SAVED_MIN,
    RUN_MIN,
    SETUP_MIN,
    SHORT_FILL_MIN,
    WHOLE_FILLS,
    WHOLE_RUN_MIN,
    Durations,
    usual_durations,
)
from bisector.search.simulate.runs import Result, Summary, search_for, simulate
from bisector.search.simulate.world import ALL_APART_COMMITS, SUSPECT_SHARE, Conditions, World
from bisector.search.step import Ending
from bisector.storage.dmcache import SETTLING
from tests.search.graphs import kernel_like, recorded

SEED = 20_170_714


def world(rates: Conditions | None = None, seed: int = 1) -> World:
    return World(recorded(), rates or Conditions(), np.random.default_rng(seed))


def of_500(strategy: Strategy, rates: Conditions, trials: int) -> tuple[Result, ...]:
    return tuple(simulate(kernel_like(500), strategy, rates, search_for(rates), seed=SEED, trials=trials))


def test_a_trial_does_not_depend_on_how_many_there_are() -> None:
    few, more = (of_500(Strategy.BAYES, Conditions(skip=0.1), trials) for trials in (2, 4))
    assert [replace(result, steps_ms=()) for result in few] == [replace(result, steps_ms=()) for result in more[:2]]


def test_rates_are_kept() -> None:
    made = world(Conditions(skip=0.05, relevant=0.07, suspects=0.7))
    assert made.untestable.mean() == pytest.approx(0.05, abs=0.01)
    assert not world(Conditions(skip=1.0)).untestable[made.graph.tip]
    assert made.relevant.mean() == pytest.approx(0.07, abs=0.01)
    assert made.relevant[made.culprits[0]]
    assert made.suspects is not None
    assert made.suspects.mean() == pytest.approx(SUSPECT_SHARE, abs=0.01)
    worlds = [world(Conditions(suspects=0.7), seed) for seed in range(200)]
    right = [one.suspects[one.culprits[0]] for one in worlds if one.suspects is not None]
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
    without = [made.measure_undone(made.culprits[0], Kernel.REVERTED) for _ in range(800)]
    assert np.mean([reading is not None and reading.verdict is Verdict.NEW for reading in without]) == pytest.approx(
        0.1, abs=0.04
    )


def test_a_sticky_commit_misleads_each_time() -> None:
    made = world(Conditions(sticky=1.0))
    culprit, without = (made.culprits[0], Kernel.COMMIT), (made.culprits[0], Kernel.REVERTED)
    readings = [made.measure(culprit[0], whole=True) for _ in range(5)]
    undone = [made.measure_undone(*without) for _ in range(5)]
    assert {one and (*one.of, one.verdict) for one in readings} == {(*culprit, Verdict.OLD)}
    assert {one and (*one.of, one.verdict) for one in undone} == {(*without, Verdict.NEW)}
    assert {made.measure_end(side).verdict for side in (Verdict.NEW,)} == {Verdict.NEW}  # or there would be no search


BOTH_ENDS_MIN = 2 * (SETUP_MIN + SHORT_FILL_MIN + ALIKE_MIN)


def test_minutes() -> None:
    made = world()
    read = made.measure_both_ways()
    assert [(one.commit, one.verdict) for one in read] == [(OLD_END, Verdict.OLD), (made.graph.tip, Verdict.NEW)]
    assert made.minutes == BOTH_ENDS_MIN
    made.measure(made.graph.tip, whole=False)
    spent = BOTH_ENDS_MIN + 2 + SETUP_MIN + EARLY_NEW_MIN  # the tree was there already
    assert made.minutes == pytest.approx(spent)
    made.measure(made.graph.tip, whole=True)
    assert made.minutes == pytest.approx(spent + SETUP_MIN + WHOLE_RUN_MIN)  # and now the kernel is
    slow = world(WHOLE_FILLED)
    old = next(commit for commit in range(len(slow.graph)) if not slow.graph.ancestors(commit)[slow.culprits[0]])
    slow.measure(old, whole=False)
    # From one end to the first commit, of which the other end's build made all but what that one changes.
    compiled = (1 / len(slow.graph)) ** 0.25
    build_min = 2 + 10 * (compiled + CACHED_SHARE * (1 - compiled))
    assert slow.minutes == pytest.approx(build_min + SETUP_MIN + RUN_MIN + CLEAR_MIN, abs=0.01)


def test_ends_that_are_near_each_other_are_measured_both_ways_by_whole_runs() -> None:
    for effect, run_min in ((2.4, RUN_MIN), (2.5, ALIKE_MIN)):
        made = world(Conditions(effect=effect))
        made.measure_both_ways()
        assert made.minutes == 2 * (SETUP_MIN + SHORT_FILL_MIN + run_min)


def test_what_was_built_on_either_side_is_not_compiled_again() -> None:
    """From the new end's tree back to the middle of a chain, and to trees beside it."""
    chain = RangeGraph.of([(n - 1,) if n else () for n in range(10_000)])

    def built(cached_share: float, *commits: int) -> list[float]:
        rates = Conditions(undo=1.0, durations=replace(Durations(), cached_share=cached_share))
        made = World(chain, rates, np.random.default_rng(1))
        found = []
        for commit in commits:
            before = made.minutes
            made.measure(commit, whole=True)
            found.append(made.minutes - before - SETUP_MIN - WHOLE_RUN_MIN)
        return found

    half = (5_000 / ALL_APART_COMMITS) ** 0.25  # of a build, on either side
    both = half * half
    assert built(1.0, 4_999)[0] == pytest.approx(2 + 10 * half, abs=0.01)
    assert built(0.0, 4_999)[0] == pytest.approx(2 + 10 * both, abs=0.01)
    assert built(0.15, 4_999)[0] == pytest.approx(2 + 10 * (both + 0.15 * (half - both)), abs=0.01)
    # Beside a tree that was built, from one that is far away.
    beside = (1 / ALL_APART_COMMITS) ** 0.25
    assert built(0.0, 4_999, 100, 5_000)[2] == pytest.approx(2 + 10 * beside * half, abs=0.01)
    assert built(1.0, 4_999, 100, 101)[2] == pytest.approx(2 + 10 * beside)
    made = World(recorded(), Conditions(undo=1.0), np.random.default_rng(1))
    made.measure(10, whole=True)
    before = made.minutes
    made.measure_undone(10, Kernel.REVERTED)  # all of the new end is there, but for the commit
    assert made.minutes - before == pytest.approx(2 + 10 * CACHED_SHARE + SETUP_MIN + WHOLE_RUN_MIN, abs=0.02)


WHOLE_FILLED = Conditions(durations=WHOLE_FILLS)
APART = RUN_MIN + APART_MIN


def took(made: World, commit: int, *beside: int) -> float:
    """Minutes of the runs of a kernel that is there already."""
    made.measure(commit, whole=False)
    before = made.minutes
    made.measure(commit, whole=True, beside=beside)
    return round(made.minutes - before - SETUP_MIN, 6)


def nine(rates: Conditions = WHOLE_FILLED, culprit: int = 4) -> World:
    """Nine commits in a row."""
    line = RangeGraph.of([(), *((number,) for number in range(8))])
    made = World(line, rates, np.random.default_rng(1))
    made.culprits = (culprit,)
    return made


def test_a_whole_run_ends_once_it_is_clear_of_a_whole_one_of_the_other_side() -> None:
    made = nine()
    assert took(made, 3, 2, 4) == WHOLE_RUN_MIN  # none beside it has a whole run
    assert took(made, 4) == WHOLE_RUN_MIN
    assert took(made, 3, 4) == APART
    # A run that ended before its time is nothing to be held against, and one of the same side is never clear.
    other = nine()
    assert took(other, 3, 8) == APART
    assert took(other, 4, 3) == WHOLE_RUN_MIN
    assert took(other, 5, 4) == WHOLE_RUN_MIN
    assert took(nine(replace(WHOLE_FILLED, effect=1.5)), 3, 8) == WHOLE_RUN_MIN
    assert took(nine(replace(WHOLE_FILLED, early_stop=False)), 3, 8) == WHOLE_RUN_MIN


def test_an_end_without_the_culprit_is_clear_of_that_end() -> None:
    made = world(WHOLE_FILLED)
    for commit, runs_min in ((made.culprits[0], APART), (made.graph.tip, WHOLE_RUN_MIN)):
        made.measure_undone(commit, Kernel.REVERTED)
        before = made.minutes
        made.measure_undone(commit, Kernel.REVERTED)
        assert made.minutes - before == SETUP_MIN + runs_min


def test_the_first_commit_of_a_range_is_held_against_the_old_end() -> None:
    assert took(nine(culprit=0), 0, 1) == APART
    assert took(nine(culprit=4), 0, 1) == WHOLE_RUN_MIN


def test_short_fills_are_tried_where_they_pay() -> None:
    """As in bisector.analysis.settled, of which the minutes are."""
    rule = FillRule(SETTLING, RUN_MIN * 60)
    assert (rule.expected_s, rule.most_saved_s) == (SHORT_FILL_MIN * 60, MOST_SAVED_MIN * 60)
    settings = options.load({"workload.runtime": "15min"}, directory=Path("/")).settings
    for commits, left_min in (
        (10, math.inf),
        (30, math.inf),
        (33, math.inf),
        (34, math.inf),
        (40, math.inf),
        (14_565, math.inf),
        (14_565, 60 * 4.0),
        (14_565, 60 * 3.0),
    ):
        tried = is_tried(settings, commits, (SETUP_MIN + WHOLE_RUN_MIN) * 60, left_min * 60)
        assert usual_durations(commits, left_min) == (Durations() if tried else WHOLE_FILLS)
    assert usual_durations(14_565, 60 * 4.0) == Durations()
    assert usual_durations(14_565, 60 * 3.0) == WHOLE_FILLS


def test_what_does_not_revert_costs_nothing() -> None:
    made = world(Conditions(undo=0.0, durations=WHOLE_FILLS))
    assert made.measure_undone(5, Kernel.REVERTED) is None
    assert made.measure_undone(5, Kernel.PICKED) is None
    assert made.minutes == 0


def test_figures_lie_on_their_levels() -> None:
    made = world(Conditions(effect=1.5, spread=0.2))
    tip = [made.measure(made.graph.tip, whole=True) for _ in range(2_000)]
    figures = [reading.score for reading in tip if reading is not None and reading.score is not None]
    assert np.mean(figures) == pytest.approx(np.log(1.5), abs=0.03)
    assert np.std(figures) == pytest.approx(0.2, abs=0.04)
    wrong = np.mean([reading is not None and reading.verdict is Verdict.OLD for reading in tip])
    assert made.conditions.levels is not None
    beyond = Side.of(made.conditions.levels.new).above(made.line, 0.0)
    assert wrong == pytest.approx(1 - float(beyond[0]), abs=0.02)


def test_a_run_that_is_stopped_early_has_no_figure_and_is_clear() -> None:
    made = world(replace(WHOLE_FILLED, effect=3.0, spread=0.3))
    ends = [made.measure_end(Verdict.OLD), made.measure(made.graph.tip, whole=False)]
    assert [one is not None and one.full for one in ends] == [True, False]
    old = next(commit for commit in range(len(made.graph)) if not made.graph.ancestors(commit)[made.culprits[0]])
    runs = [made.measure(old, whole=False) for _ in range(300)]
    whole = [one.score for one in runs if one is not None and one.score is not None]
    assert 0 < len(whole) < 300
    assert all(made.line + math.log(2 / 3) <= score <= made.line for score in whole)


def test_a_run_after_a_short_fill_has_no_figure_clear_or_not() -> None:
    made = world(Conditions(effect=3.0, spread=0.3))
    old = next(commit for commit in range(len(made.graph)) if not made.graph.ancestors(commit)[made.culprits[0]])
    made.measure(old, whole=False)
    took = set()
    for _ in range(100):
        before, reading = made.minutes, made.measure(old, whole=False)
        assert reading is not None
        assert (reading.score, reading.full) == (None, False)
        took.add(round(made.minutes - before - SETUP_MIN, 3))
    assert took == {EARLY_NEW_MIN, SHORT_FILL_MIN + RUN_MIN}


def test_a_build_is_expected_from_those_so_far() -> None:
    """After the ends, and a commit in the middle: a kernel that was built needs none, and near ones little."""
    line = RangeGraph.of([(number - 1,) if number else () for number in range(1000)])
    made = World(line, Conditions(), np.random.default_rng(1))
    usual = Costs()
    made.measure(500, whole=False)
    builds_min = made.costs(usual).builds_min
    assert builds_min is not None
    assert builds_min[500] == 0
    assert 0 < builds_min[510] < builds_min[900]
    assert made.costs(usual).build_min == builds_min[made.graph.tip]


def test_a_host_drifts_by_the_hour() -> None:
    made = world(Conditions(effect=2.0, spread=0.01, drift=0.1))
    first, last = made.measure_end(Verdict.OLD), [made.measure_end(Verdict.OLD) for _ in range(20)][-1]
    assert first.score is not None
    assert last.score is not None
    assert last.score - first.score == pytest.approx(0.1 * 20 * (SETUP_MIN + WHOLE_RUN_MIN) / 60, abs=0.06)


def test_of_two_steps_a_new_kernel_has_both() -> None:
    line = RangeGraph.of([(), *((number,) for number in range(39))])
    made = World(line, Conditions(effect=9.0, spread=0.001, second_step=True), np.random.default_rng(3))
    first, second = sorted(made.culprits)
    assert first < second
    assert (made.is_right(first), made.is_right(second)) == (False, True)
    end, between = made.measure(39, whole=True), [made.measure(first, whole=True) for _ in range(2)]
    assert end is not None
    assert end.verdict is Verdict.NEW
    # On neither end's level: once it says nothing, and then it is not new.
    assert [(one.verdict, one.score) for one in between if one is not None] == [
        (Verdict.MEASURED, None),
        (Verdict.OLD, None),
    ]


def test_picks_work_as_often_as_they_are_to() -> None:
    worlds = [world(Conditions(pick=0.5), seed) for seed in range(200)]
    picked = [one.measure_undone(one.culprits[0], Kernel.PICKED) for one in worlds]
    assert np.mean([one is None for one in picked]) == pytest.approx(0.5, abs=0.1)
    works = [one.verdict is Verdict.NEW for one in picked if one is not None]
    assert np.mean(works) == pytest.approx(0.7, abs=0.12)  # the rest lacks what it builds upon


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
    weighing = Weighing(Rates.known(noise))
    belief = posterior(graph, prior(len(graph)), facts, weighing)
    outlook = prospects(graph, belief, facts, Costs())
    for commit in (5, 20, 41):
        expected = entropy(belief.p)
        for verdict in (Verdict.OLD, Verdict.NEW):
            told_that = facts.with_reading(Reading(commit, Kernel.COMMIT, verdict))
            # P(verdict) by the chain rule: the likelihood of all facts with it, over that of all facts without
            chance = likelihood(graph, told_that, noise) / likelihood(graph, facts, noise)
            expected -= chance * entropy(posterior(graph, prior(len(graph)), told_that, weighing).p)
        assert outlook.gain_bits[commit] == pytest.approx(expected if commit == 20 else expected * 0.97)


def entropy(p: Floats) -> float:
    return float(-(p[p > 0] * np.log2(p[p > 0])).sum())


def likelihood(graph: RangeGraph, facts: Facts, noise: Noise) -> float:
    """P(all readings), summed over the culprits."""
    total = np.exp(prior(len(graph)))
    for commit in {reading.commit for reading in facts.readings}:
        old = new = 1.0
        for reading in facts.readings:
            if reading.commit == commit:
                is_new = reading.verdict is Verdict.NEW
                old *= noise.old_as_new if is_new else 1 - noise.old_as_new
                new *= 1 - noise.new_as_old if is_new else noise.new_as_old
        sides = (1 - noise.sticky) * new + noise.sticky * old, (1 - noise.sticky) * old + noise.sticky * new
        total *= np.where(graph.ancestors(commit), *sides)
    return float(total.sum())


CALIBRATION = (
    ("a quiet host", Conditions(), 60, 0.99, 14.0),
    ("noise", Conditions(old_as_new=0.05, new_as_old=0.05), 60, 0.96, 18.5),
    ("a small effect", Conditions(effect=1.3, spread=0.15), 12, 0.9, 52.0),
    ("all of it", Conditions(old_as_new=0.002, new_as_old=0.03, sticky=0.01, skip=0.05), 60, 0.95, 16.0),
)


@pytest.mark.parametrize(
    ("rates", "trials", "right", "evaluations"), [pytest.param(*row[1:], id=row[0]) for row in CALIBRATION]
)
def test_calibration(rates: Conditions, trials: int, right: float, evaluations: float) -> None:
    """The longer one, on the recorded graph, is `make calibrate`; the search is told none of the rates."""
    results = of_500(Strategy.BAYES, rates, trials)
    summary = Summary.of(results)
    sys.stderr.write(f"seed {SEED}: {summary}\n")  # shown when the test fails
    assert summary.success_rate >= right
    assert -0.08 <= summary.claimed_mean - summary.success_rate <= 0.04
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
