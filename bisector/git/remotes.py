"""Remotes of the repository: new commits are fetched from them, and a commit is said to come from one of them.

Commits are fetched below ``refs/by-bisector/nightly/NAME`` alone (git-fetch(1)): a person's branches, remote-tracking
branches, tags and FETCH_HEAD stay as they are, whatever their configuration wants fetched besides. Where a commit
comes from is said in the words of kernel robots, by a tree's short name and a branch of it. Wherever a remote is
shown, in a report, a letter, the history of nights or the repository itself, it is shown without secrets.
"""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from bisector.core.deadline import retried
from bisector.core.errors import InfraError, UserError
from bisector.core.subject import Commit
from bisector.git.repository import REFERENCES, Repository

_NAMESPACE = f"{REFERENCES}/nightly"
_SOURCE = "source"
_FETCH_S = 3600.0  # a first fetch of a whole tree
_ASK_S = 60.0
_BETWEEN_ATTEMPTS_S = (5.0, 10.0)
_ONLY_WHAT_IS_NAMED = (
    *("--quiet", "--no-tags", "--refmap=", "--no-write-fetch-head"),
    *("--no-prune", "--no-prune-tags", "--no-recurse-submodules"),
)
_MAIN_BRANCHES = ("master", "main")
# Trees that have a name of their own, by owner and repository; others are OWNER-NAME.
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


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of a remote (a name, a URL or a path), kept under references of ``name``."""

    repository: Repository
    name: str
    remote: str
    branch: str

    @property
    def shown(self) -> str:
        """The remote, for people."""
        return without_secrets(self.remote)

    @property
    def _references(self) -> str:
        return f"{_NAMESPACE}/{self.name}"

    def fetch(self, *, tags: bool = False) -> Commit:
        """The tip, with ``tags`` all tags; :class:`UserError` for no such branch, :class:`InfraError` for no answer."""
        # Remove the locks that a killed fetch left on the references of this branch.
        for lock in (self.repository.common_dir / self._references).rglob("*.lock"):
            lock.unlink(missing_ok=True)
        specs = [f"+refs/heads/{self.branch}:{self._references}/tip"]
        specs += [f"+refs/tags/*:{self._references}/tags/*"] if tags else []
        words = ("fetch", *_ONLY_WHAT_IS_NAMED, "--", self.remote, *specs)
        retried(lambda: self._attempt(words), InfraError, _BETWEEN_ATTEMPTS_S)
        # Where the branch is from, as a blob beside its tip: for reports, which say whose tree a commit is of.
        url = self.repository.ask("config", "--get", f"remote.{self.remote}.url", ok=(0, 1)).stdout.strip()
        told = "\n".join((self.remote if url else "origin", without_secrets(url or self.remote), self.branch))
        blob = self.repository.ask("hash-object", "-w", "--stdin", stdin=told).stdout.strip()
        self.repository.ask("update-ref", f"{self._references}/{_SOURCE}", blob)
        return self.repository.resolve(f"{self._references}/tip")

    def _attempt(self, words: tuple[str, ...]) -> None:
        top = self.repository.top
        if self.repository.git(*words, at=top, ok=None, deadline_s=_FETCH_S).status != 0:
            self.remote_tip()  # says what is wrong, where it is the remote or the branch
            raise InfraError(f"git could not fetch {self.branch} from {self.shown}", f"git -C {top} fetch {self.shown}")

    def remote_tip(self) -> str:
        """The hash of the branch's tip at the remote, nothing fetched. Raises as :meth:`fetch`, without attempts."""
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
        """The tag made last of those below ``tip`` that match; raises :class:`UserError` when there is none."""
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
        """Hold the commit that tips are compared with: a rebased branch would leave it to git's garbage collection."""
        self.repository.ask("update-ref", f"{self._references}/reference", sha)


def origin(repository: Repository, sha: str, job: str = "") -> tuple[str, str, str]:
    """Tree, branch and address of what has a commit: by a night's ``job``, by remotes, else the directory's name."""
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
    return min(branches, key=lambda one: (one[0] not in _KNOWN.values(), one[1] not in _MAIN_BRANCHES))


def tree_name(url: str, remote: str) -> str:
    """``linus`` for Linus Torvalds' tree from wherever it was cloned; a remote's own name where that says more."""
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

    Before a URL may be the program that understands it (``hg::https://…``, gitremote-helpers(7)).
    A server may take a token as a password or in the query (``?private_token=…``), and whoever gets a report must not.
    """
    found = _WITH_SCHEME.match(remote)
    if found is None:  # a name, a path, or HOST:PATH, which has no place for a password
        return remote
    host = found["authority"].rpartition("@")[2]
    return f"{found['scheme']}://{host}{found['path']}"


def _source(repository: Repository, references: str) -> tuple[str, str, str] | None:
    """Tree, branch and address of what was fetched below these references; None where nobody wrote it down."""
    answer = repository.ask("cat-file", "blob", f"{references}/{_SOURCE}", ok=None)
    match answer.stdout.split("\n", 2):
        case [remote, url, branch] if answer.status == 0 and branch:
            return tree_name(url, remote), branch, without_secrets(url)
    return None
