"""The likelihood of the readings of each kernel, given that it is old or new, and given each case of the noise.

A reading is a verdict, or a figure that is compared with the *levels* of both sides on its host. A case of the noise is
one combination of the unknown quantities: how often a run misleads, how often a kernel misleads as a whole, and where
the levels of each host lie. Tables have a row for each kernel and a column for each case.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeAlias

import numpy as np

from bisector.core.verdict import Verdict
from bisector.search.graph import Floats, Kernel, Mask, Numbers, Reading
from bisector.search.noise import NOTHING, OF_HOSTS, Expected, Particles, Rates, beyond

# The probability that a picked commit lacks what it builds upon, and so has no effect in any run although it is the
# answer.
PICK_IN_VAIN = 0.30
# The share of figures that are on neither level. A stray figure is anywhere within a range of a factor of 600, evenly
# on the log scale, but three times as likely on its own side of the threshold: a single stray figure says little, and a
# repeated one is no accident.
_STRAY = 0.01
STRAY_DENSITY = 1 / np.log(600)
_STRAY_LEANS = 3.0
_LEAST = 1e-12  # the least value of a share: nothing is impossible
_LARGEST = 600.0  # of an exponent: the limit of a double is a little above

Key: TypeAlias = tuple[int, Kernel]
Pair: TypeAlias = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True)
class HostScale:
    """The scale of a host's figures.

    ``ends`` are the scores of the old end and of the new end, near which their levels lie. ``line`` is the score of the
    threshold; ``new_is_above`` tells on which side of it the new side is. ``expected`` is what is known of levels
    before any reading.
    """

    ends: tuple[float, float]
    line: float
    new_is_above: bool = True
    expected: Expected = OF_HOSTS

    def stray(self, scores: Floats) -> Pair:
        """The densities of stray figures of the old side and of the new side."""
        on_new_side = (scores > self.line) == self.new_is_above
        much, little = 2 * _STRAY_LEANS / (1 + _STRAY_LEANS), 2 / (1 + _STRAY_LEANS)
        old, new = np.where(on_new_side, little, much), np.where(on_new_side, much, little)
        return old * STRAY_DENSITY, new * STRAY_DENSITY


@dataclass(frozen=True, slots=True, eq=False)
class Weighing:
    """The prior of the noise: how often readings may mislead, and the scales of the hosts.

    ``scales`` is by host name, empty if only verdicts count. ``nothing`` is the prior probability that no commit of the
    range changed anything.
    """

    rates: Rates = field(default_factory=Rates.unknown)
    scales: Mapping[str, HostScale] = field(default_factory=dict)
    nothing: float = NOTHING


@dataclass(frozen=True, slots=True, eq=False)
class ReadingTable:
    """All readings by kernel, in an order that does not depend on the order of the readings.

    ``old`` and ``new`` count the verdicts without a figure, by kernel. ``scores``, ``hours`` and ``on`` are the score,
    time and host of each figure, ``of`` the number of its kernel, ascending. ``verdicts`` counts the verdicts of the
    old side and of the new side by kernel, with a figure or without. ``now`` is the time of the last reading on each
    host that has figures.
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
        """Return the table of these readings."""
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
    """The levels that a host may have, its scale, and the time ``now`` in hours."""

    levels: Particles
    scale: HostScale
    now: float = 0.0

    def beyond_middle(self) -> Pair:
        """For each pair of levels the share of either beyond the point that is equally many spreads away from both."""
        old, new = self.levels.old, self.levels.new
        share = np.maximum(beyond(np.abs(new.at(self.now) - old.at(self.now)) / (new.spread + old.spread)), _LEAST)
        return share, share

    def beyond_line(self) -> Pair:
        """For each pair of levels the shares of the old level and of the new one on the wrong side of the threshold."""
        old, new = (side.above(self.scale.line, self.now) for side in (self.levels.old, self.levels.new))
        wrong = (old, 1 - new) if self.scale.new_is_above else (1 - old, new)
        return np.clip(wrong[0], _LEAST, 1 - _LEAST), np.clip(wrong[1], _LEAST, 1 - _LEAST)


@dataclass(frozen=True, slots=True, eq=False)
class Cases:
    """All combinations of rates and, if there are figures, of the levels of all hosts; rates vary fastest.

    All ``hosts`` have the same number of particles, and a combination takes the same place of each.
    """

    rates: Rates
    hosts: Mapping[str, HostLevels] = field(default_factory=dict)

    @property
    def log_prior(self) -> Floats:
        """The log-prior of each case, but for a constant."""
        weights: Floats = sum((one.levels.log_weight for one in self.hosts.values()), np.zeros(1))
        return np.add.outer(weights, self.rates.log_prior).ravel()

    @property
    def sticky(self) -> Floats:
        """For each case the probability that a kernel misleads as a whole."""
        counts = [len(one.levels.log_weight) for one in self.hosts.values()]
        return np.tile(self.rates.sticky, counts[0] if counts else 1)

    @property
    def overlap(self) -> Floats:
        """For each case the share of the figures on the wrong side of the threshold, as a mean of levels and hosts."""
        if not self.hosts:
            return np.zeros(len(self.rates.log_prior))
        wrong_new, wrong_old = self._mean(HostLevels.beyond_line)
        return np.repeat((wrong_new + wrong_old) / 2, len(self.rates.log_prior))

    def misleads(self, *, figures: bool = False) -> Pair:
        """For each case P(verdict "new") of a run of an old kernel, and P(verdict "old") of a run of a new kernel.

        A verdict is wrong by accident, or because the figure is among the level's figures on the wrong side of the
        threshold; with ``figures``, because it is nearer to the other level, wherever the threshold is. The result is
        the mean of all hosts, because the host of the next run is not known beforehand.
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
    """The log-likelihoods of each kernel's readings if its runs are those of an old kernel, and of a new one.

    ``in_vain`` is the probability, after these readings, that the old end with the commit that made it new lacks what
    the commit builds upon; 0 for other kernels.
    """

    old: Floats
    new: Floats
    in_vain: Floats


def log_likelihoods(record: ReadingTable, cases: Cases) -> Sides:
    """Return the log-likelihoods of the readings of each kernel for either side."""
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
    if picked.any():  # a commit picked in vain behaves like an old kernel in each of its runs
        plain = old[picked], new[picked]
        new[picked], in_vain[picked] = with_sticky(*plain, PICK_IN_VAIN)[1], p_sticky(*plain, PICK_IN_VAIN)[1]
    return Sides(old, new, in_vain)


def with_sticky(old: Floats, new: Floats, sticky: Floats | float) -> Pair:
    """The log-likelihoods if a kernel as a whole may show the other side, with the probability ``sticky``.

    Their difference never exceeds the difference of log(1 - sticky) and log(sticky), however often the kernel is read.
    """
    odds = np.exp(np.clip(new - old, -_LARGEST, _LARGEST))
    return old + np.log((1 - sticky) + sticky * odds), old + np.log(sticky + (1 - sticky) * odds)


def p_sticky(old: Floats, new: Floats, sticky: Floats | float) -> Pair:
    """P(a kernel as a whole shows the other side) after its readings, if it is old, and if it is new."""
    odds = np.exp(np.clip(new - old, -_LARGEST, _LARGEST))
    if_old, if_new = sticky * odds, (1 - sticky) * odds
    return if_old / (1 - sticky + if_old), sticky / (sticky + if_new)


def log_by_class(has: Mask, log_class: Floats, old: Floats, new: Floats) -> Floats:
    """For each class and case the log-likelihood of all readings plus the log-prior of the class."""
    found: Floats = has.astype(np.float64) @ (new - old) + old.sum(axis=0) + log_class[:, None]
    return found


def shown_by(mine: Floats, other: Floats, stray: Floats, rate: Floats | float) -> Floats:
    """The density of figures of a side whose runs look like the other side's at a rate.

    A misleading run lands on the other level: a cache that promotes nothing is as slow as one that cannot.
    """
    density: Floats = (1 - _STRAY) * ((1 - rate) * mine + rate * other) + _STRAY * stray
    return density


def _of_figures(record: ReadingTable, places: Numbers, rates: Rates, host: HostLevels) -> Pair:
    """The log-likelihoods of the figures of one host, which are at these places of the table."""
    scores, hours, of = record.scores[places], record.hours[places], record.of[places]
    f_old, f_new = (side.density(scores, hours) for side in (host.levels.old, host.levels.new))
    strays = host.scale.stray(scores)
    first = np.flatnonzero(np.diff(of, prepend=-1))
    found = []
    sides = ((f_old, f_new, strays[0], rates.old_as_new), (f_new, f_old, strays[1], rates.new_as_old))
    for mine, other, stray, rate in sides:
        few, places = np.unique(rate, return_inverse=True)
        # The axes are readings, pairs of levels, and rates
        each = np.log(shown_by(mine.T[..., None], other.T[..., None], stray[:, None, None], few))
        by_kernel = np.add.reduceat(each, first, axis=0)[..., places]
        table = np.zeros((len(record.kernels), by_kernel[0].size))
        table[of[first]] = by_kernel.reshape(len(first), -1)
        found.append(table)
    return found[0], found[1]
