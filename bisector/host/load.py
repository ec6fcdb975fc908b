"""The host of a measurement: what else it did meanwhile, and what it has to offer.

Linux only: /proc/stat (proc(5)) and /proc/pressure (Documentation/accounting/psi.rst).
"""

import os
import platform
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bisector.core.figures import Contention

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Who this host is, for the record; figures of two hosts are never compared."""

    name: str
    cpu_model: str
    cores: int
    memory_bytes: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """CPU seconds since boot, summed over all cores; ``total_s`` includes idle and stolen time."""

    busy_s: float
    steal_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class _Reading:
    wall_s: float
    cpu: CpuTimes
    pressure_s: float | None
    ours_s: float


class ContentionMeter:
    """Foreign load between its making (or :meth:`start`) and :meth:`stop`.

    Ours are this process with its ended children, and what ``guest_cpu_time_s`` reports (the QEMU
    process with its I/O threads). Everything else that ran is foreign, kernel threads included.
    """

    def __init__(self, guest_cpu_time_s: Callable[[], float], proc: Path = _PROC) -> None:
        self._guest_cpu_time_s = guest_cpu_time_s
        self._proc = proc
        self._begin = self._read()

    def start(self) -> Self:
        """Begin anew."""
        self._begin = self._read()
        return self

    def stop(self) -> Contention:
        """What the host did since the beginning; may be asked more than once."""
        return _difference(self._begin, self._read())

    def _read(self) -> _Reading:
        times = os.times()
        own_s = times.user + times.system + times.children_user + times.children_system
        return _Reading(
            time.monotonic(),
            parse_cpu_times((self._proc / "stat").read_text(encoding="ascii")),
            _cpu_pressure_s(self._proc),
            own_s + self._guest_cpu_time_s(),
        )


def _difference(start: _Reading, end: _Reading) -> Contention:
    wall_s = max(end.wall_s - start.wall_s, 1e-3)
    busy_s = end.cpu.busy_s - start.cpu.busy_s
    total_s = max(end.cpu.total_s - start.cpu.total_s, 1.0 / _TICKS_PER_S)
    pressure_s = 0.0
    if start.pressure_s is not None and end.pressure_s is not None:
        pressure_s = end.pressure_s - start.pressure_s
    return Contention(
        other_busy_cores=max(0.0, busy_s - (end.ours_s - start.ours_s)) / wall_s,
        steal_share=max(0.0, end.cpu.steal_s - start.cpu.steal_s) / total_s,
        psi_some_share=max(0.0, pressure_s) / wall_s,
    )


def parse_cpu_times(proc_stat: str) -> CpuTimes:
    """Of the first line of /proc/stat; waiting for I/O is not busy, guest time is part of user time."""
    words = proc_stat.split("\n", 1)[0].split()
    user, nice, system, idle, iowait, irq, softirq, steal = (int(word) / _TICKS_PER_S for word in words[1:9])
    busy_s = user + nice + system + irq + softirq
    return CpuTimes(busy_s, steal, busy_s + idle + iowait + steal)


def _cpu_pressure_s(proc: Path) -> float | None:
    """Seconds in which some task waited for a CPU; None when the kernel was built or started without PSI."""
    try:
        lines = (proc / "pressure/cpu").read_text(encoding="ascii").splitlines()
    except OSError:  # absent, or "Operation not supported" with psi=0
        return None
    for line in lines:
        if line.startswith("some "):
            return int(line.rpartition("total=")[2]) / 1e6
    return None


def host_facts(proc: Path = _PROC) -> HostFacts:
    """What identifies this host and bounds its figures."""
    pages = os.sysconf("SC_PHYS_PAGES")
    return HostFacts(
        name=socket.gethostname(),
        cpu_model=_cpu_model(proc),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=pages * os.sysconf("SC_PAGE_SIZE"),
        boot_id=(proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
    )


def host_id(proc: Path = _PROC) -> str:
    """Host name and CPU model, for the record of a trial."""
    return f"{socket.gethostname()} ({_cpu_model(proc)})"


def _cpu_model(proc: Path) -> str:
    for line in (proc / "cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.machine()


def disk_room_bytes(path: Path) -> int:
    """Bytes free for us on the file system of ``path``, or of its nearest parent that exists."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def direct_io(directory: Path) -> bool:
    """Whether files in ``directory`` can be opened with O_DIRECT (tmpfs could not before Linux 6.6)."""
    try:
        probe = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600)
    except OSError:  # EINVAL: no O_DIRECT; EOPNOTSUPP: no O_TMPFILE, ask again with a name
        return _direct_io_by_name(directory)
    os.close(probe)
    return True


def _direct_io_by_name(directory: Path) -> bool:
    name = directory / f".bisector-direct-{os.getpid()}"
    try:
        probe = os.open(name, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600)
    except OSError:
        return False
    finally:
        name.unlink(missing_ok=True)
    os.close(probe)
    return True


def free_port() -> int:
    """A loopback TCP port that was free a moment ago; QEMU says so when it no longer is."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
