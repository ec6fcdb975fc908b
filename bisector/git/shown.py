"""A commit as a person first looks at it: its author, the links to its discussion, and its patch, within bounds."""

from dataclasses import dataclass

from bisector.core.subject import Commit
from bisector.git.repository import Repository
from bisector.host.files import scratch

_TRAILERS = ("Link", "Closes", "BugLink", "Fixes")
_MOST_TRAILERS = 12
_MOST_LINES = 400
_MOST_BYTES = 64 << 10
_SHOW = ("show", "--no-show-signature", "--no-notes", "--no-ext-diff", "--no-textconv", "--encoding=UTF-8")


@dataclass(frozen=True, slots=True)
class ShownCommit:
    """Author, ISO 8601 date, trailers with links, git's summary ``stat``, and the patch, which may be ``cut``.

    A merge that changes nothing by itself has no patch.
    """

    author: str
    authored_at: str
    trailers: tuple[tuple[str, str], ...]
    stat: str
    patch: tuple[str, ...]
    cut: bool


def shown(repository: Repository, commit: Commit) -> ShownCommit:
    """What git shows of a commit. From a partial clone nothing is fetched, so the patch is missing."""
    keys = ",".join(f"key={name}" for name in _TRAILERS)
    told = repository.ask(*_SHOW, "--no-patch", f"--format=%an%x00%aI%x00%(trailers:{keys},only,unfold)", commit.sha)
    author, authored_at, trailers = told.stdout.split("\0", 2)
    named = (line.partition(": ") for line in trailers.split("\n"))
    found = tuple((name, text.strip()) for name, _, text in named if text.strip())[:_MOST_TRAILERS]
    if repository.partial:
        return ShownCommit(author, authored_at, found, "", (), cut=False)
    with scratch("patch") as directory:
        # A patch may be of any length: it goes to a file, and only the beginning of that is read.
        file = directory / "patch"
        repository.git(*_SHOW, "--format=", "--patch", commit.sha, at=repository.top, into=file)
        with file.open("rb") as patch:
            content = patch.read(_MOST_BYTES + 1)
    lines = content[:_MOST_BYTES].decode("utf-8", "replace").splitlines()
    stat = repository.ask(*_SHOW, "--format=", "--shortstat", commit.sha).stdout.strip() if lines else ""
    cut = len(content) > _MOST_BYTES or len(lines) > _MOST_LINES
    return ShownCommit(author, authored_at, found, stat, tuple(lines[:_MOST_LINES]), cut)
