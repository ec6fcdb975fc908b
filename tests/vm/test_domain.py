"""Guests by libvirt: through the embedded driver, and through a daemon, with the same tests.

The kernel is a stand-in of a few bytes (tiny_kernel.py), so a guest costs a second.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import libvirt
import libvirt_qemu
import pytest

from bisector.config import EMBEDDED
from bisector.core.deadline import SYSTEM_CLOCK, Clock, Deadline
from bisector.core.errors import InfraError
from bisector.host.files import direct_io
from bisector.storage.disks import Bus
from bisector.vm import driver as domains
from bisector.vm.definition import DiskSpec, DomainSpec
from bisector.vm.driver import LibvirtDomain, LibvirtHypervisor, directory_of, guest_user, open_hypervisor
from tests.libvirtd import libvirtd
from tests.loopdevice import command
from tests.vm.contract import DomainContract
from tests.vm.domains import PREFIX, WORDS, ended, spec_of, wait_for_words
from tests.vm.tiny_kernel import End


@pytest.fixture(scope="module")
def daemon() -> Iterator[str]:
    with libvirtd() as uri:
        yield uri


@pytest.fixture(params=["embed", "daemon"])
def hypervisor(request: pytest.FixtureRequest, place: Path, cache: Path) -> Iterator[LibvirtHypervisor]:
    uri = "qemu:///embed" if request.param == "embed" else request.getfixturevalue("daemon")
    with open_hypervisor(uri, place, cache) as opened:
        yield opened
    assert not _qemus()


@pytest.fixture
def embedded(place: Path, cache: Path) -> Iterator[LibvirtHypervisor]:
    """Only the default one, where the daemon has nothing to add; its guests take longer to start."""
    with open_hypervisor(EMBEDDED, place, cache) as opened:
        yield opened
    assert not _qemus()


def _qemus() -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if PREFIX.encode() in words and b"qemu-system" in words and state != "Z":
            found.append(int(entry.name))
    return found


@dataclass
class LibvirtCase:
    hypervisor: LibvirtHypervisor
    place: Path
    words: str = WORDS
    clock: Clock = SYSTEM_CLOCK

    def spec(self, *, ends: bool) -> DomainSpec:
        return spec_of(self.place, End.RESET if ends else End.SPIN)

    def kill_qemu(self) -> None:
        (pid,) = _qemus()
        os.kill(pid, signal.SIGTERM)

    @contextmanager
    def taken(self, spec: DomainSpec) -> Iterator[object]:
        with socket.create_server(("127.0.0.1", spec.ssh_port)) as listener:
            yield listener


@pytest.mark.vm
class TestLibvirt(DomainContract):
    @pytest.fixture
    def case(self, hypervisor: LibvirtHypervisor, place: Path) -> LibvirtCase:
        return LibvirtCase(hypervisor, place)


@pytest.mark.vm
def test_a_guest_is_reached_by_its_port_and_libvirt_prints_nothing(
    hypervisor: LibvirtHypervisor, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with hypervisor.start(spec_of(place, End.SPIN)) as domain:
        assert wait_for_words(domain) == WORDS
        assert domain.is_running()
        with socket.create_connection(("127.0.0.1", domain.spec.ssh_port), timeout=5):
            pass
    assert capfd.readouterr() == ("", "")


@pytest.mark.vm
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_qemu_that_is_killed_is_not_the_kernels_fault(embedded: LibvirtHypervisor, place: Path, number: int) -> None:
    with embedded.start(spec_of(place, End.SLEEP)) as domain:
        wait_for_words(domain)
        (pid,) = _qemus()
        os.kill(pid, number)
        with pytest.raises(InfraError):
            ended(domain)


@pytest.mark.vm
@pytest.mark.skipif(os.getuid() != 0, reason="QEMU of another user has no rights to lose")
def test_qemu_is_not_root_once_it_has_opened_its_files(embedded: LibvirtHypervisor, place: Path) -> None:
    """In directories that nobody else can enter; what the guest writes gets there all the same."""
    file, user = place / "hdd.img", guest_user()
    assert user is not None
    file.write_bytes(b"\1" * (1 << 20))
    place.chmod(0o700)
    disk = DiskSpec("hdd", file, direct=False)
    with embedded.start(replace(spec_of(place, End.WRITE), disks=(disk,))) as domain:
        wait_for_words(domain)
        (pid,) = _qemus()
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        Deadline("what the guest writes", 20.0).poll(lambda: set(file.read_bytes()) != {1} or None)
    status = {name: words.split() for name, _, words in (line.partition(":") for line in lines)}
    assert [*status["Uid"], *status["Gid"]] == [str(user.pw_uid)] * 4 + [str(user.pw_gid)] * 4
    assert status["Groups"] in ([], [str(user.pw_gid)])
    assert {int(status[name][0], 16) for name in ("CapPrm", "CapEff", "CapAmb")} == {0}
    assert [*status["NoNewPrivs"], *status["Seccomp"]] == ["1", "2"]


@pytest.mark.vm
def test_a_guest_starts_after_its_drivers_directory_was_cleaned_up(embedded: LibvirtHypervisor, place: Path) -> None:
    directory = embedded.directory
    assert directory is not None
    with embedded.start(spec_of(place, End.SLEEP, "first")) as domain:
        wait_for_words(domain)
    shutil.rmtree(directory)
    with embedded.start(spec_of(place, End.SLEEP, "second")) as domain:
        wait_for_words(domain)
        assert directory.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file on a file system without room for its content."""
    if os.getuid() != 0:
        pytest.skip("mounting needs root")
    directory = tmp_path / "full"
    directory.mkdir()
    command("mount", "-t", "tmpfs", "-o", "size=1M,mode=755", "none", directory)
    try:
        with (directory / "disk.img").open("wb") as file:
            file.truncate(1 << 20)
        (directory / "rest").write_bytes(bytes(1 << 20))
        yield directory / "disk.img"
    finally:
        command("umount", directory)


@pytest.mark.vm
def test_a_guest_that_a_full_disk_paused(embedded: LibvirtHypervisor, place: Path, full: Path) -> None:
    disk = DiskSpec("hdd", full, direct=False)
    reason = r"was paused: an I/O error on the host, write of a disk: No space left on device \(is its disk full\?\)"
    with (
        embedded.start(replace(spec_of(place, End.WRITE), disks=(disk,))) as domain,
        pytest.raises(InfraError, match=reason),
    ):
        ended(domain)


@pytest.mark.vm
def test_an_io_error_of_a_disk_on_nvme_is_the_hosts(
    embedded: LibvirtHypervisor, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its guest is not paused, but sees the error as if it were its own; QEMU counts it."""
    file = place / "nvme.img"
    file.write_bytes(bytes(1 << 20))
    disk = DiskSpec("ssd", file, direct=direct_io(place), iops_limit=100, bus=Bus.NVME)
    with embedded.start(replace(spec_of(place, End.SLEEP), disks=(disk,))) as domain:
        wait_for_words(domain)
        assert domain.is_running()
        real = libvirt_qemu.qemuMonitorCommand

        def failed(*asked: Any) -> str:
            told: str = real(*asked)
            assert '"qdev":"nvme0"' in told
            return told.replace('"failed_wr_operations":0', '"failed_wr_operations":3')

        monkeypatch.setattr(libvirt_qemu, "qemuMonitorCommand", failed)
        with pytest.raises(InfraError, match="3 I/Os of a disk on nvme failed on the host"):
            assert all(domain.is_running() for _ in range(10))  # a busy monitor tells nothing, and is asked again


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("read of a disk: Invalid argument", "read of a disk: Invalid argument"),
        ("write of a disk: No space left on device", "write of a disk: No space left on device (is its disk full?)"),
        (None, "without a reason"),
    ],
)
def test_why_a_guest_was_paused_is_in_qemus_words(
    place: Path, monkeypatch: pytest.MonkeyPatch, told: str | None, why: str
) -> None:
    """A full disk is only one of the reasons."""
    monkeypatch.setattr(domains, "_REASON_DEADLINE_S", 0.05)
    paused = SimpleNamespace(state=lambda: (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR))
    spec = spec_of(place, End.SLEEP)
    known = SimpleNamespace(io_errors={spec.name: told} if told else {}, last_words=lambda name: "")
    domain = LibvirtDomain(spec, paused, known)  # type: ignore[arg-type] # as much of a hypervisor as is asked
    with pytest.raises(InfraError, match=re.escape(f"an I/O error on the host, {why}") + "$"):
        domain.is_running()


def test_a_guest_that_libvirt_does_not_end_leaves_no_open_console(place: Path) -> None:
    """The connection still knows it, and tries again by its name."""
    forgotten: list[LibvirtDomain] = []

    def refuse() -> None:
        raise libvirt.libvirtError("no answer")

    spec = spec_of(place, End.SLEEP)
    spec.console.write_text("last words")
    handle = SimpleNamespace(destroy=refuse, info=lambda: (0, 0, 0, 0, 0))
    domain = LibvirtDomain(spec, handle, SimpleNamespace(forget=forgotten.append))  # type: ignore[arg-type] # as above
    assert domain.read_console() == "last words"
    with pytest.raises(InfraError, match="cannot be ended"):
        domain.destroy()
    spec.console.write_text("more than the last words")
    assert domain.read_console() == ""
    assert forgotten == []


@pytest.mark.vm
def test_reaping_takes_only_its_prefix(embedded: LibvirtHypervisor, place: Path) -> None:
    with (
        embedded.start(spec_of(place, End.SLEEP, "a1")),
        embedded.start(spec_of(place, End.SLEEP, "a2")),
        embedded.start(spec_of(place, End.SLEEP, "b1")) as other,
    ):
        assert embedded.reap(f"{PREFIX}a") == (f"{PREFIX}a1", f"{PREFIX}a2")
        assert embedded.reap(f"{PREFIX}a") == ()
        assert other.is_running()


class Refusing:
    """A guest whose orchestrator was killed while QEMU started: libvirt waits for its monitor, and takes no orders."""

    def __init__(self, handle: Any) -> None:
        self.name = handle.name

    def destroy(self) -> None:
        raise libvirt.libvirtError("cannot acquire state change lock")


@pytest.mark.vm
def test_a_guest_that_libvirt_does_not_end_is_ended_by_its_process(
    embedded: LibvirtHypervisor, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = embedded._active
    monkeypatch.setattr(embedded, "_active", lambda prefix: list(map(Refusing, listed(prefix))))
    with embedded.start(spec_of(place, End.SLEEP, "a1")) as guest:
        assert embedded.reap(f"{PREFIX}a") == (f"{PREFIX}a1",)
        with pytest.raises(InfraError, match="QEMU died"):
            guest.is_running()


ORCHESTRATOR = """
import sys, time
from dataclasses import replace
from pathlib import Path
from bisector.vm.base import Domain
from bisector.vm.driver import open_hypervisor
from tests.vm.domains import spec_of, wait_for_words
from tests.libvirtd import libvirtd
from tests.loopdevice import command
from tests.vm.contract import DomainContract
from tests.vm.tiny_kernel import End
uri, name, place, cache = sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
hypervisor = open_hypervisor(uri, place, cache)
domain = hypervisor.start(replace(spec_of(place, End.SPIN), name=name))
wait_for_words(domain)
print("up", flush=True)
time.sleep(600)
"""


REAPER = """
import sys
from pathlib import Path
from bisector.vm.base import Domain
from bisector.vm.driver import open_hypervisor
with open_hypervisor(sys.argv[1], Path(sys.argv[3]), Path(sys.argv[4])) as hypervisor:
    print(*hypervisor.reap(sys.argv[2]))
"""


@pytest.mark.vm
@pytest.mark.parametrize("kind", ["embed", "daemon"])
def test_a_killed_orchestrator_leaves_nothing_for_good(
    kind: str, place: Path, cache: Path, request: pytest.FixtureRequest
) -> None:
    uri = EMBEDDED if kind == "embed" else request.getfixturevalue("daemon")
    name = f"{PREFIX}orphan"
    arguments = [uri, name, str(place), str(cache)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", ORCHESTRATOR, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as orchestrator:
        assert orchestrator.stdout is not None
        assert orchestrator.stdout.readline() == "up\n"
        orchestrator.kill()
    directory = directory_of(place) if kind == "embed" else None
    if directory is not None:
        assert len(_qemus()) == 1
    reaper = subprocess.run(
        [sys.executable, "-c", REAPER, *arguments], check=True, capture_output=True, text=True, timeout=60
    )
    Deadline("end of the orphan", 20.0).poll(lambda: None if _qemus() else True)
    if directory is not None:
        assert reaper.stdout.split() == [name]
        assert not directory.exists()
    assert reaper.stderr == ""
