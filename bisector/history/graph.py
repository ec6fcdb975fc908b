"""The commits of a range as a graph: who is an ancestor of whom, and how much weight lies among the ancestors.

Commits are numbers, oldest first, so that parents come before their children. Runs of commits
without branch or merge are one *segment*: a commit joins its parent's segment when it has no other
parent and the parent no other child. Segments are left at their end only, so an ancestor outside
a commit's own segment is an ancestor together with all of its segment, and reachability is kept for
pairs of segments. A kernel's range has about eight commits to a segment.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Numbers: TypeAlias = NDArray[np.intp]

Parents: TypeAlias = tuple[tuple[int, ...], ...]

# Segments with less than this share of all weight are left out of sums over ancestors.
_NEGLIGIBLE = 1e-13
_BLOCK_ROWS = 64  # as doubles about a megabyte, which a core's cache holds


@dataclass(frozen=True, slots=True, eq=False)
class RangeGraph:
    """A range; the last commit is the new end, and commits without parents hang on the old end.

    ``reaches[s, t]`` tells whether segment ``s`` is ``t`` or among its ancestors. ``order`` lists the
    commits segment by segment, and segment ``s`` is ``order[first[s]:first[s + 1]]``.
    """

    parents: Parents
    children: Parents
    segment: Numbers
    position: Numbers
    order: Numbers
    first: Numbers
    reaches: Mask

    @classmethod
    def of(cls, parents: Sequence[Sequence[int]]) -> Self:
        """The graph of commits given by their parents' numbers inside the range.

        Raises :class:`ValueError` unless parents come before children and the last commit has all others as ancestors.
        """
        known = tuple(tuple(row) for row in parents)
        if not known:
            raise ValueError("a range has at least its new end")
        for commit, row in enumerate(known):
            if not all(0 <= parent < commit for parent in row):
                raise ValueError(f"commit {commit} has the parents {row}: parents come before their children")
        children = _children(known)
        segment, position = _segments(known, children)
        order = np.lexsort((position, segment))
        count = int(segment.max()) + 1
        first = np.searchsorted(segment[order], np.arange(count + 1))
        graph = cls(known, children, segment, position, order, first, _reaches(known, segment, count))
        if not graph.ancestors(graph.tip).all():
            raise ValueError("the last commit has to have all others as ancestors")
        return graph

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def tip(self) -> int:
        """The new end."""
        return len(self.parents) - 1

    def ancestors(self, commit: int) -> Mask:
        """Which commits of the range a kernel built from ``commit`` has: its ancestors and itself."""
        segment = self.segment[commit]
        above: Mask = self.reaches[self.segment, segment]
        reached: Mask = above & ((self.segment != segment) | (self.position <= self.position[commit]))
        return reached

    def mass(self, weights: Floats) -> Floats:
        """For each commit the weight of its ancestors and itself; relative error about 1e-10."""
        ordered = np.cumsum(weights[self.order])
        before = np.concatenate(([0.0], ordered))[self.first]
        totals = np.diff(before)
        above = self._sum_of_ancestors(totals)
        own = np.empty_like(ordered)
        own[self.order] = ordered
        return above[self.segment] + own - before[self.segment]

    def _sum_of_ancestors(self, totals: Floats) -> Floats:
        """For each segment the total of the segments above it, without its own."""
        held = np.flatnonzero(totals > _NEGLIGIBLE * totals.sum())
        above = np.zeros(len(totals))
        # In blocks: the matrix as doubles would be eight times its size. By einsum: a threaded BLAS waits for all its
        # threads, which takes twenty times as long when something else has the other core.
        for start in range(0, len(held), _BLOCK_ROWS):
            rows = held[start : start + _BLOCK_ROWS]
            above += np.einsum("s,st->t", totals[rows], self.reaches[rows].astype(np.float64))
        above[held] -= totals[held]
        return above


def _children(parents: Parents) -> Parents:
    children: list[list[int]] = [[] for _ in parents]
    for commit, row in enumerate(parents):
        for parent in row:
            children[parent].append(commit)
    return tuple(tuple(row) for row in children)


def _segments(parents: Parents, children: Parents) -> tuple[Numbers, Numbers]:
    """For each commit its segment and its place in it."""
    segment, position = np.zeros(len(parents), dtype=np.intp), np.zeros(len(parents), dtype=np.intp)
    count = 0
    for commit, row in enumerate(parents):
        if len(row) == 1 and len(children[row[0]]) == 1:
            segment[commit], position[commit] = segment[row[0]], position[row[0]] + 1
        else:
            segment[commit] = count
            count += 1
    return segment, position


def _reaches(parents: Parents, segment: Numbers, count: int) -> Mask:
    held = np.zeros((count, count), dtype=np.bool_)  # held[t]: the segments above t and t itself
    done = np.zeros(count, dtype=np.bool_)
    for commit, row in enumerate(parents):
        mine = segment[commit]
        if not done[mine]:  # the first commit of its segment
            for parent in row:
                held[mine] |= held[segment[parent]]
            held[mine, mine] = done[mine] = True
    return np.ascontiguousarray(held.T)
