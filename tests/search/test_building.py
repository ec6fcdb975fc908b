"""How long a build takes is learnt from planted ones."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from numpy.typing import NDArray

from bisector.search.building import ALL_CACHED_SHARE, Build, Builds, expected_builds
from bisector.search.choice import Costs, prospects
from bisector.search.graph import Floats, Mask, RangeGraph
from bisector.search.posterior import posterior, prior
from bisector.search.readings import Facts
from tests.search.graphs import QUIET, kernel_like

GRAPH = kernel_like(300)
MERGES = np.array([len(parents) > 1 for parents in GRAPH.parents])
ALIKE = np.full(len(GRAPH), 0.02)
# Most commits change a source or two, one in ten a header that much includes.
HEADERS = np.where(np.arange(len(GRAPH)) % 10 == 3, 0.3, 0.002)
TARGETS = 5_000
# Minutes of next to nothing, and more for everything: to compile it, and to find it in ccache.
WITH_CCACHE, WITHOUT, SAME_EACH_TIME = (0.28, 3.7, 0.7), (2.0, 0.0, 10.0), (5.0, 0.0, 0.0)


class Truth:
    """Which targets each commit changes, and what make and ccache do of it."""

    def __init__(self, again: Floats, costs: tuple[float, float, float]) -> None:
        self.changes: NDArray[np.bool_] = np.random.default_rng(7).random((len(GRAPH), TARGETS)) < again[:, None]
        self.changes[MERGES] = False
        self.least, self.compiling, self.reading = costs

    def differ(self, one: Mask, other: Mask) -> Mask:
        """The targets of two trees that differ."""
        found: Mask = np.atleast_1d(self.changes[one ^ other].any(axis=0))
        return found

    def minutes(self, has: Mask, before: tuple[Build, ...]) -> float:
        """Of one build after others: make makes what differs from the last tree, ccache has what any tree had."""
        made = self.differ(has, before[-1].has)
        compiled = np.logical_and.reduce([self.differ(has, one.has) for one in before])
        return float(self.least + self.compiling * compiled.mean() + self.reading * made.mean())

    def built(self, commits: tuple[int, ...]) -> tuple[Build, ...]:
        """The first build is of everything, each other one from the tree before."""
        builds: tuple[Build, ...] = (Build(GRAPH.ancestors(commits[0]), self.least + self.compiling + self.reading),)
        for commit in commits[1:]:
            has = GRAPH.ancestors(commit)
            builds = (*builds, Build(has, self.minutes(has, builds)))
        return builds


def found_of(again: Floats, builds: tuple[Build, ...]) -> Floats:
    found = expected_builds(GRAPH, again, builds)
    assert found is not None
    return found


def test_before_the_first_build_nothing_is_known() -> None:
    assert expected_builds(GRAPH, ALIKE, ()) is None


def test_one_build_of_everything_tells_that_the_next_is_shorter_near_it() -> None:
    found = found_of(ALIKE, Truth(ALIKE, WITH_CCACHE).built((150,)))
    assert found[150] == pytest.approx(4.68 * 17 / 280)
    assert found[150] < found[149] < found[GRAPH.tip] <= 4.68


@pytest.mark.parametrize("again", [ALIKE, HEADERS], ids=["alike", "headers"])
@pytest.mark.parametrize(
    ("costs", "most"), [(WITH_CCACHE, 0.02), (WITHOUT, 0.13), (SAME_EACH_TIME, 0.16)], ids=["ccache", "none", "same"]
)
def test_what_builds_take_is_learnt(again: Floats, costs: tuple[float, float, float], most: float) -> None:
    """By eleven builds, on average to this share of the longest; that there is no ccache has to be learnt from them."""
    truth = Truth(again, costs)
    builds = truth.built((299, 0, 150, 75, 110, 130, 120, 125, 122, 123, 60))
    wanted = np.array([truth.minutes(GRAPH.ancestors(q), builds) for q in range(len(GRAPH))])
    found = found_of(again, builds)
    assert np.abs(found - wanted).mean() < most * sum(costs)
    usual = np.mean([one.minutes for one in builds[2:]])
    assert costs == SAME_EACH_TIME or np.abs(found - wanted).mean() < np.abs(usual - wanted).mean() / 2


@pytest.mark.parametrize("again", [ALIKE, HEADERS], ids=["alike", "headers"])
def test_what_ccache_has_is_what_was_built_on_either_side(again: Floats) -> None:
    """Counted target by target; that trees beside the nearest two have some more makes it a little less in truth."""
    only_compiling = Truth(again, (0.0, 1.0, 0.0))
    builds = only_compiling.built((299, 0, 150, 75, 220, 260, 20, 290))
    wanted = np.array([only_compiling.minutes(GRAPH.ancestors(q), builds) for q in range(len(GRAPH))])
    found, made = reduce(Builds.after, builds, Builds.none(GRAPH, again)).next_shares()
    assert (found > wanted - 0.03).all()
    assert (found - wanted).mean() < 0.06
    assert (made - found).mean() > 0.2  # what make does, and ccache does not


def test_a_header_costs_more_than_a_source() -> None:
    again = np.zeros(len(GRAPH))
    again[200] = 0.9
    found = found_of(again, Truth(again, WITH_CCACHE).built((150,)))
    has = np.array([GRAPH.ancestors(q)[200] for q in range(len(GRAPH))])
    nothing = 4.68 * 17 / 280
    assert set(np.round(found[has], 6)) == {round(nothing + 0.9 * (4.68 - nothing), 6)}
    assert found[~has].max() == pytest.approx(nothing)


def test_what_a_merge_brings_counts_once() -> None:
    """git tells of a merge all that it brought, and its other parents have it."""
    again = np.where(MERGES, 0.9, 0.0)
    found = found_of(again, Truth(again, WITH_CCACHE).built((0,)))
    assert np.ptp(found) == pytest.approx(0.0)


def test_after_another_compiler_everything_is_made_again() -> None:
    """The newer half of a line needs another compiler, and a build is taken to need that of the nearest one."""
    line = RangeGraph.of([(n - 1,) if n else () for n in range(100)])
    again = np.full(len(line), 0.001)
    old, new = (Build(line.ancestors(commit), 5.0, family) for commit, family in ((10, "gcc-5"), (90, "gcc-12")))
    found = expected_builds(line, again, (old, new))
    assert found is not None
    assert (found[51:] < 1.0).all()
    # make makes all of them, and ccache has nearly all of commits beside the first.
    assert found[10] == pytest.approx(5.0 * ALL_CACHED_SHARE, rel=0.05)
    assert (np.diff(found[10:50]) > 0).all()
    back = expected_builds(line, again, (old, new, replace(old, has=line.ancestors(11))))
    assert back is not None
    assert (back[:50] < 1.0).all()


def test_of_two_compilers_that_built_the_same_tree_the_last_one_is_expected() -> None:
    line = RangeGraph.of([(), *((number,) for number in range(9))])
    tree = line.ancestors(5)
    for last, other in (("gcc-5", "gcc-12"), ("gcc-12", "gcc-5")):
        builds = reduce(
            Builds.after, (Build(tree, 5.0, family) for family in (other, last)), Builds.none(line, ALIKE[:10])
        )
        compiled, made = builds.next_shares()
        assert (compiled[5], made[5]) == (0.0, 0.0)


def test_a_range_may_go_on_in_two_ways_from_the_same_builds() -> None:
    """What is kept of pairs of trees is of these trees, not of their numbers."""
    first = reduce(
        Builds.after, (Build(GRAPH.ancestors(commit), 4.0) for commit in (40, 280)), Builds.none(GRAPH, ALIKE)
    )
    first.next_shares()
    ways = {commit: first.after(Build(GRAPH.ancestors(commit), 2.0)).next_shares() for commit in (150, 230)}
    for commit, found in ways.items():
        again = Builds.none(GRAPH, ALIKE)
        for one in (40, 280, commit):
            again = again.after(Build(GRAPH.ancestors(one), 3.0))
        np.testing.assert_array_equal(found, again.next_shares())


def test_builds_that_say_nothing_of_distance_are_taken_as_they_are() -> None:
    """Were near builds the longer ones, none is expected to be shorter for being far away."""
    trees = [GRAPH.ancestors(commit) for commit in (299, 10, 11, 12)]
    builds = tuple(Build(has, minutes) for has, minutes in zip(trees, (1.0, 1.0, 9.0, 9.0), strict=True))
    found = found_of(ALIKE, builds)
    assert found.min() >= 0
    assert np.ptp(found) == pytest.approx(0.0)


def test_a_kernel_that_is_kept_is_tried_where_it_tells_nearly_as_much() -> None:
    """A chain's middle tells most; a kernel beside it needs no build."""
    line = RangeGraph.of([(n - 1,) if n else () for n in range(101)])
    belief = posterior(line, prior(len(line)), Facts(), QUIET.weighing)
    builds = np.full(len(line), 10.0)

    def best(builds_min: np.ndarray) -> int:
        costs = Costs(builds_min=builds_min, setup_min=1.0, old_run_min=10.0, new_run_min=10.0)
        return prospects(line, belief, Facts(), costs).best

    assert abs(best(builds) - 50) <= 1
    builds[[5, 40]] = 0.0
    assert best(builds) == 40
    builds[40] = 10.0
    assert abs(best(builds) - 50) <= 1


def test_a_build_that_is_saved_weighs_more_beside_short_runs() -> None:
    """A kernel that is kept, 2 min of building: much of runs of 4 min, and little of 40 min while all are whole."""
    line = RangeGraph.of([(n - 1,) if n else () for n in range(101)])
    belief = posterior(line, prior(len(line)), Facts(), QUIET.weighing)
    builds = np.full(len(line), 2.0)
    builds[35] = 0.0
    costs = Costs(builds_min=builds, setup_min=1.0, old_run_min=4.0, new_run_min=4.0, whole_run_min=40.0)
    assert prospects(line, belief, Facts(), costs).best == 35
    assert abs(prospects(line, belief, Facts(), costs.of_whole_runs).best - 50) <= 1
