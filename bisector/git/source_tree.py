"""The kernel sources, checked out at one commit after another, exactly as they are in git's trees.

A kernel is kept under the id of its commit's tree, for every later run and clone, so its sources have to be that tree.
A person's git may change files on their way into a checkout (gitattributes(5)). ``.gitattributes`` inside the tree is
part of the tree; attributes outside it, and the programs of filters, are kept away from the sources.
"""

import re
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from bisector.core.errors import InfraError, UserError
from bisector.core.subject import Commit
from bisector.git.command import GitAnswer
from bisector.git.repository import Repository
from bisector.git.trees import Trees
from bisector.git.worktrees import Worktree, WorktreePurpose, remove_leftovers
from bisector.host import build_user

_ROOM_BYTES = 64 << 20
# Attributes that change content on its way into a file, or the result of a merge; "binary" is git's own macro of
# "-text".
_OF_CONTENT = frozenset(("binary", "crlf", "eol", "filter", "ident", "merge", "text", "working-tree-encoding"))
# A pattern, which may be quoted as in C, or the name of a macro; then the attributes.
_LINE = re.compile(r'\s*(?!#)(?:"(?:[^"\\]|\\.)*"|\S+)\s+(?P<attributes>.*)')
_DRIVER_SETTINGS = (("smudge", ""), ("clean", ""), ("process", ""), ("required", "false"))
# The question to git for :func:`_without_filters`, asked in a checkout; git exits with 1 if there is no such setting.
_SETTINGS = (
    "config",
    "--name-only",
    "-z",
    "--get-regexp",
    r"^(filter\..*\.(smudge|clean|process|required)|attr\.tree)$",
)


class SourceTree:
    """The kernel sources, checked out at one commit after another; a context manager.

    Only files that differ get new modification times, so make compiles only what changed. If an exception ends the
    block, the checkout stays for the resumed run; otherwise it is removed, unless ``keep`` is true.
    """

    def __init__(self, repository: Repository, run_dir: Path, *, keep: bool = False) -> None:
        self._repository = repository
        self._run_dir = run_dir
        self._keep = keep

    def __enter__(self) -> Self:
        """Raises :class:`UserError` as :func:`check_attributes`."""
        check_attributes(self._repository)
        if left := self._existing():
            for lock in ("index.lock", "HEAD.lock"):  # left by a git that was killed: no git is running
                (left.admin / lock).unlink(missing_ok=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None and not self._keep:
            self.remove()

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
        words = ("checkout", "--quiet", "--force", "--detach", commit.sha, "--")
        settings = worktree.git(*_SETTINGS, ok=None)
        if settings.status not in (0, 1):  # a damaged worktree gives no answer
            return settings
        options, umask = _without_filters(settings.stdout), build_user.umask()
        answer = worktree.git(*words, options=options, ok=None, deadline_s=deadline_s, umask=umask)
        if answer.status == 0:
            answer = worktree.git("clean", "-ffdxq", ok=None, deadline_s=deadline_s)
        return answer

    def _may_be_damaged(self, worktree: Worktree) -> bool:
        """Whether a new worktree may help if this one failed; in a partial clone the network is mostly the cause."""
        if self._is_full():
            return False
        if not self._repository.partial:
            return True
        read = (("rev-parse", "--verify", "HEAD^{commit}"), ("ls-files", "--", "Makefile"))
        return any(worktree.git(*words, ok=None).status != 0 for words in read)

    def remove(self) -> None:
        """Remove the sources and their registration."""
        remove_leftovers(self._repository, self._run_dir, WorktreePurpose.SOURCE)

    def _existing(self) -> Worktree | None:
        return Worktree.existing(self._repository, self._run_dir, WorktreePurpose.SOURCE)

    def _is_full(self) -> bool:
        place = next(place for place in (self.path, *self.path.parents) if place.exists())
        return shutil.disk_usage(place).free < _ROOM_BYTES

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
    program is installed must not decide what is built, and such a program is no part of a build. ``settings`` is git's
    answer to :data:`_SETTINGS` in the checkout itself, since a configuration may include another one for some git
    directories only ("includeIf"). Raises :class:`UserError` if no option can turn a setting off.
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
