"""What a night of several hosts compares: the tips of a job are one host's, and the others have levels of their own."""

from dataclasses import replace

import pytest

from bisector.core.verdict import State
from bisector.store.nights import Measurement, TipRole
from tests import fakes
from tests.bisect.crew import Fleet
from tests.git import histories
from tests.nightly.conftest import Make, World

TIMES = 4.0  # by so much everything is faster on the second host


@pytest.fixture
def fleet(world: World) -> Fleet:
    """Two hosts; the tips are measured on the first."""
    world.settings = ""
    made = world.on_hosts("one", "two")
    slow = made.benches["one"]
    fast = replace(slow, slow_iops=slow.slow_iops * TIMES, fast_iops=slow.fast_iops * TIMES, measured=[])
    made.benches = {"one": slow, "two": fast}
    world.night()
    return made


def changed(world: World, fleet: Fleet) -> None:
    world.slow_from["cache"] = "c6"
    for bench in fleet.benches.values():
        bench.culprit = "c6"
    world.push("cache", "c9")


def without_the_host_of_the_tips(world: World, fleet: Fleet) -> None:
    """What is bisected from now on has the second host alone."""
    equip = world.equip

    def one_less(settings: object, run_dir: object, *more: object) -> object:
        fleet.gone = {"one"} if "runs" in str(run_dir) else set()
        return equip(settings, run_dir, *more)  # type: ignore[arg-type] # passed on as they are

    world.equip = one_less  # type: ignore[method-assign, assignment] # watched


def test_what_is_usual_after_an_answer_is_what_the_host_of_the_tips_measured(world: World, fleet: Fleet) -> None:
    changed(world, fleet)
    world.night()
    (concluded,) = world.history().nights[-1].concluded
    assert (concluded.state, world.name_of(concluded.first_sha)) == (State.FOUND, "c6")
    assert all(one.measured for one in fleet.benches.values())
    assert concluded.new_value == fakes.SLOW_IOPS
    world.push("cache", "c10")
    world.night()
    assert world.classes() == ["first", "slower", "same"]


def test_a_bisection_without_the_host_of_the_tips_leaves_their_level(world: World, fleet: Fleet) -> None:
    changed(world, fleet)
    without_the_host_of_the_tips(world, fleet)
    world.night()
    (concluded,) = world.history().nights[-1].concluded
    assert (concluded.state, concluded.new_value) == (State.FOUND, fakes.SLOW_IOPS)
    world.push("cache", "c10")
    world.night()
    assert world.classes() == ["first", "slower", "same"]


def test_a_change_that_another_host_does_not_see_is_no_new_level(world: World, fleet: Fleet) -> None:
    once = world.push("cache", "c9")
    fleet.benches["one"].is_new = lambda sha: sha == once
    without_the_host_of_the_tips(world, fleet)
    world.night()
    history = world.history()
    (concluded,) = history.nights[-1].concluded
    assert (concluded.state, concluded.new_value) == (State.FAILED, None)
    assert history.reference is not None
    assert (world.name_of(history.reference.sha), history.reference.value) == ("c2", fakes.FAST_IOPS)


def test_the_tag_is_measured_where_the_tips_are(make_world: Make) -> None:
    world = make_world(extra={"cache": 'range = "newest-tag"'})
    histories.git(world.path / "cache.git", "tag", "v1", world.shas["c1"])
    world.night()  # here
    world.on_hosts("one")
    for tip in ("c4", "c5"):
        world.push("cache", tip)
        world.night()
    facts = [event.fact for event in world.events()]
    measured = [(one.role, one.host) for one in facts if isinstance(one, Measurement)]
    assert measured == [
        (TipRole.TAG, fakes.HOST),
        (TipRole.TIP, fakes.HOST),
        (TipRole.TIP, "one"),
        (TipRole.TAG, "one"),
        (TipRole.TIP, "one"),
    ]
    assert world.classes() == ["same", "first", "same"]
