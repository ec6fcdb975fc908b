import pytest

from bisector.core.commit import Change
from bisector.git.diff import Trees
from bisector.git.ranges import Range
from tests.git.conftest import Make
from tests.git.histories import Node, chain, git, linear, old_base_merge, root

NOWHERE = "0" * 40


def test_changes_are_told_with_their_kind(make: Make) -> None:
    files = {"drivers/md/dm.c": "changed\n", "a file": "new\n", 't\tab "b"': "new\n", "caf\u00e9": "new\n"}
    repository, names = make((root("c0"), Node("c1", ("c0",), files=files)))
    changes = Trees(repository).changes(names["c0"], names["c1"])
    assert set(changes or ()) == {Change(name, added=name != "drivers/md/dm.c") for name in files}
    back = Trees(repository).changes(names["c1"], names["c0"])
    assert set(back or ()) == {Change(name) for name in files}


def test_a_renamed_file_is_gone_and_new(make: Make) -> None:
    repository, names = make(linear(1), checkout=True)
    git(repository.top, "config", "diff.renames", "copies")
    git(repository.top, "mv", "drivers/md/dm.c", "drivers/md/dm-core.c")
    git(repository.top, "commit", "-qm", "moved")
    changes = Trees(repository).changes(names["c0"], "main")
    assert set(changes or ()) == {Change("drivers/md/dm.c"), Change("drivers/md/dm-core.c", added=True)}


def test_equal_trees_do_not_differ(make: Make) -> None:
    repository, names = make(linear(1))
    assert Trees(repository).changes(names["c0"], names["c0"]) == ()


def test_a_tree_that_is_not_there_is_no_equal_tree(make: Make) -> None:
    repository, names = make(linear(1))
    assert Trees(repository).changes(names["c0"], NOWHERE) is None


def test_trees_are_compared_at_some_paths(make: Make) -> None:
    nodes = (
        root("c0"),
        Node("same", ("c0",), files={"drivers/md/dm.c": "x\n"}),
        Node("makefile", ("c0",), files={"Makefile": "all:\n"}),
        Node("script", ("c0",), files={"scripts/x.sh": "\n"}),
    )
    repository, names = make(nodes)
    others = [names["same"], names["makefile"], NOWHERE, names["script"], names["c0"]]
    alike = Trees(repository).alike_at(names["c0"], others, ("Makefile", "scripts"))
    assert alike == (names["same"], names["c0"])
    assert Trees(repository).alike_at(names["c0"], (), ("Makefile",)) == ()


def test_parents_are_told_in_their_order(make: Make) -> None:
    repository, names = make(old_base_merge())
    assert repository.parents(names["m"]) == (names["c3"], names["b3"])
    assert repository.parents(names["m"], first_only=True) == (names["c3"],)
    assert repository.parents(names["c0"]) == ()


def test_a_clone_without_trees_does_not_fetch_them(make: Make) -> None:
    repository, names = make(linear(3))
    assert Trees(repository).at_hand
    git(repository.top, "config", "remote.origin.partialclonefilter", "blob:none")
    assert Trees(repository).at_hand
    git(repository.top, "config", "remote.origin.partialclonefilter", "tree:0")
    trees = Trees(repository)
    assert trees.changes(names["c0"], names["c2"]) is None
    assert trees.alike_at(names["c0"], [names["c0"]], ("Makefile",)) == ()
    old, new = repository.commits((names["c0"], names["c2"]))
    assert trees.along(Range(old, new)) is None


def test_several_gits_tell_what_one_does(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    repository, shas = make(old_base_merge())
    wanted = Range(repository.resolve(shas["c0"]), repository.resolve(shas["c5"]))
    walks = []
    for least_share in (1000, 1):
        monkeypatch.setattr("bisector.git.diff._LEAST_SHARE", least_share)
        monkeypatch.setattr("os.cpu_count", lambda: 8)
        walk = Trees(repository).along(wanted)
        assert walk is not None
        walks.append((walk[0], list(walk[1])))
    assert walks[0] == walks[1]
    assert len({sha for sha, _ in walks[0][1]}) == 9


def changes_along(make: Make, nodes: tuple[Node, ...], old: str, new: str, **limits: object) -> dict[str, set[str]]:
    repository, names = make(nodes)
    ends = repository.commits((names[old], names[new]))
    walk = Trees(repository).along(Range(*ends, **limits))  # type: ignore[arg-type] # a path or a flag each
    assert walk is not None
    count, changes = walk
    by_name: dict[str, set[str]] = {name: set() for name, sha in names.items()}
    known = {sha: name for name, sha in names.items()}
    for sha, change in changes:
        by_name[known[sha]].add(change.path)
    assert count == sum(bool(paths) for paths in by_name.values())
    return {name: paths for name, paths in by_name.items() if paths}


def test_a_range_is_walked_with_its_branches(make: Make) -> None:
    nodes = (*linear(3), *chain("b", 2, "c0"), Node("m", ("c2", "b2"), files={"b": "b2\n", "merge/only": "\n"}))
    along = changes_along(make, nodes, "c1", "m")
    assert set(along) == {"c2", "b1", "b2", "m"}
    assert along["m"] == {"b", "merge/only"}  # against c2, not against b2


def test_first_parents_and_paths_limit_the_range(make: Make) -> None:
    assert set(changes_along(make, old_base_merge(), "c0", "c5", first_parent=True)) == {
        "c1",
        "c2",
        "c3",
        "m",
        "c4",
        "c5",
    }


def test_paths_limit_the_commits_and_not_their_files(make: Make) -> None:
    nodes = (root("c0"), Node("c1", ("c0",), files={"x": "1\n"}), Node("c2", ("c1",), files={"x": "2\n", "y": "2\n"}))
    assert changes_along(make, nodes, "c0", "c2", paths=("y",)) == {"c2": {"x", "y"}}
