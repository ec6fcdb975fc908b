"""The commit that plain ``git bisect`` would try next, by the rules of git's bisect.c (2.39).

The best commit has the most of min(X, N - X); merges are looked at first, and from a skipped one git steps away.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bisector.core.verdict import Verdict
from bisector.search.graph import Mask, Numbers, RangeGraph
from bisector.search.readings import OLD_END, Kernel, SearchFacts

_Names: TypeAlias = Sequence[str] | None

_PRN_MODULO = 32768
_HALF_IS_NEAR = 1024


@dataclass(frozen=True, slots=True)
class Midpoint:
    """The commit that git would try, of ``left`` candidates."""

    commit: int
    left: int


@dataclass(frozen=True, slots=True)
class CandidatesLeft:
    """What git ends with: one commit, or, for skips, the candidates; the last is the one known new."""

    candidates: tuple[int, ...]


def next_commit(graph: RangeGraph, facts: SearchFacts, names: _Names = None) -> Midpoint | CandidatesLeft:
    """What git bisect would do; ``names`` are the hashes, which break ties as they do in git.

    The last reading of a commit counts, as in git. Raises :class:`ValueError` for a new commit that is an ancestor of
    an old one: git does not go on from there.
    """
    candidates, new = _candidates(graph, facts)
    left = np.flatnonzero(candidates)
    if len(left) == 1:
        return CandidatesLeft((int(left[0]),))
    counts = np.rint(graph.mass(candidates.astype(np.float64))).astype(np.intp)
    skipped = facts.untestable
    # A skip anywhere, and git ranks all candidates.
    best = _ranked(left, counts, names, skipped, new) if skipped else _best(graph, left, counts, candidates)
    if best is None or best == new:
        return CandidatesLeft((*(int(commit) for commit in left if commit != new), new))
    return Midpoint(best, len(left))


def candidates_left(graph: RangeGraph, facts: SearchFacts) -> CandidatesLeft:
    """What git has not ruled out so far."""
    candidates, new = _candidates(graph, facts)
    return CandidatesLeft((*(int(commit) for commit in np.flatnonzero(candidates) if commit != new), new))


def _candidates(graph: RangeGraph, facts: SearchFacts) -> tuple[Mask, int]:
    new = graph.tip
    olds = np.zeros(len(graph), dtype=np.bool_)
    for reading in facts.readings:
        if reading.kernel is not Kernel.COMMIT or reading.commit == OLD_END:
            continue
        if reading.verdict is Verdict.NEW:
            new = reading.commit  # refs/bisect/NEW is one ref; the last wins
        else:
            olds |= graph.ancestors(reading.commit)
    candidates = graph.ancestors(new) & ~olds
    if not candidates[new]:
        raise ValueError(f"commit {new} is new and an ancestor of an old one")
    return candidates, new


def _best(graph: RangeGraph, left: Numbers, counts: Numbers, candidates: Mask) -> int:
    """``do_find_bisection()``: the first that is near the half, merges before others; else the best."""
    total = len(left)
    inner = {int(commit): sum(bool(candidates[parent]) for parent in graph.parents[commit]) for commit in left}
    merges = [commit for commit, parents in inner.items() if parents > 1]
    others = [commit for commit, parents in inner.items() if parents == 1]
    for commit in (*merges, *others):
        off = abs(2 * int(counts[commit]) - total)
        if off <= 1 or off < total // _HALF_IS_NEAR:
            return commit
    return int(left[np.argmax(np.minimum(counts[left], total - counts[left]))])


def _ranked(left: Numbers, counts: Numbers, names: _Names, skipped: frozenset[int], new: int) -> int | None:
    """``best_bisection_sorted()`` and ``managed_skipped()``: the best, or one away from it when it is skipped."""
    total = len(left)
    distance = {int(commit): min(int(counts[commit]), total - int(counts[commit])) for commit in left}
    ranked = sorted(distance, key=lambda commit: (-distance[commit], names[commit] if names else commit))
    testable = [commit for commit in ranked if commit not in skipped]
    if not testable:
        return None
    if ranked[0] not in skipped:
        return ranked[0]
    index = _step_away(len(testable))
    if testable[index] != new:
        return testable[index]
    return testable[index - 1] if index else testable[0]


def _step_away(count: int) -> int:
    """``skip_away()``: an index below ``count``, in C's integers; its generator is seeded by the count."""
    product = (count * 1103515245 + 12345) % 2**32
    prn = product // 65536 % _PRN_MODULO
    return count * prn // _PRN_MODULO * _root(prn) // _root(_PRN_MODULO)


def _root(value: int) -> int:
    """``sqrti()``: Newton's method in single precision, which ends early enough to be off by one."""
    if value == 0:
        return 0
    x, enough = np.float32(value), 0.5
    while True:
        y = np.float32((x + np.float32(value) / x) / np.float32(2))
        step, x = abs(y - x), y
        if step < enough:
            return int(x)
