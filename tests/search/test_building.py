"""How long a build takes is learnt from planted ones."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from bisector.search.building import Build, expected_builds
from bisector.search.choice import Costs, prospects
from bisector.search.graph import Floats, Mask, RangeGraph
from bisector.search.posterior import posterior, prior
from bisector.search.readings import Facts
from tests.search.graphs import QUIET, kernel_like

GRAPH = kernel_like(300)
MERGES = [len(parents) > 1 for parents in GRAPH.parents]
ALIKE = np.full(len(GRAPH), 0.02)
# Most commits change a source or two, one in ten a header that much includes.
HEADERS = np.where(np.arange(len(GRAPH)) % 10 == 3, 0.3, 0.002)


def planted(again: Floats, before: Mask, after: Mask, least: float, slope: float) -> float:
    apart = (before ^ after) & ~np.array(MERGES)
    return float(least + slope * (1 - np.prod(1 - again[apart])))


def built(again: Floats, commits: tuple[int, ...], least: float, slope: float) -> tuple[Build, ...]:
    """The first build is of everything, each other one from the tree before."""
    trees = [GRAPH.ancestors(commit) for commit in commits]
    first = Build(trees[0], least + slope)
    return (first, *(Build(b, planted(again, a, b, least, slope)) for a, b in pairwise(trees)))


def found_of(again: Floats, builds: tuple[Build, ...]) -> Floats:
    found = expected_builds(GRAPH, again, builds)
    assert found is not None
    return found


def test_before_the_first_build_nothing_is_known() -> None:
    assert expected_builds(GRAPH, ALIKE, ()) is None


def test_one_build_of_everything_tells_that_the_next_is_shorter_near_it() -> None:
    found = found_of(ALIKE, built(ALIKE, (150,), 0.3, 4.4))
    assert found[150] == pytest.approx(4.7 * 17 / 280)
    assert found[150] < found[149] < found[GRAPH.tip] <= 4.7


@pytest.mark.parametrize("again", [ALIKE, HEADERS])
@pytest.mark.parametrize(("least", "slope"), [(0.28, 4.39), (2.0, 10.0), (5.0, 0.0)])
def test_what_builds_take_is_learnt(again: Floats, least: float, slope: float) -> None:
    """The more builds, the nearer; after ten of them within a tenth of the longest."""
    walk = (299, 150, 75, 110, 130, 120, 125, 122, 123, 124, 60)
    builds = built(again, walk, least, slope)
    last = GRAPH.ancestors(walk[-1])
    truth = np.array([planted(again, last, GRAPH.ancestors(q), least, slope) for q in range(len(GRAPH))])
    found = found_of(again, builds)
    # A build of next to nothing was never seen.
    assert np.abs(found - truth).mean() < 0.1 * (least + slope)
    usual = np.mean([one.minutes for one in builds])
    assert slope == 0 or np.abs(found - truth).mean() < np.abs(usual - truth).mean()


def test_a_header_costs_more_than_a_source() -> None:
    again = np.zeros(len(GRAPH))
    again[200] = 0.9
    found = found_of(again, built(again, (150,), 0.3, 4.4))
    has = np.array([GRAPH.ancestors(q)[200] for q in range(len(GRAPH))])
    nothing = 4.7 * 17 / 280
    assert set(np.round(found[has], 6)) == {round(nothing + 0.9 * (4.7 - nothing), 6)}
    assert found[~has].max() == pytest.approx(nothing)


def test_what_a_merge_brings_counts_once() -> None:
    """git tells of a merge all that it brought, and its other parents have it."""
    again = np.where(MERGES, 0.9, 0.0)
    found = found_of(again, built(again, (0,), 0.3, 4.4))
    assert np.ptp(found) == pytest.approx(0.0)


def test_after_another_compiler_everything_is_made_again() -> None:
    """The newer half of a line needs another compiler, and a build is taken to need that of the nearest one."""
    line = RangeGraph.of([(n - 1,) if n else () for n in range(100)])
    again = np.full(len(line), 0.001)
    old, new = (Build(line.ancestors(commit), 5.0, family) for commit, family in ((10, "gcc-5"), (90, "gcc-12")))
    found = expected_builds(line, again, (old, new))
    assert found is not None
    assert (found[51:] < 1.0).all()
    assert found[:50] == pytest.approx(5.0, rel=0.01)
    back = expected_builds(line, again, (old, new, replace(old, has=line.ancestors(11))))
    assert back is not None
    assert (back[:50] < 1.0).all()
    assert back[52:] == pytest.approx(5.0, rel=0.01)


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
