"""Simulate many searches: how often the answer is right, whether the search knows, and what it costs.

A search follows the posterior (:mod:`bisector.search.step`) or works like plain ``git bisect``, and has the trials that
``start`` has. :func:`next_commit` gives the commit that plain ``git bisect`` would try next, by the rules of git's
bisect.c (2.39): the best commit has the largest min(X, N - X); merges are considered first, and git steps away from a
skipped commit.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np

from bisector.core.verdict import Strategy, Verdict
from bisector.search.choice import Costs, SearchProblem, end_to_read
from bisector.search.effect import PairsConclusion
from bisector.search.graph import OLD_END, Kernel, Mask, RangeGraph, Reading, SearchFacts
from bisector.search.likelihood import Weighing
from bisector.search.noise import Rates
from bisector.search.posterior import prior
from bisector.search.simulate.world import Conditions, SimulatedHost, World
from bisector.search.step import (
    ChangedEndToRead,
    CommitToRead,
    Hold,
    Search,
    SearchAnswer,
    SearchEnding,
    believe,
    decide_from,
    figures_tell,
    pointless,
)

_PRN_MODULO = 32768
_HALF_IS_NEAR = 1024


# What plain git bisect tries next


def next_commit(graph: RangeGraph, facts: SearchFacts, names: Sequence[str] | None = None) -> int | tuple[int, ...]:
    """Return the commit that git bisect would try, or, as a tuple, the candidates that are left at its end.

    They are one, or, because of skips, several, of which the last is known to be new. ``names`` are the hashes, which
    break ties as they do in git.
    The last reading of a commit counts, as in git. Raises :class:`ValueError` for a new commit that is an ancestor of
    an old one: git does not go on from there.
    """
    candidates, new = _candidates(graph, facts)
    left = [int(commit) for commit in np.flatnonzero(candidates)]
    if len(left) == 1:
        return (left[0],)
    counts, total = np.rint(graph.mass(candidates.astype(np.float64))).astype(np.intp), len(left)
    halves = {commit: min(int(counts[commit]), total - int(counts[commit])) for commit in left}
    best: int | None
    if skipped := facts.untestable:  # best_bisection_sorted(): git ranks all candidates if any is skipped
        ranked = sorted(left, key=lambda commit: (-halves[commit], names[commit] if names else commit))
        testable = [commit for commit in ranked if commit not in skipped]
        best = testable[0] if testable else None
        if testable and ranked[0] in skipped:  # managed_skipped()
            index = _step_away(len(testable))
            best = testable[index if testable[index] != new else max(index - 1, 0)]
    else:  # do_find_bisection(): the first one near the half, merges before others; else the best
        inner = {commit: sum(bool(candidates[parent]) for parent in graph.parents[commit]) for commit in left}
        tried = sorted((commit for commit in left if inner[commit]), key=lambda commit: inner[commit] == 1)
        off = ((commit, total - 2 * halves[commit]) for commit in tried)
        near = (commit for commit, apart in off if apart <= 1 or apart < total // _HALF_IS_NEAR)
        best = next(near, max(left, key=halves.__getitem__))
    if best is None or best == new:
        return candidates_left(graph, facts)
    return best


def candidates_left(graph: RangeGraph, facts: SearchFacts) -> tuple[int, ...]:
    """Return the candidates that git has not ruled out so far."""
    candidates, new = _candidates(graph, facts)
    return (*(int(commit) for commit in np.flatnonzero(candidates) if commit != new), new)


def _candidates(graph: RangeGraph, facts: SearchFacts) -> tuple[Mask, int]:
    new = graph.tip
    olds = np.zeros(len(graph), dtype=np.bool_)
    for reading in facts.readings:
        if reading.kernel is not Kernel.COMMIT or reading.commit == OLD_END:
            continue
        if reading.verdict is Verdict.NEW:
            new = reading.commit  # refs/bisect/NEW is one ref; the last wins
        else:
            olds |= graph.ancestors(reading.commit)
    candidates = graph.ancestors(new) & ~olds
    if not candidates[new]:
        raise ValueError(f"commit {new} is new and an ancestor of an old one")
    return candidates, new


def _step_away(count: int) -> int:
    """``skip_away()``: an index below ``count``, in C's integers; its generator is seeded by the count."""
    prn = (count * 1103515245 + 12345) % 2**32 // 65536 % _PRN_MODULO
    return count * prn // _PRN_MODULO * _root(prn) // _root(_PRN_MODULO)


def _root(value: int) -> int:
    """``sqrti()``: Newton's method in single precision, which ends early enough to be off by one."""
    if value == 0:
        return 0
    x, enough = np.float32(value), 0.5
    while True:
        y = np.float32((x + np.float32(value) / x) / np.float32(2))
        step, x = abs(y - x), y
        if step < enough:
            return int(x)


# Searches


@dataclass(frozen=True, slots=True)
class _Flight:
    """The trial that a host is busy with, until its clock says that it ended; ``reading`` is None if it gives none.

    ``before`` has the trees that the host had built by then and their build times; ``built_min`` is when the kernel is
    built.
    """

    step: CommitToRead | ChangedEndToRead
    reading: Reading | None
    before: tuple[tuple[Mask, ...], tuple[float, ...]]
    built_min: float


@dataclass(slots=True, eq=False)
class SimulatedSearch:
    """A simulated search that goes on from ``facts``; each host is given work as soon as it is idle.

    ``steps_ms`` has the time that each decision took, in milliseconds.
    """

    world: World
    problem: SearchProblem
    search: Search
    facts: SearchFacts
    hosts: Sequence[SimulatedHost]
    steps_ms: list[float] = field(default_factory=list)
    _flights: dict[int, _Flight] = field(default_factory=dict)

    def run(self) -> SearchAnswer:
        """Search until there is an answer; trials in flight are then aborted."""
        world, hosts, flights = self.world, self.hosts, self._flights
        while True:
            number = min(range(len(hosts)), key=lambda one: (hosts[one].minutes, one not in flights))
            world.here = host = hosts[number]
            landed = flights.pop(number, None)
            if landed is not None and landed.reading is not None:
                self.facts = self.facts.with_reading(landed.reading)
            elif landed is not None and isinstance(landed.step, ChangedEndToRead):
                self.facts = self.facts.with_failed(*landed.step.of)
            elif landed is not None:
                self.facts = self.facts.with_skip(landed.step.commit)
            step = self._decided(told_more=landed is not None)
            before, reading = (host.trees, host.builds_min), None
            match step:
                case SearchAnswer():
                    for other, one in enumerate(hosts):  # no host works or waits longer than until the answer
                        over_min = max(0.0, one.minutes - host.minutes)
                        one.minutes -= over_min
                        if other not in flights:
                            one.waited_min -= over_min
                    return step
                case Hold():
                    host.wait(min(hosts[other].minutes for other in flights))
                    continue
                case ChangedEndToRead(commit, kernel, whole, beside_end):
                    reading = world.measure_undone(commit, kernel, whole=whole, beside_end=beside_end)
                case CommitToRead(commit) if commit in (OLD_END, self.problem.graph.tip):
                    reading = world.measure_end(Verdict.OLD if commit == OLD_END else Verdict.NEW)
                case CommitToRead(commit, whole):
                    reading = world.measure(commit, whole=whole, beside=step.beside)
            flights[number] = _Flight(step, reading, before, host.built_min)

    def _decided(self, *, told_more: bool) -> SearchAnswer | Hold | CommitToRead | ChangedEndToRead:
        """Return the next step, after cancelling the trials that new readings made pointless.

        Trials are only cancelled after a new reading: a cancelled trial may be chosen again, for its expected time.
        """
        start = time.perf_counter()
        world, minutes = self.world, self.world.minutes
        now = replace(self.search, costs=world.costs(self.search.costs), left_min=world.left_min)
        belief = believe(self.problem, self.facts, now)
        while True:
            known = replace(self.facts, in_flight=tuple(one.step.of for one in self._flights.values()))
            left_min = {one.step.of: self.hosts[number].minutes - minutes for number, one in self._flights.items()}
            key = pointless(self.problem, known, now, belief, left_min) if told_more and left_min else None
            if key is None:
                break
            self._cancel(next(number for number, one in self._flights.items() if one.step.of == key), minutes)
        step = decide_from(self.problem, known, now, belief)
        self.steps_ms.append((time.perf_counter() - start) * 1000)
        return step

    def _cancel(self, number: int, minutes: float) -> None:
        """Make the host idle at once; a kernel whose build has not ended counts as not built."""
        host, flight = self.hosts[number], self._flights.pop(number)
        if minutes < flight.built_min:
            host.trees, host.builds_min = flight.before
            self.world.built.discard(flight.step.of)
        host.minutes = minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedResult:
    """The result of one search: whether its first answer was right and its candidates held the truth, and what it took.

    ``ends_again`` counts the readings of the ends after their first ones, except those with a short fill; ``both_ways``
    tells whether there were such. ``told`` is what the ends were told to be, None if the time did not suffice.
    """

    right: bool
    in_set: bool = False
    set_size: int
    claimed: float = 0.0
    evaluations: int
    ends_again: int = 0
    both_ways: bool = False
    skips: int = 0
    minutes: float
    wall_min: float
    steps_ms: tuple[float, ...] = (0.0,)
    ending: SearchEnding
    out_of_time: bool = False
    told: PairsConclusion | None = PairsConclusion.DIFFER


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of all results: shares, means and ninetieth percentiles."""

    success_rate: Annotated[float, "share of the searches whose first answer is right"]
    in_set_rate: Annotated[float, "share of the searches whose candidates hold the culprit"]
    set_size_mean: Annotated[float, "mean number of candidates"]
    claimed_mean: Annotated[float, "mean probability that the searches claim"]
    evaluations_mean: Annotated[float, "mean number of completed runs after the first ones of the ends"]
    evaluations_p90: Annotated[float, "nine of ten searches take at most so many"]
    ends_again_mean: Annotated[float, "mean number of these that are of an end, before the search"]
    both_ways_rate: Annotated[float, "share of the searches that measure both ends with a short fill, too"]
    skips_mean: Annotated[float, "mean number of commits that cannot be tested"]
    vm_hours_mean: Annotated[float, "mean hours of building and measuring"]
    vm_hours_p90: Annotated[float, "nine of ten searches take at most so many"]
    wall_hours_mean: Annotated[float, "mean hours on the clock, from the first build of an end to the answer"]
    wall_hours_p90: Annotated[float, "nine of ten searches take at most so many of these"]
    step_ms_mean: Annotated[float, "mean milliseconds in which a commit is chosen"]
    step_ms_max: Annotated[float, "the most milliseconds in which a commit was chosen"]
    not_one_change_rate: Annotated[float, "share of the searches that end because no single change explains the runs"]
    named_rate: Annotated[float, "share of the searches that name a commit"]
    named_right_rate: Annotated[float, "share of these that name the right one; 0 if there are none"]
    left_median: Annotated[float, "median number of candidates of the others; 0 if there are none"]
    same_rate: Annotated[float, "share of the searches that never begin, as the ends are told to be the same"]
    noisy_rate: Annotated[float, "share of those that never begin, as the ends are too noisy to be told apart"]

    @classmethod
    def of(cls, results: Sequence[SimulatedResult]) -> "Summary":
        """Return the summary of at least one result."""

        def mean(values: Iterable[float]) -> float:
            return float(np.mean(list(values)))

        steps_ms = [ms for result in results for ms in result.steps_ms]
        evaluations = [result.evaluations for result in results]
        hours, wall_hours = [one.minutes / 60 for one in results], [one.wall_min / 60 for one in results]
        named = [result for result in results if result.ending is SearchEnding.FOUND]
        left = [result.set_size for result in results if result.ending is not SearchEnding.FOUND]
        return cls(
            success_rate=mean(result.right for result in results),
            in_set_rate=mean(result.in_set for result in results),
            set_size_mean=mean(result.set_size for result in results),
            claimed_mean=mean(result.claimed for result in results),
            evaluations_mean=mean(evaluations),
            evaluations_p90=float(np.quantile(evaluations, 0.9)),
            ends_again_mean=mean(result.ends_again for result in results),
            both_ways_rate=mean(result.both_ways for result in results),
            skips_mean=mean(result.skips for result in results),
            vm_hours_mean=mean(hours),
            vm_hours_p90=float(np.quantile(hours, 0.9)),
            wall_hours_mean=mean(wall_hours),
            wall_hours_p90=float(np.quantile(wall_hours, 0.9)),
            step_ms_mean=mean(steps_ms),
            step_ms_max=max(steps_ms),
            not_one_change_rate=mean(result.ending is SearchEnding.NOT_ONE_CHANGE for result in results),
            named_rate=len(named) / len(results),
            named_right_rate=mean(result.right for result in named) if named else 0.0,
            left_median=float(np.median(left)) if left else 0.0,
            same_rate=mean(result.told is PairsConclusion.SAME for result in results),
            noisy_rate=mean(result.told is PairsConclusion.NOISY for result in results),
        )


def search_for(conditions: Conditions, rates: Rates | None = None) -> Search:
    """Return a search that expects the run times of these conditions; it learns the rates unless they are given."""
    early, durations = conditions.early_stop, conditions.durations
    # The expected time of the next build, before its distance from the last tree is known, and of a commit that does
    # not build or boot
    build_min = durations.build_least_min + 0.4 * (durations.build_most_min - durations.build_least_min)
    costs = Costs(
        build_min=build_min,
        setup_min=durations.setup_min,
        old_run_min=durations.early_old_min if early else durations.whole_run_min,
        new_run_min=durations.early_new_min if early else durations.whole_run_min,
        whole_run_min=durations.whole_run_min,
        skip_min=build_min + durations.setup_min * 2 / 3,
    )
    return Search(Weighing(rates or Rates.unknown()), costs)


def simulate(
    graph: RangeGraph, strategy: Strategy, conditions: Conditions, search: Search, *, seed: int, trials: int
) -> Iterator[SimulatedResult]:
    """Yield the result of each trial; trial n has the same truth for either strategy, however many trials there are."""
    for trial in range(trials):
        world = World(graph, conditions, np.random.default_rng((seed, trial)))
        yield _from_the_ends(world, search) if strategy is Strategy.BAYES else _git(world, search.costs)


def simulate_from(
    problem: SearchProblem, facts: SearchFacts, conditions: Conditions, search: Search, *, seed: int, trials: int
) -> Iterator[SimulatedResult]:
    """Yield the results of searches that go on from these facts; culprits are drawn by their present probabilities."""
    likely = believe(problem, facts, search).p
    for trial in range(trials):
        world = World(problem.graph, conditions, np.random.default_rng((seed, trial)), likely=likely)
        yield _bayes(world, SimulatedSearch(world, problem, search, facts, (world.here,)), known=len(facts.readings))


def _from_the_ends(world: World, search: Search) -> SimulatedResult:
    conditions, hosts = world.conditions, (world.here, *world.further_hosts())
    relevant = world.relevant if conditions.relevant < 1 else None
    problem = SearchProblem(world.graph, prior(len(world.graph), relevant, world.suspects), relevant)
    known, longest_min = sum(len(host.ends) for host in hosts), search.costs.longest(0.0, whole=True)
    ends_told = list[PairsConclusion | None]()
    for host in hosts:
        world.here = host
        ends_told.append(world.tell_ends(longest_min))
    if ends_told[0] is not PairsConclusion.DIFFER:
        ends_again = sum(len(host.ends) for host in hosts) - known
        return SimulatedResult(
            right=conditions.no_change and ends_told[0] is PairsConclusion.SAME,
            set_size=len(world.graph),
            evaluations=ends_again,
            ends_again=ends_again,
            minutes=sum(host.minutes for host in hosts),
            wall_min=conditions.ends_min + max(host.minutes for host in hosts),
            ending=SearchEnding.NARROWED,
            out_of_time=ends_told[0] is None,
            told=ends_told[0],
        )
    scales = {host.name: replace(host.scale, expected=conditions.expected) for host in hosts if host.scale is not None}
    search, facts = replace(search, weighing=replace(search.weighing, scales=scales)), SearchFacts()
    for host in hosts:
        world.here, of_host = host, SearchFacts(host.ends)
        while (side := end_to_read(world.graph, of_host, believe(problem, of_host, search))) is not None:
            if longest_min > world.left_min:
                break
            of_host = of_host.with_reading(world.measure_end(side))
        facts = replace(facts, readings=(*facts.readings, *of_host.readings))
    ends_again = len(facts.readings) - known
    if not conditions.kept_levels and not figures_tell(search.rules, believe(problem, facts, search)):
        for host in hosts:
            world.here = host
            both_ways = world.measure_both_ways()
            facts, known = replace(facts, readings=(*facts.readings, *both_ways)), known + len(both_ways)
    world.here = hosts[0]
    course = SimulatedSearch(world, problem, search, facts, (*hosts, *world.further_guests()))
    return _bayes(world, course, known, ends_again)


def _bayes(world: World, course: SimulatedSearch, known: int, ends_again: int = 0) -> SimulatedResult:
    """Run a search by the posterior; all readings but ``known`` ones are its own."""
    step = course.run()
    named, facts, hosts = step.ending is not SearchEnding.NOT_ONE_CHANGE, course.facts, course.hosts
    is_known = step.ending is SearchEnding.NO_CHANGE and world.conditions.changes_nothing
    return SimulatedResult(
        right=is_known or (named and world.is_right(step.commit)),
        in_set=any(map(world.is_right, step.candidates)),
        set_size=len(step.candidates),
        claimed=step.probability if named else 0.0,
        evaluations=len(facts.readings) - known,
        ends_again=ends_again,
        both_ways=world.is_filled_short,
        skips=len(facts.skips),
        minutes=sum(host.minutes - host.waited_min for host in hosts),
        wall_min=world.conditions.ends_min + max(host.minutes for host in hosts),
        steps_ms=tuple(course.steps_ms),
        ending=step.ending,
        out_of_time=step.out_of_time,
    )


def _git(world: World, costs: Costs) -> SimulatedResult:
    """Run a search that tries each commit once and believes the reading, like plain git bisect.

    The answer and its parents are then measured again in whole runs if their runs were stopped early. If several
    candidates are left, the one that is known to be new is taken as the answer.
    """
    world.measure_both_ways()
    facts, steps_ms, longest_min = SearchFacts(), list[float](), costs.longest(costs.build_min, whole=False)
    while True:
        start = time.perf_counter()
        step = next_commit(world.graph, facts)
        steps_ms.append((time.perf_counter() - start) * 1000)
        if isinstance(step, tuple) or longest_min > world.left_min:
            break
        reading = world.measure(step, whole=False)
        facts = facts.with_skip(step) if reading is None else facts.with_reading(reading)
    left = step if isinstance(step, tuple) else candidates_left(world.graph, facts)
    again: tuple[int, ...] = ()
    if len(left) == 1:  # it and its parents are measured again before it is named, if they were tried
        stopped = {one.commit for one in facts.readings if not one.full}
        suspects = (left[0], *world.graph.parents[left[0]])
        again = tuple(commit for commit in suspects if commit in stopped)
    out_of_time = isinstance(step, int) or len(again) * costs.longest(0.0, whole=True) > world.left_min
    for commit in () if out_of_time else again:
        world.measure(commit, whole=True, beside=[named for named in left if named != commit])
    return SimulatedResult(
        right=world.is_right(left[-1]),
        in_set=any(map(world.is_right, left)),
        set_size=len(left),
        claimed=1.0,
        evaluations=len(facts.readings) + (0 if out_of_time else len(again)),
        both_ways=world.is_filled_short,
        skips=len(facts.skips),
        minutes=world.minutes,
        wall_min=world.conditions.ends_min + world.minutes,
        steps_ms=tuple(steps_ms),
        ending=SearchEnding.FOUND if len(left) == 1 and not out_of_time else SearchEnding.NARROWED,
        out_of_time=out_of_time,
    )
