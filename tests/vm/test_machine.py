"""Who is to blame for a guest's end, decided on a console that says what the test wants."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bisector.config import Accelerator, DiskSettings, options
from bisector.core.errors import InfraError, UserError
from bisector.core.trial import FaultKind, KernelFault
from bisector.host.disks import BlockDevice
from bisector.vm import accelerator, machine
from bisector.vm.console import Watch
from bisector.vm.machine import VirtualMachine, VirtualMachines
from tests import examples
from tests.guestshell import Answer, FakeShell
from tests.vm.conftest import Boots
from tests.vm.domains import Offering, spec_of
from tests.vm.tiny_kernel import End


def machines_of(run_dir: Path, hypervisor: object, image: object = None, clock: str = "host") -> VirtualMachines:
    """The machines of a run with the default settings, and stand-ins for the hypervisor and the image."""
    settings = options.load({"machine.clock": clock}, directory=run_dir).settings
    return VirtualMachines(settings, cast("Any", image), run_dir, lambda: cast("Any", hypervisor), print)


def test_stopped_pulse_is_a_hang_and_silence_without_a_pulse_is_not() -> None:
    clock = [1000.0]

    def watch(*texts: str) -> Watch:
        said = iter(texts)
        domain = SimpleNamespace(is_running=lambda: True, read_console=lambda: next(said, ""))
        return Watch(cast("Any", domain), 60.0, lambda: clock[0])

    alive, without = watch("bisector-guest: ready\n[ 12.0] bisector-guest: alive\n"), watch("bisector-guest: ready\n")
    alive()
    without()
    clock[0] += 59.0
    alive()
    clock[0] += 2.0
    without()
    with pytest.raises(KernelFault, match="61 s") as caught:
        alive()
    assert caught.value.kind is FaultKind.HANG


def test_a_counted_guest_is_silent_by_its_own_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says every ten seconds of its own takes a busy host minutes."""
    clock, cpu_s = [1000.0], [0.0]
    domain = SimpleNamespace(is_running=lambda: True, read_console=lambda: "", cpu_time_s=lambda: cpu_s[0])
    hypervisor = SimpleNamespace(start=lambda spec: nullcontext(domain))
    wire = SimpleNamespace(told=lambda: [], let_go=lambda: None)
    bench = machines_of(tmp_path, hypervisor, clock="instructions")
    bench.clock = cast("Any", SimpleNamespace(now_s=lambda: clock[0], sleep=lambda seconds: None))
    monkeypatch.setattr(VirtualMachine, "_check_kernel", lambda self: None)
    stand_ins = hypervisor, None, None, bench, wire
    machine = VirtualMachine(*stand_ins)  # type: ignore[arg-type] # as much of each as is used
    machine.boot()
    for _ in range(100):  # of which the machine's clock counts each as much as somebody may have looked away
        clock[0] += 10.0
        machine._watch()
    cpu_s[0] += 61.0
    with pytest.raises(KernelFault, match="61 s"):
        machine._watch()


def test_a_disk_that_a_run_had_before_is_the_hosts_trouble_when_it_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup reads it between two trials: that ends, and the run need not."""
    users: list[str] = []

    @contextmanager
    def claimed(path: Path) -> Iterator[SimpleNamespace]:
        if users:
            raise UserError(f"the disk is in use: {users[0]}", "end it")
        yield SimpleNamespace(check=lambda *_: None, empty=lambda: (0, 1), own_name="WD-1", node=path, device_number=0)

    monkeypatch.setattr(BlockDevice, "claimed", claimed)
    machines = machines_of(tmp_path, None)
    chosen = DiskSettings("/dev/null", 0, 0, 0)
    users.append("dd (77)")
    with pytest.raises(UserError, match="in use: dd"), machines._attached("hdd", chosen, "x-"):
        pytest.fail("it was taken")
    users.clear()
    with machines._attached("hdd", chosen, "x-"):
        pass
    users.append("dd (77)")
    in_use = pytest.raises(InfraError, match=r"storage\.hdd\.path: the disk is in use: dd")
    with in_use, machines._attached("hdd", chosen, "x-"):
        pytest.fail("it was taken")


def test_each_counted_guest_has_the_cpu_that_the_fewest_others_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3})
    monkeypatch.setattr("bisector.vm.machine.overlay", lambda image, path: path)
    hypervisor = SimpleNamespace(is_alive=True, run_as=None, offers=lambda _: True)
    (tmp_path / "root").touch()
    image = SimpleNamespace(disk_format="raw", root=tmp_path / "root")
    machines = machines_of(tmp_path, hypervisor, image, "instructions")

    def guest(name: str) -> AbstractContextManager[VirtualMachine]:
        return machines.prepared(name, examples.kernel(), tmp_path, machines.settings.storage, "")

    def cpu(machine: VirtualMachine) -> int:
        assert machine._spec.counted is not None
        return machine._spec.counted.cpu

    with guest("1") as first:
        with guest("2") as second, guest("3") as third:
            assert [cpu(one) for one in (first, second, third)] == [1, 3, 1]
        with guest("4") as fourth:
            assert cpu(fourth) == 3


KVM, TCG = Accelerator.KVM, Accelerator.TCG


def test_a_run_that_began_under_kvm_measures_nothing_without_it(
    tmp_path: Path, boots: Boots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a moment in which libvirt says nothing, nor a kernel that is mute under KVM, decides of it."""
    boots(KVM, TCG)
    spec, libvirt = spec_of(tmp_path, End.SLEEP), Offering()

    def process(began: Accelerator | None, run: str = "run") -> Accelerator | None:
        (tmp_path / run).mkdir(exist_ok=True)
        machines = machines_of(tmp_path / run, libvirt)
        assert machines._accelerator() is began  # nothing is booted for it
        return machines._accelerator(spec)

    assert process(None) is KVM
    monkeypatch.setattr(accelerator, "_key", lambda _: "after the next boot")
    boots(TCG)
    assert process(KVM) is KVM
    assert process(None, "another run") is TCG
    for libvirt.kvm, why in ((False, "libvirt does not offer that any more"), ("no answer", "no answer")):
        with pytest.raises(InfraError, match=f"this run began under kvm on this host: {why}") as caught:
            process(KVM)
        assert f"rm {tmp_path}/run/accelerator; bisector resume" in caught.value.hint
    libvirt.kvm = False
    assert process(TCG, "another run") is TCG
    (tmp_path / "run/accelerator").unlink()
    assert process(TCG) is TCG
    (tmp_path / "run/accelerator").write_text("kvm another-machine\n")
    assert process(TCG) is TCG


def test_a_connection_that_was_lost_is_opened_again(tmp_path: Path) -> None:
    """After a daemon's restart; each attempt of a trial asks anew."""
    opened: list[SimpleNamespace] = []

    def connect() -> SimpleNamespace:
        if len(opened) == 1 and not attempts:
            attempts.append("refused")
            raise UserError("no libvirtd", "start it")
        opened.append(SimpleNamespace(is_alive=True, close=lambda: None))
        return opened[-1]

    attempts: list[str] = []
    notes: list[str] = []
    machines = VirtualMachines(None, None, tmp_path, connect, notes.append)  # type: ignore[arg-type] # stand-ins
    machines._stay_connected()
    assert len(opened) == 1
    opened[0].is_alive = False
    with pytest.raises(InfraError, match="no libvirtd"):
        machines._stay_connected()
    machines._stay_connected()
    machines._stay_connected()
    assert id(machines._hypervisor) == id(opened[1])
    assert len(opened) == 2
    assert "is lost" in notes[0]


def test_the_build_id_is_among_the_notes() -> None:
    notes = " 04 00 00 00 02 00 00 00 03 00 00 00 47 4e 55 00\n ab cd\n"
    assert machine.running_build_id(FakeShell({"/sys/kernel/notes": Answer(notes)})) == "abcd"
    assert machine.running_build_id(FakeShell()) == ""  # of a kernel that has none
