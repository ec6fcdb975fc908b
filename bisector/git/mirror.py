"""The repository of a host that works for others: the commits that it was sent, each without its history.

What a trial does on a host needs a commit, its tree and the files of that: they are checked out and built, and trees
are compared where they are there (:mod:`bisector.git.source_tree`, :mod:`bisector.git.trees`). Nobody asks for an
ancestor: the release of a kernel is pinned, so kbuild does not ask git for it either. So each commit is kept as `git
clone --depth 1` keeps it, as one of the shallow boundary (gitrepository-layout(5), "shallow"), with its own hash.
A made commit without parents, as :mod:`bisector.git.bundle` makes them, would have another hash than the record says.
All that leads to the commit would be 2 to 5 GB for a kernel's history, where one commit of Linux 6.1 is 0.3 GB, once,
and the next one what differs from it: 2 kB between two commits that are eight apart.

Objects of a clone that the host has may be borrowed (gitrepository-layout(5), "objects/info/alternates"): that clone is
read and never written, and where it is gone its objects are sent anew.

What is here can be had again from the coordinator, so a repository that is damaged is made anew. Nothing that is killed
leaves it useless: it appears by rename(2), and so do packs and references in it, as git makes them. What a killed git
leaves, its temporary files and locks, is removed by the next one, which is the only one: the caller sees to that.
"""

import hashlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bisector.core.errors import UserError
from bisector.git.command import GitAnswer, GitRunner, enclosing_repository
from bisector.git.repository import REFERENCES
from bisector.host import process
from bisector.host.files import remove_whole, write_whole

_SENT = f"{REFERENCES}/sent"
_USED = "bisector"  # in it a file for each run, whose time is that of the run's last use
_MOST_KNOWN = 256
_MOST_PACKS = 50  # as gc.autoPackLimit has it (git-config(1))
_TAKE_S = 3600.0
_COLLECT_S = 1800.0
# A reference that a power failure has emptied would have to be removed by hand; objects are on the disk by default.
_ON_DISK = ("-c", "core.fsync=committed,reference")


@dataclass(frozen=True, slots=True)
class Mirror:
    """The repository at ``path``, which borrows the objects of the repository that ``borrowed`` is in, if any.

    Raises :class:`bisector.core.errors.InfraError` for what git refuses, and ``OSError``.
    """

    path: Path
    borrowed: Path | None = None
    git: GitRunner = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "git", GitRunner(self.path))

    def prepare(self) -> None:
        """Make it, where it is missing or damaged. Raises :class:`UserError` for nothing to borrow from.

        A git that outlives the process that started it is ended first: what it writes would be removed under it.
        """
        process.reap(self.path)
        objects = None if self.borrowed is None else objects_of(self.borrowed)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._ask("rev-parse", "--is-bare-repository", ok=None).stdout.strip() != "true":
            new = self.path.with_name(f"{self.path.name}.new")
            for place in (self.path, new):
                remove_whole(place)
            self.git("init", "--quiet", "--bare", "--template=", os.fspath(new), at=new.parent)
            new.rename(self.path)
        alternates = self.path / "objects" / "info" / "alternates"
        content = b"" if objects is None else os.fsencode(objects) + b"\n"
        if content != (alternates.read_bytes() if alternates.exists() else b""):
            alternates.parent.mkdir(exist_ok=True)
            write_whole(alternates, content)
        # Remove what a git that was killed here has left.
        names = ("objects/pack/tmp_*", f"{_SENT}/**/*.lock", "packed-refs.lock", "shallow.lock", "gc.pid*")
        for left in (path for name in names for path in self.path.glob(name)):
            left.unlink(missing_ok=True)

    def has(self, sha: str) -> bool:
        """Whether a commit is here with all its files, the borrowed ones included."""
        return self._ask("rev-list", "--objects", "--quiet", f"{sha}^{{tree}}", "--", ok=None).status == 0

    def first(self, shas: Iterable[str]) -> str:
        """The first of some commits that is here with all its files; empty when none is."""
        return next((sha for sha in shas if self.has(sha)), "")

    def known(self) -> tuple[str, ...]:
        """Commits that were sent, and are kept."""
        return tuple(dict.fromkeys(name.rpartition("/")[2] for name in self._references(_SENT)))[:_MOST_KNOWN]

    def keep(self, run: str, sha: str) -> None:
        """Keep a commit that is here until its run is let go of."""
        used = self._used(run)
        used.parent.mkdir(exist_ok=True)
        used.touch()
        # Have git look for no parent of a commit, which may not be here.
        shallow = self.path / "shallow"
        known = shallow.read_text(encoding="ascii").split() if shallow.exists() else []
        if sha not in known:
            write_whole(shallow, "".join(f"{one}\n" for one in (*known, sha)).encode())
        self._ask("update-ref", f"{_of(run)}/{sha}", sha)

    def take(self, pack: Path) -> None:
        """Add the objects of a pack; its deltas may be against what is here (git-index-pack(1), ``--fix-thin``).

        Git computes the hash of each object anew, so none is another one than its name says. What git-fsck(1) would
        find fault with beyond that (``--strict``) is not refused: old histories have some, git checks them out, and
        a host has to build what the coordinator builds. Whether a commit is whole is asked afterwards (:meth:`has`).
        """
        self._ask("index-pack", "--stdin", "--fix-thin", stdin=pack, deadline_s=_TAKE_S)

    def release(self, run: str) -> None:
        """Let go of the commits of a run."""
        self._delete(self._references(_of(run)))
        self._used(run).unlink(missing_ok=True)

    def abandon(self, run: str) -> None:
        """Have the commits of a run be let go of by the next :meth:`release_unused`; beside whatever git does here."""
        self._used(run).unlink(missing_ok=True)

    def release_unused(self, seconds: float) -> None:
        """Let go of runs that nothing was sent for in that time: the coordinator may be gone for good."""
        used = {path.name: path.stat().st_mtime for path in (self.path / _USED).glob("*")}
        oldest = time.time() - seconds
        names = [name for name in self._references(_SENT) if used.get(name.split("/")[-2], 0.0) < oldest]
        self._delete(names)
        for digest, at in used.items():
            if at < oldest:
                (self.path / _USED / digest).unlink(missing_ok=True)

    def collect(self) -> None:
        """Forget what no run keeps, once there are many packs; nothing else may read meanwhile (git-gc(1))."""
        if len(list((self.path / "objects" / "pack").glob("*.pack"))) > _MOST_PACKS:
            self._ask("gc", "--quiet", "--prune=now", deadline_s=_COLLECT_S)

    def _references(self, below: str) -> tuple[str, ...]:
        return self._ask("for-each-ref", "--format=%(refname)", f"{below}/").lines

    def _delete(self, names: Iterable[str]) -> None:
        if commands := "".join(f"delete {name}\n" for name in names):
            self._ask("update-ref", "--stdin", stdin=commands)

    def _used(self, run: str) -> Path:
        return self.path / _USED / _digest(run)

    def _ask(
        self, *words: str, ok: tuple[int, ...] | None = (0,), stdin: str | Path = "", deadline_s: float = 600.0
    ) -> GitAnswer:
        """Here and nowhere else: git would look for a repository in the directories above."""
        where = (f"--git-dir={self.path}", *_ON_DISK)
        return self.git(*words, at=self.path.parent, where=where, ok=ok, stdin=stdin, deadline_s=deadline_s)


def objects_of(path: Path) -> Path:
    """The directory of objects of the repository that a path is in; whoever owns it, since it is only read.

    Raises :class:`UserError` where there is none.
    """
    found = enclosing_repository(path) if path.is_dir() else None
    if found is not None:
        where = (f"--git-dir={found[0]}",)
        answer = GitRunner()("rev-parse", "--git-path", "objects", at=path, where=where, ok=None)
        objects = path / answer.stdout.strip()
        if answer.status == 0 and objects.is_dir():
            return objects.resolve()
    raise UserError(
        f"{path} is no git repository to borrow objects from", "--repo DIRECTORY names a clone; or leave it out"
    )


def _of(run: str) -> str:
    return f"{_SENT}/{_digest(run)}"


def _digest(run: str) -> str:
    """A name for git: that of a run may be none (git-check-ref-format(1))."""
    return hashlib.sha256(run.encode()).hexdigest()[:16]
