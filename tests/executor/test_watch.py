"""A job's process and its watchers, with real processes and a measurement that takes no time."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.core.errors import AttemptCancelled, AttemptFailed, BisectorError, UserError
from bisector.core.events import Event, LiveSample, StageStarted
from bisector.core.objective import Objective
from bisector.core.trial import Stage, Trial
from bisector.executor import watch
from bisector.executor.base import Failed, Finished, Job
from bisector.executor.spec import Input, Key, Spec
from bisector.executor.spool import Spool, Standing
from bisector.executor.watch import Declined, Desk, Returned
from bisector.host import process
from bisector.host.load import host_id
from bisector.store.run_files import INPUTS
from bisector.trial.runner import TrialRequest
from tests import examples
from tests.executor import engines
from tests.executor.bench import COMMIT, settings_of
from tests.executor.engines import Does, let_go, plan, reached

RUN = "20260301-v1..v2-0a1b2c"


def spec(id_: int = 7, stack: str = "lvmcache", number: int = 7, deadline_s: float = 60.0) -> Spec:
    request = TrialRequest(id_, examples.cell(examples.commit(number)), {})
    return replace(Spec.of(RUN, Job(id_, request), settings_of(stack)), deadline_s=deadline_s)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def desk(spool: Path) -> Iterator[Desk]:
    made = Desk(Spool(spool), engines.FAKE, Path("/nowhere.git"), grace_s=1.0)
    yield made
    for entry in made.spool.entries():
        if (runner := entry.runner()) is not None and runner.lives:
            os.kill(runner.pid, signal.SIGKILL)
        process.reap(entry.place)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


def silent(event: Event) -> None:
    pass


def watched(desk: Desk, work: Spec | Key) -> Finished | Failed:
    returned = desk.watch(work, silent)
    assert isinstance(returned, Returned)
    return returned.news


def trouble(news: Finished | Failed) -> BisectorError:
    assert isinstance(news, Failed)
    return news.error


def test_a_job_is_done_in_a_process_of_its_own_and_its_files_come_with_it(desk: Desk, tmp_path: Path) -> None:
    told: list[Event] = []
    returned = desk.watch(spec(), told.append)
    assert isinstance(returned, Returned)
    trial = returned.news.result if isinstance(returned.news, Finished) else None
    assert isinstance(trial, Trial)
    assert Objective().value(trial.runs[-1]) == engines.figure(COMMIT.sha, host_id(), 7)
    assert [type(one) for one in told] == [StageStarted, LiveSample]
    assert returned.files is not None
    returned.files.unpack(tmp_path)
    assert [one.name for one in trial.artifacts] == ["console.log", "full/fio.json"]
    for one in trial.artifacts:
        assert (tmp_path / one.path).stat().st_size == one.size_bytes
    assert not list(desk.spool.entry(Key(RUN, 7)).place.glob("trials/*"))


def test_a_job_is_watched_again_and_done_once(desk: Desk, spool: Path) -> None:
    first = watched(desk, spec())
    assert watched(desk, spec()) == watched(desk, Key(RUN, 7)) == first
    assert engines.runs(spool, 7) == 1
    assert desk.spool.held() == {RUN: {7: Standing.DONE}}


def test_a_place_that_another_process_removes_meanwhile_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_dir", lambda self: True)  # as it was a moment ago
    assert watch._swept(tmp_path / "gone") == 0


def test_what_is_acknowledged_is_forgotten(desk: Desk) -> None:
    watched(desk, spec())
    desk.acknowledge(Key(RUN, 7))
    desk.acknowledge(Key(RUN, 7))
    assert desk.spool.held() == {}
    assert "not known" in str(trouble(watched(desk, Key(RUN, 7))))


@pytest.mark.parametrize(("other", "told"), [(spec(stack="hdd"), "settings"), (spec(number=8), "work")])
def test_other_work_of_the_same_number_is_refused(desk: Desk, spool: Path, other: Spec, told: str) -> None:
    watched(desk, spec())
    error = trouble(watched(desk, other))
    assert isinstance(error, UserError)
    assert f"other {told}" in str(error)
    assert isinstance(watched(desk, spec()), Finished)


@pytest.mark.parametrize("name", ["..", "a/b", "", ".hidden"])
def test_a_key_is_no_path(desk: Desk, name: str) -> None:
    assert isinstance(trouble(watched(desk, replace(spec(), key=Key(name, 7)))), UserError)


def test_the_spec_is_there_before_its_process(desk: Desk, spool: Path, pool: ThreadPoolExecutor) -> None:
    plan(spool, job_7=engines.BEGUN)
    watcher = pool.submit(watched, desk, spec())
    reached(spool, 7, engines.BEGUN)
    entry = desk.spool.entry(Key(RUN, 7))
    assert entry.spec() == spec()
    assert entry.standing is Standing.RUNNING
    assert (runner := entry.runner()) is not None
    assert runner.lives
    assert os.getsid(runner.pid) == runner.pid != os.getsid(0)
    let_go(spool, 7, engines.BEGUN)
    assert isinstance(watcher.result(engines.WAIT_S), Finished)
    assert not runner.lives


def test_a_watcher_that_is_called_away_leaves_the_job_to_the_next(
    desk: Desk, spool: Path, pool: ThreadPoolExecutor
) -> None:
    plan(spool, job_7=engines.MEASURED)
    watcher: Future[Returned | Declined | None] = pool.submit(desk.watch, spec(), silent)
    reached(spool, 7, engines.MEASURED)
    desk.detach()
    assert watcher.result(engines.WAIT_S) is None
    other = Desk(Spool(spool), engines.FAKE, Path("/nowhere.git"))
    again = pool.submit(watched, other, Key(RUN, 7))
    let_go(spool, 7, engines.MEASURED)
    assert isinstance(again.result(engines.WAIT_S), Finished)
    assert engines.runs(spool, 7) == 1


def test_two_watchers_hear_the_same(desk: Desk, spool: Path, pool: ThreadPoolExecutor) -> None:
    plan(spool, job_7=engines.MEASURED)
    watchers = [pool.submit(watched, desk, spec()) for _ in range(2)]
    reached(spool, 7, engines.MEASURED)
    let_go(spool, 7, engines.MEASURED)
    one, other = (watcher.result(engines.WAIT_S) for watcher in watchers)
    assert one == other
    assert engines.runs(spool, 7) == 1


@pytest.mark.parametrize("point", [engines.BEGUN, engines.MEASURED])
def test_a_job_whose_process_is_killed_is_lost_and_not_begun_again(
    desk: Desk, spool: Path, pool: ThreadPoolExecutor, point: str
) -> None:
    plan(spool, job_7=point)
    watcher = pool.submit(watched, desk, spec())
    reached(spool, 7, point)
    runner = desk.spool.entry(Key(RUN, 7)).runner()
    assert runner is not None
    os.kill(runner.pid, signal.SIGKILL)
    error = trouble(watcher.result(engines.WAIT_S))
    assert type(error) is AttemptFailed
    assert (error.host, error.trial) == (host_id(), None)
    assert desk.spool.held() == {RUN: {7: Standing.LOST}}
    assert type(trouble(watched(desk, spec()))) is AttemptFailed
    assert engines.runs(spool, 7) == 1


def test_what_was_kept_before_the_process_was_killed_counts(desk: Desk, spool: Path, pool: ThreadPoolExecutor) -> None:
    plan(spool, job_7=engines.KEPT)
    watcher = pool.submit(watched, desk, spec())
    reached(spool, 7, engines.KEPT)
    runner = desk.spool.entry(Key(RUN, 7)).runner()
    assert runner is not None
    os.kill(runner.pid, signal.SIGKILL)
    assert isinstance(watcher.result(engines.WAIT_S), Finished)


def test_a_process_that_dies_says_its_last_words(desk: Desk, spool: Path) -> None:
    plan(spool, job_7=Does.DIES)
    assert "killed by the OOM killer" in str(trouble(watched(desk, spec())))


def test_trouble_of_the_host_comes_with_its_facts_and_files(desk: Desk, spool: Path, tmp_path: Path) -> None:
    plan(spool, job_7=Does.FAILS)
    returned = desk.watch(spec(), silent)
    assert isinstance(returned, Returned)
    assert returned.files is not None
    error = trouble(returned.news)
    assert isinstance(error, AttemptFailed)
    assert (error.stage, str(error)) == (Stage.WORKLOAD, "the network went away")
    assert error.trial is not None
    assert error.trial.artifacts


def test_a_host_that_cannot_begin_has_an_attempt_that_failed(desk: Desk, spool: Path) -> None:
    """A mirror that is not there is this host's trouble, and not the person's input."""
    plan(spool, job_7=Does.CANNOT_BEGIN)
    error = trouble(watched(desk, spec()))
    assert (type(error), str(error)) == (AttemptFailed, "there is no mirror on this host")


def test_a_spool_that_cannot_be_written_is_an_attempt_that_failed(desk: Desk) -> None:
    """A file is where the inputs of the run belong."""
    place = desk.spool.place(RUN)
    place.mkdir(parents=True)
    (place / INPUTS).touch()
    error = trouble(watched(desk, replace(spec(), inputs=(Input("base.config", b"CONFIG_SMP=y\n", False),))))
    assert type(error) is AttemptFailed
    assert str(place / INPUTS) in str(error)
    assert error.hint


def test_a_bug_is_told_as_one(desk: Desk, spool: Path) -> None:
    plan(spool, job_7=Does.IS_A_BUG)
    error = trouble(watched(desk, spec()))
    assert (type(error), error.exit_code) == (BisectorError, 70)
    assert "ZeroDivisionError: of nothing" in str(error)
    assert "Traceback" in desk.spool.entry(Key(RUN, 7)).log.read_text()


@pytest.mark.parametrize("does", [Does.HANGS, Does.IS_DEAF, Does.LEAVES])
def test_nothing_is_left_of_a_cancelled_job(desk: Desk, spool: Path, pool: ThreadPoolExecutor, does: Does) -> None:
    plan(spool, job_7=does)
    watcher = pool.submit(watched, desk, spec())
    Deadline("a job that hangs", engines.WAIT_S).poll(lambda: (spool / "hanging").exists() or None, 0.01)
    entry = desk.spool.entry(Key(RUN, 7))
    assert (runner := entry.runner()) is not None
    desk.cancel(Key(RUN, 7))
    assert type(trouble(watcher.result(engines.WAIT_S))) is AttemptCancelled
    assert not runner.lives
    assert not entry.runs
    assert entry.place.resolve() not in process.marked()


def test_a_job_that_nobody_watches_is_ended_when_it_is_acknowledged(
    desk: Desk, spool: Path, pool: ThreadPoolExecutor
) -> None:
    plan(spool, job_7=engines.BEGUN)
    watcher = pool.submit(desk.watch, spec(), silent)
    reached(spool, 7, engines.BEGUN)
    runner = desk.spool.entry(Key(RUN, 7)).runner()
    assert runner is not None
    desk.detach()
    assert watcher.result(engines.WAIT_S) is None
    desk.acknowledge(Key(RUN, 7))
    assert not runner.lives
    assert desk.spool.held() == {}


def test_a_job_ends_itself_at_its_deadline(desk: Desk, spool: Path) -> None:
    plan(spool, job_7=Does.HANGS)
    sooner_than_its_watcher = Deadline("its end", 25.0)
    error = trouble(watched(desk, spec(deadline_s=1.0)))
    assert type(error) is AttemptFailed
    assert "was not over" in str(error)
    sooner_than_its_watcher.check()


def test_what_a_killed_worker_left_is_ended_at_the_next_start(
    desk: Desk, spool: Path, pool: ThreadPoolExecutor
) -> None:
    plan(spool, job_7=Does.LEAVES)
    watcher = pool.submit(desk.watch, spec(), silent)
    Deadline("a job that hangs", engines.WAIT_S).poll(lambda: (spool / "hanging").exists() or None, 0.01)
    entry = desk.spool.entry(Key(RUN, 7))
    runner = entry.runner()
    assert runner is not None
    told = desk.tidy()
    assert not told  # of a job that is under way nothing is ended
    desk.detach()
    assert watcher.result(engines.WAIT_S) is None
    os.kill(runner.pid, signal.SIGKILL)
    Deadline("its end", engines.WAIT_S).poll(lambda: None if entry.runs else True, 0.01)
    assert entry.place.resolve() in process.marked()
    told = Desk(Spool(spool), engines.FAKE, Path("/nowhere.git")).tidy()
    assert ["1 processes" in one for one in told] == [True]
    assert entry.place.resolve() not in process.marked()


def test_a_spool_has_one_worker(spool: Path) -> None:
    with Spool(spool).owned(), pytest.raises(UserError, match="another worker"), Spool(spool).owned():
        pass
    with Spool(spool).owned():
        pass


def test_input_files_are_those_that_were_sent(tmp_path: Path) -> None:
    one = spec()
    one.unpack(tmp_path)
    path = one.unpacked(tmp_path)[0].workload.inputs["job"]
    assert path.is_relative_to(tmp_path / INPUTS)
    content, number = path.read_bytes(), path.stat().st_ino
    one.unpack(tmp_path)
    assert path.stat().st_ino == number  # a job that still reads it sees nothing
    path.write_bytes(content[:7])
    one.unpack(tmp_path)
    assert path.read_bytes() == content


def test_a_job_with_other_files_than_were_sent_is_not_begun(desk: Desk) -> None:
    one = spec(7)
    changed = replace(one, inputs=tuple(replace(each, content=b"[global]\n") for each in one.inputs))
    returned = desk.watch(changed, silent)
    assert isinstance(returned, Returned)
    assert isinstance(returned.news, Failed)
    assert isinstance(returned.news.error, AttemptFailed)
    assert "not what they were" in returned.news.error.message
    assert not desk.spool.entry(Key(RUN, 7)).exists
    assert isinstance(desk.watch(one, silent), Returned)
    assert engines.runs(desk.spool.home, 7) == 1


def test_progress_is_bounded_and_half_of_it_is_none(desk: Desk) -> None:
    entry = desk.spool.entry(Key(RUN, 7))
    entry.path.mkdir(parents=True)
    entry.tell(StageStarted(COMMIT, Stage.BOOT))
    with (entry.path / "events").open("ab") as file:
        file.write(b"\0\0\0\xffhalf")
    events, offset = entry.progress(0)
    assert events == (StageStarted(COMMIT, Stage.BOOT),)
    assert entry.progress(offset) == ((), offset)
    (entry.path / "events").write_bytes(bytes(5 << 20))
    entry.tell(StageStarted(COMMIT, Stage.BOOT))
    assert (entry.path / "events").stat().st_size < 1000
