"""New commits of a remote, fetched below ``refs/by-bisector/nightly/NAME`` alone (git-fetch(1)).

A person's branches, remote-tracking branches, tags and FETCH_HEAD stay as they are, whatever their
configuration wants fetched besides.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from bisector.core.commit import Commit
from bisector.core.errors import InfraError, UserError
from bisector.git.references import OURS
from bisector.git.remotes import without_secrets
from bisector.git.repository import Repository
from bisector.host.retry import retried

NAMESPACE = f"{OURS}/nightly"
_SOURCE = "source"
_FETCH_S = 3600.0  # a first fetch of a whole tree
_ASK_S = 60.0
_BETWEEN_ATTEMPTS_S = (5.0, 10.0)
_ONLY_WHAT_IS_NAMED = (
    *("--quiet", "--no-tags", "--refmap=", "--no-write-fetch-head"),
    *("--no-prune", "--no-prune-tags", "--no-recurse-submodules"),
)


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag's name and its commit."""

    name: str
    commit: Commit


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
        return f"{NAMESPACE}/{self.name}"

    def fetch(self, *, tags: bool = False) -> Commit:
        """The tip of the branch, and with ``tags`` all tags, here now.

        Raises :class:`UserError` when there is no such branch, :class:`InfraError` when the remote does not
        answer, after several attempts.
        """
        self._unlock()
        specs = [f"+refs/heads/{self.branch}:{self._references}/tip"]
        specs += [f"+refs/tags/*:{self._references}/tags/*"] if tags else []
        words = ("fetch", *_ONLY_WHAT_IS_NAMED, "--", self.remote, *specs)
        retried(lambda: self._attempt(words), InfraError, _BETWEEN_ATTEMPTS_S)
        self._note_source()
        return self.repository.resolve(f"{self._references}/tip")

    def _attempt(self, words: tuple[str, ...]) -> None:
        top = self.repository.top
        if self.repository.git(*words, at=top, ok=None, deadline_s=_FETCH_S).status != 0:
            self.remote_tip()  # says what is wrong, where it is the remote or the branch
            raise InfraError(f"git could not fetch {self.branch} from {self.shown}", f"git -C {top} fetch {self.shown}")

    def _note_source(self) -> None:
        """Where the branch is from, as a blob beside its tip: for reports, which say whose tree a commit is of."""
        url = self.repository.ask("config", "--get", f"remote.{self.remote}.url", ok=(0, 1)).stdout.strip()
        told = "\n".join((self.remote if url else "origin", without_secrets(url or self.remote), self.branch))
        blob = self.repository.ask("hash-object", "-w", "--stdin", stdin=told).stdout.strip()
        self.repository.ask("update-ref", f"{self._references}/{_SOURCE}", blob)

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

    def newest_tag(self, pattern: str, tip: Commit) -> Tag:
        """The tag made last of those below ``tip`` that match; raises :class:`UserError` when there is none."""
        prefix = f"{self._references}/tags/"
        words = ("for-each-ref", "--sort=-creatordate", f"--merged={tip.sha}", "--format=%(refname)", prefix)
        for name in self.repository.ask(*words).lines:
            commit = self.repository.resolve(name)
            if fnmatchcase(name.removeprefix(prefix), pattern) and commit.sha != tip.sha:
                return Tag(name.removeprefix(prefix), commit)
        raise UserError(
            f"no tag that matches {pattern} is below the tip {tip.short} of {self.branch}",
            'tags = "PATTERN" says which ones count; range = "last-good" needs none',
        )

    def keep(self, commits: dict[str, str]) -> None:
        """Hold commits (by a word each) that a rebased branch would leave to git's garbage collection."""
        for word, sha in commits.items():
            self.repository.ask("update-ref", f"{self._references}/{word}", sha)

    def _unlock(self) -> None:
        """Remove the locks that a killed fetch of ours left on our own references."""
        for lock in self._locks():
            lock.unlink(missing_ok=True)

    def _locks(self) -> Iterator[Path]:
        yield from (self.repository.common_dir / self._references).rglob("*.lock")


def source(repository: Repository, references: str) -> tuple[str, str, str] | None:
    """Remote, address and branch of what was fetched below these references; None where nobody wrote it down."""
    answer = repository.ask("cat-file", "blob", f"{references}/{_SOURCE}", ok=None)
    remote, _, rest = answer.stdout.partition("\n")
    url, _, branch = rest.partition("\n")
    return (remote, url, branch) if answer.status == 0 and branch else None
