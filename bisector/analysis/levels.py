"""The levels of readings: those of both ends and the threshold between them, and changes in a series; pure.

Readings are scores. docs/method-evidence.md has the rules for levels, thresholds and ends. Where a series of figures
changed its level is found by a test with a stated rate of false alarms (docs/nightly.md): circular binary segmentation
(Olshen and others, Biostatistics 2004, 5:557) on ranks, against random orders of the same series, which is exact for
any distribution of the noise, ties and outliers included. Each change is tested again between its own neighbours, and
the parts are searched in turn.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Annotated

import numpy as np
import numpy.typing as npt

from bisector.analysis.comparison import holm
from bisector.core.errors import EndsDoNotReproduce, InfraError, UserError
from bisector.core.figures import Run
from bisector.core.json_document import Key
from bisector.core.objective import WORST, Objective, available
from bisector.core.units import percent_text
from bisector.core.verdict import Direction, SideWords, Verdict
from bisector.search.effect import (
    InTurn,
    PairedDifference,
    PairsConclusion,
    PairsRule,
    difference,
    p_value,
    pairs_to_tell,
    told,
)

Floats = npt.NDArray[np.float64]
Scores = Mapping[str, Sequence[float]]

# The least factor between two levels, and the least gap in standard deviations within levels. Of 1,000 draws of 20 to
# 40 readings on two levels at most 1 shows a third level if noise is normal (up to 0.3 in natural log units), and at
# most 8 if it has heavy tails (Student's t with four degrees of freedom) of up to 0.1; at 0.2, 27.
LEAST_FACTOR = 2.0
LEAST_DEVIATIONS = 5.0
_ROUNDING = 1e-9  # of scores: a factor of exactly LEAST_FACTOR is enough
# The probability that any of the tested metrics is named by chance (Holm 1979).
_BEYOND_DOUBT = 1e-3
# Of the test for changes in a series: the rate of false alarms, and what it takes.
ALPHA = 0.01
LEAST = 3  # the fewest figures that make a level; two in a row are not rare among many
_ORDERS = 999
_SEED = 20170727  # fixed, so that the same history always shows the same changes


@dataclass(frozen=True, slots=True)
class ReadingLevel:
    """A level: the worst and the best score of readings that lie together, and the number of their trials."""

    worst: float
    best: float
    trials: int

    def __contains__(self, score: float) -> bool:
        return self.worst <= score <= self.best

    def middle_of_gap(self, other: "ReadingLevel") -> float:
        """The middle of the gap between two levels."""
        return (min(self.best, other.best) + max(self.worst, other.worst)) / 2


def levels(scores: Scores) -> tuple[ReadingLevel, ...]:
    """Return the levels of readings, the worst first; ``scores`` has the readings of each kernel, of whole runs only.

    Readings are split at each gap of a factor of 2, and joined again if the gap is not wide compared with the spread
    within levels, pooled over all. A group is a level if a kernel has readings on no other one.
    """
    clusters: list[list[tuple[float, str]]] = []
    for reading in sorted((score, kernel) for kernel, all_of in scores.items() for score in all_of):
        if clusters and reading[0] - clusters[-1][-1][0] < math.log(LEAST_FACTOR):
            clusters[-1].append(reading)
        else:
            clusters.append([reading])
    while len(clusters) > 1:
        gaps = [better[0][0] - worse[-1][0] for worse, better in pairwise(clusters)]
        least = min(range(len(gaps)), key=gaps.__getitem__)
        means = [math.fsum(score for score, _ in cluster) / len(cluster) for cluster in clusters]
        apart = zip(clusters, means, strict=True)
        squares = sum(math.fsum((score - mean) ** 2 for score, _ in cluster) for cluster, mean in apart)
        freedom = sum(map(len, clusters)) - len(clusters)
        if gaps[least] >= LEAST_DEVIATIONS * math.sqrt(squares / max(1, freedom)):
            break
        clusters[least : least + 2] = [clusters[least] + clusters[least + 1]]
    found = []
    for cluster in clusters:
        elsewhere = {kernel for other in clusters if other is not cluster for _, kernel in other}
        if any(kernel not in elsewhere for _, kernel in cluster):
            found.append(ReadingLevel(cluster[0][0], cluster[-1][0], len(cluster)))
    return tuple(found)


def are_far_apart(old: float, new: float) -> bool:
    """Whether two scores are at least a factor of 2 apart."""
    return abs(new - old) >= math.log(LEAST_FACTOR) - _ROUNDING


def line_between(old: float, new: float, scores: Scores) -> float:
    """Return the score of the threshold, given the scores of the ends.

    If the ends are closer than a factor of 2, it is the middle between them. If they are farther apart and still seem
    to be on one level, it is the middle of the widest gap between them.
    """
    if not are_far_apart(old, new):
        return (old + new) / 2
    found = levels(scores)
    at_old, at_new = (
        (next((index for index, level in enumerate(found) if score in level), None)) for score in (old, new)
    )
    if at_old is None or at_new is None or at_old == at_new:
        low, high = sorted((old, new))
        between = sorted({low, high, *(score for all_of in scores.values() for score in all_of if low < score < high)})
        worse, better = max(pairwise(between), key=lambda pair: pair[1] - pair[0])
        return (worse + better) / 2
    beside = at_new + (1 if at_old > at_new else -1)
    return found[at_new].middle_of_gap(found[beside])


def other_gaps(line: float, old: float, new: float, found: Sequence[ReadingLevel]) -> tuple[float, ...]:
    """Return the middles of the other gaps between the levels of the ends, the widest gap first."""
    low, high = sorted((old, new))
    gaps = [
        (better.worst - worse.best, worse.middle_of_gap(better))
        for worse, better in pairwise(found)
        if low <= worse.best and better.worst <= high and not worse.best < line < better.worst
    ]
    return tuple(middle for _, middle in sorted(gaps, reverse=True))


@dataclass(frozen=True, slots=True)
class MeasuredEnds:
    """The scores of the two ends, the expected direction (None: either), and the words for both sides.

    ``difference`` is the difference of their readings in turn, if it took any.
    """

    old: float
    new: float
    objective: Objective
    expected: Direction | None
    terms: SideWords
    difference: PairedDifference | None = None

    @property
    def measured(self) -> str:
        """Both values, in the user's words."""
        old, new = (self.objective.text(self.objective.value_of(score)) for score in (self.old, self.new))
        of = "" if self.difference is None else f", means of {self.difference.pairs} readings of each"
        return f"the {self.terms.old} end measured {old}, the {self.terms.new} end {new} ({self.objective.label}{of})"

    @property
    def swapped_hint(self) -> str:
        """The hint for ends that were named in the wrong order."""
        other = {
            Direction.IMPROVEMENT: "--expect regression looks for what made NEW worse",
            Direction.REGRESSION: "--expect improvement looks for what made NEW better",
        }
        kept = f", or keep the order: {other[self.expected]}" if self.expected is not None else ""
        return f"the ends look swapped: bisector start NEW OLD{kept}"


@dataclass(frozen=True, slots=True)
class Threshold:
    """The score that separates the ends, and the scores of both; ``given`` if the user chose it."""

    score: float
    old: float
    new: float
    given: bool
    difference: PairedDifference | None = None

    @property
    def direction(self) -> Direction:
        """The direction of the change, by the scores of the ends."""
        return Direction.between(self.old, self.new)

    def sentence(self, objective: Objective) -> str:
        """The direction of the change, both ends with their factor, and the threshold, for a person."""
        old, line, new = (objective.text(objective.value_of(one)) for one in (self.old, self.score, self.new))
        origin = "as given" if self.given else "the middle of the gap between the ends"
        article = {Direction.IMPROVEMENT: "an", Direction.REGRESSION: "a"}[self.direction]
        told = "" if self.difference is None else f", {factor_text(self.difference, objective)}"
        return f"{article} {self.direction}: {objective.label} from {old} to {new}{told}; threshold {line}, {origin}"


class EndsAreTheSame(EndsDoNotReproduce):
    """Both ends differ by less than the least effect, or by no more than noise."""


def told_apart(ends: MeasuredEnds, readings: InTurn, rule: PairsRule) -> MeasuredEnds | None:
    """Return the ends' means over as many pairs of readings as tell them apart; None if more pairs are needed.

    Raises :class:`EndsAreTheSame` if they are the same, or if no number of pairs that is worth it tells whether they
    are.
    """
    if are_far_apart(ends.old, ends.new):
        return ends
    if (found := told(readings, rule)) is None:
        return None
    word, seen = found
    old, new = ([score for is_new, score in readings if is_new is one][: seen.pairs] for one in (False, True))
    ends = replace(ends, old=fmean(old), new=fmean(new), difference=seen)
    match word:
        case PairsConclusion.DIFFER:
            return ends
        case PairsConclusion.SAME:
            interval = factor_text(seen, ends.objective)
            raise EndsAreTheSame(
                f"{ends.measured}: the same within {percent_text(rule.least_effect)}, {interval}",
                "choose a --metric that the two ends differ in, or a smaller --least-effect",
            )
        case PairsConclusion.NOISY:
            needed = pairs_to_tell(seen.spread, rule.least_effect)
            most = "more pairs than anybody has time for" if needed is None else f"about {needed} pairs"
            raise EndsAreTheSame(
                f"{ends.measured}: too noisy to tell on this host: {factor_text(seen, ends.objective)}, and readings of"
                f" one end spread by {math.expm1(seen.spread):.1%}: {most} tell a change of"
                f" {percent_text(rule.least_effect)}",
                "a longer --runtime has less noise; or look for larger changes alone with --least-effect",
            )


def factor_text(seen: PairedDifference, objective: Objective) -> str:
    """The ratio of the new end's value to the old one's: ``0.902 times (95 %: 0.875 to 0.930), by 6 pairs``."""
    return f"{objective.factor(seen.mean, seen.half_width()).text}, by {seen.pairs} pairs"


def from_scores(ends: MeasuredEnds, scores: Scores) -> Threshold:
    """Return the threshold in the gap beside the new end's level, given the scores of each kernel.

    Raises :class:`EndsDoNotReproduce` if the ends differ in another direction than expected, or not at all.
    """
    if ends.old == ends.new:
        hint = "choose a --metric that the two ends differ in, or give a --threshold"
        raise EndsDoNotReproduce(f"{ends.measured}: there is no difference to bisect", hint)
    expected = ends.expected or Direction.between(ends.old, ends.new)
    if (worse := (ends.old - ends.new) * expected.sign) > 0:
        times = f"{math.exp(worse):.2f} times, in the other direction than expected"
        raise EndsDoNotReproduce(f"{ends.measured}: {times}", ends.swapped_hint)
    return Threshold(line_between(ends.old, ends.new, scores), ends.old, ends.new, False, ends.difference)


def given(score: float, ends: MeasuredEnds) -> Threshold:
    """Return the user's threshold; raises :class:`EndsDoNotReproduce` unless each end is on its side of it."""
    direction = ends.expected or Direction.between(ends.old, ends.new)
    claims = ((ends.terms.old, ends.old, Verdict.OLD), (ends.terms.new, ends.new, Verdict.NEW))
    wrong = [word for word, end, side in claims if direction.verdict(end > score) is not side]
    if wrong:
        line = ends.objective.text(ends.objective.value_of(score))
        where = "both ends are on one side"
        if ends.expected is not None:
            where = f"the {' and the '.join(wrong)} end {'is' if len(wrong) == 1 else 'are'} on the wrong side"
        raise EndsDoNotReproduce(
            f"{ends.measured}: with a threshold of {line} {where}",
            ends.swapped_hint if len(wrong) > 1 else "without --threshold it is found from the two ends",
        )
    return Threshold(score, ends.old, ends.new, True, ends.difference)


def differing(runs: Sequence[tuple[bool, Run]], asked: Objective) -> str | None:
    """Return a hint to the metric in which the ends differ most surely; None if they differ in none beyond doubt.

    ``runs`` are those of both ends in the order of measuring, True for the new one.
    """
    found: list[tuple[Objective, PairedDifference]] = []
    for name in available(runs[0][1]):
        objective = replace(asked, metric=name)
        if not objective.is_of_jobs:
            objective = replace(objective, over=WORST)
        if name == asked.metric:
            continue
        with suppress(UserError, InfraError):  # neither direction of it is better, or it has no value above zero
            objective.check()
            seen = difference([(is_new, objective.score(objective.value(run))) for is_new, run in runs])
            if seen is not None and seen.error:  # without any spread the noise is unknown
                found.append((objective, seen))
    adjusted = holm([p_value(one.mean / one.error, one.freedom) for _, one in found])
    sure = [(p, place) for place, p in enumerate(adjusted) if p <= _BEYOND_DOUBT]
    if not sure:
        return None
    objective, seen = found[min(sure)[1]]
    return (
        f"by {objective.label} they differ: {factor_text(seen, objective)}, the surest of {len(found)} metrics:"
        f" --metric {objective.metric}"
    )


# Changes in a series


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A change of level; ``at`` is the place of the new level's first figure, from 0."""

    at: int
    before: Annotated[float, Key("from"), "median of the values before it"]
    after: Annotated[float, Key("to"), "median of the values from it on"]
    p: Annotated[float, "probability of so clear a change in nights without one"]


def changes(figures: Floats) -> tuple[LevelChange, ...]:
    """Return every change of level in a series, oldest first; figures are positive."""
    series = np.asarray(figures, dtype=np.float64)
    found = _search(series, 0, np.random.default_rng(_SEED))
    places = sorted(found)
    while places:
        pairs = _neighbours(series, places)
        p, worst = max((_two_sample_p(*pair), place) for place, pair in zip(places, pairs, strict=True))
        if p <= ALPHA:
            break
        places.remove(worst)
    placed = {}
    for place, start, end in _windows(series, places):
        # The place at which a single change divides the stretch best: the search looked for both ends of a level at
        # once
        ranks = _ranks(series[start:end])
        lengths = np.arange(LEAST, len(ranks) - LEAST + 1)
        sums = np.cumsum(ranks - ranks.mean())[lengths - 1]
        best = lengths[np.argmax(np.abs(sums) / np.sqrt(lengths * (len(ranks) - lengths)))]
        placed[start + int(best)] = found[place]
    pairs = _neighbours(series, list(placed))
    return tuple(
        LevelChange(place, float(np.median(before)), float(np.median(after)), p)
        for (place, p), (before, after) in zip(placed.items(), pairs, strict=True)
    )


def _windows(series: Floats, places: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield each place with its neighbouring places, or the ends of the series."""
    edges = [0, *places, len(series)]
    yield from zip(places, edges, edges[2:], strict=False)


def _neighbours(series: Floats, places: list[int]) -> list[tuple[Floats, Floats]]:
    return [(series[start:place], series[place:end]) for place, start, end in _windows(series, places)]


def _search(series: Floats, offset: int, random: np.random.Generator) -> dict[int, float]:
    """Return the places where levels begin, with their p-values, in a series and in its parts."""
    if len(series) < 2 * LEAST:
        return {}
    ranks = _ranks(series)
    statistic, start, end = _largest(ranks)
    reached = 1  # p is the share of orders that reach it, the given order included
    for _ in range(_ORDERS):
        reached += _largest(random.permutation(ranks))[0] >= statistic
        if reached > ALPHA * (_ORDERS + 1):
            return {}
    p = reached / (_ORDERS + 1)
    places = [place for place in (start, end) if 0 < place < len(series)]
    edges = [0, *places, len(series)]
    parts = [_search(series[a:b], offset + a, random) for a, b in pairwise(edges)]
    return {offset + place: p for place in places} | {place: one for part in parts for place, one in part.items()}


def _largest(ranks: Floats) -> tuple[float, int, int]:
    """Return the stretch [start, end) whose ranks deviate most from the rest's, after its standardised deviation."""
    count = len(ranks)
    sums = np.concatenate(([0.0], np.cumsum(ranks - ranks.mean())))
    deviation = np.abs(sums[None, :] - sums[:, None])
    place = np.arange(count + 1)
    length = place[None, :] - place[:, None]
    allowed = (length >= LEAST) & (length <= count - LEAST)
    # The levels on both sides of the stretch, if any, have to be long enough, too.
    allowed &= ((place == 0) | (place >= LEAST))[:, None] & ((place == count) | (place <= count - LEAST))[None, :]
    variance = np.where(allowed, length * (count - length), 1) / count * ranks.var(ddof=1)
    standardised = np.where(allowed, deviation / np.sqrt(np.maximum(variance, 1e-12)), 0.0)
    best = int(standardised.argmax())
    start, end = divmod(best, count + 1)
    return float(standardised.flat[best]), start, end


def _two_sample_p(one: Floats, other: Floats) -> float:
    """The two-sided p-value of the Mann-Whitney test of two neighbours, by random orders."""
    ranks = _ranks(np.concatenate((one, other)))
    centred = ranks - ranks.mean()
    seen = abs(centred[: len(one)].sum())
    random = np.random.default_rng(_SEED)
    orders = random.permuted(np.tile(centred, (_ORDERS, 1)), axis=1)[:, : len(one)]
    return float((1 + np.count_nonzero(np.abs(orders.sum(axis=1)) >= seen - 1e-9)) / (_ORDERS + 1))


def _ranks(series: Floats) -> Floats:
    """The ranks of a series, from 1; equal figures share their mean rank."""
    _, inverse, counts = np.unique(series, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2.0)[inverse]
    return ranks
