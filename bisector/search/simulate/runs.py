"""Many searches in made-up worlds: how often the answer is right, whether the search knows, and what it costs.

A search goes by the posterior (:mod:`bisector.search.step`) or as plain ``git bisect`` does, by the rules of git's
bisect.c (2.39): the best commit has the most of min(X, N - X), where X of the N candidates are among its ancestors; one
within N/1024 of the half is good enough, merges being looked at first. Once anything was skipped, all are ranked, and
from a best one that was skipped git steps away, pseudo-randomly, but not often far.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import numpy as np

from bisector.core.verdict import Strategy, Verdict
from bisector.search.choice import Costs, Problem
from bisector.search.graph import Mask, Numbers, RangeGraph
from bisector.search.likelihood import Kernel, Noise, Weighing
from bisector.search.posterior import Facts, prior
from bisector.search.simulate.world import Conditions, World
from bisector.search.step import Answer, Ending, Search, Try, Undo, decide

_Names: TypeAlias = Sequence[str] | None

T = TypeVar("T")

# Nobody knows that an error never happens.
_LEAST_FLIP = 0.001
_LEAST_STICKY = 0.002
_PRN_MODULO = 32768
_HALF_IS_NEAR = 1024


@dataclass(frozen=True, slots=True)
class Result:
    """One search: whether its first answer was right and its set held the truth, and what it took."""

    right: bool
    in_set: bool
    set_size: int
    claimed: float
    evaluations: int
    skips: int
    minutes: float
    steps_ms: tuple[float, ...]
    ending: Ending


@dataclass(frozen=True, slots=True)
class Summary:
    """All results: shares, means and ninetieth percentiles. Evaluations are completed runs after the ends."""

    success_rate: float
    in_set_rate: float
    set_size_mean: float
    claimed_mean: float
    evaluations_mean: float
    evaluations_p90: float
    skips_mean: float
    vm_hours_mean: float
    vm_hours_p90: float
    step_ms_mean: float
    step_ms_max: float
    not_one_change_rate: float

    @classmethod
    def of(cls, results: Sequence[Result]) -> "Summary":
        """The summary of at least one result."""
        steps_ms = [ms for result in results for ms in result.steps_ms]
        evaluations = [result.evaluations for result in results]
        hours = [result.minutes / 60 for result in results]
        return cls(
            success_rate=float(np.mean([result.right for result in results])),
            in_set_rate=float(np.mean([result.in_set for result in results])),
            set_size_mean=float(np.mean([result.set_size for result in results])),
            claimed_mean=float(np.mean([result.claimed for result in results])),
            evaluations_mean=float(np.mean(evaluations)),
            evaluations_p90=float(np.quantile(evaluations, 0.9)),
            skips_mean=float(np.mean([result.skips for result in results])),
            vm_hours_mean=float(np.mean(hours)),
            vm_hours_p90=float(np.quantile(hours, 0.9)),
            step_ms_mean=float(np.mean(steps_ms)),
            step_ms_max=max(steps_ms),
            not_one_change_rate=float(np.mean([result.ending is Ending.NOT_ONE_CHANGE for result in results])),
        )


@dataclass(frozen=True, slots=True)
class Midpoint:
    """The commit that git would try, of ``left`` candidates."""

    commit: int
    left: int


@dataclass(frozen=True, slots=True)
class Left:
    """What git ends with: one commit, or, for skips, the candidates; the last is the one known new."""

    candidates: tuple[int, ...]


def told(conditions: Conditions) -> Noise:
    """The noise of these conditions, as a calibration of the ends shows it, but never none at all."""
    return Noise(
        old_as_new=max(conditions.old_as_new, _LEAST_FLIP),
        new_as_old=max(conditions.new_as_old, _LEAST_FLIP),
        sticky=max(conditions.sticky, _LEAST_STICKY),
    )


def search_for(conditions: Conditions, noise: Noise) -> Search:
    """The search, expecting the run times of these conditions and this noise."""
    early, durations = conditions.early_stop, conditions.durations
    costs = Costs(
        build_min=durations.usual_build_min,
        setup_min=durations.setup_min,
        old_run_min=durations.early_old_min if early else durations.whole_run_min,
        new_run_min=durations.early_new_min if early else durations.whole_run_min,
        whole_run_min=durations.whole_run_min,
        skip_min=durations.usual_skip_min,
    )
    return Search(Weighing(noise, conditions.levels), costs)


def simulate(
    graph: RangeGraph, strategy: Strategy, conditions: Conditions, search: Search, *, seed: int, trials: int
) -> Iterator[Result]:
    """One result after the other; trial n has the same truth for either strategy, however many trials there are."""
    for trial in range(trials):
        world = World(graph, conditions, np.random.default_rng((seed, trial)))
        yield _bayes(world, search) if strategy is Strategy.BAYES else _git(world)


def next_commit(graph: RangeGraph, facts: Facts, names: _Names = None) -> Midpoint | Left:
    """What git bisect would do; ``names`` are the hashes, which break ties as they do in git.

    The last reading of a commit counts, as in git. Raises :class:`ValueError` for a new commit that is an ancestor of
    an old one: git does not go on from there.
    """
    candidates, new = _candidates(graph, facts)
    left = np.flatnonzero(candidates)
    if len(left) == 1:
        return Left((int(left[0]),))
    counts = np.rint(graph.mass(candidates.astype(np.float64))).astype(np.intp)
    skipped = facts.untestable
    # A skip anywhere, and git ranks all candidates.
    best = _ranked(left, counts, names, skipped, new) if skipped else _best(graph, left, counts, candidates)
    if best is None or best == new:
        return Left((*(int(commit) for commit in left if commit != new), new))
    return Midpoint(best, len(left))


def _bayes(world: World, search: Search) -> Result:
    graph, clock = world.graph, _Clock()
    relevant = world.relevant if world.conditions.relevant < 1 else None
    problem = Problem(graph, prior(len(graph), relevant, world.suspects), relevant)
    facts = Facts()
    while not isinstance(step := clock.time(decide, problem, facts, search), Answer):
        facts = _carry_out(world, facts, step)
    named = step.ending is not Ending.NOT_ONE_CHANGE
    return Result(
        right=named and step.commit == world.culprit,
        in_set=world.culprit in step.candidates,
        set_size=len(step.candidates),
        claimed=step.probability if named else 0.0,
        evaluations=len(facts.readings),
        skips=len(facts.skips),
        minutes=world.minutes,
        steps_ms=tuple(clock.ms),
        ending=step.ending,
    )


def _carry_out(world: World, facts: Facts, step: Try | Undo) -> Facts:
    if isinstance(step, Undo):
        reading = world.measure_undone(step.commit, step.kernel)
        return facts.with_failed(step.commit, step.kernel) if reading is None else facts.with_reading(reading)
    reading = world.measure(step.commit, whole=step.whole)
    return facts.with_skip(step.commit) if reading is None else facts.with_reading(reading)


def _git(world: World) -> Result:
    """Each commit is tried once, and believed; a whole run of the answer is taken to repeat the one stopped early.

    Of a set the commit that is known to be new stands for the answer.
    """
    facts, clock = Facts(), _Clock()
    while isinstance(step := clock.time(next_commit, world.graph, facts), Midpoint):
        reading = world.measure(step.commit, whole=False)
        facts = facts.with_skip(step.commit) if reading is None else facts.with_reading(reading)
    again = _rests_on_stopped_runs(world, facts, step)
    for commit in again:
        world.measure(commit, whole=True)
    return Result(
        right=step.candidates[-1] == world.culprit,
        in_set=world.culprit in step.candidates,
        set_size=len(step.candidates),
        claimed=1.0,
        evaluations=len(facts.readings) + len(again),
        skips=len(facts.skips),
        minutes=world.minutes,
        steps_ms=tuple(clock.ms),
        ending=Ending.FOUND if len(step.candidates) == 1 else Ending.NARROWED,
    )


def _rests_on_stopped_runs(world: World, facts: Facts, left: Left) -> frozenset[int]:
    """What ``--strategy git`` measures again before it names a commit: that one and its parents, as far as tried."""
    if len(left.candidates) > 1:
        return frozenset()
    (named,) = left.candidates
    stopped = {reading.commit for reading in facts.readings if not reading.full}
    return frozenset({named, *world.graph.parents[named]} & stopped)


def _candidates(graph: RangeGraph, facts: Facts) -> tuple[Mask, int]:
    new = graph.tip
    olds = np.zeros(len(graph), dtype=np.bool_)
    for reading in facts.readings:
        if reading.kernel is not Kernel.COMMIT:
            continue
        if reading.verdict is Verdict.NEW:
            new = reading.commit  # refs/bisect/NEW is one ref; the last wins
        else:
            olds |= graph.ancestors(reading.commit)
    candidates = graph.ancestors(new) & ~olds
    if not candidates[new]:
        raise ValueError(f"commit {new} is new and an ancestor of an old one")
    return candidates, new


def _best(graph: RangeGraph, left: Numbers, counts: Numbers, candidates: Mask) -> int:
    """``do_find_bisection()``: the first that is near the half, merges before others; else the best."""
    total = len(left)
    inner = {int(commit): sum(bool(candidates[parent]) for parent in graph.parents[commit]) for commit in left}
    merges = [commit for commit, parents in inner.items() if parents > 1]
    others = [commit for commit, parents in inner.items() if parents == 1]
    for commit in (*merges, *others):
        off = abs(2 * int(counts[commit]) - total)
        if off <= 1 or off < total // _HALF_IS_NEAR:
            return commit
    return int(left[np.argmax(np.minimum(counts[left], total - counts[left]))])


def _ranked(left: Numbers, counts: Numbers, names: _Names, skipped: frozenset[int], new: int) -> int | None:
    """``best_bisection_sorted()`` and ``managed_skipped()``: the best, or one away from it when it is skipped."""
    total = len(left)
    distance = {int(commit): min(int(counts[commit]), total - int(counts[commit])) for commit in left}
    ranked = sorted(distance, key=lambda commit: (-distance[commit], names[commit] if names else commit))
    testable = [commit for commit in ranked if commit not in skipped]
    if not testable:
        return None
    if ranked[0] not in skipped:
        return ranked[0]
    index = _step_away(len(testable))
    if testable[index] != new:
        return testable[index]
    return testable[index - 1] if index else testable[0]


def _step_away(count: int) -> int:
    """``skip_away()``: an index below ``count``, in C's integers; its generator is seeded by the count."""
    product = (count * 1103515245 + 12345) % 2**32
    prn = product // 65536 % _PRN_MODULO
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


@dataclass(slots=True)
class _Clock:
    """How long each step took, in milliseconds."""

    ms: list[float] = field(default_factory=list)

    def time(self, work: Callable[..., T], *arguments: object) -> T:
        start = time.perf_counter()
        try:
            return work(*arguments)
        finally:
            self.ms.append((time.perf_counter() - start) * 1000)
