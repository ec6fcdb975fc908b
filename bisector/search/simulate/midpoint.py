"""The commit that plain ``git bisect`` would try next, by the rules of git's bisect.c (2.39).

The best commit has the largest min(X, N - X); merges are considered first, and git steps away from a skipped commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bisector.core.verdict import Verdict
from bisector.search.graph import Mask, RangeGraph
from bisector.search.readings import OLD_END, Kernel, SearchFacts

_PRN_MODULO = 32768
_HALF_IS_NEAR = 1024


@dataclass(frozen=True, slots=True)
class Midpoint:
    """The commit that git would try, of ``left`` candidates."""

    commit: int
    left: int


@dataclass(frozen=True, slots=True)
class CandidatesLeft:
    """The result of git bisect: one commit, or, because of skips, several candidates; the last is known to be new."""

    candidates: tuple[int, ...]


def next_commit(graph: RangeGraph, facts: SearchFacts, names: Sequence[str] | None = None) -> Midpoint | CandidatesLeft:
    """Return what git bisect would do; ``names`` are the hashes, which break ties as they do in git.

    The last reading of a commit counts, as in git. Raises :class:`ValueError` for a new commit that is an ancestor of
    an old one: git does not go on from there.
    """
    candidates, new = _candidates(graph, facts)
    left = [int(commit) for commit in np.flatnonzero(candidates)]
    if len(left) == 1:
        return CandidatesLeft((left[0],))
    counts, total = np.rint(graph.mass(candidates.astype(np.float64))).astype(np.intp), len(left)
    halves = {commit: min(int(counts[commit]), total - int(counts[commit])) for commit in left}
    best: int | None
    if skipped := facts.untestable:  # best_bisection_sorted(): git ranks all candidates if any is skipped
        ranked = sorted(left, key=lambda commit: (-halves[commit], names[commit] if names else commit))
        testable = [commit for commit in ranked if commit not in skipped]
        best = testable[0] if testable else None
        if testable and ranked[0] in skipped:  # managed_skipped()
            index = _step_away(len(testable))
            best = testable[index if testable[index] != new else max(index - 1, 0)]
    else:  # do_find_bisection(): the first one near the half, merges before others; else the best
        inner = {commit: sum(bool(candidates[parent]) for parent in graph.parents[commit]) for commit in left}
        tried = sorted((commit for commit in left if inner[commit]), key=lambda commit: inner[commit] == 1)
        off = ((commit, total - 2 * halves[commit]) for commit in tried)
        near = (commit for commit, apart in off if apart <= 1 or apart < total // _HALF_IS_NEAR)
        best = next(near, max(left, key=halves.__getitem__))
    if best is None or best == new:
        return candidates_left(graph, facts)
    return Midpoint(best, total)


def candidates_left(graph: RangeGraph, facts: SearchFacts) -> CandidatesLeft:
    """Return the candidates that git has not ruled out so far."""
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


def _step_away(count: int) -> int:
    """``skip_away()``: an index below ``count``, in C's integers; its generator is seeded by the count."""
    prn = (count * 1103515245 + 12345) % 2**32 // 65536 % _PRN_MODULO
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
