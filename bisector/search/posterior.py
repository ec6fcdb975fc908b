"""The posterior: the probability of each commit to be the first new one, and the levels that readings leave possible.

A kernel is new if and only if it contains the first new commit. Commits that are contained in the same measured kernels
are a *class*: the sum over classes and cases of the noise is exact. The posterior is computed anew from the facts each
time, so their order makes no difference.

The levels that the figures of a host leave possible are learnt from all readings of a search, with the rates at their
prior mean, as docs/method-search.md says: the likeliest levels by expectation and maximisation (Dempster, Laird and
Rubin 1977), particles around them by adaptive importance sampling (Cappé and others 2004) and resampling (Rubin 1988).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from bisector.search.graph import OLD_END, Floats, Kernel, Mask, Numbers, RangeGraph, Reading, SearchFacts, new_under
from bisector.search.likelihood import (
    PICK_IN_VAIN,
    Cases,
    HostLevels,
    HostScale,
    Key,
    Pair,
    ReadingTable,
    Sides,
    Weighing,
    log_by_class,
    log_likelihoods,
    p_sticky,
    shown_by,
    with_sticky,
)
from bisector.search.noise import (
    CENTRE_DEVIATION,
    PARTICLES,
    Expected,
    Level,
    Levels,
    Noise,
    Particles,
    Rates,
    SideLevels,
    beyond,
    density,
    log_sum,
)

_Proposal: TypeAlias = tuple[Floats, Callable[[Floats], Floats]]  # points, and the log-density of any points

# The information of a reading about a centre and about the logarithm of a spread (Fisher information of Student's t, 4
# degrees)
_TELLS_CENTRE = 5 / 7
_TELLS_SPREAD = 8 / 7
_ROUNDS = 12  # of expectation and maximisation, at most
_SETTLED = 1e-2  # in spreads: the levels have converged if none moved farther
_LEAST = 1e-12  # of a sum of weights: avoids a division by zero
# The number of draws from each of the three proposals.
_DRAWN = 160
_PROPOSALS = 3
# A proposal is wider than the curvature at the mode implies, because the mode is found from few readings.
_WIDER = 1.15
# Weights are raised to this power before a proposal is fitted to them, so that it is wider than its points.
_FLATTER = 0.7
# A proposal is never narrower than this share of the variance of all draws.
_NARROWEST = 1e-3
# Levels in the reverse order of the ends have this prior probability, because the user's words say which end is better.
_REVERSED = 1e-3
_LEAST_IN_ORDER = 1e-3  # of the probability of the order of the first readings
_UNKNOWN = 5  # the number of parameters: centre and log-spread of the old side, the same of the new side, drift
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


# The levels of a host


@dataclass(frozen=True, slots=True, eq=False)
class HostFigures:
    """All readings with the figures of a single host, the classes of commits, and a single case of the rates.

    ``has`` tells which kernels each class makes new, ``log_class`` is the log-prior of each class.
    """

    record: ReadingTable
    has: Mask
    log_class: Floats
    rates: Rates
    scale: HostScale
    host: str = ""

    def log_likelihood(self, particles: Particles) -> Floats:
        """The log-likelihood of all readings, for each particle."""
        return log_sum(self._log_likelihoods(particles)[1])

    def _log_likelihoods(self, particles: Particles) -> tuple[Sides, Floats]:
        """The log-likelihoods of the readings by kernel and side, and by class of commits."""
        now = self.record.now.get(self.host, 0.0)
        sides = log_likelihoods(self.record, Cases(self.rates, {self.host: HostLevels(particles, self.scale, now)}))
        old, new = with_sticky(sides.old, sides.new, self.rates.sticky)
        return sides, log_by_class(self.has, self.log_class, old, new)

    def seen(self, levels: Levels) -> "Both":
        """Return the figures with their probabilities to lie on the old level and on the new one; the rest is stray."""
        particles = Particles.known(levels)
        sides, by_class = self._log_likelihoods(particles)
        weight = np.exp(by_class[:, 0] - by_class[:, 0].max())
        is_new = (weight / weight.sum()) @ self.has
        if_old, if_new = (one[:, 0] for one in p_sticky(sides.old, sides.new, self.rates.sticky))
        # The probability that the runs of each kernel look like those of a new one
        is_new = ((1 - sides.in_vain[:, 0]) * is_new * (1 - if_new) + (1 - is_new) * if_old)[self.record.of]
        scores, hours = self.record.scores, self.record.hours
        f_old, f_new = (side.density(scores, hours)[0] for side in (particles.old, particles.new))
        stray_old, stray_new = self.scale.stray(scores)
        a, b = float(self.rates.old_as_new[0]), float(self.rates.new_as_old[0])
        by_old = (1 - is_new) / shown_by(f_old, f_new, stray_old, a)
        by_new = is_new / shown_by(f_new, f_old, stray_new, b)
        old, new = (by_old * (1 - a) + by_new * b) * f_old, (by_new * (1 - b) + by_old * a) * f_new
        return SideReadings(scores, hours, old), SideReadings(scores, hours, new)


@dataclass(frozen=True, slots=True, eq=False)
class SideReadings:
    """All scores, their times, and the share of each that belongs to one side."""

    scores: Floats
    hours: Floats
    shares: Floats

    @property
    def count(self) -> float:
        """The number of readings of the side."""
        return float(self.shares.sum())

    def precision(self, level: Level, drift: float) -> Floats:
        """The weight of each reading; a reading far from the centre counts little."""
        z = (self.scores - level.centre - drift * (self.hours - level.hour)) / level.spread
        return self.shares * 5 / (4 + z * z) / level.spread**2

    def nearer(self, level: Level, drift: float, middle: float, expected: Expected) -> Level:
        """Return a level that explains the side's scores better: a step of Fisher's scoring, with the prior."""
        precision = self.precision(level, drift)
        weight = precision.sum() + CENTRE_DEVIATION**-2
        # At the mean time of the readings the centre does not depend on the drift.
        hour = float(precision @ self.hours / max(precision.sum(), _LEAST))
        still = self.scores - drift * (self.hours - hour)
        centre = (precision @ still + middle * CENTRE_DEVIATION**-2) / weight
        z = (still - centre) / level.spread
        # A single reading tells nothing about the spread, because the centre is unknown; n readings tell as much about
        # it as n - 1 would if the centre were known.
        slope = 1 + self.shares @ (5 / (4 + z * z) * z * z - 1)
        slope -= math.log(level.spread / expected.spread) / expected.spread_deviation**2
        step = slope / (_TELLS_SPREAD * self.count + expected.spread_deviation**-2)
        return Level(float(centre), level.spread * math.exp(min(1.0, max(-1.0, step))), hour)


Both: TypeAlias = tuple[SideReadings, SideReadings]


def likeliest(figures: HostFigures) -> tuple[Levels, Both]:
    """Return the likeliest levels, and the shares of the figures that belong to the old side and to the new one."""
    (old, new), expected = figures.scale.ends, figures.scale.expected
    levels, middle = Levels(Level(old, expected.spread), Level(new, expected.spread)), (old + new) / 2
    seen = figures.seen(levels)
    for _ in range(_ROUNDS):
        pairs = zip(seen, (levels.old, levels.new), strict=True)
        sides = tuple(of.nearer(level, levels.drift, middle, expected) for of, level in pairs)
        # The drift per hour of the readings of both sides
        moves, weight = 0.0, expected.drift_deviation**-2
        for of, level in zip(seen, sides, strict=True):
            precision, apart = of.precision(level, levels.drift), of.hours - level.hour
            moves += float(precision * apart @ (of.scores - level.centre))
            weight += float(precision @ apart**2)
        before, levels = levels, Levels(sides[0], sides[1], moves / weight)
        moved = [abs(b.centre - a.centre) / a.spread for b, a in zip((before.old, before.new), sides, strict=True)]
        moved += [abs(math.log(b.spread / a.spread)) for b, a in zip((before.old, before.new), sides, strict=True)]
        if max(moved) < _SETTLED:
            break
        seen = figures.seen(levels)
    return levels, seen


def learn(figures: HostFigures) -> Particles:
    """Return particles that represent equal shares of the posterior, ordered by the distance between both levels."""
    mode, seen = likeliest(figures)
    # Kernels whose side is certain: it is the same in all classes
    certain: Mask = np.logical_or(figures.has.all(axis=0), ~figures.has.any(axis=0))
    old, new = (replace(one, shares=np.where(certain[figures.record.of], one.shares, 0.0)) for one in seen)
    expected, proposals, found = figures.scale.expected, list[_Proposal](), list[Floats]()

    def weigh(proposal: _Proposal) -> Floats:
        proposals.append(proposal)
        return figures.log_likelihood(Particles(*_sides(proposal[0], mode), np.zeros(_DRAWN), mode))

    def sample() -> tuple[Floats, Floats]:
        """Return all points, and the logarithm of the weight of each.

        The weight is the likelihood times the prior over the density of the draws, which is the mean of all proposals
        (Owen and Zhou 2000).
        """
        points = np.concatenate([drawn for drawn, _ in proposals], axis=1)
        log_density = log_sum(np.array([log_density(points) for _, log_density in proposals]))
        log_prior = _log_prior(points, mode, figures.scale)
        return points, log_prior - log_density - np.log(_DRAWN) + np.concatenate(found)

    found += [weigh(_around(mode, (old, new) if place else seen, expected, _DRAWS[place])) for place in range(2)]
    points, log = sample()
    found.append(weigh(_fitted(points, np.exp(log - log_sum(log)), _DRAWS[2])))
    points, log = sample()
    order = np.argsort(points[2] - points[0], kind="stable")
    cumulated = np.cumsum(np.exp(log - log_sum(log))[order])
    places = np.searchsorted(cumulated, (np.arange(PARTICLES) + 0.5) / PARTICLES)
    chosen = order[np.minimum(places, len(order) - 1)]
    log_weight = -np.log(PARTICLES) + float(log_sum(log)) - np.concatenate(found)[chosen]
    return Particles(*_sides(points[:, chosen], mode), log_weight, mode)


def _around(mode: Levels, seen: Both, expected: Expected, z: Floats) -> _Proposal:
    """A proposal around the likeliest levels, as wide as the readings in ``seen`` leave them open."""
    found = (mode.old.centre, np.log(mode.old.spread), mode.new.centre, np.log(mode.new.spread), mode.drift)
    middle, before = np.array(found)[:, None], expected.spread_deviation**-2

    def reach(points: Floats) -> Floats:
        """The width of the proposal in each parameter, given the spreads of the points."""
        rows, known = [], np.full(points.shape[1], expected.drift_deviation**-2)
        for log_spread, of, level in zip(points[1:4:2], seen, (mode.old, mode.new), strict=True):
            tells = _TELLS_CENTRE * np.exp(-2 * log_spread)
            rows.append(1 / np.sqrt(of.count * tells + CENTRE_DEVIATION**-2))
            rows.append(np.full_like(log_spread, 1 / np.sqrt(_TELLS_SPREAD * of.count + before)))
            known = known + float(of.shares @ (of.hours - level.hour) ** 2) * tells
        return _WIDER * np.array([*rows, 1 / np.sqrt(known)])

    def log_density(points: Floats) -> Floats:
        found: Floats = (np.log(density((points - middle) / reach(points))) - np.log(reach(points))).sum(axis=0)
        return found

    # Spreads come first, because the width of the proposal for a centre depends on them.
    with_spreads = middle + reach(np.broadcast_to(middle, z.shape)) * z
    return middle + reach(with_spreads) * z, log_density


def _fitted(points: Floats, posterior: Floats, z: Floats) -> _Proposal:
    """A proposal with the mean and a little more than the variance of weighted points."""
    weight = posterior**_FLATTER / (posterior**_FLATTER).sum()
    mean = (points @ weight)[:, None]
    apart = points - mean
    variance = (apart * weight) @ apart.T + _NARROWEST * np.diag(points.var(axis=1))
    root = np.linalg.cholesky(variance / 2)  # Student's t with 4 degrees of freedom has the variance 2

    def log_density(points: Floats) -> Floats:
        z = np.asarray(np.linalg.solve(root, points - mean), dtype=np.float64)
        found: Floats = np.log(density(z)).sum(axis=0) - np.log(np.diag(root)).sum()
        return found

    return mean + root @ z, log_density


def _sides(points: Floats, mode: Levels) -> tuple[SideLevels, SideLevels]:
    """The levels that points stand for; their centres refer to the same hours as the mode's."""
    return (
        SideLevels(points[0], np.exp(points[1]), points[4], mode.old.hour),
        SideLevels(points[2], np.exp(points[3]), points[4], mode.new.hour),
    )


def _log_prior(points: Floats, mode: Levels, scale: HostScale) -> Floats:
    """The log-prior of levels, but for a constant.

    There would be no search if the ends' first readings had come in the reverse order. So this order is no evidence,
    and the likelihood of these readings is divided by its probability: levels that are hardly apart come in this order
    in only half of the cases.
    """
    ends, expected = scale.ends, scale.expected
    middle, sign = sum(ends) / 2, 1.0 if ends[1] >= ends[0] else -1.0
    log = _log_normal(points[4], 0.0, expected.drift_deviation)
    for centre, log_spread in (points[0:2], points[2:4]):
        log = log + _log_normal(centre, middle, CENTRE_DEVIATION)
        log = log + _log_normal(log_spread, np.log(expected.spread), expected.spread_deviation)
    old, new = _sides(points, mode)
    apart = sign * (new.at(0.0) - old.at(0.0))
    in_order = 1 - beyond(apart / np.hypot(old.spread, new.spread))
    log = log + np.where(apart >= 0, np.log1p(-_REVERSED), np.log(_REVERSED))
    found: Floats = log - np.log(np.maximum(in_order, _LEAST_IN_ORDER))
    return found


def _log_normal(x: Floats, mean: float, deviation: float) -> Floats:
    log: Floats = -0.5 * ((x - mean) / deviation) ** 2 - np.log(deviation * np.sqrt(2 * np.pi))
    return log


def _draws() -> Floats:
    """Points of independent t distributions that fill their space evenly: for each proposal a row for each parameter.

    They are multiples of the powers of the root of x^6 = x + 1, modulo 1 (Roberts 2018, a low-discrepancy sequence),
    mapped through the quantile function, which has a closed form for four degrees of freedom.
    """
    root = 1.1347241384015194
    uniform = np.outer(root ** -np.arange(1.0, _UNKNOWN + 1.0), np.arange(1, _PROPOSALS * _DRAWN + 1)) % 1
    product = 4 * uniform * (1 - uniform)
    cosine = np.cos(np.arccos(np.sqrt(product)) / 3) / np.sqrt(product)
    quantile = np.sign(uniform - 0.5) * 2 * np.sqrt(np.maximum(cosine - 1, 0.0))
    return np.stack([quantile[:, place::_PROPOSALS] for place in range(_PROPOSALS)])


_DRAWS = _draws()


# The posterior


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


def prior(count: int, relevant: Mask | None = None, suspects: Mask | None = None) -> Floats:
    """The log-probabilities before any trial; never minus infinity.

    ``relevant`` commits can change the kernel. ``suspects`` are at most SUSPECT_WEIGHT times as likely as others.
    """
    weights = np.ones(count) if relevant is None else np.where(relevant, 1.0, IRRELEVANT_WEIGHT)
    if suspects is not None and suspects.any() and not suspects.all():
        theirs, others = weights[suspects].sum(), weights[~suspects].sum()
        ceiling = max(1.0, _SUSPECTS_SHARE / (1 - _SUSPECTS_SHARE) * others / theirs)
        weights = np.where(suspects, weights * min(SUSPECT_WEIGHT, ceiling), weights)
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
