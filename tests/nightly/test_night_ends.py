"""Nights that end: by time, by a kill at any step, and what the next one does."""

import signal
import threading
import time
from types import SimpleNamespace

import pytest

from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError, Interrupted
from bisector.nightly import night
from bisector.nightly.job_history import TipResult
from bisector.nightly.trouble import NightOver, until
from bisector.store.log import DATABASE
from bisector.store.nights import (
    BisectionBegun,
    BisectionConcluded,
    JobBegun,
    JobDone,
    JobFact,
    LetterTold,
    Measurement,
    NightEnding,
    NightRecord,
    Tip,
    nights_home,
)
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.nightly.conftest import Make, World

_KILLED = "bisector nightly: the last night ended without a word"


def test_killed_before_it_knew_that_the_ends_do_not_reproduce(world: World) -> None:
    world.night()
    engine = world.engines["cache"]
    once = world.push("cache", "c9")
    engine.is_new = lambda sha: sha == once and engine.measured.count(sha) == 1
    with pytest.raises(fakes.Killed):
        world.night(("cache", BisectionConcluded))
    world.night()
    subjects = [subject for _, subject, _ in world.letters.notices]
    assert subjects == [_KILLED, "bisector nightly: cache: bisection failed"]
    assert world.measured()[:4] == ["c2", "c9", "c2", "c9"]
    assert sorted(world.measured()[4:]) == ["c2", "c9"]  # until they are known to be the same


def test_two_nights_never_overlap(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bisector.host.locks._WAIT_S", 0.05)
    with night.only_one(nights_home()), pytest.raises(InfraError, match=r"another night is under way: process \d+"):
        world.night()


def test_stopped_in_time_and_gone_on_with_first(make_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(("first", "cache"))
    world.slower()
    engine = world.engines["cache"]

    def rings(sha: str) -> bool:
        if len(engine.measured) == 5:
            signal.raise_signal(signal.SIGALRM)
        return not world.fast("cache", sha)

    engine.is_new = rings
    assert world.night() is NightEnding.OUT_OF_TIME
    assert world.history().open is not None
    engine.is_new = lambda sha: not world.fast("cache", sha)
    world.told.clear()
    assert world.night() is NightEnding.DONE
    assert world.told[0].startswith("cache: going on with the bisection")
    assert world.name_of(world.concluded.first_sha) == "c6"


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
    assert world.night() is NightEnding.OUT_OF_TIME


def test_trial_that_is_longer_than_the_time_left_is_not_begun(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.night()
    last = world.history().last
    assert last is not None
    # Half of the night is gone, and what is left is shorter than the last trial was.
    world.budget_hours = 1.8 * last.total_s / 3600
    late = property(lambda self: 0.6 * self.seconds)
    monkeypatch.setattr(Deadline, "elapsed_s", late)
    assert world.night(tip="c5") is NightEnding.OUT_OF_TIME
    assert world.measured() == ["c2"]
    world.budget_hours *= 10
    assert world.night() is NightEnding.DONE
    assert world.measured() == ["c2", "c5"]


def test_job_that_was_not_reached_comes_first(make_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(("one", "two"))
    world.budget_hours = 1e-9
    assert world.night() is NightEnding.OUT_OF_TIME
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
    world.slower()
    engine = world.engines["cache"]
    engine.kill_at = 3
    with pytest.raises(fakes.Killed):
        world.night()
    assert world.history().open is not None
    world.push("one", "c5")
    with pytest.raises(fakes.Killed):
        world.night()
    assert world.measured("one") == ["c2", "c5"]


def test_interruption_is_recorded(world: World) -> None:
    def interrupted(request: TrialRequest) -> None:
        raise KeyboardInterrupt

    world.engines["cache"].before = interrupted
    with pytest.raises(Interrupted):
        world.night()
    with NightRecord.open(nights_home() / DATABASE, readonly=True) as record:
        assert [one.ending for one in record.nights()] == [NightEnding.INTERRUPTED]


def test_killed_at_each_step(make_world: Make) -> None:
    """Three jobs, of which one changed: whatever is not recorded any more, the next nights come to the same."""
    world = make_world(("one", "cache", "two"))
    world.night()
    world.slow_from["cache"] = "c6"
    for name in world.names:
        world.push(name, "c9")
    steps: tuple[type[JobFact], ...] = (
        JobBegun,
        Tip,
        Measurement,
        BisectionBegun,
        BisectionConcluded,
        LetterTold,
        JobDone,
    )
    for step in steps:
        with pytest.raises(fakes.Killed):
            world.night(("cache", step))
    world.night()
    # Told, and killed before that was recorded: a draft is written anew, and who sends keeps a record of his own.
    assert [name for name, _ in world.letters.reports] == ["cache"] * 2
    assert world.name_of(world.concluded.first_sha) == "c6"
    assert world.measured("one") == ["c2", "c9"]
    assert [world.history(name).result for name in world.names] == [TipResult.SAME, TipResult.SLOWER, TipResult.SAME]
    assert all(world.history(name).nights[-1].done for name in world.names)


def test_killed_in_each_trial(world: World) -> None:
    world.slower()
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
    assert world.name_of(world.concluded.first_sha) == "c6"
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
    last = world.history().last
    assert last is not None
    trials = last.run_dir / "trials"
    for name in ("0001-0123456789ab", "0002-0123456789ab", "lost+found", "0003"):
        (trials / name).mkdir(parents=True)
    (trials / "0002-0123456789ac").touch()
    assert world.night(tip="c5") is NightEnding.DONE
    assert world.history().nights[-1].done
    assert sorted(path.name for path in trials.iterdir()) == ["0002-0123456789ac", "0003", "lost+found"]


def test_killed_before_a_run_has_its_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.slower()

    def killed(*_: object, **__: object) -> None:
        raise fakes.Killed

    with monkeypatch.context() as patch:
        patch.setattr("bisector.bisect.session.Store.create", killed)
        with pytest.raises(fakes.Killed):
            world.night()
    world.night()
    assert [world.name_of(one.first_sha) for one in world.history().nights[-1].concluded] == ["c6"]


def test_lock_of_a_killed_fetch_is_removed(world: World) -> None:
    lock = world.path / "cache" / ".git" / "refs" / "by-bisector" / "nightly" / "cache" / "tip.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    world.night()
    assert world.measured() == ["c2"]
