"""A made-up truth: how it misleads, and the minutes that it counts."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bisector.analysis.early_stop import FillRule, is_tried
from bisector.config import options
from bisector.core.verdict import Verdict
from bisector.search.choice import Costs
from bisector.search.graph import OLD_END, Kernel, RangeGraph
from bisector.search.simulate.world import (
    ALIKE_MIN,
    ALL_APART_COMMITS,
    APART_MIN,
    CACHED_SHARE,
    CLEAR_MIN,
    EARLY_MIN,
    MOST_SAVED_MIN,
    RUN_MIN,
    SETUP_MIN,
    SHORT_FILL_MIN,
    SUSPECT_SHARE,
    WHOLE_FILLS,
    WHOLE_RUN_MIN,
    Conditions,
    Durations,
    World,
    usual_durations,
)
from bisector.storage.lvmcache import SMQ_PERIOD_S
from tests.search.graphs import recorded


def world(rates: Conditions | None = None, seed: int = 1) -> World:
    return World(recorded(), rates or Conditions(), np.random.default_rng(seed))


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


def test_runs_mislead_at_the_rates_of_their_side() -> None:
    made = world(Conditions(old_as_new=0.1, new_as_old=0.3))
    tip = [made.measure(made.graph.tip, whole=True) for _ in range(800)]
    without = [made.measure_undone(made.culprits[0], Kernel.REVERTED) for _ in range(800)]
    for readings, wrong, rate in ((tip, Verdict.OLD, 0.3), (without, Verdict.NEW, 0.1)):
        assert np.mean([one is not None and one.verdict is wrong for one in readings]) == pytest.approx(rate, abs=0.05)


BOTH_ENDS_MIN = 2 * (SETUP_MIN + SHORT_FILL_MIN + ALIKE_MIN)


def test_minutes() -> None:
    made = world()
    read = made.measure_both_ways()
    assert [(one.commit, one.verdict) for one in read] == [(OLD_END, Verdict.OLD), (made.graph.tip, Verdict.NEW)]
    assert made.minutes == BOTH_ENDS_MIN
    made.measure(made.graph.tip, whole=False)
    spent = BOTH_ENDS_MIN + 2 + SETUP_MIN + EARLY_MIN  # the tree was there already
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


def test_what_was_built_on_either_side_is_not_compiled_again() -> None:
    """From the new end's tree back to the middle of a chain, and to trees beside it."""
    chain = RangeGraph.of([(n - 1,) if n else () for n in range(10_000)])

    def built(*commits: int) -> float:
        """What the last one took, as a share of a build."""
        made = World(chain, Conditions(undo=1.0), np.random.default_rng(1))
        for commit in commits:
            before = made.minutes
            made.measure(commit, whole=True)
        return (made.minutes - before - SETUP_MIN - WHOLE_RUN_MIN - 2) / 10

    half = (5_000 / ALL_APART_COMMITS) ** 0.25  # on either side
    assert built(4_999) == pytest.approx(half**2 + CACHED_SHARE * (half - half**2), abs=0.001)
    # One commit from a tree that was built, and 4,898 from another one on the other side.
    one, both = (1 / ALL_APART_COMMITS) ** 0.25, (4_898 / ALL_APART_COMMITS**2) ** 0.25
    assert built(4_999, 100, 101) == pytest.approx(both + CACHED_SHARE * (one - both), abs=0.001)
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
    third = nine()
    assert took(third, 2) == WHOLE_RUN_MIN
    assert took(third, 3, 2) == WHOLE_RUN_MIN
    assert took(third, 3, 2, 8) == APART
    assert took(nine(replace(WHOLE_FILLED, effect=1.5)), 3, 8) == WHOLE_RUN_MIN
    assert took(nine(replace(WHOLE_FILLED, early_stop=False)), 3, 8) == WHOLE_RUN_MIN


def test_short_fills_are_tried_where_they_pay() -> None:
    """As in bisector.analysis.early_stop, of which the minutes are."""
    rule = FillRule(SMQ_PERIOD_S, RUN_MIN * 60)
    assert (rule.expected_s, rule.most_saved_s) == (SHORT_FILL_MIN * 60, MOST_SAVED_MIN * 60)
    settings = options.load({"workload.runtime": "15min"}, directory=Path("/")).settings
    cases = [(commits, math.inf) for commits in (10, 30, 33, 34, 40, 14_565)]
    for commits, left_min in (*cases, (14_565, 60 * 4.0), (14_565, 60 * 3.0)):
        tried = is_tried(settings, commits, (SETUP_MIN + WHOLE_RUN_MIN) * 60, left_min * 60)
        assert usual_durations(commits, left_min) == (Durations() if tried else WHOLE_FILLS)
    assert usual_durations(14_565, 60 * 4.0) == Durations()
    assert usual_durations(14_565, 60 * 3.0) == WHOLE_FILLS


def test_a_run_that_is_stopped_early_has_no_figure_and_is_clear() -> None:
    made = world(replace(WHOLE_FILLED, effect=3.0, spread=0.3))
    ends = [made.measure_end(Verdict.OLD), made.measure(made.graph.tip, whole=False)]
    assert [one is not None and one.full for one in ends] == [True, False]
    old = next(commit for commit in range(len(made.graph)) if not made.graph.ancestors(commit)[made.culprits[0]])
    runs = [made.measure(old, whole=False) for _ in range(300)]
    whole = [one.score for one in runs if one is not None and one.score is not None]
    assert 0 < len(whole) < 300
    assert all(made.here.line + math.log(2 / 3) <= score <= made.here.line for score in whole)


def test_a_build_is_expected_from_those_so_far() -> None:
    """After the ends, and a commit in the middle: a kernel that was built needs none, any other what builds took."""
    line = RangeGraph.of([(number - 1,) if number else () for number in range(1000)])
    made = World(line, Conditions(), np.random.default_rng(1))
    usual = Costs()
    made.measure(500, whole=False)
    builds_min = made.costs(usual).builds_min
    assert builds_min is not None
    assert builds_min[500] == 0
    assert 0 < builds_min[510] == builds_min[900]
    assert made.costs(usual).build_min == builds_min[made.graph.tip]


def test_of_two_steps_a_new_kernel_has_both() -> None:
    line = RangeGraph.of([(), *((number,) for number in range(39))])
    made = World(line, Conditions(effect=9.0, spread=0.001, second_step=True), np.random.default_rng(3))
    first, second = sorted(made.culprits)
    assert first < second
    assert (made.is_right(first), made.is_right(second)) == (False, True)
    runs = [made.measure(commit, whole=True) for commit in (39, first, first)]
    # On neither end's level: once it says nothing, and then it is not new.
    assert [one.verdict for one in runs if one is not None] == [Verdict.NEW, Verdict.MEASURED, Verdict.OLD]
    assert [one.score for one in runs[1:] if one is not None] == [None, None]
