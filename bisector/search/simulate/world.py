"""A made-up truth to search in: one commit that made the change, and everything that can mislead."""

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from bisector.core.verdict import Verdict
from bisector.search.apart import LARGE, Rule, Told, told
from bisector.search.building import UNKNOWN_SHARE, Build, Builds, nearest_trees, share_of_both
from bisector.search.choice import Costs
from bisector.search.graph import Floats, Mask, RangeGraph
from bisector.search.levels import OF_HOSTS, Expected, Levels
from bisector.search.limits import levels_apart
from bisector.search.readings import OLD_END, Kernel, Reading, new_under
from bisector.search.simulate.durations import ALIKE_FACTOR, APART_FACTOR, Durations
from bisector.search.simulate.host import Host

# Trees that are so many commits apart differ in everything, as the ends of the range that the durations come from. Of
# others that differs which is the share of these commits to this power: a few commits touch headers that everything
# includes. With it plain git takes the 9.1 h of the simulations that the durations come from, where nothing that was
# built once is built again sooner.
ALL_APART_COMMITS = 14_565
BUILD_GROWTH = 0.25
SUSPECT_SHARE = 0.03
# Half of the untestable commits are in runs, broken until somebody fixes it, half of them alone.
SKIP_RUN_COMMITS = 30.0
SKIP_IN_RUNS_SHARE = 0.5
# A run is stopped early on the side of the worse level when it is clearly below this share of the line.
_CLEARLY_BELOW = 2 / 3
# Of two hosts one is as much as twice as fast as the other, or more, as often as not: the standard deviation.
_HOSTS_APART = math.log(2)
# A commit that is picked on the old end lacks what it builds upon as often as this; likelihood.py assumes the same.
_PICK_IN_VAIN = 0.3


@dataclass(frozen=True, slots=True)
class Conditions:
    """Rates between 0 and 1, of runs, of commits and, ``suspects``, of how often suspicion is right.

    ``relevant`` is the share of commits that can matter, ``undo`` that of commits which revert cleanly on the
    new end, ``pick`` that of those which pick cleanly on the old one. ``early_stop`` ends runs once their class is
    clear, after what ``durations`` say. Without ``effect``, the factor between the figures of the two sides, a run
    gives a bare verdict; with it a figure, whose logarithm has the standard deviation ``spread`` and grows by ``drift``
    an hour. With ``second_step`` two commits make the change, half of the effect's logarithm each; a new kernel has
    both. No trial is begun that would end later than ``budget_min`` after the first readings of the ends. Each of
    ``hosts`` measures both ends, or, with ``kept_levels`` of earlier runs, one. The first host measures with so many
    ``guests`` at the same time, and builds one kernel at a time. What is ``expected`` of levels is the search's. Ends
    that are less than a factor of 2 apart are read in turn by the ``rule``. With ``no_change`` the range changes no
    figure; with ``of_the_day`` it changes none either, and the ends differ all the same until the search begins.
    """

    old_as_new: float = 0.0
    new_as_old: float = 0.0
    sticky: float = 0.0
    skip: float = 0.0
    relevant: float = 1.0
    suspects: float | None = None
    undo: float = 1.0
    pick: float = 0.0
    early_stop: bool = True
    effect: float | None = None
    spread: float = 0.1
    drift: float = 0.0
    second_step: bool = False
    durations: Durations = field(default_factory=Durations)
    budget_min: float = math.inf
    hosts: int = 1
    guests: int = 1
    kept_levels: bool = False
    expected: Expected = OF_HOSTS
    rule: Rule = field(default_factory=lambda: Rule(least_effect=0.05, most_pairs=40))
    no_change: bool = False
    of_the_day: bool = False

    @property
    def changes_nothing(self) -> bool:
        """Whether no commit of the range changes a figure."""
        return self.no_change or self.of_the_day

    @property
    def shows_apart(self) -> bool:
        """Whether runs of the two sides are clear of each other before their end."""
        return self.effect is None or self.effect >= APART_FACTOR

    @property
    def ends_min(self) -> float:
        """What it takes to build the ends, each on a host of its own if there are two, and to measure them on all.

        Of two guests one measures the end that was built first while the other one is built.
        """
        durations, ends = self.durations, 1 if self.kept_levels else 2
        builds, trials = ends if self.hosts == 1 else 1, ends if self.guests == 1 else 1
        return builds * durations.build_most_min + trials * (durations.setup_min + durations.whole_run_min)

    @property
    def levels(self) -> Levels | None:
        """The levels of both sides, if runs give figures."""
        return None if self.effect is None else levels_apart(self.effect, self.spread)


@dataclass(slots=True, eq=False)
class World:
    """One truth; it answers trials and counts the minutes they take. Both ends have been read once, as ``start`` does.

    ``culprits`` are the commits that made a change, each with the probability that ``likely`` says, else any is as
    likely as another.
    """

    graph: RangeGraph
    conditions: Conditions
    rng: np.random.Generator
    likely: Floats | None = None
    culprits: tuple[int, ...] = ()
    here: Host = field(init=False)
    is_filled_short: bool = False
    relevant: Mask = field(init=False)
    suspects: Mask | None = field(init=False)
    untestable: Mask = field(init=False)
    _misleads: Mask = field(init=False)
    _no_undo: Mask = field(init=False)
    _undone_mislead: Mask = field(init=False)
    _no_pick: Mask = field(init=False)
    _picked_in_vain: Mask = field(init=False)
    _built: set[tuple[int, Kernel]] = field(default_factory=set)
    _between: set[tuple[int, Kernel]] = field(default_factory=set)
    _guests_built_min: float = 0.0
    _mirrored: bool = False
    _is_searching: bool = False

    def __post_init__(self) -> None:
        count, rates, rng = len(self.graph), self.conditions, self.rng
        self.culprits = tuple(self._drawn() for _ in range(1 + rates.second_step))
        self.relevant = rng.random(count) < rates.relevant
        self.relevant[list(self.culprits)] = True
        self.here = Host.first(self.graph, self._no_builds(), rates.durations.build_most_min)
        self.suspects = None
        if rates.suspects is not None:
            self.suspects = rng.random(count) < SUSPECT_SHARE
            self.suspects[list(self.culprits)] = rng.random() < rates.suspects
        self.untestable = _untestable(self.graph, rates.skip, rng)
        self._misleads = rng.random(count) < rates.sticky
        self._misleads[self.graph.tip] = False  # or there would be nothing to search for
        self._no_undo = rng.random(count) >= rates.undo
        self._undone_mislead = rng.random(count) < rates.sticky
        self._no_pick = rng.random(count) >= rates.pick
        self._picked_in_vain = rng.random(count) < _PICK_IN_VAIN
        self.here.ends = self._first_ends()

    def _drawn(self) -> int:
        count = len(self.graph)
        return int(self.rng.integers(count) if self.likely is None else self.rng.choice(count, p=self.likely))

    @property
    def minutes(self) -> float:
        """The clock of the host that is at work."""
        return self.here.minutes

    @minutes.setter
    def minutes(self, minutes: float) -> None:
        self.here.minutes = minutes

    def further_hosts(self) -> Iterator[Host]:
        """Those that have measured the ends, too; the second one built one of them."""
        first = self.here
        for number in range(1, self.conditions.hosts):
            idle_min = 0.0 if number == 1 else self.conditions.durations.build_most_min
            self.here = host = Host.further(self.graph, self._no_builds(), idle_min, str(number + 1))
            if self.conditions.levels is not None:
                host.offset = float(self.rng.normal(0.0, _HOSTS_APART))
                host.ends = self._first_ends()
            yield host
        self.here = first

    def further_guests(self) -> Iterator[Host]:
        """The other guests of the first host: what was measured on it is theirs, too."""
        for _ in range(1, self.conditions.guests):
            yield replace(self.here)

    def forget(self, commit: int, kernel: Kernel) -> None:
        """A build that was broken off."""
        self._built.discard((commit, kernel))

    def _no_builds(self) -> Builds:
        return Builds.none(self.graph, np.where(self.relevant, UNKNOWN_SHARE, 0.0))

    def is_right(self, commit: int) -> bool:
        """Whether a commit is the first new one: its kernel is, and those of its parents are not."""
        first = self._share(commit, Kernel.COMMIT) == 1 and not self.conditions.changes_nothing
        return first and all(self._share(parent, Kernel.COMMIT) < 1 for parent in self.graph.parents[commit])

    def measure_end(self, side: Verdict) -> Reading:
        """The reading of one more whole run of an end."""
        self.minutes += self.conditions.durations.setup_min
        commit = OLD_END if side is Verdict.OLD else self.graph.tip
        return self._run(commit, Kernel.COMMIT, misleads=False, whole=True)

    def measure_both_ways(self) -> tuple[Reading, ...]:
        """The readings of both ends with a short fill, too, where that is tried and there is time for it.

        It is harmless here.
        """
        conditions = self.conditions
        took_min = conditions.durations.both_ways_min
        if not conditions.early_stop or not 0 < took_min <= self.left_min:
            return ()
        if conditions.effect is None or conditions.effect >= ALIKE_FACTOR:
            took_min = conditions.durations.alike_min
        ends_min, self.is_filled_short = self.minutes + took_min, True
        ends = (OLD_END, self.graph.tip)
        readings = tuple(self._run(end, Kernel.COMMIT, misleads=False, whole=False) for end in ends)
        self.minutes = ends_min
        return readings

    @property
    def left_min(self) -> float:
        """How many minutes are left."""
        return self.conditions.budget_min - self.minutes

    def costs(self, usual: Costs) -> Costs:
        """The same with what the next build takes, were it of each commit; a kernel that was built needs none."""
        builds_min = self.here.builds.expected() if usual.builds_min is None else usual.builds_min
        if builds_min is None:
            return usual
        ends_min, builds_min = float(builds_min[self.graph.tip]), builds_min.copy()
        builds_min[[commit for commit, kernel in self._built if kernel is Kernel.COMMIT]] = 0.0
        return replace(usual, build_min=ends_min, builds_min=builds_min)

    def measure(self, commit: int, *, whole: bool, beside: Sequence[int] = ()) -> Reading | None:
        """The reading of a run of a commit; None when it cannot be tested.

        A whole one may end once it is clear of a whole run of one ``beside`` it that is on the other side.
        """
        self._build(commit, Kernel.COMMIT, commit)
        self.minutes += self.conditions.durations.setup_min
        if self.untestable[commit]:
            return None
        others = (OLD_END, *beside) if beside and not self.graph.parents[commit] else beside
        sides = frozenset(self.here.whole[one] for one in others if one in self.here.whole)
        return self._run(commit, Kernel.COMMIT, misleads=bool(self._misleads[commit]), whole=whole, beside=sides)

    def measure_undone(
        self, commit: int, kernel: Kernel, *, whole: bool = True, beside_end: bool = True
    ) -> Reading | None:
        """The reading of a run of an end without a commit, or with it; None, at no cost, when it cannot be had.

        A whole one may end once it is clear of the end's whole run, if that is asked for.
        """
        if (self._no_pick if kernel is Kernel.PICKED else self._no_undo)[commit]:
            return None
        self._build(commit, kernel, self.graph.tip)
        self.minutes += self.conditions.durations.setup_min
        end = Verdict.OLD if kernel is Kernel.PICKED else Verdict.NEW
        sides = frozenset({end} if beside_end else ())
        return self._run(commit, kernel, misleads=bool(self._undone_mislead[commit]), whole=whole, beside=sides)

    def _first_ends(self) -> tuple[Reading, Reading]:
        """Readings of both ends that differ as expected, without which no search begins; they make the line.

        A verdict on an end by itself says nothing: it is what the words mean.
        """
        keys = ((OLD_END, Kernel.COMMIT, Verdict.OLD), (self.graph.tip, Kernel.COMMIT, Verdict.NEW))
        levels, host = self.conditions.levels, self.here.name
        if levels is None:
            return Reading(*keys[0][:2], Verdict.MEASURED), Reading(*keys[1][:2], Verdict.MEASURED)
        while True:
            old, new = (self._figure(share) for share in (0.0, 1.0))
            if new > old or new > old - LARGE:
                break
        # Beside the new end's level, as the line of `start` is once a level between the ends is known
        self.here.line = old + (new - old) * (0.75 if self.conditions.second_step else 0.5)
        return Reading(*keys[0], old, host=host), Reading(*keys[1], new, host=host)

    def tell_ends(self, longest_min: float) -> Told | None:
        """Read both ends in turn until it is known whether they differ; None where the time is over before that.

        Where nothing changed and they differ by chance, the end that looks better is the new one.
        """
        host = self.here
        scores = [score for _, score in host.in_turn]
        if not scores or scores[1] - scores[0] >= LARGE:
            return Told.DIFFER
        while (found := told(host.in_turn, self.conditions.rule)) is None:
            if 2 * longest_min > self.left_min:
                return None
            pair = self.rng.permutation([Verdict.OLD, Verdict.NEW])
            host.ends += tuple(self.measure_end(Verdict(side)) for side in pair)
        word, seen = found
        if self.conditions.no_change and seen.mean < 0:
            host.ends = tuple(replace(one, score=-(one.score or 0.0)) for one in host.ends)
            host.offset, self._mirrored = -host.offset, not self._mirrored
        host.line = fmean(score for _, score in host.in_turn)
        return word

    def _share(self, commit: int, kernel: Kernel) -> float:
        """The share of all changes that a kernel has."""
        if kernel is Kernel.PICKED and self._picked_in_vain[commit]:
            return 0.0
        return float(new_under(self.graph, commit, kernel, np.array(self.culprits)).mean())

    def _run(
        self, commit: int, kernel: Kernel, *, misleads: bool, whole: bool, beside: Set[Verdict] = frozenset()
    ) -> Reading:
        """The reading of a run that is held against whole ones, if there are any, of the sides ``beside``."""
        share = self._share(commit, kernel)
        if misleads:
            share = 1.0 - share
        is_new = share == 1
        wrong = self.conditions.new_as_old if is_new else self.conditions.old_as_new
        if self.rng.random() < wrong:
            is_new = not is_new
            share = float(is_new)
        figure, hour, is_clear = None, self.minutes / 60, True
        if self.conditions.levels is not None:
            figure = self._figure(share)
            is_new = figure > self.here.line
            is_clear = is_new or figure < self.here.line + math.log(_CLEARLY_BELOW)
        verdict = Verdict.NEW if is_new else Verdict.OLD
        took_min = self._runs_min(verdict, whole=whole, is_clear=is_clear, beside=beside)
        self.minutes += took_min
        is_whole, host = took_min >= self.conditions.durations.whole_run_min, self.here.name
        if is_whole and kernel is Kernel.COMMIT:
            self.here.whole[commit] = verdict
        if not is_whole or figure is None:
            return Reading(commit, kernel, verdict, full=whole or is_whole, hour=hour, host=host)
        if 0 < share < 1:  # a level between: once it says nothing, then its side counts
            verdict = verdict if (commit, kernel) in self._between else Verdict.MEASURED
            self._between.add((commit, kernel))
            return Reading(commit, kernel, verdict, hour=hour, host=host)
        return Reading(commit, kernel, verdict, figure, hour=hour, host=host)

    def _runs_min(self, verdict: Verdict, *, whole: bool, is_clear: bool, beside: Set[Verdict]) -> float:
        """What the runs of a trial take that shows this side, clearly or not."""
        rates, durations = self.conditions, self.conditions.durations
        if whole or not rates.early_stop:
            is_apart = rates.early_stop and rates.shows_apart and bool(beside - {verdict})
            return durations.apart_min if is_apart else durations.whole_run_min
        if not is_clear:
            return durations.unclear_min
        return durations.early_new_min if verdict is Verdict.NEW else durations.early_old_min

    def _figure(self, share: float) -> float:
        """The score of a run, on the host that is at work, of a kernel that has this share of the changes."""
        if (levels := self.conditions.levels) is None:
            raise RuntimeError("no figure in a world of verdicts")
        if self.conditions.no_change or (self.conditions.of_the_day and self._is_searching):
            share = 0.0
        centre = levels.old.centre + share * (levels.new.centre - levels.old.centre)
        drift = self.conditions.drift * self.minutes / 60 * (-1 if self._mirrored else 1)
        return self.here.offset + centre + levels.new.spread * float(self.rng.standard_t(4)) + drift

    def _build(self, commit: int, kernel: Kernel, tree: int) -> None:
        """A kernel that was built is kept; else the sources go from the last tree to this one.

        What differs is made again, and compiled unless a tree had it that was built before.
        """
        self._is_searching = True
        if (commit, kernel) in self._built:
            return
        self._built.add((commit, kernel))
        has, durations, here = self.graph.ancestors(tree), self.conditions.durations, self.here
        made = compiled = 1.0
        if here.tree is not None:
            made = self._apart(has ^ here.tree)
            apart = tuple(nearest_trees(has, (one.has for one in here.builds.made), self._apart))
            each = [self._apart(commits) for commits in apart]
            common = self._apart(apart[0] & apart[-1])
            compiled = min(made, float(share_of_both(each[0], each[-1], common)))
        work = compiled + durations.cached_share * (made - compiled)
        took_min = durations.build_least_min + (durations.build_most_min - durations.build_least_min) * work
        if self.conditions.guests > 1:
            here.wait(max(here.minutes, self._guests_built_min))
        here.minutes += max(0.0, took_min - here.ahead_min)
        here.ahead_min, here.built_min = 0.0, here.minutes
        self._guests_built_min = here.built_min
        here.builds, here.tree = here.builds.after(Build(has, took_min)), has

    def _apart(self, commits: Mask) -> float:
        """The share of a build that such commits make again."""
        return float(min(1.0, np.count_nonzero(commits) / ALL_APART_COMMITS) ** BUILD_GROWTH)


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
