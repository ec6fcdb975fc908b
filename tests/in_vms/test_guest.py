"""The connection to a real guest, with the contract that the fake one passes, too."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from bisector.config import Settings
from bisector.core.deadline import SYSTEM_CLOCK, Clock, Deadline
from bisector.core.subject import Kernel
from bisector.vm.base import GuestLink, GuestLost, GuestTimeout
from bisector.vm.definition import free_port
from bisector.vm.guest import Guest
from bisector.vm.image import GuestImage
from bisector.vm.machine import VirtualMachines, guest_image
from tests.vm import contract
from tests.vm.contract import ConnectionContract
from tests.vm.ssh_server import keypair

pytestmark = pytest.mark.vm

_LOGIN_S = 60.0


@dataclass
class Booted:
    """A guest that runs, for all tests; each has a connection and a directory of its own."""

    port: int
    image: GuestImage
    release: str
    numbers: Iterator[int] = field(default_factory=count)


@pytest.fixture(scope="module")
def booted(kernel: Kernel, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    run_dir = tmp_path_factory.mktemp("run")
    image = guest_image(settings.machine, run_dir, print)
    with (
        VirtualMachines.open(settings, image, run_dir, print) as machines,
        machines.prepared("contract", kernel, run_dir, settings.storage, settings.machine.append) as machine,
    ):
        machine.boot()
        yield Booted(machine._spec.ssh_port, image, kernel.release)


@dataclass
class GuestCase:
    link: GuestLink
    booted: Booted
    watch: contract.Watch
    directory: str
    stranger: Path
    short_s: float = 5.0
    clock: Clock = SYSTEM_CLOCK

    @property
    def release(self) -> str:
        return self.booted.release

    def make_directory(self, name: str) -> None:
        assert self.link.run(f"mkdir -p {self.directory}/{name}").exit_status == 0

    def is_executable(self, name: str) -> bool:
        return self.link.run(f"test -x {self.directory}/{name}").exit_status == 0

    def break_connection(self) -> None:
        with suppress(GuestLost):
            self.link.run("kill -9 $PPID")  # the sshd of this connection

    def fall_silent(self) -> None:
        with suppress(GuestTimeout):
            self.link.run("kill -STOP $PPID", self.short_s)

    def log_in_nowhere(self) -> AbstractContextManager[GuestLink]:
        return self._log_in(free_port(), self.booted.image)

    def log_in_as_stranger(self) -> AbstractContextManager[GuestLink]:
        image = self.booted.image
        return self._log_in(self.booted.port, GuestImage(image.root, self.stranger, image.host_public_key, image.key))

    def _log_in(self, port: int, image: GuestImage) -> Guest:
        return Guest.connect(port, image, Deadline("SSH", _LOGIN_S), self.watch)


class TestGuest(ConnectionContract):
    @pytest.fixture
    def case(self, booted: Booted, tmp_path: Path) -> Iterator[GuestCase]:
        keypair(tmp_path / "stranger")
        watch = contract.Watch()
        with Guest.connect(booted.port, booted.image, Deadline("SSH", _LOGIN_S), watch) as guest:
            directory = f"/tmp/contract-{next(booted.numbers)}"
            made = GuestCase(guest, booted, watch, directory, tmp_path / "stranger")
            made.make_directory("")
            yield made
