"""Ends without a commit, and with it, made by real git and left in no branch."""

import re
from dataclasses import replace

import pytest

from bisector.core.commit import Commit, Kind
from bisector.git.apply import CannotBeHad, Changed, changed_end
from bisector.git.repository import Repository
from tests.git.checks import footprint
from tests.git.conftest import Make
from tests.git.histories import Node, git, linear, old_base_merge

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
    assert isinstance(made, Changed)
    assert (
        text_of(repository, made.commit)
        == {
            Kind.REVERTED: (TOP + MIDDLE + "END\n").strip(),
            Kind.PICKED: ("TOP\n" + MIDDLE + END).strip(),
        }[kind]
    )
    assert repository.parents(made.commit.sha) == (end.sha,)
    assert made.commit.subject == f'{"Revert" if kind is Kind.REVERTED else "Pick"} "c3"'
    assert changed_end(repository, kind, commit, end) == made  # the same hash, whenever it is made
    assert footprint(repository) == was
    assert git(repository.top, "for-each-ref", "--contains", made.commit.sha) == ""


def test_a_conflict_is_named_by_its_file(make: Make) -> None:
    repository, names = make(with_texts(c1="one\n", c3="two\n", c5="three\n"))
    commit, new = repository.commits([names["c3"], names["c7"]])
    assert changed_end(repository, Kind.REVERTED, commit, new) == CannotBeHad(f"conflict in {FILE}")


@pytest.mark.parametrize("of_a_person", ["attributes of the checkout", "merge.default"])
def test_a_persons_settings_decide_no_merge(make: Make, of_a_person: str) -> None:
    repository, names = make(with_texts(c1="one\n", c3="two\n", c5="three\n"), checkout=True)
    if of_a_person == "merge.default":
        git(repository.top, "config", of_a_person, "union")
    else:
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
    assert isinstance(made, Changed)
    assert text_of(repository, made.commit) == "one"


def test_a_merge_is_undone_only_where_first_parents_count(make: Make) -> None:
    repository, names = make(old_base_merge())
    merge, new, root = repository.commits([names["m"], names["c5"], names["c0"]])
    assert changed_end(repository, Kind.REVERTED, merge, new) == CannotBeHad("it is a merge")
    assert changed_end(repository, Kind.REVERTED, root, new) == CannotBeHad("it has no parent")
    whole = changed_end(repository, Kind.REVERTED, merge, new, first_parent=True)
    assert isinstance(whole, Changed)
    files = git(repository.top, "ls-tree", "-r", "--name-only", whole.commit.sha)
    assert not [line for line in files.splitlines() if line.startswith("files/b/")]


def test_git_that_needs_a_checkout_for_it_says_so(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    repository, names = make(linear(4))
    commit, new = repository.commits([names["c1"], names["c3"]])
    monkeypatch.setattr(type(repository.git), "version", "2.30.2")
    made = changed_end(repository, Kind.REVERTED, commit, new)
    assert isinstance(made, CannotBeHad)
    assert "git 2.30.2" in made.reason
