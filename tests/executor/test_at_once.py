"""Several jobs at a time on one host: what they share, how one is ended, and that nothing is left behind."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import pytest

from bisector.config import options
from bisector.core.events import Note
from bisector.core.subject import Commit
from bisector.core.trial import AttemptCancelled, Trial
from bisector.executor.base import Failed, Finished, Job, Progress
from bisector.executor.local import AtOnce, SharedTurn, guests_at_once, has_cpu_left
from bisector.host import locks
from bisector.host.locks import TurnPurpose
from bisector.trial.runner import Bench, TrialRequest
from tests import examples, fakes
from tests.executor.bench import bare

WAIT_S = 20.0
COUNTED = {"machine.clock": "instructions"}


def job(id_: int) -> Job:
    commit = Commit(f"{id_}" * 40, "7" * 40, "a commit", "2026-01-01T00:00:00+00:00")
    return Job(id_, TrialRequest(id_, examples.cell(commit), {}))


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[AtOnce, threading.Event]]:
    """Two at a time, whose trials tell each few milliseconds, until they are to end."""
    may_end = threading.Event()

    def measured(bench: Bench, request: TrialRequest, logs: Path) -> Trial:
        while not may_end.wait(0.005):
            bench.tell(Note(f"trial {request.n}"))
        return fakes.trial(request.commit)

    monkeypatch.setattr("bisector.executor.local.run_trial", measured)
    settings = options.load(COUNTED, directory=tmp_path).settings
    with AtOnce(bare(tmp_path, settings), 2) as made:
        yield made, may_end


def ends(executor: AtOnce, count: int) -> dict[int, Finished | Failed]:
    found: dict[int, Finished | Failed] = {}
    while len(found) < count:
        if not isinstance(news := executor.next(), Progress):
            found[news.id] = news
    return found


def test_two_jobs_are_under_way_in_one_turn_and_a_third_one_waits(executor: tuple[AtOnce, threading.Event]) -> None:
    made, may_end = executor
    made.submit(job(1))
    assert len(made.idle) == 1
    made.submit(job(2))
    assert len(made.idle) == 0
    made.submit(job(3))
    told = {cast("Progress", made.next()).event for _ in range(20)}
    while told < {Note("trial 1"), Note("trial 2")}:
        told.add(cast("Progress", made.next()).event)
    assert told == {Note("trial 1"), Note("trial 2")}
    assert locks.measurer() is not None
    may_end.set()
    assert all(isinstance(one, Finished) for one in ends(made, 3).values())
    assert locks.measurer() is None
    assert len(made.idle) == 1
    assert made.wait(None)  # without a job nothing is waited for


def test_what_is_cancelled_ends_while_the_other_goes_on(executor: tuple[AtOnce, threading.Event]) -> None:
    made, may_end = executor
    made.submit(job(1))
    made.submit(job(2))
    made.cancel(2)
    (news,) = ends(made, 1).values()
    assert isinstance(news, Failed)
    assert (news.id, type(news.error)) == (2, AttemptCancelled)
    may_end.set()
    assert isinstance(ends(made, 1)[1], Finished)


def test_a_builder_is_a_host_of_its_own_beside_the_guests(executor: tuple[AtOnce, threading.Event]) -> None:
    made, may_end = executor
    made.builder, (host,) = "builder", made.idle
    assert {*made.idle} == {host, "builder"}
    made.submit(job(1), host)
    made.submit(job(2), "builder")
    assert {*made.idle} == {host}
    made.submit(job(3), host)
    assert not {*made.idle}
    may_end.set()
    found = ends(made, 3)
    assert {id_: one.host for id_, one in found.items()} == {1: host, 2: "builder", 3: host}
    assert {*made.idle} == {host, "builder"}


def test_nothing_is_under_way_behind_it(executor: tuple[AtOnce, threading.Event]) -> None:
    made, _ = executor
    made.submit(job(1))
    with suppress(KeyboardInterrupt), made:
        made.next()
        raise KeyboardInterrupt
    assert not any(thread.name.startswith("job ") for thread in threading.enumerate())
    assert locks.measurer() is None


def test_a_bug_in_a_job_is_raised(executor: tuple[AtOnce, threading.Event], monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = executor
    monkeypatch.setattr("bisector.executor.local.run_trial", lambda *_: 1 / 0)
    made.submit(job(1))
    with pytest.raises(ZeroDivisionError):
        ends(made, 1)


def test_no_further_job_joins_a_turn_that_was_had_for_long() -> None:
    taken: list[str] = []

    @contextmanager
    def take(purpose: TurnPurpose) -> Iterator[None]:
        taken.append("taken")
        yield
        taken.append("given back")

    turn = SharedTurn(take, longest_s=0.0)

    def join() -> None:
        with turn(TurnPurpose.BUILD):
            pass

    with turn(TurnPurpose.MEASUREMENT):
        other = threading.Thread(target=join, daemon=True)
        other.start()
        other.join(0.1)
        assert (other.is_alive(), taken) == (True, ["taken"])
    other.join(WAIT_S)
    assert taken == ["taken", "given back"] * 2


def test_as_many_guests_as_the_host_has_room_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counted, at_host = (options.load(one, directory=tmp_path).settings for one in (COUNTED, {}))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    for available, guests in ((1 << 40, 4), (8 << 30, 2), (1 << 30, 1)):
        monkeypatch.setattr("bisector.vm.accelerator.available_memory_bytes", lambda there=available: there)
        assert (guests_at_once(counted), guests_at_once(at_host)) == (guests, 1)
        assert (has_cpu_left(counted, guests), has_cpu_left(at_host, 1)) == (guests < 4, False)
