"""The user's repository. It is only read, except for bisector's own worktrees, references and new objects.

Causes of failures are found by further questions to git and the file system, not by git's messages, which change.
"""

import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from posixpath import join, normpath
from typing import Self

from bisector.core.errors import InfraError, UserError
from bisector.core.subject import Commit
from bisector.git.command import GitAnswer, GitRunner, enclosing_repository

# The prefix of all references of bisector. Not refs/bisector: each `git bisect start` and `reset` removes all
# references that begin with refs/bisect, whatever follows (bisect_clean_state() in git's bisect.c; tried with 2.39).
REFERENCES = "refs/by-bisector"
_COMMIT_FORMAT = "--format=%H%x00%P%x00%T%x00%cI%x00%s"
_WHERE = "--repo DIRECTORY names a checkout of the kernel"
_KERNEL_TREE = ("Kbuild", "Kconfig", "Makefile", "arch/x86", "init/Kconfig")


class Repository:
    """The git repository that a range is taken from; a context manager.

    ``top`` is the root of the checkout or, for a bare repository, its directory; worktrees are registered in
    ``common_dir`` (gitrepository-layout(5)). ``prefix`` leads from ``top`` to the directory that was opened.
    """

    def __init__(self, door: GitRunner, top: Path, common_dir: Path, shallow: bool, prefix: str = "") -> None:
        self.git = door
        self.top = top
        self.common_dir = common_dir
        self.shallow = shallow
        self.prefix = prefix
        # The commits asked for so far, with their parents: what a hash names does not change.
        self._commits: dict[str, tuple[Commit, tuple[str, ...]]] = {}

    @classmethod
    def open(cls, path: Path, run_marker: Path | None = None) -> Self:
        """Open the repository around ``path``; :class:`UserError` if it is missing, not trusted or not writable."""
        try:
            is_there = path.is_dir()
            if "\n" in os.fspath(path.resolve()):
                raise UserError(
                    f"the name of the directory {path.resolve()} has a line break in it, and git tells paths by lines",
                    "rename it, or clone it to another place",
                )
        except OSError as error:  # for example in a directory that this user may not enter
            raise UserError(f"{path} cannot be looked at: {error.strerror}", _WHERE) from error
        if not is_there:
            raise UserError(f"{path} is not a directory", _WHERE)
        door = GitRunner(run_marker)
        always = ("--absolute-git-dir", "--git-common-dir", "--is-shallow-repository", "--show-prefix")
        # --show-toplevel fails if there is no checkout, after the other questions are answered.
        answer = door("rev-parse", *always, "--show-toplevel", at=path, ok=None)
        if len(answer.lines) < len(always):
            raise _refusal(door, path, answer)
        git_dir, common_dir, shallow, prefix, *top = answer.lines
        repository = cls(door, Path(*top or (git_dir,)), (path / common_dir).resolve(), shallow == "true", prefix)
        worktrees = repository.common_dir / "worktrees"
        where = worktrees if worktrees.is_dir() else repository.common_dir
        if not os.access(where, os.W_OK | os.X_OK):
            raise UserError(
                f"{where} cannot be written, and a bisection registers worktrees of its own there",
                f"git clone --shared {repository.top} COPY, then run with --repo COPY",
            )
        return repository

    def close(self) -> None:
        """Release what GitPython holds open."""
        self.git.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, *words: str, ok: tuple[int, ...] | None = (0,), stdin: str = "") -> GitAnswer:
        """Run a git command that reads, in the repository; raises :class:`InfraError` as :class:`GitRunner` does."""
        try:
            return self.git(*words, at=self.top, ok=ok, stdin=stdin)
        except InfraError as error:
            if not self.partial:
                raise
            message = f"{error}; this is a partial clone, which fetches what it lacks from its remote as it is asked"
            raise InfraError(message, f"git -C {self.top} remote -v: does it answer? or use a whole clone") from error

    def resolve(self, rev: str) -> Commit:
        """The commit that a person's revision names; raises :class:`UserError` if there is none."""
        if not rev or rev[0] in "-^":  # options, and exclusions from a range
            raise UserError(f"{rev!r} names no commit", "give a tag, a branch or a hash; `git tag --list` has the tags")
        # ":/text" searches for all that follows, including a suffix; so ^{commit} is applied to the hash that it finds.
        words = [rev] if rev.startswith(":/") else [f"{rev}^{{commit}}", rev]
        for word in words:
            answer = self.ask("rev-parse", "--verify", "--quiet", word, ok=None)
            if answer.status == 0:
                break
        else:
            raise self._unknown(rev)
        sha = answer.stdout.strip()
        found = self.ask("rev-parse", "--verify", "--quiet", f"{sha}^{{commit}}", ok=None)
        if found.status != 0:
            kind = self.ask("cat-file", "-t", f"{sha}^{{}}", ok=None)
            if kind.status != 0:  # the object is missing
                raise self._unknown(rev)
            message = f"{rev!r} names a {kind.stdout.strip()}, and no commit"
            raise UserError(message, "give a tag, a branch or a hash of a commit")
        return self.commits([found.stdout.strip()])[0]

    def from_top(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Paths from ``top``, given paths as typed in the opened directory; those with pathspec magic stay as typed."""
        return tuple(one if one.startswith(":") else normpath(join(self.prefix, one)) for one in paths)

    def commits(self, shas: Iterable[str]) -> tuple[Commit, ...]:
        """The commits with these full hashes, in the same order."""
        return tuple(commit for commit, _ in self._ask_for(shas))

    def expand(self, expression: str) -> tuple[str, ...]:
        """The hashes that ``REV`` or a range such as ``A..B`` stands for, as ``git bisect skip`` takes them."""
        if ".." not in expression:
            return (self.resolve(expression).sha,)
        ends = re.split(r"\.{2,3}", expression)
        if len(ends) > 2:  # noqa: PLR2004 - a range has two ends
            raise UserError(f"{expression!r} is not a range", "give REV or A..B, each with a --skip of its own")
        for end in ends:
            self.resolve(end or "HEAD")
        return self.ask("rev-list", expression, "--").lines

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether ``older`` is ``newer`` or can be reached from it."""
        return self.ask("merge-base", "--is-ancestor", older, newer, ok=(0, 1)).status == 0

    def parents(self, sha: str, *, first_only: bool = False) -> tuple[str, ...]:
        """The hashes of all parents of a commit, whatever paths a range is limited to."""
        ((_, parents),) = self._ask_for([sha])
        return parents[:1] if first_only else parents

    def merge_bases(self, one: str, *others: str) -> tuple[str, ...]:
        """The best common ancestors of ``one`` and a merge of ``others`` (git-merge-base(1)); there may be none."""
        return self.ask("merge-base", "--all", one, *others, ok=(0, 1)).lines

    def between(self, olds: Iterable[str], news: Iterable[str]) -> tuple[Commit, ...]:
        """The commits that can be the first new one: all of ``news`` come after them, and none of ``olds`` does.

        Newest first, as git lists them. The common ancestors of several commits are the ancestors of their best common
        ancestors (git-merge-base(1), ``--octopus``).
        """
        bases = self.ask("merge-base", "--octopus", "--all", *news, ok=(0, 1)).lines
        return self.commits(self.ask("rev-list", *bases, "--not", *olds).lines) if bases else ()

    def check_kernel_tree(self, commit: Commit) -> None:
        """Raise :class:`UserError` unless the commit's tree is a Linux source tree."""
        found = set(self.ask("ls-tree", "--name-only", commit.sha, "--", *_KERNEL_TREE).lines)
        if missing := [name for name in _KERNEL_TREE if name not in found]:
            raise UserError(
                f"{commit.short} is not a kernel tree: it has no {', '.join(missing)}",
                "run inside a clone of the Linux source, or give one with --repo",
            )

    def shallow_boundary(self) -> frozenset[str]:
        """The commits whose parents a shallow clone lacks."""
        if not self.shallow:
            return frozenset()
        return frozenset((self.common_dir / "shallow").read_text(encoding="ascii").split())

    @property
    def partial(self) -> bool:
        """Whether files are fetched from a remote as they are needed (gitglossary(7), "promisor")."""
        words = ("config", "--get-regexp", r"^(extensions\.partialclone|remote\..*\.promisor)$")
        return self.git(*words, at=self.top, ok=(0, 1)).status == 0

    @property
    def not_followed(self) -> tuple[str, ...]:
        """What a person put in place of commits, by git-replace(1) or grafts, in words; bisector follows neither."""
        replaced = self.ask("for-each-ref", "--format=%(refname)", "refs/replace/").lines
        grafts = self.common_dir / "info/grafts"
        lines = grafts.read_text(errors="replace").splitlines() if grafts.is_file() else []
        return (
            *(f"the replacement of {name.rpartition('/')[2][:12]} by git replace" for name in replaced),
            *(f"the graft of {line[:12]} in {grafts}" for line in lines if line and not line.startswith("#")),
        )

    def _ask_for(self, shas: Iterable[str]) -> tuple[tuple[Commit, tuple[str, ...]], ...]:
        wanted = tuple(shas)
        if unknown := [sha for sha in wanted if sha not in self._commits]:
            stdin = "".join(f"{sha}\n" for sha in unknown)
            words = ("log", "--no-walk=unsorted", "--no-show-signature", "--encoding=UTF-8", "--no-notes", "--stdin")
            lines = self.ask(*words, _COMMIT_FORMAT, stdin=stdin).stdout.split("\n")
            for line in filter(None, lines):
                sha, parents, tree, committed_at, subject = line.split("\0")
                self._commits[sha] = (Commit(sha, tree, subject, committed_at), tuple(parents.split()))
        return tuple(self._commits[sha] for sha in wanted)

    def _unknown(self, rev: str) -> UserError:
        if ".." in rev and not rev.startswith(":/"):
            return UserError(f"{rev!r} is a range, and one commit is asked for here", "give one of its ends")
        is_hash = re.fullmatch(r"[0-9a-f]{4,}", rev)
        if is_hash and len(found := self.ask("rev-parse", f"--disambiguate={rev}").lines) > 1:
            stdin = "".join(f"{one}\n" for one in found)
            kinds = self.ask("cat-file", "--batch-check=%(objecttype)", stdin=stdin).lines
            candidates = ", ".join(f"{one[:16]} ({kind})" for one, kind in zip(found, kinds, strict=True))
            return UserError(f"short object ID {rev} is ambiguous; the candidates are {candidates}", "give more digits")
        if "/" in rev and (self.top / self.prefix / rev).exists():
            return UserError(f"{rev!r} is a path, and a commit is asked for here", f"paths come last: OLD NEW -- {rev}")
        names = self.ask("for-each-ref", "--format=%(refname:short)", "refs/tags", "refs/heads", "refs/remotes").lines
        if near := [name for name in difflib.get_close_matches(rev, names, n=3) if name != rev]:
            return UserError(f"unknown revision {rev!r}", f"did you mean {' or '.join(near)}?")
        if self.shallow:
            return UserError(f"unknown revision {rev!r} in this shallow clone", "git fetch --unshallow --tags")
        return UserError(f"unknown revision {rev!r}", "git fetch --tags, if it is a new one")


def _refusal(door: GitRunner, path: Path, answer: GitAnswer) -> UserError | InfraError:
    found = enclosing_repository(path)
    if found is None:
        return UserError(f"{path} is not a git repository", "run inside a clone of the Linux source, or use --repo")
    git_dir, top = found
    # git does not check the owner of an explicit --git-dir (git-config(1), "safe.directory").
    if door("rev-parse", "--git-dir", at=path, where=("--git-dir", os.fspath(git_dir)), ok=None).status == 0:
        try:
            owner = top.owner()
        except KeyError:
            owner = f"user {top.stat().st_uid}"
        return UserError(
            f"git does not trust {top}, which belongs to {owner}",
            f"git config --global --add safe.directory {top}",
        )
    return UserError(f"git cannot read the repository {top}: {answer.complaint}", f"git -C {top} fsck")
