"""The repository of a host that measures for others: the commits that were pushed to it, each without its history.

A trial needs a commit, its tree and the files of the tree, but no ancestor. So each commit is pushed from a repository
in which it has no parents, and is kept under its own hash as `git clone --depth 1` keeps it (gitrepository-layout(5),
"shallow"): the first commit of Linux 6.1 takes 0.3 GB and the next one 2 kB, while the history takes 2 to 5 GB. Objects
of a clone on the host may be borrowed (ibid., "objects/info/alternates"); that clone is never written.

The coordinator can send everything again, so a damaged repository is made anew. The next git removes what a killed git
left; the caller ensures that only one git works here at a time.
"""

import hashlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bisector.core.errors import UserError
from bisector.git.command import GitAnswer, GitRunner, enclosing_repository
from bisector.git.repository import REFERENCES, Repository
from bisector.host import process
from bisector.host.files import remove_tree, write_atomically

SOURCES = "sources.git"
_SENT = f"{REFERENCES}/sent"
_USED = "bisector"  # a directory with a file for each run, whose mtime is the run's last use
_MOST_PACKS = 50  # the default of gc.autoPackLimit (git-config(1))
_FARTHEST = 1 << 17  # mainline has 90,000 commits along first parents
_PUSH_S = 3600.0
_COLLECT_S = 1800.0
# A reference that a power failure has emptied would have to be removed by hand. By default only objects are synced.
_ON_DISK = ("-c", "core.fsync=committed,reference")
# Set against the host's own configuration: no hooks, no background work, and no line for each tag of a borrowed clone.
_RECEIVE = (
    *("-c", "core.hooksPath=/dev/null", "-c", "receive.autogc=false", "-c", "receive.shallowUpdate=true"),
    *("-c", "receive.unpackLimit=1"),  # keep packs: a kernel tree has 70,000 files
    *("-c", "core.alternateRefsCommand=true", "-c", "transfer.hideRefs=refs"),
)


@dataclass(frozen=True, slots=True)
class Mirror:
    """The repository at ``path``, which may borrow objects; its methods raise :class:`InfraError` and ``OSError``."""

    path: Path
    borrowed: Path | None = None
    git: GitRunner = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "git", GitRunner(self.path))

    def prepare(self) -> None:
        """Create the repository if it is missing or damaged; raises :class:`UserError` without objects to borrow.

        A git that outlived the process that started it is ended first: its files would be removed while it writes them.
        """
        process.reap(self.path)
        objects = None if self.borrowed is None else objects_of(self.borrowed)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._ask("rev-parse", "--is-bare-repository", ok=None).stdout.strip() != "true":
            new = self.path.with_name(f"{self.path.name}.new")
            for place in (self.path, new):
                remove_tree(place)
            self.git("init", "--quiet", "--bare", "--template=", os.fspath(new), at=new.parent)
            new.rename(self.path)
        borrow(self.path, objects)
        # Remove what a killed git has left.
        names = ("objects/pack/tmp_*", f"{_SENT}/**/*.lock", "packed-refs.lock", "shallow.lock", "gc.pid*")
        for left in (path for name in names for path in self.path.glob(name)):
            left.unlink(missing_ok=True)

    def has(self, sha: str) -> bool:
        """Whether a commit is here with all its files, including borrowed ones."""
        return self._ask("rev-list", "--objects", "--quiet", f"{sha}^{{tree}}", "--", ok=None).status == 0

    def known(self, run: str) -> tuple[str, ...]:
        """The hashes of the commits that are kept for a run."""
        return tuple(name.rpartition("/")[2] for name in self._references(references(run)))

    def keep(self, run: str, sha: str) -> None:
        """Keep a commit that is here until its run is released, and make git look for no parent of it."""
        shallow = self.path / "shallow"
        known = shallow.read_text(encoding="ascii").split() if shallow.exists() else []
        if sha not in known:
            write_atomically(shallow, "".join(f"{one}\n" for one in (*known, sha)).encode())
        self._ask("update-ref", f"{references(run)}/{sha}", sha)

    def release(self, run: str) -> None:
        """Release the commits of a run; some of them may be damaged."""
        self._delete(self._references(references(run)))

    def use(self, run: str) -> None:
        """Note that a run is working here, for :meth:`release_unused`."""
        (self.path / _USED).mkdir(exist_ok=True)
        (self.path / _USED / _digest(run)).touch()

    def receive(self, run: str) -> int:
        """Serve `git push` of a run's commits on standard input and output; the exit status of git-receive-pack(1).

        Git computes the hash of each object anew, so each object is what its name says. Other faults that git-fsck(1)
        would find are accepted: old histories have some, and a host has to build what the coordinator builds. Whether a
        commit is complete is asked afterwards (:meth:`has`).
        """
        own = ("-c", f"transfer.hideRefs=!{references(run)}")
        words = ("git", *_ON_DISK, *_RECEIVE, *own, "receive-pack", os.fspath(self.path))
        child = os.posix_spawnp("git", words, {**os.environ, **process.mark(self.path)})
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def release_unused(self, seconds: float) -> None:
        """Release runs not used for so long, and collect many packs (git-gc(1)); nothing else may read meanwhile."""
        used = {path.name: path.stat().st_mtime for path in (self.path / _USED).glob("*")}
        oldest = time.time() - seconds
        self._delete(name for name in self._references(_SENT) if used.get(name.split("/")[-2], 0.0) < oldest)
        for digest, at in used.items():
            if at < oldest:
                (self.path / _USED / digest).unlink(missing_ok=True)
        if len(list((self.path / "objects" / "pack").glob("*.pack"))) > _MOST_PACKS:
            self._ask("gc", "--quiet", "--prune=now", deadline_s=_COLLECT_S)

    def _references(self, below: str) -> tuple[str, ...]:
        return self._ask("for-each-ref", "--format=%(refname)", f"{below}/").lines

    def _delete(self, names: Iterable[str]) -> None:
        if commands := "".join(f"delete {name}\n" for name in names):
            self._ask("update-ref", "--stdin", stdin=commands)

    def _ask(
        self, *words: str, ok: tuple[int, ...] | None = (0,), stdin: str = "", deadline_s: float = 600.0
    ) -> GitAnswer:
        """Run git on this repository only: without --git-dir, git would also look in the directories above."""
        where = (f"--git-dir={self.path}", *_ON_DISK)
        return self.git(*words, at=self.path.parent, where=where, ok=ok, stdin=stdin, deadline_s=deadline_s)


@dataclass(frozen=True, slots=True)
class Address:
    """Where to push: a mirror's URL, the ssh(1) command to it, the command that receives, the run's references."""

    url: str
    ssh: str
    receive_pack: str
    below: str


def push(repository: Repository, sender: Path, sha: str, known: Iterable[str], to: Address) -> None:
    """Send a commit without its history to a mirror that has the commits ``known``; raises :class:`InfraError`."""
    git = GitRunner()
    if not sender.exists():
        git("init", "--quiet", "--bare", "--template=", os.fspath(sender), at=sender.parent)
        borrow(sender, objects_of(repository.top))
    asked = tuple(dict.fromkeys((sha, *known)))
    lines = repository.ask("cat-file", "--batch-check", stdin="".join(f"{one}\n" for one in asked)).lines
    here = [one for one, line in zip(asked, lines, strict=True) if line.startswith(f"{one} commit ")]
    write_atomically(sender / "shallow", "".join(f"{one}\n" for one in here).encode())
    where = (f"--git-dir={sender}", "-c", f"core.sshCommand={to.ssh}")
    words = ("push", "--quiet", f"--receive-pack={to.receive_pack}", to.url, f"{sha}:{to.below}/{sha}")
    git(*words, at=sender.parent, where=where, deadline_s=_PUSH_S)


def ancestors(repository: Repository, sha: str) -> tuple[str, ...]:
    """Some ancestors along first parents, at doubling distances; some clone elsewhere most likely has one of them."""
    line = repository.ask("rev-list", "--first-parent", f"--max-count={_FARTHEST}", sha).lines
    return tuple(line[1 << power] for power in range((len(line) - 1).bit_length()) if 1 << power < len(line))


def references(run: str) -> str:
    """The prefix of the references by which a mirror keeps the commits of a run."""
    return f"{_SENT}/{_digest(run)}"


def borrow(repository: Path, objects: Path | None) -> None:
    """Make a bare repository borrow from the directory ``objects``, or not borrow if it is None."""
    alternates = repository / "objects" / "info" / "alternates"
    content = b"" if objects is None else os.fsencode(objects) + b"\n"
    if content != (alternates.read_bytes() if alternates.exists() else b""):
        alternates.parent.mkdir(exist_ok=True)
        write_atomically(alternates, content)


def objects_of(path: Path) -> Path:
    """The objects of the repository around ``path``, whoever owns it; raises :class:`UserError` if there is none."""
    found = enclosing_repository(path) if path.is_dir() else None
    if found is not None:
        where = (f"--git-dir={found[0]}",)
        answer = GitRunner()("rev-parse", "--git-path", "objects", at=path, where=where, ok=None)
        objects = path / answer.stdout.strip()
        if answer.status == 0 and objects.is_dir():
            return objects.resolve()
    raise UserError(
        f"{path} is not a git repository to borrow objects from", 'repository = "…" in hosts.toml names a clone there'
    )


def _digest(run: str) -> str:
    """A name for git: a run's own name may not be a valid reference (git-check-ref-format(1))."""
    return hashlib.sha256(run.encode()).hexdigest()[:16]
