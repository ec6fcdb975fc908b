"""Whether what a timer of the system has root run can be changed by anybody but root."""

import os
import pwd
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from bisector.core import resources
from bisector.core.errors import UserError
from bisector.git.repository import Repository
from bisector.nightly.plan import Job, Plan

# What of the environment goes into the unit, besides the search path.
DIRECTORIES = ("XDG_STATE_HOME", "XDG_CACHE_HOME", "CCACHE_DIR")
_ROOT = frozenset((0,))
_MOST_LINKS = 40  # as the kernel follows (path_resolution(7))
# What git follows in its directory, or in that of a linked worktree (gitrepository-layout(5)).
_FOLLOWED = ("config", "config.worktree", "commondir", "objects", "info", "worktrees")
_WRITABLE = ((stat.S_IWGRP, "its group"), (stat.S_IWOTH, "everybody"))
_HINT = (
    "install it as root, outside of homes: python3 -m venv /opt/bisector; or without --system: a timer of your own,"
    " with loginctl enable-linger"
)


def check_for_root(plan: Plan) -> None:
    """Raise :class:`UserError` unless all that such nights are made of is root's, and written by root alone.

    The interpreter, the package and its libraries, the programs of the search path, the jobs' file and what it names,
    compilers too, the repositories (of a linked worktree also the one that it belongs to), whose configuration git
    follows. What a commit's own Makefiles do is another matter.
    """
    for what, path in _parts(plan):
        if (found := _changeable(path)) is not None:
            place, why = found
            raise UserError(f"{place} {why}, and root would run {what} {path} every night", _HINT)


def _parts(plan: Plan) -> Iterator[tuple[str, Path]]:
    yield "the jobs of", plan.path
    for job in plan.jobs:
        yield from _of_job(job)
    yield "the interpreter", Path(sys.executable)
    for directory in filter(None, os.environ.get("PATH", "").split(os.pathsep)):
        yield "the programs in", Path(directory)
    for name in DIRECTORIES:
        if os.environ.get(name):
            yield f"with {name} at", Path(os.environ[name])
    for own in (resources.PACKAGE, resources.kconfigs(), resources.jobs(), resources.vm_images()):
        yield from (("the package with", one) for one in (own, *own.rglob("*")))
    for library in filter(Path.is_absolute, map(Path, sys.path[1:])):  # the first is the caller's
        within = library.rglob("*") if library.name in ("site-packages", "dist-packages") else ()
        yield from (("the library", one) for one in (library, *within))


def _of_job(job: Job) -> Iterator[tuple[str, Path]]:
    settings = job.measuring
    named = (settings.kernel.base_config, settings.workload.job, settings.mail.login_file)
    fragments = (Path(one) for one in settings.kernel.fragments if "/" in one)
    yield from ((f"job {job.name} with", Path(one)) for one in (*named, *fragments) if one)
    for word in (word for command in settings.kernel.compilers for word in command.split()):
        if "/" in (found := shutil.which(word) or word):
            yield f"job {job.name} with the compiler", Path(found)
    # What a file .git names is asked of git, once nobody else can have written that file.
    yield from _of_git(job, job.repository)
    yield from _of_git(job, job.repository / ".git")
    with Repository.open(job.repository) as repository:
        git_dirs = repository.ask("rev-parse", "--absolute-git-dir").lines
        for git_dir in (repository.common_dir, *map(Path, git_dirs)):
            yield from _of_git(job, git_dir)


def _of_git(job: Job, git_dir: Path) -> Iterator[tuple[str, Path]]:
    for part in (git_dir, *(git_dir / name for name in _FOLLOWED)):
        yield f"git for job {job.name} in", part


def _changeable(path: Path) -> tuple[Path, str] | None:
    """The first on the way to a path that somebody other than root can change, and who."""
    for step in _way(path):
        status = step.lstat()
        if status.st_uid not in _ROOT:
            return step, f"belongs to {_name(status.st_uid)}"
        # In a sticky directory nobody takes away what is root's (chmod(1)); a link has no mode of its own.
        if stat.S_ISLNK(status.st_mode) or (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
            continue
        for bit, who in _WRITABLE:
            if status.st_mode & bit:
                return step, f"can be written by {who}"
    return None


def _way(path: Path) -> Iterator[Path]:
    """Every directory, link and file that a path leads over, as far as there are any."""
    left = list(reversed(path.absolute().parts))
    here, links = Path("/"), 0
    while left:
        part = left.pop()
        step = here.parent if part == ".." else here / part  # "/" begins anew
        if not os.path.lexists(step):
            return
        yield step
        if step.is_symlink() and links < _MOST_LINKS:
            links += 1
            left.extend(reversed(step.readlink().parts))
        else:
            here = step


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
