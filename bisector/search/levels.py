"""The levels that the figures of the two sides lie on, each with a centre and a spread.

Figures (scores, on a log scale) of one side have Student's t with four degrees of freedom around the side's centre,
scaled by a spread of its own; both centres move with the host, at one rate (*drift*). None of it is ever known exactly.

The likeliest levels come of expectation and maximisation together with the position of the change (Dempster, Laird and
Rubin 1977). A split of the readings at a gap would make levels that overlap look apart.

A sum over all levels that are possible is one over some pairs of them, the *particles*, the same for the same readings.
They are drawn around the likeliest levels as far as all readings leave them open, and as far as those readings do whose
side is certain, for where levels overlap the others tell less than they seem to: each is of either side as the change
moves. Then they are drawn again around what these draws found (adaptive importance sampling; Cappé and others 2004),
and of all draws some stand for the rest, by how likely they make the readings (sampling importance resampling; Rubin
1988).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeAlias

import numpy as np

from bisector.search.graph import Floats, Mask, Numbers

# Nothing is known of a centre, but that it is not thousands of times away from the readings of the ends.
CENTRE_DEVIATION = 3.0
_DENSITY = 0.375  # of Student's t with four degrees of freedom at 0


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of levels before any reading.

    A spread is log-normal: half of all are above ``spread``, one of six is farther above it than ``spread_deviation``
    on the log scale, and one of six below. A host moves all figures by some ``drift_deviation`` in an hour, up or down.
    """

    spread: float
    spread_deviation: float
    drift_deviation: float


# One of six above 15 %, one of six below 2.4 %; a host that is not what it was an hour ago.
OF_HOSTS = Expected(0.06, math.log(2.5), 0.01)
# One of six above 1.5 %, for what a cache makes of nanoseconds, and one of six below 0.06 %; nothing moves.
OF_COUNTED = Expected(0.003, math.log(5.0), 1e-6)


@dataclass(frozen=True, slots=True)
class Level:
    """Where the scores of one side lie: ``centre`` is that at the time ``hour``."""

    centre: float
    spread: float
    hour: float = 0.0


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of both sides, and what both grow by in an hour."""

    old: Level
    new: Level
    drift: float = 0.0

    @property
    def apart(self) -> float:
        """By how much the new side's centre is above the old side's at one time."""
        return self.new.centre - self.old.centre - self.drift * (self.new.hour - self.old.hour)

    @property
    def overlap(self) -> float:
        """The share of a level's readings that lie on the other level's side of the line between."""
        z = abs(self.new.centre - self.old.centre) / (self.new.spread + self.old.spread)
        return float(beyond(np.array(z)))


@dataclass(frozen=True, slots=True, eq=False)
class SideLevels:
    """Possible levels of one side, whose centres are those at the time ``hour`` and grow by ``drift`` an hour."""

    centre: Floats
    spread: Floats
    drift: Floats
    hour: float = 0.0

    @classmethod
    def of(cls, level: Level, drift: float = 0.0) -> Self:
        """One alone."""
        return cls(np.array([level.centre]), np.array([level.spread]), np.array([drift]), level.hour)

    def density(self, scores: Floats, hours: Floats) -> Floats:
        """Per natural log unit: for each possible level a row, for each score and its time a column."""
        centres = self.centre[:, None] + self.drift[:, None] * (hours - self.hour)
        z = (scores - centres) / self.spread[:, None]
        return density(z) / self.spread[:, None]

    def at(self, hour: float) -> Floats:
        """The centres at a time."""
        return self.centre + self.drift * (hour - self.hour)

    def above(self, line: float, hour: float) -> Floats:
        """The share of the readings above a line at a time, for each possible level."""
        return beyond((line - self.at(hour)) / self.spread)


def density(z: Floats) -> Floats:
    """Of Student's t with four degrees of freedom."""
    found: Floats = _DENSITY * (1 + z * z / 4) ** -2.5
    return found


def beyond(z: Floats) -> Floats:
    """The upper tail of Student's t with four degrees of freedom."""
    root = 1 + z * z / 4
    tail: Floats = 0.5 - 0.375 * z / np.sqrt(root) * (1 - z * z / (12 * root))
    return np.clip(tail, 0.0, 1.0)


# What a reading tells of a centre and of the logarithm of a spread (Fisher information of Student's t, 4 degrees).
TELLS_CENTRE = 5 / 7
TELLS_SPREAD = 8 / 7
_ROUNDS = 12
_SETTLED = 1e-2
_LEAST = 1e-12  # of a sum of weights that is divided by


class SearchFigures(Protocol):
    """All figures of a search, and what they are of under given levels.

    ``ends`` are the first scores of the old end and of the new one; ``certain`` is for each figure whether the side of
    its kernel does not hang on the position of the change; ``expected`` of levels is so much before any figure.
    """

    @property
    def scores(self) -> Floats:
        """The logarithm of each figure."""

    @property
    def hours(self) -> Floats:
        """When each was read."""

    @property
    def ends(self) -> tuple[float, float]:
        """The first scores of both ends."""

    @property
    def certain(self) -> Mask:
        """For each figure whether its kernel is of one side for sure."""

    @property
    def expected(self) -> Expected:
        """What is known of levels before any figure."""

    def shares(self, levels: Levels) -> tuple[Floats, Floats]:
        """For each figure the probability that it lies on the old level, and on the new one."""


@dataclass(frozen=True, slots=True, eq=False)
class SideReadings:
    """All scores, their times, and the share of each that is of one side."""

    scores: Floats
    hours: Floats
    shares: Floats

    @property
    def count(self) -> float:
        """How many readings there are of the side."""
        return float(self.shares.sum())

    def only(self, these: Mask) -> "SideReadings":
        """Some of them."""
        return replace(self, shares=np.where(these, self.shares, 0.0))

    def time_apart(self, hour: float) -> float:
        """The sum of the squares of the readings' times from that one."""
        return float(self.shares @ (self.hours - hour) ** 2)

    def precision(self, level: Level, drift: float) -> Floats:
        """What each reading counts for: one far away little."""
        z = (self.scores - level.centre - drift * (self.hours - level.hour)) / level.spread
        return self.shares * 5 / (4 + z * z) / level.spread**2

    def nearer(self, level: Level, drift: float, middle: float, expected: Expected) -> Level:
        """The level that explains the side's scores better: a step of Fisher's scoring, with the prior."""
        precision = self.precision(level, drift)
        weight = precision.sum() + CENTRE_DEVIATION**-2
        # At the mean time of the readings the centre does not depend on the drift.
        hour = float(precision @ self.hours / max(precision.sum(), _LEAST))
        still = self.scores - drift * (self.hours - hour)
        centre = (precision @ still + middle * CENTRE_DEVIATION**-2) / weight
        z = (still - centre) / level.spread
        # A reading tells nothing of the spread where the centre is unknown, and n tell of it as n - 1 otherwise would.
        slope = 1 + self.shares @ (5 / (4 + z * z) * z * z - 1)
        slope -= math.log(level.spread / expected.spread) / expected.spread_deviation**2
        step = slope / (TELLS_SPREAD * self.count + expected.spread_deviation**-2)
        return Level(float(centre), level.spread * math.exp(min(1.0, max(-1.0, step))), hour)


Both: TypeAlias = tuple[SideReadings, SideReadings]


def likeliest(figures: SearchFigures) -> tuple[Levels, Both]:
    """The levels, and what is seen of the old side and of the new one."""
    (old, new), spread = figures.ends, figures.expected.spread
    levels, middle = Levels(Level(old, spread), Level(new, spread)), (old + new) / 2
    seen = _seen(figures, levels)
    for _ in range(_ROUNDS):
        before, levels = levels, _nearer(levels, seen, middle, figures.expected)
        if _moved(before, levels) < _SETTLED:
            break
        seen = _seen(figures, levels)
    return levels, seen


def _seen(figures: SearchFigures, levels: Levels) -> Both:
    old, new = figures.shares(levels)
    return SideReadings(figures.scores, figures.hours, old), SideReadings(figures.scores, figures.hours, new)


def _nearer(levels: Levels, seen: Both, middle: float, expected: Expected) -> Levels:
    """The levels that explain the scores better, and then what both sides' readings move by in an hour."""
    pairs = zip(seen, (levels.old, levels.new), strict=True)
    old, new = (of.nearer(level, levels.drift, middle, expected) for of, level in pairs)
    moves, weight = 0.0, expected.drift_deviation**-2
    for of, level in zip(seen, (old, new), strict=True):
        precision, apart = of.precision(level, levels.drift), of.hours - level.hour
        moves += float(precision * apart @ (of.scores - level.centre))
        weight += float(precision @ apart**2)
    return Levels(old, new, moves / weight)


def _moved(before: Levels, after: Levels) -> float:
    """How far the levels went, in spreads."""
    pairs = ((before.old, after.old), (before.new, after.new))
    centres = max(abs(b.centre - a.centre) / a.spread for b, a in pairs)
    return max(centres, *(abs(math.log(b.spread / a.spread)) for b, a in pairs))


_PARTICLES = 32
_MULTIPLIER = 13
# Draws of each of three proposals.
_DRAWN = 160
_PROPOSALS = 3
# A proposal reaches farther than a normal distribution would: the mode is found by fewer readings than would do.
_WIDER = 1.15
# Weights are raised to this power where a proposal is made of them, so that it is wider than what it is made of.
_FLATTER = 0.7
# A proposal is never narrower than this share of the variance of all draws.
_NARROWEST = 1e-3
# Levels that lie in the other order than those of the ends have this probability, as their words say what is better.
_REVERSED = 1e-3
_LEAST_IN_ORDER = 1e-3  # of the chance of the order that the first readings have
_UNKNOWN = 5  # the centre and the logarithm of the spread of the old side, those of the new side, and the drift


class LikelyFigures(SearchFigures, Protocol):
    """All figures of a search, and how likely they are under given levels."""

    def log_likelihood(self, particles: "Particles") -> Floats:
        """For each pair of possible levels, but for a constant."""


class _Proposal(Protocol):
    """A distribution that points are drawn from: a column a point, a row each of what is unknown."""

    def draw(self, z: Floats) -> Floats:
        """Points, from those of independent t distributions."""

    def log_density(self, points: Floats) -> Floats:
        """Of each point."""


@dataclass(frozen=True, slots=True, eq=False)
class Particles:
    """Possible levels, and the logarithm of the weight of each: what it has beforehand, over how often it was drawn."""

    old: SideLevels
    new: SideLevels
    log_weight: Floats
    mode: Levels

    @classmethod
    def known(cls, levels: Levels) -> Self:
        """Of somebody who knows them."""
        old, new = (SideLevels.of(level, levels.drift) for level in (levels.old, levels.new))
        return cls(old, new, np.zeros(1), levels)

    @classmethod
    def at(cls, points: Floats, log_weight: Floats, mode: Levels) -> Self:
        """At points that were drawn."""
        return cls(*_sides(points, mode), log_weight, mode)

    @classmethod
    def learn(cls, figures: LikelyFigures) -> Self:
        """From all figures of a search, and what makes them likely."""
        mode, seen = likeliest(figures)
        certain = seen[0].only(figures.certain), seen[1].only(figures.certain)
        sample = _Sample.none(figures, mode)
        expected = figures.expected
        for proposal in (_Around.seen(mode, seen, expected), _Around.seen(mode, certain, expected)):
            sample = sample.with_draws(proposal)
        sample = sample.with_draws(_Fitted.to(sample.points, sample.posterior))
        return cls._standing_for(sample)

    @classmethod
    def _standing_for(cls, sample: "_Sample") -> Self:
        """Each stands for as much of the posterior as the others, in the order of how far both levels are apart."""
        posterior = sample.posterior
        order = np.argsort(sample.points[2] - sample.points[0], kind="stable")
        places = np.searchsorted(np.cumsum(posterior[order]), (np.arange(_PARTICLES) + 0.5) / _PARTICLES)
        chosen = order[np.minimum(places, len(order) - 1)]
        log_weight = -np.log(_PARTICLES) + sample.log_evidence - sample.log_likelihood[chosen]
        return cls.at(sample.points[:, chosen], log_weight, sample.mode)

    @property
    def distinct(self) -> "Particles":
        """The same without repetitions: what stands there several times has their weight."""
        points = np.stack((self.old.centre, self.old.spread, self.new.centre, self.new.spread, self.old.drift))
        _, first, times = np.unique(points, axis=1, return_index=True, return_counts=True)
        return replace(self._at(first), log_weight=self.log_weight[first] + np.log(times))

    def _at(self, places: Numbers) -> "Particles":
        old, new = (
            SideLevels(side.centre[places], side.spread[places], side.drift[places], side.hour)
            for side in (self.old, self.new)
        )
        return Particles(old, new, self.log_weight[places], self.mode)

    @classmethod
    def together(cls, hosts: "Sequence[Particles]") -> "tuple[Particles, ...]":
        """Those of several hosts, in an order in which the same places of all stand for what they are together.

        What one host's levels are says nothing of another's, so each is paired with those of the others evenly: places
        are multiples of powers of 13 modulo their number, 32 (a lattice of rank 1; Korobov 1959).
        """
        if len(hosts) == 1:
            return (hosts[0].distinct,)
        every = np.arange(_PARTICLES)
        return tuple(
            one._at((every * pow(_MULTIPLIER, number, _PARTICLES) + number) % _PARTICLES)
            for number, one in enumerate(hosts)
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    """Points, as many by each of some proposals, and how likely each makes the figures."""

    figures: LikelyFigures
    mode: Levels
    proposals: tuple[_Proposal, ...]
    points: Floats
    log_likelihood: Floats

    @classmethod
    def none(cls, figures: LikelyFigures, mode: Levels) -> Self:
        """Before the first draw."""
        return cls(figures, mode, (), np.zeros((_UNKNOWN, 0)), np.zeros(0))

    def with_draws(self, proposal: _Proposal) -> Self:
        """These and those of one more proposal."""
        points = proposal.draw(_DRAWS[len(self.proposals)])
        log_likelihood = self.figures.log_likelihood(Particles.at(points, np.zeros(_DRAWN), self.mode))
        return replace(
            self,
            proposals=(*self.proposals, proposal),
            points=np.concatenate((self.points, points), axis=1),
            log_likelihood=np.concatenate((self.log_likelihood, log_likelihood)),
        )

    @property
    def log_weight(self) -> Floats:
        """What each has beforehand over how densely it was drawn, by the mean of all proposals (Owen and Zhou 2000)."""
        log_density = _log_sum(np.array([one.log_density(self.points) for one in self.proposals]))
        log_prior = _log_prior(self.points, self.mode, self.figures)
        found: Floats = log_prior - log_density - np.log(_DRAWN)
        return found

    @property
    def log_evidence(self) -> float:
        """The logarithm of the probability of all figures."""
        return float(_log_sum(self.log_weight + self.log_likelihood))

    @property
    def posterior(self) -> Floats:
        """What each point has of it; they sum to 1."""
        log = self.log_weight + self.log_likelihood
        found: Floats = np.exp(log - _log_sum(log))
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Around:
    """Around the likeliest levels, as far as so many readings leave them open.

    ``counts`` and ``times_apart`` are those of the old side and of the new one.
    """

    mode: Levels
    counts: tuple[float, float]
    times_apart: tuple[float, float]
    expected: Expected

    @classmethod
    def seen(cls, mode: Levels, seen: Both, expected: Expected) -> Self:
        """Those readings."""
        old, new = seen
        times_apart = (old.time_apart(mode.old.hour), new.time_apart(mode.new.hour))
        return cls(mode, (old.count, new.count), times_apart, expected)

    def draw(self, z: Floats) -> Floats:
        """Spreads come first: how far a centre may be away hangs on them."""
        with_spreads = self._middle + self._reach(np.broadcast_to(self._middle, z.shape)) * z
        return self._middle + self._reach(with_spreads) * z

    def log_density(self, points: Floats) -> Floats:
        """That of each of the unknown, by the spreads."""
        return _log_density(points, self._middle, self._reach(points))

    @property
    def _middle(self) -> Floats:
        mode = self.mode
        found = (mode.old.centre, np.log(mode.old.spread), mode.new.centre, np.log(mode.new.spread), mode.drift)
        return np.array(found)[:, None]

    def _reach(self, points: Floats) -> Floats:
        """How far each of the unknown reaches, by the spreads of the points."""
        rows, known = [], np.full(points.shape[1], self.expected.drift_deviation**-2)
        before = self.expected.spread_deviation**-2
        for log_spread, count, apart in zip(points[1:4:2], self.counts, self.times_apart, strict=True):
            tells = TELLS_CENTRE * np.exp(-2 * log_spread)
            rows.append(1 / np.sqrt(count * tells + CENTRE_DEVIATION**-2))
            rows.append(np.full_like(log_spread, 1 / np.sqrt(TELLS_SPREAD * count + before)))
            known = known + apart * tells
        return _WIDER * np.array([*rows, 1 / np.sqrt(known)])


@dataclass(frozen=True, slots=True, eq=False)
class _Fitted:
    """Of the mean and a little more than the variance of points that were drawn, by what each is worth."""

    mean: Floats
    root: Floats

    @classmethod
    def to(cls, points: Floats, posterior: Floats) -> Self:
        """``root`` is Cholesky's, of half of the variance: Student's t with 4 degrees of freedom has the variance 2."""
        weight = posterior**_FLATTER / (posterior**_FLATTER).sum()
        mean = points @ weight
        apart = points - mean[:, None]
        variance = (apart * weight) @ apart.T + _NARROWEST * np.diag(points.var(axis=1))
        return cls(mean, np.linalg.cholesky(variance / 2))

    def draw(self, z: Floats) -> Floats:
        """All of the unknown hang together."""
        points: Floats = self.mean[:, None] + self.root @ z
        return points

    def log_density(self, points: Floats) -> Floats:
        """Of each point."""
        z = np.asarray(np.linalg.solve(self.root, points - self.mean[:, None]), dtype=np.float64)
        found: Floats = np.log(density(z)).sum(axis=0) - np.log(np.diag(self.root)).sum()
        return found


def _sides(points: Floats, mode: Levels) -> tuple[SideLevels, SideLevels]:
    """The levels that points stand for; the centres are those at the times that the mode's are of."""
    drift = points[4]
    return (
        SideLevels(points[0], np.exp(points[1]), drift, mode.old.hour),
        SideLevels(points[2], np.exp(points[3]), drift, mode.new.hour),
    )


def _log_prior(points: Floats, mode: Levels, figures: SearchFigures) -> Floats:
    """What levels have beforehand, but for a constant.

    There would be no search had the ends' first readings come in the other order. So that order says nothing, and the
    probability of these readings is divided by the chance of it: levels that are hardly apart come in it half of the
    time only.
    """
    ends, expected = figures.ends, figures.expected
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


def _log_density(points: Floats, middle: Floats, reach: Floats) -> Floats:
    found: Floats = (np.log(density((points - middle) / reach)) - np.log(reach)).sum(axis=0)
    return found


def _log_normal(x: Floats, mean: float, deviation: float) -> Floats:
    log: Floats = -0.5 * ((x - mean) / deviation) ** 2 - np.log(deviation * np.sqrt(2 * np.pi))
    return log


def _log_sum(log: Floats) -> Floats:
    """The logarithm of the sum of the exponentials over the first axis."""
    top = log.max(axis=0)
    found: Floats = top + np.log(np.exp(log - top).sum(axis=0))
    return found


def _draws() -> Floats:
    """Points of independent t distributions that fill their space evenly: for each proposal a row each of the unknown.

    Multiples of the powers of the root of x^6 = x + 1, modulo 1 (Roberts 2018, a low-discrepancy sequence), through the
    quantile function, which has a closed form for four degrees of freedom.
    """
    root = 1.1347241384015194
    uniform = np.outer(root ** -np.arange(1.0, _UNKNOWN + 1.0), np.arange(1, _PROPOSALS * _DRAWN + 1)) % 1
    product = 4 * uniform * (1 - uniform)
    cosine = np.cos(np.arccos(np.sqrt(product)) / 3) / np.sqrt(product)
    quantile = np.sign(uniform - 0.5) * 2 * np.sqrt(np.maximum(cosine - 1, 0.0))
    return np.stack([quantile[:, place::_PROPOSALS] for place in range(_PROPOSALS)])


_DRAWS = _draws()
