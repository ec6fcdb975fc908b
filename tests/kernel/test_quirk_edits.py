"""Edits of a real worktree, and git's part in undoing them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bisector.core.errors import InfraError
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree
from bisector.kernel import quirks
from bisector.kernel.quirks import Edit
from tests.git import histories
from tests.git.histories import Node, git

EDIT = Edit("init/main.c", "rest_init();", "rest_init();\n\tmb();")
OTHER = Edit("include/linux/log2.h", "#define A 1", "#define A 10")
PLAIN = {
    "init/main.c": "\trest_init();\n",
    "include/linux/log2.h": "#define A 1\n",
    "Makefile": "all:\n",
    "Kbuild": "\n",
}


class Tree:
    """A repository of two commits that differ in the Makefile, a worktree that bisector made, and a build directory."""

    def __init__(self, path: Path) -> None:
        self.top, self.run_dir, self.build = path / "linux", path / "run", path / "run/build"
        nodes = (Node("one", files=PLAIN), Node("two", ("one",), files={"Makefile": "all:\n# 2\n"}))
        histories.build(self.top, nodes, checkout=True)
        self.repository = Repository.open(self.top)
        self.build.mkdir(parents=True)

    def checkout(self, rev: str = "main") -> Path:
        return SourceTree(self.repository, self.run_dir).checkout(self.repository.resolve(rev))

    def apply(self, source: Path, *wanted: Edit) -> None:
        quirks.apply_edits(wanted, source, self.build)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def is_clean(source: Path) -> bool:
    return git(source, "status", "--porcelain", "--ignored") == ""


def mtime(path: Path) -> int:
    return path.stat().st_mtime_ns


def test_an_edit_is_exact_and_keeps_the_mode(tree: Tree) -> None:
    source = tree.checkout()
    (source / EDIT.file).chmod(0o755)
    tree.apply(source, EDIT)
    assert (source / EDIT.file).read_text() == "\trest_init();\n\tmb();\n"
    assert (source / EDIT.file).stat().st_mode & 0o777 == 0o755
    assert git(source, "status", "--porcelain").split() == ["M", EDIT.file]


def test_what_is_behind_a_link_out_of_the_tree_is_not_edited(tree: Tree, tmp_path: Path) -> None:
    """A tree may hold a link to a directory of a person's, or one of the name of a file that is put beside another."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "main.c").write_text(PLAIN[EDIT.file])
    (home / "profile").write_text("a person's")
    shutil.rmtree(tree.top / "init")
    (tree.top / "init").symlink_to(home)
    (tree.top / f"{OTHER.file}.bisector-new").symlink_to(home / "profile")
    git(tree.top, "add", "--all")
    git(tree.top, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "links")
    source = tree.checkout()
    assert not EDIT.fits(source)
    with pytest.raises(InfraError, match="not there once"):
        tree.apply(source, EDIT)
    tree.apply(source, OTHER)
    assert (source / OTHER.file).read_text() == "#define A 10\n"
    assert {path.name: path.read_text() for path in home.iterdir()} == {
        "main.c": PLAIN[EDIT.file],
        "profile": "a person's",
    }


@pytest.mark.parametrize("rev", ["main", "main~1"])
def test_the_next_checkout_undoes_them(tree: Tree, rev: str) -> None:
    source = tree.checkout()
    tree.apply(source, EDIT, OTHER)
    assert not is_clean(source)
    assert tree.checkout(rev) == source
    assert is_clean(source)
    assert (source / EDIT.file).read_text() == PLAIN[EDIT.file]


def test_no_user_setting_hides_an_edit_from_git(tree: Tree) -> None:
    """core.checkStat=minimal compares whole seconds and sizes only (git-config(1))."""
    git(tree.top, "config", "core.checkStat", "minimal")
    git(tree.top, "config", "core.trustctime", "false")
    source = tree.checkout()
    checked_out = (source / EDIT.file).stat()
    tree.apply(source, EDIT)
    os.utime(source / EDIT.file, ns=(checked_out.st_mtime_ns, checked_out.st_mtime_ns))
    tree.checkout()
    assert (source / EDIT.file).read_text() == PLAIN[EDIT.file]


KILLED_AT = f"""
import os, signal, sys
from pathlib import Path
from bisector.kernel import quirks
from bisector.kernel.quirks import Edit
EDIT, OTHER = {EDIT!r}, {OTHER!r}

class Os:
    calls = 0
    def __init__(self, real): self.real = real
    def __call__(self, *args, **kwargs):
        Os.calls += 1
        if Os.calls == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        return self.real(*args, **kwargs)

replace = Path.replace
Path.replace = lambda self, target: Os(replace)(self, target)
os.fsync = Os(os.fsync)
quirks.apply_edits((EDIT, OTHER), Path(sys.argv[1]), Path(sys.argv[2]))
sys.exit(0)
"""


def test_a_kill_at_any_moment_leaves_nothing(tree: Tree) -> None:
    """The process is killed before each of its writes and renames in turn."""
    ended, moment = -9, 0
    while ended == -9:
        moment += 1
        source = tree.checkout()
        argv = [sys.executable, "-c", KILLED_AT, str(source), str(tree.build), str(moment)]
        ended = subprocess.run(argv, check=False).returncode
        tree.checkout("main~1" if moment % 2 else "main")
        assert is_clean(source)
        assert [(source / edit.file).read_text() for edit in (EDIT, OTHER)] == [
            PLAIN[edit.file] for edit in (EDIT, OTHER)
        ]
    assert ended == 0
    assert moment > 6


@pytest.mark.parametrize(
    ("between", "kept"),
    [
        pytest.param(lambda tree, source: None, True, id="the same edit"),
        pytest.param(lambda tree, source: tree.apply(source, EDIT), False, id="a build without it"),
        pytest.param(
            lambda tree, source: tree.apply(source, Edit(OTHER.file, "A 1", "A 200")), False, id="another edit"
        ),
        pytest.param(lambda tree, source: (tree.build / "edits.json").unlink(), False, id="another directory"),
        pytest.param(lambda tree, source: (tree.build / "edits.json").write_text("[1"), False, id="a damaged memory"),
    ],
)
def test_a_file_is_as_old_as_its_content_was_at_the_last_build(
    tree: Tree, between: Callable[[Tree, Path], object], kept: bool
) -> None:
    """Else each commit would compile all that includes an edited header, or not compile what has to be."""
    source = tree.checkout()
    tree.apply(source, OTHER)
    before = mtime(source / OTHER.file)
    source = tree.checkout("main~1")
    between(tree, source)
    source = tree.checkout()
    tree.apply(source, OTHER)
    assert (source / OTHER.file).read_text() == "#define A 10\n"
    assert (mtime(source / OTHER.file) == before) is kept
