"""A made-up truth to search in: one commit that made the change, and everything that can mislead.

The figures without another source are those of a bisect by hand of a dm-cache regression on 2017's kernels:
two fio runs of 15 minutes for each kernel, an incremental build of 2 to 12 minutes.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from bisector.core.verdict import Verdict
from bisector.search.graph import Mask, RangeGraph
from bisector.search.likelihood import Kernel, Level, Levels, Reading

SETUP_MIN = 3.0  # boot, storage stack, files
WHOLE_RUN_MIN = 30.0  # two runs of 15 min
# The first run is always whole: how long the cache has been there shows in the second. That one is stopped as soon as
# the class is clear: by the rule in use a fixed kernel's after 4.4 to 8.4 min and a broken one's after 4.0 to 10.0, by
# how a fixed one gets up to speed; 6 min on average.
EARLY_NEW_MIN = 21.0
EARLY_OLD_MIN = 21.0
# Were both runs stopped, which no workload here allows: the cache is full at 11 min and the measured run decided 4 to
# 5 min later; a slow kernel shows in the first run already, and the second one is left out.
BOTH_EARLY_NEW_MIN = 16.0
BOTH_EARLY_OLD_MIN = 8.0
# An incremental build from one tree to another takes between these, by the share of the range's commits between them to
# the power of BUILD_GROWTH: a few commits touch headers that everything includes. With this power plain git takes the
# 9.1 h of the simulations that the other constants come from.
BUILD_LEAST_MIN = 2.0
BUILD_MOST_MIN = 12.0
BUILD_GROWTH = 0.25
SUSPECT_SHARE = 0.03
# Half of the untestable commits are in runs, broken until somebody fixes it, half of them alone.
SKIP_RUN_COMMITS = 30.0
SKIP_IN_RUNS_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Durations:
    """Minutes of the parts of a trial: a build (the least, the most), what comes before the runs, the runs."""

    build_least_min: float = BUILD_LEAST_MIN
    build_most_min: float = BUILD_MOST_MIN
    setup_min: float = SETUP_MIN
    whole_run_min: float = WHOLE_RUN_MIN
    early_old_min: float = EARLY_OLD_MIN
    early_new_min: float = EARLY_NEW_MIN

    @property
    def usual_build_min(self) -> float:
        """What to expect of the next build, before it is known how far away it is."""
        return self.build_least_min + 0.4 * (self.build_most_min - self.build_least_min)

    @property
    def usual_skip_min(self) -> float:
        """What to expect of a commit that turns out to be untestable, at its build or at its boot."""
        return self.usual_build_min + self.setup_min * 2 / 3


BOTH_EARLY = Durations(early_old_min=BOTH_EARLY_OLD_MIN, early_new_min=BOTH_EARLY_NEW_MIN)


@dataclass(frozen=True, slots=True)
class Conditions:
    """Rates between 0 and 1, of runs, of commits and, ``suspects``, of how often suspicion is right.

    ``relevant`` is the share of commits that can matter, ``undo`` that of commits which revert cleanly on the
    new end. ``early_stop`` ends runs once their class is clear, after what ``durations`` say. Without ``effect``, the
    factor between the figures of the two sides, a run gives a bare verdict; with it a figure, whose logarithm has the
    standard deviation ``spread``.
    """

    old_as_new: float = 0.0
    new_as_old: float = 0.0
    sticky: float = 0.0
    skip: float = 0.0
    relevant: float = 1.0
    suspects: float | None = None
    undo: float = 1.0
    early_stop: bool = True
    effect: float | None = None
    spread: float = 0.1
    durations: Durations = field(default_factory=Durations)

    @property
    def levels(self) -> Levels | None:
        """The levels of both sides, if runs give figures."""
        if self.effect is None:
            return None
        width = self.spread / math.sqrt(2)  # Student's t with 4 degrees of freedom has the variance 2
        return Levels(Level(0.0, width), Level(math.log(self.effect), width))


@dataclass(slots=True, eq=False)
class World:
    """One truth; it answers trials and counts the minutes they take."""

    graph: RangeGraph
    conditions: Conditions
    rng: np.random.Generator
    culprit: int = 0
    minutes: float = 0.0
    relevant: Mask = field(init=False)
    suspects: Mask | None = field(init=False)
    untestable: Mask = field(init=False)
    _misleads: Mask = field(init=False)
    _no_undo: Mask = field(init=False)
    _undone_mislead: Mask = field(init=False)
    _built: set[tuple[int, Kernel]] = field(default_factory=set)
    _tree: int = field(init=False)

    def __post_init__(self) -> None:
        count, rates, rng = len(self.graph), self.conditions, self.rng
        self.culprit = int(rng.integers(count))
        self._tree = self.graph.tip  # the ends were measured before
        self.relevant = rng.random(count) < rates.relevant
        self.relevant[self.culprit] = True
        self.suspects = None
        if rates.suspects is not None:
            self.suspects = rng.random(count) < SUSPECT_SHARE
            self.suspects[self.culprit] = rng.random() < rates.suspects
        self.untestable = _untestable(self.graph, rates.skip, rng)
        self._misleads = rng.random(count) < rates.sticky
        self._no_undo = rng.random(count) >= rates.undo
        self._undone_mislead = rng.random(count) < rates.sticky

    def measure(self, commit: int, *, whole: bool) -> Reading | None:
        """The reading of a run of a commit; None when it cannot be tested."""
        self._build(commit, Kernel.COMMIT, commit)
        self.minutes += self.conditions.durations.setup_min
        if self.untestable[commit]:
            return None
        is_new = bool(self.graph.ancestors(commit)[self.culprit])
        whole = whole or not self.conditions.early_stop
        return self._run(commit, Kernel.COMMIT, is_new is not bool(self._misleads[commit]), whole)

    def measure_undone(self, commit: int, kernel: Kernel) -> Reading | None:
        """The reading of a run of the new end without a commit; None, at no cost, when it cannot be reverted.

        Nothing is picked.
        """
        if kernel is Kernel.PICKED or self._no_undo[commit]:
            return None
        self._build(commit, kernel, self.graph.tip)
        self.minutes += self.conditions.durations.setup_min
        is_new = commit != self.culprit
        return self._run(commit, kernel, is_new is not bool(self._undone_mislead[commit]), whole=True)

    def _run(self, commit: int, kernel: Kernel, shows_new: bool, whole: bool) -> Reading:
        wrong = self.conditions.new_as_old if shows_new else self.conditions.old_as_new
        shows_new = shows_new is not bool(self.rng.random() < wrong)
        figure = None
        if levels := self.conditions.levels:
            level = levels.new if shows_new else levels.old
            figure = level.centre + level.spread * float(self.rng.standard_t(4))
            shows_new = figure > (levels.old.centre + levels.new.centre) / 2
        durations = self.conditions.durations
        early = durations.early_new_min if shows_new else durations.early_old_min
        self.minutes += durations.whole_run_min if whole else early
        return Reading(commit, kernel, Verdict.NEW if shows_new else Verdict.OLD, figure, whole)

    def _build(self, commit: int, kernel: Kernel, tree: int) -> None:
        """A kernel that was built is kept; else the sources go from the last tree to this one."""
        if (commit, kernel) in self._built:
            return
        self._built.add((commit, kernel))
        apart = int(np.count_nonzero(self.graph.ancestors(tree) ^ self.graph.ancestors(self._tree)))
        share: float = (apart / len(self.graph)) ** BUILD_GROWTH
        least, most = self.conditions.durations.build_least_min, self.conditions.durations.build_most_min
        self.minutes += least + (most - least) * share
        self._tree = tree


def _untestable(graph: RangeGraph, share: float, rng: np.random.Generator) -> Mask:
    """Commits that do not build or boot, alone and in runs along a segment; the new end is testable."""
    count = len(graph)
    bad = np.zeros(count, dtype=np.bool_)
    wanted = share * count * SKIP_IN_RUNS_SHARE
    if wanted < SKIP_RUN_COMMITS and rng.random() >= wanted / SKIP_RUN_COMMITS:
        wanted = 0.0  # a short range seldom has a run at all; with one each time most of it would be untestable
    while np.count_nonzero(bad) < wanted:
        start = int(rng.integers(count))
        segment, place = graph.segment[start], graph.position[start]
        members = graph.order[graph.first[segment] : graph.first[segment + 1]]
        bad[members[place : place + int(rng.geometric(1 / SKIP_RUN_COMMITS))]] = True
    bad |= rng.random(count) < share * (1 - SKIP_IN_RUNS_SHARE)
    bad[graph.tip] = False
    return bad
