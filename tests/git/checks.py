"""What several tests ask of a repository."""

import hashlib
import re
from pathlib import Path

from bisector.git.bisect import Bisect, FirstNewCommit
from bisector.git.repository import Repository
from tests.git.histories import git


def footprint(repository: Repository) -> tuple[object, ...]:
    """Everything of the user's that must stay as it is."""
    common = repository.common_dir
    refs = git(repository.top, "for-each-ref"), git(repository.top, "worktree", "list", "--porcelain")
    kept = [common / name for name in ("HEAD", "config", "index", "packed-refs")]
    plain = [file.read_bytes() for file in kept if file.exists()]
    return (
        *refs,
        *plain,
        sorted((*common.glob("*"), *common.glob("worktrees/*"))),
        git(repository.top, "status", "--short"),
    )


def tree_on_disk(path: Path) -> set[str]:
    """Mode, hash and name of each file, as ``git ls-tree`` gives them, and no filter or attribute asked."""
    found = set()
    for file in path.rglob("*"):
        if file.is_dir() or file == path / ".git":
            continue
        content = bytes(file.readlink()) if file.is_symlink() else file.read_bytes()
        sha = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        mode = "120000" if file.is_symlink() else "100755" if file.stat().st_mode & 0o100 else "100644"
        found.add(f"{mode} blob {sha}\t{file.relative_to(path)}")
    return found


def tree_of(repository: Repository, rev: str) -> set[str]:
    """The same of a commit."""
    return set(git(repository.top, "ls-tree", "-r", rev).split("\n"))


def assert_git_agrees(bisect: Bisect, found: FirstNewCommit) -> None:
    last = bisect.log().splitlines()[-1]
    assert re.fullmatch(rf"# first \w+ commit: \[{found.commit.sha}\] {re.escape(found.commit.subject)}", last)
