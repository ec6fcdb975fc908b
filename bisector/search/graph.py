"""The commits of a range as a graph, and the facts of a search on it.

The graph tells which commits are ancestors of which, and how much weight lies among the ancestors. Commits are numbers,
oldest first. A run of commits without branch or merge is one *segment*; reachability is kept for pairs of segments, one
bit for each. A segment has what one segment before it has, its *trunk*, and what a merge *brought* in addition, which
is little in a history of branches: sums over ancestors follow the trunks.

The facts are readings of kernels, commits that cannot be tested, and changed ends that cannot be built. Each kernel has
a set of commits under which it is new (:func:`new_under`): if one of them is the first new commit, the kernel contains
the change.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisector.core.subject import Kind
from bisector.core.verdict import Verdict

Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Numbers: TypeAlias = NDArray[np.intp]
Parents: TypeAlias = tuple[tuple[int, ...], ...]
Bits: TypeAlias = NDArray[np.uint8]
Kernel: TypeAlias = Kind

# The number of the old end, which is before the range.
OLD_END = -1


# The graph


@dataclass(frozen=True, eq=False)
class RangeGraph:
    """The commits of a range; the last commit is the new end, and commits without parents are children of the old end.

    ``order`` lists the commits segment by segment; segment ``s`` is ``order[first[s]:first[s + 1]]``. ``segment`` and
    ``position`` are the segment of each commit and its place there.
    """

    parents: Parents
    children: Parents
    segment: Numbers
    position: Numbers
    order: Numbers
    first: Numbers
    reach: "GraphReach"

    @classmethod
    def of(cls, parents: Sequence[Sequence[int]]) -> Self:
        """Return the graph of commits, given the numbers of their parents inside the range.

        Raises :class:`ValueError` unless parents come before children and the last commit has all others as ancestors.
        """
        known = tuple(tuple(row) for row in parents)
        if not known:
            raise ValueError("a range has at least its new end")
        for commit, row in enumerate(known):
            if not all(0 <= parent < commit for parent in row):
                raise ValueError(f"commit {commit} has the parents {row}: parents come before their children")
        rows: list[list[int]] = [[] for _ in known]
        for commit, row in enumerate(known):
            for parent in row:
                rows[parent].append(commit)
        children = tuple(map(tuple, rows))
        segment, position = (np.zeros(len(known), dtype=np.intp) for _ in range(2))
        count = 0
        for commit, row in enumerate(known):
            if len(row) == 1 and len(children[row[0]]) == 1:
                segment[commit], position[commit] = segment[row[0]], position[row[0]] + 1
            else:
                segment[commit], count = count, count + 1
        order = np.lexsort((position, segment))
        first = np.searchsorted(segment[order], np.arange(count + 1))
        graph = cls(known, children, segment, position, order, first, GraphReach.of(known, segment, count))
        if not graph.ancestors(graph.tip).all():
            raise ValueError("the last commit has to have all others as ancestors")
        return graph

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def tip(self) -> int:
        """The new end."""
        return len(self.parents) - 1

    def members(self, commit: int) -> Numbers:
        """The commits of the segment of ``commit``, oldest first."""
        segment = self.segment[commit]
        return self.order[self.first[segment] : self.first[segment + 1]]

    def ancestors(self, commit: int) -> Mask:
        """Which commits of the range the kernel of ``commit`` contains: its ancestors and itself."""
        segment, place = self.segment[commit], int(self.position[commit])
        reached: Mask = self.reach.row(segment)[self.segment]
        reached[self.order[self.first[segment] + place + 1 : self.first[segment + 1]]] = False
        return reached

    def has(self, commit: int, which: Numbers) -> Mask:
        """Which commits of ``which`` the kernel of ``commit`` contains."""
        segment = self.segment[which]
        later = (segment == self.segment[commit]) & (self.position[which] > self.position[commit])
        had: Mask = self.reach.row(self.segment[commit])[segment] & ~later
        return had

    def mass(self, weights: Floats) -> Floats:
        """For each commit the total weight of its ancestors and itself; the error is about 1e-15 of all weight."""
        ordered = np.cumsum(weights[self.order])
        before = np.concatenate(([0.0], ordered))[self.first]
        above = self.reach.sum_above(np.diff(before))
        own = np.empty_like(ordered)
        own[self.order] = ordered
        return above[self.segment] + own - before[self.segment]


@dataclass(frozen=True, slots=True, eq=False)
class GraphReach:
    """Which segments are ancestors of which.

    ``rows[t]`` has a bit for each segment that is ``t`` or among its ancestors, the first in the lowest bit.
    ``trunk[t]`` is a segment whose ancestors ``t`` has, ``count`` if there is none. Beside the trunk and its ancestors,
    ``t`` has the segments of ``brought`` at the places where ``to`` is ``t``.
    """

    count: int
    rows: Bits
    trunk: Numbers
    brought: Numbers
    to: Numbers

    @classmethod
    def of(cls, parents: Parents, segment: Numbers, count: int) -> Self:
        """Return the reachability of ``count`` segments, given the parents and the segment of each commit."""
        rows = np.zeros((count, (count + 7) // 8), dtype=np.uint8)
        trunk, held = np.full(count, count, dtype=np.intp), np.zeros(count, dtype=np.intp)
        brought: list[Numbers] = []
        for commit, row in enumerate(parents):
            mine = segment[commit]
            if held[mine]:
                continue  # not the first commit of its segment
            befores = sorted({int(segment[parent]) for parent in row}, key=held.__getitem__)
            for before in befores:
                rows[mine] |= rows[before]
            new = np.zeros(0, dtype=np.intp)
            if befores:
                trunk[mine] = befores[-1]
                new = np.flatnonzero(_unpacked(rows[mine] & ~rows[befores[-1]], count))
                held[mine] = held[befores[-1]]
            held[mine] += len(new) + 1
            brought.append(np.stack((new, np.full(len(new), mine))))
            rows[mine, mine // 8] |= 1 << (mine % 8)
        return cls(count, rows, trunk, *np.concatenate(brought, axis=1))

    def row(self, segment: int) -> Mask:
        """Which segments are ``segment`` or among its ancestors."""
        return _unpacked(self.rows[segment], self.count)

    def sum_above(self, totals: Floats) -> Floats:
        """For each segment the sum of ``totals`` over its ancestors, without its own."""
        beside = np.bincount(self.to, weights=totals[self.brought], minlength=self.count)
        # Along the trunks by doubling: each segment holds its sum over 1, 2, 4… trunks, and knows the trunk after
        # these.
        held, beyond = np.append(totals + beside, 0.0), np.append(self.trunk, self.count)
        while (beyond < self.count).any():
            held, beyond = held + held[beyond], beyond[beyond]
        above: Floats = beside + held[self.trunk]
        return above


def _unpacked(bits: Bits, count: int) -> Mask:
    mask: Mask = np.unpackbits(bits, count=count, bitorder="little").view(np.bool_)
    return mask


# The facts


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
    def unreadable(self) -> frozenset[int]:
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
