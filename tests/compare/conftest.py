"""A desk at which kernels are compared."""

from pathlib import Path

import pytest

from tests.compare import planted
from tests.compare.desk import Desk
from tests.git import histories


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr("bisector.compare.session.preflight.check", lambda *_: None)
    monkeypatch.setattr("bisector.compare.session.preflight.check_setup", lambda *_: None)
    monkeypatch.setattr("bisector.compare.session.preflight.check_build", lambda *_: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Desk(tmp_path, histories.build(tmp_path / "linux", histories.linear(4)))


@pytest.fixture
def at_the_desk(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are typed in its directory and measured by its bench; main is faster by 30 %."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(desk.place / "cache"))
    monkeypatch.chdir(desk.place)
    monkeypatch.setattr("bisector.commands.measuring.here", desk.equip)
    desk.bench.value = planted.by_name(desk.shas, {"c0": 1_000.0, "c1": 1_000.0, "c3": 1_300.0})


@pytest.fixture
def done(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Two stacks in three blocks, and a placebo; main is faster by 30 %."""
    monkeypatch.chdir(desk.place)
    desk.bench.value = planted.by_name(desk.shas, {"c0": 1_000.0, "c3": 1_300.0})
    desk.begin("main~3", "main", runs=3, placebo=True, workload__file_size="64MiB")
    desk.go_on()
    return desk
