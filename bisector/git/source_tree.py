"""The kernel sources, checked out at one commit after another, exactly as they are in git's trees.

A kernel is kept under the id of its commit's tree, for every later run and clone, so its sources have to be that tree.
A person's git may do more to files on their way into a checkout (gitattributes(5)). A ``.gitattributes`` inside the
tree is part of the tree; attributes beside it and the programs of filters are not, and are kept from the sources.
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
# What changes content on its way into a file, or what a merge makes of two; "binary" is git's own macro of "-text".
_OF_CONTENT = frozenset(("binary", "crlf", "eol", "filter", "ident", "merge", "text", "working-tree-encoding"))
# A pattern, which may be quoted as in C, or the name of a macro; then the attributes.
_LINE = re.compile(r'\s*(?!#)(?:"(?:[^"\\]|\\.)*"|\S+)\s+(?P<attributes>.*)')
_DRIVER_SETTINGS = (("smudge", ""), ("clean", ""), ("process", ""), ("required", "false"))
# What git is asked in a checkout for :func:`_without_filters`; it answers with status 1 where there is no such setting.
_SETTINGS = (
    "config",
    "--name-only",
    "-z",
    "--get-regexp",
    r"^(filter\..*\.(smudge|clean|process|required)|attr\.tree)$",
)


class SourceTree:
    """The kernel sources, checked out at one commit after another; a context manager.

    Only files that differ get new modification times, so make compiles only what changed. Left
    by an exception it stays for the run that is resumed; otherwise it is removed, unless somebody is to ``keep`` it.
    """

    def __init__(self, repository: Repository, run_dir: Path, *, keep: bool = False) -> None:
        self._repository = repository
        self._run_dir = run_dir
        self._keep = keep

    def __enter__(self) -> Self:
        """Raises :class:`UserError` as :func:`check_attributes`."""
        check_attributes(self._repository)
        if left := self._existing():
            for lock in ("index.lock", "HEAD.lock"):  # of a git that was killed: none is running
                (left.admin / lock).unlink(missing_ok=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None and not self._keep:
            self.remove()

    @property
    def trees(self) -> Trees:
        """What differs between the sources of commits."""
        return Trees(self._repository)

    @property
    def path(self) -> Path:
        """Where the sources are."""
        return WorktreePurpose.SOURCE.path(self._run_dir)

    def checkout(self, commit: Commit, deadline_s: float = 1800.0) -> Path:
        """Make the tree exactly that of ``commit``, without any other file; its path.

        A worktree in which that fails is removed once and added anew: git syncs no index by default (git-config(1),
        "core.fsync"), so after a power cut it, or HEAD, may be cut off or full of zeros.
        Raises :class:`InfraError` when the disk is full, and when the files of a partial clone cannot be fetched, and
        :class:`UserError` as git's configuration may make it (:func:`_without_filters`).
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
        if settings.status not in (0, 1):  # a damaged worktree answers nothing
            return settings
        options, umask = _without_filters(settings.stdout), build_user.umask()
        answer = worktree.git(*words, options=options, ok=None, deadline_s=deadline_s, umask=umask)
        if answer.status == 0:
            answer = worktree.git("clean", "-ffdxq", ok=None, deadline_s=deadline_s)
        return answer

    def _may_be_damaged(self, worktree: Worktree) -> bool:
        """Whether a new worktree may do what this one failed to do; of a partial clone it is mostly the network."""
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
    """Raise :class:`UserError` where ``info/attributes``, which no setting turns off, changes what is checked out."""
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
    # Since git 2.43: attributes of some tree instead of those of the files.
    if repository.ask("config", "--get", "attr.tree", ok=(0, 1)).status == 0:
        found.append(("git's configuration", "attr.tree"))
    for place, attribute in found:
        raise UserError(
            f"{place} sets {attribute}, so sources that are checked out would not be those of their commits",
            f"remove it, or: git clone --shared {repository.top} COPY, then run with --repo COPY",
        )


def _without_filters(settings: str) -> tuple[str, ...]:
    """The options of git by which no filter of a person's configuration is run (git-config(1), "filter").

    A tree may name a filter, and git-lfs, for one, is configured for all of a person's repositories: whether its
    program is there must not decide what is built, and a program of theirs is none of a build. ``settings`` is what
    git says to :data:`_SETTINGS` in the checkout itself: a configuration may include another one for some git
    directories only ("includeIf"). Raises :class:`UserError` where no option can be given, or would help.
    """
    keys = [key for key in settings.split("\0") if key]
    # git takes all that comes before the first "=" of -c for the name.
    if odd := next((key for key in keys if key == "attr.tree" or "=" in key), None):
        raise UserError(
            f"git's configuration sets {odd}, so sources that are checked out may not be those of their commits",
            f"git config --show-origin --get-all '{odd}' says where; remove it there",
        )
    drivers = dict.fromkeys(key.rpartition(".")[0] for key in keys)
    without = (f"{driver}.{name}={value}" for driver in drivers for name, value in _DRIVER_SETTINGS)
    return tuple(word for setting in without for word in ("-c", setting))
