"""The simulated world of a search: the commit that made the change, the noise, the hosts, and how long trials take.

The minutes without another source are those of a bisection by hand of a dm-cache regression on 2017's kernels: two fio
runs of 15 minutes for each kernel, an incremental build of 2 to 12 minutes.
"""

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from bisector.core.verdict import Verdict
from bisector.search.choice import Costs, short_fill_pays
from bisector.search.effect import LARGE, InTurn, PairsConclusion, PairsRule, told
from bisector.search.graph import OLD_END, Floats, Kernel, Mask, RangeGraph, Reading, new_under
from bisector.search.likelihood import PICK_IN_VAIN, HostScale
from bisector.search.noise import OF_HOSTS, Expected, Levels, levels_apart

SETUP_MIN = 3.0  # boot, storage stack, files
RUN_MIN = 15.0
WHOLE_RUN_MIN = 2 * RUN_MIN  # the first fills the cache, the second counts
# When a run of 15 min that fills an lvmcache is expected to end, and by how much it is shortened at most: expected_s
# and most_saved_s of FillRule in bisector.analysis.early_stop.
SHORT_FILL_MIN = 3.0
MOST_SAVED_MIN = 13.0
# The judged run is stopped as soon as its side is clear: by the rule in use a fixed kernel's run after 4.4 to 8.4 min
# and a broken one's after 4.0 to 10.0, depending on how fast a fixed kernel gets up to speed; 6 min on average.
CLEAR_MIN = 6.0
# A run that the answer rests on goes on until it is also clear of its counterpart's whole run: that is at half of the
# run on average if one kernel is at least twice as fast as the other (tests/analysis/test_paired.py).
APART_MIN = 8.0
APART_FACTOR = 2.0
# A run of an end after a short fill goes on until it is like that end's whole run, if the ends are at least 2.5 times
# apart: that is at 45 % of the run on average (the same tests).
ALIKE_MIN = 7.0
ALIKE_FACTOR = 2.5
EARLY_MIN = SHORT_FILL_MIN + CLEAR_MIN
# An incremental build from one tree to another.
BUILD_LEAST_MIN = 2.0
BUILD_MOST_MIN = 12.0
# The time for an object that ccache has, as a share of the time to compile it: 17 s for one file of a small kernel, 49
# s for all files with a full ccache and 236 s with an empty one (docs/kernels.md).
CACHED_SHARE = (49 - 17) / (236 - 17)


@dataclass(frozen=True, slots=True)
class Durations:
    """The parts of a trial in minutes: the shortest and the longest build, the setup before the runs, the runs.

    ``apart_min`` is for the runs of a trial that the answer rests on: a whole fill, and a run that is stopped once it
    is clear of its counterpart's run. ``unclear_min`` is for a trial whose run may be stopped early and is not.
    ``both_ways_min`` is the time to measure both ends with a short fill, too, ``alike_min`` the same if their runs end
    once they are like the whole ones.
    """

    build_least_min: float = BUILD_LEAST_MIN
    build_most_min: float = BUILD_MOST_MIN
    setup_min: float = SETUP_MIN
    whole_run_min: float = WHOLE_RUN_MIN
    early_old_min: float = EARLY_MIN
    early_new_min: float = EARLY_MIN
    unclear_min: float = SHORT_FILL_MIN + RUN_MIN
    apart_min: float = RUN_MIN + APART_MIN
    both_ways_min: float = 2 * (SETUP_MIN + SHORT_FILL_MIN + RUN_MIN)
    alike_min: float = 2 * (SETUP_MIN + SHORT_FILL_MIN + ALIKE_MIN)


_AFTER_A_WHOLE_FILL_MIN = RUN_MIN + CLEAR_MIN
WHOLE_FILLS = Durations(
    early_old_min=_AFTER_A_WHOLE_FILL_MIN,
    early_new_min=_AFTER_A_WHOLE_FILL_MIN,
    unclear_min=WHOLE_RUN_MIN,
    both_ways_min=0.0,
)


def usual_durations(commits: float, left_min: float = math.inf) -> Durations:
    """The durations of ``start`` for a range and a budget: with short fills if they pay.

    ``commits`` is the number of commits that can matter, ``left_min`` the time that is left.
    """
    pays = short_fill_pays(commits, MOST_SAVED_MIN, SETUP_MIN + WHOLE_RUN_MIN, left_min)
    return Durations() if pays else WHOLE_FILLS


@dataclass(slots=True, eq=False)
class SimulatedHost:
    """A host that has measured both ends by whole runs.

    ``minutes`` is its clock; it was idle for ``waited_min`` of them. ``trees`` has the commits of each tree that it
    built, ``builds_min`` the time of each build. ``built_min`` is when the last build ended, ``ahead_min`` how much of
    the next build is already done. ``whole`` has the sides of the whole runs of commits. All figures of the host are
    exp(``offset``) times as large as those of the first host. ``ends`` are readings of both ends, and ``line`` is the
    score of the threshold between them.
    """

    trees: tuple[Mask, ...]
    builds_min: tuple[float, ...]
    whole: dict[int, Verdict]
    minutes: float = 0.0
    waited_min: float = 0.0
    built_min: float = 0.0
    ahead_min: float = 0.0
    name: str = ""
    offset: float = 0.0
    ends: tuple[Reading, ...] = ()
    line: float = 0.0

    @property
    def scale(self) -> HostScale | None:
        """The scale of the host's figures; None without figures of both ends."""
        rows = [[score for is_new, score in self.in_turn if is_new is new] for new in (False, True)]
        return HostScale((fmean(rows[0]), fmean(rows[1])), self.line) if all(rows) else None

    @property
    def in_turn(self) -> InTurn:
        """The figures of both ends, in the order of measuring: whether the end is the new one, and the score."""
        return [(one.commit != OLD_END, one.score) for one in self.ends if one.score is not None]

    def wait(self, until_min: float) -> None:
        """Advance the clock without work."""
        self.waited_min += until_min - self.minutes
        self.minutes = until_min


# Two trees that are this many commits apart differ in every file, like the ends of the range that the durations come
# from. For other trees the share of files that differ is the share of these commits to the power BUILD_GROWTH: a few
# commits touch headers that everything includes. With this power, plain git takes the 9.1 h of the simulations that the
# durations come from, in which nothing that was built once is built again sooner.
ALL_APART_COMMITS = 14_565
BUILD_GROWTH = 0.25
_LEAST_SHARE = 0.01  # avoids a division by zero
SUSPECT_SHARE = 0.03
# Half of the untestable commits are in runs, broken until somebody fixes them; half of them are single.
SKIP_RUN_COMMITS = 30.0
SKIP_IN_RUNS_SHARE = 0.5
# A run is stopped early on the side of the worse level if it is clearly below this share of the threshold.
_CLEARLY_BELOW = 2 / 3
# The standard deviation of the hosts' speed on the log scale: a factor of 2.
_HOSTS_APART = math.log(2)


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a simulation: rates between 0 and 1, the noise, hosts and durations.

    - ``old_as_new``, ``new_as_old``, ``sticky``, ``skip``: rates of misleading runs of either side, of kernels that
      mislead as a whole, and of commits that cannot be tested.
    - ``relevant``: the share of commits that can matter. ``suspects``: how often suspicion is right. ``undo`` and
      ``pick``: the shares of commits that revert cleanly on the new end, and pick cleanly on the old end.
    - ``early_stop``: runs end once their side is clear, after the times of ``durations``.
    - ``effect``: the factor between the figures of the two sides; without it, a run gives only a verdict. The logarithm
      of a figure has the standard deviation ``spread`` and grows by ``drift`` per hour.
    - ``second_step``: two commits make the change, half of the effect's logarithm each; a new kernel has both.
    - ``budget_min``: no trial is begun that would end later than this after the first readings of the ends.
    - ``hosts``: each host measures both ends, or only one with ``kept_levels`` of earlier runs. The first host measures
      with so many ``guests`` at the same time, and builds one kernel at a time.
    - ``expected``: what the search expects of levels. ``rule``: how ends that are less than a factor of 2 apart are
      read in turn.
    - ``no_change``: the range changes no figure. ``of_the_day``: it changes none either, but the ends differ until the
      search begins.
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
    rule: PairsRule = field(default_factory=lambda: PairsRule(least_effect=0.05, most_pairs=40))
    no_change: bool = False
    of_the_day: bool = False

    @property
    def changes_nothing(self) -> bool:
        """Whether no commit of the range changes a figure."""
        return self.no_change or self.of_the_day

    @property
    def ends_min(self) -> float:
        """Minutes to build the ends, each on its own host if there are two hosts, and to measure them on all hosts.

        If there are two guests, one measures the end that was built first while the other end is built.
        """
        durations, ends = self.durations, 1 if self.kept_levels else 2
        builds, trials = ends if self.hosts == 1 else 1, ends if self.guests == 1 else 1
        return builds * durations.build_most_min + trials * (durations.setup_min + durations.whole_run_min)

    @property
    def levels(self) -> Levels | None:
        """The levels of both sides, if runs give figures."""
        return None if self.effect is None else levels_apart(self.effect, self.spread)


class World:
    """A simulated truth that answers trials and counts their minutes. Both ends have been read once, as in ``start``.

    ``culprits`` are the commits that made a change, drawn with the probabilities ``likely``, by default all equal.
    """

    def __init__(
        self, graph: RangeGraph, conditions: Conditions, rng: np.random.Generator, likely: Floats | None = None
    ) -> None:
        self.graph, self.conditions, self.rng = graph, conditions, rng
        count, rates = len(graph), conditions
        drawn = (
            rng.integers(count) if likely is None else rng.choice(count, p=likely) for _ in range(1 + rates.second_step)
        )
        self.culprits = tuple(map(int, drawn))
        self.relevant: Mask = rng.random(count) < rates.relevant
        self.relevant[list(self.culprits)] = True
        has_all, build_min = self.graph.ancestors(self.graph.tip), rates.durations.build_most_min
        self._sides = {OLD_END: Verdict.OLD, self.graph.tip: Verdict.NEW}
        # The host built both ends, the new one last
        self.here = SimulatedHost((~has_all, has_all), (build_min, build_min), dict(self._sides))
        self.suspects: Mask | None = None
        if rates.suspects is not None:
            self.suspects = rng.random(count) < SUSPECT_SHARE
            self.suspects[list(self.culprits)] = rng.random() < rates.suspects
        # Commits that do not build or boot, single ones and runs along a segment; the new end is testable
        self.untestable = np.zeros(count, dtype=np.bool_)
        in_runs = rates.skip * count * SKIP_IN_RUNS_SHARE
        if in_runs < SKIP_RUN_COMMITS and rng.random() >= in_runs / SKIP_RUN_COMMITS:
            in_runs = 0.0  # a short range seldom has a run at all; if it always had one, most of it would be untestable
        while np.count_nonzero(self.untestable) < in_runs:
            start = int(rng.integers(count))
            members, place = self.graph.members(start), self.graph.position[start]
            self.untestable[members[place : place + int(rng.geometric(1 / SKIP_RUN_COMMITS))]] = True
        self.untestable |= rng.random(count) < rates.skip * (1 - SKIP_IN_RUNS_SHARE)
        self.untestable[self.graph.tip] = False
        self._misleads = rng.random(count) < rates.sticky
        self._misleads[self.graph.tip] = False  # or there would be nothing to search for
        self._no_undo = rng.random(count) >= rates.undo
        self._undone_mislead = rng.random(count) < rates.sticky
        self._no_pick = rng.random(count) >= rates.pick
        self._picked_in_vain = rng.random(count) < PICK_IN_VAIN
        self.built, self._between = (set[tuple[int, Kernel]]() for _ in range(2))
        self._guests_built_min = 0.0
        self._mirrored = self._is_searching = self.is_filled_short = False
        self.here.ends = self._first_ends()

    @property
    def minutes(self) -> float:
        """The clock of the host that is at work, in minutes."""
        return self.here.minutes

    def further_hosts(self) -> Iterator[SimulatedHost]:
        """Yield the hosts after the first, which have measured the ends, too; the second one built one of them."""
        first = self.here
        for number in range(1, self.conditions.hosts):
            idle_min = 0.0 if number == 1 else self.conditions.durations.build_most_min
            # The host was given the kernels of both ends, and began its first build while others built these
            self.here = host = SimulatedHost((), (), dict(self._sides), ahead_min=idle_min, name=str(number + 1))
            if self.conditions.levels is not None:
                host.offset = float(self.rng.normal(0.0, _HOSTS_APART))
                host.ends = self._first_ends()
            yield host
        self.here = first

    def further_guests(self) -> Iterator[SimulatedHost]:
        """Yield the other guests of the first host, to which all that was measured on it belongs, too."""
        for _ in range(1, self.conditions.guests):
            yield replace(self.here)

    def is_right(self, commit: int) -> bool:
        """Whether a commit is the first new one: its kernel has all changes, those of its parents do not."""
        first = self._share(commit, Kernel.COMMIT) == 1 and not self.conditions.changes_nothing
        return first and all(self._share(parent, Kernel.COMMIT) < 1 for parent in self.graph.parents[commit])

    def measure_end(self, side: Verdict) -> Reading:
        """Measure an end once more, in a whole run."""
        self.here.minutes += self.conditions.durations.setup_min
        commit = OLD_END if side is Verdict.OLD else self.graph.tip
        return self._run(commit, Kernel.COMMIT, misleads=False, whole=True)

    def measure_both_ways(self) -> tuple[Reading, ...]:
        """Measure both ends with a short fill, too, if that is part of the conditions and there is time for it.

        A short fill does not change the figures here.
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
        self.here.minutes = ends_min
        return readings

    @property
    def left_min(self) -> float:
        """The minutes left of the budget."""
        return self.conditions.budget_min - self.minutes

    def costs(self, usual: Costs) -> Costs:
        """Return the costs with the build times of this host so far; a kernel that was built needs no build."""
        build_min = fmean(self.here.builds_min) if self.here.builds_min else usual.build_min
        builds_min = np.full(len(self.graph), build_min)
        builds_min[[commit for commit, kernel in self.built if kernel is Kernel.COMMIT]] = 0.0
        spare = max(self.here.builds_min, default=build_min) / build_min
        return replace(usual, build_min=build_min, builds_min=builds_min, build_spare=spare)

    def measure(self, commit: int, *, whole: bool, beside: Sequence[int] = ()) -> Reading | None:
        """Measure a commit; None if it cannot be tested.

        A whole run may end once it is clear of a whole run, on the other side, of a commit of ``beside``.
        """
        self._build(commit, Kernel.COMMIT, commit)
        self.here.minutes += self.conditions.durations.setup_min
        if self.untestable[commit]:
            return None
        others = (OLD_END, *beside) if beside and not self.graph.parents[commit] else beside
        sides = frozenset(self.here.whole[one] for one in others if one in self.here.whole)
        return self._run(commit, Kernel.COMMIT, misleads=bool(self._misleads[commit]), whole=whole, beside=sides)

    def measure_undone(
        self, commit: int, kernel: Kernel, *, whole: bool = True, beside_end: bool = True
    ) -> Reading | None:
        """Measure an end without a commit, or with it; None, at no cost, if it cannot be built.

        A whole run may end once it is clear of the end's whole run, if ``beside_end``.
        """
        if (self._no_pick if kernel is Kernel.PICKED else self._no_undo)[commit]:
            return None
        self._build(commit, kernel, self.graph.tip)
        self.here.minutes += self.conditions.durations.setup_min
        end = Verdict.OLD if kernel is Kernel.PICKED else Verdict.NEW
        sides = frozenset({end} if beside_end else ())
        return self._run(commit, kernel, misleads=bool(self._undone_mislead[commit]), whole=whole, beside=sides)

    def _first_ends(self) -> tuple[Reading, Reading]:
        """Read both ends until they differ as expected, without which no search begins, and set the threshold.

        Without figures, a verdict on an end says nothing: the ends define what the verdicts mean.
        """
        old_end, new_end = (OLD_END, Kernel.COMMIT), (self.graph.tip, Kernel.COMMIT)
        if self.conditions.levels is None:
            return Reading(*old_end, Verdict.MEASURED), Reading(*new_end, Verdict.MEASURED)
        while True:
            old, new = (self._figure(share) for share in (0.0, 1.0))
            if new > old or new > old - LARGE:
                break
        # If there is a level between the ends, the threshold is nearer to the new end, as that of `start` is once the
        # level is known
        self.here.line, host = old + (new - old) * (0.75 if self.conditions.second_step else 0.5), self.here.name
        return Reading(*old_end, Verdict.OLD, old, host=host), Reading(*new_end, Verdict.NEW, new, host=host)

    def tell_ends(self, longest_min: float) -> PairsConclusion | None:
        """Read both ends in turn until it is known whether they differ; None if the time is over before that.

        If nothing changed and the ends differ by chance, the end that looks better is taken to be the new one.
        """
        host = self.here
        scores = [score for _, score in host.in_turn]
        if not scores or scores[1] - scores[0] >= LARGE:
            return PairsConclusion.DIFFER
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
        """The share of all changes that a kernel contains."""
        if kernel is Kernel.PICKED and self._picked_in_vain[commit]:
            return 0.0
        return float(new_under(self.graph, commit, kernel, np.array(self.culprits)).mean())

    def _run(
        self, commit: int, kernel: Kernel, *, misleads: bool, whole: bool, beside: Set[Verdict] = frozenset()
    ) -> Reading:
        """Run a kernel; a whole run ends early if it can be compared with a whole run of another side in ``beside``."""
        rates, durations, here = self.conditions, self.conditions.durations, self.here
        share = self._share(commit, kernel)
        if misleads:
            share = 1.0 - share
        is_new, is_clear, figure, hour = share == 1, True, None, self.minutes / 60
        if self.rng.random() < (rates.new_as_old if is_new else rates.old_as_new):
            is_new = not is_new
            share = float(is_new)
        if rates.levels is not None:
            figure = self._figure(share)
            is_new = figure > here.line
            is_clear = is_new or figure < here.line + math.log(_CLEARLY_BELOW)
        verdict = Verdict.NEW if is_new else Verdict.OLD
        took_min = durations.early_new_min if is_new else durations.early_old_min
        if whole or not rates.early_stop:
            shows_apart = rates.effect is None or rates.effect >= APART_FACTOR
            is_apart = rates.early_stop and shows_apart and bool(beside - {verdict})
            took_min = durations.apart_min if is_apart else durations.whole_run_min
        elif not is_clear:
            took_min = durations.unclear_min
        here.minutes += took_min
        is_whole = took_min >= durations.whole_run_min
        if is_whole and kernel is Kernel.COMMIT:
            here.whole[commit] = verdict
        if not is_whole or figure is None:
            return Reading(commit, kernel, verdict, full=whole or is_whole, hour=hour, host=here.name)
        if 0 < share < 1:  # a level in between: the first reading says nothing, later ones count by their side
            figure, verdict = None, verdict if (commit, kernel) in self._between else Verdict.MEASURED
            self._between.add((commit, kernel))
        return Reading(commit, kernel, verdict, figure, hour=hour, host=here.name)

    def _figure(self, share: float) -> float:
        """The score of a run, on the host that is at work, of a kernel with this share of the changes."""
        if (levels := self.conditions.levels) is None:
            raise RuntimeError("no figure in a world of verdicts")
        if self.conditions.no_change or (self.conditions.of_the_day and self._is_searching):
            share = 0.0
        centre = levels.old.centre + share * (levels.new.centre - levels.old.centre)
        drift = self.conditions.drift * self.minutes / 60 * (-1 if self._mirrored else 1)
        return self.here.offset + centre + levels.new.spread * float(self.rng.standard_t(4)) + drift

    def _build(self, commit: int, kernel: Kernel, tree: int) -> None:
        """Build a kernel, unless it was built before; the sources change from the last tree to this one.

        Objects that differ are made again; they are compiled unless an earlier tree had them.
        """
        self._is_searching = True
        if (commit, kernel) in self.built:
            return
        self.built.add((commit, kernel))
        has, durations, here = self.graph.ancestors(tree), self.conditions.durations, self.here
        made = compiled = 1.0
        if here.trees:
            made = self._apart(has ^ here.trees[-1])
            # ccache lacks what differs from every tree that was built before. Two of these trees are considered: the
            # nearest one of older commits, and the nearest other one. As far as the same commits separate both from
            # this tree, both lack the same objects; otherwise what they lack is independent.
            sides: tuple[list[Mask], list[Mask]] = ([], [])
            for built in here.trees:
                sides[bool((built & ~has).any())].append(built ^ has)
            nearest = [min(side, key=self._apart) for side in sides if side]
            one, other, common = map(self._apart, (nearest[0], nearest[-1], nearest[0] & nearest[-1]))
            compiled = min(made, common + (one - common) * (other - common) / max(1 - common, _LEAST_SHARE))
        work = compiled + CACHED_SHARE * (made - compiled)
        took_min = durations.build_least_min + (durations.build_most_min - durations.build_least_min) * work
        if self.conditions.guests > 1:
            here.wait(max(here.minutes, self._guests_built_min))
        here.minutes += max(0.0, took_min - here.ahead_min)
        here.ahead_min, here.built_min = 0.0, here.minutes
        self._guests_built_min = here.built_min
        here.trees, here.builds_min = (*here.trees, has), (*here.builds_min, took_min)

    def _apart(self, commits: Mask) -> float:
        return float(min(1.0, np.count_nonzero(commits) / ALL_APART_COMMITS) ** BUILD_GROWTH)
