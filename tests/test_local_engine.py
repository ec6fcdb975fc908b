"""What an engine of this host does around a trial: alone on the host, and quiet before a repeat."""

from pathlib import Path
from typing import cast

import pytest

from bisector import hostlock
from bisector.errors import InfraError
from bisector.events import Event, Note
from bisector.figures import Contention
from bisector.fleet.local import LocalEngine, local_engine
from bisector.history.repository import Repository
from bisector.history.worktrees import SourceTree
from bisector.kernel.build import KernelBuilder
from bisector.machine import quiet
from bisector.machine.quiet import Load
from bisector.machine.vm import VirtualMachines
from bisector.model import Commit, Fault, Trial
from bisector.settings import options
from bisector.trial import Bench, TrialRequest
from tests import fakes

COMMIT = Commit("8" * 40, "7" * 40, "a commit", "2026-01-01T00:00:00+00:00")
BUSY = Load(Contention(1.9, 0.0, 0.0), (("rsync", 0.9),))
REQUEST = TrialRequest(1, COMMIT, {})


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def engine(tmp_path: Path, events: list[Event], monkeypatch: pytest.MonkeyPatch) -> LocalEngine:
    def measured(bench: Bench, request: TrialRequest, logs: Path) -> Trial:
        assert str(hostlock.holder()).startswith(f"run {bench.run_dir}, process ")
        return fakes.trial(request.commit)

    def built(*_: object) -> Fault | None:
        assert hostlock.holder() is not None
        return None

    monkeypatch.setattr("bisector.fleet.local.run_trial", measured)
    monkeypatch.setattr("bisector.fleet.local.try_build", built)
    settings = options.load({"contention.patience": "1ms"}, directory=tmp_path).settings
    nothing = cast("SourceTree", None), cast("KernelBuilder", None), cast("VirtualMachines", None)
    return LocalEngine(Bench(settings, tmp_path, *nothing, events.append))


def test_nothing_else_is_built_or_measured_meanwhile(engine: LocalEngine) -> None:
    assert engine.measure(REQUEST).commit == COMMIT
    assert engine.try_build(COMMIT, fakes.GCC) is None
    assert hostlock.holder() is None


def test_the_image_is_built_alone_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(_machine: object, run_dir: Path, _note: object) -> None:
        raise InfraError(str(hostlock.holder()))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("bisector.fleet.local.end_leftovers", lambda *_: None)
    monkeypatch.setattr("bisector.fleet.local.guest_image", build)
    settings = options.load(directory=tmp_path).settings
    with pytest.raises(InfraError) as caught, local_engine(settings, tmp_path, cast("Repository", None), print):
        pass
    assert str(caught.value).startswith(f"run {tmp_path}, process ")
    assert hostlock.holder() is None


def test_only_a_repeat_waits_for_a_quiet_host_and_it_is_no_attempt_that_failed(
    engine: LocalEngine, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet, "look_around", lambda: BUSY)
    engine.measure(REQUEST)
    assert events == []
    with pytest.raises(InfraError, match="the host was busy") as stopped:
        engine.measure(TrialRequest(2, COMMIT, {}, again=True))
    assert type(stopped.value) is InfraError
    assert [event.text for event in events if isinstance(event, Note)] == [
        f"waiting for a quiet host, at most 0.001s: {BUSY}"
    ]
    assert hostlock.holder() is None
