"""Many searches in made-up worlds: how often the answer is right, whether the search knows, and what it costs."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from bisector.core.verdict import Strategy
from bisector.search.confirm import Problem
from bisector.search.graph import RangeGraph
from bisector.search.likelihood import Noise, Weighing
from bisector.search.posterior import Facts, prior
from bisector.search.select import Costs
from bisector.search.simulate.midpoint import Left, Midpoint, next_commit
from bisector.search.simulate.world import Conditions, World
from bisector.search.step import Answer, Ending, Search, Try, Undo, decide

T = TypeVar("T")

# Nobody knows that an error never happens.
_LEAST_FLIP = 0.001
_LEAST_STICKY = 0.002


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
