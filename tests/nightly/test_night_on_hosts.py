"""Nights of a fleet: the tips of a job are measured on one host, and its bisections on all."""

import pytest

from bisector.fleet.hosts import Hosts
from bisector.nightly import night
from bisector.store.facts import Ended
from bisector.store.nights import Measurement, NightEnding, Tip
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from tests import fakes
from tests.nightly.conftest import World


def hosts_of_tips(world: World) -> list[str]:
    return [one.fact.host for one in world.events() if isinstance(one.fact, Measurement)]


def test_the_tips_of_a_job_are_measured_on_the_host_that_measured_the_first(world: World) -> None:
    fleet = world.on_hosts("one", "two")
    assert world.night() is NightEnding.DONE
    (first,) = hosts_of_tips(world)
    other = next(name for name in fleet.benches if name != first)
    fleet.benches = {name: fleet.benches[name] for name in (other, first)}  # the other one is asked first now
    for tip in ("c3", "c4"):
        world.push("cache", tip)
        assert world.night() is NightEnding.DONE
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
    world.push("cache", "c3")
    world.night()
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
    world.push("cache", "c3")
    world.night()
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
    world.push("cache", "c3")
    world.night()
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
    world.push("cache", "c5")
    assert world.night() is NightEnding.DONE
    (concluded,) = (one for night in world.history().nights for one in night.concluded)
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
        world.push("cache", tip)
        world.night()
    assert hosts_of_tips(world) == ["one"] * 2
    assert world.classes() == ["first", "same"]
