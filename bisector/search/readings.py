"""What a search knows: readings of kernels, commits that cannot be tested, and ends that cannot be had.

Each kernel has commits under which it is new: were one of these the first new commit, the kernel would have the
change. Of a commit's kernel these are its ancestors and itself, of the new end all commits, of the old end none, of the
new end without a commit all but that one, of the old end with it that one alone.
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
    """One completed measurement of ``commit`` (by number), or of an end with it undone or done.

    ``score`` is that of the run, where it counts; ``verdict`` (OLD or NEW) is what counts without it, and MEASURED says
    nothing of either side. ``full`` tells whether the run went its whole length,
    ``hour`` when it was made, in hours of measuring on its ``host``: figures of two hosts are never compared.
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
        """What was measured."""
        return self.commit, self.kernel


@dataclass(frozen=True, slots=True)
class SearchFacts:
    """What is known: readings, commits that cannot be tested, and ends that a commit cannot be undone or done on.

    Of ``twins`` the first has the kernel of the second, so that the readings of the second are its own, too.
    ``exhausted`` are commits that gave readings and give no more. ``in_vain`` counts the changed ends that were
    built and gave none. The kernels ``in_flight`` are being measured on other hosts.
    """

    readings: tuple[Reading, ...] = ()
    skips: tuple[int, ...] = ()
    failed: tuple[tuple[int, Kernel], ...] = ()
    twins: tuple[tuple[int, int], ...] = ()
    exhausted: tuple[int, ...] = ()
    in_vain: int = 0
    in_flight: tuple[tuple[int, Kernel], ...] = ()

    def with_reading(self, reading: Reading) -> "SearchFacts":
        """These and one more reading."""
        return replace(self, readings=(*self.readings, reading))

    def with_skip(self, commit: int) -> "SearchFacts":
        """These, and a commit that cannot be tested."""
        return replace(self, skips=(*self.skips, commit))

    def with_failed(self, commit: int, kernel: Kernel) -> "SearchFacts":
        """These, and an end that a commit does not revert or pick on, or that does not work then."""
        return replace(self, failed=(*self.failed, (commit, kernel)))

    @property
    def untestable(self) -> frozenset[int]:
        """Commits that were skipped and whose kernel never gave a reading."""
        return frozenset(self.skips) - self.measured

    @property
    def closed(self) -> frozenset[int]:
        """Commits that no reading can be had of (any more)."""
        return self.untestable | frozenset(self.exhausted)

    def with_twins(self, commits: Iterable[int]) -> frozenset[int]:
        """These commits, and all that have the kernel of one of them."""
        known = frozenset(commits)
        return known | {twin for twin, other in self.twins if other in known}

    @property
    def measured(self) -> frozenset[int]:
        """Commits of the range whose kernel gave a reading."""
        return self.with_twins(one.commit for one in self.readings if one.kernel is Kernel.COMMIT) - {OLD_END}


def new_under(graph: RangeGraph, commit: int, kernel: Kernel, which: Numbers) -> Mask:
    """For each of some commits whether this kernel is new if that is the first new one."""
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
    """Commits as a mask."""
    mask = np.zeros(count, dtype=np.bool_)
    mask[list(commits)] = True
    return mask
