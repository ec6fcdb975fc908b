"""Worktrees of killed runs, of two runs, and one that has vanished."""

import shutil
from pathlib import Path

import pytest

from bisector.git.source_tree import SourceTree, Worktree, WorktreePurpose, remove_leftovers
from tests.git.checks import footprint
from tests.git.conftest import Make
from tests.git.histories import git, linear


@pytest.mark.parametrize("damage", ["no directory", "no .git file", "no admin", "admin half made", "directory only"])
def test_leftovers_of_a_killed_run_go(make: Make, tmp_path: Path, damage: str) -> None:
    repository, names = make(linear(3), checkout=True)
    git(repository.top, "worktree", "add", "-q", "--detach", str(tmp_path / "users"), names["c0"])
    (tmp_path / "users").rename(tmp_path / "unmounted")  # a worktree of the user's, not there at present
    before = footprint(repository)
    run_dir = tmp_path / "run"
    worktree = Worktree.add(repository, run_dir, WorktreePurpose.SOURCE, names["c1"])
    bisect = Worktree.add(repository, run_dir, WorktreePurpose.BISECT, names["c1"])
    if damage == "no directory":
        (worktree.path / ".git").unlink()
        worktree.path.rmdir()
    elif damage == "no .git file":
        (worktree.path / ".git").unlink()
    elif damage == "admin half made":
        (worktree.admin / "gitdir").unlink()
    elif damage in ("no admin", "directory only"):
        shutil.rmtree(worktree.admin)
    if damage == "directory only":
        (worktree.path / ".git").unlink()
    assert remove_leftovers(repository, run_dir) == (bisect.path, worktree.path)
    assert footprint(repository) == before
    assert remove_leftovers(repository, run_dir) == ()


def test_two_runs_do_not_meet(make: Make, tmp_path: Path) -> None:
    repository, names = make(linear(3))
    one = Worktree.add(repository, tmp_path / "one", WorktreePurpose.SOURCE, names["c0"])
    other = Worktree.add(repository, tmp_path / "other", WorktreePurpose.SOURCE, names["c0"])
    remove_leftovers(repository, tmp_path / "one")
    assert not one.path.exists()
    assert other.git("rev-parse", "HEAD").stdout.strip() == names["c0"]


def test_a_vanished_worktree_never_turns_git_on_the_checkout_around_it(make: Make) -> None:
    repository, names = make(linear(3), checkout=True)
    precious = repository.top / "precious.c"
    precious.write_text("not committed")
    worktree = Worktree.add(repository, repository.top / "run", WorktreePurpose.SOURCE, names["c0"])
    (worktree.path / ".git").unlink()
    worktree.git("checkout", "--force", names["c1"])
    worktree.git("clean", "-ffdxq")
    shutil.rmtree(worktree.path)
    assert worktree.git("clean", "-ffdxq").status != 0
    tree = SourceTree(repository, repository.top / "run")
    assert (tree.checkout(repository.resolve("main")) / "Makefile").exists()
    assert precious.read_text() == "not committed"
