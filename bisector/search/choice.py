"""What to measure next: the commit that tells the most for its time, and what is missing before a commit is named.

A trial of commit q asks whether the first new commit is among q's ancestors, which has the probability m(q). What its
noisy answer tells is the entropy of the answer less the entropy that the noise alone would have; bisecting the
posterior by that is optimal up to constants (Burnashev and Zigangirov 1974; Waeber, Frazier, Henderson 2013). Without
noise and skips it is git's own midpoint.

A commit is named once whole runs of it and of its parents, and an end with it undone, have been seen.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bisector.core.verdict import Verdict
from bisector.search.graph import Floats, Mask, Numbers, RangeGraph
from bisector.search.likelihood import PICK_IN_VAIN, Evidence, Kernel, Noise
from bisector.search.posterior import Facts, Posterior, as_mask

# A commit beside one that does not work may not work either: whatever broke it lasts some commits. How many is a guess
# that goes with the runs of 30 commits in simulate/world.py.
_SKIP_NEAR = 0.9
_SKIP_LENGTH = 25.0


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A range, the log-probabilities before any trial, and which commits can change the kernel at all."""

    graph: RangeGraph
    log_prior: Floats
    relevant: Mask | None = None


@dataclass(frozen=True, slots=True)
class Costs:
    """Expected minutes: of a build, of what comes before a run, of runs by side and of whole length, of a skip."""

    build_min: float = 6.0
    setup_min: float = 3.0
    old_run_min: float = 30.0
    new_run_min: float = 30.0
    whole_run_min: float = 30.0
    skip_min: float = 8.0
    skip_share: float = 0.03


@dataclass(frozen=True, slots=True, eq=False)
class Prospects:
    """For each commit what a trial is expected to tell: ``gain_bits``, and ``worth``, bits for each expected minute.

    That a commit may turn out to be untestable counts in both, and not in ``sound_bits``; one that did has no worth
    (-inf).
    """

    sound_bits: Floats
    gain_bits: Floats
    worth: Floats

    @property
    def best(self) -> int:
        """The commit to try."""
        return int(np.argmax(self.worth))

    @property
    def best_gain_bits(self) -> float:
        """The most that any testable commit can tell; 0 when there is none."""
        return self._most(self.gain_bits)

    @property
    def best_sound_bits(self) -> float:
        """The most that any commit can tell that is not known to be untestable, if it turns out to be testable."""
        return self._most(self.sound_bits)

    def _most(self, bits: Floats) -> float:
        testable = bits[np.isfinite(self.worth)]
        return float(testable.max()) if len(testable) else 0.0


def prospects(graph: RangeGraph, belief: Posterior, facts: Facts, noise: Noise, costs: Costs) -> Prospects:
    """What a trial of each commit would tell, and whether it is worth its time."""
    mass = np.clip(graph.mass(belief.p), 0.0, 1.0)
    looks_new, looks_old = _predictive(len(graph), belief, noise)
    # P(the answer is "old"), given either side
    says_old = mass * looks_old + (1 - mass) * (1 - looks_new)
    gain = _entropy(says_old) - mass * _entropy(looks_old) - (1 - mass) * _entropy(looks_new)
    gain = np.maximum(gain, 0.0)
    skip = skip_probability(graph, facts, costs.skip_share)
    run = costs.build_min + costs.setup_min + mass * costs.new_run_min + (1 - mass) * costs.old_run_min
    sound = gain
    gain = sound * (1 - skip)
    worth = gain / ((1 - skip) * run + skip * costs.skip_min)
    worth[as_mask(len(graph), facts.closed)] = -np.inf
    return Prospects(sound, gain, worth)


def undo_gain_bits(p: float, kernel: Kernel, so_far: Evidence, noise: Noise) -> float:
    """What it tells to measure the new end without a commit, or the old end with it, that has probability ``p``.

    ``so_far`` is the evidence of that kernel's earlier readings, unhardened.
    """
    if kernel is Kernel.PICKED:
        noise = replace(noise, new_as_old=max(noise.new_as_old, PICK_IN_VAIN))
    looks_new, looks_old = _misleads(so_far, noise)
    new = 1 - p if kernel is Kernel.REVERTED else p
    parts = np.array([new * looks_old + (1 - new) * (1 - looks_new), looks_old, looks_new])
    answer, old_noise, new_noise = (float(bits) for bits in _entropy(parts))
    return answer - new * old_noise - (1 - new) * new_noise


def skip_probability(graph: RangeGraph, facts: Facts, share: float) -> Floats:
    """How likely each commit is to be untestable: ``share``, fading doubt beside skips, 0 once it was measured.

    The nearest skip on either side counts, and between two of them both do. The doubt stays in its segment,
    and does not reach beyond a commit that works.
    """
    works = facts.measured
    sound = np.ones(len(graph))
    for older in (True, False):
        for near, doubt in _doubts(graph, facts.untestable, works, older=older):
            sound[near] *= 1 - doubt
    skip: Floats = np.maximum(1 - sound, share)
    skip[list(works)] = 0.0
    return skip


def _doubts(
    graph: RangeGraph, untestable: frozenset[int], works: frozenset[int], *, older: bool
) -> Iterator[tuple[Numbers, Floats]]:
    """For each skip the commits on one side of it, up to the next that was tried, and the doubt it casts on them."""
    for commit in sorted(untestable):
        segment, place = graph.segment[commit], int(graph.position[commit])
        members = graph.order[graph.first[segment] : graph.first[segment + 1]]
        tried = [int(graph.position[n]) for n in (*untestable, *works) if graph.segment[n] == segment]
        if older:
            near = members[max((other for other in tried if other < place), default=-1) + 1 : place]
        else:
            near = members[place + 1 : min((other for other in tried if other > place), default=len(members))]
        yield near, _SKIP_NEAR * np.exp(-np.abs(graph.position[near] - place) / _SKIP_LENGTH)


def _predictive(count: int, belief: Posterior, noise: Noise) -> tuple[Floats, Floats]:
    """For each commit P(an old kernel looks new) and P(a new one looks old), after what it has shown already."""
    fresh = _misleads(Evidence(0.0, 0.0), noise)
    looks_new, looks_old = np.full(count, fresh[0]), np.full(count, fresh[1])
    for commit, evidence in belief.tested.items():
        looks_new[commit], looks_old[commit] = _misleads(evidence, noise)
    return looks_new, looks_old


def _misleads(so_far: Evidence, noise: Noise) -> tuple[float, float]:
    """P(this kernel looks new though it is old) and P(it looks old though it is new) in its next reading."""
    a, b = noise.old_as_new, noise.new_as_old
    stuck_old = so_far.sticky_given(Verdict.OLD, noise.sticky)
    stuck_new = so_far.sticky_given(Verdict.NEW, noise.sticky)
    return stuck_old * (1 - b) + (1 - stuck_old) * a, stuck_new * (1 - a) + (1 - stuck_new) * b


def _entropy(p: Floats) -> Floats:
    """Of a yes-or-no answer, in bits."""
    q = np.clip(p, 1e-300, 1.0)
    r = np.clip(1 - p, 1e-300, 1.0)
    bits: Floats = -(p * np.log2(q) + (1 - p) * np.log2(r))
    return bits


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
