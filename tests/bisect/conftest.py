"""A line of commits that is bisected by either strategy, and a person's clone."""

from pathlib import Path

import pytest

from tests.bisect.lab import Lab, lab_of
from tests.bisect.site import Site
from tests.git import histories


@pytest.fixture
def line(tmp_path: Path) -> Lab:
    return Lab(tmp_path, histories.linear(17), "c0", "c16")


@pytest.fixture
def by_bayes(tmp_path: Path) -> Lab:
    return lab_of(tmp_path, histories.linear(17), "c0", "c16")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("bisector.doctor.checks.check", lambda *_: None)
    return Site(tmp_path)
