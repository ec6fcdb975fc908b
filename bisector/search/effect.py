"""How large the change of a suspect is, by readings of it and its parent: no answer is given before they show it; pure.

Before a commit is named whose effect is less than a factor of 2, both kernels are read in turn, until the 95 %
interval of their difference excludes half of what the ends differ by. Noise is pooled over all kernels. (Google's
culprit finder reads 30 pairs: pinpoint/go/workflows/catapult/culprit_finder.go.)
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from bisector.search.choice import SearchProblem, undo_options
from bisector.search.difference import CONFIDENCE, LARGE, quantile
from bisector.search.levels import Levels
from bisector.search.likelihood import Key
from bisector.search.readings import OLD_END, Kernel, Reading, SearchFacts

_SHARE = 0.5  # of what the ends differ by, which the interval excludes


@dataclass(frozen=True, slots=True)
class SuspectEffect:
    """What readings of a kernel without the change and of one with it show.

    ``sides`` are the two kernels, ``readings`` those of each and ``counts`` how many. The score of the second is by
    ``mean`` above that of the first, within ``half_width`` 95 times of 100 (infinite while no kernel was read twice).
    The ends differed by ``of_ends`` when the search began.
    """

    sides: tuple[Key, Key]
    counts: tuple[int, int]
    mean: float
    half_width: float
    of_ends: float
    readings: tuple[tuple[Reading, ...], tuple[Reading, ...]] = ((), ())

    @property
    def is_shown(self) -> bool:
        """Whether it is as large as it has to be, or so large that nothing has to be shown."""
        return abs(self.of_ends) >= LARGE or self.is_as_before

    @property
    def is_refuted(self) -> bool:
        """Whether it is known to be less than that: more readings would not show it."""
        return self._along + self.half_width < _SHARE * abs(self.of_ends)

    @property
    def is_gone(self) -> bool:
        """Whether it is known to be less than all of that, and may be nothing."""
        return self._along <= self.half_width < abs(self.of_ends) - self._along

    @property
    def is_as_before(self) -> bool:
        """Whether it is known to be half of that at least."""
        return self._along - self.half_width > _SHARE * abs(self.of_ends)

    @property
    def _along(self) -> float:
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


def effect_of(
    problem: SearchProblem, facts: SearchFacts, suspect: int, levels: Mapping[str, Levels]
) -> SuspectEffect | None:
    """What is known of the effect of a suspect; None where no figures count, or neither pair of kernels can be had.

    Where all readings of the search leave ``levels`` of its hosts that are less apart than the ends seemed to be, it is
    held against those, but against half of what the ends seemed to differ by at least: they were read until they
    differed, and such readings exaggerate.
    """
    measured, parents, tip = dict(facts.twins), problem.graph.parents[suspect], problem.graph.tip
    parent = next((one for one in parents if one not in facts.closed), None) if parents else OLD_END
    # The kernels without the change and with it, by the numbers that their readings have
    if parent is not None and suspect not in facts.closed:
        sides = (measured.get(parent, parent), Kernel.COMMIT), (measured.get(suspect, suspect), Kernel.COMMIT)
    elif Kernel.REVERTED in undo_options(problem, facts, suspect):
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
    """What is known since the search began of that of all commits together, which told the ends apart before."""
    return _between(facts, _ends(problem.graph.tip), problem.graph.tip)


def _ends(tip: int) -> tuple[Key, Key]:
    return (OLD_END, Kernel.COMMIT), (tip, Kernel.COMMIT)


@dataclass(frozen=True, slots=True)
class SinceBegun:
    """What was read since the search began; readings of before may be of another day.

    The ends differed by ``of_ends`` then. ``readings`` have their score from the middle of the ends of their host,
    None where the verdict alone counts; ``before`` are the scores of the ends until then that are not among them.
    """

    of_ends: float
    readings: tuple[tuple[Reading, float | None], ...]
    before: Mapping[Key, Sequence[float]]

    @classmethod
    def begun(cls, facts: SearchFacts, tip: int) -> "SinceBegun | None":
        """By the order of measuring, on each host since its first reading of another kernel; None without figures.

        While no other kernel has been read, and where there is none to be read, those of the ends are all there is.
        """
        ends = _ends(tip)
        of_host: defaultdict[str, dict[Key, list[float]]] = defaultdict(lambda: {end: [] for end in ends})
        for one in facts.readings:
            if one.score is not None and one.of in ends:
                of_host[one.host][one.of].append(one.score)
        # The middle of the ends' figures on each host that has both
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
    """Of an end that is one of both sides the readings since the search began on their host count."""
    if (since := SinceBegun.begun(facts, tip)) is None:
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
