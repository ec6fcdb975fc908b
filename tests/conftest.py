"""Fixtures of all tests."""

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import hypothesis
import pytest

from bisector.commands import arguments
from bisector.config.options import CONFIG_FILE
from bisector.host import locks
from bisector.kernel import toolchain
from bisector.mail import smtp
from bisector.vm.driver import LibvirtHypervisor
from bisector.workload.fio.fio import Fio
from tests.fakes import ARE_SPLIT

# The same examples each time, however slow the machine: a run says something of the change, not of the day.
# New ones are looked for with --hypothesis-profile=default.
hypothesis.settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def _no_python_shim() -> Iterator[None]:
    """The stand-in for a kernel tree starts python3 often, and a version manager's shim is ten times as slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        yield


@pytest.fixture(autouse=True)
def _host_of_its_own(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No unit test waits for a measurement of this host, or has this person's settings or the width of a terminal."""
    if "vm" not in request.keywords:
        place = tmp_path_factory.getbasetemp()
        monkeypatch.setattr(locks, "SHARED_TURN", place / "shared.lock")
        monkeypatch.setattr(locks, "own_turn", lambda: place / "own.lock")
        monkeypatch.delenv("COLUMNS", raising=False)  # processes of pytest-xdist have it, others have not
    # Guests go by the host's clock unless a test says otherwise, whether this host has KVM or not.
    monkeypatch.setattr(arguments, "could_count", lambda *asked: False)
    config = tmp_path_factory.getbasetemp() / ("config of guests" if "vm" in request.keywords else "config")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))
    if "vm" in request.keywords:
        settings = config / "bisector" / CONFIG_FILE
        settings.parent.mkdir(parents=True, exist_ok=True)
        # Runs of a few seconds on a busy host have no steady part.
        settings.write_text('[bisect]\npart = "whole"\n[machine]\nclock = "host"\n', encoding="utf-8")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a person whom git and mail know, with places for runs and caches; the test works in ``work``."""
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text("[user]\nname = Günter Tester\nemail = tester@example.org\n")
    for name in (smtp.USERNAME, smtp.PASSWORD):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


@pytest.fixture
def known_qemu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of QEMU at once: libvirt starts QEMU a dozen times before it tells, seconds in each process."""
    monkeypatch.setattr(LibvirtHypervisor, "qemu_version", "7.2.22")


@pytest.fixture
def split_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part of a run that counts follows from the stack, as it does outside of tests."""
    monkeypatch.setattr(Fio, "are_split", ARE_SPLIT)


def pytest_configure() -> None:
    """Ctrl-C works in the tests of it, also where a shell without job control began them in the background.

    Such a shell has its children ignore SIGINT, and theirs inherit that (POSIX.1, Shell Command Language, 2.11).
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What modules and collected tests hold stays as long as the process: the collector of garbage leaves it out."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@cache
def _gcc() -> toolchain.Toolchain:
    return replace(toolchain.detect(""), cc="gcc", host_cc="gcc")


@pytest.fixture
def known_gcc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler is looked for once, not by each of a hundred builders, and is not behind ccache; others are."""
    known, detect = _gcc(), toolchain.detect
    monkeypatch.setattr(toolchain, "detect", lambda name: known if name in ("", "gcc") else detect(name))
