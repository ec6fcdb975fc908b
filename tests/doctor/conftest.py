"""A machine that has everything."""

import os
import shutil
from pathlib import Path

import pytest

from bisector.config import options
from bisector.vm import accelerator, image
from tests.doctor.machine import PROGRAMS, Machine


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with QEMU alone: libvirt remembers where it found it for the life of the process."""
    directory = tmp_path_factory.mktemp("emulator")
    found = shutil.which("qemu-system-x86_64")
    assert found
    (directory / "qemu-system-x86_64").symlink_to(found)
    return directory


@pytest.fixture
def whole_machine(tmp_path: Path, emulator: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in PROGRAMS:
        found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        assert found, f"{name} is not installed"
        (programs / name).symlink_to(found)
    monkeypatch.setenv("PATH", f"{programs}:{emulator}")
    monkeypatch.setattr(image, "_SUPERUSER_DIRECTORIES", ())
    monkeypatch.setattr(accelerator, "_BOOT", tmp_path / "boot")
    monkeypatch.setattr("bisector.host.load._GLANCE_S", 0.01)
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return Machine(programs, options.load(directory=work).settings, work / "run", monkeypatch)


@pytest.fixture
def machine(whole_machine: Machine, known_qemu: None) -> Machine:
    return whole_machine
