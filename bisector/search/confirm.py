"""What has to be seen before a commit is named: whole runs of it and its parents, and an end with it undone.

And whether the readings can be of one change at all.
"""

import math
from dataclasses import dataclass

import numpy as np

from bisector.core.verdict import Verdict
from bisector.search.graph import Floats, Mask, RangeGraph
from bisector.search.likelihood import Kernel, Noise
from bisector.search.posterior import Facts, Posterior, side_under

# Below this probability of so many contradictions the readings are not of one change.
_MISFIT = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A range, the log-probabilities before any trial, and which commits can change the kernel at all."""

    graph: RangeGraph
    log_prior: Floats
    relevant: Mask | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """How many readings contradict the likeliest commit, how many should, and the chance of that many or more."""

    contradictions: int
    expected: float
    tail: float

    @property
    def one_change(self) -> bool:
        """Whether the readings can be of a single change."""
        return self.tail >= _MISFIT


def fit(graph: RangeGraph, facts: Facts, first_new: int, noise: Noise) -> Fit:
    """How well one change at ``first_new`` explains the readings.

    Of one kernel's n readings the wrong ones are binomial, or all but the wrong ones when the
    kernel as a whole misleads; the sum over kernels is convolved exactly. The search prefers the commit with the
    fewest contradictions, so the tail errs towards "one change".
    """
    counts: dict[tuple[int, Kernel], list[bool]] = {}
    for reading in facts.readings:
        key = (reading.commit, reading.kernel)
        counts.setdefault(key, []).append(reading.verdict is not side_under(graph, key, first_new))
    spread = np.ones(1)
    for key, wrong in sorted(counts.items()):
        old = side_under(graph, key, first_new) is Verdict.OLD
        usual, stuck = noise.old_as_new, 1 - noise.new_as_old
        if not old:
            usual, stuck = noise.new_as_old, 1 - noise.old_as_new
        n = len(wrong)
        spread = np.convolve(spread, (1 - noise.sticky) * _binomial(n, usual) + noise.sticky * _binomial(n, stuck))
    seen = sum(sum(wrong) for wrong in counts.values())
    return Fit(seen, float(spread @ np.arange(len(spread))), float(spread[seen:].sum()))


def missing_whole_runs(problem: Problem, facts: Facts, culprit: int, *, stand_ins: bool) -> tuple[int, ...]:
    """The parents of ``culprit`` that can be tested and itself, as far as none of them has a whole run yet.

    The old end stands for what is before the range. With ``stand_ins``, so does any commit for another when nothing
    between them can change the kernel.
    """
    whole = facts.with_twins(r.commit for r in facts.readings if r.kernel is Kernel.COMMIT and r.full)
    wanted = [commit for commit in (*problem.graph.parents[culprit], culprit) if commit not in facts.closed]
    return tuple(
        commit for commit in wanted if commit not in whole and not (stand_ins and _stood_for(problem, whole, commit))
    )


def contradicted(belief: Posterior, commit: int) -> bool:
    """Whether the ends without ``commit``, or with it, speak against it."""
    return sum(_for_it(belief, commit).values()) < 0


def undecided_revert(problem: Problem, facts: Facts, belief: Posterior, commit: int, odds: float) -> bool:
    """Whether the new end without ``commit`` was read, speaks neither for nor against it with ``odds``, and may yet.

    One with it may lack what it builds upon, however often it is read.
    """
    for_it = _for_it(belief, commit).get(Kernel.REVERTED)
    can_be_had = Kernel.REVERTED in undo_options(problem, facts, commit)
    return for_it is not None and can_be_had and abs(for_it) < math.log(odds)


def _for_it(belief: Posterior, commit: int) -> dict[Kernel, float]:
    """What each end without ``commit``, or with it, says for it: the logarithm of the odds, below 0 against it."""
    sides = {Kernel.REVERTED: -1, Kernel.PICKED: 1}
    read = {kernel: belief.undone.get((commit, kernel)) for kernel in sides}
    return {kernel: sides[kernel] * (one.new - one.old) for kernel, one in read.items() if one is not None}


def borne_out(problem: Problem, belief: Posterior, commit: int) -> bool:
    """Whether nothing that was measured of ``commit``, its parents and the ends without it speaks against it.

    However likely the prior and the rest make it.
    """
    shows_new = {number: evidence.new >= evidence.old for number, evidence in belief.tested.items()}
    parents_old = not any(shows_new.get(parent, False) for parent in problem.graph.parents[commit])
    return shows_new.get(commit, True) and parents_old and not contradicted(belief, commit)


def undo_options(problem: Problem, facts: Facts, commit: int) -> tuple[Kernel, ...]:
    """Ends that can still be had without ``commit``, or with it, the better one first.

    Reverting a merge undoes all of its branch, so a merge has none. The new end without the
    commit comes before the old end with it, which may lack what the commit builds upon.
    """
    if len(problem.graph.parents[commit]) > 1:
        return ()
    return tuple(kernel for kernel in (Kernel.REVERTED, Kernel.PICKED) if (commit, kernel) not in facts.failed)


def _stood_for(problem: Problem, whole: frozenset[int], commit: int) -> bool:
    if problem.relevant is None:
        return False
    wanted = problem.graph.ancestors(commit) & problem.relevant
    if not wanted.any():
        return True
    return any(np.array_equal(wanted, problem.graph.ancestors(other) & problem.relevant) for other in whole)


def _binomial(n: int, p: float) -> Floats:
    distribution = np.ones(1)
    for _ in range(n):
        distribution = np.convolve(distribution, (1 - p, p))
    return distribution
