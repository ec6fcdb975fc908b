"""What runs leave on a host: what goes and when, and that nothing goes under a job."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.executor.base import Finished
from bisector.executor.places import Place, Places, to_remove
from bisector.executor.spec import Key, Spec
from bisector.executor.spool import Spool, Standing
from bisector.executor.watch import Desk, Returned
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree
from bisector.store.rundir import LOCK
from tests import examples
from tests.executor import engines
from tests.executor.engines import Does, let_go, plan, reached
from tests.executor.test_watch import RUN, silent, spec
from tests.git import histories

DAY_S = 24 * 3600.0
NOW = 1_000 * DAY_S
GIB = 1 << 30


def place(name: str, days_ago: float, size_bytes: int = 0) -> Place:
    return Place(Path(name), NOW - days_ago * DAY_S, size_bytes)


@pytest.mark.parametrize(
    ("places", "gone"),
    [
        ((), []),
        ((place("a", 0, 99 * GIB),), []),
        ((place("a", 15),), ["a"]),
        ((place("old", 13, 6 * GIB), place("new", 0)), []),
        ((place("old", 13, 11 * GIB), place("new", 0)), ["old"]),
        ((place("b", 2, 6 * GIB), place("a", 1, 6 * GIB), place("new", 0), place("c", 3, GIB)), ["b", "c"]),
        ((place("b", 20), place("a", 1, 6 * GIB), place("new", 0)), ["b"]),
    ],
)
def test_places_go_by_age_and_the_room_that_they_take_together(places: tuple[Place, ...], gone: list[str]) -> None:
    found = to_remove(places, NOW, kept_s=14 * DAY_S, kept_bytes=10 * GIB)
    assert [str(run) for run in found] == gone


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


@pytest.fixture
def desk(spool: Spool) -> Iterator[Desk]:
    made = Desk(spool, engines.FAKE, Path("/nowhere.git"), grace_s=1.0)
    yield made
    for entry in spool.entries():
        if (runner := entry.runner()) is not None and runner.lives:
            os.kill(runner.pid, signal.SIGKILL)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


def done(desk: Desk, work: Spec) -> None:
    returned = desk.watch(work, silent)
    assert isinstance(returned, Returned)
    assert isinstance(returned.news, Finished)


def left(spool: Spool, run: str, days_ago: float, now: float) -> Path:
    """The place of a run, used last so many days ago."""
    made = spool.home / run / "place"
    (made / "build").mkdir(parents=True)
    (made / "build" / "vmlinux").write_bytes(bytes(100_000))
    (made / LOCK).touch()
    os.utime(made / LOCK, (now - days_ago * DAY_S,) * 2)
    return made


def test_of_a_run_that_is_over_nothing_is_left(desk: Desk, spool: Spool) -> None:
    done(desk, spec())
    done(desk, spec(8))
    desk.acknowledge(Key(RUN, 7))
    assert (spool.home / RUN / "place").is_dir()
    desk.over(Key(RUN, 0))
    assert not (spool.home / RUN).exists()
    desk.over(Key(RUN, 0))
    desk.over(Key("..", 0))
    assert not (spool.home.parent / "over").exists()
    done(desk, spec(9))
    assert spool.held() == {RUN: {9: Standing.DONE}}


def test_a_job_of_a_run_that_is_over_is_ended_first(desk: Desk, spool: Spool, pool: ThreadPoolExecutor) -> None:
    plan(spool.home, job_7=Does.HANGS)
    watcher = pool.submit(desk.watch, spec(), silent)
    Deadline("a job that hangs", engines.WAIT_S).poll(lambda: (spool.home / "hanging").exists() or None, 0.01)
    desk.over(Key(RUN, 0))
    watcher.result(engines.WAIT_S)
    assert not (spool.home / RUN).exists()


def test_nothing_is_removed_while_a_job_is_under_way(desk: Desk, spool: Spool, pool: ThreadPoolExecutor) -> None:
    plan(spool.home, job_7=engines.BEGUN)
    watcher = pool.submit(desk.watch, spec(), silent)
    reached(spool.home, 7, engines.BEGUN)
    other = left(spool, "other", 100, NOW)
    desk.over(Key("other", 0))
    assert not desk.tidy()
    assert other.is_dir()
    assert (spool.home / RUN / "place").is_dir()
    let_go(spool.home, 7, engines.BEGUN)
    watcher.result(engines.WAIT_S)
    desk.acknowledge(Key(RUN, 7))
    assert not other.parent.exists()
    assert (spool.home / RUN / "place").is_dir()


def test_a_run_that_goes_on_after_all_keeps_its_place(desk: Desk, spool: Spool) -> None:
    done(desk, spec())
    (spool.home / RUN / "over").touch()
    plan(spool.home)
    done(desk, spec(8))
    assert (spool.home / RUN / "place").is_dir()
    assert spool.held() == {RUN: {7: Standing.DONE, 8: Standing.DONE}}


def test_what_nobody_uses_goes_and_its_results_stay(spool: Spool) -> None:
    places, swept = Places(spool, Path("/nowhere.git")), list[Path]()
    old, new = left(spool, "old", 15, NOW), left(spool, "new", 1, NOW)
    (spool.home / "old" / "3").mkdir()
    (spool.home / "old" / "3" / "spec").touch()
    half = spool.home / "new" / ".gone-place"
    half.mkdir()
    told = places.clear(NOW, swept.append)
    assert (swept, old.exists(), half.exists(), new.is_dir()) == ([old], False, False, True)
    assert told == ("sources and build of run old are removed: unused, or too much",)
    assert spool.held() == {"old": {3: Standing.LOST}}


def test_sizes_are_those_of_the_disk(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places(spool, Path("/nowhere.git"))
    one, two, new = (left(spool, name, days, NOW) for name, days in (("one", 1), ("two", 2), ("new", 0)))
    monkeypatch.setattr(to_remove, "__defaults__", (14 * DAY_S, 150_000))
    places.clear(NOW, lambda place: None)
    assert [path.exists() for path in (one, two, new)] == [True, False, True]


def test_the_clone_forgets_the_sources_too(spool: Spool, tmp_path: Path) -> None:
    shas = histories.build(tmp_path / "linux", histories.linear(2))
    made = left(spool, "old", 15, NOW)
    with closing(Repository.open(tmp_path / "linux", run_marker=made)) as repository:
        with SourceTree(repository, made, keep=True) as source:
            source.checkout(replace(examples.commit(1), sha=shas["c1"]))
        assert len(repository.ask("worktree", "list").lines) == 2
        Places(spool, tmp_path / "linux").clear(NOW, lambda place: None)
        assert len(repository.ask("worktree", "list").lines) == 1
    assert not made.exists()
