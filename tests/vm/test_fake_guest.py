"""The guest that stands for a real one in tests of a trial does what a real one does."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bisector.config import Accelerator
from bisector.core.deadline import Deadline
from bisector.vm.base import GuestLink, Hypervisor
from bisector.vm.definition import DomainSpec
from bisector.vm.image import GuestImage
from tests.vm import contract
from tests.vm.contract import COMMANDS, ConnectionContract, DomainContract
from tests.vm.fake_guest import BANNER, RELEASE, FakeClock, FakeHypervisor, FakeLink, Script, Trouble

IMAGE = GuestImage(Path("root.img"), Path("key"), "ssh-ed25519 AAAA", "test")


def spec(path: Path, port: int = 2222) -> DomainSpec:
    return DomainSpec("guest", path / "kernel", path / "console.log", port, Accelerator.TCG)


@dataclass
class FakeLinkCase:
    hypervisor: FakeHypervisor
    watch: contract.Watch
    link: FakeLink = field(init=False)
    clock: FakeClock = field(init=False)
    directory: str = "/tmp"
    release: str = RELEASE
    short_s: float = 1.0

    def __post_init__(self) -> None:
        self.clock = self.hypervisor.clock
        self.link = self._log_in(2222)
        self.make_directory("")

    def _log_in(self, port: int) -> FakeLink:
        return self.hypervisor.log_in(port, IMAGE, Deadline.by(self.hypervisor.clock, "SSH", 20.0), self.watch)

    def make_directory(self, name: str) -> None:
        self.link.computer.files.joinpath("tmp", name).mkdir(exist_ok=True)

    def is_executable(self, name: str) -> bool:
        return os.access(self.link.computer.files / "tmp" / name, os.X_OK)

    def break_connection(self) -> None:
        self.link.computer.befall(Trouble.CONNECTION_BROKEN)

    def fall_silent(self) -> None:
        self.link.computer.befall(Trouble.NETWORK_LOST)

    def log_in_nowhere(self) -> AbstractContextManager[GuestLink]:
        return self._log_in(2223)

    def log_in_as_stranger(self) -> AbstractContextManager[GuestLink]:
        self.link.computer.script = replace(self.link.computer.script, refuses_keys=True)
        return self._log_in(2222)


class TestFakeLink(ConnectionContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> Iterator[FakeLinkCase]:
        clock = FakeClock()
        hypervisor = FakeHypervisor(Script(COMMANDS, ready_s=0.0), clock, tmp_path / "guests")
        with hypervisor.start(spec(tmp_path)):
            yield FakeLinkCase(hypervisor, contract.Watch())


@dataclass
class FakeDomainCase:
    hypervisor: Hypervisor
    fake: FakeHypervisor
    clock: FakeClock
    path: Path
    words: str = f"{BANNER}\r\n"

    def spec(self, *, ends: bool) -> DomainSpec:
        self.fake.script = Script(at_boot=(1.0, Trouble.RESET) if ends else None)
        return spec(self.path)

    def kill_qemu(self) -> None:
        self.fake.computers[-1].befall(Trouble.QEMU_KILLED)

    def taken(self, spec: DomainSpec) -> AbstractContextManager[object]:
        self.fake.does_not_start = "Could not set up host forwarding rule"
        return nullcontext()


class TestFakeDomain(DomainContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> FakeDomainCase:
        fake = FakeHypervisor(Script(), clock := FakeClock(), tmp_path / "guests")
        return FakeDomainCase(fake, fake, clock, tmp_path)
