"""Whole nights: what is measured, what is bisected, what is told, and what a kill leaves to the next night."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bisector.cli import main
from bisector.config import Settings, options
from bisector.core.errors import Finding, Grade
from bisector.core.objective import Objective
from bisector.core.verdict import State
from bisector.doctor import checks
from bisector.git.repository import GitAnswer, GitRunner
from bisector.report import reporting
from bisector.status.blocks import Blocks, BlockState
from bisector.status.from_record import CONFIRMED
from bisector.store.log import DATABASE
from bisector.store.nights import Measurement, NightEnding
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store
from tests import fakes
from tests.examples import ERA, UPGRADED
from tests.git import histories
from tests.nightly.conftest import Make, World


def test_nothing_new_costs_one_fetch_and_one_trial(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    door = GitRunner.__call__

    def listening(self: GitRunner, *words: str, **how: Any) -> GitAnswer:
        asked.append(words[0])
        return door(self, *words, **how)

    world.night()
    world.push("cache", "c5")
    monkeypatch.setattr(GitRunner, "__call__", listening)
    world.night()
    assert world.measured() == ["c2", "c5"]
    assert asked.count("fetch") == 1
    assert "ls-remote" not in asked
    assert world.classes() == ["first", "same"]
    assert world.night() is NightEnding.DONE  # the same tip costs no trial
    assert world.measured() == ["c2", "c5"]
    # A person's own `git bisect start` removes all references that begin with refs/bisect.
    histories.git(world.path / "cache", "update-ref", "refs/heads/main", world.shas["c5"])
    histories.git(world.path / "cache", "bisect", "start")
    keep = histories.git(world.path / "cache", "rev-parse", "refs/by-bisector/nightly/cache/reference")
    assert keep == world.shas["c2"]


def test_tips_are_trials_in_a_store_of_their_job(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """With those of other nights, as long as the job is measured alike; the history shows their figures."""
    for tip in ("c2", "c5"):
        world.night(tip=tip)
    world.settings += "\nworkload.file_size = '40MiB'"
    world.night()
    measured = [event.fact for event in world.events() if isinstance(event.fact, Measurement)]
    first, second, third = (one.run_dir for one in measured)
    assert first == second != third
    assert [one.n for one in measured] == [1, 2, 1]
    assert all((one.directory.parent.parent / "record.sqlite").is_file() for one in measured)
    (trial,) = (event.trial for event in world.events() if event.fact == measured[1])
    assert trial is not None
    assert [one.value for one in Objective().of_jobs(trial.runs[-1])] == [fakes.FAST_IOPS, 8_000.0]
    capsys.readouterr()
    assert main(["table", "--json", "--run-dir", str(first)]) == 0
    trials = json.loads(capsys.readouterr().out)["trials"]
    assert [world.name_of(one["sha"]) for one in trials] == ["c2", "c5"]


def test_a_night_that_is_killed_before_it_knows_of_its_trial(world: World) -> None:
    """The trial stays on record, and the tip is measured anew."""
    with pytest.raises(fakes.Killed):
        world.night(dies=("cache", Measurement))
    world.night()
    (measured,) = (event.fact for event in world.events() if isinstance(event.fact, Measurement))
    with Store.open(measured.run_dir / "record.sqlite", readonly=True) as store:
        assert ([n for n, _ in store.trials()], measured.n, measured.trials) == ([1, 2], 2, 1)
        assert measured.value == fakes.FAST_IOPS


def test_change_is_bisected_and_told(world: World) -> None:
    world.settings = ""
    world.slower()
    assert world.night() is NightEnding.DONE
    ((_, run_dir),) = world.letters.reports
    concluded = world.concluded
    assert (concluded.state, world.name_of(concluded.first_sha)) == (State.FOUND, "c6")
    assert (concluded.run_dir, concluded.new_value) == (run_dir, fakes.SLOW_IOPS)
    # A better-known branch that has the commit, too, is not the one of the job.
    clone = world.path / "cache"
    histories.git(clone, "config", "remote.linus.url", "https://example.org/torvalds/linux.git")
    histories.git(clone, "update-ref", "refs/remotes/linus/master", world.shas["c9"])
    with Store.open(run_dir / DATABASE, readonly=True) as store:
        made = reporting.report(RunDirectory(run_dir), store)
    assert (made.origin.branch, made.origin.url) == ("main", "../cache.git")
    # From here on slow is what is usual.
    world.night(tip="c10")
    assert world.classes() == ["first", "slower", "same"]
    assert len(world.letters.reports) == 1


def test_what_spoils_figures_or_records_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(_settings: Settings, run_dir: Path, warn: Callable[[Finding], None]) -> None:
        warn(Finding("run directory", Grade.WARN, f"{run_dir.name} is on tmpfs"))

    monkeypatch.setattr(checks, "check", check)
    world.night()
    assert "cache: warning: run directory: cache is on tmpfs" in world.told
    world.told.clear()
    world.slow_from["cache"] = "c6"
    world.night(tip="c9")
    ((_, run_dir),) = world.letters.reports
    assert f"cache: warning: run directory: {run_dir.name} is on tmpfs" in world.told


def test_a_tip_of_another_era_is_no_regression_and_begins_a_new_history(world: World) -> None:
    """KVM is gone, say: everything is slower."""
    bench, era = world.engines["cache"], [ERA]
    bench.also = lambda _, made: replace(made, era=era[0])
    world.night()
    era[0], bench.slow_iops = UPGRADED, bench.slow_iops / 8
    for tip in ("c3", "c4"):
        world.night(tip=tip)
    assert world.measured() == ["c2", "c3", "c4"]
    assert world.classes() == ["first", "first", "same"]
    said = f"cache: {fakes.HOST} changed since trial 1: QEMU 7.2.22 → 7.2.23; a new history begins there"
    assert [text for text in world.told if "changed" in text] == [said]
    assert [one.measured.era for one in world.history().nights if one.measured] == [
        ERA.digest, UPGRADED.digest, UPGRADED.digest,
    ]  # fmt: skip


def test_recovery_is_usual_from_the_second_time_on_where_regressions_are_wanted(world: World) -> None:
    world.slow_from["cache"] = "c0"
    world.night()
    world.slow_from.clear()
    for tip in ("c3", "c4", "c5"):
        world.night(tip=tip)
    assert world.measured() == ["c2", "c3", "c4", "c5"]
    assert world.classes() == ["first", "faster", "faster", "same"]


def test_recovery_is_bisected_where_both_are_wanted(world: World) -> None:
    world.extra = {"cache": 'direction = "both"'}
    engine = world.engines["cache"]
    engine.slow_iops, engine.fast_iops = fakes.SLOW_IOPS, fakes.FAST_IOPS
    world.slow_from["cache"] = "c4"  # fast from there on
    world.night()
    world.night(tip="c5")
    assert world.name_of(world.concluded.first_sha) == "c4"


def test_threshold_of_the_settings_draws_the_line(world: World) -> None:
    world.settings += "\nbisect.threshold = 3900"
    world.engines["cache"].fast_iops = 3_800.0
    world.slower("c5", "c8")
    world.night()
    assert world.classes() == ["first", "slower"]


def test_change_that_is_not_seen_again_is_no_answer(world: World) -> None:
    world.night()
    engine = world.engines["cache"]
    once = world.push("cache", "c9")
    engine.is_new = lambda sha: sha == once and engine.measured.count(sha) == 1
    assert world.night() is NightEnding.DONE
    history = world.history()
    assert world.classes() == ["first", "slower"]
    assert [one.state for one in history.nights[-1].concluded] == [State.FAILED]
    assert history.reference is not None
    assert history.reference.value == fakes.FAST_IOPS
    assert [job for job, _, _ in world.letters.notices] == ["cache"]
    assert not world.letters.reports


def test_newest_tag_is_measured_once_and_compared_with(make_world: Make) -> None:
    world = make_world(extra={"cache": 'range = "newest-tag"'})
    for tag, name in (("v1", "c0"), ("v2", "c1"), ("other", "c2")):
        histories.git(world.path / "cache.git", "tag", tag, world.shas[name])
    world.slow_from["cache"] = "c2"
    world.night()
    assert world.measured()[:2] == ["c1", "c2"]
    assert world.name_of(world.concluded.first_sha) == "c2"
    world.push("cache", "c3")
    histories.git(world.path / "cache.git", "tag", "v3", world.shas["c3"])  # the tip is not compared with itself
    before = len(world.measured())
    world.night()
    assert world.measured()[before:] == ["c3"]
    assert histories.git(world.path / "cache", "tag") == ""


@pytest.mark.parametrize("odd", ["v9\u2028", "v9\u0085x"])
def test_tag_whose_name_has_a_line_separator_in_it(make_world: Make, odd: str) -> None:
    """git takes these in a name, and ends no line at them."""
    world = make_world(extra={"cache": 'range = "newest-tag"'})
    for tag, name in (("v1", "c0"), (odd, "c1")):
        histories.git(world.path / "cache.git", "tag", tag, world.shas[name])
    world.night()
    assert world.measured() == ["c1", "c2"]
    assert world.history().nights[-1].done


def test_nothing_of_the_persons_clone_is_touched(world: World) -> None:
    clone = world.path / "cache"
    for reference in ("tags/mine", "heads/mine", "remotes/origin/gone"):
        histories.git(clone, "fetch", "-q", "--no-tags", "origin", f"main:refs/{reference}")
    (clone / ".git" / "FETCH_HEAD").unlink()
    world.extra = {"cache": 'range = "newest-tag"'}
    histories.git(world.path / "cache.git", "tag", "v1", world.shas["c1"])
    before = histories.git(clone, "for-each-ref", "refs/heads", "refs/remotes", "refs/tags")
    world.push("cache", "c5")
    histories.git(world.path / "cache.git", "tag", "v9", world.shas["c4"])
    world.night()
    assert histories.git(clone, "for-each-ref", "refs/heads", "refs/remotes", "refs/tags") == before
    assert histories.git(clone, "status", "--porcelain") == ""
    assert not (clone / ".git" / "FETCH_HEAD").exists()
    assert histories.git(clone, "rev-parse", "refs/by-bisector/nightly/cache/tip") == world.shas["c5"]


def test_a_night_measures_an_answer_of_counted_time_by_the_hosts_clock_too(world: World) -> None:
    world.settings += '\nmachine.clock = "instructions"\nstorage.stack = "ram+ext4"\nbisect.confirm_by = "host"'
    engine = world.engines["cache"]
    engine.setup = options.load({"storage.stack": "ram+ext4"}, directory=Path("/")).settings.setup
    # What a comparison measures with is said with each request; the others are counted.
    engine.also = lambda request, made: fakes.counted(made, request) if request.settings is None else made
    world.slower("c4", "c6")
    assert world.night() is NightEnding.DONE
    concluded = world.concluded
    assert (concluded.state, world.name_of(concluded.first_sha)) == (State.FOUND, "c4")
    with Store.open(concluded.run_dir / CONFIRMED / DATABASE, readonly=True) as store:
        assert store.plan is not None
        assert [world.name_of(arm.commit.sha) for arm in store.plan.arms] == ["c3", "c4"]
        assert Blocks.of(store.plan, store).count(BlockState.DONE) == 6
