"""Directories for libvirt's driver, and what boots on a host of which nothing is known."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from bisector.config import Accelerator
from bisector.vm import accelerator
from bisector.vm.base import Hypervisor
from bisector.vm.definition import DomainSpec

Boots: TypeAlias = Callable[..., list[tuple[Path, Accelerator]]]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("capabilities")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that the user of a daemon's QEMU can enter; pytest's own are private."""
    with tempfile.TemporaryDirectory(prefix="bisector-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def boots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Boots:
    """Says under which accelerators kernels boot, and returns what is tried; the distribution has no kernel."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(accelerator, "_BOOT", tmp_path / "boot")

    def put(*good: Accelerator) -> list[tuple[Path, Accelerator]]:
        tried: list[tuple[Path, Accelerator]] = []

        def boots(_hypervisor: Hypervisor, spec: DomainSpec, wanted: Accelerator, _within_s: float) -> bool:
            tried.append((spec.kernel, wanted))
            return wanted in good

        monkeypatch.setattr(accelerator, "_boots", boots)
        return tried

    return put
