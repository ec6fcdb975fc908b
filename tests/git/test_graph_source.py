"""Graphs out of files and repositories."""

import gzip
from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.git.graph_source import graph_of_range, read_graph
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from tests.git.histories import Node, build, old_base_merge, root, stable_tags
from tests.search.graphs import brute_ancestors


def test_a_file_plain_or_compressed(tmp_path: Path) -> None:
    text = b"0\n1 0\n2 0\n3 1 2\n"
    (tmp_path / "plain").write_bytes(text)
    (tmp_path / "small").write_bytes(gzip.compress(text))
    for name in ("plain", "small"):
        assert read_graph(tmp_path / name).parents == ((), (0,), (0,), (1, 2))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(b"", "at least its new end", id="empty"),
        pytest.param(b"0\n2 0\n", "begins with its own number", id="a number left out"),
        pytest.param(b"0\n\n2 0\n", "begins with its own number", id="an empty line"),
        pytest.param(b"0\n1 x\n", "invalid literal", id="no number"),
        pytest.param(b"0\n1\n", "all others as ancestors", id="two ends"),
        pytest.param(b"0 1\n1 0\n", "parents come before", id="newest first"),
        pytest.param(b"\xff\n", "cannot be read", id="no text"),
        pytest.param(b"\x1f\x8bnot gzip", "cannot be read", id="damaged"),
        pytest.param(gzip.compress(b"0\n1 0\n" * 99)[:-12], "cannot be read", id="cut off"),
    ],
)
def test_what_is_no_graph(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UserError, match=why):
        read_graph(tmp_path / "file")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_graph(tmp_path / "none")


def test_a_merge_of_an_old_branch(tmp_path: Path) -> None:
    shas = build(tmp_path / "linux", old_base_merge())
    with Repository.open(tmp_path / "linux") as repository:
        graph, names = graph_of_range(repository, Range(repository.resolve(shas["c0"]), repository.resolve(shas["c5"])))
    number = {name: names.index(sha) for name, sha in shas.items() if name != "c0"}
    assert names[-1] == shas["c5"]
    assert brute_ancestors(graph, number["b3"]) == {number[name] for name in ("b1", "b2", "b3")}
    assert len(brute_ancestors(graph, number["m"])) == 7


def test_an_old_end_beside_the_range(tmp_path: Path) -> None:
    shas = build(tmp_path / "linux", stable_tags())
    with Repository.open(tmp_path / "linux") as repository:
        graph, names = graph_of_range(repository, Range(repository.resolve(shas["s2"]), repository.resolve(shas["n2"])))
    assert [names[n] for n in range(len(graph))] == [shas[name] for name in ("c3", "c4", "c5", "n1", "n2")]


def test_a_new_end_that_touches_no_path(tmp_path: Path) -> None:
    drivers = [Node(f"d{n}", (before,), {f"drivers/md/{n}": "x\n"}) for n, before in ((1, "c0"), (2, "b1"))]
    history = (root("c0"), drivers[0], Node("b1", ("d1",)), drivers[1], Node("tip", ("d2",)))
    shas = build(tmp_path / "linux", history)
    with Repository.open(tmp_path / "linux") as repository:
        old, new = repository.resolve(shas["c0"]), repository.resolve(shas["tip"])
        graph, names = graph_of_range(repository, Range(old, new, paths=("drivers/md",)))
    assert names == (shas["d1"], shas["d2"], shas["tip"])
    assert graph.parents == ((), (0,), (1,))
