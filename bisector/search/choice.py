"""Which kernel to measure next, and what is missing before a commit can be named.

What a trial tells is the entropy of its noisy answer less the entropy of the noise; bisecting the posterior by it is
optimal up to constants (Burnashev and Zigangirov 1974; Waeber, Frazier, Henderson 2013). While other trials are in
flight, it is the mean over all their outcomes (Ben-Or and Hassidim 2008).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from bisector.core.verdict import Verdict
from bisector.search.graph import OLD_END, Floats, Kernel, Mask, Numbers, RangeGraph, SearchFacts, as_mask, new_under
from bisector.search.likelihood import Key
from bisector.search.posterior import Chances, Posterior

# Outcomes less likely than _UNLIKELY are left out, and so are all but the _MOST_OUTCOMES likeliest.
_UNLIKELY = 4e-3
_MOST_OUTCOMES = 64


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """The possible outcomes of the trials in flight, a row for each: ``probability``, and ``factor`` by class.

    A class is the set of commits under which the same kernels in flight are new. ``factor`` tells how many times as
    likely an outcome makes each class. ``p`` is the present probability of each commit, ``of`` its class.
    """

    p: Floats
    of: Numbers
    probability: Floats
    factor: Floats

    @classmethod
    def expected(cls, graph: RangeGraph, belief: Posterior, in_flight: Sequence[Key]) -> Self:
        """Return all outcomes that are likely enough; with nothing in flight a single one, which tells nothing."""
        if not in_flight:
            return cls(belief.p, np.zeros(len(graph), dtype=np.intp), np.ones(1), np.ones((1, 1)))
        every, code = np.arange(len(graph)), np.zeros(len(graph), dtype=np.int64)
        for place, (commit, kernel) in enumerate(in_flight):
            code |= new_under(graph, commit, kernel, every).astype(np.int64) << place
        classes, of = np.unique(code, return_inverse=True)
        # Which of the kernels in flight are new in each class
        has: Mask = (classes[:, None] >> np.arange(len(in_flight)) & 1).astype(np.bool_)
        share: Floats = np.bincount(of, weights=belief.p, minlength=len(has)).astype(np.float64)
        joint: Floats = share[None, :]
        for (commit, kernel), is_new in zip(in_flight, has.T, strict=True):
            chances = belief.chances(commit, kernel)
            new = np.where(is_new, 1 - chances.looks_old, chances.looks_new)
            joint = np.concatenate((joint * new, joint * (1 - new)))
            likelihood = joint.sum(axis=1)
            order = np.argsort(-likelihood, kind="stable")[:_MOST_OUTCOMES]
            joint = joint[order[likelihood[order] >= min(_UNLIKELY, float(likelihood.max()))]]
        total = joint.sum(axis=1)
        # The factor of a class with next to no probability does not matter.
        factor = np.divide(joint, share * total[:, None], out=np.ones_like(joint), where=share > 0)
        return cls(belief.p, of, total / total.sum(), factor)

    def new(self, graph: RangeGraph) -> Floats:
        """The probability of each commit's kernel to be new: a row for each outcome, a column for each commit."""
        by_class = np.stack([graph.mass(np.where(self.of == one, self.p, 0.0)) for one in range(self.factor.shape[1])])
        return np.clip(self.factor @ by_class, 0.0, 1.0)


# A commit beside one that does not work may not work either, because a breakage lasts for some commits. The length is a
# guess that fits the runs of 30 commits in simulate/world.py.
_SKIP_NEAR = 0.9
_SKIP_LENGTH = 25.0
BOTH_ENDS = 2


@dataclass(frozen=True, slots=True, eq=False)
class SearchProblem:
    """A range, the log-probabilities before any trial, and which commits can change the kernel at all."""

    graph: RangeGraph
    log_prior: Floats
    relevant: Mask | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """Expected minutes of a build, of the setup before a run, of runs by side and of whole runs, and of a skip.

    ``builds_min`` has the build time of each commit, if they are known to differ; otherwise, and for changed ends, a
    build takes ``build_min``. ``skip_share`` is the probability that an untried commit cannot be tested. ``spare`` and
    ``build_spare`` are the largest ratios seen so far of a trial, without its build, to its expected time, and of a
    build to the mean of builds.
    """

    build_min: float = 6.0
    builds_min: Floats | None = None
    setup_min: float = 3.0
    old_run_min: float = 30.0
    new_run_min: float = 30.0
    whole_run_min: float = 30.0
    skip_min: float = 8.0
    skip_share: float = 0.03
    spare: float = 1.0
    build_spare: float = 1.0

    def build_of(self, commit: int) -> float:
        """The build time of a commit, in minutes."""
        return self.build_min if self.builds_min is None else float(self.builds_min[commit])

    def longest(self, build_min: float, *, whole: bool) -> float:
        """Minutes of a trial with such a build if it exceeds its expected time as far as any trial did so far."""
        runs_min = self.whole_run_min if whole else max(self.old_run_min, self.new_run_min)
        return self.build_spare * build_min + self.spare * (self.setup_min + runs_min)

    @property
    def whole_from(self) -> float:
        """From this probability on that the answer rests on a run, a whole run is cheaper than one stopped early.

        A run that was stopped early has to be repeated then, without a build. 0 if no run is stopped early.
        """
        early_min = (self.old_run_min + self.new_run_min) / 2
        return max(0.0, self.whole_run_min - early_min) / (self.setup_min + self.whole_run_min)


@dataclass(frozen=True, slots=True, eq=False)
class Prospects:
    """What a trial of each commit is expected to tell: ``gain_bits``, and ``worth`` in bits for each expected minute.

    Both allow for the risk that a commit cannot be tested; ``sound_bits`` does not. ``worth`` is -inf for commits that
    are known to be untestable and for commits in flight. ``longest_min`` is the longest time that the trial is expected
    to take. ``outcomes`` are the possible outcomes of the trials in flight.
    """

    outcomes: Outcomes
    sound_bits: Floats
    gain_bits: Floats
    worth: Floats
    longest_min: Floats

    def within(self, left_min: float) -> "Prospects":
        """The same prospects, with trials that would take longer than ``left_min`` worth nothing."""
        return replace(self, worth=np.where(self.longest_min <= left_min, self.worth, -np.inf))

    @property
    def best(self) -> int:
        """The commit whose trial is worth most."""
        return int(np.argmax(self.worth))

    def most(self, bits: Floats) -> float:
        """The largest of ``bits`` among the commits with a finite ``worth``; 0 if there is none."""
        testable = bits[np.isfinite(self.worth)]
        return float(testable.max()) if len(testable) else 0.0


def prospects(graph: RangeGraph, belief: Posterior, facts: SearchFacts, costs: Costs) -> Prospects:
    """Return what a trial of each commit would tell in addition to those in flight, and its worth per minute."""
    outcomes = Outcomes.expected(graph, belief, facts.in_flight)
    mass = np.clip(graph.mass(belief.p), 0.0, 1.0)
    new = outcomes.new(graph)
    gain = outcomes.probability @ _gain_bits(new, (belief.fresh,))
    tested = {commit: evidence.next for commit, evidence in belief.tested.items() if commit != OLD_END}
    gain[list(tested)] = outcomes.probability @ _gain_bits(new[:, list(tested)], tuple(tested.values()))
    skip = skip_probability(graph, facts, costs.skip_share)
    builds = np.full(len(graph), costs.build_min) if costs.builds_min is None else costs.builds_min
    run = builds + costs.setup_min + mass * costs.new_run_min + (1 - mass) * costs.old_run_min
    sound = gain
    gain = sound * (1 - skip)
    worth = gain / ((1 - skip) * run + skip * costs.skip_min)
    under_way = (commit for commit, kernel in facts.in_flight if kernel is Kernel.COMMIT)
    worth[as_mask(len(graph), facts.unreadable.union(under_way))] = -np.inf
    return Prospects(outcomes, sound, gain, worth, costs.build_spare * builds + costs.longest(0.0, whole=False))


def short_fill_pays(commits: float, saved: float, trial: float, left: float = math.inf) -> bool:
    """Whether a quicker way to measure saves more in a search than the trials of both ends in that way, too, take.

    The range has ``commits`` commits. The way saves at most ``saved`` in a trial, a trial takes ``trial``, and ``left``
    is left, all in the same unit of time.
    """
    trials = min(math.log2(max(2.0, commits)), left / trial - BOTH_ENDS)
    return trials * saved > BOTH_ENDS * trial


def kernel_gain_bits(graph: RangeGraph, belief: Posterior, outcomes: Outcomes, commit: int, kernel: Kernel) -> float:
    """The bits that the next reading of a kernel is expected to tell in addition to the trials in flight.

    For a changed end they are computed from its commit alone: a sum over all other commits would be rounded differently
    for commits that are equally likely, and so tell them apart.
    """
    had = graph.ancestors(commit) if kernel is Kernel.COMMIT else np.array([commit])
    p, of, classes = outcomes.p[had], outcomes.of[had], outcomes.factor.shape[1]
    new = np.clip(outcomes.factor @ np.bincount(of, p, classes), 0.0, 1.0)
    if kernel is Kernel.REVERTED:
        new = 1 - new
    return float(outcomes.probability @ _gain_bits(new, (belief.chances(commit, kernel),)))


def skip_probability(graph: RangeGraph, facts: SearchFacts, share: float) -> Floats:
    """The probability of each commit to be untestable: at least ``share``, more near a skip, 0 if it was measured.

    The nearest skip on either side counts, so both do between two skips. The effect of a skip fades with the distance,
    stays in its segment, and does not reach beyond a commit that works.
    """
    works, sound = facts.measured, np.ones(len(graph))
    for commit in sorted(facts.untestable):
        members, place = graph.members(commit), int(graph.position[commit])
        beside = [n for n in (*facts.untestable, *works) if graph.segment[n] == graph.segment[commit]]
        tried = [int(graph.position[n]) for n in beside]
        first = max((other for other in tried if other < place), default=-1) + 1  # up to the next commit that was tried
        last = min((other for other in tried if other > place), default=len(members))
        for near in (members[first:place], members[place + 1 : last]):
            sound[near] *= 1 - _SKIP_NEAR * np.exp(-np.abs(graph.position[near] - place) / _SKIP_LENGTH)
    skip: Floats = np.maximum(1 - sound, share)
    skip[list(works)] = 0.0
    return skip


def _gain_bits(new: Floats, chances: Sequence[Chances]) -> Floats:
    """The bits that readings tell of kernels that are new with the probabilities ``new``.

    ``chances`` has an item for each kernel, or a single one for all. The result is the entropy of the reading less the
    entropy that noise contributes on either side.
    """
    looks_new, looks_old = np.array([(one.looks_new, one.looks_old) for one in chances]).reshape(-1, 2).T
    says_old = new * looks_old + (1 - new) * (1 - looks_new)
    bits: Floats = _entropy(says_old) - new * _entropy(looks_old) - (1 - new) * _entropy(looks_new)
    return np.maximum(bits, 0.0)


def _entropy(p: Floats) -> Floats:
    """The entropy of a yes-or-no answer, in bits."""
    q = np.clip(p, 1e-300, 1.0)
    r = np.clip(1 - p, 1e-300, 1.0)
    bits: Floats = -(p * np.log2(q) + (1 - p) * np.log2(r))
    return bits


def missing_whole_runs(problem: SearchProblem, facts: SearchFacts, culprit: int, *, stand_ins: bool) -> tuple[int, ...]:
    """Return which of ``culprit`` and its parents can be tested and have no whole run yet.

    The culprit comes first: the parents' runs may be stopped once they are clear of its run. Parents before the range
    are represented by the old end. With ``stand_ins``, a commit needs no run of its own if nothing that can change the
    kernel lies between it and the old end, or between it and a commit that has a whole run.
    """
    graph, relevant = problem.graph, problem.relevant
    whole = facts.with_twins(r.commit for r in facts.readings if r.kernel is Kernel.COMMIT and r.full)

    def is_stood_for(commit: int) -> bool:
        if not stand_ins or relevant is None:
            return False
        needed = graph.ancestors(commit) & relevant
        within = (other for other in whole if other != OLD_END)
        return not needed.any() or any(np.array_equal(needed, graph.ancestors(other) & relevant) for other in within)

    testable = (commit for commit in (culprit, *graph.parents[culprit]) if commit not in facts.unreadable)
    return tuple(commit for commit in testable if commit not in whole and not is_stood_for(commit))


def contradicted(belief: Posterior, commit: int) -> bool:
    """Whether readings of the ends without ``commit``, or with it, speak against it: the sum of both log-odds."""
    sides = {Kernel.REVERTED: -1, Kernel.PICKED: 1}
    read = {kernel: belief.undone.get((commit, kernel)) for kernel in sides}
    return sum(sides[kernel] * (one.new - one.old) for kernel, one in read.items() if one is not None) < 0


def changed_end_lacking_whole_run(problem: SearchProblem, facts: SearchFacts, commit: int) -> Kernel | None:
    """The changed end of ``commit`` to read again, in a whole run, if all runs of its changed ends were stopped early.

    It has been read before and can still be built. None if there was a whole run, or no such end.
    """
    runs = [one for one in facts.readings if one.commit == commit and one.kernel is not Kernel.COMMIT]
    read = set() if any(one.full for one in runs) else {one.kernel for one in runs}
    return next((kernel for kernel in possible_changed_ends(problem, facts, commit) if kernel in read), None)


def possible_changed_ends(problem: SearchProblem, facts: SearchFacts, commit: int) -> tuple[Kernel, ...]:
    """The changed ends that can still be built for ``commit``, the better one first; none for a merge.

    Reverting a merge would undo all of its branch. The new end without the commit comes before the old end with it,
    which may lack what the commit builds upon.
    """
    if len(problem.graph.parents[commit]) > 1:
        return ()
    return tuple(kernel for kernel in (Kernel.REVERTED, Kernel.PICKED) if (commit, kernel) not in facts.failed)


# An end is read again while more than this share of the figures is expected on the wrong side of the threshold, but not
# more often than this in all: further readings do not separate levels that really overlap.
_OVERLAP = 0.03
_MOST_READINGS_OF_AN_END = 4


def end_to_read(graph: RangeGraph, facts: SearchFacts, belief: Posterior) -> Verdict | None:
    """Return the side whose end has to be read again; None if the search can begin, or has begun."""
    ends = {Verdict.OLD: (OLD_END, Kernel.COMMIT), Verdict.NEW: (graph.tip, Kernel.COMMIT)}
    counts = {side: sum(one.of == end for one in facts.readings) for side, end in ends.items()}
    begun = sum(counts.values()) < len(facts.readings)
    if begun or not belief.levels or belief.overlap <= _OVERLAP:
        return None
    fewest = min(counts, key=counts.__getitem__)
    return fewest if counts[fewest] < _MOST_READINGS_OF_AN_END else None
