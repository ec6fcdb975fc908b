"""How large the change of a suspect is, by readings of it and its parent: no answer is given before they show it; pure.

All other readings tell which commit is the likeliest, under the levels that the ends have shown. Those are the host's,
too, or of the day: so before a commit is named whose effect is less than a factor of 2, its kernel and that of its
parent are read in turn, until the 95 % interval of their difference excludes nothing, and half of what the ends differ
by. Where one of the two cannot be tested, it is the new end with and without the commit. Larger effects are seen in the
whole runs that an answer rests on anyway. (Google's culprit finder reads 30 pairs whatever the effect:
pinpoint/go/workflows/catapult/culprit_finder.go.)

Noise is the standard deviation of the readings of one kernel on one host, pooled over all kernels.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean

from bisector.core.verdict import Verdict
from bisector.search.apart import CONFIDENCE, LARGE
from bisector.search.choice import Problem, undo_options
from bisector.search.likelihood import Key
from bisector.search.readings import OLD_END, Facts, Kernel
from bisector.search.student import quantile

_SHARE = 0.5  # of what the ends differ by, which the interval excludes


@dataclass(frozen=True, slots=True)
class SuspectEffect:
    """What readings of a kernel without the change and of one with it show.

    ``sides`` are the two kernels and ``counts`` how often each was read; the score of the second is by ``mean`` above
    that of the first, within ``half_width`` 95 times of 100 (infinite while no kernel was read twice). The ends differ
    by ``of_ends``.
    """

    sides: tuple[Key, Key]
    counts: tuple[int, int]
    mean: float
    half_width: float
    of_ends: float

    @property
    def is_shown(self) -> bool:
        """Whether it is as large as it has to be, or so large that nothing has to be shown."""
        return abs(self.of_ends) >= LARGE or self._along - self.half_width > _SHARE * abs(self.of_ends)

    @property
    def is_refuted(self) -> bool:
        """Whether it is known to be less than that: more readings would not show it."""
        return abs(self.of_ends) < LARGE and self._along + self.half_width < _SHARE * abs(self.of_ends)

    @property
    def _along(self) -> float:
        """In the direction in which the ends differ."""
        return self.mean * math.copysign(1.0, self.of_ends)

    @property
    def to_read(self) -> tuple[Key, ...]:
        """The kernels to read next, the first one first; only the one that was read less often, where one was.

        The first one of a pair is the second one of the pair before.
        """
        without, with_it = self.counts
        if without != with_it:
            return (self.sides[without > with_it],)
        return self.sides if without % 2 else self.sides[::-1]


def effect_of(problem: Problem, facts: Facts, suspect: int) -> SuspectEffect | None:
    """What is known of the effect of a suspect; None where no figures count, or neither pair of kernels can be had."""
    sides = _sides(problem, facts, suspect)
    scores = _scores(facts, problem.graph.tip)
    ends = [scores.get((end, Kernel.COMMIT), ()) for end in (OLD_END, problem.graph.tip)]
    if sides is None or not all(ends):
        return None
    without, with_it = (scores.get(side, ()) for side in sides)
    both = bool(without and with_it)
    squares = math.fsum((one - fmean(row)) ** 2 for row in scores.values() for one in row)
    freedom = sum(len(row) - 1 for row in scores.values())
    half_width = math.inf
    if both and freedom:
        error = math.sqrt(squares / freedom * (1 / len(without) + 1 / len(with_it)))
        half_width = quantile(CONFIDENCE, freedom) * error
    mean = fmean(with_it) - fmean(without) if both else 0.0
    return SuspectEffect(sides, (len(without), len(with_it)), mean, half_width, fmean(ends[1]) - fmean(ends[0]))


def _sides(problem: Problem, facts: Facts, suspect: int) -> tuple[Key, Key] | None:
    """The kernels without the change and with it, by the numbers that their readings have."""
    measured, parents = dict(facts.twins), problem.graph.parents[suspect]
    parent = next((one for one in parents if one not in facts.closed), None) if parents else OLD_END
    if parent is not None and suspect not in facts.closed:
        return (measured.get(parent, parent), Kernel.COMMIT), (measured.get(suspect, suspect), Kernel.COMMIT)
    if Kernel.REVERTED in undo_options(problem, facts, suspect):
        return (suspect, Kernel.REVERTED), (problem.graph.tip, Kernel.COMMIT)
    return None


def _scores(facts: Facts, tip: int) -> dict[Key, list[float]]:
    """The scores of each kernel, from the middle of the ends of their host; of hosts that have both ends."""
    of_ends: defaultdict[str, dict[int, list[float]]] = defaultdict(lambda: {OLD_END: [], tip: []})
    figures = [(one, one.score) for one in facts.readings if one.score is not None and one.verdict is not Verdict.SKIP]
    for one, score in figures:
        if one.kernel is Kernel.COMMIT and one.commit in (OLD_END, tip):
            of_ends[one.host][one.commit].append(score)
    middle = {host: fmean(map(fmean, ends.values())) for host, ends in of_ends.items() if all(ends.values())}
    found: defaultdict[Key, list[float]] = defaultdict(list)
    for one, score in figures:
        if one.host in middle:
            found[one.of].append(score - middle[one.host])
    return dict(found)
