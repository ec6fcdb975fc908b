"""What levels may be: some possible pairs of them, the same for the same readings, that stand for all.

A sum over all levels that are possible is one over these *particles*. They are drawn around the likeliest levels as far
as all readings leave them open, and as far as those readings do whose side is certain, for where levels overlap the
others tell less than they seem to: each is of either side as the change moves. Then they are drawn again around what
these draws found (adaptive importance sampling; Cappé and others 2004), and of all draws some stand for the rest, by
how likely they make the readings (sampling importance resampling; Rubin 1988).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np

from bisector.search.graph import Floats, Numbers
from bisector.search.levels import (
    CENTRE_DEVIATION,
    Expected,
    Levels,
    Side,
    beyond,
    density,
)
from bisector.search.mode import TELLS_CENTRE, TELLS_SPREAD, Both, Figures, likeliest

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


class LikelyFigures(Figures, Protocol):
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

    old: Side
    new: Side
    log_weight: Floats
    mode: Levels

    @classmethod
    def known(cls, levels: Levels) -> Self:
        """Of somebody who knows them."""
        old, new = (Side.of(level, levels.drift) for level in (levels.old, levels.new))
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
            Side(side.centre[places], side.spread[places], side.drift[places], side.hour)
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


def _sides(points: Floats, mode: Levels) -> tuple[Side, Side]:
    """The levels that points stand for; the centres are those at the times that the mode's are of."""
    drift = points[4]
    return (
        Side(points[0], np.exp(points[1]), drift, mode.old.hour),
        Side(points[2], np.exp(points[3]), drift, mode.new.hour),
    )


def _log_prior(points: Floats, mode: Levels, figures: Figures) -> Floats:
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
