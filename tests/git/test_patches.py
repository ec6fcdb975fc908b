"""Patches put on top of a commit by real git, away from the checkout."""

from email.message import EmailMessage
from pathlib import Path

import pytest

from bisector.core.errors import UserError
from bisector.core.subject import Commit, Kind
from bisector.git.repository import Repository
from bisector.git.trees import with_commit, with_file
from tests.git.checks import footprint
from tests.git.conftest import Make
from tests.git.histories import KERNEL_TREE, Node, git

FILE = "drivers/md/dm.c"
LINES = [f"line {number}\n" for number in range(30)]


def text(**changed: str) -> str:
    """The lines of the file, some of them in other words: ``l3="…"``."""
    return "".join(changed.get(f"l{n}", line.strip()) + "\n" for n, line in enumerate(LINES))


HISTORY = (
    Node("c0", files={**KERNEL_TREE, FILE: text()}),
    Node("c1", ("c0",), files={FILE: text(l3="three")}),
    Node("c2", ("c1",), files={FILE: text(l3="three", l4="four \u00e9")}),
    Node("other", ("c0",), files={FILE: text(l3="drei")}),
    Node("below", ("c0",), files={FILE: text(l20="twenty")}),
)


def content(repository: Repository, commit: Commit) -> str:
    return git(repository.top, "show", f"{commit.sha}:{FILE}") + "\n"


def series(repository: Repository, names: dict[str, str], to: Path, *words: str) -> Path:
    """c1 and c2 as a mailbox."""
    to.write_text(git(repository.top, "format-patch", "--stdout", *words, f"{names['c0']}..{names['c2']}") + "\n")
    return to


def test_commit_is_put_on_top(make: Make) -> None:
    repository, names = make(HISTORY, checkout=True)
    was = footprint(repository)
    below, commit = repository.commits([names["below"], names["c1"]])
    made = with_commit(repository, below, commit)
    assert (made.kind, made.changed_by) == (Kind.PATCHED, names["c1"])
    assert content(repository, made.commit) == text(l3="three", l20="twenty")
    assert repository.parents(made.commit.sha) == (names["below"],)
    assert footprint(repository) == was


def test_commit_that_does_not_fit_is_refused_with_its_file(make: Make) -> None:
    repository, names = make(HISTORY)
    base, commit = repository.commits([names["other"], names["c1"]])
    with pytest.raises(UserError, match=f"conflict in {FILE}"):
        with_commit(repository, base, commit)


@pytest.mark.parametrize("cover", [(), ("--cover-letter",)])
def test_series_is_applied_in_its_order(make: Make, tmp_path: Path, cover: tuple[str, ...]) -> None:
    repository, names = make(HISTORY, checkout=True)
    file = series(repository, names, tmp_path / "two.mbox", *cover)
    was = footprint(repository)
    (below,) = repository.commits([names["below"]])
    made = with_file(repository, below, file)
    assert content(repository, made.commit) == text(l3="three", l4="four \u00e9", l20="twenty")
    assert made.kind is Kind.PATCHED
    assert len(made.changed_by or "") == 64
    assert made.commit.subject == "Apply two.mbox"
    assert with_file(repository, below, file) == made  # the same hash, whenever it is made
    assert footprint(repository) == was
    assert git(repository.top, "for-each-ref", "--contains", made.commit.sha) == ""


@pytest.mark.parametrize("encoding", ["quoted-printable", "base64", "8bit"])
def test_letter_is_read_as_it_was_sent(make: Make, tmp_path: Path, encoding: str) -> None:
    repository, names = make(HISTORY)
    letter = EmailMessage()
    letter["Subject"], letter["From"] = "[PATCH] four", "A U Thor <author@example.com>"
    diff = git(repository.top, "diff", names["c1"], names["c2"])
    letter.set_content(f"Why.\n---\n{diff}\n-- \n2.39\n", cte=encoding)
    (tmp_path / "one.eml").write_bytes(letter.as_bytes())
    (base,) = repository.commits([names["c1"]])
    assert content(repository, with_file(repository, base, tmp_path / "one.eml").commit) == text(
        l3="three", l4="four \u00e9"
    )


@pytest.mark.parametrize("before", ["", "Index: linux/drivers/md/dm.c\n", "\nWhy it is faster.\n"])
def test_plain_diff_is_applied_in_a_bare_repository(make: Make, tmp_path: Path, before: str) -> None:
    repository, names = make(HISTORY, bare=True)
    file = tmp_path / "fix.diff"
    file.write_text(before + git(repository.top, "diff", names["c0"], names["c1"]) + "\n")
    (below,) = repository.commits([names["below"]])
    assert content(repository, with_file(repository, below, file).commit) == text(l3="three", l20="twenty")


def test_patch_that_does_not_apply_is_refused_with_file_and_line(make: Make, tmp_path: Path) -> None:
    repository, names = make(HISTORY)
    file = series(repository, names, tmp_path / "two.mbox")
    (other,) = repository.commits([names["other"]])
    with pytest.raises(UserError) as caught:
        with_file(repository, other, file)
    said = str(caught.value)
    assert said.startswith(f"{file}, patch 1 of 2 ([PATCH 1/2] c1), does not apply to {other.short}: ") or (
        said.startswith(f"{file}, patch 1 of 2 (c1), does not apply to {other.short}: ")
    )
    assert f"patch failed: {FILE}:1" in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (b"", "does not apply|no patch|No valid patches"),
        (b"no patch at all\n", "No valid patches"),
        (b"From: me\nSubject: none\n\nnone\n", "no patch in them"),
        (b"\0\xff" * 100, "No valid patches"),
    ],
)
def test_what_is_no_patch_is_refused(make: Make, tmp_path: Path, given: bytes, said: str) -> None:
    repository, names = make(HISTORY)
    (tmp_path / "x").write_bytes(given)
    (base,) = repository.commits([names["c0"]])
    with pytest.raises(UserError, match=said):
        with_file(repository, base, tmp_path / "x")


def test_index_around_us_is_left_alone(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a git hook GIT_INDEX_FILE is set."""
    repository, names = make(HISTORY)
    file = series(repository, names, tmp_path / "two.mbox")
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "a person's index"))
    (below,) = repository.commits([names["below"]])
    assert with_file(repository, below, file).changed_by
    assert not (tmp_path / "a person's index").exists()
