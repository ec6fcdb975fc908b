"""Trees compared without a checkout, and commits made so: an end without a commit or with it, or with patches on top.

Differences are paths; renames are not detected, since that reads whole files.

An end without a commit, or with it, is the three-way merge that git-revert(1) or git-cherry-pick(1) would make
(git-merge-tree(1), since 2.38). Patches are in a file: a diff, or a mailbox with one patch in each letter, as
``git format-patch --stdout`` and lore.kernel.org write it. The file is applied in an index of its own, as exactly as
git-am(1) does: no fuzz, no three-way merge. Each commit that is made is one that no reference names, and that can be
made again with the same hash.
"""

import hashlib
import math
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

from bisector.core.errors import UserError
from bisector.core.subject import Change, Commit, Kind, Subject
from bisector.git.ranges import Range
from bisector.git.repository import Repository, commit_text
from bisector.host.files import scratch

_DIFF = ("diff-tree", "-r", "-z", "--name-status", "--no-renames", "--no-ext-diff")
_ADDED = "A"
_LEAST_SHARE = 1000  # commits per git process: fewer take less time than starting it
_LONGEST_STATUS = 4  # a letter and a score; a longer word in its place is a commit's hash

_CONFLICT = 1
_NEEDED_GIT = (2, 38)
# The defaults of git-config(1), "merge", and of "diff" where a merge reads that, instead of a person's settings.
_MERGE_SETTINGS = (
    "merge.default=text",
    "merge.renames=true",
    "merge.renameLimit=7000",
    "merge.directoryRenames=conflict",
    "merge.renormalize=false",
    "diff.algorithm=default",
)
_MERGE = tuple(word for setting in _MERGE_SETTINGS for word in ("-c", setting))
_EPOCH_S = 0
# git's own checks refuse a date beyond this (timestamp_valid() and "badDateOverflow" in git's fsck.c).
_LAST_S = 2**63 - 1

# A letter begins with mbox's own line or with a header. A diff may begin like a header, with "Index: drivers/md/dm.c".
_LETTER = re.compile(rb"\s*(From |(?!Index:|diff:)[A-Za-z][A-Za-z-]*:[ \t])")
_SUBJECT = re.compile(r"^Subject: (.*)$", re.MULTILINE)
_ERROR = "error: "
_QUOTED = 3  # the number of git's errors that are shown; each names one file
# Options instead of a person's settings (git-config(1), "apply").
_AS_IT_IS = ("-c", "apply.whitespace=nowarn", "-c", "apply.ignoreWhitespace=no")


@dataclass(frozen=True)
class Trees:
    """The trees of a repository, named by their ids or by commits; a clone that lacks trees gives no answer."""

    repository: Repository

    @cached_property
    def at_hand(self) -> bool:
        """Whether no tree has to be fetched first, one by one (git-clone(1), ``--filter=tree:0``)."""
        filters = self.repository.ask("config", "--get-regexp", r"^remote\..*\.partialclonefilter$", ok=(0, 1)).lines
        return not any("tree:" in line or "combine:" in line for line in filters)

    def changes(self, old: str, new: str) -> tuple[Change, ...] | None:
        """The files that differ between two trees; None if a tree is missing."""
        if not self.at_hand:
            return None
        answer = self.repository.ask(*_DIFF, old, new, ok=None)
        return tuple(change for _, change in _read(answer.stdout)) if answer.status == 0 else None

    def alike_at(self, tree: str, others: Sequence[str], paths: Sequence[str]) -> tuple[str, ...]:
        """The trees among ``others`` that are in this repository and equal ``tree`` at all of ``paths``."""
        if not self.at_hand:
            return ()
        asked = "".join(f"{one}:{path}\n" for one in (tree, *others) for path in paths)
        answer = self.repository.ask("cat-file", "--batch-check=%(objectname)", stdin=asked)
        # For a missing object git repeats the name, so only the path is compared: it may be missing in both trees.
        found = [line.partition(":")[2] if line.endswith(" missing") else line for line in answer.lines]
        rows = [found[start : start + len(paths)] for start in range(0, len(found), len(paths))]
        return tuple(other for other, row in zip(others, rows[1:], strict=True) if row == rows[0])

    def of_range(self, wanted: Range) -> dict[str, str]:
        """The tree of each commit of a range, by the commit's hash."""
        words = ("log", "--no-show-signature", "--format=%H %T", *wanted.whole)
        return dict(line.split() for line in self.repository.ask(*words).lines)

    def along(self, wanted: Range) -> tuple[int, Iterator[tuple[str, Change]]] | None:
        """The number of commits in a range, and their changes against their first parents, each with the commit's hash.

        None if trees are missing. Several gits work at a time: one alone takes as long as all other planning of a
        kernel's range. A merge that does not differ from its first parent in anything that matters is that parent
        again; a merge that does may still equal its other parent, which only another walk would show.
        """
        if not self.at_hand:
            return None
        words = ("log", "--no-show-signature", "--format=%H %P", *wanted.whole)
        pairs = [" ".join(line.split()[:2]) for line in self.repository.ask(*words).lines]

        def diff(some: Sequence[str]) -> str:
            return self.repository.ask(*_DIFF, "--stdin", stdin="".join(f"{pair}\n" for pair in some)).stdout

        def changes() -> Iterator[tuple[str, Change]]:
            share = max(_LEAST_SHARE, math.ceil(len(pairs) / (os.cpu_count() or 1)))
            parts = (pairs[start : start + share] for start in range(0, len(pairs), share))
            with ThreadPoolExecutor() as gits:
                yield from chain.from_iterable(map(_read, gits.map(diff, parts)))

        return len(pairs), changes()


def _read(output: str) -> Iterator[tuple[str, Change]]:
    """Parse git's words, each ended by a zero byte: hashes if commits were asked for, then status and path in turn."""
    commit = ""
    words = iter(output.split("\0")[:-1])
    for word in words:
        if len(word) > _LONGEST_STATUS:
            commit = word
        else:
            yield commit, Change(next(words), word == _ADDED)


# Commits that are made


@dataclass(frozen=True, slots=True)
class CannotBeHad:
    """Why git cannot make a commit: a conflict, a merge, nothing to change."""

    reason: str


def changed_end(
    repository: Repository, kind: Kind, commit: Commit, end: Commit, *, first_parent: bool = False
) -> Commit | CannotBeHad:
    """``end`` without ``commit`` (REVERTED) or with it (PICKED); by ``first_parent`` a merge is all that it brought."""
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
    verb, how = ("Revert", "without") if kind is Kind.REVERTED else ("Pick", "with")
    return made_on(repository, end, tree, f'{verb} "{commit.subject}"', f"{how} {commit.sha}")


def _merged(repository: Repository, *, base: str, ours: str, theirs: str) -> str | CannotBeHad:
    if repository.git.version < _NEEDED_GIT:
        return CannotBeHad(f"git {repository.git.version_text} merges in a checkout only; 2.38 can do without")
    # git 2.39 takes only commits and finds the base itself, so two commits are made that have ``base`` as their only
    # parent.
    sides = (_written(repository, tree, (base,), _EPOCH_S, "side") for tree in (ours, theirs))
    words = ("merge-tree", "--write-tree", "--name-only", "--no-messages", *sides)
    common = repository.common_dir
    # Outside the person's checkout, whose .gitattributes would affect the merge.
    where = (f"--git-dir={common}", f"--work-tree={common}", *_MERGE)
    answer = repository.git(*words, at=common, where=where, ok=(0, _CONFLICT))
    tree, *files = answer.lines
    if answer.status == _CONFLICT:
        return CannotBeHad(f"conflict in {', '.join(dict.fromkeys(files))}")
    return tree


def made_on(repository: Repository, end: Commit, tree: str, subject: str, how: str) -> Commit:
    """Make a commit of a tree on top of ``end``, in no branch; the same words give the same hash at any time."""
    message = f"{subject}\n\nMade by bisector to measure it: {end.sha} {how}"
    # The committer date of ``end`` as a number: a date that a person set to the year 10000, or to a zone of +9999,
    # cannot be written in ISO 8601.
    words = ("log", "-1", "--no-walk", "--no-show-signature", "--format=%ct", end.sha)
    told = repository.ask(*words).stdout.strip()
    at_s = int(told) if told.isascii() and told.isdigit() else _EPOCH_S
    sha = _written(repository, tree, (end.sha,), at_s if at_s <= _LAST_S else _EPOCH_S, message)
    (made,) = repository.commits([sha])
    return made


def _written(repository: Repository, tree: str, parents: Sequence[str], at_s: int, message: str) -> str:
    """Write a commit object and return its hash."""
    text = commit_text(tree, parents, at_s, message)
    return repository.ask("hash-object", "-t", "commit", "-w", "--stdin", stdin=text).stdout.strip()


def with_commit(repository: Repository, base: Commit, commit: Commit) -> Subject:
    """``base`` with the change of a commit on top; raises :class:`UserError` if git cannot make that."""
    made = changed_end(repository, Kind.PICKED, commit, base)
    if isinstance(made, CannotBeHad):
        raise UserError(
            f"{commit.short} cannot be put on top of {base.short}: {made.reason}",
            f"make it fit, and give it as a file: git checkout {base.short}; git cherry-pick {commit.short}",
        )
    return Subject(made, Kind.PATCHED, commit.sha)


def with_file(repository: Repository, base: Commit, file: Path) -> Subject:
    """``base`` with all patches of a file on top; raises :class:`UserError` with git's message about the place."""
    if file.exists() and not file.is_file():  # it is read again when it is copied into the run
        raise UserError(f"{file} is not a regular file", "write the patch to a file")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}", f"ls -l {file}") from error
    common = repository.common_dir
    # Outside the person's checkout, whose attributes and directories would affect the result.
    where = (f"--git-dir={common}", f"--work-tree={common}", *_AS_IT_IS)
    with scratch("patch") as directory:
        index = directory / "index"
        patches = tuple(_patches(repository, directory, file, content))
        repository.git("read-tree", base.tree, at=common, where=where, index=index)
        for name, diff in patches:
            words = ("apply", "--cached", "-")
            answer = repository.git(*words, at=common, where=where, ok=None, stdin=diff, index=index)
            if answer.status != 0:
                said = [line.removeprefix(_ERROR) for line in answer.stderr.splitlines() if line.startswith(_ERROR)]
                raise UserError(
                    f"{name} does not apply to {base.short}: {'; '.join(said[:_QUOTED]) or answer.complaint}",
                    f"git checkout {base.short}; git apply --3way {file}",
                )
        tree = repository.git("write-tree", at=common, where=where, index=index).stdout.strip()
    if tree == base.tree:
        raise UserError(f"{file} changes nothing of {base.short}", "a comparison needs two different kernels")
    digest = hashlib.sha256(content).hexdigest()
    made = made_on(repository, base, tree, f"Apply {file.name}", f"with the patch of SHA-256 {digest}")
    return Subject(made, Kind.PATCHED, digest)


def _patches(repository: Repository, directory: Path, file: Path, content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield each patch's name and diff, in order; letters without a diff, such as a cover letter, are left out."""
    if not _LETTER.match(content):
        yield str(file), content
        return
    mailbox, letters = directory / "mailbox", directory / "letters"
    mailbox.write_bytes(content.lstrip())
    letters.mkdir()
    repository.git("mailsplit", "-b", f"-o{letters}", "--", str(mailbox), at=repository.common_dir)
    found = []
    for letter in sorted(letters.iterdir()):
        message, diff = directory / "message", directory / "diff"
        words = ("mailinfo", str(message), str(diff))
        told = repository.git(*words, at=repository.common_dir, stdin=letter.read_bytes())
        subject = _SUBJECT.search(told.stdout)
        if content := diff.read_bytes():
            found.append((subject.group(1) if subject else letter.name, content))
    if not found:
        raise UserError(f"{file} has letters and no patch in them", "git format-patch --stdout makes such a file")
    for number, (title, content) in enumerate(found, 1):
        yield f"{file}, patch {number} of {len(found)} ({title}),", content
