"""On which levels the readings lie, and where the line between the two sides is.

Noise of IOPS grows with the figure, so everything is on a logarithmic scale. Readings are on two levels when
nothing lies between them but a gap: at least a factor of 2, and wide against the spread of the readings that lie
together. A level counts when some kernel was read there and nowhere else, so that a run that went astray once makes
none. The line is the middle of the gap below (or above) the new end's level: what is neither as slow as the old end nor
as fast as the new one does not have the change yet that made the new end what it is.
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

Figures = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Level:
    """Readings that lie together: the least and the largest, and how many trials they are of."""

    from_iops: float
    to_iops: float
    trials: int

    def __contains__(self, iops: float) -> bool:
        return self.from_iops <= iops <= self.to_iops

    def middle_of_gap(self, other: "Level") -> float:
        """The geometric mean of the two figures between which there is nothing."""
        lower, upper = sorted((self, other), key=lambda level: level.from_iops)
        return math.sqrt(lower.to_iops * upper.from_iops)


@dataclass(frozen=True, slots=True, order=True)
class _Reading:
    iops: float
    kernel: str

    @property
    def log_iops(self) -> float:
        return math.log(self.iops)


def levels(figures: Figures) -> tuple[Level, ...]:
    """The levels of readings in IOPS, by kernel; slowest first. Figures are above zero, whole runs only."""
    clusters = _clusters(sorted(_Reading(iops, kernel) for kernel, all_of in figures.items() for iops in all_of))
    return tuple(_level(cluster) for cluster in clusters if _counts(cluster, clusters))


def line_between(old_iops: float, new_iops: float, figures: Figures) -> float:
    """Where the new side begins, in IOPS, given what the ends measured.

    While both ends are on one level, as far as it can be told, it is the middle of the widest gap between them.
    """
    found = levels(figures)
    old, new = (_where(iops, found) for iops in (old_iops, new_iops))
    if old is None or new is None or old == new:
        return _widest_gap(old_iops, new_iops, figures)
    beside = new + (1 if old > new else -1)
    return found[new].middle_of_gap(found[beside])


def other_gaps(line_iops: float, old_iops: float, new_iops: float, found: Sequence[Level]) -> tuple[float, ...]:
    """The middles of the gaps between the levels of the ends that the line is not in, the widest first."""
    low, high = sorted((old_iops, new_iops))
    gaps = [
        (upper.from_iops / lower.to_iops, lower.middle_of_gap(upper))
        for lower, upper in pairwise(found)
        if low <= lower.to_iops and upper.from_iops <= high and not lower.to_iops < line_iops < upper.from_iops
    ]
    return tuple(middle for _, middle in sorted(gaps, reverse=True))


def _clusters(readings: Sequence[_Reading]) -> list[list[_Reading]]:
    """Readings split where nothing is, then joined where the gap is not wide against the spread within."""
    clusters: list[list[_Reading]] = []
    for reading in readings:
        if clusters and reading.log_iops - clusters[-1][-1].log_iops < math.log(LEAST_FACTOR):
            clusters[-1].append(reading)
        else:
            clusters.append([reading])
    while len(clusters) > 1:
        gaps = [upper[0].log_iops - lower[-1].log_iops for lower, upper in pairwise(clusters)]
        least = min(range(len(gaps)), key=gaps.__getitem__)
        if gaps[least] >= LEAST_DEVIATIONS * _spread_within(clusters):
            break
        clusters[least : least + 2] = [clusters[least] + clusters[least + 1]]
    return clusters


def _spread_within(clusters: Sequence[Sequence[_Reading]]) -> float:
    """The standard deviation within clusters, pooled; 0 when each has one reading."""
    squares = 0.0
    for cluster in clusters:
        mean = math.fsum(one.log_iops for one in cluster) / len(cluster)
        squares += math.fsum((one.log_iops - mean) ** 2 for one in cluster)
    freedom = sum(map(len, clusters)) - len(clusters)
    return math.sqrt(squares / freedom) if freedom else 0.0


def _counts(cluster: Sequence[_Reading], clusters: Iterable[Sequence[_Reading]]) -> bool:
    elsewhere = {one.kernel for other in clusters if other is not cluster for one in other}
    return any(one.kernel not in elsewhere for one in cluster)


def _level(cluster: Sequence[_Reading]) -> Level:
    return Level(cluster[0].iops, cluster[-1].iops, len(cluster))


def _where(iops: float, found: Sequence[Level]) -> int | None:
    return next((index for index, level in enumerate(found) if iops in level), None)


def _widest_gap(old_iops: float, new_iops: float, figures: Figures) -> float:
    low, high = sorted((old_iops, new_iops))
    between = sorted({low, high, *(iops for all_of in figures.values() for iops in all_of if low < iops < high)})
    lower, upper = max(pairwise(between), key=lambda pair: pair[1] / pair[0])
    return math.sqrt(lower * upper)
