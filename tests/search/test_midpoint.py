"""The midpoints against git's own, and the skips against its pseudo-random steps."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisector.core.verdict import SideWords, Verdict
from bisector.git.bisect import Bisect, CommitToTry, FirstNewCommit, OnlySkippedLeft
from bisector.git.ranges import Range, graph_of_range
from bisector.git.repository import Repository
from bisector.search.graph import Kernel, RangeGraph, Reading, SearchFacts
from bisector.search.simulate.runs import next_commit
from tests.git.histories import Node, build, root, subsystems
from tests.search.graphs import graphs, truth

EXAMPLES = 4  # a git command takes some 10 ms, an example about 40 of them


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """One for all examples: their histories have roots of their own."""
    path = tmp_path_factory.mktemp("midpoints") / "linux"
    build(path, [root("first")])
    return Repository.open(path)


def as_history(graph: RangeGraph) -> tuple[Node, ...]:
    rows = (Node(f"n{n}", tuple(f"n{p}" for p in row) or ("base",)) for n, row in enumerate(graph.parents))
    return (root("base"), *rows)


@settings(max_examples=EXAMPLES, deadline=None, database=None)
@given(shape=graphs(14), data=st.data())
def test_every_step_is_the_one_that_git_takes(repository: Repository, shape: RangeGraph, data: st.DataObject) -> None:
    shas = build(repository.top, as_history(shape))
    wanted = Range(repository.resolve(shas["base"]), repository.resolve(shas[f"n{shape.tip}"]))
    graph, names = graph_of_range(repository, wanted)
    culprit = data.draw(st.integers(0, graph.tip), "culprit")
    skipped = data.draw(st.frozensets(st.integers(0, max(0, graph.tip - 1))), "skipped") - {graph.tip}
    facts = SearchFacts()
    with Bisect(repository, Path(repository.top).parent / "run", wanted, SideWords()) as bisect:
        bisect.start()
        while isinstance(step := bisect.next(), CommitToTry):
            ours = next_commit(graph, facts, names)
            assert isinstance(ours, int)
            assert names[ours] == step.commit.sha
            verdict = Verdict.SKIP if ours in skipped else truth(graph, culprit, ours, Kernel.COMMIT)
            bisect.tell(step.commit.sha, verdict)
            if verdict is Verdict.SKIP:
                facts = facts.with_skip(ours)
            else:
                facts = facts.with_reading(Reading(ours, Kernel.COMMIT, verdict))
    ours = next_commit(graph, facts, names)
    assert isinstance(ours, tuple)
    if isinstance(step, FirstNewCommit):
        assert [names[commit] for commit in ours] == [step.commit.sha]
    else:
        assert isinstance(step, OnlySkippedLeft)
        assert {names[commit] for commit in ours} == {commit.sha for commit in step.candidates}


def test_a_large_history_is_halved_as_git_does(tmp_path: Path) -> None:
    """Here what is near enough to the half counts, and merges count first."""
    shas = build(tmp_path / "linux", subsystems(3_000))
    repository = Repository.open(tmp_path / "linux")
    wanted = Range(repository.resolve(shas["c0"]), repository.resolve("main"))
    graph, names = graph_of_range(repository, wanted)
    facts = SearchFacts()
    for _ in range(9):
        step = next_commit(graph, facts, names)
        assert isinstance(step, int)
        told = {reading.verdict: names[reading.commit] for reading in facts.readings}
        old = [f"^{names[one.commit]}" for one in facts.readings if one.verdict is Verdict.OLD]
        new = told.get(Verdict.NEW, wanted.new.sha)
        assert [names[step]] == list(repository.ask("rev-list", "--bisect", new, f"^{wanted.old.sha}", *old).lines)
        verdict = truth(graph, 1_234, step, Kernel.COMMIT)
        facts = facts.with_reading(Reading(step, Kernel.COMMIT, verdict))


def test_a_new_ancestor_of_an_old_one_is_no_midpoint() -> None:
    graph = RangeGraph.of([(), (0,), (1,)])
    readings = (Reading(1, Kernel.COMMIT, Verdict.OLD), Reading(0, Kernel.COMMIT, Verdict.NEW))
    with pytest.raises(ValueError, match="ancestor of an old one"):
        next_commit(graph, SearchFacts(readings))
