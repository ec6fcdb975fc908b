"""A machine that is reached by SSH, and this person's fleet."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bisector.core import resources
from bisector.fleet.home import FleetHome
from bisector.fleet.hosts import Host
from tests.fleet import sshd
from tests.fleet.sshd import ALIAS, Sshd


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One for all tests of a process: its files, and the home in which commands find themselves."""
    place = tmp_path_factory.mktemp("sshd") / "it"
    made = sshd.made(place)
    there = place / "home"
    programs = there / ".local" / "bin"
    programs.mkdir(parents=True)
    program = programs / "bisector"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m bisector "$@"\n')
    program.chmod(0o755)
    made.client()
    homes = {f"XDG_{kind}_HOME": str(there / kind) for kind in ("DATA", "CONFIG", "STATE", "CACHE")}
    with made.running({"HOME": str(there), "PYTHONPATH": str(resources.ROOT), **homes}):
        yield made


@pytest.fixture
def there(server: Sshd) -> Path:
    """The home over there."""
    return server.place / "home"


@pytest.fixture
def home(tmp_path: Path) -> FleetHome:
    return FleetHome(tmp_path / "my fleet 100%")


@pytest.fixture
def bench(server: Sshd, monkeypatch: pytest.MonkeyPatch) -> Host:
    """The machine, by the way that only the person's configuration knows."""
    monkeypatch.setenv("PATH", f"{server.place}/bin{os.pathsep}{os.environ['PATH']}")
    return Host("bench1", ALIAS)
