"""What a machine can lack: each is a row with its remedy, and refuses a start."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.config import options
from bisector.core.errors import Grade, UserError
from bisector.doctor import checks
from bisector.doctor.checks import PROBES, NeededFor, check_room
from bisector.host.packages import install
from bisector.vm import probes
from bisector.vm.driver import LibvirtHypervisor
from tests.doctor.machine import Machine, no_gcc_header, ordinary_user_without_namespaces, other_architecture, without
from tests.loopdevice import command


def no_room(machine: Machine) -> None:
    machine.patch.setattr("bisector.doctor.checks.disk_room_bytes", lambda path: 1 << 30)


def trusted_keys(machine: Machine) -> None:
    (machine.run_dir.parent / "keys.config").write_text("CONFIG_SYSTEM_TRUSTED_KEYRING=y\n")
    machine.setting("kernel.fragments", "./keys.config")
    no_gcc_header("opensslv.h")(machine)


def no_libvirt_and_no_qemu(machine: Machine) -> None:
    NO_LIBVIRT(machine)
    machine.patch.setenv("PATH", str(machine.programs))


def qemu_that_does_not_start(machine: Machine) -> None:
    """Taken for a daemon's, the embedded driver refuses to end the guest with its connection."""
    machine.patch.setattr(probes, "EMBEDDED", "none")
    machine.patch.setattr(LibvirtHypervisor, "embedded", property(lambda self: False))


def run_directory_below_a_file(machine: Machine) -> None:
    machine.run_dir.write_text("")
    machine.run_dir /= "run"


def cache_below_a_file(machine: Machine) -> None:
    (machine.run_dir.parent / "file").write_text("")
    machine.patch.setenv("XDG_CACHE_HOME", str(machine.run_dir.parent / "file"))


def job_without_section(machine: Machine) -> None:
    job = machine.run_dir.parent / "empty.fio"
    job.write_text("[global]\n")
    machine.settings = replace(machine.settings, workload=machine.settings.workload.with_inputs({"job": job}))


def disk_gone(name: str) -> Callable[[Machine], None]:
    """After the settings were read, which look for it, too."""

    def spoil(machine: Machine) -> None:
        storage = machine.settings.storage
        gone = replace(storage.disks[name], path="/dev/nowhere")
        machine.settings = replace(machine.settings, storage=replace(storage, disks={**storage.disks, name: gone}))

    return spoil


def program(name: str, script: str) -> Callable[[Machine], None]:
    return lambda machine: machine.program(name, script)


def setting(key: str, value: str) -> Callable[[Machine], None]:
    return lambda machine: machine.setting(key, value)


NO_LIBVIRT = setting("machine.connect", "qemu:///system?socket=/nowhere")
# Probe, row, what is taken away, the remedy.
MISSING: tuple[tuple[str, str, Callable[[Machine], None], str], ...] = (
    ("git", "git", without("git"), install("git")),
    ("git", "git", program("git", "echo git version 2.31.0"), install("git")),
    ("compiler", "compiler", setting("kernel.compiler", "gcc-0"), install("gcc-0")),
    ("kernel config", "kernel config", other_architecture, ""),
    ("sandbox", "sandbox", without("bwrap"), install("bubblewrap")),
    ("sandbox", "sandbox", program("bwrap", "echo Permission denied >&2; exit 1"), "--set kernel.sandbox=false"),
    ("build tools", "make", without("make"), install("make")),
    ("build tools", "binutils", without("readelf"), install("binutils")),
    ("build tools", "gcc", without("gcc"), install("gcc")),
    ("build tools", "libelf headers", no_gcc_header("gelf.h"), install("libelf-dev")),
    ("build tools", "OpenSSL headers", trusted_keys, install("libssl-dev")),
    ("libvirt", "libvirt", NO_LIBVIRT, "virsh"),
    ("qemu", "qemu", no_libvirt_and_no_qemu, install("qemu-system-x86")),
    ("qemu-img", "qemu-img", without("qemu-img"), install("qemu-utils")),
    ("guest image", "guest image", without("mmdebstrap"), install("mmdebstrap")),
    ("user namespaces", "user namespaces", ordinary_user_without_namespaces, "--add-subuids"),
    ("run directory", "run directory", run_directory_below_a_file, "--run-dir"),
    ("cache directory", "cache directory", cache_below_a_file, "XDG_CACHE_HOME=DIR"),
    ("libvirt's reach", "libvirt's reach", qemu_that_does_not_start, "XDG_CACHE_HOME=DIRECTORY"),
    ("disk room", "disk room", no_room, "--run-dir"),
    ("disks", "ssd disk", disk_gone("ssd"), ""),
    ("disks", "hdd disk", disk_gone("hdd"), ""),
    ("workload", "fio job", job_without_section, ""),
)


@pytest.mark.parametrize(("probe", "row", "take_away", "remedy"), MISSING, ids=[f"{m[0]}: {m[1]}" for m in MISSING])
def test_what_is_missing_is_a_row_and_refuses_a_start(
    machine: Machine, probe: str, row: str, take_away: Callable[[Machine], None], remedy: str
) -> None:
    before = {finding.name: finding for finding in machine.rows(probe)}
    assert before[row].state is not Grade.MISSING
    assert machine.refusal() is None
    take_away(machine)
    after = {finding.name: finding for finding in machine.rows(probe)}
    assert set(after) == set(before)
    assert after[row].state is Grade.MISSING
    assert remedy in (after[row].remedy or "")
    refusal = machine.refusal()
    assert refusal is not None
    assert after[row].what in refusal.message


def test_every_needed_probe_is_seen_to_find_something_missing() -> None:
    assert {probe.name for probe in PROBES if probe.need is not NeededFor.NOTHING} == {probe for probe, *_ in MISSING}


def test_a_disk_with_a_latency_needs_what_adds_it(machine: Machine) -> None:
    assert not (machine.programs / "nbdkit").exists()
    machine.setting("storage.hdd.latency", "5ms")
    rows = {row.name: row for row in machine.rows("disks")}
    assert (rows["ssd disk"].state, rows["hdd disk"].state) == (Grade.OK, Grade.MISSING)
    assert (rows["hdd disk"].what, rows["hdd disk"].remedy) == ("nbdkit is not installed", install("nbdkit"))


def test_a_workload_that_is_refused_has_the_row_that_it_has_when_it_is_not(machine: Machine) -> None:
    (machine.run_dir.parent / "clone.bundle").write_text("no bundle")
    machine.settings = options.load(
        {"workload.kind": "gitgrep", "workload.gitgrep.bundle": "clone.bundle"}, directory=machine.run_dir.parent
    ).settings
    (row,) = machine.rows("workload")
    assert (row.name, row.state) == ("gitgrep job", Grade.MISSING)


def test_a_disk_of_the_file_that_the_stack_does_not_use(machine: Machine) -> None:
    """A misspelled table of the file is one."""
    (machine.run_dir.parent / "bisector.toml").write_text('[storage.sdd]\nsize = "2GiB"\n')
    machine.setting("storage.stack", "ssd")
    rows = {row.name: row for row in machine.rows("disks")}
    assert {name: row.state for name, row in rows.items()} == {"ssd disk": Grade.OK, "sdd disk": Grade.WARN}
    assert rows["sdd disk"].what.startswith("the stack ssd does not use it")
    assert machine.refusal() is None


@pytest.mark.parametrize(
    ("alone", "take_away"), [(True, without("flex")), (True, no_room), (False, job_without_section), (False, no_room)]
)
def test_a_build_alone_and_one_more_setup_of_a_run_are_refused_for_what_they_need(
    machine: Machine, alone: bool, take_away: Callable[[Machine], None]
) -> None:
    """A comparison has several setups; what all of them have in common was looked at with the first one."""

    def check() -> None:
        if alone:
            checks.check_build(machine.settings, machine.run_dir)
        else:
            checks.check_setup(machine.settings, machine.run_dir, lambda _: None)

    machine.without("git", *(["qemu-img", "mmdebstrap"] if alone else ["flex"]))
    check()
    take_away(machine)
    with pytest.raises(UserError):
        check()


GIB = 1 << 30


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def set_to(free_bytes: int) -> None:
        monkeypatch.setattr("bisector.doctor.checks.disk_room_bytes", lambda path: free_bytes)

    return set_to


def test_room_is_asked_of_the_file_system_that_has_the_disk(tmp_path: Path) -> None:
    """A real one, too small: sparse as the disk is, a trial writes to it."""
    if os.getuid() != 0:
        pytest.skip("mounting needs root")
    small = tmp_path / "small"
    small.mkdir()
    command("mount", "-t", "tmpfs", "-o", "size=64M", "none", small)
    try:
        settings = options.load({"storage.hdd.path": str(small)}).settings
        with pytest.raises(UserError, match=f"{small} has 64 MiB free"):
            check_room(settings, tmp_path)
    finally:
        command("umount", small)


def test_large_profile_needs_what_it_writes_and_not_what_its_disks_could_hold(
    tmp_path: Path, room: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # kernels are kept on the same file system as the disks
    settings = options.load({"profile": "article"}).settings
    assert sum(disk.size_bytes for disk in settings.storage.disks.values()) == 55 * GIB
    room(20 * GIB)
    check_room(settings, tmp_path)
    room(10 * GIB)
    with pytest.raises(UserError, match=r"10 GiB free; .* up to 1[78]\.\d GiB there"):
        check_room(settings, tmp_path)
