"""A desk at which kernels are compared."""

from pathlib import Path

import pytest

from tests.compare.desk import Desk
from tests.git import histories


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr("bisector.compare.session.preflight.check", lambda *_: None)
    monkeypatch.setattr("bisector.compare.session.preflight.check_setup", lambda *_: None)
    monkeypatch.setattr("bisector.compare.session.preflight.check_build", lambda *_: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Desk(tmp_path, histories.build(tmp_path / "linux", histories.linear(4)))
