"""Rows about this host's virtualization: what is said in each state, and which command fixes it."""

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from bisector.config import Accelerator, ContentionSettings, MachineSettings, options
from bisector.core.errors import UserError
from bisector.core.figures import Contention
from bisector.core.findings import Grade
from bisector.host import load, places
from bisector.host.load import ContentionMeter
from bisector.vm import accelerator, probes
from bisector.vm.definition import DomainSpec
from bisector.vm.hypervisor import LibvirtHypervisor
from tests.vm.test_accelerator import Offering

KVM, TCG = Accelerator.KVM, Accelerator.TCG


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MachineSettings:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(probes, "_BOOT", tmp_path / "boot")
    return options.load(directory=tmp_path).settings.machine


class Answering(Offering):
    """The two answers, and a connection that need not be closed."""

    def __exit__(self, *_: object) -> None:
        return


Offered = Callable[[bool], None]


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Offered:
    """Says what libvirt offers."""

    def put(kvm: bool) -> None:
        monkeypatch.setattr(probes, "open_hypervisor", lambda *_: Answering(kvm))

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
    assert (row.state, row.remedy.rpartition(" ")[2]) == (state, remedy)


def test_a_device_that_this_user_may_use(tmp_path: Path) -> None:
    assert probes.kvm(kvm_device(tmp_path, 0o600)).state is Grade.OK


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
    assert (row.state, remedy in row.remedy) == (Grade.WARN, True)
    assert f"group {gid}, mode {mode:04o}" in row.what


def note(_text: str) -> None:
    raise AssertionError("nothing takes long here")


def test_an_accelerator_of_the_persons_choice_is_not_tried(tmp_path: Path, machine: MachineSettings) -> None:
    row = probes.accelerator(replace(machine, accelerator=TCG), tmp_path, None, note)
    assert (row.state, row.what.startswith("tcg, set by machine.accelerator")) == (Grade.INFO, True)


def test_kvm_that_is_not_offered_is_a_warning(tmp_path: Path, machine: MachineSettings, offered: Offered) -> None:
    offered(False)
    row = probes.accelerator(machine, tmp_path, tmp_path / "kernel", note)
    assert (row.state, "does not offer KVM" in row.what) == (Grade.WARN, True)


def test_kvm_that_is_asked_for_and_not_offered_is_missing(
    tmp_path: Path, machine: MachineSettings, offered: Offered
) -> None:
    offered(False)
    with pytest.raises(UserError, match="KVM is asked for"):
        probes.qemu(replace(machine, accelerator=KVM), tmp_path)
    offered(True)
    assert probes.qemu(replace(machine, accelerator=KVM), tmp_path).state is Grade.OK


def test_without_a_kernel_nothing_can_be_tried(tmp_path: Path, machine: MachineSettings, offered: Offered) -> None:
    offered(True)
    row = probes.accelerator(machine, tmp_path, None, note)
    assert (row.state, "not known" in row.what) == (Grade.INFO, True)


@pytest.mark.parametrize(
    ("good", "state", "words"),
    [
        ((KVM, TCG), Grade.OK, "kvm: a kernel booted under it (tried "),
        ((TCG,), Grade.WARN, "does not boot under it (tried "),
        ((), Grade.WARN, "prints nothing, with KVM or without"),
    ],
)
def test_what_was_never_tried_is_tried_once_and_said(
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    machine: MachineSettings,
    offered: Offered,
    good: tuple[Accelerator, ...],
    state: Grade,
    words: str,
) -> None:
    offered(True)
    booted: list[Path] = []

    def boots(_: LibvirtHypervisor, spec: DomainSpec, wanted: Accelerator, __: float) -> bool:
        booted.append(spec.kernel)
        return wanted in good

    monkeypatch.setattr(accelerator, "_boots", boots)
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/vmlinuz-6.1").write_text("")
    notes: list[str] = []
    row = probes.accelerator(machine, tmp_path, None, notes.append)
    assert (row.state, words in row.what) == (state, True)
    assert set(booted) == {tmp_path / "boot/vmlinuz-6.1"}
    assert len(notes) == 1
    if good:
        assert probes.accelerator(machine, tmp_path, None, note) == row


def test_the_answer_has_the_time_at_which_it_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = tmp_path / "memory"
    hypervisor = Offering(kvm=True)
    assert accelerator.remembered(hypervisor, memory) is None
    accelerator._remember(memory, accelerator._key(hypervisor), TCG)
    os.utime(memory, (1_500_000_000, 1_500_000_000))
    assert accelerator.remembered(hypervisor, memory) == (TCG, datetime.fromtimestamp(1_500_000_000).astimezone())


MOUNTINFO = """\
22 28 0:20 / /proc rw,nosuid shared:5 - proc proc rw
28 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
29 28 0:25 / /home/me/two\\040words rw - nfs4 server:/export rw
30 28 0:26 / /mnt rw - tmpfs tmpfs rw
31 28 0:27 / /mnt rw - btrfs /dev/vdb rw
32 28 0:28 / /mnt/deep rw - fuse.sshfs me@there rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me", "ext4"),
        ("/home/me/two words/runs", "nfs4"),
        ("/home/me/two wordsmore", "ext4"),
        ("/mnt/here", "btrfs"),
        ("/mnt/deep/er", "fuse.sshfs"),
    ],
)
def test_the_file_system_of_a_path(tmp_path: Path, path: str, kind: str) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTINFO)
    assert places.file_system(Path(path), table) == kind


@pytest.mark.parametrize("kind", ["tmpfs", "overlay", "nfs4", "9p"])
def test_an_unfit_file_system_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(places, "file_system", lambda _: kind)
    row = places.directory("run directory", tmp_path / "still" / "to be made")
    assert (row.state, f" on {kind}, which is " in row.what, "--run-dir" in row.remedy) == (Grade.WARN, True, True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("direct", "state"), [(True, Grade.OK), (False, Grade.WARN)])
def test_o_direct_is_part_of_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool, state: Grade
) -> None:
    monkeypatch.setattr(places, "file_system", lambda _: "ext4")
    monkeypatch.setattr(places, "direct_io", lambda _: direct)
    assert places.directory("run directory", tmp_path).state is state


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (Contention(0.5, 0.1, 0.9), Grade.OK),
        (Contention(0.6, 0.0, 0.0), Grade.WARN),
        (Contention(0.0, 0.2, 0.0), Grade.WARN),
    ],
)
def test_load_is_judged_by_the_limits_of_a_run(monkeypatch: pytest.MonkeyPatch, seen: Contention, state: Grade) -> None:
    monkeypatch.setattr(load, "_GLANCE_S", 0.0)
    monkeypatch.setattr(ContentionMeter, "stop", lambda _: seen)
    assert load.contention(ContentionSettings(0.5, 0.1, 0.0)).state is state


@pytest.mark.parametrize("kind", ["nfs", "nfs4"])
def test_a_record_is_not_kept_on_nfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(places, "file_system", lambda path: kind)
    with pytest.raises(UserError, match=f"on {kind}: a record is not safe there") as caught:
        places.directory("run directory", tmp_path, of_record=True)
    assert "--run-dir" in caught.value.hint
    assert places.directory("cache directory", tmp_path).state is Grade.WARN
