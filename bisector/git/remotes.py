"""Remotes of the repository: new commits are fetched from them, and the origin of a commit is named after them.

Fetches write only below ``refs/by-bisector/nightly/NAME`` (git-fetch(1)): a person's branches, remote-tracking
branches, tags and FETCH_HEAD stay as they are, whatever else their configuration wants fetched. The origin of a commit
is given in the words of kernel robots: a tree's short name and a branch. Wherever a remote is shown, in a report, a
letter, the history of nights or the repository itself, it is shown without secrets.
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
_FETCH_S = 3600.0  # long enough for the first fetch of a whole tree
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
        if self.repository.git(*words, at=top, ok=None, deadline_s=_FETCH_S).status != 0:
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
