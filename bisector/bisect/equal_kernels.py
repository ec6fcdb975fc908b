"""What is known of commits' kernels without building them: from what builds have read, and what git says differs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from bisector.core.commit import Change, Commit, Mattering
from bisector.core.kernel import Kernel
from bisector.git.diff import Trees
from bisector.git.ranges import Range
from bisector.kernel.build import KernelBuilder
from bisector.kernel.sources import Sources


class Kin(Protocol):
    """What is known of kernels without building them."""

    def parents(self, sha: str) -> tuple[str, ...]:
        """The hashes of a commit's parents."""
        ...

    def twin(self, commit: Commit, kernel: Kernel) -> Commit | None:
        """A parent of a commit with this kernel that surely has it, too."""
        ...

    def mattering(self, wanted: Range, old: Kernel, new: Kernel) -> Mattering | None:
        """Which commits of the range can matter, given the kernels of its ends."""
        ...


@dataclass(frozen=True, slots=True)
class Kinship:
    """The kernels of one repository, as one builder makes them, and the commits around them.

    With ``first_parent`` what a merge brings in is the merge's, and its other parents do not count.
    """

    trees: Trees
    builder: KernelBuilder
    first_parent: bool = False

    def twin(self, commit: Commit, kernel: Kernel) -> Commit | None:
        """A parent of a commit with this kernel that surely has it, too; None when nobody can say so."""
        read = self.builder.read_by(kernel.key)
        if read is None:
            return None
        parents = self.trees.repository.commits(self.parents(commit.sha))
        return next((one for one in parents if read.same(self.trees.changes(kernel.tree, one.tree))), None)

    def parents(self, sha: str) -> tuple[str, ...]:
        """The hashes of a commit's parents, as far as the bisection follows them."""
        return self.trees.repository.parents(sha, first_only=self.first_parent)

    def mattering(self, wanted: Range, old: Kernel, new: Kernel) -> Mattering | None:
        """Which commits of a range can matter, as far as the builds of its ends say; None when they do not.

        A commit counts when it touches what one of the two builds read or what always counts. It is a
        forecast: a file that only kernels in between read is in neither list.
        """
        reads = [read for kernel in (old, new) if (read := self.builder.read_by(kernel.key)) is not None]
        walk = self.trees.along(wanted) if reads else None
        return counted(*walk, reads) if walk is not None else None


def counted(commits: int, changes: Iterable[tuple[str, Change]], reads: Sequence[Sources]) -> Mattering:
    """Which of so many commits change, each by its hash, what counts for one of the builds that read so much."""

    @cache  # most commits change files that others change, too
    def counts(change: Change) -> bool:
        return any(read.counts(change) for read in reads)

    mattering: set[str] = set()
    for sha, change in changes:
        if sha not in mattering and counts(change):
            mattering.add(sha)
    return Mattering(commits, frozenset(mattering))
