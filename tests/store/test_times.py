"""How long processes were at it, from planted records."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from bisector.core.verdict import State
from bisector.store.facts import Ended, Ending, Fact, StateChange, Submitted, Work
from bisector.store.log import DATABASE
from bisector.store.store import Store, build_seconds, process_s
from tests.examples import commit
from tests.store import examples

START = datetime.fromisoformat("2026-03-01T10:00:00+00:00")
TRIAL, BUILD = Submitted(Work.TRIAL, commit(1).sha, 1), Submitted(Work.BUILD, commit(1).sha)
Record = Callable[..., int]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / DATABASE, examples.bisection()) as made:
        yield made


@pytest.fixture
def record(store: Store, monkeypatch: pytest.MonkeyPatch) -> Record:
    """Adds facts, or a state, at a second of the record, its wall clock ``wrong_s`` ahead; the last one's number."""

    def add(
        at_s: float, *facts: Fact, state: State | None = None, pid: int = 1, wrong_s: float = 0.0, boot: str = "a"
    ) -> int:
        at = (START + timedelta(seconds=at_s + wrong_s)).isoformat()
        monkeypatch.setattr("bisector.store.log.now", lambda: at)
        monkeypatch.setattr("bisector.store.log.since_boot_s", lambda: 5000.0 + at_s)
        monkeypatch.setattr("bisector.store.log.boot_id", lambda: boot)
        added = (*facts, *([StateChange(at, state, "", pid)] if state is not None else []))
        return store.add(*added) + len(added) - 1

    return add


def test_pauses_between_processes_are_none_of_it(store: Store, record: Record) -> None:
    assert process_s(store.log) == 0.0
    record(0, state=State.RUNNING)
    trial = record(10, TRIAL)
    record(70, Ended(trial, Ending.DONE))
    record(75, state=State.STOPPED)
    assert process_s(store.log) == 75.0
    record(1000, state=State.RUNNING, pid=2)
    record(1030, state=State.MEASURED, pid=2)
    assert process_s(store.log) == 105.0


def test_a_killed_process_counts_up_to_its_last_fact(store: Store, record: Record) -> None:
    record(0, state=State.RUNNING)
    trial = record(10, TRIAL)
    second = record(70, Ended(trial, Ending.DONE), TRIAL)
    record(500, state=State.STOPPED, pid=9)  # another one says so, long after
    assert process_s(store.log) == 70.0
    record(1000, state=State.RUNNING, pid=2)
    record(1001, Ended(second, Ending.LOST))
    record(1060, state=State.MEASURED, pid=2)
    assert process_s(store.log) == 130.0


def test_builds_are_from_submission_to_end(store: Store, record: Record) -> None:
    build = record(0, BUILD)
    lost = record(100, Ended(build, Ending.DONE), BUILD)
    trial = record(150, Ended(lost, Ending.LOST), TRIAL)
    record(400, Ended(trial, Ending.DONE), BUILD)
    assert build_seconds(store.log) == 100.0


@pytest.mark.parametrize("wrong_s", [86_400.0, -86_400.0])
def test_a_clock_that_is_set_spends_no_budget(store: Store, record: Record, wrong_s: float) -> None:
    record(0, state=State.RUNNING)
    trial = record(10, TRIAL)
    build = record(50, Ended(trial, Ending.DONE), BUILD, wrong_s=wrong_s)
    record(70, Ended(build, Ending.DONE))  # it was set right again
    assert (store.spent_s(), build_seconds(store.log)) == (60.0, 20.0)
    assert process_s(store.log) == 70.0  # killed
    record(100, state=State.RUNNING, pid=2, wrong_s=wrong_s)
    record(130, state=State.MEASURED, pid=2)
    assert process_s(store.log) == 100.0


@pytest.mark.parametrize(("wrong_s", "spent_s"), [(5.0, 45.0), (-86_400.0, 0.0)])
def test_across_a_boot_there_is_only_the_wall_clock(
    store: Store, record: Record, wrong_s: float, spent_s: float
) -> None:
    trial = record(10, TRIAL)
    record(50, Ended(trial, Ending.DONE), wrong_s=wrong_s, boot="b")
    assert store.spent_s() == spent_s


@pytest.mark.parametrize(("ending", "spent_s"), [(Ending.DONE, 90.0), (Ending.FAILED, 90.0), (Ending.LOST, 0.0)])
def test_time_is_spent_between_a_submission_and_its_end(
    store: Store, record: Record, ending: Ending, spent_s: float
) -> None:
    trial = record(0, TRIAL)
    assert store.spent_s() == 0.0
    record(90, Ended(trial, ending))
    assert store.spent_s() == spent_s


def test_of_several_hosts_the_one_that_works_most_counts_and_several_jobs_at_a_time_count_once(
    store: Store, record: Record
) -> None:
    """A budget is of a night, which is as long for four hosts as for one."""
    here, there = (replace(TRIAL, host=host) for host in ("one", "two"))
    first = record(0, here)
    within = record(10, here)
    other = record(15, there)
    record(20, Ended(within, Ending.DONE))
    longer = record(30, here)
    record(50, Ended(first, Ending.DONE))
    record(70, Ended(longer, Ending.DONE), Ended(other, Ending.DONE))
    alone = record(80, here)
    record(85, Ended(alone, Ending.DONE))
    assert store.spent_s() == 75.0
    anywhere = record(90, TRIAL)
    record(95, Ended(anywhere, Ending.DONE))
    assert store.spent_s() == 75.0 + 5.0  # whichever host it was
