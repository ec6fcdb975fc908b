"""On which levels the readings lie, and where the line between the two sides is.

Readings are scores (:mod:`bisector.core.objective`): noise grows with the value, and so is the same at every level on
their logarithmic scale. Readings are on two levels when nothing lies between them but a gap: at least a factor of 2,
and wide against the spread of the readings that lie together. A level counts when some kernel was read there and
nowhere else, so that a run that went astray once makes none. The line is the middle of the gap that is next to the new
end's level: what is neither as the old end nor as the new one does not have the change yet that made the new end what
it is. Between ends that are closer than a factor of 2 it is the middle of their means.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

# The least factor between two levels, and the least gap in standard deviations within levels. Of 1,000 draws of 20 to
# 40 readings on two levels at most 1 shows a third one when noise is normal (up to 0.3 in natural log units), and at
# most 8 when it has heavy tails (Student's t with four degrees of freedom) of up to 0.1; at 0.2, 27.
LEAST_FACTOR = 2.0
LEAST_DEVIATIONS = 5.0
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


def are_far_apart(old: float, new: float) -> bool:
    """Whether two scores are a factor of 2 apart, at least."""
    return abs(new - old) >= math.log(LEAST_FACTOR) - _ROUNDING


def line_between(old: float, new: float, scores: Scores) -> float:
    """Where the new side begins, given the scores of the ends.

    Where they are closer than a factor of 2 it is the middle between them; and while both are on one level all the
    same, as far as it can be told, the middle of the widest gap between them.
    """
    if not are_far_apart(old, new):
        return (old + new) / 2
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
