"""The levels that the figures of the two sides lie on, each with a centre and a spread.

Figures (scores, on a log scale) of one side have Student's t with four degrees of freedom around the side's centre,
scaled by a spread of its own; both centres move with the host, at one rate (*drift*). None of it is ever known exactly:
a sum over all levels that are possible is one over some pairs of them, the *particles*, the same for the same readings.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from bisector.search.graph import Floats, Numbers

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


def log_sum(log: Floats, axis: int = 0) -> Floats:
    """The logarithm of the sum of the exponentials."""
    top = log.max(axis=axis, keepdims=True)
    found: Floats = np.squeeze(top, axis) + np.log(np.exp(log - top).sum(axis=axis))
    return found


PARTICLES = 32
_MULTIPLIER = 13


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
        every = np.arange(PARTICLES)
        return tuple(
            one._at((every * pow(_MULTIPLIER, number, PARTICLES) + number) % PARTICLES)
            for number, one in enumerate(hosts)
        )
