"""Any history, any culprit: git driven by a noiseless oracle finds it, and skips never make it lie."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisector.core.verdict import Terms, Verdict
from bisector.git.bisect import Bisect, CommitToTry, FirstNewCommit, OnlySkippedLeft, Step
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from tests.git.checks import assert_git_agrees
from tests.git.histories import Node, ancestors, build, root

EXAMPLES = 4  # a git command takes some 10 ms, an example about 20 of them


@st.composite
def histories(draw: st.DrawFn) -> tuple[Node, ...]:
    """Two to fourteen commits with up to three parents each; the last has all others as ancestors."""
    nodes = [root("n0")]
    for number in range(1, draw(st.integers(1, 12))):
        parents = draw(st.lists(st.sampled_from([node.name for node in nodes]), min_size=1, max_size=3, unique=True))
        nodes.append(Node(f"n{number}", tuple(parents)))
    inner = {parent for node in nodes for parent in node.parents}
    return (*nodes, Node("tip", tuple(node.name for node in nodes if node.name not in inner)))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    """One for all examples: their histories have roots of their own."""
    path = tmp_path_factory.mktemp("properties") / "linux"
    build(path, [root("first")])
    with Repository.open(path) as opened:
        yield opened


def search(repository: Repository, nodes: tuple[Node, ...], culprit: str, skipped: frozenset[str]) -> Step:
    shas = build(repository.top, nodes)
    names = {sha: name for name, sha in shas.items()}
    known = ancestors(nodes)
    wanted = Range(repository.resolve(shas["n0"]), repository.resolve(shas["tip"]))
    trials = 0
    with Bisect(repository, Path(repository.top).parent / "run", wanted, Terms()) as bisect:
        bisect.start()
        while isinstance(step := bisect.next(), CommitToTry):
            trials += 1
            assert trials < len(nodes)
            assert shas[culprit] in bisect.candidates()
            name = names[step.commit.sha]
            truth = Verdict.NEW if culprit in known[name] else Verdict.OLD
            bisect.tell(step.commit.sha, Verdict.SKIP if name in skipped else truth)
        if isinstance(step, FirstNewCommit):
            assert_git_agrees(bisect, step)
    return step


@settings(max_examples=EXAMPLES, deadline=None, database=None)
@given(nodes=histories(), data=st.data())
def test_skips_never_make_a_wrong_answer(repository: Repository, nodes: tuple[Node, ...], data: st.DataObject) -> None:
    inner = [node.name for node in nodes[1:]]
    culprit = data.draw(st.sampled_from(inner), "culprit")
    skipped = data.draw(st.frozensets(st.sampled_from(inner)), "skipped")
    step = search(repository, nodes, culprit, skipped - {"tip"})
    if isinstance(step, FirstNewCommit):
        assert step.commit.subject == culprit
    else:
        assert isinstance(step, OnlySkippedLeft)
        assert culprit in {commit.subject for commit in step.candidates}
        assert {commit.subject for commit in step.skipped} <= skipped
