"""The posterior: the probability of each commit of the range to be the first new one, given all facts so far.

A kernel is new if and only if it contains the first new commit. Commits that are contained in the same measured kernels
are a *class*: the sum over classes and cases of the noise is exact. The posterior is computed anew from the facts each
time, so their order makes no difference. The levels of a host are learnt with the rates at their prior mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bisector.search.graph import Floats, Mask, Numbers, RangeGraph
from bisector.search.learning import HostFigures, learn
from bisector.search.likelihood import (
    PICK_IN_VAIN,
    Cases,
    HostLevels,
    Key,
    Pair,
    ReadingTable,
    Sides,
    Weighing,
    log_by_class,
    log_likelihoods,
    p_sticky,
    with_sticky,
)
from bisector.search.noise import Levels, Noise, Particles, Rates
from bisector.search.readings import OLD_END, Kernel, Reading, SearchFacts, new_under

# The weight of a commit that cannot change the measured kernel: next to nothing, as the analysis of what is built may
# err.
IRRELEVANT_WEIGHT = 1e-4
# The largest weight of a suspect, and the largest share of the prior that all suspects have together: if the suspicion
# is wrong, this share costs one bit, which one more kernel brings.
SUSPECT_WEIGHT = 40.0
_SUSPECTS_SHARE = 0.5
# Means over cases of the noise, for single kernels, are taken over this many cases at most, the likeliest.
_CASES = 512
# The share of the weight that the noisiest cases have. On a host of which next to nothing is known, one reading may be
# wrong once in five times, whatever the mean is.
_NOISIEST = 0.05
# An answer has to hold in all cases but the loudest, which have this share. On a host where every fifth run misleads,
# one search of eight has hardly a contradiction, by luck, and the cases of such a host then have one or two per cent.
_LOUDEST = 0.01


@dataclass(frozen=True, slots=True)
class Chances:
    """The probabilities that the next reading of a kernel misleads: P("new") if it is old, P("old") if it is new."""

    looks_new: float
    looks_old: float


@dataclass(frozen=True, slots=True)
class KernelEvidence:
    """The evidence from a kernel's readings: their log-likelihoods if it is ``old`` and if it is ``new``.

    These are means over all cases of the noise, weighted by all readings. ``surely_new`` is the log-odds that the
    readings reach in all cases but the noisiest, negative if they speak for the old side; 0 if these cases do not agree
    on a side. ``next`` has the chances of the kernel's next reading.
    """

    old: float
    new: float
    surely_new: float
    next: Chances


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """The terms of the sum that the posterior is: classes of commits and cases of the noise.

    ``of`` is the class of each commit, ``has`` tells which kernels each class makes new, ``log_class`` and ``log_case``
    are log-priors. ``old`` and ``new`` are the log-likelihoods of a kernel's readings in each case, given its side.
    ``log_evidence`` is the log-probability of all readings, given one change. ``weight`` is the posterior of each case.
    """

    record: ReadingTable
    of: Numbers
    has: Mask
    log_class: Floats
    log_case: Floats
    old: Floats
    new: Floats
    log_evidence: float
    weight: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """The posterior of a search; ``p`` is the probability of each commit to be the first new one.

    ``surely`` is the probability of the likeliest commit in all cases of the noise but the loudest. ``tested`` and
    ``undone`` have the evidence from readings of commits and of changed ends. ``fresh`` has the chances of a kernel
    without readings, ``fresh_pick`` of an old end with a picked commit. ``noise`` has the mean rates after all
    readings, ``levels`` the likeliest levels by host (empty without figures of both ends). ``overlap`` is the share of
    the figures that is expected on the wrong side of the threshold. All this assumes one change; ``nothing`` is the
    probability that there was none (:mod:`bisector.search.effect`).
    """

    p: Floats
    surely: float
    tested: Mapping[int, KernelEvidence]
    undone: Mapping[Key, KernelEvidence]
    fresh: Chances
    fresh_pick: Chances
    noise: Noise
    levels: Mapping[str, Levels]
    overlap: float
    joint: Joint
    nothing: float = 0.0

    @property
    def best(self) -> int:
        """The likeliest commit; if there are several, the oldest."""
        return int(np.argmax(self.p))

    @property
    def unknown_bits(self) -> float:
        """The entropy of the posterior, in bits."""
        p = self.p[self.p > 0]
        return float(-(p * np.log2(p)).sum())

    def chances(self, commit: int, kernel: Kernel) -> Chances:
        """The chances that the next reading of a kernel misleads."""
        read = self.tested.get(commit) if kernel is Kernel.COMMIT else self.undone.get((commit, kernel))
        if read is not None:
            return read.next
        return self.fresh_pick if kernel is Kernel.PICKED else self.fresh

    def likeliest(self, count: int) -> tuple[int, ...]:
        """The ``count`` likeliest commits, likeliest first."""
        count = min(count, len(self.p))
        top = np.sort(np.argpartition(-self.p, count - 1)[:count])
        return tuple(int(commit) for commit in top[np.argsort(-self.p[top], kind="stable")])

    def smallest_set(self, mass: float) -> tuple[int, ...]:
        """The fewest commits that have at least the probability ``mass`` together, likeliest first."""
        ranked = np.argsort(-self.p, kind="stable")
        count = int(np.searchsorted(np.cumsum(self.p[ranked]), mass * (1 - 1e-12))) + 1
        return tuple(int(commit) for commit in ranked[:count])


def prior(
    count: int, relevant: Mask | None = None, suspects: Mask | None = None, factor: float = SUSPECT_WEIGHT
) -> Floats:
    """The log-probabilities before any trial; never minus infinity.

    ``relevant`` commits can change the kernel. ``suspects`` are at most ``factor`` times as likely as others.
    """
    weights = np.ones(count) if relevant is None else np.where(relevant, 1.0, IRRELEVANT_WEIGHT)
    if suspects is not None and suspects.any() and not suspects.all():
        theirs, others = weights[suspects].sum(), weights[~suspects].sum()
        ceiling = max(1.0, _SUSPECTS_SHARE / (1 - _SUSPECTS_SHARE) * others / theirs)
        weights = np.where(suspects, weights * min(factor, SUSPECT_WEIGHT, ceiling), weights)
    log: Floats = np.log(weights / weights.sum())
    return log


def posterior(graph: RangeGraph, log_prior: Floats, facts: SearchFacts, weighing: Weighing) -> Posterior:
    """Return the posterior by Bayes' rule over all facts."""
    record = ReadingTable.gather(facts.readings)
    of, has = _classes(graph, record.kernels)
    shares = np.exp(log_prior - log_prior.max())
    log_class = np.log(np.bincount(of, weights=shares) / shares.sum())
    cases = _cases(facts.readings, record, has, log_class, weighing)
    sides = log_likelihoods(record, cases)
    old, new = with_sticky(sides.old, sides.new, cases.sticky)
    log_joint = log_by_class(has, log_class, old, new) + cases.log_prior
    weight = _weights(log_joint)
    total = float(weight.sum())
    log_evidence = float(log_joint.max()) + float(np.log(total))
    by_class, by_case = weight.sum(axis=1) / total, weight.sum(axis=0) / total
    joint = Joint(record, of, has, log_class, cases.log_prior, old, new, log_evidence, by_case)
    evidence = _evidence(record, cases, sides, by_case)
    tested = {commit: one for (commit, kernel), one in evidence.items() if kernel is Kernel.COMMIT}
    p = shares * (by_class / np.bincount(of, weights=shares))[of]
    best = int(np.argmax(p))
    # The commits of a class share its probability by their priors.
    best_by_case = weight[of[best]] / weight.sum(axis=0) * (p[best] / p[of == of[best]].sum())
    fresh = cases.misleads(figures=True)
    by_rate = by_case.reshape(-1, len(cases.rates.log_prior)).sum(axis=0)
    return Posterior(
        p,
        _quantile(best_by_case, by_case, _LOUDEST),
        tested | {twin: tested[other] for twin, other in facts.twins if other in tested},
        {key: one for key, one in evidence.items() if key[1] is not Kernel.COMMIT},
        _misleads(fresh, (cases.sticky, cases.sticky), by_case),
        _misleads(fresh, (cases.sticky, cases.sticky), by_case, PICK_IN_VAIN),
        cases.rates.mean(by_rate),
        {host: one.levels.mode for host, one in cases.hosts.items()},
        float(by_case @ cases.overlap),
        joint,
    )


def _classes(graph: RangeGraph, kernels: tuple[Key, ...]) -> tuple[Numbers, Mask]:
    """The class of each commit, and which kernels each class makes new."""
    # The first places, in the order of segments, of stretches of commits that are of one class: only a measured commit
    # divides its segment
    measured = np.array([commit for commit, _ in kernels if commit != OLD_END], dtype=np.intp)
    places = graph.first[graph.segment[measured]] + graph.position[measured]
    starts = np.unique(np.concatenate((graph.first[:-1], places, places + 1)))
    starts = starts[starts < len(graph)]
    one_of_each = graph.order[starts]
    masks = [new_under(graph, commit, kernel, one_of_each) for commit, kernel in kernels]
    of = np.zeros(len(starts), dtype=np.intp)
    for mask in masks:
        split = 2 * of + mask
        there = np.bincount(split) > 0
        of = (np.cumsum(there) - 1)[split]
    one_of_each = np.zeros(int(of.max()) + 1, dtype=np.intp)
    one_of_each[of] = np.arange(len(of))
    has = np.zeros((len(one_of_each), len(kernels)), dtype=np.bool_)
    for place, mask in enumerate(masks):
        has[:, place] = mask[one_of_each]
    of_commits = np.empty(len(graph), dtype=np.intp)
    of_commits[graph.order] = np.repeat(of, np.diff(starts, append=len(graph)))
    return of_commits, has


def _cases(
    readings: Sequence[Reading], record: ReadingTable, has: Mask, log_class: Floats, weighing: Weighing
) -> Cases:
    rates = weighing.rates
    scales = {host: weighing.scales[host] for host in record.now if host in weighing.scales}
    if not scales:
        return Cases(rates)
    usual, learnt = Rates.known(rates.mean(np.exp(rates.log_prior))), []
    for host, scale in scales.items():
        alone = [one if one.host == host else replace(one, score=None) for one in readings]
        learnt.append(learn(HostFigures(ReadingTable.gather(alone), has, log_class, usual, scale, host)))
    together = zip(scales.items(), Particles.together(learnt), strict=True)
    return Cases(rates, {host: HostLevels(levels, scale, record.now[host]) for (host, scale), levels in together})


def _weights(log: Floats, axis: int | None = None) -> Floats:
    weights: Floats = np.exp(log - log.max(axis=axis, keepdims=axis is not None))
    return weights


def _evidence(record: ReadingTable, cases: Cases, sides: Sides, by_case: Floats) -> dict[Key, KernelEvidence]:
    likely = np.argsort(-by_case, kind="stable")[:_CASES]
    weight = by_case[likely] / by_case[likely].sum()
    raw_old, raw_new, in_vain = (one[:, likely] for one in (sides.old, sides.new, sides.in_vain))
    stuck_old, stuck_new = p_sticky(raw_old, raw_new, cases.sticky[likely])
    looks_new, looks_old = cases.misleads(figures=True)
    looks = looks_new[likely], looks_old[likely]
    means = [np.log(_weights(one, axis=1) @ weight) + one.max(axis=1) for one in (raw_old, raw_new)]
    found = {}
    for place, key in enumerate(record.kernels):
        chances = _misleads(looks, (stuck_old[place], stuck_new[place]), weight, in_vain[place])
        old, new = (float(one[place]) for one in means)
        log_odds = raw_new[place] - raw_old[place]
        # The log-odds that all cases but the noisiest reach, if they agree on a side
        least, most = (_quantile(log_odds, weight, share) for share in (_NOISIEST, 1 - _NOISIEST))
        found[key] = KernelEvidence(old, new, max(least, 0.0) + min(most, 0.0), chances)
    return found


def _misleads(looks: Pair, sticky: Pair, weight: Floats, in_vain: Floats | float = 0.0) -> Chances:
    """The chances of the next reading of a kernel.

    ``looks`` is how often a kernel of either side looks like the other side although it does not mislead as a whole,
    ``sticky`` how likely it does. A new kernel behaves like an old one with the probability ``in_vain`` (of a picked
    commit).
    """
    (a, b), (old, new) = looks, sticky
    looks_old = in_vain * (1 - a) + (1 - in_vain) * b
    looks_new = float(weight @ (old * (1 - looks_old) + (1 - old) * a))
    return Chances(looks_new, float(weight @ (new * (1 - a) + (1 - new) * looks_old)))


def _quantile(values: Floats, weight: Floats, share: float) -> float:
    """The quantile of ``values`` that has ``share`` of the weight below it."""
    order = np.argsort(values, kind="stable")
    place = min(int(np.searchsorted(np.cumsum(weight[order]), share)), len(order) - 1)
    return float(values[order[place]])
