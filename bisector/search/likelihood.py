"""How likely the readings of each kernel are, given that it is old or new, and given each case of the noise.

A reading is a verdict, or a figure seen against the *levels* of both sides on its host. A case of the noise is one
combination of what is not known of it: how often a run misleads, how often a kernel does as a whole, and where the
levels of each host lie. Tables have a row for each kernel and a column for each case.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeAlias

import numpy as np

from bisector.core.verdict import Verdict
from bisector.search.graph import Floats, Mask, Numbers
from bisector.search.noise import NOTHING, OF_HOSTS, Expected, Particles, Rates, beyond
from bisector.search.readings import Kernel, Reading

# A picked commit may lack what it builds upon, so that it does nothing although it is the one, in each run of it.
PICK_IN_VAIN = 0.30
# Share of figures that are on neither level. A stray figure is anywhere within a range of this factor, evenly on the
# log scale, but so much likelier on its own side of the line: once it says little, and often it is no accident.
_STRAY = 0.01
STRAY_DENSITY = 1 / np.log(600)
_STRAY_LEANS = 3.0
_LEAST = 1e-12  # of a share: nothing is impossible
_LARGEST = 600.0  # of an exponent: what a double holds is a little more

Key: TypeAlias = tuple[int, Kernel]
Pair: TypeAlias = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True)
class HostScale:
    """What figures of a host are seen against.

    ``ends`` are the scores of the old end and of the new one, near which their levels are; ``line`` is the score that
    separates verdicts, and the new side is above it or below. So much is ``expected`` of levels before any reading.
    """

    ends: tuple[float, float]
    line: float
    new_is_above: bool = True
    expected: Expected = OF_HOSTS

    def stray(self, scores: Floats) -> Pair:
        """The density of stray figures of the old side, and of the new one."""
        on_new_side = (scores > self.line) == self.new_is_above
        much, little = 2 * _STRAY_LEANS / (1 + _STRAY_LEANS), 2 / (1 + _STRAY_LEANS)
        old, new = np.where(on_new_side, little, much), np.where(on_new_side, much, little)
        return old * STRAY_DENSITY, new * STRAY_DENSITY


@dataclass(frozen=True, slots=True, eq=False)
class Weighing:
    """What readings are weighed by: how often they may mislead, and where levels are looked for.

    ``scales`` are those of the hosts, by name; none where verdicts alone count. ``nothing`` is the probability
    beforehand that no commit of the range changed anything.
    """

    rates: Rates = field(default_factory=Rates.unknown)
    scales: Mapping[str, HostScale] = field(default_factory=dict)
    nothing: float = NOTHING


@dataclass(frozen=True, slots=True, eq=False)
class ReadingTable:
    """All readings by kernel, in an order that does not depend on that of the readings.

    ``old`` and ``new`` count the verdicts of each kernel that have no figure, ``of`` is for each figure the number of
    its kernel, ascending, ``hours`` its time and ``on`` its host. ``verdicts`` count for each kernel those of the old
    side and of the new one, with a figure or not. ``now`` is the time of the last reading, for each host with figures.
    """

    kernels: tuple[Key, ...]
    old: Numbers
    new: Numbers
    scores: Floats
    hours: Floats
    of: Numbers
    on: tuple[str, ...]
    verdicts: tuple[Numbers, Numbers]
    now: Mapping[str, float]

    @classmethod
    def gather(cls, readings: Sequence[Reading]) -> Self:
        """Of all readings."""
        kernels = tuple(sorted({one.of for one in readings}))
        number = {key: place for place, key in enumerate(kernels)}

        def counted(wanted: Sequence[Reading], verdict: Verdict) -> Numbers:
            places = [number[one.of] for one in wanted if one.verdict is verdict]
            return np.bincount(np.array(places, dtype=np.intp), minlength=len(kernels))

        bare = [one for one in readings if one.score is None]
        figures = sorted((number[one.of], one.score, one.hour, one.host) for one in readings if one.score is not None)
        on = tuple(host for *_, host in figures)
        return cls(
            kernels,
            counted(bare, Verdict.OLD),
            counted(bare, Verdict.NEW),
            np.array([score for _, score, _, _ in figures]),
            np.array([hour for _, _, hour, _ in figures]),
            np.array([place for place, *_ in figures], dtype=np.intp),
            on,
            (counted(readings, Verdict.OLD), counted(readings, Verdict.NEW)),
            {host: max(one.hour for one in readings if one.host == host) for host in dict.fromkeys(on)},
        )


@dataclass(frozen=True, slots=True, eq=False)
class HostLevels:
    """The levels that a host may have, as they are ``now``, and its scale."""

    levels: Particles
    scale: HostScale
    now: float = 0.0

    def beyond_middle(self) -> Pair:
        """For each pair of levels the share of both beyond the point that is as many spreads away from either."""
        old, new = self.levels.old, self.levels.new
        share = np.maximum(beyond(np.abs(new.at(self.now) - old.at(self.now)) / (new.spread + old.spread)), _LEAST)
        return share, share

    def beyond_line(self) -> Pair:
        """For each pair of levels the share of the old one beyond the line, and that of the new one."""
        old, new = (side.above(self.scale.line, self.now) for side in (self.levels.old, self.levels.new))
        wrong = (old, 1 - new) if self.scale.new_is_above else (1 - old, new)
        return np.clip(wrong[0], _LEAST, 1 - _LEAST), np.clip(wrong[1], _LEAST, 1 - _LEAST)


@dataclass(frozen=True, slots=True, eq=False)
class Cases:
    """All combinations of rates and, where there are figures, of the levels of all hosts; rates vary fastest.

    Each of the ``hosts`` has as many possible pairs of levels as the others, and a combination takes one place in all.
    """

    rates: Rates
    hosts: Mapping[str, HostLevels] = field(default_factory=dict)

    @property
    def log_prior(self) -> Floats:
        """The logarithm of what each case has beforehand, but for a constant."""
        weights: Floats = sum((one.levels.log_weight for one in self.hosts.values()), np.zeros(1))
        return np.add.outer(weights, self.rates.log_prior).ravel()

    @property
    def sticky(self) -> Floats:
        """For each case how often a kernel misleads as a whole."""
        counts = [len(one.levels.log_weight) for one in self.hosts.values()]
        return np.tile(self.rates.sticky, counts[0] if counts else 1)

    @property
    def overlap(self) -> Floats:
        """For each case the share of the figures that lie on the wrong side of the line: a mean of levels and hosts."""
        if not self.hosts:
            return np.zeros(len(self.rates.log_prior))
        wrong_new, wrong_old = self._mean(HostLevels.beyond_line)
        return np.repeat((wrong_new + wrong_old) / 2, len(self.rates.log_prior))

    def misleads(self, *, figures: bool = False) -> Pair:
        """For each case P(a verdict is "new") of a run of an old kernel, and P(it is "old") of one of a new kernel.

        By accident, and by the part of a level's figures that lies on the wrong side of the line; if of ``figures``,
        nearer to the other level, wherever the line is. It is the mean of all hosts: which one measures is not known
        beforehand.
        """
        a, b = self.rates.old_as_new, self.rates.new_as_old
        if not self.hosts:
            return a, b
        wrong = self._mean(HostLevels.beyond_middle if figures else HostLevels.beyond_line)
        wrong_new, wrong_old = (share[:, None] for share in wrong)
        looks_new = (1 - a) * wrong_new + a * (1 - wrong_old)
        looks_old = (1 - b) * wrong_old + b * (1 - wrong_new)
        return looks_new.ravel(), looks_old.ravel()

    def _mean(self, share: Callable[[HostLevels], Pair]) -> Pair:
        first, second = zip(*map(share, self.hosts.values()), strict=True)
        return np.mean(first, axis=0), np.mean(second, axis=0)


@dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """The log-likelihoods of each kernel's readings, were its runs those of an old and of a new kernel.

    ``in_vain`` is how likely the old end with the commit that made it new lacks what that builds upon, after these
    readings; 0 of other kernels.
    """

    old: Floats
    new: Floats
    in_vain: Floats


def log_likelihoods(record: ReadingTable, cases: Cases) -> Sides:
    """What the readings of each kernel say of its side."""
    looks_new, looks_old = cases.misleads()
    counts, places = np.unique(np.stack((record.old, record.new), axis=1), axis=0, return_inverse=True)
    said_old, said_new = (counts[:, place, None].astype(np.float64) for place in (0, 1))
    old: Floats = (said_new * np.log(looks_new) + said_old * np.log1p(-looks_new))[places.ravel()]
    new: Floats = (said_old * np.log(looks_old) + said_new * np.log1p(-looks_old))[places.ravel()]
    on = np.array(record.on)
    for name, host in cases.hosts.items():
        if len(places := np.flatnonzero(on == name)):
            more = _of_figures(record, places, cases.rates, host)
            old, new = old + more[0], new + more[1]
    in_vain = np.zeros_like(new)
    picked = np.array([kernel is Kernel.PICKED for _, kernel in record.kernels], dtype=np.bool_)
    if picked.any():  # in vain, it shows what an old kernel does, in each of its runs
        plain = old[picked], new[picked]
        new[picked], in_vain[picked] = with_sticky(*plain, PICK_IN_VAIN)[1], p_sticky(*plain, PICK_IN_VAIN)[1]
    return Sides(old, new, in_vain)


def with_sticky(old: Floats, new: Floats, sticky: Floats | float) -> Pair:
    """The log-likelihoods where a kernel as a whole shows the other side with the probability ``sticky``.

    Their difference never exceeds that of log(1 - sticky) and log(sticky), however often the kernel is read.
    """
    odds = np.exp(np.clip(new - old, -_LARGEST, _LARGEST))
    return old + np.log((1 - sticky) + sticky * odds), old + np.log(sticky + (1 - sticky) * odds)


def p_sticky(old: Floats, new: Floats, sticky: Floats | float) -> Pair:
    """P(a kernel shows the other side) after its readings, if it is old, and if it is new."""
    odds = np.exp(np.clip(new - old, -_LARGEST, _LARGEST))
    if_old, if_new = sticky * odds, (1 - sticky) * odds
    return if_old / (1 - sticky + if_old), sticky / (sticky + if_new)


def log_by_class(has: Mask, log_class: Floats, old: Floats, new: Floats) -> Floats:
    """For each class and case the log-likelihood of all readings, and what the class has beforehand."""
    found: Floats = has.astype(np.float64) @ (new - old) + old.sum(axis=0) + log_class[:, None]
    return found


def shown_by(mine: Floats, other: Floats, stray: Floats, rate: Floats | float) -> Floats:
    """The density of figures of a side whose runs look like those of the other one at a rate.

    What misleads lands on the other level: a cache that promotes nothing is as slow as one that cannot.
    """
    density: Floats = (1 - _STRAY) * ((1 - rate) * mine + rate * other) + _STRAY * stray
    return density


def _of_figures(record: ReadingTable, places: Numbers, rates: Rates, host: HostLevels) -> Pair:
    """What the figures of one host say, which are those at these places."""
    scores, hours, of = record.scores[places], record.hours[places], record.of[places]
    f_old, f_new = (side.density(scores, hours) for side in (host.levels.old, host.levels.new))
    strays = host.scale.stray(scores)
    first = np.flatnonzero(np.diff(of, prepend=-1))
    found = []
    sides = ((f_old, f_new, strays[0], rates.old_as_new), (f_new, f_old, strays[1], rates.new_as_old))
    for mine, other, stray, rate in sides:
        few, places = np.unique(rate, return_inverse=True)
        # A reading, a pair of levels, a rate
        each = np.log(shown_by(mine.T[..., None], other.T[..., None], stray[:, None, None], few))
        by_kernel = np.add.reduceat(each, first, axis=0)[..., places]
        table = np.zeros((len(record.kernels), by_kernel[0].size))
        table[of[first]] = by_kernel.reshape(len(first), -1)
        found.append(table)
    return found[0], found[1]
