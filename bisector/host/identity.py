"""What tells hosts apart: the machine's id, the boot's, and a name for people. Linux only (proc(5))."""

import platform
import socket
from contextlib import suppress
from pathlib import Path

_MACHINE_ID = Path("/etc/machine-id")
_PROC = Path("/proc")


def boot_id() -> str:
    """The id of this host's current boot (random(4)); each boot has another one."""
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def machine_id() -> str:
    """The id of this host's installation (machine-id(5)); the host's name if it has none."""
    with suppress(OSError):
        return _MACHINE_ID.read_text(encoding="ascii").strip()
    return platform.node()


def host_id() -> str:
    """Host name and CPU model, for the record of a trial."""
    return f"{socket.gethostname()} ({cpu_model()})"


def cpu_model() -> str:
    """The model of the processor (proc_cpuinfo(5)); the architecture if the kernel names none."""
    for line in (_PROC / "cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.machine()
