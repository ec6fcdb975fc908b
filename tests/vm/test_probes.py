"""Rows about this host's virtualization: what is said in each state, and which command fixes it."""

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.config import Accelerator, MachineSettings, options
from bisector.core.errors import Grade, UserError
from bisector.core.shell import CommandResult
from bisector.host import process
from bisector.host.load import host_facts
from bisector.vm import accelerator, driver, probes
from bisector.vm.definition import DomainSpec
from tests.vm.conftest import Boots
from tests.vm.domains import Offering

KVM, TCG = Accelerator.KVM, Accelerator.TCG


@pytest.fixture
def machine(tmp_path: Path, boots: Boots) -> MachineSettings:
    return options.load(directory=tmp_path).settings.machine


Offered = Callable[[bool], None]


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Offered:
    """Says what libvirt offers."""

    def put(kvm: bool) -> None:
        monkeypatch.setattr(probes, "open_hypervisor", lambda *_: Offering(kvm))

    return put


def kvm_device(tmp_path: Path, mode: int) -> Path:
    device = tmp_path / "kvm"
    device.write_text("")
    device.chmod(mode)
    return device


def cpuinfo(tmp_path: Path, flags: str) -> Path:
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor\t: 0\nflags\t\t: fpu vme {flags} sse\n")
    return file


@pytest.mark.parametrize(
    ("flags", "state", "remedy"),
    [("vmx", Grade.WARN, "kvm_intel"), ("svm", Grade.WARN, "kvm_amd"), ("", Grade.INFO, "")],
)
def test_without_the_device_the_module_is_named(tmp_path: Path, flags: str, state: Grade, remedy: str) -> None:
    row = probes.kvm(tmp_path / "none", cpuinfo(tmp_path, flags))
    assert (row.state, (row.remedy or "").rpartition(" ")[2]) == (state, remedy)


@pytest.mark.parametrize(
    ("gid", "mode", "remedy"),
    [(104, 0o660, "usermod --append --groups 104"), (104, 0o600, "setfacl"), (0, 0o660, "setfacl")],
)
def test_a_device_that_this_user_may_not_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gid: int, mode: int, remedy: str
) -> None:
    device = kvm_device(tmp_path, mode)
    status = os.stat_result((stat.S_IFCHR | mode, 0, 0, 1, 0, gid, 0, 0, 0, 0))
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(probes, "_group", str)
    monkeypatch.setattr(Path, "stat", lambda *_, **__: status)
    row = probes.kvm(device)
    assert (row.state, remedy in (row.remedy or "")) == (Grade.WARN, True)
    monkeypatch.setattr(os, "getuid", lambda: 63999)  # of no account, as in a container
    assert "$USER" in (probes.kvm(device).remedy or "")
    assert f"group {gid}, mode {mode:04o}" in row.what


def note(_text: str) -> None:
    raise AssertionError("nothing takes long here")


EMBED, SYSTEM = "qemu:///embed", "qemu:///system"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ((1000, EMBED, "nobody"), (Grade.OK, "guests run as this user")),
        ((0, EMBED, "nobody"), (Grade.OK, "guests run as nobody")),
        ((0, EMBED, "no-such-user"), (Grade.WARN, "guests run as root")),
        ((0, SYSTEM, "nobody"), (Grade.WARN, "guests run as root")),
    ],
)
def test_whom_a_guest_runs_as_is_told(
    machine: MachineSettings,
    offered: Offered,
    monkeypatch: pytest.MonkeyPatch,
    asked: tuple[int, str, str],
    told: tuple[Grade, str],
) -> None:
    """What breaks out of it has the rights of that user."""
    uid, connect, user = asked
    offered(True)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(driver, "GUEST_USERS", (user,))
    monkeypatch.setattr(process, "run", lambda *_, **__: CommandResult("", 0, "", ""))
    row = probes.qemu(replace(machine, connect=connect), Path("/"))
    assert (row.state, row.what.rpartition("; ")[2].partition(":")[0]) == told


@pytest.mark.parametrize(
    ("good", "tried", "state", "words"),
    [
        ((KVM, TCG), [KVM], Grade.OK, "kvm: a kernel booted under it (tried "),
        ((TCG,), [KVM, TCG], Grade.WARN, "what runs without it does not under it (tried "),
        ((), [KVM, TCG], Grade.WARN, "prints nothing, with KVM or without"),
    ],
)
def test_what_was_never_tried_is_tried_once_and_said(
    *,
    tmp_path: Path,
    boots: Boots,
    machine: MachineSettings,
    offered: Offered,
    good: tuple[Accelerator, ...],
    tried: list[Accelerator],
    state: Grade,
    words: str,
) -> None:
    offered(True)
    booted = boots(*good)
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/vmlinuz-6.1").write_text("")
    notes: list[str] = []
    row = probes.accelerator(machine, tmp_path, None, notes.append)
    assert (row.state, words in row.what) == (state, True)
    assert booted == [(tmp_path / "boot/vmlinuz-6.1", one) for one in tried]
    if good:
        booted.clear()
        other = DomainSpec("guest", tmp_path / "other", tmp_path / "console.log", 22, Accelerator.TCG)
        assert accelerator.choose_accelerator(Accelerator.AUTO, Offering(), other) is tried[-1]
        assert booted == []
    assert len(notes) == 1
    assert [*accelerator.recall().values()] == tried[-1:] * bool(good)
    if good:
        assert probes.accelerator(machine, tmp_path, None, note) == row


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user cannot become another one")
def test_root_that_may_not_become_another_user_stays_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container without the capability, or without the number."""
    monkeypatch.setattr(driver, "GUEST_USERS", ("nobody",))
    assert (known := driver.guest_user()) is not None
    assert known.pw_name == "nobody"
    monkeypatch.setenv("PATH", "/nonexistent")
    assert driver.guest_user() is None


GIB = 1 << 30
STORAGE = options.load(directory=Path("/")).settings.storage  # of 1.5 GiB
COUNTED = options.load({"machine.clock": "instructions"}, directory=Path("/")).settings


@pytest.fixture
def with_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    return lambda gib: monkeypatch.setattr(accelerator, "available_memory_bytes", lambda: round(gib * GIB))


@pytest.mark.parametrize(
    ("kvm", "tried", "says"),
    [
        (False, None, "emulated guests are as fast as this host"),
        (True, None, "whether KVM works here is not known yet"),
        (True, KVM, "the CPUs are real ones, with their caches"),
        (True, TCG, "emulated guests are as fast as this host"),
    ],
)
def test_by_the_hosts_clock_it_is_said_what_guests_run_under_and_what_counted_time_would_be(
    tmp_path: Path,
    machine: MachineSettings,
    offered: Offered,
    with_memory: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
    *,
    kvm: bool,
    tried: Accelerator | None,
    says: str,
) -> None:
    monkeypatch.setattr(accelerator, "KVM_DEVICE", kvm_device(tmp_path, 0o600))
    offered(kvm)
    with_memory(8.0)
    if tried is not None:
        accelerator.remember(Offering(kvm), tried)
    row = probes.clock(machine, STORAGE, tmp_path)
    assert (row.state, says in row.what) == (Grade.INFO, True)
    assert "--clock instructions has the same figures each time: a guest takes up to 3.8 GiB of memory" in row.what
    assert row.what.endswith("there is room for 2 at once")


def test_emulated_guests_could_count_their_time_with_nothing_of_ones_own_and_enough_memory(
    tmp_path: Path, machine: MachineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerator, "KVM_DEVICE", tmp_path / "none")
    host = host_facts()
    for gib, could in ((4.0, True), (3.5, False)):
        monkeypatch.setattr(accelerator, "host_facts", lambda gib=gib: replace(host, memory_bytes=round(gib * GIB)))
        assert accelerator.could_count(machine, STORAGE) is could
    monkeypatch.setattr(accelerator, "host_facts", lambda: host)
    assert accelerator.could_count(machine, STORAGE)
    own = options.load({"storage.ssd.path": str(tmp_path)}, directory=tmp_path).settings.storage
    assert not accelerator.could_count(machine, own)
    assert not accelerator.could_count(replace(machine, accelerator=KVM), STORAGE)
    monkeypatch.setattr(accelerator, "KVM_DEVICE", kvm_device(tmp_path, 0o600))
    assert not accelerator.could_count(machine, STORAGE)
    assert accelerator.could_count(machine, STORAGE, lambda machine: TCG)
    assert not accelerator.could_count(machine, STORAGE, lambda machine: KVM)
    assert not accelerator.could_count(machine, own, lambda machine: TCG)


def test_counted_guests_need_memory_for_their_disks(
    tmp_path: Path, machine: MachineSettings, offered: Offered, with_memory: Callable[[float], None]
) -> None:
    offered(False)
    for gib, state, room in ((8.0, Grade.OK, "room for 2 at once"), (3.0, Grade.WARN, "room for 0 at once")):
        with_memory(gib)
        row = probes.clock(COUNTED.machine, COUNTED.storage, tmp_path)
        assert (row.state, room in row.what) == (state, True)
        assert row.what.startswith("8 ns an instruction, with the same figures each time; a guest takes up to 3.8 GiB")
        assert row.what.endswith("by the host's clock guests are emulated too, and as fast as this host is at the time")


def test_a_qemu_that_does_not_emulate_counts_nothing(
    tmp_path: Path, machine: MachineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "open_hypervisor", lambda *_: Offering(tcg=False))
    assert "counts no instructions" in probes.clock(machine, STORAGE, tmp_path).what
    with pytest.raises(UserError, match="emulation, which counts instructions, too, is asked for and this host"):
        probes.qemu(COUNTED.machine, tmp_path)
