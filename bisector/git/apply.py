"""The new end without a commit, and the old end with it: what git's revert and cherry-pick would make of them.

Both are three-way merges (git-revert(1), git-cherry-pick(1)), and git makes those of commits alone, without a
checkout or an index (git-merge-tree(1), since 2.38). What comes of it is a commit that no branch and no reference
has; git forgets it in time, and it can be made again, with the same hash.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bisector.core.commit import Commit, Kind
from bisector.core.errors import InfraError
from bisector.git.repository import Repository

_CONFLICT = 1
_NEEDED_GIT = (2, 38)
# The defaults of git-config(1), "merge", and of "diff" where a merge looks there, in place of a person's.
_MERGE_SETTINGS = (
    "merge.default=text",
    "merge.renames=true",
    "merge.renameLimit=7000",
    "merge.directoryRenames=conflict",
    "merge.renormalize=false",
    "diff.algorithm=default",
)
_MERGE = tuple(word for setting in _MERGE_SETTINGS for word in ("-c", setting))
_IDENTITY = "bisector <bisector@localhost>"
_EPOCH_S = 0
# git's own checks refuse a date beyond this (timestamp_valid() and "badDateOverflow" in git's fsck.c).
_LAST_S = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Changed:
    """An end without a commit, or with it, as a commit of its own."""

    commit: Commit


@dataclass(frozen=True, slots=True)
class CannotBeHad:
    """Why there is no such thing: a conflict, a merge, nothing to change."""

    reason: str


def changed_end(
    repository: Repository, kind: Kind, commit: Commit, end: Commit, *, first_parent: bool = False
) -> Changed | CannotBeHad:
    """``end`` with ``commit`` taken out (REVERTED) or added (PICKED).

    With ``first_parent`` a merge stands for all that it brought. Raises :class:`InfraError` when git fails
    otherwise than by a conflict.
    """
    parents = repository.parents(commit.sha)
    if not parents:
        return CannotBeHad("it has no parent")
    if len(parents) > 1 and not first_parent:
        return CannotBeHad("it is a merge")
    (parent,) = repository.commits(parents[:1])
    before, after = (commit, parent) if kind is Kind.REVERTED else (parent, commit)
    tree = _merged(repository, base=before.sha, ours=end.tree, theirs=after.tree)
    if isinstance(tree, CannotBeHad):
        return tree
    if tree == end.tree:
        what = "has nothing of it any more" if kind is Kind.REVERTED else "has all of it already"
        return CannotBeHad(f"{end.short} {what}")
    return Changed(_made(repository, kind, commit, end, tree))


def _merged(repository: Repository, *, base: str, ours: str, theirs: str) -> str | CannotBeHad:
    """The tree of a three-way merge of two trees, on top of that of a commit."""
    version = repository.git.version
    if tuple(int(part) for part in version.split(".")[:2]) < _NEEDED_GIT:
        return CannotBeHad(f"git {version} merges in a checkout only; 2.38 can do without")
    # git 2.39 takes commits alone and finds the base itself: two commits that have it as their only one.
    sides = (_written(repository, tree, (base,), _EPOCH_S, "side") for tree in (ours, theirs))
    words = ("merge-tree", "--write-tree", "--name-only", "--no-messages", *sides)
    common = repository.common_dir
    # Away from the person's checkout, whose .gitattributes would have a say in the merge.
    where = (f"--git-dir={common}", f"--work-tree={common}", *_MERGE)
    answer = repository.git(*words, at=common, where=where, ok=(0, _CONFLICT))
    tree, *files = answer.lines
    if answer.status == _CONFLICT:
        return CannotBeHad(f"conflict in {', '.join(dict.fromkeys(files))}")
    return tree


def _made(repository: Repository, kind: Kind, commit: Commit, end: Commit, tree: str) -> Commit:
    verb, how = ("Revert", "without") if kind is Kind.REVERTED else ("Pick", "with")
    subject = f'{verb} "{commit.subject}"'
    message = f"{subject}\n\nMade by bisector to measure it: {end.sha} {how} {commit.sha}"
    sha = _written(repository, tree, (end.sha,), _committed_s(repository, end), message)
    (made,) = repository.commits([sha])
    return made


def _committed_s(repository: Repository, commit: Commit) -> int:
    """When a commit was made, in seconds since the epoch; the epoch where nobody can say.

    As a number: a date that a person may have set to the year 10000, or to a zone of +9999, is no ISO 8601.
    """
    words = ("log", "-1", "--no-walk", "--no-show-signature", "--format=%ct", commit.sha)
    written = repository.ask(*words).stdout.strip()
    at_s = int(written) if written.isascii() and written.isdigit() else _EPOCH_S
    return at_s if at_s <= _LAST_S else _EPOCH_S


def _written(repository: Repository, tree: str, parents: Sequence[str], at_s: int, message: str) -> str:
    """The hash of a commit object, the same for the same words; nothing of a person's configuration is in it."""
    who = f"{_IDENTITY} {at_s} +0000"
    head = (f"tree {tree}", *(f"parent {parent}" for parent in parents), f"author {who}", f"committer {who}")
    text = "\n".join((*head, "", message, ""))
    answer = repository.ask("hash-object", "-t", "commit", "-w", "--stdin", stdin=text)
    sha = answer.stdout.strip()
    if not sha:
        raise InfraError("git hash-object has not written a commit")
    return sha
