"""Segments and ancestors against a walk, and the size of the real thing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisector.search.graph import RangeGraph
from tests.search.graphs import brute_ancestors, graphs, kernel_like, recorded


@settings(max_examples=25, deadline=None, database=None)
@given(graph=graphs())
def test_ancestors_are_those_that_a_walk_finds(graph: RangeGraph) -> None:
    for commit in range(len(graph)):
        assert set(np.flatnonzero(graph.ancestors(commit))) == brute_ancestors(graph, commit)


@settings(max_examples=25, deadline=None, database=None)
@given(graph=graphs(), seed=st.integers(0, 999), dust=st.booleans())
def test_mass_is_the_sum_over_ancestors(graph: RangeGraph, seed: int, dust: bool) -> None:
    weights = np.random.default_rng(seed).random(len(graph)) ** (40 if dust else 1)
    wanted = [sum(weights[list(brute_ancestors(graph, commit))]) for commit in range(len(graph))]
    np.testing.assert_allclose(graph.mass(weights), wanted, rtol=1e-10, atol=1e-10 * weights.sum())


def test_the_recorded_graph() -> None:
    graph = recorded()
    assert len(graph) == 14_565
    assert graph.reach.count == 1_891
    np.testing.assert_allclose(graph.mass(np.ones(len(graph)))[graph.tip], 14_565)
    weights = np.random.default_rng(3).random(len(graph))
    mass = graph.mass(weights)
    for commit in range(0, len(graph), 1_000):
        np.testing.assert_allclose(mass[commit], weights[list(brute_ancestors(graph, commit))].sum(), rtol=1e-11)


def test_thirty_thousand_commits_fit() -> None:
    graph = kernel_like(30_000)
    arrays = (graph.reach.rows, graph.reach.brought, graph.segment, graph.position, graph.order, graph.first)
    assert sum(array.nbytes for array in arrays) < 20e6


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([], id="nothing"),
        pytest.param([(), (1,)], id="its own parent"),
        pytest.param([(1,), ()], id="a parent after its child"),
        pytest.param([(), ()], id="two ends"),
        pytest.param([(), (-1,)], id="negative"),
    ],
)
def test_what_is_no_range(rows: list[tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match=r"parents|ancestors|at least"):
        RangeGraph.of(rows)
