"""What is known of commits' kernels without building them: from what builds have read, and what git says differs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from bisector.history.ranges import Range
from bisector.history.trees import Trees
from bisector.kernel.build import KernelBuilder
from bisector.kernel.sources import Sources
from bisector.model import Change, Commit, Kernel, Relevance


@dataclass(frozen=True, slots=True)
class Kinship:
    """The kernels of one repository, as one builder makes them."""

    trees: Trees
    builder: KernelBuilder

    def same(self, one: Commit, other: Commit) -> bool:
        """Whether two commits surely have the same kernel; False when nobody can say yet."""
        for commit in (one, other):
            kernel = self.builder.find(commit.tree) or self.builder.find_alike(commit.tree, self.trees)
            read = self.builder.read_by(kernel.key) if kernel is not None else None
            if read is not None and read.same(self.trees.changes(one.tree, other.tree)):
                return True
        return False

    def twin(self, commit: Commit) -> Commit | None:
        """A parent that surely has the same kernel, if there is one."""
        repository = self.trees.repository
        parents = repository.commits(repository.parents(commit.sha))
        return next((parent for parent in parents if self.same(commit, parent)), None)

    def parents(self, sha: str) -> tuple[str, ...]:
        """The hashes of a commit's parents."""
        return self.trees.repository.parents(sha)

    def relevance(self, wanted: Range, old: Kernel, new: Kernel) -> Relevance | None:
        """How many commits of a range can matter, as far as the builds of its ends say; None when they do not.

        A commit counts when it touches what one of the two builds read or what always counts. It is a
        forecast: a file that only kernels in between read is in neither list.
        """
        reads = [read for kernel in (old, new) if (read := self.builder.read_by(kernel.key)) is not None]
        return counted(*self.trees.along(wanted), reads) if reads else None


def counted(commits: int, changes: Iterable[tuple[str, Change]], reads: Sequence[Sources]) -> Relevance:
    """How many of so many commits change, each by its hash, what counts for one of the builds that read so much."""

    @cache  # most commits change files that others change, too
    def counts(change: Change) -> bool:
        return any(read.counts(change) for read in reads)

    mattering: set[str] = set()
    for sha, change in changes:
        if sha not in mattering and counts(change):
            mattering.add(sha)
    return Relevance(commits, len(mattering))
