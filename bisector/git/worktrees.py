"""Linked worktrees of our own (git-worktree(1)): one for git's bisect state, one for the sources.

The user's checkout, index, HEAD and branches are never touched. Every command names its git
directory and its work tree: were it left to git to find them, a worktree that has vanished would
turn ``git clean`` loose on the checkout around it.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from bisector.core.commit import Commit
from bisector.core.errors import InfraError
from bisector.git.attributes import SETTINGS, check_attributes, without_filters
from bisector.git.command import DEADLINE_S, Answer
from bisector.git.diff import Trees
from bisector.git.repository import Repository
from bisector.host import build_user

_ROOM_BYTES = 64 << 20


class Purpose(StrEnum):
    """What a worktree is for; part of its name."""

    BISECT = "bisect"
    SOURCE = "source"


@dataclass(frozen=True, slots=True)
class Worktree:
    """A linked worktree of ours at ``path``, with its state in ``admin`` (``.git/worktrees/NAME``)."""

    repository: Repository
    path: Path
    admin: Path

    @classmethod
    def add(cls, repository: Repository, run_dir: Path, purpose: Purpose, at: str) -> Self:
        """Register an empty worktree with a detached HEAD; what was left of an earlier one goes."""
        remove_leftovers(repository, run_dir, purpose)
        path, staging = _path(run_dir, purpose), _staging(run_dir, purpose)
        path.parent.mkdir(parents=True, exist_ok=True)
        words = ("worktree", "add", "--quiet", "--no-checkout", "--detach", os.fspath(staging), at)
        repository.git(*words, at=repository.top, umask=build_user.umask())
        repository.git("worktree", "move", os.fspath(staging), os.fspath(path), at=repository.top)
        added = cls.existing(repository, run_dir, purpose)
        if added is None:
            raise InfraError(f"git worktree add has not made {path}")
        return added

    @classmethod
    def existing(cls, repository: Repository, run_dir: Path, purpose: Purpose) -> Self | None:
        """The whole worktree that an earlier process of this run left, if there is one."""
        path = _path(run_dir, purpose)
        for admin in _registered(repository):
            if _home(admin) == path and _names(path / ".git", admin):
                return cls(repository, path, admin)
        return None

    def git(
        self,
        *words: str,
        options: Sequence[str] = (),
        ok: tuple[int, ...] | None = (0,),
        deadline_s: float = DEADLINE_S,
        umask: int = -1,
    ) -> Answer:
        """A git command in this worktree; ``options`` are those of git itself."""
        where = (f"--git-dir={self.admin}", f"--work-tree={self.path}", *options)
        return self.repository.git(*words, at=self.path, where=where, ok=ok, deadline_s=deadline_s, umask=umask)

    def unlock(self) -> None:
        """Remove the locks of a git that was killed; the caller knows that none is running."""
        for lock in ("index.lock", "HEAD.lock"):
            (self.admin / lock).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove directory and registration."""
        _remove(self.repository, self.path, self.admin)


class SourceTree:
    """The kernel sources, checked out at one commit after another; a context manager.

    Only files that differ get new modification times, so make compiles only what changed. Left
    by an exception it stays for the run that is resumed; otherwise it is removed.
    """

    def __init__(self, repository: Repository, run_dir: Path) -> None:
        self._repository = repository
        self._run_dir = run_dir

    def __enter__(self) -> Self:
        """Raises :class:`UserError` as :func:`bisector.git.attributes.check_attributes`."""
        check_attributes(self._repository)
        if left := self._existing():
            left.unlock()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.remove()

    @property
    def trees(self) -> Trees:
        """What differs between the sources of commits."""
        return Trees(self._repository)

    @property
    def path(self) -> Path:
        """Where the sources are."""
        return _path(self._run_dir, Purpose.SOURCE)

    def checkout(self, commit: Commit, deadline_s: float = 1800.0) -> Path:
        """Make the tree exactly that of ``commit``, without any other file; its path.

        A worktree in which that fails is removed once and added anew: git syncs no index by default (git-config(1),
        "core.fsync"), so after a power cut it, or HEAD, may be cut off or full of zeros.
        Raises :class:`InfraError` when the disk is full, and when the files of a partial clone cannot be fetched, and
        :class:`UserError` as :func:`bisector.git.attributes.without_filters`.
        """
        left = self._existing()
        if left is not None:
            answer = self._check_out(left, commit, deadline_s)
            if answer.status == 0:
                return left.path
            if not self._may_be_damaged(left):
                raise self._failure(commit, answer)
        added = Worktree.add(self._repository, self._run_dir, Purpose.SOURCE, commit.sha)
        answer = self._check_out(added, commit, deadline_s)
        if answer.status != 0:
            raise self._failure(commit, answer)
        return added.path

    def _check_out(self, worktree: Worktree, commit: Commit, deadline_s: float) -> Answer:
        words = ("checkout", "--quiet", "--force", "--detach", commit.sha, "--")
        settings = worktree.git(*SETTINGS, ok=None)
        if settings.status not in (0, 1):  # a damaged worktree answers nothing
            return settings
        options, umask = without_filters(settings.stdout), build_user.umask()
        answer = worktree.git(*words, options=options, ok=None, deadline_s=deadline_s, umask=umask)
        if answer.status == 0:
            worktree.git("clean", "-ffdxq", deadline_s=deadline_s)
        return answer

    def _may_be_damaged(self, worktree: Worktree) -> bool:
        """Whether a new worktree may do what this one failed to do.

        In a partial clone it is mostly the network that fails, which a new worktree needs even more.
        """
        if self._is_full():
            return False
        if not self._repository.partial:
            return True
        read = (("rev-parse", "--verify", "HEAD^{commit}"), ("ls-files", "--", "Makefile"))
        return any(worktree.git(*words, ok=None).status != 0 for words in read)

    def remove(self) -> None:
        """Remove the sources and their registration."""
        remove_leftovers(self._repository, self._run_dir, Purpose.SOURCE)

    def _existing(self) -> Worktree | None:
        return Worktree.existing(self._repository, self._run_dir, Purpose.SOURCE)

    def _is_full(self) -> bool:
        place = next(place for place in (self.path, *self.path.parents) if place.exists())
        return shutil.disk_usage(place).free < _ROOM_BYTES

    def _failure(self, commit: Commit, answer: Answer) -> InfraError:
        if self._is_full():
            return InfraError(f"no room for the sources of {commit.short} in {self.path}")
        if self._repository.partial:
            return InfraError(
                f"the files of {commit.short} could not be checked out; this is a partial clone, which fetches them",
                "check the network, or use a full clone",
            )
        return InfraError(f"git could not check out {commit.short}: {answer.complaint}")


def remove_leftovers(repository: Repository, run_dir: Path, *purposes: Purpose) -> tuple[Path, ...]:
    """Remove this run's worktrees (all, or of the purposes given); the paths that were removed.

    Not ``git worktree prune``: that would also forget a worktree of the user's on a disk that is not mounted.
    """
    removed = []
    for purpose in purposes or tuple(Purpose):
        path, staging = _path(run_dir, purpose), _staging(run_dir, purpose)
        admins = [admin for admin in _registered(repository) if _is_of(admin, path, staging)]
        for admin in admins:
            _remove(repository, _home(admin) or staging, admin)
        left = [place for place in (path, staging) if place.exists()]
        for place in left:
            shutil.rmtree(place)
        if admins or left:
            removed.append(path)
    return tuple(removed)


def _path(run_dir: Path, purpose: Purpose) -> Path:
    """Where this run's worktree is: the same in every run seen from its directory, since ccache knows files by path."""
    return run_dir.resolve() / "worktrees" / purpose


def _staging(run_dir: Path, purpose: Purpose) -> Path:
    """Where git is told to make it: the name, which git registers it by and keeps, tells runs apart."""
    home = run_dir.resolve()
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
    return home / "worktrees" / f"bisector-{purpose}-{digest}"


def _registered(repository: Repository) -> Iterator[Path]:
    worktrees = repository.common_dir / "worktrees"
    if worktrees.is_dir():
        yield from sorted(worktrees.iterdir())


def _home(admin: Path) -> Path | None:
    """The directory of a registered worktree; None where that is not, or no longer, written down.

    ``git worktree add`` may not have come that far, and a power cut may have left the file full of zeros.
    """
    try:
        text = os.fsdecode((admin / "gitdir").read_bytes()).strip()
    except OSError:
        return None
    git_file = admin / text
    return git_file.parent if git_file.name == ".git" else None


def _is_of(admin: Path, path: Path, staging: Path) -> bool:
    home = _home(admin)
    # git appends a number to a name that is taken.
    return home in (path, staging) or (
        home is None and re.fullmatch(re.escape(staging.name) + r"\d*", admin.name) is not None
    )


def _names(git_file: Path, admin: Path) -> bool:
    try:
        text = os.fsdecode(git_file.read_bytes())
    except OSError:
        return False
    return (
        "\0" not in text
        and text.startswith("gitdir: ")
        and (git_file.parent / text[8:].strip()).resolve() == admin.resolve()
    )


def _remove(repository: Repository, path: Path, admin: Path) -> None:
    # The directory first: git then has nothing to check in it, whatever state a kill left it in.
    shutil.rmtree(path, ignore_errors=True)
    if _home(admin) is not None:
        repository.git("worktree", "remove", "--force", "--force", os.fspath(path), at=repository.top, ok=None)
    shutil.rmtree(admin, ignore_errors=True)
    with suppress(OSError):
        admin.parent.rmdir()  # git, too, keeps no empty .git/worktrees
    with suppress(OSError):
        path.parent.rmdir()
