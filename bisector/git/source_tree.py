"""The kernel sources, checked out at one commit after another, and all else that a run keeps in a person's repository.

A kernel is kept under the id of its commit's tree, for every later run and clone, so its sources have to be exactly
that tree. A person's git may change files on their way into a checkout (gitattributes(5)). ``.gitattributes`` inside
the tree is part of the tree; attributes outside it, and the programs of filters, are kept away from the sources.

There are two linked worktrees (git-worktree(1)), one for git's bisect state and one for the sources. Every command
names its git directory and its work tree: if git had to find them and a worktree had vanished, ``git clean`` would run
in the checkout around it.

References keep both ends of the range, and so all its commits, while a run is stopped: if a branch is rebased, a later
``git gc`` would remove an end, and everything measured would lead to no answer.
"""

import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from bisector.core.errors import InfraError, UserError
from bisector.core.subject import Commit
from bisector.git.repository import DEADLINE_S, REFERENCES, GitAnswer, Repository
from bisector.git.trees import Trees
from bisector.host import process
from bisector.host.files import discard, nearest, remove_tree

_ROOM_BYTES = 64 << 20
# Attributes that change content on its way into a file, or the result of a merge; "binary" is git's own macro of
# "-text".
_OF_CONTENT = frozenset(("binary", "crlf", "eol", "filter", "ident", "merge", "text", "working-tree-encoding"))
# A pattern, which may be quoted as in C, or the name of a macro; then the attributes.
_LINE = re.compile(r'\s*(?!#)(?:"(?:[^"\\]|\\.)*"|\S+)\s+(?P<attributes>.*)')
_DRIVER_SETTINGS = (("smudge", ""), ("clean", ""), ("process", ""), ("required", "false"))
# The settings that :func:`_without_filters` is about.
_SETTINGS = r"^(filter\..*\.(smudge|clean|process|required)|attr\.tree)$"


class WorktreePurpose(StrEnum):
    """What a worktree is for; also a part of its name."""

    BISECT = "bisect"
    SOURCE = "source"

    def path(self, run_dir: Path) -> Path:
        """The path of a run's worktree, the same in every run below its directory: ccache identifies files by path."""
        return run_dir.resolve() / "worktrees" / self


@dataclass(frozen=True, slots=True)
class Worktree:
    """A linked worktree that bisector made at ``path``; ``admin`` holds its state (``.git/worktrees/NAME``)."""

    repository: Repository
    path: Path
    admin: Path

    @classmethod
    def add(cls, repository: Repository, run_dir: Path, purpose: WorktreePurpose, at: str) -> Self:
        """Register an empty worktree with a detached HEAD, after removing what was left of an earlier one."""
        remove_leftovers(repository, run_dir, purpose)
        path, staging = purpose.path(run_dir), _staging(run_dir, purpose)
        path.parent.mkdir(parents=True, exist_ok=True)
        words = ("worktree", "add", "--quiet", "--no-checkout", "--detach", os.fspath(staging), at)
        repository.git(*words, at=repository.top, umask=process.umask())
        repository.git("worktree", "move", os.fspath(staging), os.fspath(path), at=repository.top)
        added = cls.existing(repository, run_dir, purpose)
        if added is None:
            raise InfraError(f"git worktree add has not made {path}")
        return added

    @classmethod
    def existing(cls, repository: Repository, run_dir: Path, purpose: WorktreePurpose) -> Self | None:
        """The complete worktree that an earlier process of this run left; None if there is none."""
        path = purpose.path(run_dir)
        for admin in _registered(repository):
            if _home(admin) != path:
                continue
            try:
                text = os.fsdecode((path / ".git").read_bytes())
            except OSError:
                continue
            is_whole = "\0" not in text and text.startswith("gitdir: ")
            if is_whole and (path / text[8:].strip()).resolve() == admin.resolve():
                return cls(repository, path, admin)
        return None

    def git(self, *words: str, options: Sequence[str] = (), deadline_s: float = DEADLINE_S) -> GitAnswer:
        """Run a git command in this worktree, whatever its exit status; ``options`` are options of git itself."""
        where = (f"--git-dir={self.admin}", f"--work-tree={self.path}", *options)
        umask = process.umask()
        return self.repository.git(*words, at=self.path, where=where, ok=None, deadline_s=deadline_s, umask=umask)

    def remove(self) -> None:
        """Remove the directory and its registration."""
        # The directory goes first: then git has nothing to check in it, whatever state a kill left it in.
        discard(self.path)
        if _home(self.admin) is not None:
            words = ("worktree", "remove", "--force", "--force", os.fspath(self.path))
            self.repository.git(*words, at=self.repository.top, ok=None)
        shutil.rmtree(self.admin, ignore_errors=True)
        with suppress(OSError):
            self.admin.parent.rmdir()  # git does not keep an empty .git/worktrees either
        with suppress(OSError):
            self.path.parent.rmdir()


def remove_leftovers(repository: Repository, run_dir: Path, *purposes: WorktreePurpose) -> tuple[Path, ...]:
    """Remove this run's worktrees. ``git worktree prune`` would also forget worktrees on disks that are not mounted."""
    removed = []
    for purpose in purposes or tuple(WorktreePurpose):
        path, staging = purpose.path(run_dir), _staging(run_dir, purpose)
        # Git appends a number to a name that is taken.
        named = re.compile(re.escape(staging.name) + r"\d*")
        homes = {admin: _home(admin) for admin in _registered(repository)}
        admins = [
            admin
            for admin, home in homes.items()
            if home in (path, staging) or (home is None and named.fullmatch(admin.name))
        ]
        for admin in admins:
            Worktree(repository, homes[admin] or staging, admin).remove()
        left = [place for place in (path, staging) if place.exists()]
        for place in left:
            remove_tree(place)
        if admins or left:
            removed.append(path)
    return tuple(removed)


def hold(repository: Repository, run_dir: Path, shas: Mapping[str, str]) -> None:
    """Keep commits, by short names, from garbage collection until :func:`release`; raises :class:`InfraError`."""
    _change(repository, run_dir, [f"update {_references(run_dir)}/{name} {sha}" for name, sha in shas.items()])


def release(repository: Repository, run_dir: Path) -> None:
    """Release the commits that :func:`hold` keeps; raises :class:`InfraError`."""
    held = repository.ask("for-each-ref", "--format=%(refname)", f"{_references(run_dir)}/").lines
    if held:
        _change(repository, run_dir, [f"delete {name}" for name in held])


def _change(repository: Repository, run_dir: Path, commands: Sequence[str]) -> None:
    """Have git-update-ref(1) carry out the commands.

    To delete references git locks a file of the whole repository, which does not say who holds it: if a killed git left
    that lock, a person has to remove it.
    """
    for lock in (repository.common_dir / _references(run_dir)).rglob("*.lock"):
        lock.unlink(missing_ok=True)  # left by a git that was killed: no other process changes the run's references
    try:
        repository.ask("update-ref", "--stdin", stdin="".join(f"{command}\n" for command in commands))
    except InfraError as error:
        lock = repository.common_dir / "packed-refs.lock"
        if lock.exists():
            error.hint = f"if no git is at work in this repository, one was killed there: rm {shlex.quote(str(lock))}"
        raise


def _staging(run_dir: Path, purpose: WorktreePurpose) -> Path:
    """Where git is told to make the worktree: it registers and keeps the name, which tells runs apart."""
    return run_dir.resolve() / "worktrees" / f"bisector-{purpose}-{_digest(run_dir)}"


def _registered(repository: Repository) -> Iterator[Path]:
    worktrees = repository.common_dir / "worktrees"
    if worktrees.is_dir():
        yield from sorted(worktrees.iterdir())


def _home(admin: Path) -> Path | None:
    """The directory of a registered worktree; None if a kill or a power cut left it unrecorded."""
    try:
        text = os.fsdecode((admin / "gitdir").read_bytes()).strip()
    except OSError:
        return None
    git_file = admin / text
    return git_file.parent if git_file.name == ".git" else None


def _references(run_dir: Path) -> str:
    return f"{REFERENCES}/runs/{_digest(run_dir)}"


def _digest(run_dir: Path) -> str:
    """A name that tells runs apart: two runs may have the same directory name, and it may be no valid name for git."""
    return hashlib.sha256(os.fsencode(run_dir.resolve())).hexdigest()[:12]


# The sources


class SourceTree:
    """The kernel sources, checked out at one commit after another; raises as :func:`check_attributes`.

    Only files that differ get new modification times, so make compiles only what changed. The checkout stays until
    :func:`remove_leftovers`.
    """

    def __init__(self, repository: Repository, run_dir: Path) -> None:
        self._repository = repository
        self._run_dir = run_dir
        check_attributes(repository)
        if left := self._existing():
            for lock in ("index.lock", "HEAD.lock"):  # left by a git that was killed: no git is running
                (left.admin / lock).unlink(missing_ok=True)

    @property
    def trees(self) -> Trees:
        """The differences between the sources of commits."""
        return Trees(self._repository)

    @property
    def path(self) -> Path:
        """The directory of the sources."""
        return WorktreePurpose.SOURCE.path(self._run_dir)

    def checkout(self, commit: Commit, deadline_s: float = 1800.0) -> Path:
        """Make the tree exactly the tree of ``commit``, without any other file, and return its path.

        A worktree in which that fails is removed once and added anew: by default git does not sync the index
        (git-config(1), "core.fsync"), so after a power cut the index or HEAD may be cut off or full of zeros. Raises
        :class:`InfraError` if the disk is full or the files of a partial clone cannot be fetched, and
        :class:`UserError` for a git configuration that changes files (:func:`_without_filters`).
        """
        left = self._existing()
        if left is not None:
            answer = self._check_out(left, commit, deadline_s)
            if answer.status == 0:
                return left.path
            if not self._may_be_damaged(left):
                raise self._failure(commit, answer)
        added = Worktree.add(self._repository, self._run_dir, WorktreePurpose.SOURCE, commit.sha)
        answer = self._check_out(added, commit, deadline_s)
        if answer.status != 0:
            raise self._failure(commit, answer)
        return added.path

    def _check_out(self, worktree: Worktree, commit: Commit, deadline_s: float) -> GitAnswer:
        settings = worktree.git("config", "--name-only", "-z", "--get-regexp", _SETTINGS)
        if settings.status not in (0, 1):  # 1: there is none; a damaged worktree gives no answer
            return settings
        words = ("checkout", "--quiet", "--force", "--detach", commit.sha, "--")
        answer = worktree.git(*words, options=_without_filters(settings.stdout), deadline_s=deadline_s)
        return worktree.git("clean", "-ffdxq", deadline_s=deadline_s) if answer.status == 0 else answer

    def _may_be_damaged(self, worktree: Worktree) -> bool:
        """Whether a new worktree may help if this one failed; in a partial clone the network is mostly the cause."""
        if self._is_full():
            return False
        if not self._repository.partial:
            return True
        read = (("rev-parse", "--verify", "HEAD^{commit}"), ("ls-files", "--", "Makefile"))
        return any(worktree.git(*words).status != 0 for words in read)

    def _existing(self) -> Worktree | None:
        return Worktree.existing(self._repository, self._run_dir, WorktreePurpose.SOURCE)

    def _is_full(self) -> bool:
        return shutil.disk_usage(nearest(self.path)).free < _ROOM_BYTES

    def _failure(self, commit: Commit, answer: GitAnswer) -> InfraError:
        if self._is_full():
            return InfraError(f"no room for the sources of {commit.short} in {self.path}")
        if self._repository.partial:
            return InfraError(
                f"the files of {commit.short} could not be checked out; this is a partial clone, which fetches them",
                "check the network, and that the clone's own configuration names no program (core.sshCommand, "
                "credential.helper: git config --global); or use a full clone",
            )
        return InfraError(f"git could not check out {commit.short}: {answer.complaint}")


def check_attributes(repository: Repository) -> None:
    """Raise :class:`UserError` if ``attr.tree`` or ``info/attributes``, which nothing disables, changes checkouts."""
    path = repository.common_dir / "info" / "attributes"
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        text = ""
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", f"ls -l {path}") from error
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        words = parsed["attributes"].split() if (parsed := _LINE.fullmatch(line.rstrip("\r"))) else ()
        found += [(f"{path}:{number}", one) for one in words if one.lstrip("-!").partition("=")[0] in _OF_CONTENT]
    # Since git 2.43 attr.tree names a tree whose attributes replace those of the files.
    if repository.ask("config", "--get", "attr.tree", ok=(0, 1)).status == 0:
        found.append(("git's configuration", "attr.tree"))
    for place, attribute in found:
        raise UserError(
            f"{place} sets {attribute}, so sources that are checked out would not be those of their commits",
            f"remove it, or: git clone --shared {repository.top} COPY, then run with --repo COPY",
        )


def _without_filters(settings: str) -> tuple[str, ...]:
    """The options with which git runs no filter of a person's configuration (git-config(1), "filter").

    A tree may name a filter, and git-lfs, for example, is configured for all of a person's repositories: whether its
    program is installed must not decide what is built, and such a program is no part of a build. ``settings`` are the
    names that git lists in the checkout itself, since a configuration may include another one for some git directories
    only ("includeIf"). Raises :class:`UserError` if no option can turn a setting off.
    """
    keys = [key for key in settings.split("\0") if key]
    # In -c, git takes everything before the first "=" for the name.
    if odd := next((key for key in keys if key == "attr.tree" or "=" in key), None):
        raise UserError(
            f"git's configuration sets {odd}, so sources that are checked out may not be those of their commits",
            f"git config --show-origin --get-all '{odd}' says where; remove it there",
        )
    drivers = dict.fromkeys(key.rpartition(".")[0] for key in keys)
    without = (f"{driver}.{name}={value}" for driver in drivers for name, value in _DRIVER_SETTINGS)
    return tuple(word for setting in without for word in ("-c", setting))
