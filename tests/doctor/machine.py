"""A machine that has everything, and what is taken away from it."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bisector.config import Settings, options
from bisector.core.errors import Finding, UserError
from bisector.doctor import checks
from bisector.doctor.checks import PROBES
from bisector.vm import probes
from bisector.vm.driver import LibvirtHypervisor

PROGRAMS = (
    *("git", "make", "flex", "bison", "bc", "perl", "ld", "objcopy", "readelf", "gcc", "as", "ccache"),
    *("qemu-img", "bwrap", "setpriv", "mmdebstrap", "mke2fs", "ssh-keygen", "unshare", "env", "sh", "true"),
)


@dataclass
class Machine:
    """A machine of which programs, settings and places can be taken away."""

    programs: Path
    settings: Settings
    run_dir: Path
    patch: pytest.MonkeyPatch

    def without(self, *names: str) -> None:
        for name in names:
            (self.programs / name).unlink()

    def program(self, name: str, script: str) -> None:
        self.without(name)
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def setting(self, key: str, value: str) -> None:
        self.settings = options.load({key: value}, directory=self.run_dir.parent).settings

    def rows(self, probe: str) -> list[Finding]:
        """The rows of one probe, as doctor has them."""
        self.patch.setattr(checks, "PROBES", tuple(one for one in PROBES if one.name == probe))
        return list(checks.examine(self.settings, self.run_dir, lambda _: None))

    def refusal(self) -> UserError | None:
        """How a start is refused by the same probe."""
        try:
            checks.check(self.settings, self.run_dir, lambda _: None)
        except UserError as error:
            return error
        return None


def no_room(machine: Machine) -> None:
    machine.patch.setattr("bisector.doctor.checks.disk_room_bytes", lambda path: 1 << 30)


def no_gcc_header(header: str) -> Callable[[Machine], None]:
    def hide(machine: Machine) -> None:
        real = (machine.programs / "gcc").resolve()
        machine.program("gcc", f'case "$*" in *{header}*) exit 1;; esac; exec {real} "$@"')

    return hide


def git_of_2021(machine: Machine) -> None:
    machine.program("git", "echo git version 2.31.0")


def trusted_keys(machine: Machine) -> None:
    (machine.run_dir.parent / "keys.config").write_text("CONFIG_SYSTEM_TRUSTED_KEYRING=y\n")
    machine.setting("kernel.fragments", "./keys.config")
    no_gcc_header("opensslv.h")(machine)


def other_architecture(machine: Machine) -> None:
    (machine.run_dir.parent / "arm.config").write_text("# Linux/arm64 6.1.0 Kernel Configuration\nCONFIG_ARM64=y\n")
    machine.setting("kernel.base_config", "arm.config")


def no_libvirt(machine: Machine) -> None:
    machine.setting("machine.connect", "qemu:///system?socket=/nowhere")


def no_libvirt_and_no_qemu(machine: Machine) -> None:
    no_libvirt(machine)
    machine.patch.setenv("PATH", str(machine.programs))


def qemu_that_does_not_start(machine: Machine) -> None:
    """Taken for a daemon's, the embedded driver refuses to end the guest with its connection."""
    machine.patch.setattr(probes, "EMBEDDED", "none")
    machine.patch.setattr(LibvirtHypervisor, "embedded", property(lambda self: False))


def ordinary_user_without_namespaces(machine: Machine) -> None:
    machine.patch.setattr(os, "geteuid", lambda: 1000)
    machine.program("unshare", "echo no mapping >&2; exit 1")


def run_directory_below_a_file(machine: Machine) -> None:
    machine.run_dir.write_text("")
    machine.run_dir /= "run"


def cache_below_a_file(machine: Machine) -> None:
    (machine.run_dir.parent / "file").write_text("")
    machine.patch.setenv("XDG_CACHE_HOME", str(machine.run_dir.parent / "file"))


def disk_gone(name: str) -> Callable[[Machine], None]:
    def spoil(machine: Machine) -> None:
        storage = machine.settings.storage
        gone = replace(storage.disks[name], path="/dev/nowhere")
        machine.settings = replace(machine.settings, storage=replace(storage, disks={**storage.disks, name: gone}))

    return spoil


def job_without_section(machine: Machine) -> None:
    job = machine.run_dir.parent / "empty.fio"
    job.write_text("[global]\n")
    machine.settings = replace(machine.settings, workload=machine.settings.workload.with_inputs({"job": job}))


def bwrap_without_rights(machine: Machine) -> None:
    machine.program("bwrap", "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1")


def without(*names: str) -> Callable[[Machine], None]:
    return lambda machine: machine.without(*names)
