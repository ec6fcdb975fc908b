"""What a run keeps in the person's repository: worktrees, and references to the ends of its range.

There are two linked worktrees (git-worktree(1)), one for git's bisect state and one for the sources. Every command
names its git directory and its work tree: if git had to find them and a worktree had vanished, ``git clean`` would run
in the checkout around it.

The references keep both ends, and so all commits of the range, while a run is stopped: if a branch is rebased, a later
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

from bisector.core.errors import InfraError
from bisector.git.command import DEADLINE_S, GitAnswer
from bisector.git.repository import REFERENCES, Repository
from bisector.host import build_user
from bisector.host.files import discard, remove_tree


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
        repository.git(*words, at=repository.top, umask=build_user.umask())
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

    def git(
        self,
        *words: str,
        options: Sequence[str] = (),
        ok: tuple[int, ...] | None = (0,),
        deadline_s: float = DEADLINE_S,
        umask: int = -1,
    ) -> GitAnswer:
        """Run a git command in this worktree; ``options`` are options of git itself."""
        where = (f"--git-dir={self.admin}", f"--work-tree={self.path}", *options)
        return self.repository.git(*words, at=self.path, where=where, ok=ok, deadline_s=deadline_s, umask=umask)

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
