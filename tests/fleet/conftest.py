"""A real sshd, and hosts behind it."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fleet import sshd
from tests.fleet.place import Place
from tests.fleet.sshd import Sshd


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One for all tests of a process."""
    made = sshd.made(tmp_path_factory.mktemp("sshd") / "it")
    with made.running():
        yield made


@pytest.fixture
def place(tmp_path: Path, server: Sshd) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(tmp_path, server, stack)
