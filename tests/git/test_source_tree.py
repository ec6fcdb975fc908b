"""Sources as git has them, whatever was left by a run before and wherever they come from."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bisector.core.errors import InfraError
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree, Worktree, WorktreePurpose, remove_leftovers
from bisector.host import process
from tests.git.checks import footprint, tree_of, tree_on_disk
from tests.git.conftest import Make
from tests.git.histories import Node, git, linear


def files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file() and file.name != ".git"}


def written(file: Path) -> tuple[int, int]:
    """What is another when git has written the file, even if its content is the same."""
    return file.stat().st_mtime_ns, file.stat().st_ino


def killed_after_checkout(repository: Repository, run_dir: Path, rev: str) -> Path:
    """What a run that was killed leaves."""
    return SourceTree(repository, run_dir).checkout(repository.resolve(rev))


def test_only_what_changed_is_touched(make: Make, tmp_path: Path) -> None:
    repository, names = make(linear(4), checkout=True)
    before = footprint(repository)
    tree = SourceTree(repository, tmp_path / "run")
    path = tree.checkout(repository.resolve(names["c3"]))
    assert files(path) == {file for file in files(repository.top) if not file.startswith(".git/")}
    kept = written(path / "Makefile"), written(path / "files/c/2")
    (path / "files/c/stray.o").write_text("left by a build")
    tree.checkout(repository.resolve(names["c1"]))
    assert kept == (written(path / "Makefile"), written(path / "files/c/2"))
    assert not files(path) & {"files/c/3", "files/c/4", "files/c/stray.o"}
    remove_leftovers(repository, tmp_path / "run")
    assert footprint(repository) == before
    assert not (tmp_path / "run/worktrees").exists()


def test_kept_for_the_resumed_run_and_its_lock_removed(make: Make, tmp_path: Path) -> None:
    repository, names = make(linear(3), checkout=True)
    before = footprint(repository)
    path = killed_after_checkout(repository, tmp_path / "run", "main")
    (admin,) = (repository.common_dir / "worktrees").iterdir()
    (admin / "index.lock").touch()
    kept = written(path / "Makefile")
    tree = SourceTree(repository, tmp_path / "run")
    assert tree.checkout(repository.resolve(names["c1"])) == path
    assert written(path / "Makefile") == kept
    remove_leftovers(repository, tmp_path / "run")
    assert footprint(repository) == before


_DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "zeros": lambda content: bytes(len(content)),
    "noise": lambda content: b"\xff\xfe" * (len(content) // 2),
}


@pytest.mark.parametrize(
    ("name", "damage"),
    [*(("index", one) for one in _DAMAGES), *((one, "zeros") for one in ("HEAD", "commondir", "gitdir", ".git"))],
)
def test_a_worktree_damaged_by_a_power_cut_is_added_anew(make: Make, tmp_path: Path, name: str, damage: str) -> None:
    repository, names = make(linear(4), checkout=True)
    before = footprint(repository)
    path = killed_after_checkout(repository, tmp_path / "run", names["c3"])
    (admin,) = (repository.common_dir / "worktrees").iterdir()
    file = path / name if name == ".git" else admin / name
    file.write_bytes(_DAMAGES[damage](file.read_bytes()))
    tree = SourceTree(repository, tmp_path / "run")
    for tip in ("c1", "c2"):
        assert tree_on_disk(tree.checkout(repository.resolve(names[tip]))) == tree_of(repository, names[tip])
    assert len(list((repository.common_dir / "worktrees").iterdir())) == 1
    remove_leftovers(repository, tmp_path / "run")
    assert footprint(repository) == before


@pytest.mark.parametrize("damaged", [False, True])
def test_worktree_of_a_partial_clone(make: Make, tmp_path: Path, damaged: bool) -> None:
    """Without the network a new worktree would be worse off: it would need all files again."""
    origin, _ = make(linear(3))
    git(origin.top, "config", "uploadpack.allowFilter", "true")
    partial = tmp_path / "partial"
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{origin.top}", str(partial))
    repository = Repository.open(partial)
    path = killed_after_checkout(repository, tmp_path / "run", "origin/main~1")
    if damaged:
        (index,) = (repository.common_dir / "worktrees").glob("*/index")
        index.write_bytes(b"")
        tree = SourceTree(repository, tmp_path / "run")
        assert tree_on_disk(tree.checkout(repository.resolve("origin/main"))) == tree_of(origin, "main")
    else:
        kept = written(path / "Makefile")
        origin.top.rename(tmp_path / "offline")
        with pytest.raises(InfraError, match="partial clone"):
            SourceTree(repository, tmp_path / "run").checkout(repository.resolve("origin/main"))
        assert written(path / "Makefile") == kept


def test_an_object_that_is_gone_is_an_error_after_one_new_worktree(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, names = make(linear(4))
    killed_after_checkout(repository, tmp_path / "run", names["c1"])
    blob = git(repository.top, "rev-parse", f"{names['c3']}:files/c/4")
    (repository.common_dir / "objects" / blob[:2] / blob[2:]).unlink()
    added: list[str] = []
    add = Worktree.add

    def counted(repository: Repository, run_dir: Path, purpose: WorktreePurpose, at: str) -> Worktree:
        added.append(at)
        return add(repository, run_dir, purpose, at)

    monkeypatch.setattr(Worktree, "add", counted)
    with pytest.raises(InfraError, match=f"could not check out {names['c3'][:12]}"):
        SourceTree(repository, tmp_path / "run").checkout(repository.resolve(names["c3"]))
    assert added == [names["c3"]]


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's umask is its own affair")
def test_roots_sources_can_be_read_from_the_beginning_and_are_written_once(make: Make, tmp_path: Path) -> None:
    repository, names = make((*linear(2), Node("c2", ("c1",), files={"x.c": "int x;\n"})))
    before = os.umask(0o077)
    try:
        tree = SourceTree(repository, tmp_path / "run")
        path = tree.checkout(repository.resolve(names["c1"]))
        assert path.stat().st_mode & 0o777 == 0o755
        process.show(path)
        inode = (path / "Makefile").stat().st_ino
        tree.checkout(repository.resolve(names["c2"]))
        assert (path / "Makefile").stat().st_ino == inode
    finally:
        os.umask(before)
