"""Nights of a fleet: the tips of a job are measured and compared on one host, its bisections made on all."""

from dataclasses import replace

import pytest

from bisector.core.verdict import State
from bisector.fleet.hosts import Hosts
from bisector.nightly import night
from bisector.store.facts import Ended
from bisector.store.nights import Measurement, NightEnding, Tip, TipRole
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from tests import fakes
from tests.bisect.crew import Fleet
from tests.git import histories
from tests.nightly.conftest import Make, World


def hosts_of_tips(world: World) -> list[str]:
    return [one.fact.host for one in world.events() if isinstance(one.fact, Measurement)]


def test_the_tips_of_a_job_are_measured_on_the_host_that_measured_the_first(world: World) -> None:
    fleet = world.on_hosts("one", "two")
    assert world.night() is NightEnding.DONE
    (first,) = hosts_of_tips(world)
    other = next(name for name in fleet.benches if name != first)
    fleet.benches = {name: fleet.benches[name] for name in (other, first)}  # the other one is asked first now
    for tip in ("c3", "c4"):
        assert world.night(tip=tip) is NightEnding.DONE
    assert hosts_of_tips(world) == [first] * 3
    assert world.classes() == ["first", "same", "same"]


@pytest.mark.parametrize("listed", [True, False])
def test_a_host_that_is_away_is_waited_for_and_then_told_of(
    world: World, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    """No other host measures the tip instead: its figure would be compared with nothing."""
    fleet = world.on_hosts("one", "two", builders=["builds"])
    fleet.benches = {name: fleet.benches[name] for name in ("builds", "one", "two")}
    if not listed:
        world.hosts = Hosts(world.path / "hosts.toml", (), cluster="tls://desk:8786")
    world.night()
    (first,) = hosts_of_tips(world)
    fleet.gone.add(first)
    monkeypatch.setattr(night, "AWAY_S", 0.05)
    world.night(tip="c3")
    assert hosts_of_tips(world) == [first]
    ((_, subject, text),) = world.letters.notices
    assert subject.endswith("measure failed")
    assert f"{first}, which measured the last tip, is not there; figures of two hosts are not compared" in text
    assert f"or take {first} out of {world.path}/hosts.toml: then another host begins a new history" in text
    fleet.gone.clear()
    world.night()
    assert hosts_of_tips(world) == [first] * 2
    assert world.history().result == "same"


def test_a_host_that_is_no_host_any_more_ends_the_history(world: World) -> None:
    world.on_hosts("one")
    world.night()
    world.on_hosts("two")
    world.night(tip="c3")
    assert hosts_of_tips(world) == ["one", "two"]
    assert world.classes() == ["first", "first"]
    assert (
        "cache: the last tip was measured on one, which is not a host any more: two begins a new history" in world.told
    )


def test_other_settings_begin_a_new_history_on_any_host(world: World) -> None:
    fleet = world.on_hosts("one", "two")
    world.night()
    (first,) = hosts_of_tips(world)
    other = next(name for name in fleet.benches if name != first)
    fleet.gone.add(first)
    world.settings += '\nworkload.runtime = "7s"'
    world.night(tip="c3")
    assert hosts_of_tips(world) == [first, other]


def test_a_fleet_without_a_host_is_told_of(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.on_hosts("one", gone=["one"])
    monkeypatch.setattr(night, "AWAY_S", 0.05)
    world.night()
    ((_, _, text),) = world.letters.notices
    assert "no host that measures is there" in text


def test_a_change_is_bisected_on_all_hosts_and_resume_knows_them(world: World) -> None:
    world.settings = ""
    fleet = world.on_hosts("one", "two")
    world.slow_from = {"cache": "c4"}
    for one in fleet.benches.values():
        one.culprit = "c4"
    world.night()
    assert world.night(tip="c5") is NightEnding.DONE
    concluded = world.concluded
    assert world.name_of(concluded.first_sha) == "c4"
    run = RunDirectory(concluded.run_dir)
    assert run.hosts == world.path / "hosts.toml"
    with Store.open(run.database, readonly=True) as store:
        assert {trial.host for _, trial in store.trials()} == {"one", "two"}


def test_what_a_killed_night_had_under_way_is_measured_again_under_another_number(world: World) -> None:
    fleet = world.on_hosts("one")
    bench = fleet.benches["one"]
    bench.kill_at = 1
    with pytest.raises(fakes.Killed):
        world.night()
    bench.kill_at = None
    fleet.open.clear()
    world.night()
    (measured,) = (one.fact for one in world.events() if isinstance(one.fact, Measurement))
    with Store.open(measured.run_dir / "record.sqlite", readonly=True) as store:
        assert not store.in_flight()
        assert [one.ending for one in store.facts(Ended)] == ["lost", "done"]
    assert any(isinstance(one.fact, Tip) for one in world.events())


def test_a_host_that_the_file_does_not_list_begins_no_history(world: World) -> None:
    """The next night it would be no host any more, and another one would begin anew."""
    fleet = world.on_hosts("one")
    fleet.benches = {"passing": world._engine("cache"), **fleet.benches}
    for tip in ("c3", "c4"):
        world.night(tip=tip)
    assert hosts_of_tips(world) == ["one"] * 2
    assert world.classes() == ["first", "same"]


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
    concluded = world.concluded
    assert (concluded.state, world.name_of(concluded.first_sha)) == (State.FOUND, "c6")
    assert all(one.measured for one in fleet.benches.values())
    assert concluded.new_value == fakes.SLOW_IOPS
    world.night(tip="c10")
    assert world.classes() == ["first", "slower", "same"]


def test_a_bisection_without_the_host_of_the_tips_leaves_their_level(world: World, fleet: Fleet) -> None:
    changed(world, fleet)
    without_the_host_of_the_tips(world, fleet)
    world.night()
    concluded = world.concluded
    assert (concluded.state, concluded.new_value) == (State.FOUND, fakes.SLOW_IOPS)
    world.night(tip="c10")
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
        world.night(tip=tip)
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
