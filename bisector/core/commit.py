"""Commits, what differs between them, and what is made of an end by one of them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated


class Kind(StrEnum):
    """What was built: a commit itself, the new end without it, or the old end with it."""

    COMMIT = "commit"
    REVERTED = "reverted"
    PICKED = "picked"


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit: full hash, tree, subject line and committer date (ISO 8601 with zone)."""

    sha: str
    tree: str
    subject: str
    committed_at: str

    @property
    def short(self) -> str:
        """Twelve hex digits, as kernel people quote them."""
        return self.sha[:12]


@dataclass(frozen=True, slots=True)
class Change:
    """A file that differs between two trees, by its path from the top; ``added``: only the newer one has it."""

    path: str
    added: bool = False


@dataclass(frozen=True, slots=True)
class Relevance:
    """How many commits a range has, and how many of them touch what the builds of its ends were made of."""

    commits: Annotated[int, "number of commits in the range"]
    can_matter: Annotated[int, "how many of them touch what the ends were built from"]

    @property
    def sentence(self) -> str:
        """For a person."""
        commits = "1 commit" if self.commits == 1 else f"{self.commits:,} commits"
        return f"{commits}, {self.can_matter:,} can matter to this kernel"


@dataclass(frozen=True, slots=True)
class Mattering:
    """The size of a range, and the hashes of its commits that touch what the builds of its ends were made of."""

    commits: int
    shas: frozenset[str]

    @property
    def relevance(self) -> Relevance:
        """How many commits the range has, and how many of them can matter."""
        return Relevance(self.commits, len(self.shas))


@dataclass(frozen=True, slots=True)
class NotChanged:
    """An end that cannot be had without a commit, or with it: which kind, which commit, which end, and why."""

    kind: Kind
    sha: str
    end_sha: str
    reason: str
