"""The facts of a search: readings of kernels, commits that cannot be tested, and changed ends that cannot be built.

Each kernel has a set of commits under which it is new: if one of them is the first new commit, the kernel contains the
change. The set of a commit's kernel is its ancestors and itself, that of the new end is all commits, that of the old
end is empty. The new end without a commit has all commits but that one, the old end with a commit has that one alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from bisector.core.subject import Kind
from bisector.core.verdict import Verdict
from bisector.search.graph import Mask, Numbers, RangeGraph

Kernel: TypeAlias = Kind
# The number of the old end, which is before the range.
OLD_END = -1


@dataclass(frozen=True, slots=True, order=True)
class Reading:
    """One completed measurement of ``commit`` (by number), or of an end without it or with it.

    ``score`` is the score of the run, None if only its verdict counts. ``verdict`` is OLD or NEW, and counts if there
    is no score; MEASURED says nothing about the side. ``full`` tells whether the run went its whole length. ``hour`` is
    when it was made, in hours of measuring on its ``host``: figures of two hosts are never compared.
    """

    commit: int
    kernel: Kernel
    verdict: Verdict
    score: float | None = None
    full: bool = True
    hour: float = 0.0
    host: str = ""

    @property
    def of(self) -> tuple[int, Kernel]:
        """The kernel that was measured."""
        return self.commit, self.kernel


@dataclass(frozen=True, slots=True)
class SearchFacts:
    """The facts of a search.

    ``skips`` are commits that could not be tested, ``failed`` changed ends that cannot be built or do not work.
    ``twins`` are pairs of commits with equal kernels: readings of the second count for the first, too. ``exhausted``
    commits gave readings, but can give no further ones. ``in_vain`` counts the changed ends that were built and gave no
    reading. The kernels ``in_flight`` are being measured on other hosts.
    """

    readings: tuple[Reading, ...] = ()
    skips: tuple[int, ...] = ()
    failed: tuple[tuple[int, Kernel], ...] = ()
    twins: tuple[tuple[int, int], ...] = ()
    exhausted: tuple[int, ...] = ()
    in_vain: int = 0
    in_flight: tuple[tuple[int, Kernel], ...] = ()

    def with_reading(self, reading: Reading) -> "SearchFacts":
        """Return these facts with one more reading."""
        return replace(self, readings=(*self.readings, reading))

    def with_skip(self, commit: int) -> "SearchFacts":
        """Return these facts with one more commit that cannot be tested."""
        return replace(self, skips=(*self.skips, commit))

    def with_failed(self, commit: int, kernel: Kernel) -> "SearchFacts":
        """Return these facts with one more changed end that cannot be built, or that does not work."""
        return replace(self, failed=(*self.failed, (commit, kernel)))

    @property
    def untestable(self) -> frozenset[int]:
        """The commits that were skipped and whose kernel never gave a reading."""
        return frozenset(self.skips) - self.measured

    @property
    def closed(self) -> frozenset[int]:
        """The commits of which no (further) reading is possible."""
        return self.untestable | frozenset(self.exhausted)

    def with_twins(self, commits: Iterable[int]) -> frozenset[int]:
        """Return these commits and all that have an equal kernel."""
        known = frozenset(commits)
        return known | {twin for twin, other in self.twins if other in known}

    @property
    def measured(self) -> frozenset[int]:
        """The commits of the range whose kernel gave a reading."""
        return self.with_twins(one.commit for one in self.readings if one.kernel is Kernel.COMMIT) - {OLD_END}


def new_under(graph: RangeGraph, commit: int, kernel: Kernel, which: Numbers) -> Mask:
    """Return for each commit of ``which`` whether this kernel is new if that commit is the first new one."""
    itself: Mask = which == commit
    match kernel:
        case Kernel.COMMIT:
            return np.zeros_like(itself) if commit == OLD_END else graph.has(commit, which)
        case Kernel.REVERTED:
            return ~itself
        case Kernel.PICKED:
            return itself
        case Kernel.PATCHED | Kernel.IMAGE:
            raise ValueError("no search measures a commit with a patch on top, or an image")


def as_mask(count: int, commits: Iterable[int]) -> Mask:
    """Return a mask of ``count`` items that is true for ``commits``."""
    mask = np.zeros(count, dtype=np.bool_)
    mask[list(commits)] = True
    return mask
