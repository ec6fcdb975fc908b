"""Trees compared by real git, and ends without a commit or with it, made by real git and left in no branch."""

import re
from dataclasses import replace

import pytest

from bisector.core.subject import Change, Commit, Kind
from bisector.git.ranges import Range
from bisector.git.repository import Repository
from bisector.git.trees import CannotBeHad, Trees, changed_end
from tests.git.checks import footprint
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
    assert Trees(repository).changes(names["c0"], NOWHERE) is None


def test_a_renamed_file_is_gone_and_new(make: Make) -> None:
    repository, names = make(linear(1), checkout=True)
    git(repository.top, "config", "diff.renames", "copies")
    git(repository.top, "mv", "drivers/md/dm.c", "drivers/md/dm-core.c")
    git(repository.top, "commit", "-qm", "moved")
    changes = Trees(repository).changes(names["c0"], "main")
    assert set(changes or ()) == {Change("drivers/md/dm.c"), Change("drivers/md/dm-core.c", added=True)}


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


@pytest.mark.parametrize("first_parent", [False, True])
def test_a_range_is_walked_by_several_gits_as_by_one(
    make: Make, monkeypatch: pytest.MonkeyPatch, first_parent: bool
) -> None:
    nodes = (*linear(3), *chain("b", 2, "c0"), Node("m", ("c2", "b2"), files={"b": "b2\n", "merge/only": "\n"}))
    repository, names = make(nodes)
    wanted = Range(repository.resolve(names["c1"]), repository.resolve(names["m"]), first_parent)
    walks = []
    for least_share in (1000, 1):
        monkeypatch.setattr("bisector.git.trees._LEAST_SHARE", least_share)
        monkeypatch.setattr("os.cpu_count", lambda: 8)
        walk = Trees(repository).along(wanted)
        assert walk is not None
        walks.append((walk[0], list(walk[1])))
    assert walks[0] == walks[1]
    assert {sha for sha, _ in walks[0][1]} == {
        names[name] for name in ("c2", "m", *(() if first_parent else ("b1", "b2")))
    }
    assert {"b", "merge/only"} == {
        change.path for sha, change in walks[0][1] if sha == names["m"]
    }  # against c2, not b2


FILE = "drivers/md/dm.c"


def with_texts(**texts: str) -> list[Node]:
    """A line in which some commits write the file."""
    return [replace(one, files={FILE: texts[one.name]}) if one.name in texts else one for one in linear(8)]


def text_of(repository: Repository, commit: Commit) -> str:
    return git(repository.top, "show", f"{commit.sha}:{FILE}")


TOP, MIDDLE, END = "top\n", "a\nb\nc\nd\ne\nf\n", "end\n"


@pytest.mark.parametrize("kind", [Kind.REVERTED, Kind.PICKED])
def test_only_the_commits_own_change_goes_or_comes(make: Make, kind: Kind) -> None:
    before = {"c1": TOP + MIDDLE + END, "c3": "TOP\n" + MIDDLE + END, "c5": "TOP\n" + MIDDLE + "END\n"}
    repository, names = make(with_texts(**before), checkout=True)
    was = footprint(repository)
    old, commit, new = repository.commits([names["c2"], names["c3"], names["c7"]])
    end = new if kind is Kind.REVERTED else old
    made = changed_end(repository, kind, commit, end)
    assert isinstance(made, Commit)
    assert (
        text_of(repository, made)
        == {Kind.REVERTED: (TOP + MIDDLE + "END\n").strip(), Kind.PICKED: ("TOP\n" + MIDDLE + END).strip()}[kind]
    )
    assert repository.parents(made.sha) == (end.sha,)
    assert made.subject == f'{"Revert" if kind is Kind.REVERTED else "Pick"} "c3"'
    assert changed_end(repository, kind, commit, end) == made  # the same hash, whenever it is made
    assert footprint(repository) == was
    assert git(repository.top, "for-each-ref", "--contains", made.sha) == ""


@pytest.mark.parametrize("of_a_person", ["nothing", "attributes of the checkout", "merge.default"])
def test_a_conflict_is_named_by_its_file_and_a_persons_settings_decide_no_merge(make: Make, of_a_person: str) -> None:
    repository, names = make(with_texts(c1="one\n", c3="two\n", c5="three\n"), checkout=True)
    if of_a_person == "merge.default":
        git(repository.top, "config", of_a_person, "union")
    elif of_a_person != "nothing":
        (repository.top / ".gitattributes").write_text("*.c merge=union\n")
    commit, new = repository.commits([names["c3"], names["c7"]])
    assert changed_end(repository, Kind.REVERTED, commit, new) == CannotBeHad(f"conflict in {FILE}")


def test_what_is_gone_or_there_already_is_no_other_kernel(make: Make) -> None:
    repository, names = make(with_texts(c1="one\n", c3="two\n", c5="one\n"))
    commit, old, new = repository.commits([names["c3"], names["c4"], names["c7"]])
    gone = changed_end(repository, Kind.REVERTED, commit, new)
    there = changed_end(repository, Kind.PICKED, commit, old)
    assert isinstance(gone, CannotBeHad)
    assert isinstance(there, CannotBeHad)
    assert gone.reason.endswith("has nothing of it any more")
    assert there.reason.endswith("has all of it already")


@pytest.mark.parametrize("date", ["253402300800 +0000", "1500000000 +2500", "9" * 30 + " +0000", "yesterday"])
def test_an_end_of_a_date_that_is_no_iso_8601(make: Make, date: str) -> None:
    """The year 10000, a zone of 25 h, a date beyond 64 bits, and none: git takes all of these from a remote."""
    repository, names = make(with_texts(c1="one\n", c3="two\n"))
    text = re.sub(r"(?m)> \d+ \+0000$", f"> {date}", git(repository.top, "cat-file", "commit", names["c7"]))
    words = ("hash-object", "-t", "commit", "-w", "--stdin", "--literally")
    odd = repository.ask(*words, stdin=f"{text}\n").stdout.strip()
    commit, end = repository.commits([names["c3"], odd])
    made = changed_end(repository, Kind.REVERTED, commit, end)
    assert isinstance(made, Commit)
    assert text_of(repository, made) == "one"


def test_a_merge_is_undone_only_where_first_parents_count(make: Make) -> None:
    repository, names = make(old_base_merge())
    merge, new, root = repository.commits([names["m"], names["c5"], names["c0"]])
    assert changed_end(repository, Kind.REVERTED, merge, new) == CannotBeHad("it is a merge")
    assert changed_end(repository, Kind.REVERTED, root, new) == CannotBeHad("it has no parent")
    whole = changed_end(repository, Kind.REVERTED, merge, new, first_parent=True)
    assert isinstance(whole, Commit)
    files = git(repository.top, "ls-tree", "-r", "--name-only", whole.sha)
    assert not [line for line in files.splitlines() if line.startswith("files/b/")]


def test_git_that_needs_a_checkout_for_it_says_so(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    repository, names = make(linear(4))
    commit, new = repository.commits([names["c1"], names["c3"]])
    monkeypatch.setattr(type(repository.git), "version", (2, 30, 2))
    made = changed_end(repository, Kind.REVERTED, commit, new)
    assert isinstance(made, CannotBeHad)
    assert "git 2.30.2" in made.reason
