"""Ranges of commits, and their graphs out of repositories and files."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.git.ranges import (
    Range,
    SearchRange,
    check_range,
    check_suspects,
    expected_steps,
    graph_of_range,
    read_graph,
    remarks,
    to_skip,
)
from bisector.git.repository import Repository
from tests.git.conftest import Make
from tests.git.histories import Node, git, linear, old_base_merge, root, stable_tags
from tests.search.graphs import brute_ancestors


def between(repository: Repository, old: str, new: str, *paths: str, first_parent: bool = False) -> Range:
    return Range(repository.resolve(old), repository.resolve(new), first_parent, paths)


def refused(repository: Repository, wanted: Range) -> UserError:
    with pytest.raises(UserError) as caught:
        check_range(repository, wanted)
    return caught.value


@pytest.mark.parametrize(
    ("history", "ends", "first_parent", "count"),
    [
        (old_base_merge, ("c1", "c5"), False, 8),
        (old_base_merge, ("c1", "c5"), True, 5),
        (stable_tags, ("s2", "n2"), False, 5),  # the ends are not on one line of descent
    ],
)
def test_how_many_commits_may_be_the_first_new_one(
    make: Make, history: Callable[[], tuple[Node, ...]], ends: tuple[str, str], first_parent: bool, count: int
) -> None:
    repository, names = make(history())
    wanted = between(repository, *(names[end] for end in ends), first_parent=first_parent)
    assert check_range(repository, wanted) == count
    assert len(graph_of_range(repository, wanted)[1]) == count
    assert to_skip(repository, wanted, names["c2"]) == (names["c2"],)  # also as a merge base


@pytest.mark.parametrize("grafts", [False, True])
def test_histories_that_only_a_replacement_joins(make: Make, grafts: bool) -> None:
    """Both ways to join them are treated alike: commits are taken as they are."""
    repository, names = make((*linear(2), root("d0"), Node("d1", ("d0",), tags=("new",))))
    if grafts:
        (repository.common_dir / "info").mkdir(exist_ok=True)
        (repository.common_dir / "info/grafts").write_text(f"# of old\n{names['d0']} {names['c1']}\n")
    else:
        git(repository.top, "replace", "--graft", names["d0"], names["c1"])
    error = refused(repository, between(repository, names["c0"], "new"))
    what = "the graft of" if grafts else "the replacement of"
    assert "have no common history: " in error.message
    assert f"{what} {names['d0'][:12]}" in error.message
    assert "not followed" in error.message


def test_what_a_person_may_not_expect_of_a_range(make: Make) -> None:
    repository, names = make(stable_tags())
    told = list(remarks(repository, between(repository, "v1.0.2", "v1.1.2"), ("files/c", "nowhere")))
    old, new = (repository.resolve(rev).short for rev in ("v1.0.2", "v1.1.2"))
    assert told == [
        f"{old} is not an ancestor of {new}: their merge base is tried first, {names['c2'][:12]} (c2)",
        f"no commit between {old} and {new} touches the suspected path nowhere",
    ]
    assert list(remarks(repository, between(repository, names["c0"], "v1.1.2"), ("files",))) == []


def test_paths_are_relative_to_where_a_person_is(make: Make) -> None:
    repository, names = make(linear(8), checkout=True)
    inside = Repository.open(repository.top / "files/c")
    assert inside.from_top(("4", "../c/6", ".", ":/Kbuild", ":(exclude)x")) == (
        "files/c/4", "files/c/6", "files/c", ":/Kbuild", ":(exclude)x",
    )  # fmt: skip
    assert inside.from_top(("../../../outside",)) == ("../outside",)
    limits = inside.from_top(("4", "6"))
    assert check_range(inside, between(inside, names["c0"], "main", *limits)) == 2
    assert repository.from_top(("files", "a b/")) == ("files", "a b")


def test_path_limit(make: Make) -> None:
    repository, names = make(linear(8))
    assert check_range(repository, between(repository, names["c0"], "main", "files/c/4", "files/c/6")) == 2
    assert "touches drivers" in refused(repository, between(repository, names["c0"], "main", "drivers")).message
    for path in (":(nonsense)x", "/somewhere/else", "../outside"):
        error = refused(repository, between(repository, names["c0"], "main", path))
        assert "does not accept the path limit" in error.message


@pytest.mark.parametrize(("old", "lacks"), [("c3", True), ("c4", False)])
def test_shallow_clone(make: Make, tmp_path: Path, old: str, lacks: bool) -> None:
    """The line of first parents reaches c3; the branch that m merges ends at b3, whose parents are missing."""
    _, names = make(old_base_merge())
    git(tmp_path, "clone", "-q", "--depth=4", f"file://{tmp_path / 'linux'}", "shallow")
    repository = Repository.open(tmp_path / "shallow")
    wanted = between(repository, names[old], "main")
    if not lacks:
        assert check_range(repository, wanted) == 1
        return
    error = refused(repository, wanted)
    assert "lacks history" in error.message
    assert "--unshallow" in error.hint


@pytest.mark.parametrize(("count", "trials"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 2), (6, 3), (8, 3), (28_000, 15)])
def test_expected_steps(count: int, trials: int) -> None:
    assert expected_steps([str(number) for number in range(count)], "0") == trials


def test_what_can_be_skipped_is_between_the_ends(make: Make) -> None:
    repository, names = make(linear(9))
    wanted = between(repository, names["c2"], names["c7"])
    assert to_skip(repository, wanted, names["c4"][:12]) == (names["c4"],)
    assert to_skip(repository, wanted, "main~3") == (names["c5"],)
    assert to_skip(repository, wanted, "main~6..main~3") == (names["c5"], names["c4"], names["c3"])
    # Of a range that reaches further what lies inside, without the ends.
    assert to_skip(repository, wanted, f"{names['c5']}..main") == (names["c6"],)
    for outside in ("main", names["c1"], "main~1..main"):
        with pytest.raises(UserError, match="names no commit between") as caught:
            to_skip(repository, wanted, outside)
        assert f"{names['c2'][:12]}..{names['c7'][:12]}" in caught.value.hint
    for end in ("c2", "c7"):
        with pytest.raises(UserError, match="is an end of the range"):
            to_skip(repository, wanted, names[end])
    with pytest.raises(UserError, match="unknown revision 'v9'"):
        to_skip(repository, wanted, "v9")


def test_a_graph_file_plain_or_compressed(tmp_path: Path) -> None:
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
        pytest.param(b"0\n1 x\n", "has only numbers", id="no number"),
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


def test_the_graph_of_a_merge_of_an_old_branch(make: Make) -> None:
    repository, shas = make(old_base_merge())
    graph, names = graph_of_range(repository, between(repository, shas["c0"], shas["c5"]))
    number = {name: names.index(sha) for name, sha in shas.items() if name != "c0"}
    assert names[-1] == shas["c5"]
    assert brute_ancestors(graph, number["b3"]) == {number[name] for name in ("b1", "b2", "b3")}
    assert len(brute_ancestors(graph, number["m"])) == 7


def test_the_graph_with_a_new_end_that_touches_no_path(make: Make) -> None:
    drivers = [Node(f"d{n}", (before,), {f"drivers/md/{n}": "x\n"}) for n, before in ((1, "c0"), (2, "b1"))]
    history = (root("c0"), drivers[0], Node("b1", ("d1",)), drivers[1], Node("tip", ("d2",)))
    repository, shas = make(history)
    graph, names = graph_of_range(repository, between(repository, shas["c0"], shas["tip"], "drivers/md"))
    assert names == (shas["d1"], shas["d2"], shas["tip"])
    assert graph.parents == ((), (0,), (1,))


MD = "drivers/md/x.c"


def nodes(*touching: str) -> list[Node]:
    return [replace(one, files={MD: one.name}) if one.name in touching else one for one in old_base_merge()]


def search_range(
    make: Make, *suspects: str, touching: tuple[str, ...] = (), **limits: object
) -> tuple[SearchRange, list[str]]:
    repository, names = make(nodes(*touching))
    old, new = repository.commits((names["c0"], names["c5"]))
    made = SearchRange.of(repository, Range(old, new, **limits), suspects)  # type: ignore[arg-type] # Range's own fields
    by_sha = {sha: name for name, sha in names.items()}
    return made, [by_sha[sha] for sha in made.shas]


@pytest.mark.parametrize(("first_parent", "found"), [(False, {"b2", "c2"}), (True, {"c2", "m"})])
def test_suspects_touch_the_paths_on_any_branch_or_are_merges_for_what_they_bring(
    make: Make, first_parent: bool, found: set[str]
) -> None:
    made, names = search_range(make, "drivers/md", touching=("b2", "c2", "m"), first_parent=first_parent)
    assert {name for name, suspect in zip(names, made.suspects, strict=True) if suspect} == found
    assert [made.numbers[sha] for sha in made.shas] == list(range(len(names)))
    assert not made.outside


def test_an_end_that_touches_none_of_the_paths_stands_for_all_that_do_not(make: Make) -> None:
    made, names = search_range(make, touching=("c2",), paths=("drivers/md",))
    assert names[-1] == "c5"
    assert "c2" in names
    assert made.outside
    assert [made.is_outside(number) for number in range(len(names))] == [False] * (len(names) - 1) + [True]


def test_paths_that_git_does_not_take_are_refused_by_name(make: Make) -> None:
    repository: Repository
    repository, names = make(nodes())
    (new,) = repository.commits([names["c5"]])
    check_suspects(repository, ("drivers/md", "no/such/path"), new)
    with pytest.raises(UserError, match=r"does not accept the suspected paths ':\(nonsense\)x'") as caught:
        check_suspects(repository, (":(nonsense)x",), new)
    assert "bisect.suspect" in caught.value.hint
