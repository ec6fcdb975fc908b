"""Whether two sides differ, how large a commit's effect is, and whether one change explains the readings; pure.

docs/method-evidence.md and docs/method-search.md have the rules, and how often they err. A reading is the level of its
side, plus a linear drift of the host, plus noise: least squares with the place in the order as a covariate (Fisher,
Statistical Methods for Research Workers, 1932, 49.1). Noise is pooled over all kernels. (Google's culprit finder reads
30 pairs: pinpoint/go/workflows/catapult/culprit_finder.go.)
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from statistics import fmean

import numpy as np

from bisector.core.verdict import Verdict
from bisector.search.choice import SearchProblem, possible_changed_ends
from bisector.search.graph import OLD_END, Floats, Kernel, Reading, SearchFacts
from bisector.search.likelihood import STRAY_DENSITY, Key, Weighing, shown_by, with_sticky
from bisector.search.noise import Levels, density, log_sum
from bisector.search.posterior import Posterior

# For each reading, in the order of measuring: whether it is of the new end, and its score.
InTurn = Sequence[tuple[bool, float]]

# The beginning of the message of a search that ends so; later searches count these messages.
NOTHING_CHANGED = "nothing in this range changed"
# Readings of whole runs show a difference of a factor of 2 without further pairs.
LARGE = math.log(2)
CONFIDENCE = 0.95
# The error probabilities of one look: two equal sides are said to differ, and sides that differ by the least effect are
# said to be the same.
_BY_CHANCE = 1 / 12_000
_MISSED = 0.02
# From the second look on, each look has this share more pairs than the one before.
_MORE = 0.15
# A counter rounds its figures, so four of them may be two equal pairs by chance: without any spread, this many pairs
# are needed.
_WITHOUT_SPREAD = 6
# With fewer pairs the spread is not known well enough to say that more pairs would be in vain.
_SPREAD_IS_KNOWN = 6
_POWER = 1.28  # standard errors: nine of ten differences of that size are found
_MOST_PAIRS = 100_000
_LEAST_STEP = 1e-14  # the precision of a quantile: the limit is rounding
_SHARE = 0.5  # of the difference of the ends, which the interval has to exclude
# The prior share of histories with more than one change among those with any, and the probability of a single change
# below which the readings are said not to fit it.
_MORE_THAN_ONE = 0.01
_MISFIT = 1e-3
_FEW = 2  # contradictions up to this number need no other explanation
_CASES = 256  # of the noise, the likeliest: leaving some out only makes the alternative less likely
# The effect that a commit may have, as shares of the difference of the ends, all equally likely. An answer needs half
# of it; if the ends were read until they differed, or once, their readings exaggerate.
_SHARES = np.array([0.35, 0.5, 0.75, 1.0, 1.25])[None, :]
# Where the middle of a host's levels may be by now, in units of the difference of the ends. A single level lies between
# those of the ends in two of three cases; two levels are hardly ever elsewhere than the ends were, except for the drift
# of the host.
_SHIFTS = np.linspace(-1.5, 1.5, 49)
_STILL, _MOVED, _MOVES = 0.15, 0.5, 0.05
_LARGEST = 700.0  # of an exponent: the limit of a double is a little above
_LEAST = 1e-12  # of a rate: nothing is impossible


# Two sides, read in turn


def within(t: float, freedom: int) -> float:
    """P(abs(T) <= ``t``) of Student's t, a finite sum for whole degrees of freedom (Abramowitz and Stegun 26.7.3-4)."""
    if math.isinf(t):
        return 1.0
    angle = math.atan2(abs(t), math.sqrt(freedom))
    odd, square = freedom % 2, math.cos(angle) ** 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for power in range(2 + odd, freedom - 1, 2):
        term *= square * (power - 1) / power
        total += term
    total *= math.sin(angle)
    return min(1.0, 2 / math.pi * (angle + total) if odd else total)


def p_value(t: float, freedom: int) -> float:
    """The two-sided p-value of ``t``; values below 1e-15 are lost to rounding."""
    return max(0.0, 1.0 - within(t, freedom))


@cache
def quantile(share: float, freedom: int) -> float:
    """The distance from 0 within which ``share`` of Student's t lies: 2.571 for 0.95 and 5 degrees of freedom."""
    low, high = 0.0, 1.0
    while within(high, freedom) < share:
        low, high = high, 2 * high
    while high - low > _LEAST_STEP * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if within(middle, freedom) < share else (low, middle)
    return (low + high) / 2


@dataclass(frozen=True, slots=True)
class PairsRule:
    """The least effect to look for, as a share of the old end's value, and the number of pairs that it is worth."""

    least_effect: float
    most_pairs: int

    @property
    def band(self) -> float:
        """The largest difference of two scores that count as the same."""
        return math.log1p(self.least_effect)

    @property
    def looks(self) -> Iterator[int]:
        """The numbers of pairs after which the readings are looked at."""
        pairs = 2
        while pairs < self.most_pairs:
            yield pairs
            pairs = max(pairs + 1, math.ceil(pairs * (1 + _MORE)))
        yield max(2, self.most_pairs)


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How far the score of the new end is above the old end's, from ``pairs`` pairs of readings.

    ``error`` is the standard error of ``mean``, ``freedom`` its degrees of freedom.
    """

    pairs: int
    mean: float
    error: float
    freedom: int

    def half_width(self, share: float = CONFIDENCE) -> float:
        """Half of the width of the confidence interval that has this share."""
        return quantile(share, self.freedom) * self.error

    @property
    def spread(self) -> float:
        """The standard deviation of the readings of one end."""
        return self.error * math.sqrt(self.pairs / 2)

    @property
    def is_told(self) -> bool:
        """Whether the difference is too large for chance."""
        if not self.error:
            return bool(self.mean) and self.pairs >= _WITHOUT_SPREAD
        return abs(self.mean) > self.half_width(1 - _BY_CHANCE)

    def is_within(self, band: float) -> bool:
        """Whether the difference is known to be at most ``band``."""
        return abs(self.mean) + self.half_width(1 - _MISSED) <= band


class PairsConclusion(StrEnum):
    """The conclusion from readings of two sides in turn."""

    DIFFER = "differ"
    SAME = "same"
    NOISY = "too noisy"


def told(readings: InTurn, rule: PairsRule) -> tuple[PairsConclusion, PairedDifference] | None:
    """Return the conclusion of the first look that permits one, and its readings; None if more readings are needed."""
    for pairs in rule.looks:
        if (seen := difference(readings, pairs)) is None:
            return None
        if seen.is_told:
            return PairsConclusion.DIFFER, seen
        if seen.is_within(rule.band):
            return PairsConclusion.SAME, seen
        # Whether the largest number of pairs could still tell the sides apart, or show that they are the same, given
        # the spread so far: the true difference may be two standard errors above its estimate, or 0
        may_be_same = (
            quantile(1 - _MISSED, 2 * rule.most_pairs) * seen.spread * math.sqrt(2 / rule.most_pairs) < rule.band
        )
        at_most = math.expm1(abs(seen.mean) + 2 * seen.error)
        may_be_told = may_be_same or _tells(seen.spread, at_most, rule.most_pairs)
        if pairs >= rule.most_pairs or (pairs >= _SPREAD_IS_KNOWN and not may_be_told):
            return PairsConclusion.NOISY, seen
    return None


def difference(readings: InTurn, pairs: int | None = None) -> PairedDifference | None:
    """Return the difference of the first ``pairs`` readings of both ends, or of all; None if there are fewer than two.

    Two readings of each end say nothing about a drift.
    """
    old, new = (
        [(place, score) for place, (is_new, score) in enumerate(readings) if is_new == one] for one in (False, True)
    )
    there = min(len(old), len(new))
    pairs = there if pairs is None else pairs
    if there < pairs or pairs < 2:  # noqa: PLR2004 - one reading of each has no spread
        return None
    old, new = old[:pairs], new[:pairs]
    (place_old, score_old), (place_new, score_new) = (map(fmean, zip(*row, strict=True)) for row in (old, new))
    apart = [(place - place_old, score - score_old) for place, score in old]
    apart += [(place - place_new, score - score_new) for place, score in new]
    of_places = math.fsum(place**2 for place, _ in apart)
    drifts = pairs > 2  # noqa: PLR2004 - as above
    drift = math.fsum(place * score for place, score in apart) / of_places if drifts else 0.0
    squares = math.fsum((score - drift * place) ** 2 for place, score in apart)
    freedom, shift = 2 * (pairs - 1) - drifts, place_new - place_old
    variance = squares / freedom * (2 / pairs + (shift**2 / of_places if drifts else 0.0))
    return PairedDifference(pairs, score_new - score_old - drift * shift, math.sqrt(variance), freedom)


def pairs_to_tell(spread: float, effect: float) -> int | None:
    """How many pairs find nine of ten changes of ``effect``, given the standard deviation of one kernel's readings.

    None if more pairs are needed than anybody has time for.
    """
    many = 2
    while not _tells(spread, effect, many, _POWER):
        many *= 2
        if many > _MOST_PAIRS:
            return None
    untold = range(many // 2 + 1, many)
    return untold.start + bisect_left(untold, True, key=lambda pairs: _tells(spread, effect, pairs, _POWER))


def _tells(spread: float, effect: float, pairs: int, power: float = 0.0) -> bool:
    error, freedom = spread * math.sqrt(2 / pairs), max(2, 2 * pairs - 3)
    return (quantile(1 - _BY_CHANCE, freedom) + power) * error < math.log1p(effect)


# The effect of a commit, and of all


@dataclass(frozen=True, slots=True)
class SuspectEffect:
    """The difference that readings show between a kernel without the change and one with it.

    ``sides`` are the two kernels, ``readings`` and ``counts`` the readings of each and their number. The score of the
    second kernel is above that of the first by ``mean``, within ``half_width`` with 95 % confidence (infinite while no
    kernel was read twice). ``of_ends`` is the difference of the ends when the search began.
    """

    sides: tuple[Key, Key]
    counts: tuple[int, int]
    mean: float
    half_width: float
    of_ends: float
    readings: tuple[tuple[Reading, ...], tuple[Reading, ...]] = ((), ())

    @property
    def is_shown(self) -> bool:
        """Whether the effect is as large as it has to be, or the ends differ so much that nothing has to be shown."""
        return abs(self.of_ends) >= LARGE or self.is_as_before

    @property
    def is_refuted(self) -> bool:
        """Whether the effect is known to be less than half of ``of_ends``: more readings would not show it."""
        return self._along + self.half_width < _SHARE * abs(self.of_ends)

    @property
    def is_gone(self) -> bool:
        """Whether the effect is known to be less than ``of_ends``, and may be 0."""
        return self._along <= self.half_width < abs(self.of_ends) - self._along

    @property
    def is_as_before(self) -> bool:
        """Whether the effect is known to be more than half of ``of_ends``."""
        return self._along - self.half_width > _SHARE * abs(self.of_ends)

    @property
    def _along(self) -> float:
        return self.mean * math.copysign(1.0, self.of_ends)

    @property
    def to_read(self) -> tuple[Key, ...]:
        """The kernels to read next, in this order; if one was read less often, only that one.

        Pairs alternate in their order: the first kernel of a pair is the second kernel of the pair before.
        """
        without, with_it = self.counts
        if without != with_it:
            return (self.sides[without > with_it],)
        return self.sides if without % 2 else self.sides[::-1]


def effect_of(
    problem: SearchProblem, facts: SearchFacts, suspect: int, levels: Mapping[str, Levels]
) -> SuspectEffect | None:
    """Return the known effect of a suspect; None if no figures count, or neither pair of kernels can be measured.

    The effect is compared with the difference of the ends. If all readings of the search show ``levels`` of its hosts
    that are closer together than the ends seemed to be, the distance of these levels is used instead, but at least half
    of what the ends seemed to differ by: the ends were read until they differed, and such readings exaggerate.
    """
    measured, parents, tip = dict(facts.twins), problem.graph.parents[suspect], problem.graph.tip
    parent = next((one for one in parents if one not in facts.unreadable), None) if parents else OLD_END
    # The kernels without the change and with it, by the commits that their readings are recorded under
    if parent is not None and suspect not in facts.unreadable:
        sides = (measured.get(parent, parent), Kernel.COMMIT), (measured.get(suspect, suspect), Kernel.COMMIT)
    elif Kernel.REVERTED in possible_changed_ends(problem, facts, suspect):
        sides = (suspect, Kernel.REVERTED), (tip, Kernel.COMMIT)
    else:
        return None
    found = _between(facts, sides, tip)
    if found is None or not levels or abs(found.of_ends) >= LARGE:
        return found
    sign, first = math.copysign(1.0, found.of_ends), abs(found.of_ends)
    known = sign * fmean(one.apart for one in levels.values())
    return replace(found, of_ends=sign * min(first, max(known, _SHARE * first)))


def effect_of_all(problem: SearchProblem, facts: SearchFacts) -> SuspectEffect | None:
    """Return the joint effect of all commits, from readings of the ends since the search began.

    The readings before that are left out, because they are what told the ends apart.
    """
    return _between(facts, _ends(problem.graph.tip), problem.graph.tip)


def _ends(tip: int) -> tuple[Key, Key]:
    return (OLD_END, Kernel.COMMIT), (tip, Kernel.COMMIT)


@dataclass(frozen=True, slots=True)
class ReadingsSinceStart:
    """The readings since the search began; earlier readings may be of another day.

    ``of_ends`` is the difference of the ends at that time. Each of the ``readings`` comes with its score relative to
    the middle of the ends of its host, None if only its verdict counts. ``before`` has the scores of the ends until
    then, except those that are among ``readings``.
    """

    of_ends: float
    readings: tuple[tuple[Reading, float | None], ...]
    before: Mapping[Key, Sequence[float]]

    @classmethod
    def begun(cls, facts: SearchFacts, tip: int) -> "ReadingsSinceStart | None":
        """Return a host's readings since its first reading of another kernel; None without figures of both ends.

        Readings are in the order of measuring. If no kernel but the ends has been read (yet), ``readings`` has all
        readings of the ends.
        """
        ends = _ends(tip)
        of_host: defaultdict[str, dict[Key, list[float]]] = defaultdict(lambda: {end: [] for end in ends})
        for one in facts.readings:
            if one.score is not None and one.of in ends:
                of_host[one.host][one.of].append(one.score)
        # The middle of the ends' figures on each host that has figures of both
        middle = {host: fmean(map(fmean, rows.values())) for host, rows in of_host.items() if all(rows.values())}
        begun, before = set[str](), defaultdict[Key, list[float]](list)
        later, of_ends = (list[tuple[Reading, float | None]]() for _ in range(2))
        for one in facts.readings:
            if one.host not in middle:
                continue
            begun |= set() if one.of in ends else {one.host}
            score = None if one.score is None else one.score - middle[one.host]
            (later if one.host in begun else of_ends).append((one, score))
            if score is not None and one.host not in begun:
                before[one.of].append(score)
        if not before.keys() >= set(ends):
            return None
        old, new = (fmean(before[end]) for end in ends)
        return cls(new - old, tuple(later), before) if begun else cls(new - old, tuple(of_ends), {})


def _between(facts: SearchFacts, sides: tuple[Key, Key], tip: int) -> SuspectEffect | None:
    """Return the difference of two kernels; readings of the ends count from when the search began on their host."""
    if (since := ReadingsSinceStart.begun(facts, tip)) is None:
        return None
    later, readings = defaultdict[Key, list[float]](list), defaultdict[Key, list[Reading]](list)
    for one, score in since.readings:
        if score is not None:
            later[one.of].append(score)
            readings[one.of].append(one)
    rows = (*since.before.values(), *later.values())
    squares = math.fsum((one - fmean(row)) ** 2 for row in rows for one in row)
    freedom = sum(len(row) - 1 for row in rows)
    without, with_it = (later.get(side, []) for side in sides)
    mean, half_width = 0.0, math.inf
    if without and with_it:
        mean = fmean(with_it) - fmean(without)
        error = math.sqrt(squares / max(1, freedom) * (1 / len(without) + 1 / len(with_it)))
        half_width = quantile(CONFIDENCE, freedom) * error if freedom else math.inf
    first, second = (tuple(readings.get(side, ())) for side in sides)
    return SuspectEffect(sides, (len(without), len(with_it)), mean, half_width, since.of_ends, (first, second))


# Whether one change explains the readings


@dataclass(frozen=True, slots=True)
class Fit:
    """How many readings contradict the likeliest commit, how many noise predicts, and the probability of one change."""

    contradictions: int
    expected: float
    probability: float

    @property
    def one_change(self) -> bool:
        """Whether a single change can explain the readings."""
        return self.probability >= _MISFIT


def fit(belief: Posterior, first_new: int) -> Fit:
    """Return how well a single change at ``first_new`` explains the readings."""
    joint = belief.joint
    is_new = joint.has[joint.of[first_new]]
    said_old, said_new = joint.record.verdicts
    seen = int(np.where(is_new, said_old, said_new).sum())
    chances = [belief.fresh_pick if kernel is Kernel.PICKED else belief.fresh for _, kernel in joint.record.kernels]
    wrong = np.array([one.looks_old if new else one.looks_new for one, new in zip(chances, is_new, strict=True)])
    expected = float((said_old + said_new) @ wrong) if len(wrong) else 0.0
    if seen <= _FEW:
        return Fit(seen, expected, 1.0)
    # The alternative is a change that went and came back. ``first_new`` is the first or the last of its three commits,
    # whichever explains more.
    cases = np.argsort(-joint.weight, kind="stable")[:_CASES]
    step = (joint.new - joint.old)[:, cases]
    base = joint.old.sum(axis=0)[cases] + joint.log_case[cases] + joint.log_class[joint.of[first_new]]
    stories: tuple[list[float], list[float]] = ([], [])
    for other, prior in zip(joint.has, joint.log_class, strict=True):
        # A row for each class in which the change may have gone, after it came with the other class, and after it came
        # with this one
        came = (is_new | (other & ~joint.has), other | (is_new & ~joint.has))
        for found, are_new in zip(stories, came, strict=True):
            each = are_new.astype(np.float64) @ step + base + (joint.log_class + prior)[:, None]
            found.append(float(np.logaddexp.reduce(each, axis=None)))
    log_evidence = max(float(np.logaddexp.reduce(each)) for each in stories)
    odds = log_evidence - joint.log_evidence + np.log(_MORE_THAN_ONE / (1 - _MORE_THAN_ONE))
    return Fit(seen, expected, float(1 / (1 + np.exp(min(_LARGEST, odds)))))


# Whether nothing changed


def chance_of_nothing(facts: SearchFacts, belief: Posterior, weighing: Weighing, tip: int) -> float:
    """The probability that no commit of the range changed the figures; 0 if no figures tell the ends apart."""
    since = ReadingsSinceStart.begun(facts, tip)
    if since is None or not since.of_ends:
        return 0.0
    one_change, nothing = belief.joint.log_class[:, None] - math.log(_SHARES.size), 0.0
    for host, levels in belief.levels.items():
        told = [one for one in since.readings if one[0].host == host]
        of_class, of_one_level = _of_host(told, levels, weighing.scales[host].expected.drift_deviation, since, belief)
        one_change, nothing = one_change + of_class, nothing + of_one_level
    log_odds = math.log(1 / weighing.nothing - 1) + float(log_sum(one_change.ravel())) - nothing
    return 1 / (1 + math.exp(min(log_odds, _LARGEST)))


def _of_host(
    told: Sequence[tuple[Reading, float | None]],
    levels: Levels,
    drifts_by: float,
    since: ReadingsSinceStart,
    belief: Posterior,
) -> tuple[Floats, float]:
    """The log-likelihood of a host's readings for each class of commits and share, and that of a single level."""
    noise, joint = belief.noise, belief.joint
    a, b = max(noise.old_as_new, _LEAST), max(noise.new_as_old, _LEAST)
    apart, spread = abs(since.of_ends), math.sqrt(levels.old.spread * levels.new.spread)
    begun = min((one.hour for one, _ in told), default=0.0)
    middle, sign = _SHIFTS[:, None] * apart, math.copysign(1.0, since.of_ends)
    places = {key: place for place, key in enumerate(joint.record.kernels)}
    old, new = (np.zeros((len(places), *(middle + _SHARES).shape)) for _ in range(2))
    nothing = _LOG_OF_ONE.copy()
    # The drift per hour of figures of a single level: least squares, with the drift that is expected of a host as prior
    alone, figures = 0.0, [(one.hour, score) for one, score in told if score is not None]
    if figures:
        hours, scores = np.array(figures).T
        apart_h = hours - hours.mean()
        alone = float(apart_h @ scores / (apart_h @ apart_h + (spread / drifts_by) ** 2))
    drifts = levels.drift, alone
    for one, score in told:
        place = places[one.of]
        if score is None and one.verdict is Verdict.MEASURED:
            continue
        if score is None:
            is_new = one.verdict is Verdict.NEW
            old[place] += math.log(a if is_new else 1 - a)
            new[place] += math.log(1 - b if is_new else b)
            looks_new = np.where(_SHIFTS > 0, 1 - b, a)
            nothing += np.log(looks_new if is_new else 1 - looks_new)
        else:
            at, at_one = (sign * (score - drift * (one.hour - begun)) - middle for drift in drifts)
            of_old, of_new = (density((at + half * apart * _SHARES) / spread) / spread for half in (0.5, -0.5))
            of_one = density(at_one[:, 0] / spread) / spread
            old[place] += np.log(shown_by(of_old, of_new, STRAY_DENSITY, a))
            new[place] += np.log(shown_by(of_new, of_old, STRAY_DENSITY, b))
            nothing += np.log(shown_by(of_one, of_one, STRAY_DENSITY, 0.0))
    old, new = with_sticky(old, new, noise.sticky)
    of_class = np.tensordot(joint.has.astype(np.float64), new - old, 1) + old.sum(axis=0) + _LOG_OF_TWO[:, None]
    return log_sum(of_class, axis=1), float(log_sum(nothing))


def _normal(deviation: float) -> Floats:
    weight = np.exp(-0.5 * (_SHIFTS / deviation) ** 2)
    found: Floats = weight / weight.sum()
    return found


_LOG_OF_ONE = np.log(_normal(_MOVED))
_LOG_OF_TWO = np.log((1 - _MOVES) * _normal(_STILL) + _MOVES * _normal(_MOVED))
