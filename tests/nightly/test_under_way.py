"""A tip's trial that is under way on a host when its night ends: the next night hears what came of it."""

import pytest

from bisector.core.errors import Interrupted
from bisector.executor.base import News
from bisector.store.facts import Submitted
from bisector.store.nights import Measurement
from bisector.store.store import Store
from tests.bisect.crew import Fleet
from tests.nightly.conftest import World


def left_under_way(world: World, fleet: Fleet) -> None:
    """A night that is interrupted once its trial has been given to a host."""
    hear = fleet.next

    def interrupted() -> News:
        raise KeyboardInterrupt

    fleet.next = interrupted  # type: ignore[method-assign] # the person's signal comes while the host is waited for
    with pytest.raises(Interrupted):
        world.night()
    fleet.next = hear  # type: ignore[method-assign] # as before
    assert list(fleet.open) == ["one"]


def measured(world: World) -> list[tuple[str, str, int, int | None]]:
    facts = (event.fact for event in world.events())
    found = (one for one in facts if isinstance(one, Measurement))
    return [(world.name_of(one.sha), one.host, one.trials, one.n) for one in found]


def store_of(world: World) -> Store:
    (directory,) = {event.fact.run_dir for event in world.events() if isinstance(event.fact, Measurement)}
    return Store.open(directory / "record.sqlite", readonly=True)


def submissions(world: World) -> list[int]:
    with store_of(world) as store:
        store.log.refresh()
        return [entry.id for entry in store.log.of(Submitted)]


def trials(world: World) -> list[tuple[int, str, str]]:
    with store_of(world) as store:
        assert not store.in_flight()
        return [(n, world.name_of(trial.commit.sha), trial.host) for n, trial in store.trials()]


def test_it_is_heard_and_counts(world: World) -> None:
    fleet = world.on_hosts("one")
    left_under_way(world, fleet)
    world.night()
    assert measured(world) == [("c2", "one", 1, 1)]
    assert trials(world) == [(1, "c2", "one")]
    assert (fleet.benches["one"].measured, fleet.acknowledged) == ([world.shas["c2"]], submissions(world))


def test_it_is_on_record_when_the_branch_has_moved_on(world: World) -> None:
    fleet = world.on_hosts("one")
    left_under_way(world, fleet)
    world.push("cache", "c3")
    world.night()
    assert measured(world) == [("c3", "one", 1, 2)]
    assert trials(world) == [(1, "c2", "one"), (2, "c3", "one")]
    assert fleet.acknowledged == submissions(world)


def test_it_does_not_count_on_another_host(world: World) -> None:
    fleet = world.on_hosts("one")
    left_under_way(world, fleet)
    under_way = fleet.open
    other = world.on_hosts("two")
    other.benches = {**other.benches, **fleet.benches}
    other.open = under_way
    world.night()
    assert measured(world) == [("c2", "two", 1, 2)]
    assert trials(world) == [(1, "c2", "one"), (2, "c2", "two")]


def test_it_is_lost_where_the_next_night_measures_here(world: World) -> None:
    """Its number is the next trial's; that of its job is no other's, by which its host knows it."""
    left_under_way(world, world.on_hosts("one"))
    world.hosts = None
    world.night()
    assert [(name, n) for name, _, _, n in measured(world)] == [("c2", 1)]
    assert world.engines["cache"].acknowledged == submissions(world)[1:]
