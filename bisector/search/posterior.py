"""Which commit is the first new one, given all facts so far: a probability for each commit of the range.

It is conditional on there being one such commit; :func:`fit` says whether the readings can be of one change at all.

A kernel is new if and only if the first new commit is among its ancestors or itself. The
posterior is made anew from the facts each time, so their order, and whether they were replayed, makes no difference.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from bisector.core.verdict import Verdict
from bisector.search.graph import Floats, Mask, Numbers, RangeGraph
from bisector.search.likelihood import Evidence, Kernel, Noise, Reading, Weighing

# A commit that cannot change the kernel that is measured: next to nothing, as the analysis of what is built may err.
IRRELEVANT_WEIGHT = 1e-4
# How much likelier a suspect is at most, and how much of the prior all suspects may have together: were
# the suspicion wrong, the former costs log2(20) bits, which two kernels bring.
SUSPECT_WEIGHT = 20.0
_SUSPECTS_SHARE = 0.5
# Below this probability of so many contradictions the readings are not of one change.
_MISFIT = 1e-3


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known: readings, commits that cannot be tested, and ends that a commit cannot be undone or done on.

    Of ``twins`` the first has the kernel of the second, so that the readings of the second are its own, too.
    ``exhausted`` are commits that gave readings and give no more. ``in_vain`` counts the changed ends that were
    built and gave none.
    """

    readings: tuple[Reading, ...] = ()
    skips: tuple[int, ...] = ()
    failed: tuple[tuple[int, Kernel], ...] = ()
    twins: tuple[tuple[int, int], ...] = ()
    exhausted: tuple[int, ...] = ()
    in_vain: int = 0

    def with_reading(self, reading: Reading) -> "Facts":
        """These and one more reading."""
        return replace(self, readings=(*self.readings, reading))

    def with_skip(self, commit: int) -> "Facts":
        """These, and a commit that cannot be tested."""
        return replace(self, skips=(*self.skips, commit))

    def with_failed(self, commit: int, kernel: Kernel) -> "Facts":
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
        """Commits whose kernel gave a reading."""
        return self.with_twins(reading.commit for reading in self.readings if reading.kernel is Kernel.COMMIT)


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """``p`` is the probability of each commit to be the first new one.

    ``tested`` and ``undone`` are the evidence of each kernel's readings, before it is hardened.
    """

    p: Floats
    tested: Mapping[int, Evidence]
    undone: Mapping[tuple[int, Kernel], Evidence]

    @property
    def best(self) -> int:
        """The likeliest commit; the oldest of several."""
        return int(np.argmax(self.p))

    @property
    def unknown_bits(self) -> float:
        """What is not known yet: the entropy."""
        p = self.p[self.p > 0]
        return float(-(p * np.log2(p)).sum())

    def likeliest(self, count: int) -> tuple[int, ...]:
        """The ``count`` likeliest commits, likeliest first."""
        count = min(count, len(self.p))
        top = np.sort(np.argpartition(-self.p, count - 1)[:count])
        return tuple(int(commit) for commit in top[np.argsort(-self.p[top], kind="stable")])

    def smallest_set(self, mass: float) -> tuple[int, ...]:
        """The fewest commits that have at least this probability together, likeliest first."""
        ranked = np.argsort(-self.p, kind="stable")
        count = int(np.searchsorted(np.cumsum(self.p[ranked]), mass * (1 - 1e-12))) + 1
        return tuple(int(commit) for commit in ranked[:count])


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


def prior(
    count: int, relevant: Mask | None = None, suspects: Mask | None = None, factor: float = SUSPECT_WEIGHT
) -> Floats:
    """Log-probabilities before any trial; never minus infinity.

    ``relevant`` commits can change the kernel, ``suspects`` are ``factor`` times as likely as others at most.
    """
    weights = np.ones(count) if relevant is None else np.where(relevant, 1.0, IRRELEVANT_WEIGHT)
    if suspects is not None and suspects.any() and not suspects.all():
        theirs, others = weights[suspects].sum(), weights[~suspects].sum()
        ceiling = max(1.0, _SUSPECTS_SHARE / (1 - _SUSPECTS_SHARE) * others / theirs)
        weights = np.where(suspects, weights * min(factor, SUSPECT_WEIGHT, ceiling), weights)
    log: Floats = np.log(weights / weights.sum())
    return log


def posterior(graph: RangeGraph, log_prior: Floats, facts: Facts, weighing: Weighing) -> Posterior:
    """Bayes' rule over all facts."""
    by_kernel: dict[tuple[int, Kernel], list[Reading]] = defaultdict(list)
    for reading in facts.readings:
        by_kernel[reading.commit, reading.kernel].append(reading)
    evidence = {key: weighing.of(by_kernel[key]) for key in sorted(by_kernel)}
    log_p = log_prior.copy()
    for (commit, kernel), raw in evidence.items():
        hard = raw.hardened(weighing.noise.sticky)
        match kernel:
            case Kernel.COMMIT:
                log_p += np.where(graph.ancestors(commit), hard.new, hard.old)
            case Kernel.REVERTED:  # old if this commit is the one, else new
                log_p[commit] += hard.old - hard.new
            case Kernel.PICKED:
                log_p[commit] += hard.new - hard.old
    p = np.exp(log_p - log_p.max())
    tested = {commit: raw for (commit, kernel), raw in evidence.items() if kernel is Kernel.COMMIT}
    return Posterior(
        p / p.sum(),
        tested | {twin: tested[other] for twin, other in facts.twins if other in tested},
        {key: raw for key, raw in evidence.items() if key[1] is not Kernel.COMMIT},
    )


def fit(graph: RangeGraph, facts: Facts, first_new: int, noise: Noise) -> Fit:
    """How well one change at ``first_new`` explains the readings.

    Of one kernel's n readings the wrong ones are binomial, or all but the wrong ones when the
    kernel as a whole misleads; the sum over kernels is convolved exactly. The search prefers the commit with the
    fewest contradictions, so the tail errs towards "one change".
    """
    counts: dict[tuple[int, Kernel], list[bool]] = {}
    for reading in facts.readings:
        key = (reading.commit, reading.kernel)
        counts.setdefault(key, []).append(reading.verdict is not _side_under(graph, key, first_new))
    spread = np.ones(1)
    for key, wrong in sorted(counts.items()):
        old = _side_under(graph, key, first_new) is Verdict.OLD
        usual, stuck = noise.old_as_new, 1 - noise.new_as_old
        if not old:
            usual, stuck = noise.new_as_old, 1 - noise.old_as_new
        n = len(wrong)
        spread = np.convolve(spread, (1 - noise.sticky) * _binomial(n, usual) + noise.sticky * _binomial(n, stuck))
    seen = sum(sum(wrong) for wrong in counts.values())
    return Fit(seen, float(spread @ np.arange(len(spread))), float(spread[seen:].sum()))


def as_mask(count: int, commits: Numbers | tuple[int, ...] | frozenset[int]) -> Mask:
    """Commits as a mask."""
    mask = np.zeros(count, dtype=np.bool_)
    mask[list(commits)] = True
    return mask


def _side_under(graph: RangeGraph, reading_of: tuple[int, Kernel], first_new: int) -> Verdict:
    """The side a kernel is on if ``first_new`` is the first new commit."""
    commit, kernel = reading_of
    match kernel:
        case Kernel.COMMIT:
            return Verdict.NEW if graph.ancestors(commit)[first_new] else Verdict.OLD
        case Kernel.REVERTED:
            return Verdict.OLD if commit == first_new else Verdict.NEW
        case Kernel.PICKED:
            return Verdict.NEW if commit == first_new else Verdict.OLD
        case Kernel.PATCHED | Kernel.IMAGE:
            raise ValueError("no search measures a commit with a patch on top, or an image")


def _binomial(n: int, p: float) -> Floats:
    distribution = np.ones(1)
    for _ in range(n):
        distribution = np.convolve(distribution, (1 - p, p))
    return distribution
