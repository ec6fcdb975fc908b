"""How likely a reading is of a kernel on either side of the change.

A reading is a verdict, or a score (on a log scale, larger is better), seen against two *levels* learnt from all
readings. A single run can mislead (a hiccup of the host: the rates of :class:`Noise`), and so can a
commit as a whole (its layout, its build, another change beside it: ``sticky``). Repeating the second
kind teaches nothing, so the trust in one kernel saturates however often it is measured. What noise costs at least, in
runs and in the smallest effect that can be found at all, comes last.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from bisector.core.subject import Kind
from bisector.core.verdict import Verdict

# Least width of a level, in natural log units: a reading is not believed to repeat within less than 10 %.
_LEAST_SPREAD = 0.10
# Share of readings that are on neither level, equal on both sides: they speak for none.
_STRAY = 0.01
# A stray reading is anywhere within a range of this factor, evenly on the log scale.
_STRAY_DENSITY = 1 / math.log(600)
# A picked commit may lack what it builds upon, so that it does nothing although it is the one.
PICK_IN_VAIN = 0.30
_GUESSING = 0.5
_STEPS = 40  # of halving an interval: more than the digits of a double need here


Kernel: TypeAlias = Kind


@dataclass(frozen=True, slots=True, order=True)
class Reading:
    """One completed measurement of ``commit`` (by number), or of an end with it undone or done.

    ``score`` is that of the run, where it counts; ``verdict`` (OLD or NEW) is what counts without it. ``full`` tells
    whether the run went its whole length.
    """

    commit: int
    kernel: Kernel
    verdict: Verdict
    score: float | None = None
    full: bool = True


@dataclass(frozen=True, slots=True)
class Noise:
    """Error rates: of a run of an old kernel that looks new, of a new one that looks old, of a commit as a whole.

    The defaults are for one-sided noise, where the new side is the better one: see :meth:`worse_by_accident`.
    """

    old_as_new: float = 0.003
    new_as_old: float = 0.05
    sticky: float = 0.01

    @classmethod
    def worse_by_accident(cls, *, new_is_better: bool) -> "Noise":
        """The usual rates: what misleads makes a run worse, and a bad kernel does not become a good one by accident."""
        usual = cls()
        return usual if new_is_better else replace(usual, old_as_new=usual.new_as_old, new_as_old=usual.old_as_new)


@dataclass(frozen=True, slots=True)
class Level:
    """Where the scores of one side lie: Student's t with four degrees of freedom."""

    centre: float
    spread: float

    def density(self, score: float) -> float:
        """Per natural log unit."""
        z = (score - self.centre) / self.spread
        return 0.375 / math.sqrt(1 + z * z / 4) ** 5 / self.spread


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of both sides."""

    old: Level
    new: Level

    @property
    def overlap(self) -> float:
        """The share of a level's readings that lie on the other level's side of the line between."""
        z = abs(self.new.centre - self.old.centre) / (self.new.spread + self.old.spread)
        # The upper tail of Student's t with four degrees of freedom
        root = 1 + z * z / 4
        return 0.5 - 0.375 * z / math.sqrt(root) * (1 - z * z / (12 * root))

    @classmethod
    def learn(cls, old_end: Sequence[float], new_end: Sequence[float], others: Iterable[float] = ()) -> "Levels":
        """The levels of scores: those of the ends, and all others with the end they are nearer to.

        The line between is the middle of the widest gap among all of them between the ends. Without two figures
        a side the spread is the least one. Strays do not move a level: median and median deviation (MAD; 1.4826
        makes it the standard deviation of a normal distribution).
        """
        others = tuple(others)
        low, high = sorted((float(np.median(old_end)), float(np.median(new_end))))
        inside = np.array(sorted({low, high, *(x for x in (*others, *old_end, *new_end) if low < x < high)}))
        widest = int(np.argmax(np.diff(inside))) if len(inside) > 1 else 0
        line = (inside[widest] + inside[min(widest + 1, len(inside) - 1)]) / 2
        old_is_low = np.median(old_end) < np.median(new_end)
        below = [x for x in others if x < line]
        above = [x for x in others if x >= line]
        old, new = (below, above) if old_is_low else (above, below)
        return cls(_level((*old_end, *old)), _level((*new_end, *new)))


@dataclass(frozen=True, slots=True)
class Evidence:
    """Log-likelihoods of all readings of one kernel, given that its run is of an old or of a new kernel."""

    old: float
    new: float

    def hardened(self, sticky: float) -> "Evidence":
        """The evidence where the kernel as a whole shows the other side with probability ``sticky``.

        The ratio never exceeds (1 - sticky) / sticky.
        """
        right, wrong = math.log1p(-sticky), math.log(sticky)
        old = float(np.logaddexp(right + self.old, wrong + self.new))
        new = float(np.logaddexp(right + self.new, wrong + self.old))
        return Evidence(old, new)

    def sticky_given(self, side: Verdict, sticky: float) -> float:
        """Probability that a kernel of ``side`` shows the other side, after these readings."""
        shown, other = (self.old, self.new) if side is Verdict.OLD else (self.new, self.old)
        odds = math.log(sticky) + other - math.log1p(-sticky) - shown
        return 1 / (1 + math.exp(-min(700.0, max(-700.0, odds))))


@dataclass(frozen=True, slots=True)
class Weighing:
    """Readings to likelihoods; without levels, or for a reading without a figure, the verdict alone counts."""

    noise: Noise = field(default_factory=Noise)
    levels: Levels | None = None

    @property
    def expected(self) -> Noise:
        """The error rates of the next verdict: those of the noise, and what the levels overlap."""
        if self.levels is None:
            return self.noise
        overlap, noise = self.levels.overlap, self.noise
        return replace(
            noise,
            old_as_new=noise.old_as_new + (1 - 2 * noise.old_as_new) * overlap,
            new_as_old=noise.new_as_old + (1 - 2 * noise.new_as_old) * overlap,
        )

    def of(self, readings: Iterable[Reading]) -> Evidence:
        """The evidence of readings of one kernel, before it is hardened."""
        pairs = [self._one(reading) for reading in sorted(readings, key=_sort_key)]
        return Evidence(math.fsum(old for old, _ in pairs), math.fsum(new for _, new in pairs))

    def _one(self, reading: Reading) -> tuple[float, float]:
        a, b = self.noise.old_as_new, self.noise.new_as_old
        if reading.kernel is Kernel.PICKED:
            b = max(b, PICK_IN_VAIN)
        if self.levels is not None and reading.score is not None:
            old, new = (level.density(reading.score) for level in (self.levels.old, self.levels.new))
            keep = 1 - _STRAY
            stray = _STRAY * _STRAY_DENSITY
            # What misleads lands on the other level: a cache that promotes nothing is as slow as one that cannot.
            return (
                math.log(keep * ((1 - a) * old + a * new) + stray),
                math.log(keep * ((1 - b) * new + b * old) + stray),
            )
        if reading.verdict is Verdict.NEW:
            return math.log(a), math.log1p(-b)
        return math.log1p(-a), math.log(b)


def _sort_key(reading: Reading) -> tuple[str, float]:
    return reading.verdict, reading.score or 0.0


def _level(figures: Sequence[float]) -> Level:
    centre = float(np.median(figures))
    deviation = float(np.median(np.abs(np.asarray(figures) - centre)))
    return Level(centre, max(_LEAST_SPREAD, 1.4826 * deviation))


def expected_runs(commits: int, error: float, miss: float) -> float:
    """How many runs tell one of so many commits, with the chance ``miss`` of a wrong answer; no fewer will do.

    ``error`` is the rate of wrong readings; at a half and above it is infinite. Burnashev (1974): log2(N)/C +
    log2(1/miss)/C1, where C is the capacity of the channel and C1 what a reading of a suspect tells.
    """
    if error >= _GUESSING:
        return math.inf
    capacity = 1 - _entropy(error)
    if error <= 0:
        return math.log2(commits) if commits > 1 else 0.0
    confirming = (1 - 2 * error) * math.log2((1 - error) / error)
    return math.log2(max(1, commits)) / capacity + math.log2(1 / miss) / confirming


def levels_apart(factor: float, spread: float) -> Levels:
    """The levels of two sides; readings of one have the standard deviation ``spread``, in natural log units."""
    width = spread / math.sqrt(2)  # Student's t with 4 degrees of freedom has the variance 2
    return Levels(Level(0.0, width), Level(math.log(factor), width))


def error_rate(factor: float, spread: float, noise: Noise) -> float:
    """How often a reading is on the wrong side of the line between two levels, the mean of both sides."""
    expected = Weighing(noise, levels_apart(factor, spread)).expected
    return (expected.old_as_new + expected.new_as_old) / 2


def least_factor(commits: int, spread: float, noise: Noise, *, miss: float, runs: int) -> float:
    """The smallest factor between the two sides that can be found in so many runs; infinite when none can."""

    def too_close(log_factor: float) -> bool:
        return expected_runs(commits, error_rate(math.exp(log_factor), spread, noise), miss) > runs

    near, far = 0.0, 50.0 * spread
    if too_close(far):
        return math.inf
    for _ in range(_STEPS):
        middle = (near + far) / 2
        near, far = (middle, far) if too_close(middle) else (near, middle)
    return math.exp(far)


def _entropy(p: float) -> float:
    return -p * math.log2(p) - (1 - p) * math.log2(1 - p) if 0 < p < 1 else 0.0
