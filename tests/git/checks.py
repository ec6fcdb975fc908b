"""What several tests ask of a repository."""

import re

from bisector.git.bisect import Bisect, Found
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


def assert_git_agrees(bisect: Bisect, found: Found) -> None:
    last = bisect.log().splitlines()[-1]
    assert re.fullmatch(rf"# first \w+ commit: \[{found.commit.sha}\] {re.escape(found.commit.subject)}", last)
