"""Guests by libvirt: through the embedded driver, and through a daemon, with the same tests.

The kernel is a stand-in of a few bytes (tiny_kernel.py), so a guest costs a second.
"""

import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import libvirt
import pytest

from bisector.config import EMBEDDED, Accelerator
from bisector.core.deadline import SYSTEM_CLOCK, Clock, Deadline
from bisector.core.errors import InfraError, UserError
from bisector.host.files import direct_io
from bisector.vm import domain as domains
from bisector.vm import embedded as driver
from bisector.vm.base import Domain
from bisector.vm.definition import DiskSource, DiskSpec, DomainSpec, SourceKind, free_port
from bisector.vm.disks import delayed
from bisector.vm.domain import LibvirtDomain
from bisector.vm.embedded import embedded_root, guest_pids, remove_if_idle, runs_guest
from bisector.vm.hypervisor import LibvirtHypervisor, open_hypervisor
from tests.libvirtd import libvirtd
from tests.loopdevice import command
from tests.vm.contract import DomainContract
from tests.vm.tiny_kernel import End, tiny_kernel

PREFIX = f"bisector-test-{os.getpid()}-"
WORDS = "Linux version 0.0.0 (a stand-in)\r\nbisector-guest: ready\r\n"


# -- without a guest ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uri", ["qemu+ssh://elsewhere/system", "qemu://elsewhere/system", "xen:///system", "nonsense"])
def test_only_hypervisors_of_this_host(uri: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="loopback") as caught:
        open_hypervisor(uri, tmp_path)
    assert EMBEDDED in caught.value.hint


def test_daemon_out_of_reach(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError) as caught:
        open_hypervisor(f"qemu+unix:///system?socket={tmp_path}/no-socket", tmp_path)
    assert "virsh -c" in caught.value.hint
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The place where directories are made, and one where earlier versions made them."""
    made = {"now": tmp_path / "var-tmp", "before": tmp_path / "user-1000"}
    for path in made.values():
        path.mkdir()
    monkeypatch.setattr(driver, "PARENT", made["now"])
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(made["before"]))
    return made


def private(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


def test_embedded_directory_is_short_private_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where a logout removes it."""
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    run_dir = tmp_path / ("a-long-name-" * 12)
    directory = embedded_root(run_dir)
    try:
        assert len(str(directory)) <= 50
        assert directory.stat().st_mode & 0o777 == 0o700
        assert not directory.is_relative_to(runtime)
        assert embedded_root(run_dir) == directory
    finally:
        remove_if_idle(directory)
    assert not directory.exists()


@pytest.mark.usefixtures("places")
def test_one_process_has_one_embedded_directory(tmp_path: Path) -> None:
    first = embedded_root(tmp_path / "one")
    assert embedded_root(tmp_path / "two", first) == first
    assert embedded_root(tmp_path / "two") == first
    assert first in driver.directories()
    remove_if_idle(first)
    assert not first.exists()


@pytest.mark.usefixtures("places")
def test_a_directory_that_another_process_holds_is_not_removed(tmp_path: Path) -> None:
    """A copied run directory has the same link; its process may be building, with no guest yet."""
    directory = embedded_root(tmp_path / "one")
    script = f"from pathlib import Path; from bisector.vm.embedded import hold; hold(Path({str(directory)!r}));"
    words = [sys.executable, "-c", f"{script} print(1, flush=True); input()"]
    let_go = driver.hold(directory)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        let_go()
        remove_if_idle(directory)
        assert directory.exists()
        other.kill()
    remove_if_idle(directory)
    assert not directory.exists()


@pytest.mark.usefixtures("places")
def test_a_directory_is_held_though_somebody_looks_at_it_in_that_moment(tmp_path: Path) -> None:
    """Who looks for guests that were left has it for itself meanwhile."""
    directory = embedded_root(tmp_path / "one")
    looking = os.open(directory, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_EX)
    done = threading.Timer(0.2, os.close, (looking,))
    done.start()
    let_go = driver.hold(directory)
    done.join()
    remove_if_idle(directory)
    assert directory.exists()
    let_go()
    remove_if_idle(directory)
    assert not directory.exists()


@pytest.mark.parametrize(
    "target",
    [
        "home",  # mode 0700, as Debian's adduser makes them
        f"home/bisector-{os.getuid()}-0123456789",
        "var-tmp/letters",
        f"var-tmp/bisector-{os.getuid()}-012345678",
        f"var-tmp/../home/bisector-{os.getuid()}-0123456789",
    ],
)
def test_a_link_of_a_run_directory_from_elsewhere_is_not_followed(
    tmp_path: Path, places: dict[str, Path], target: str
) -> None:
    private(tmp_path / "home")
    with suppress(FileExistsError):
        private(tmp_path / target)
    for name in ("canary", "bisector-libvirt"):
        (tmp_path / target / name).touch()
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "libvirt").symlink_to(f"{tmp_path}/{target}")
    directory = embedded_root(run_dir)
    assert directory.parent == places["now"]
    remove_if_idle(Path(f"{tmp_path}/{target}"))
    assert (tmp_path / target / "canary").exists()


def test_what_has_no_marker_of_ours_is_not_removed(tmp_path: Path, places: dict[str, Path]) -> None:
    """Nor used, whatever its name: it is only looked at for guests that are left."""
    strange = private(places["now"] / f"bisector-{os.getuid()}-0123456789")
    (strange / "canary").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/libvirt").symlink_to(strange)
    assert embedded_root(tmp_path / "run") != strange
    remove_if_idle(strange)
    assert (strange / "canary").exists()


def test_a_directory_in_the_place_of_the_link_stays(tmp_path: Path, places: dict[str, Path]) -> None:
    (tmp_path / "run/libvirt").mkdir(parents=True)
    with pytest.raises(UserError, match="is not a link"):
        embedded_root(tmp_path / "run")


def test_guests_of_an_earlier_version_are_found(
    tmp_path: Path, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory is taken as long as they run, and left for one that lasts when they do not."""
    old = private(places["before"] / f"bisector-{os.getuid()}-0123456789")
    (old / "run/qemu").mkdir(parents=True)
    (old / "run/qemu/bisector-x.pid").write_text(str(os.getpid()))
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "libvirt").symlink_to(old)
    with monkeypatch.context() as running:
        running.setattr(driver, "runs_guest", lambda pid, name: True)
        assert embedded_root(run_dir) == old
        assert old in driver.directories()
    assert embedded_root(run_dir).parent == places["now"]


def test_a_directory_that_was_cleaned_up_is_made_anew(tmp_path: Path, places: dict[str, Path]) -> None:
    directory = embedded_root(tmp_path / "run")
    shutil.rmtree(directory)
    driver.make_private(directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    remove_if_idle(directory)
    assert not directory.exists()


@pytest.mark.vm
def test_the_embedded_driver_is_opened_again_and_again(place: Path, cache: Path) -> None:
    """libvirt itself refuses the 22nd time in a process."""
    for _ in range(30):
        with open_hypervisor(EMBEDDED, place, cache) as opened:
            assert opened.qemu_version


@pytest.mark.usefixtures("places")
def test_embedded_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    embedded_root(tmp_path).chmod(0o755)
    with pytest.raises(UserError, match="private"):
        embedded_root(tmp_path)


def test_a_number_alone_is_no_guest(tmp_path: Path) -> None:
    (tmp_path / "run/qemu").mkdir(parents=True)
    (tmp_path / "run/qemu/bisector-x.pid").write_text(str(os.getpid()))
    (tmp_path / "run/qemu/bisector-y.pid").write_text("not a number")
    assert list(guest_pids(tmp_path, "bisector-")) == []
    assert not runs_guest(os.getpid(), "bisector-x")


# -- with guests -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("capabilities")


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


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that the user of a daemon's QEMU can enter; pytest's own are private."""
    with tempfile.TemporaryDirectory(prefix="bisector-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def spec_of(place: Path, end: End, name: str = "guest") -> DomainSpec:
    return DomainSpec(
        name=f"{PREFIX}{name}",
        kernel=tiny_kernel(place / f"kernel-{name}", WORDS, end),
        console=place / f"{name}.log",
        ssh_port=free_port(),
        accelerator=Accelerator.TCG,
        vcpus=1,
        memory_bytes=64 << 20,
    )


def wait_for_words(domain: Domain) -> str:
    text = ""

    def probe() -> str | None:
        nonlocal text
        text += domain.read_console()
        return text if "ready" in text else None

    return Deadline("the kernel's words", 30.0).poll(probe)


def ended(domain: Domain) -> None:
    Deadline("the guest's end", 30.0).poll(lambda: None if domain.is_running() else True)


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
def test_disks_of_all_kinds_of_caching(hypervisor: LibvirtHypervisor, place: Path) -> None:
    disks = []
    for serial, direct in (("ssd", direct_io(place)), ("hdd", False)):
        file = place / f"{serial}.img"
        file.touch()
        os.truncate(file, 1 << 20)
        source = DiskSource(SourceKind.FILE, str(file))
        disks.append(DiskSpec(serial, source, direct, iops_limit=100, bytes_per_s_limit=1 << 20))
    base, overlay = place / "base.img", place / "root.qcow2"
    base.touch()
    os.truncate(base, 1 << 20)
    os.chown(base, os.getuid(), os.getgid())
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, overlay], check=True)
    spec = spec_of(place, End.SLEEP)
    with hypervisor.start(replace(spec, disks=tuple(disks), root=overlay, root_base=base)) as domain:
        wait_for_words(domain)
        assert domain.is_running()
    assert base.stat().st_uid == os.getuid()


@pytest.mark.vm
def test_a_disk_with_a_latency(hypervisor: LibvirtHypervisor, place: Path) -> None:
    """QEMU opens the server's socket before the guest starts, and needs the server as long as it runs."""
    file = place / "hdd.img"
    file.touch()
    os.truncate(file, 1 << 20)
    disk = DiskSpec("hdd", DiskSource(SourceKind.FILE, str(file)), iops_limit=100)
    with delayed(disk, 0.005, place) as late:
        spec = replace(spec_of(place, End.SLEEP), disks=(late,), run_as=hypervisor.run_as)
        with hypervisor.start(spec) as domain:
            wait_for_words(domain)
            assert domain.is_running()
    gone = replace(spec_of(place, End.SLEEP, "late"), disks=(late,))
    with pytest.raises(InfraError, match="did not start"), hypervisor.start(gone):
        pytest.fail("it started without the server")


@pytest.mark.vm
def test_a_guest_starts_after_its_drivers_directory_was_cleaned_up(embedded: LibvirtHypervisor, place: Path) -> None:
    directory = (place / "libvirt").readlink()
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
    disk = DiskSpec("hdd", DiskSource(SourceKind.FILE, str(full)), direct=False)
    reason = r"was paused: an I/O error on the host, write of a disk: No space left on device \(is its disk full\?\)"
    with (
        embedded.start(replace(spec_of(place, End.WRITE), disks=(disk,))) as domain,
        pytest.raises(InfraError, match=reason),
    ):
        ended(domain)


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
    domain = LibvirtDomain(
        spec_of(place, End.SLEEP), paused, lambda: None, lambda: (), lambda domain: None, io_error=lambda: told
    )
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
    domain = LibvirtDomain(spec, handle, lambda: None, lambda: (), forgotten.append)
    assert domain.read_console() == "last words"
    with pytest.raises(InfraError, match="cannot be ended"):
        domain.destroy()
    spec.console.write_text("more than the last words")
    assert domain.read_console() == ""
    assert forgotten == []


@pytest.mark.vm
def test_a_connection_ends_with_its_daemon(place: Path) -> None:
    with libvirtd() as uri:
        hypervisor = open_hypervisor(uri, place)
        assert hypervisor.is_alive
    Deadline("the end of the connection", 10.0).poll(lambda: None if hypervisor.is_alive else True)
    hypervisor.close()
    assert not hypervisor.is_alive


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
from bisector.vm.hypervisor import open_hypervisor
from tests.vm.test_domain import spec_of, wait_for_words
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
from bisector.vm.hypervisor import open_hypervisor
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
    directory = (place / "libvirt").readlink() if kind == "embed" else None
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


@pytest.mark.vm
def test_volumes(place: Path, cache: Path, daemon: str) -> None:
    with open_hypervisor("qemu:///embed", place, cache) as hypervisor, pytest.raises(UserError, match="daemon"):
        hypervisor.volume("pool", "ssd")
    with (
        open_hypervisor(daemon, place) as hypervisor,
        pytest.raises(UserError, match="volume:no-such-pool/ssd"),
        hypervisor.volume("no-such-pool", "ssd"),
    ):
        pytest.fail("it was found")


@pytest.mark.vm
def test_qemu_is_asked_for_its_version(hypervisor: LibvirtHypervisor) -> None:
    assert hypervisor.qemu_version.count(".") == 2
    assert hypervisor.offers(Accelerator.TCG)
