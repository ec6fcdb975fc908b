"""The course of a simulated search over several hosts."""

from dataclasses import replace

import numpy as np
import pytest

from bisector.core.verdict import Strategy
from bisector.search.graph import SearchFacts
from bisector.search.simulate import runs as course_module
from bisector.search.simulate.runs import SimulatedSearch, search_for, simulate
from bisector.search.simulate.world import Conditions, World
from bisector.search.step import ChangedEndToRead, CommitToRead, Search, decide_from
from tests.search.graphs import kernel_like, plain

GRAPH = kernel_like(500)
USUAL = Conditions(0.003, 0.05, 0.01)
TWELVE_MIN, A_WHOLE_TRIAL_MIN = 12.0, 33.0


def test_the_ends_take_what_their_trials_take() -> None:
    both, one = USUAL.ends_min, replace(USUAL, kept_levels=True).ends_min
    assert both == 2 * one == 2 * (TWELVE_MIN + A_WHOLE_TRIAL_MIN)
    assert replace(USUAL, hosts=4).ends_min == TWELVE_MIN + 2 * A_WHOLE_TRIAL_MIN  # two hosts build one each
    assert replace(USUAL, hosts=4, kept_levels=True).ends_min == one


def test_guests_of_a_host_share_its_ends_and_build_one_kernel_at_a_time() -> None:
    conditions = Conditions(guests=3, effect=4.0)
    assert conditions.ends_min == 2 * TWELVE_MIN + A_WHOLE_TRIAL_MIN
    world = World(GRAPH, conditions, np.random.default_rng(1))
    first = world.here
    built = list[float]()
    for number, guest in enumerate((first, *world.further_guests())):
        world.here = guest
        world.measure(100 + number, whole=True)
        assert (guest.ends, guest.offset) == (first.ends, 0.0)
        built.append(guest.built_min)
    assert built[0] < built[1] < built[2]
    assert guest.waited_min == pytest.approx(built[1])


def test_two_guests_are_done_sooner() -> None:
    worlds = [replace(USUAL, guests=guests, effect=4.0) for guests in (1, 2)]
    one, two = (next(simulate(GRAPH, Strategy.BAYES, it, search_for(it), seed=5, trials=1)) for it in worlds)
    assert one.wall_min / two.wall_min > 1.2
    assert (one.right, two.right) == (True, True)


def test_hosts_are_given_work_as_they_become_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel is in flight twice, none of a host that waits is, and what is cancelled frees its host at once."""
    conditions = replace(USUAL, hosts=6, kept_levels=True)
    world = World(GRAPH, conditions, np.random.default_rng(3))
    hosts = (world.here, *world.further_hosts())
    course = SimulatedSearch(world, plain(GRAPH), search_for(conditions), SearchFacts(world.here.ends), hosts)
    most, clocks = [], []

    def watched(problem: object, facts: SearchFacts, search: Search, belief: object) -> object:
        assert len(set(facts.in_flight)) == len(facts.in_flight) < len(hosts)
        most.append(len(facts.in_flight))
        clocks.append(world.minutes)
        step = decide_from(problem, facts, search, belief)  # type: ignore[arg-type] # as it was called
        assert not isinstance(step, CommitToRead | ChangedEndToRead) or step.of not in facts.in_flight
        return step

    cancelled = []
    cancel = SimulatedSearch._cancel

    def counted(self: SimulatedSearch, number: int, minutes: float) -> None:
        cancel(self, number, minutes)
        cancelled.append((hosts[number].minutes, minutes))

    monkeypatch.setattr(course_module, "decide_from", watched)
    monkeypatch.setattr(SimulatedSearch, "_cancel", counted)
    answer = course.run()
    assert world.is_right(answer.commit)
    assert max(most) == len(hosts) - 1
    assert clocks == sorted(clocks)
    assert cancelled
    assert all(clock == minutes for clock, minutes in cancelled)
    assert all(host.minutes <= world.minutes for host in hosts)
