"""Whole nights: what is measured, what is bisected, what is told, and what a kill leaves to the next night."""

import errno
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bisector.cli import main
from bisector.config import Settings
from bisector.core.deadline import Deadline
from bisector.core.errors import Finding, Grade, InfraError, Interrupted
from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.doctor import checks
from bisector.git.command import Answer, Door
from bisector.nightly import night
from bisector.nightly.replay import Class
from bisector.nightly.trouble import NightOver, until
from bisector.store.nights import (
    HISTORY,
    Begun,
    BisectionBegun,
    Concluded,
    Done,
    Ending,
    Fact,
    Letter,
    Measurement,
    NightRecord,
    Tip,
    nights_home,
)
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.git import histories
from tests.nightly.conftest import Make, World

_KILLED = "bisector nightly: the last night ended without a word"


def test_first_night_measures_the_tip_once(world: World) -> None:
    assert world.night() is Ending.DONE
    assert world.measured() == ["c2"]
    assert world.classes() == ["first"]


def test_nothing_new_costs_one_fetch_and_one_trial(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    door = Door.__call__

    def listening(self: Door, *words: str, **how: Any) -> Answer:
        asked.append(words[0])
        return door(self, *words, **how)

    world.night()
    world.push("cache", "c5")
    monkeypatch.setattr(Door, "__call__", listening)
    world.night()
    assert world.measured() == ["c2", "c5"]
    assert asked.count("fetch") == 1
    assert "ls-remote" not in asked
    assert world.classes() == ["first", "same"]


def test_tips_are_trials_in_a_store_of_their_job(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """With those of other nights, as long as the job is measured alike; the history shows their figures."""
    for tip in ("c2", "c5"):
        world.push("cache", tip)
        world.night()
    world.settings += "\nworkload.file_size = '40MiB'"
    world.night()
    measured = [event.fact for event in world.events() if isinstance(event.fact, Measurement)]
    first, second, third = (one.run_dir for one in measured)
    assert first == second != third
    assert [one.n for one in measured] == [1, 2, 1]
    assert all((one.directory.parent.parent / "record.sqlite").is_file() for one in measured)
    assert [figure.value for figure in measured[1].figures if figure.run == "full"] == [fakes.FAST_IOPS, 8_000.0]
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


def test_same_tip_costs_no_trial(world: World) -> None:
    world.night()
    assert world.night() is Ending.DONE
    assert world.measured() == ["c2"]
    assert world.story().nights[-1].done


def test_change_is_bisected_and_told(world: World) -> None:
    world.settings = ""
    world.night()
    world.slow_from["cache"] = "c6"
    world.push("cache", "c9")
    assert world.night() is Ending.DONE
    ((_, run_dir),) = world.letters.reports
    concluded = world.story().nights[-1].concluded[0]
    assert (concluded.state, world.name_of(concluded.first_sha)) == (State.FOUND, "c6")
    assert (concluded.run_dir, concluded.new_value) == (run_dir, fakes.SLOW_IOPS)
    # From here on slow is what is usual.
    world.push("cache", "c10")
    world.night()
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
    world.push("cache", "c9")
    world.night()
    ((_, run_dir),) = world.letters.reports
    assert f"cache: warning: run directory: {run_dir.name} is on tmpfs" in world.told


def test_recovery_is_not_bisected_where_regressions_are_wanted(world: World) -> None:
    world.slow_from["cache"] = "c0"
    world.night()
    world.slow_from.clear()
    for tip in ("c3", "c4", "c5"):
        world.push("cache", tip)
        world.night()
    assert world.measured() == ["c2", "c3", "c4", "c5"]
    assert world.classes() == ["first", "faster", "faster", "same"]


def test_recovery_is_bisected_where_both_are_wanted(world: World) -> None:
    world.extra = {"cache": 'direction = "both"'}
    engine = world.engines["cache"]
    engine.slow_iops, engine.fast_iops = fakes.SLOW_IOPS, fakes.FAST_IOPS
    world.slow_from["cache"] = "c4"  # fast from there on
    world.night()
    world.push("cache", "c5")
    world.night()
    concluded = world.story().nights[-1].concluded[0]
    assert world.name_of(concluded.first_sha) == "c4"


def test_threshold_of_the_settings_draws_the_line(world: World) -> None:
    world.settings += "\nbisect.threshold = 3900"
    world.engines["cache"].fast_iops = 3_800.0
    world.night()
    world.slow_from["cache"] = "c5"
    world.push("cache", "c8")
    world.night()
    assert world.classes() == ["first", "slower"]


def test_change_that_is_not_seen_again_is_no_answer(world: World) -> None:
    world.night()
    engine = world.engines["cache"]
    once = world.push("cache", "c9")
    engine.is_new = lambda sha: sha == once and engine.measured.count(sha) == 1
    assert world.night() is Ending.DONE
    story = world.story()
    assert world.classes() == ["first", "slower"]
    assert [one.state for one in story.nights[-1].concluded] == [State.FAILED]
    assert story.reference is not None
    assert story.reference.value == fakes.FAST_IOPS
    assert [job for job, _, _ in world.letters.notices] == ["cache"]
    assert not world.letters.reports


def test_killed_before_it_knew_that_the_ends_do_not_reproduce(world: World) -> None:
    world.night()
    engine = world.engines["cache"]
    once = world.push("cache", "c9")
    engine.is_new = lambda sha: sha == once and engine.measured.count(sha) == 1
    with pytest.raises(fakes.Killed):
        world.night(("cache", Concluded))
    world.night()
    subjects = [subject for _, subject, _ in world.letters.notices]
    assert subjects == [_KILLED, "bisector nightly: cache: bisection failed"]
    assert world.measured() == ["c2", "c9", "c2", "c9"]


def test_newest_tag_is_measured_once_and_compared_with(make_world: Make) -> None:
    world = make_world(extra={"cache": 'range = "newest-tag"'})
    for tag, name in (("v1", "c0"), ("v2", "c1"), ("other", "c2")):
        histories.git(world.path / "cache.git", "tag", tag, world.shas[name])
    world.slow_from["cache"] = "c2"
    world.night()
    assert world.measured()[:2] == ["c1", "c2"]
    concluded = world.story().nights[-1].concluded[0]
    assert world.name_of(concluded.first_sha) == "c2"
    world.push("cache", "c3")
    histories.git(world.path / "cache.git", "tag", "v3", world.shas["c3"])  # the tip is not compared with itself
    before = len(world.measured())
    world.night()
    assert world.measured()[before:] == ["c3"]
    assert histories.git(world.path / "cache", "tag") == ""


@pytest.mark.parametrize("odd", ["v9\u2028", "v9\u0085x", "v9\u2029"])
def test_tag_whose_name_has_a_line_separator_in_it(make_world: Make, odd: str) -> None:
    """git takes these in a name, and ends no line at them."""
    world = make_world(extra={"cache": 'range = "newest-tag"'})
    for tag, name in (("v1", "c0"), (odd, "c1")):
        histories.git(world.path / "cache.git", "tag", tag, world.shas[name])
    world.night()
    assert world.measured() == ["c1", "c2"]
    assert world.story().nights[-1].done


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


def test_reference_outlives_a_rebase_and_garbage_collection(world: World) -> None:
    world.push("cache", "c5")
    world.night()
    world.push("cache", "c6")
    world.night()
    # A person's own `git bisect start` removes all references that begin with refs/bisect.
    histories.git(world.path / "cache", "update-ref", "refs/heads/main", world.shas["c6"])
    histories.git(world.path / "cache", "bisect", "start")
    keep = histories.git(world.path / "cache", "rev-parse", "refs/by-bisector/nightly/cache/reference")
    assert keep == world.shas["c5"]


# What fails


def test_job_that_fails_stops_no_other_and_is_told_once(make_world: Make) -> None:
    world = make_world(("gone", "cache"))
    (world.path / "gone.git").rename(world.path / "away.git")
    for _ in range(2):
        assert world.night() is Ending.DONE
    assert world.measured() == ["c2"]
    ((job, subject, text),) = world.letters.notices
    assert (job, subject) == ("gone", "bisector nightly: gone: fetch failed")
    assert "does not answer" in text
    (world.path / "away.git").rename(world.path / "gone.git")
    world.night()
    (world.path / "gone.git").rename(world.path / "away.git")
    world.night()
    assert len(world.letters.notices) == 2


def test_password_of_a_remote_is_told_to_nobody(world: World) -> None:
    world.extra = {"cache": 'remote = "http://me:secret@127.0.0.1:1/linux.git?private_token=secret"'}
    world.night()
    ((_, _, text),) = world.letters.notices
    assert "the remote http://127.0.0.1:1/linux.git does not answer" in text
    assert "secret" not in "".join((text, *world.told, *(str(event) for event in world.events())))


def test_what_nobody_could_be_told_is_told_the_next_night(world: World) -> None:
    world.letters.mute = True
    world.extra = {"cache": 'remote = "nowhere"'}
    world.night()
    world.letters.mute = False
    for _ in range(2):
        world.night()
    assert len(world.letters.notices) == 1


def test_tip_that_does_not_build_is_told_once_and_compared_with_nothing(world: World) -> None:
    world.night()
    engine = world.engines["cache"]
    for tip in ("c4", "c5"):
        engine.faults = {**engine.faults, world.push("cache", tip): fakes.BUILD_ERROR}
        world.night()
    assert world.classes() == ["first", "untestable", "untestable"]
    assert len(world.letters.notices) == 1
    world.night()
    assert world.measured() == ["c2", "c4", "c5"]


def test_weak_evidence_is_measured_again(world: World) -> None:
    world.engines["cache"].busy = {world.shas["c2"]: 2}
    world.night()
    assert world.measured() == ["c2"] * 3
    assert world.classes() == ["first"]


def test_trouble_of_ours_is_tried_again(world: World) -> None:
    world.engines["cache"].infra = {world.shas["c2"]: 2}
    world.night()
    assert world.classes() == ["first"]
    assert not world.letters.notices


def test_branch_that_was_reset_is_told_and_gone_on_from(world: World) -> None:
    world.push("cache", "c9")
    world.night()
    world.slow_from["cache"] = "c1"
    world.push("cache", "c4")
    world.night()
    ((_, _, text),) = world.letters.notices
    assert "swapped" in text
    world.push("cache", "c5")
    world.night()
    assert world.classes() == ["first", "slower", "same"]


def test_bisection_that_fails_each_night_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.night()
    world.slow_from["cache"] = "c6"
    world.push("cache", "c9")

    def fails(*_: object) -> None:
        raise InfraError("no room on the disk")

    monkeypatch.setattr("bisector.bisect.session.go_on", fails)
    for _ in range(3):
        world.night()
    assert world.story().open is None
    (_, _, first), (_, _, last) = world.letters.notices
    assert first.startswith("no room on the disk")
    run_dir = world.story().nights[-1].concluded[0].run_dir
    assert last.startswith(
        f"given up after 3 nights: no room on the disk\n\nbisector resume --run-dir {run_dir} goes on with it all the "
        f"same; until it is ended by bisector reset --run-dir {run_dir} its files stay, and its references in "
    )
    world.push("cache", "c10")
    world.night()
    assert world.classes()[-1] == "same"


def breaks(*_: object, **__: object) -> Trial:
    raise TypeError("'NoneType' object is not subscriptable\n")


def no_room(*_: object, **__: object) -> Trial:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/srv/run/trials")


@pytest.mark.parametrize(
    ("fails", "step", "message"),
    [
        (breaks, "bug", "this is a bug in bisector: TypeError: 'NoneType' object is not subscriptable"),
        (no_room, "measure", "/srv/run/trials: No space left on device"),
    ],
)
def test_whatever_one_job_meets_stops_no_other(
    make_world: Make, monkeypatch: pytest.MonkeyPatch, fails: Callable[..., Trial], step: str, message: str
) -> None:
    world = make_world(("broken", "cache"))
    monkeypatch.setattr(world.engines["broken"], "measure", fails)
    for _ in range(2):
        assert world.night() is Ending.DONE
    assert world.measured() == ["c2"]
    trouble = world.story("broken").nights[-1].trouble
    assert trouble is not None
    assert (trouble.step, trouble.message) == (step, message)
    ((job, subject, text),) = world.letters.notices
    assert (job, subject) == ("broken", f"bisector nightly: broken: {step} failed")
    assert text.startswith(message)
    written = nights_home() / "jobs" / "broken" / "traceback.txt"
    if fails is breaks:
        assert str(written) in trouble.hint
        assert "in breaks\n" in written.read_text()
    else:
        assert not written.exists()


@pytest.mark.parametrize("fails", [breaks, no_room])
def test_bisection_that_takes_all_hours_and_fails_takes_no_other_jobs_night(
    make_world: Make, monkeypatch: pytest.MonkeyPatch, fails: Callable[..., Trial]
) -> None:
    world = make_world(("cache", "other"))
    world.night()
    world.slow_from["cache"] = "c6"
    world.push("cache", "c9")
    hours_gone = False

    def fails_at_the_end(*_: object) -> None:
        nonlocal hours_gone
        hours_gone = True
        fails()

    monkeypatch.setattr("bisector.bisect.session.go_on", fails_at_the_end)
    monkeypatch.setattr(Deadline, "elapsed_s", property(lambda self: self.seconds if hours_gone else 0.0))
    for tip, reached in (("c3", []), ("c4", ["c4"]), ("c5", ["c4", "c5"])):
        hours_gone = False
        world.push("other", tip)
        world.night()
        assert world.measured("other") == ["c2", *reached]
    # The third night in which it failed was its last.
    assert [one.state for one in world.story().nights[-1].concluded] == [State.FAILED]
    assert world.story().open is None


def test_a_letter_that_nobody_can_write_ends_no_night(make_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container has no name for its user, say."""
    world = make_world(("gone", "cache"))
    (world.path / "gone.git").rename(world.path / "away.git")

    def nobody(*_: object) -> str:
        raise KeyError("getpwuid(): uid not found: 1000")

    monkeypatch.setattr(world.letters, "notice", nobody)
    with pytest.raises(fakes.Killed):
        world.night(("cache", Tip))
    world.told.clear()
    assert world.night() is Ending.DONE
    assert world.measured() == ["c2"]
    assert [text for text in world.told if "nobody could be told: this is a bug in bisector: KeyError" in text]


def test_report_that_fails_is_tried_the_next_night(world: World) -> None:
    world.night()
    world.slow_from["cache"] = "c6"
    world.push("cache", "c9")
    world.letters.mute = True
    world.night()
    assert not world.story().nights[-1].done
    world.letters.mute = False
    world.night()
    world.night()
    assert len(world.letters.reports) == 1


# Two nights, time, and kills


def test_two_nights_never_overlap(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bisector.host.locks._WAIT_S", 0.05)
    with night.only_one(nights_home()), pytest.raises(InfraError, match=r"another night is under way: process \d+"):
        world.night()


def test_stopped_in_time_and_gone_on_with_first(make_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(("first", "cache"))
    world.night()
    world.slow_from["cache"] = "c6"
    world.push("cache", "c9")
    engine = world.engines["cache"]

    def rings(sha: str) -> bool:
        if len(engine.measured) == 5:
            signal.raise_signal(signal.SIGALRM)
        return not world.fast("cache", sha)

    engine.is_new = rings
    assert world.night() is Ending.OUT_OF_TIME
    assert world.story().open is not None
    engine.is_new = lambda sha: not world.fast("cache", sha)
    world.told.clear()
    assert world.night() is Ending.DONE
    assert world.told[0].startswith("cache: going on with the bisection")
    (concluded,) = (event.fact for event in world.events() if isinstance(event.fact, Concluded))
    assert world.name_of(concluded.first_sha) == "c6"


def test_alarm_is_given_in_time() -> None:
    deadline = Deadline("the end", 0.05)
    with pytest.raises(NightOver), until(deadline):
        time.sleep(10)
    assert deadline.elapsed_s < 5
    with pytest.raises(NightOver), until(deadline):
        pytest.fail("there is no time left")
    with until(Deadline("the end", 60)):
        pass
    assert not [one.name for one in threading.enumerate() if one.name == "end of the night"]
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_an_alarm_at_the_very_end_leaves_no_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its second alarm would find no handler, and kill the process."""

    class Late(threading.Event):
        given = False

        def set(self) -> None:
            if not self.given:
                self.given = True
                signal.raise_signal(signal.SIGALRM)
            super().set()

    named = SimpleNamespace(Event=Late, Thread=threading.Thread, get_ident=threading.get_ident)
    monkeypatch.setattr("bisector.nightly.trouble.threading", named)
    with pytest.raises(NightOver), until(Deadline("the end", 60)):
        pass
    assert not [one.name for one in threading.enumerate() if one.name == "end of the night"]


def test_a_night_counts_the_hours_of_a_suspension(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slept_s = time.clock_gettime, 0.0
    monkeypatch.setattr(time, "clock_gettime", lambda which: clock(which) + slept_s)

    def suspended(sha: str) -> bool:
        nonlocal slept_s
        slept_s = 9 * 3600.0
        time.sleep(10)
        return True

    monkeypatch.setattr("bisector.nightly.trouble._LOOK_S", 0.01)
    world.engines["cache"].is_new = suspended
    assert world.night() is Ending.OUT_OF_TIME


def test_ctrl_c_is_not_the_end_of_the_night() -> None:
    with pytest.raises(KeyboardInterrupt), until(Deadline("the end", 60)):
        raise KeyboardInterrupt


def test_trial_that_is_longer_than_the_time_left_is_not_begun(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.night()
    last = world.story().last
    assert last is not None
    # Half of the night is gone, and what is left is shorter than the last trial was.
    world.budget_hours = 1.8 * last.total_s / 3600
    late = property(lambda self: 0.6 * self.seconds)
    monkeypatch.setattr(Deadline, "elapsed_s", late)
    world.push("cache", "c5")
    assert world.night() is Ending.OUT_OF_TIME
    assert world.measured() == ["c2"]
    world.budget_hours *= 10
    assert world.night() is Ending.DONE
    assert world.measured() == ["c2", "c5"]


def test_job_that_was_not_reached_comes_first(make_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(("one", "two"))
    world.budget_hours = 1e-9
    assert world.night() is Ending.OUT_OF_TIME
    assert not world.events()
    world.budget_hours = 8.0
    with pytest.raises(fakes.Killed):
        world.night(("one", Tip))
    world.told.clear()
    world.night()
    assert world.told[0].startswith("The night of ")
    assert world.told[1].startswith("two: ")


def test_a_bisection_that_kills_every_night_starves_no_job(make_world: Make) -> None:
    world = make_world(("one", "cache"))
    world.night()
    world.slow_from["cache"] = "c6"
    world.push("cache", "c9")
    engine = world.engines["cache"]
    engine.kill_at = 3
    with pytest.raises(fakes.Killed):
        world.night()
    assert world.story().open is not None
    world.push("one", "c5")
    with pytest.raises(fakes.Killed):
        world.night()
    assert world.measured("one") == ["c2", "c5"]


def test_interruption_is_recorded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(request: TrialRequest) -> Trial:
        raise KeyboardInterrupt

    monkeypatch.setattr(world.engines["cache"], "measure", interrupted)
    with pytest.raises(Interrupted):
        world.night()
    with NightRecord.open(nights_home() / HISTORY, readonly=True) as record:
        assert [one.ending for one in record.nights()] == [Ending.INTERRUPTED]


def test_killed_at_each_step(make_world: Make) -> None:
    """Three jobs, of which one changed: whatever is not recorded any more, the next nights come to the same."""
    world = make_world(("one", "cache", "two"))
    world.night()
    world.slow_from["cache"] = "c6"
    for name in world.names:
        world.push(name, "c9")
    steps: tuple[type[Fact], ...] = (Begun, Tip, Measurement, BisectionBegun, Concluded, Letter, Done)
    for step in steps:
        with pytest.raises(fakes.Killed):
            world.night(("cache", step))
    world.night()
    # Told, and killed before that was recorded: a draft is written anew, and who sends keeps a record of his own.
    assert [name for name, _ in world.letters.reports] == ["cache"] * 2
    (concluded,) = (event.fact for event in world.events() if isinstance(event.fact, Concluded))
    assert world.name_of(concluded.first_sha) == "c6"
    assert world.measured("one") == ["c2", "c9"]
    assert [world.story(name).klass for name in world.names] == [Class.SAME, Class.SLOWER, Class.SAME]
    assert all(world.story(name).nights[-1].done for name in world.names)


def test_killed_in_each_trial(world: World) -> None:
    world.night()
    world.slow_from["cache"] = "c6"
    world.push("cache", "c9")
    engine = world.engines["cache"]
    deaths = iter(range(2, 7))
    dies_at = next(deaths)

    def dies(sha: str) -> bool:
        if len(engine.measured) == dies_at:
            raise fakes.Killed
        return not world.fast("cache", sha)

    engine.is_new = dies
    while dies_at:
        with pytest.raises(fakes.Killed):
            world.night()
        engine.measured.pop()
        dies_at = next(deaths, 0)
    world.night()
    (concluded,) = (event.fact for event in world.events() if isinstance(event.fact, Concluded))
    assert world.name_of(concluded.first_sha) == "c6"
    # Nothing is measured twice but the ends, of which one was this night's tip and one an earlier one's.
    assert world.measured() == ["c2", "c9", "c2", "c9", "c5", "c7", "c6"]


def test_killed_night_is_told_by_the_next_one_once(world: World) -> None:
    with pytest.raises(fakes.Killed):
        world.night(("cache", Tip))
    for _ in range(2):
        world.night()
    assert [subject for _, subject, _ in world.letters.notices] == [_KILLED]


def test_files_of_trials_without_a_record_go(world: World) -> None:
    world.night()
    last = world.story().last
    assert last is not None
    trials = last.run_dir / "trials"
    for name in ("0001-0123456789ab", "0002-0123456789ab", "lost+found", "0003"):
        (trials / name).mkdir(parents=True)
    (trials / "0002-0123456789ac").touch()
    world.push("cache", "c5")
    assert world.night() is Ending.DONE
    assert world.story().nights[-1].done
    assert sorted(path.name for path in trials.iterdir()) == ["0002-0123456789ac", "0003", "lost+found"]


def test_killed_before_a_run_has_its_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.night()
    world.slow_from["cache"] = "c6"
    world.push("cache", "c9")

    def killed(*_: object) -> None:
        raise fakes.Killed

    with monkeypatch.context() as patch:
        patch.setattr("bisector.bisect.session.Store.create", killed)
        with pytest.raises(fakes.Killed):
            world.night()
    world.night()
    assert [world.name_of(one.first_sha) for one in world.story().nights[-1].concluded] == ["c6"]


def test_lock_of_a_killed_fetch_is_removed(world: World) -> None:
    lock = world.path / "cache" / ".git" / "refs" / "by-bisector" / "nightly" / "cache" / "tip.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    world.night()
    assert world.measured() == ["c2"]
