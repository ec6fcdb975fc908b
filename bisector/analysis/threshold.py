"""On which levels the readings lie, where the line between the two sides is, and in which direction the change is.

Readings are scores (:mod:`bisector.core.objective`): noise grows with the value, and so is the same at every level on
their logarithmic scale. Readings are on two levels when nothing lies between them but a gap: at least a factor of 2,
and wide against the spread of the readings that lie together. A level counts when some kernel was read there and
nowhere else, so that a run that went astray once makes none. The line is the middle of the gap that is next to the new
end's level: what is neither as the old end nor as the new one does not have the change yet that made the new end what
it is. A person may give another one, against which the ends are checked.

Two readings of one kernel differ, too. So of ends that are less than a factor of 2 apart nothing is said before the
means of two readings of each, or three or four, differ by more than readings of one end do: by Student's t test with a
common variance (Student, Biometrika 1908, 6:1) at 1 in 1,000. At each look the first readings of both ends count, so
that what was told once stays so.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

from bisector.analysis.student import quantile
from bisector.core.errors import EndsDoNotReproduce
from bisector.core.objective import Objective
from bisector.core.verdict import Direction, Terms, Verdict

# The least factor between two levels, and the least gap in standard deviations within levels. Of 1,000 draws of 20 to
# 40 readings on two levels at most 1 shows a third one when noise is normal (up to 0.3 in natural log units), and at
# most 8 when it has heavy tails (Student's t with four degrees of freedom) of up to 0.1; at 0.2, 27.
LEAST_FACTOR = 2.0
LEAST_DEVIATIONS = 5.0
MOST_READINGS = 4
_CHANCE = 1e-3
_ROUNDING = 1e-9  # of scores: a factor that is exactly the least one is enough

Scores = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Level:
    """Readings that lie together: the worst and the best score, and how many trials they are of."""

    worst: float
    best: float
    trials: int

    def __contains__(self, score: float) -> bool:
        return self.worst <= score <= self.best

    def middle_of_gap(self, other: "Level") -> float:
        """The middle between the two scores between which there is nothing."""
        worse, better = sorted((self, other), key=lambda level: level.worst)
        return (worse.best + better.worst) / 2


@dataclass(frozen=True, slots=True, order=True)
class _Reading:
    score: float
    kernel: str


def levels(scores: Scores) -> tuple[Level, ...]:
    """The levels of the readings of each kernel, the worst first; of whole runs only."""
    clusters = _clusters(sorted(_Reading(score, kernel) for kernel, all_of in scores.items() for score in all_of))
    return tuple(_level(cluster) for cluster in clusters if _counts(cluster, clusters))


def line_between(old: float, new: float, scores: Scores) -> float:
    """Where the new side begins, given the scores of the ends.

    While both ends are on one level, as far as it can be told, it is the middle of the widest gap between them.
    """
    found = levels(scores)
    at_old, at_new = (_where(score, found) for score in (old, new))
    if at_old is None or at_new is None or at_old == at_new:
        return _widest_gap(old, new, scores)
    beside = at_new + (1 if at_old > at_new else -1)
    return found[at_new].middle_of_gap(found[beside])


def other_gaps(line: float, old: float, new: float, found: Sequence[Level]) -> tuple[float, ...]:
    """The middles of the gaps between the levels of the ends that the line is not in, the widest first."""
    low, high = sorted((old, new))
    gaps = [
        (better.worst - worse.best, worse.middle_of_gap(better))
        for worse, better in pairwise(found)
        if low <= worse.best and better.worst <= high and not worse.best < line < better.worst
    ]
    return tuple(middle for _, middle in sorted(gaps, reverse=True))


def _clusters(readings: Sequence[_Reading]) -> list[list[_Reading]]:
    """Readings split where nothing is, then joined where the gap is not wide against the spread within."""
    clusters: list[list[_Reading]] = []
    for reading in readings:
        if clusters and reading.score - clusters[-1][-1].score < math.log(LEAST_FACTOR):
            clusters[-1].append(reading)
        else:
            clusters.append([reading])
    while len(clusters) > 1:
        gaps = [better[0].score - worse[-1].score for worse, better in pairwise(clusters)]
        least = min(range(len(gaps)), key=gaps.__getitem__)
        if gaps[least] >= LEAST_DEVIATIONS * _spread_within(clusters):
            break
        clusters[least : least + 2] = [clusters[least] + clusters[least + 1]]
    return clusters


def _spread_within(clusters: Sequence[Sequence[_Reading]]) -> float:
    """The standard deviation within clusters, pooled; 0 when each has one reading."""
    squares = 0.0
    for cluster in clusters:
        mean = math.fsum(one.score for one in cluster) / len(cluster)
        squares += math.fsum((one.score - mean) ** 2 for one in cluster)
    freedom = sum(map(len, clusters)) - len(clusters)
    return math.sqrt(squares / freedom) if freedom else 0.0


def _counts(cluster: Sequence[_Reading], clusters: Iterable[Sequence[_Reading]]) -> bool:
    elsewhere = {one.kernel for other in clusters if other is not cluster for one in other}
    return any(one.kernel not in elsewhere for one in cluster)


def _level(cluster: Sequence[_Reading]) -> Level:
    return Level(cluster[0].score, cluster[-1].score, len(cluster))


def _where(score: float, found: Sequence[Level]) -> int | None:
    return next((index for index, level in enumerate(found) if score in level), None)


def _widest_gap(old: float, new: float, scores: Scores) -> float:
    low, high = sorted((old, new))
    between = sorted({low, high, *(score for all_of in scores.values() for score in all_of if low < score < high)})
    worse, better = max(pairwise(between), key=lambda pair: pair[1] - pair[0])
    return (worse + better) / 2


@dataclass(frozen=True, slots=True)
class Threshold:
    """The score that separates the ends, and theirs; ``given`` when a person chose it."""

    score: float
    old: float
    new: float
    given: bool

    @property
    def direction(self) -> Direction:
        """Whether the new end is the better one."""
        return Direction.between(self.old, self.new)

    def sentence(self, objective: Objective) -> str:
        """What was found, for a person: the direction of the change, both ends, the line."""
        old, line, new = (objective.text(objective.value_of(one)) for one in (self.old, self.score, self.new))
        origin = "as given" if self.given else "the middle of the gap between the ends"
        article = {Direction.IMPROVEMENT: "an", Direction.REGRESSION: "a"}[self.direction]
        return f"{article} {self.direction}: {objective.label} from {old} to {new}; threshold {line}, {origin}"


@dataclass(frozen=True, slots=True)
class Ends:
    """The scores of the two ends, what was expected of them (None: either direction), and the words for them."""

    old: float
    new: float
    objective: Objective
    expected: Direction | None
    terms: Terms

    @property
    def measured(self) -> str:
        """Both values in the person's words."""
        old, new = (self.objective.text(self.objective.value_of(score)) for score in (self.old, self.new))
        return f"the {self.terms.old} end measured {old}, the {self.terms.new} end {new} ({self.objective.label})"

    @property
    def gain(self) -> float:
        """By what factor the ends differ as expected; below 1 it is the other direction."""
        expected = self.expected or Direction.between(self.old, self.new)
        return math.exp((self.new - self.old) * expected.sign)

    @property
    def swapped_hint(self) -> str:
        """What to type when the two ends were named in the wrong order."""
        other = {
            Direction.IMPROVEMENT: "--expect regression looks for what made NEW worse",
            Direction.REGRESSION: "--expect improvement looks for what made NEW better",
        }
        kept = f", or keep the order: {other[self.expected]}" if self.expected is not None else ""
        return f"the ends look swapped: bisector start NEW OLD{kept}"


def told_apart(ends: Ends, old: Sequence[float], new: Sequence[float], min_ratio: float) -> Ends | None:
    """The ends by as many readings of each, all their scores given, as tell them apart; None while it takes more.

    Those that are too close by any reading are left to :func:`from_scores`. Raises :class:`EndsDoNotReproduce` for
    what :data:`MOST_READINGS` of each do not tell apart.
    """
    apart = abs(ends.new - ends.old)
    is_refused = not apart or apart < math.log(min_ratio) - _ROUNDING
    if is_refused or apart >= math.log(LEAST_FACTOR) - _ROUNDING:
        return ends
    for count in range(2, MOST_READINGS + 1):
        if min(len(old), len(new)) < count:
            return None
        both = (old[:count], new[:count])
        ends, error = replace(ends, old=fmean(both[0]), new=fmean(both[1])), _error_of_difference(*both)
        freedom = 2 * (count - 1)
        if abs(ends.new - ends.old) > quantile(1 - _CHANCE, freedom) * error:
            return ends
    half = quantile(1 - _CHANCE, freedom) * error
    value = ends.objective.value_of
    changes = sorted(value(ends.new + d) / value(ends.old) - 1 for d in (-half, half))
    raise EndsDoNotReproduce(
        f"{ends.measured}, means of {count} readings of each, which are not told apart: "
        f"the change is between {changes[0]:+.1%} and {changes[1]:+.1%}, 999 times of 1,000",
        "choose a --metric that the two ends differ in, or a longer --runtime",
    )


def _error_of_difference(old: Sequence[float], new: Sequence[float]) -> float:
    """The standard error of the difference between two means of as many scores, which spread alike."""
    squares = math.fsum((one - fmean(row)) ** 2 for row in (old, new) for one in row)
    return math.sqrt(squares / (len(old) - 1) / len(old))


def from_scores(ends: Ends, scores: Scores, min_ratio: float) -> Threshold:
    """The middle of the gap beside the new end's level, given the scores of each kernel.

    Raises :class:`EndsDoNotReproduce` when the ends are less than a factor of ``min_ratio`` apart, or in another
    direction than expected, and whatever that factor is when they are the same.
    """
    if ends.old == ends.new or math.log(ends.gain) < math.log(min_ratio) - _ROUNDING:
        swapped = ends.gain < 1 and 1 / ends.gain >= min_ratio
        raise EndsDoNotReproduce(
            f"{ends.measured}: {_comparison(ends, min_ratio)}",
            ends.swapped_hint if swapped else "choose a --metric that the two ends differ in, or give a --threshold",
        )
    return Threshold(line_between(ends.old, ends.new, scores), ends.old, ends.new, given=False)


def given(score: float, ends: Ends) -> Threshold:
    """A person's threshold; raises :class:`EndsDoNotReproduce` unless each end is on its side of it."""
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
    return Threshold(score, ends.old, ends.new, given=True)


def _comparison(ends: Ends, min_ratio: float) -> str:
    if ends.old == ends.new:
        return "there is no difference to bisect"
    if ends.gain < 1 and min_ratio <= 1:
        return f"{1 / ends.gain:.2f} times, in the other direction than expected"
    needed = f"where {min_ratio:g} times {'as expected ' if ends.expected is not None else ''}are needed"
    if ends.gain < 1:
        return f"{1 / ends.gain:.2f} times in the other direction, {needed}"
    return f"{ends.gain:.2f} times apart, {needed}"
