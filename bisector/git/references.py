"""What holds the commits of a run while it is stopped: references of the run's own (git-gc(1)).

A branch that is rebased or deleted, and a ``git gc`` after it, would take an end of the range away, and everything
measured could come to no answer. All other commits of the range are ancestors of its ends. An end without a commit
needs no reference: the worktree that it is checked out in holds it, and it can be made again with the same hash.
"""

import hashlib
import os
from pathlib import Path

from bisector.git.ranges import Range
from bisector.git.repository import REFERENCES, Repository

_NAMESPACE = f"{REFERENCES}/runs"


def hold(repository: Repository, run_dir: Path, wanted: Range) -> None:
    """Keep both ends from garbage collection until :func:`release`; the run directory's lock is the caller's.

    Raises :class:`bisector.core.errors.InfraError` where git cannot write references.
    """
    references = _references(run_dir)
    for lock in (repository.common_dir / references).rglob("*.lock"):
        lock.unlink(missing_ok=True)  # of a git that was killed
    ends = {"old": wanted.old, "new": wanted.new}
    repository.ask(
        "update-ref", "--stdin", stdin="".join(f"update {references}/{k} {v.sha}\n" for k, v in ends.items())
    )


def release(repository: Repository, run_dir: Path) -> None:
    """Let go of what :func:`hold` keeps. Raises as that."""
    held = repository.ask("for-each-ref", "--format=%(refname)", f"{_references(run_dir)}/").lines
    if held:
        repository.ask("update-ref", "--stdin", stdin="".join(f"delete {name}\n" for name in held))


def _references(run_dir: Path) -> str:
    """Below which a run's references are; a directory's name alone may be that of two runs, or none for git."""
    return f"{_NAMESPACE}/{hashlib.sha256(os.fsencode(run_dir.resolve())).hexdigest()[:12]}"
