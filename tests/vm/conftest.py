"""Directories for libvirt's driver."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("capabilities")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that the user of a daemon's QEMU can enter; pytest's own are private."""
    with tempfile.TemporaryDirectory(prefix="bisector-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)
