"""Commits on their way: fetched from remotes, pushed to a host that measures, and bundled for a guest.

Fetches write only below ``refs/by-bisector/nightly/NAME`` (git-fetch(1)): a person's branches, remote-tracking
branches, tags and FETCH_HEAD stay as they are, whatever else their configuration wants fetched. Wherever a remote is
shown, in a report, a letter, the history of nights or the repository itself, it is shown without secrets.

A trial needs a commit, its tree and the files of the tree, but no ancestor, and the history of Linux takes 2 to 5 GB.
So each commit is pushed from a repository in which it has no parents, and is kept under its own hash as `git clone
--depth 1` keeps it (gitrepository-layout(5), "shallow"). Objects of a clone on the host may be borrowed (ibid.,
"objects/info/alternates"); that clone is never written. The coordinator can send everything again, so a damaged
repository is made anew; the caller ensures that only one git works in a host's repository at a time.

A guest that has no network gets a bundle with the files of one tree, which is made once and kept in a cache. A bundle
of a commit from a real history would contain that history, and a bundle of a shallow clone is not complete without it.
So a commit without parents is made for the tree, in a separate repository that borrows the person's objects: the
person's repository is only read.
"""

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from bisector.config import Settings
from bisector.core import resources
from bisector.core.deadline import retried
from bisector.core.errors import InfraError, UserError
from bisector.core.subject import Commit
from bisector.core.units import size
from bisector.git.repository import REFERENCES, GitAnswer, GitRunner, Repository, commit_text, enclosing_repository
from bisector.host import process
from bisector.host.files import our_files, remove_tree, write_atomically
from bisector.workload.base import Clone

_TRANSFER_S = 3600.0  # long enough for the first fetch, or push, of a whole tree

# Of remotes
_NAMESPACE = f"{REFERENCES}/nightly"
_SOURCE = "source"
_ASK_S = 60.0
_BETWEEN_ATTEMPTS_S = (5.0, 10.0)
_ONLY_WHAT_IS_NAMED = (
    *("--quiet", "--no-tags", "--refmap=", "--no-write-fetch-head"),
    *("--no-prune", "--no-prune-tags", "--no-recurse-submodules"),
)
_MAIN_BRANCHES = ("master", "main")
# Trees that have names of their own, by owner and repository; other trees are called OWNER-NAME.
_KNOWN = {
    "torvalds/linux": "linus",
    "next/linux-next": "linux-next",
    "stable/linux": "stable",
    "stable/linux-stable": "stable",
}
_PATH = re.compile(r"(?:^|[/:])([^/:]+)/([^/:]+?)(?:\.git)?/*$")
_WITH_SCHEME = re.compile(
    r"(?P<scheme>(?:[\w.+-]+::)*[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)"
)

# Of a host's repository
SOURCES = "sources.git"
_SENT = f"{REFERENCES}/sent"
_USED = "bisector"  # a directory with a file for each run, whose mtime is the run's last use
_MOST_PACKS = 50  # the default of gc.autoPackLimit (git-config(1))
_FARTHEST = 1 << 17  # mainline has 90,000 commits along first parents
_COLLECT_S = 1800.0
# A reference that a power failure has emptied would have to be removed by hand. By default only objects are synced.
_ON_DISK = ("-c", "core.fsync=committed,reference")
# Set against the host's own configuration: no hooks, no background work, and no line for each tag of a borrowed clone.
_RECEIVE = (
    *("-c", "core.hooksPath=/dev/null", "-c", "receive.autogc=false", "-c", "receive.shallowUpdate=true"),
    *("-c", "receive.unpackLimit=1"),  # keep packs: a kernel tree has 70,000 files
    *("-c", "core.alternateRefsCommand=true", "-c", "transfer.hideRefs=refs"),
)

# Of bundles
_KEPT_BUNDLES = 4
_BLOCK_BYTES = 4096
_BUNDLE_NAME = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\.bundle")  # the hash of the tree
_REFERENCE = "refs/heads/tree"
_KEY = "workload.gitgrep"


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of a remote (a name, a URL or a path); ``name`` is part of the references that keep what is fetched."""

    repository: Repository
    name: str
    remote: str
    branch: str

    @property
    def shown(self) -> str:
        """The remote, without secrets, for people."""
        return without_secrets(self.remote)

    @property
    def _references(self) -> str:
        return f"{_NAMESPACE}/{self.name}"

    def fetch(self, *, tags: bool = False) -> Commit:
        """Fetch the branch, with ``tags`` also all tags, and return its tip.

        Raises :class:`UserError` if there is no such branch, and :class:`InfraError` if the remote does not answer.
        """
        # Remove the locks that a killed fetch left on the references of this branch.
        for lock in (self.repository.common_dir / self._references).rglob("*.lock"):
            lock.unlink(missing_ok=True)
        specs = [f"+refs/heads/{self.branch}:{self._references}/tip"]
        specs += [f"+refs/tags/*:{self._references}/tags/*"] if tags else []
        words = ("fetch", *_ONLY_WHAT_IS_NAMED, "--", self.remote, *specs)
        retried(lambda: self._attempt(words), InfraError, _BETWEEN_ATTEMPTS_S)
        # The branch's source is kept as a blob beside its tip: reports read it to name the tree that a commit is from.
        url = self.repository.ask("config", "--get", f"remote.{self.remote}.url", ok=(0, 1)).stdout.strip()
        told = "\n".join((self.remote if url else "origin", without_secrets(url or self.remote), self.branch))
        blob = self.repository.ask("hash-object", "-w", "--stdin", stdin=told).stdout.strip()
        self.repository.ask("update-ref", f"{self._references}/{_SOURCE}", blob)
        return self.repository.resolve(f"{self._references}/tip")

    def _attempt(self, words: tuple[str, ...]) -> None:
        top = self.repository.top
        if self.repository.git(*words, at=top, ok=None, deadline_s=_TRANSFER_S).status != 0:
            self.remote_tip()  # raises the cause, if the remote or the branch is at fault
            raise InfraError(f"git could not fetch {self.branch} from {self.shown}", f"git -C {top} fetch {self.shown}")

    def remote_tip(self) -> str:
        """The hash of the branch's tip at the remote; fetches nothing. Raises as :meth:`fetch`, but tries only once."""
        top = self.repository.top
        words = ("ls-remote", "--exit-code", "--", self.remote, f"refs/heads/{self.branch}")
        answer = self.repository.git(*words, at=top, ok=None, deadline_s=_ASK_S)
        if answer.status == 0:
            return answer.stdout.split()[0]
        # git-ls-remote(1), --exit-code: "Exit with status "2" when no matching refs are found in the remote repository"
        if answer.status == 2:  # noqa: PLR2004 - git's number
            raise UserError(f"{self.shown} has no branch {self.branch}", f"git -C {top} ls-remote --heads {self.shown}")
        raise InfraError(f"the remote {self.shown} does not answer", f"git -C {top} ls-remote {self.shown}")

    def newest_tag(self, pattern: str, tip: Commit) -> tuple[str, Commit]:
        """The newest tag below ``tip`` that matches, and its commit; raises :class:`UserError` if there is none."""
        prefix = f"{self._references}/tags/"
        words = ("for-each-ref", "--sort=-creatordate", f"--merged={tip.sha}", "--format=%(refname)", prefix)
        for name in self.repository.ask(*words).lines:
            commit = self.repository.resolve(name)
            if fnmatchcase(name.removeprefix(prefix), pattern) and commit.sha != tip.sha:
                return name.removeprefix(prefix), commit
        raise UserError(
            f"no tag that matches {pattern} is below the tip {tip.short} of {self.branch}",
            'tags = "PATTERN" says which ones count; range = "last-good" needs none',
        )

    def keep_reference(self, sha: str) -> None:
        """Keep the commit that tips are compared with from git's garbage collection: the branch may be rebased."""
        self.repository.ask("update-ref", f"{self._references}/reference", sha)


def origin(repository: Repository, sha: str, job: str = "") -> tuple[str, str, str]:
    """Tree, branch and address that a commit is from: by a night's ``job``, by remotes, or the directory's name."""
    if job and (source := _source(repository, f"{_NAMESPACE}/{job}")) is not None:
        return source
    configured = repository.ask("config", "--get-regexp", r"^remote\..*\.url$", ok=(0, 1)).lines
    pairs = (line.partition(" ")[::2] for line in configured)
    urls = {key.removeprefix("remote.").removesuffix(".url"): without_secrets(url) for key, url in pairs}
    refs = repository.ask("for-each-ref", "--format=%(refname:lstrip=2)", f"--contains={sha}", "refs/remotes").lines
    found = [(remote, ref[len(remote) + 1 :]) for ref in refs for remote in urls if ref.startswith(f"{remote}/")]
    branches = [(tree_name(urls[remote], remote), branch, urls[remote]) for remote, branch in found if branch != "HEAD"]
    words = ("for-each-ref", "--format=%(refname)", f"--contains={sha}", f"{_NAMESPACE}/*/tip")
    for ref in repository.ask(*words).lines:
        if (source := _source(repository, ref.removesuffix("/tip"))) is not None:
            branches.append(source)
    if not branches:
        return repository.top.name.removesuffix(".git"), "", ""
    trees, mains = list(dict.fromkeys(_KNOWN.values())), list(_MAIN_BRANCHES)
    return min(branches, key=lambda one: ([*trees, one[0]].index(one[0]), [*mains, one[1]].index(one[1])))


def tree_name(url: str, remote: str) -> str:
    """A tree's short name: ``linus`` for Linus Torvalds' tree from any server; the remote's name if that says more."""
    path = _PATH.search(url)
    if path is None or path[1] in (".", ".."):
        return remote
    owner, name = path[1], path[2]
    if f"{owner}/{name}" in _KNOWN:
        return _KNOWN[f"{owner}/{name}"]
    if remote != "origin":
        return remote
    return owner if name == "linux" else f"{owner}-{name}"


def without_secrets(remote: str) -> str:
    """A remote's name, path or URL without user, password, query and fragment (RFC 3986, 3).

    The program that understands a URL may precede it (``hg::https://…``, gitremote-helpers(7)). A server may take a
    token as a password or in the query (``?private_token=…``), and readers of a report must not get it.
    """
    found = _WITH_SCHEME.match(remote)
    if found is None:  # a name, a path, or HOST:PATH, which has no place for a password
        return remote
    host = found["authority"].rpartition("@")[2]
    return f"{found['scheme']}://{host}{found['path']}"


def _source(repository: Repository, references: str) -> tuple[str, str, str] | None:
    """Tree, branch and address of what was fetched below these references; None if they were not recorded."""
    answer = repository.ask("cat-file", "blob", f"{references}/{_SOURCE}", ok=None)
    match answer.stdout.split("\n", 2):
        case [remote, url, branch] if answer.status == 0 and branch:
            return tree_name(url, remote), branch, without_secrets(url)
    return None


# A host that measures


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
    git(*words, at=sender.parent, where=where, deadline_s=_TRANSFER_S)


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


# Bundles


def bundled(settings: Settings, repository: Repository) -> Settings:
    """The settings with the workload's bundle, made if need be; :class:`UserError` for a missing or too large tree."""
    workload = settings.workload
    clone = workload.workload.clone()
    if clone is None:
        return settings
    source = repository if clone.repository is None else Repository.open(clone.repository)
    made = _made(source, clone, resources.cache_home() / "clones")
    return replace(settings, workload=workload.with_inputs({clone.field: made}))


def is_made(file: Path) -> bool:
    """Whether a bundle was made by bisector rather than given: known by its name, which the copy in a run keeps."""
    return _BUNDLE_NAME.fullmatch(file.name) is not None


def _made(repository: Repository, clone: Clone, cache: Path) -> Path:
    tree = _tree(repository, clone)
    if repository.partial:  # git would fetch the missing files one by one (git-rev-list(1), "--missing")
        words = ("rev-list", "--objects", "--no-object-names", "--missing=print", tree)
        if any(line.startswith("?") for line in repository.ask(*words).lines):
            message = f"{repository.top} is a partial clone, and lacks files of the tree that is to be cloned"
            raise UserError(message, f"name a full clone with {_KEY}.repository")
    # The disk space of the checked out files.
    files = (line.split("\t")[0].split() for line in repository.ask("ls-tree", "-r", "-l", tree).lines)
    sizes = (int(found[3]) for found in files if found[3].isdecimal())  # a submodule has no size
    files_bytes = sum(-(-one // _BLOCK_BYTES) * _BLOCK_BYTES for one in sizes)
    bundle = cache / f"{tree}.bundle"
    with our_files(cache):
        cache.mkdir(parents=True, exist_ok=True)
        if bundle.exists():
            os.utime(bundle)
        else:
            with tempfile.TemporaryDirectory(dir=cache, prefix="making-") as place:
                _make(repository, tree, Path(place)).rename(bundle)
            # A run keeps a copy of the bundle that it was started with, so old bundles can go.
            for old in sorted(cache.glob("*.bundle"), key=lambda path: path.stat().st_mtime)[:-_KEPT_BUNDLES]:
                old.unlink(missing_ok=True)
        needed = files_bytes + 2 * bundle.stat().st_size  # beside the files: the pack, and a copy while it arrives
    if needed > clone.most_bytes:
        raise UserError(
            f"a clone of {clone.revision}:{clone.path} has {size(needed)}, and {_KEY}.size is {size(clone.most_bytes)}",
            f"choose a smaller {_KEY}.path, or a larger {_KEY}.size and disks with room for it",
        )
    return bundle


def _tree(repository: Repository, clone: Clone) -> str:
    commit = repository.resolve(clone.revision)
    if not clone.path:
        return commit.tree
    answer = repository.ask("rev-parse", "--verify", "--quiet", f"{commit.sha}:{clone.path}", ok=None)
    tree = answer.stdout.strip()
    if answer.status != 0 or repository.ask("cat-file", "-t", tree).stdout.strip() != "tree":
        raise UserError(
            f"{commit.short} has no directory {clone.path!r} to clone",
            f"{_KEY}.path is one of it, or empty for all of it",
        )
    return tree


def _make(repository: Repository, tree: str, place: Path) -> Path:
    git, made = repository.git, place / "repository"
    git("init", "--quiet", "--bare", "--template=", os.fspath(made), at=place)
    borrow(made, repository.common_dir / "objects")
    text = commit_text(tree, (), 0, "the files of one tree")
    commit = git("hash-object", "-t", "commit", "-w", "--stdin", at=made, stdin=text).stdout.strip()
    git("update-ref", _REFERENCE, commit, at=made)
    git("symbolic-ref", "HEAD", _REFERENCE, at=made)
    bundle = place / "bundle"
    git("bundle", "create", "--quiet", os.fspath(bundle), "HEAD", _REFERENCE, at=made)
    return bundle
