"""What to measure next: the commit that tells the most for its time, and what is missing before a commit is named.

What a trial tells is the entropy of its noisy answer less that of the noise; bisecting the posterior by it is optimal
up to constants (Burnashev and Zigangirov 1974; Waeber, Frazier, Henderson 2013). While others are in flight, it is the
mean over all that they may show (Ben-Or and Hassidim 2008).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from bisector.core.verdict import Verdict
from bisector.search.graph import Floats, Mask, Numbers, RangeGraph
from bisector.search.likelihood import Key
from bisector.search.posterior import Chances, KernelEvidence, Posterior
from bisector.search.readings import OLD_END, Kernel, SearchFacts, as_mask, new_under

# Outcomes that are less likely than this are left out, and all but the likeliest so many.
_UNLIKELY = 4e-3
_MOST_OUTCOMES = 64


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """A row for each outcome: its ``probability``, and by how much it makes each class of commits likelier.

    A class are the commits under which the same kernels in flight are new. ``p`` is the probability of each commit now,
    ``of`` its class.
    """

    p: Floats
    of: Numbers
    probability: Floats
    factor: Floats

    @classmethod
    def expected(cls, graph: RangeGraph, belief: Posterior, in_flight: Sequence[Key]) -> Self:
        """All outcomes that are likely enough; with nothing in flight it is one, which tells nothing."""
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
        # Of a class that has next to nothing the factor does not matter
        factor = np.divide(joint, share * total[:, None], out=np.ones_like(joint), where=share > 0)
        return cls(belief.p, of, total / total.sum(), factor)

    def new(self, graph: RangeGraph) -> Floats:
        """How likely each commit's kernel is new: a row for each outcome, a column for each commit."""
        by_class = np.stack([graph.mass(np.where(self.of == one, self.p, 0.0)) for one in range(self.factor.shape[1])])
        return np.clip(self.factor @ by_class, 0.0, 1.0)


# A commit beside one that does not work may not work either: whatever broke it lasts some commits. How many is a guess
# that goes with the runs of 30 commits in simulate/world.py.
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
    """Expected minutes: of a build, of what comes before a run, of runs by side and of whole length, of a skip.

    ``builds_min`` are those of each commit, where they are known to differ; else, and of an end without a commit or
    with it, a build takes ``build_min``. No trial has taken more than ``spare`` times what is expected of it, its build
    aside, and no build more than ``build_spare`` times the mean.
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

    def builds(self, count: int) -> Floats:
        """Minutes of a build of each of so many commits."""
        return np.full(count, self.build_min) if self.builds_min is None else self.builds_min

    def build_of(self, commit: int) -> float:
        """Minutes of a build of a commit."""
        return self.build_min if self.builds_min is None else float(self.builds_min[commit])

    def longest(self, build_min: float, *, whole: bool) -> float:
        """Minutes of a trial with such a build, if it takes as much longer than others as any did so far."""
        runs_min = self.whole_run_min if whole else max(self.old_run_min, self.new_run_min)
        return self.build_spare * build_min + self.spare * (self.setup_min + runs_min)

    @property
    def of_whole_runs(self) -> "Costs":
        """The same where no run is stopped early."""
        return replace(self, old_run_min=self.whole_run_min, new_run_min=self.whole_run_min)

    @property
    def whole_from(self) -> float:
        """How likely it has to be that an answer will rest on a run, for a whole one to be the cheaper one.

        One that was stopped early is repeated then, without a build. 0 where none is stopped early.
        """
        early_min = (self.old_run_min + self.new_run_min) / 2
        return max(0.0, self.whole_run_min - early_min) / (self.setup_min + self.whole_run_min)


@dataclass(frozen=True, slots=True, eq=False)
class Prospects:
    """For each commit what a trial is expected to tell: ``gain_bits``, and ``worth``, bits for each expected minute.

    That a commit may turn out to be untestable counts in both, and not in ``sound_bits``; one that did has no worth
    (-inf), nor has one in flight. ``longest_min`` is how long the trial takes at most, as far as that can be told.
    ``outcomes`` are what the readings in flight may come out as.
    """

    outcomes: Outcomes
    sound_bits: Floats
    gain_bits: Floats
    worth: Floats
    longest_min: Floats

    def within(self, left_min: float) -> "Prospects":
        """The same when what would take longer is of no use."""
        return replace(self, worth=np.where(self.longest_min <= left_min, self.worth, -np.inf))

    @property
    def best(self) -> int:
        """The commit to try."""
        return int(np.argmax(self.worth))

    def most(self, bits: Floats) -> float:
        """The most of it that any commit has that is not known to be untestable; 0 when there is none."""
        testable = bits[np.isfinite(self.worth)]
        return float(testable.max()) if len(testable) else 0.0


def prospects(graph: RangeGraph, belief: Posterior, facts: SearchFacts, costs: Costs) -> Prospects:
    """What a trial of each commit would tell beside those in flight, and whether it is worth its time."""
    outcomes = Outcomes.expected(graph, belief, facts.in_flight)
    mass = np.clip(graph.mass(belief.p), 0.0, 1.0)
    new = outcomes.new(graph)
    gain = outcomes.probability @ _gain_bits(new, (belief.fresh,))
    tested = {commit: evidence.next for commit, evidence in belief.tested.items() if commit != OLD_END}
    gain[list(tested)] = outcomes.probability @ _gain_bits(new[:, list(tested)], tuple(tested.values()))
    skip = skip_probability(graph, facts, costs.skip_share)
    builds = costs.builds(len(graph))
    run = builds + costs.setup_min + mass * costs.new_run_min + (1 - mass) * costs.old_run_min
    sound = gain
    gain = sound * (1 - skip)
    worth = gain / ((1 - skip) * run + skip * costs.skip_min)
    under_way = (commit for commit, kernel in facts.in_flight if kernel is Kernel.COMMIT)
    worth[as_mask(len(graph), facts.closed.union(under_way))] = -np.inf
    return Prospects(outcomes, sound, gain, worth, costs.build_spare * builds + costs.longest(0.0, whole=False))


def pays_both_ways(commits: float, saved: float, trial: float, left: float = math.inf) -> bool:
    """Whether trials of both ends in a quicker way, too, take less than that way can save in the search.

    Among so many commits; what it saves in a trial at most, what a trial takes, and what is left, in one unit of time.
    """
    trials = min(math.log2(max(2.0, commits)), left / trial - BOTH_ENDS)
    return trials * saved > BOTH_ENDS * trial


def kernel_gain_bits(graph: RangeGraph, belief: Posterior, outcomes: Outcomes, commit: int, kernel: Kernel) -> float:
    """What the next reading of one kernel tells beside what is in flight.

    Of an end without a commit, or with it, by that commit alone: a sum over the others would tell commits apart that
    are as likely, by how it is rounded.
    """
    had = graph.ancestors(commit) if kernel is Kernel.COMMIT else np.array([commit])
    p, of, classes = outcomes.p[had], outcomes.of[had], outcomes.factor.shape[1]
    new = np.clip(outcomes.factor @ np.bincount(of, p, classes), 0.0, 1.0)
    if kernel is Kernel.REVERTED:
        new = 1 - new
    return float(outcomes.probability @ _gain_bits(new, (belief.chances(commit, kernel),)))


def skip_probability(graph: RangeGraph, facts: SearchFacts, share: float) -> Floats:
    """How likely each commit is to be untestable: ``share``, fading doubt beside skips, 0 once it was measured.

    The nearest skip on either side counts, and between two of them both do. The doubt stays in its segment,
    and does not reach beyond a commit that works.
    """
    works, sound = facts.measured, np.ones(len(graph))
    for commit in sorted(facts.untestable):
        members, place = graph.members(commit), int(graph.position[commit])
        beside = [n for n in (*facts.untestable, *works) if graph.segment[n] == graph.segment[commit]]
        tried = [int(graph.position[n]) for n in beside]
        first = max((other for other in tried if other < place), default=-1) + 1  # up to the next one that was tried
        last = min((other for other in tried if other > place), default=len(members))
        for near in (members[first:place], members[place + 1 : last]):
            sound[near] *= 1 - _SKIP_NEAR * np.exp(-np.abs(graph.position[near] - place) / _SKIP_LENGTH)
    skip: Floats = np.maximum(1 - sound, share)
    skip[list(works)] = 0.0
    return skip


def _gain_bits(new: Floats, chances: Sequence[Chances]) -> Floats:
    """What readings tell of kernels that are new with these probabilities; each misleads by chances of its own or all.

    That is how much is unknown of the answer, less what noise hides of it on either side.
    """
    looks_new, looks_old = np.array([(one.looks_new, one.looks_old) for one in chances]).reshape(-1, 2).T
    says_old = new * looks_old + (1 - new) * (1 - looks_new)
    bits: Floats = _entropy(says_old) - new * _entropy(looks_old) - (1 - new) * _entropy(looks_new)
    return np.maximum(bits, 0.0)


def _entropy(p: Floats) -> Floats:
    """Of a yes-or-no answer, in bits."""
    q = np.clip(p, 1e-300, 1.0)
    r = np.clip(1 - p, 1e-300, 1.0)
    bits: Floats = -(p * np.log2(q) + (1 - p) * np.log2(r))
    return bits


def missing_whole_runs(problem: SearchProblem, facts: SearchFacts, culprit: int, *, stand_ins: bool) -> tuple[int, ...]:
    """``culprit`` and its parents that can be tested, as far as none of them has a whole run yet.

    The culprit comes first: the others' runs may be stopped once they are clear of its. The old end stands for what is
    before the range. With ``stand_ins``, so does any commit for another when nothing between them can change the
    kernel.
    """
    graph, relevant = problem.graph, problem.relevant
    whole = facts.with_twins(r.commit for r in facts.readings if r.kernel is Kernel.COMMIT and r.full)

    def is_stood_for(commit: int) -> bool:
        if not stand_ins or relevant is None:
            return False
        needed = graph.ancestors(commit) & relevant
        return not needed.any() or any(np.array_equal(needed, graph.ancestors(other) & relevant) for other in whole)

    testable = (commit for commit in (culprit, *graph.parents[culprit]) if commit not in facts.closed)
    return tuple(commit for commit in testable if commit not in whole and not is_stood_for(commit))


def contradicted(belief: Posterior, commit: int) -> bool:
    """Whether the ends without ``commit``, or with it, speak against it: by the logarithm of the odds of both."""
    sides = {Kernel.REVERTED: -1, Kernel.PICKED: 1}
    read = {kernel: belief.undone.get((commit, kernel)) for kernel in sides}
    return sum(sides[kernel] * (one.new - one.old) for kernel, one in read.items() if one is not None) < 0


def may_be_luck(problem: SearchProblem, facts: SearchFacts, belief: Posterior, surely: float, at_most: int) -> bool:
    """Whether the new end without the likeliest commit is to be read again, since what speaks for that may be luck.

    That is while there are cases of the noise in which the commit has less than the probability ``surely``: of a host
    that may mislead in every fifth run, one reading that fits is little, and on one that is known to be quiet it is
    enough. The old end with the commit may lack what it builds upon, however often it is read.
    """
    read = sum(one.of == (belief.best, Kernel.REVERTED) for one in facts.readings)
    can_be_had = Kernel.REVERTED in undo_options(problem, facts, belief.best)
    return belief.surely < surely and can_be_had and 0 < read < at_most


def speaking_against(
    problem: SearchProblem, facts: SearchFacts, belief: Posterior, suspect: int, odds: float
) -> Iterator[int]:
    """``suspect`` and its parents that by their own runs are on the wrong side, but not with ``odds``, and may yet be.

    Most such runs are accidents: everything else speaks for the suspect. Of kernels that are equal the measured one is
    given.
    """
    measured = dict(facts.twins)
    for commit in (suspect, *problem.graph.parents[suspect]):
        read = belief.tested.get(commit)
        is_open = read is not None and commit not in facts.closed and not _fits(read, commit, suspect)
        if is_open and read is not None and abs(read.surely_new) < math.log(odds):
            yield measured.get(commit, commit)


def stopped_undone(problem: SearchProblem, facts: SearchFacts, commit: int) -> Kernel | None:
    """The end without ``commit``, or with it, that was read and can be had, if no run of either was a whole one."""
    runs = [one for one in facts.readings if one.commit == commit and one.kernel is not Kernel.COMMIT]
    read = set() if any(one.full for one in runs) else {one.kernel for one in runs}
    return next((kernel for kernel in undo_options(problem, facts, commit) if kernel in read), None)


def borne_out(problem: SearchProblem, belief: Posterior, commit: int) -> bool:
    """Whether nothing that was measured of ``commit``, its parents and the ends without it speaks against it.

    However likely the prior and the rest make it.
    """
    read = {one: belief.tested.get(one) for one in (commit, *problem.graph.parents[commit])}
    fit = (_fits(evidence, one, commit) for one, evidence in read.items() if evidence is not None)
    return all(fit) and not contradicted(belief, commit)


def _fits(read: KernelEvidence, commit: int, suspect: int) -> bool:
    return (read.new >= read.old) is (commit == suspect)


def undo_options(problem: SearchProblem, facts: SearchFacts, commit: int) -> tuple[Kernel, ...]:
    """Ends that can still be had without ``commit``, or with it, the better one first.

    Reverting a merge undoes all of its branch, so a merge has none. The new end without the
    commit comes before the old end with it, which may lack what the commit builds upon.
    """
    if len(problem.graph.parents[commit]) > 1:
        return ()
    return tuple(kernel for kernel in (Kernel.REVERTED, Kernel.PICKED) if (commit, kernel) not in facts.failed)


# An end is read again while more than this share of the figures is expected on the wrong side of the line, and at most
# so often in all: levels that really overlap do not come apart by knowing them.
_OVERLAP = 0.03
_MOST_READINGS_OF_AN_END = 4


def end_to_read(graph: RangeGraph, facts: SearchFacts, belief: Posterior) -> Verdict | None:
    """The side whose end is to be read again; None when the search can begin, or has begun."""
    ends = {Verdict.OLD: (OLD_END, Kernel.COMMIT), Verdict.NEW: (graph.tip, Kernel.COMMIT)}
    counts = {side: sum(one.of == end for one in facts.readings) for side, end in ends.items()}
    begun = sum(counts.values()) < len(facts.readings)
    if begun or not belief.levels or belief.overlap <= _OVERLAP:
        return None
    fewest = min(counts, key=counts.__getitem__)
    return fewest if counts[fewest] < _MOST_READINGS_OF_AN_END else None
