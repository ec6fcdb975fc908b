"""What all readings say of the levels of one host, wherever the change is, at rates that are known.

Of what other hosts read the verdicts count: they tell which side a kernel is on, and nothing of this host's levels.
Levels are looked for at the usual rates: these move where the levels may lie but little, and are one case instead of
the many that the posterior is a sum over.
"""

from dataclasses import dataclass

import numpy as np

from bisector.search.graph import Floats, Mask
from bisector.search.levels import Expected, Levels
from bisector.search.likelihood import (
    Cases,
    HostLevels,
    Pair,
    Record,
    Scale,
    Sides,
    hardened,
    raw,
    shown_by,
    stuck,
    summed,
)
from bisector.search.noise import Rates
from bisector.search.particles import Particles


@dataclass(frozen=True, slots=True, eq=False)
class AtOneRate:
    """All readings, with the figures of one host alone, the classes of commits, and a single case of the rates.

    ``has`` is whether a class makes a kernel new, ``log_class`` what each class has beforehand.
    """

    record: Record
    has: Mask
    log_class: Floats
    rates: Rates
    scale: Scale
    host: str = ""

    @property
    def ends(self) -> tuple[float, float]:
        """The first scores of both ends."""
        return self.scale.ends

    @property
    def expected(self) -> Expected:
        """What is known of levels before any figure."""
        return self.scale.expected

    @property
    def scores(self) -> Floats:
        """The logarithm of each figure."""
        return self.record.scores

    @property
    def hours(self) -> Floats:
        """When each was read."""
        return self.record.hours

    @property
    def certain(self) -> Mask:
        """For each figure whether its kernel is of the same side in all classes."""
        same_in_all: Mask = np.logical_or(self.has.all(axis=0), ~self.has.any(axis=0))
        return same_in_all[self.record.of]

    def shares(self, levels: Levels) -> Pair:
        """For each figure the probability that it lies on the old level, and on the new one; the rest is stray."""
        particles = Particles.known(levels)
        is_new = self._shows_new(particles)[self.record.of]
        f_old, f_new = (side.density(self.scores, self.hours)[0] for side in (particles.old, particles.new))
        stray_old, stray_new = self.scale.line.stray(self.scores)
        a, b = float(self.rates.old_as_new[0]), float(self.rates.new_as_old[0])
        by_old = (1 - is_new) / shown_by(f_old, f_new, stray_old, a)
        by_new = is_new / shown_by(f_new, f_old, stray_new, b)
        return (by_old * (1 - a) + by_new * b) * f_old, (by_new * (1 - b) + by_old * a) * f_new

    def log_likelihood(self, particles: Particles) -> Floats:
        """Of all readings, for each of some possible pairs of levels."""
        log = self._by_class(raw(self.record, self._cases(particles)))
        top = log.max(axis=0)
        found: Floats = top + np.log(np.exp(log - top).sum(axis=0))
        return found

    def _shows_new(self, particles: Particles) -> Floats:
        """For each kernel the probability that its runs are those of a new one, under the levels that are given."""
        sides = raw(self.record, self._cases(particles))
        log = self._by_class(sides)[:, 0]
        by_class = np.exp(log - log.max())
        is_new = (by_class / by_class.sum()) @ self.has
        if_old, if_new = (one[:, 0] for one in stuck(sides.old, sides.new, self.rates.sticky))
        found: Floats = (1 - sides.in_vain[:, 0]) * is_new * (1 - if_new) + (1 - is_new) * if_old
        return found

    def _by_class(self, sides: Sides) -> Floats:
        old, new = hardened(sides.old, sides.new, self.rates.sticky)
        return summed(self.has, self.log_class, old, new)

    def _cases(self, particles: Particles) -> Cases:
        now = self.record.now.get(self.host, 0.0)
        return Cases(self.rates, {self.host: HostLevels(particles, self.scale.line, now)})
