"""A machine that has everything, and what is taken away from it."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisector.config import Settings, options
from bisector.core.errors import Finding, UserError
from bisector.doctor import checks
from bisector.doctor.checks import PROBES

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


def no_gcc_header(header: str) -> Callable[[Machine], None]:
    def hide(machine: Machine) -> None:
        real = (machine.programs / "gcc").resolve()
        machine.program("gcc", f'case "$*" in *{header}*) exit 1;; esac; exec {real} "$@"')

    return hide


def other_architecture(machine: Machine) -> None:
    (machine.run_dir.parent / "arm.config").write_text("# Linux/arm64 6.1.0 Kernel Configuration\nCONFIG_ARM64=y\n")
    machine.setting("kernel.base_config", "arm.config")


def ordinary_user_without_namespaces(machine: Machine) -> None:
    machine.patch.setattr(os, "geteuid", lambda: 1000)
    machine.program("unshare", "echo no mapping >&2; exit 1")


def without(*names: str) -> Callable[[Machine], None]:
    return lambda machine: machine.without(*names)
