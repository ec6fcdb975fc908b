"""What an engine of this host does around a trial: alone on the host, and quiet before a repeat."""

from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import cast

import pytest

from bisector.config import options
from bisector.core.errors import InfraError
from bisector.core.events import Event, Note
from bisector.core.figures import Contention
from bisector.core.subject import Commit, RebuildCheck
from bisector.core.trial import Fault, Stage, Trial
from bisector.executor.base import BuildRequest, ControlRequest, Finished, Job
from bisector.executor.local import LocalExecutor, local_executor
from bisector.git.repository import Repository
from bisector.host import load, locks
from bisector.host.load import Load
from bisector.host.locks import TurnPurpose
from bisector.trial.runner import Bench, TrialRequest
from tests import examples, fakes
from tests.executor.bench import bare

COMMIT = Commit("8" * 40, "7" * 40, "a commit", "2026-01-01T00:00:00+00:00")
BUSY = Load(Contention(1.9, 0.0, 0.0), (("rsync", 0.9),))
REQUEST = TrialRequest(1, examples.cell(COMMIT), {})


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def engine(tmp_path: Path, events: list[Event], monkeypatch: pytest.MonkeyPatch) -> LocalExecutor:
    def measured(bench: Bench, request: TrialRequest, logs: Path) -> Trial:
        holder = locks.measurer()
        assert holder is not None
        assert str(holder).startswith(f"run {bench.run_dir}, process ")
        assert holder.purpose is TurnPurpose.MEASUREMENT
        return fakes.trial(request.commit)

    def built(*_: object) -> Fault | None:
        holder = locks.measurer()
        assert holder is not None
        assert holder.purpose is TurnPurpose.BUILD
        return None

    monkeypatch.setattr("bisector.executor.local.run_trial", measured)
    monkeypatch.setattr("bisector.executor.local.try_build", built)
    monkeypatch.setattr("bisector.executor.local.remake", lambda *_: built() or RebuildCheck(("c" * 64,)))
    settings = options.load({"contention.patience": "1ms"}, directory=tmp_path).settings
    return bare(tmp_path, settings, events.append)


def test_nothing_else_is_built_or_measured_meanwhile(engine: LocalExecutor) -> None:
    assert fakes.measured(engine, REQUEST).commit == COMMIT
    assert fakes.faulted(engine, BuildRequest(COMMIT, fakes.GCC)) is None
    engine.submit(Job(2, BuildRequest(COMMIT, fakes.GCC, measured=examples.kernel())))
    news = engine.next()
    assert isinstance(news, Finished)
    assert news.result == RebuildCheck(("c" * 64,))
    assert locks.measurer() is None


def test_the_image_is_built_alone_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(_machine: object, run_dir: Path, _note: object) -> None:
        raise InfraError(str(locks.measurer()))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("bisector.executor.local.end_leftovers", lambda *_: None)
    monkeypatch.setattr("bisector.executor.local.guest_image", build)
    settings = options.load(directory=tmp_path).settings
    with pytest.raises(InfraError) as caught, local_executor(settings, tmp_path, cast("Repository", None), print):
        pass
    assert str(caught.value).startswith(f"run {tmp_path}, process ")
    assert locks.measurer() is None


def test_only_a_repeat_waits_for_a_quiet_host_and_it_is_no_attempt_that_failed(
    engine: LocalExecutor, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "look_around", lambda: BUSY)
    fakes.measured(engine, REQUEST)
    assert events == []
    with pytest.raises(InfraError, match="the host was busy") as stopped:
        fakes.measured(engine, TrialRequest(2, examples.cell(COMMIT), {}, again=True))
    assert type(stopped.value) is InfraError
    assert [event.text for event in events if isinstance(event, Note)] == [
        f"waiting for a quiet host, at most 0.001s: {BUSY}"
    ]
    assert locks.measurer() is None


def test_for_whom_it_waits_is_told_once_however_many_turns_it_takes_to_look(
    engine: LocalExecutor, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs that wait for a quiet host take turns at looking, and each look lasts two seconds."""
    other, quiet = locks.Holder(1, "now", "/runs/other"), Load(Contention(0.0, 0.0, 0.0), ())
    looks, try_lock, answers = iter([BUSY] * 5), locks.try_lock, cycle([None, None, True])
    monkeypatch.setattr(load, "look_around", lambda: next(looks, quiet))
    monkeypatch.setattr(load, "_QUIET_S", 0.0)
    monkeypatch.setattr(locks, "measurer", lambda: other)
    monkeypatch.setattr(locks, "_signed", lambda file: other)
    monkeypatch.setattr(locks, "try_lock", lambda file: next(answers) and try_lock(file))
    patient = options.load({"contention.patience": "1min"}).settings
    engine = LocalExecutor(replace(engine.bench, settings=patient))
    monkeypatch.setattr("bisector.executor.local.run_trial", lambda *_: fakes.trial(COMMIT))
    fakes.measured(engine, TrialRequest(2, examples.cell(COMMIT), {}, again=True))
    assert [event.text for event in events if isinstance(event, Note)] == [
        "waiting for run /runs/other, process 1: builds and measurements on one host take turns",
        f"waiting for a quiet host, at most 1min: {BUSY}",
    ]


def test_what_is_counted_is_repeated_beside_any_work(
    engine: LocalExecutor, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "look_around", lambda: BUSY)
    counted = options.load({"machine.clock": "instructions"}).settings
    again = TrialRequest(2, examples.cell(COMMIT), {}, again=True, settings=counted)
    assert fakes.measured(engine, again).commit == COMMIT
    assert events == []


@pytest.mark.parametrize(("fault", "kept"), [(fakes.BUILD_ERROR, False), (fakes.BUILD_TIMEOUT, True), (None, True)])
@pytest.mark.parametrize("link", [False, True])
def test_a_build_directory_in_which_an_end_builds_no_more_is_emptied(
    engine: LocalExecutor, fault: Fault | None, kept: bool, link: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bisector.executor.local.run_trial", lambda *_: fakes.trial(COMMIT, fault=fault))
    build = engine.bench.build_dir
    if link:
        (build.parent / "faster disk").mkdir()
        build.symlink_to(build.parent / "faster disk")
    else:
        build.mkdir()
    (build / "fs").mkdir()
    assert fakes.faulted(engine, ControlRequest(COMMIT, (), Stage.BUILD)) == fault
    assert (build / "fs").exists() is kept
    assert build.is_symlink() is link
