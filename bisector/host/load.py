"""The host of a measurement: its cores and their speed, its foreign load, and waiting until that is low.

Linux only: /proc/stat (proc(5)) and /proc/pressure (Documentation/accounting/psi.rst).
"""

import hashlib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Self

from bisector.config import ContentionSettings
from bisector.core.deadline import Deadline, awake_s
from bisector.core.errors import Finding, Grade, InfraError
from bisector.core.figures import Contention
from bisector.core.units import duration_text
from bisector.host.identity import boot_id, cpu_model

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_GLANCE_S = 1.0  # for one row while a user waits
_LOOK_S = 2.0  # for the names of the busiest programs
_QUIET_S = 30.0  # required after other work was seen, since such work pauses, too
_HASHED_MIB = 0.25  # at once: shorter than the time slice that the scheduler gives to others on the core
_HASHED = bytes(int(_HASHED_MIB * 2**20))
_HASHING_S = 0.03  # an idle core reaches its speed within a few milliseconds
_LEAST_TIMES = 3
_NAMED = 3
_LEAST_CORES = 0.05

Turn = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The identity of this host, for the record; figures of two hosts are never compared."""

    cpu_model: str
    cores: int
    memory_bytes: int
    boot_id: str


def host_facts() -> HostFacts:
    """Facts that identify this host and limit its figures."""
    return HostFacts(
        cpu_model=cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        boot_id=boot_id(),
    )


def available_memory_bytes() -> int:
    """The memory that a new program can use without swapping (proc_meminfo(5), MemAvailable)."""
    lines = (_PROC / "meminfo").read_text(encoding="ascii").splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(kib) << 10


def core_mib_s() -> float:
    """MiB that a core hashes a second (SHA-256): the mean of this process's cores, all at once, each one's best try."""
    cores, end_s = sorted(os.sched_getaffinity(0)), time.perf_counter() + _HASHING_S

    def best_mib_s(core: int) -> float:
        with suppress(OSError):  # the core was taken offline meanwhile: then another one is timed twice
            os.sched_setaffinity(0, {core})  # applies to this thread alone
        tries_s = list[float]()
        while len(tries_s) < _LEAST_TIMES or time.perf_counter() < end_s:
            begin_s = time.perf_counter()
            hashlib.sha256(_HASHED)  # Python releases its lock for that much data
            tries_s.append(time.perf_counter() - begin_s)
        return _HASHED_MIB / min(tries_s)

    with ThreadPoolExecutor(len(cores)) as threads:
        return fmean(threads.map(best_mib_s, cores))


@dataclass(frozen=True, slots=True)
class _LoadReading:
    wall_s: float
    cpu_s: tuple[float, float, float]
    pressure_s: float
    ours_s: float


class ContentionMeter:
    """Foreign load between construction (or :meth:`start`) and :meth:`stop`.

    Not foreign are this process with its ended children, and ``guest_cpu_time_s`` (the QEMU process with its I/O
    threads, and the processes that serve it disks). All other CPU time is foreign, including kernel threads. After
    :meth:`start` it also reports the speed of the cores, before and after.
    """

    def __init__(self, guest_cpu_time_s: Callable[[], float]) -> None:
        self._guest_cpu_time_s = guest_cpu_time_s
        self._mib_s_before: float | None = None
        self._begin = self._read()

    def start(self) -> Self:
        """Begin again, after timing the cores."""
        self._mib_s_before = core_mib_s()
        self._begin = self._read()
        return self

    def stop(self) -> Contention:
        """The contention since the beginning; may be called more than once."""
        start, end = self._begin, self._read()
        wall_s = max(end.wall_s - start.wall_s, 1e-3)
        busy_s, steal_s, total_s = (after - before for before, after in zip(start.cpu_s, end.cpu_s, strict=True))
        seen = Contention(
            other_busy_cores=max(0.0, busy_s - (end.ours_s - start.ours_s)) / wall_s,
            steal_share=max(0.0, steal_s) / max(total_s, 1.0 / _TICKS_PER_S),
            psi_some_share=max(0.0, end.pressure_s - start.pressure_s) / wall_s,
        )
        if self._mib_s_before is None:
            return seen
        return replace(seen, mib_s_before=self._mib_s_before, mib_s_after=core_mib_s())

    def _read(self) -> _LoadReading:
        times = os.times()
        own_s = times.user + times.system + times.children_user + times.children_system
        return _LoadReading(
            time.monotonic(),
            parse_cpu_times((_PROC / "stat").read_text(encoding="ascii")),
            _cpu_pressure_s(),
            own_s + self._guest_cpu_time_s(),
        )


def parse_cpu_times(proc_stat: str) -> tuple[float, float, float]:
    """Busy, stolen and all CPU seconds since boot, summed over all cores, from the first line of /proc/stat.

    Waiting for I/O is not busy, guest time is part of user time.
    """
    words = proc_stat.split("\n", 1)[0].split()
    user, nice, system, idle, iowait, irq, softirq, steal = (int(word) / _TICKS_PER_S for word in words[1:9])
    busy_s = user + nice + system + irq + softirq
    return busy_s, steal, busy_s + idle + iowait + steal


def _cpu_pressure_s() -> float:
    """Seconds in which some task waited for a CPU; 0 if the kernel was built or started without PSI."""
    with suppress(OSError):  # absent, or "Operation not supported" with psi=0
        for line in (_PROC / "pressure/cpu").read_text(encoding="ascii").splitlines():
            if line.startswith("some "):
                return int(line.rpartition("total=")[2]) / 1e6
    return 0.0


def contention(limits: ContentionSettings) -> Finding:
    """The foreign load of this host during one second."""
    meter = ContentionMeter(lambda: 0.0)
    time.sleep(_GLANCE_S)
    load = Load(meter.stop(), ())
    what = f"{load}, {load.contention.psi_some_share:.0%} of the time somebody waited for a CPU"
    if not load.is_above(limits):
        return Finding("host load", Grade.OK, what)
    least = f"a run beside more than {limits.max_other_cores:g} cores, or {limits.max_steal_share:.0%} stolen, is weak"
    return Finding("host load", Grade.WARN, f"{what}; {least}", "ps -eo pcpu,pid,user,args --sort=-pcpu | head")


@dataclass(frozen=True, slots=True)
class Load:
    """The foreign load of the host during a period, and the programs that caused most of it, in cores."""

    contention: Contention
    busiest: tuple[tuple[str, float], ...]

    def is_above(self, limits: ContentionSettings) -> bool:
        """Whether a run beside this load would be weak."""
        seen = self.contention
        return seen.other_busy_cores > limits.max_other_cores or seen.steal_share > limits.max_steal_share

    def __str__(self) -> str:
        names = ", ".join(f"{name} {cores:.1f}" for name, cores in self.busiest)
        steal = f", {self.contention.steal_share:.0%} of CPU time stolen" if self.contention.steal_share else ""
        return f"{self.contention.other_busy_cores:.2f} cores of other work{f' ({names})' if names else ''}{steal}"


@contextmanager
def quiet_turn(
    limits: ContentionSettings,
    turn: Turn,
    others_turn: Callable[[], bool],
    tell: Callable[[str], None],
) -> Iterator[None]:
    """Take a turn on this host while the host is quiet by the run's limits; ``tell`` reports any wait.

    ``turn`` waits until no other run builds or measures here, and then keeps others out; ``others_turn`` tells whether
    another run does, whose work is not foreign. While foreign work goes on, the turn is given back, so that other runs
    can build. Raises :class:`InfraError` if foreign work is seen after ``limits.patience_s`` of waiting, not counting
    the turns of other runs; 0 means not to wait.
    """
    if not limits.patience_s:
        with turn():
            yield
        return
    looked_s, told, patience = 0.0, False, duration_text(limits.patience_s)

    def is_quiet(seconds: float) -> bool:
        """Whether the host is quiet now, and stays so for some seconds."""
        nonlocal looked_s, told
        quiet = Deadline("quiet", seconds)
        while True:
            begin_s = awake_s()
            load = look_around()
            looked_s += awake_s() - begin_s
            if load.is_above(limits):
                break
            if quiet.expired:
                return True
        if looked_s >= limits.patience_s:
            raise InfraError(
                f"the host was busy for {patience}: {load}, limit {limits.max_other_cores:.2f}",
                "ps -eo pcpu,pid,user,args --sort=-pcpu | head; contention.patience says how long to wait",
            )
        if not told:
            tell(f"waiting for a quiet host, at most {patience}: {load}")
            told = True
        return False

    needed_s = 0.0
    while True:
        with turn():
            if is_quiet(needed_s):
                yield
                return
        needed_s = _QUIET_S
        while not (others_turn() or is_quiet(0.0)):
            pass  # each look takes its time


def look_around() -> Load:
    """Measure the host's load for a moment."""
    meter, before = ContentionMeter(lambda: 0.0), _cpu_s()
    time.sleep(_LOOK_S)
    seen, after = meter.stop(), _cpu_s()
    cores: defaultdict[str, float] = defaultdict(float)
    for process, (name, cpu_s) in after.items():
        cores[name] += max(cpu_s - before.get(process, (name, 0.0))[1], 0.0) / _LOOK_S
    most = sorted(cores.items(), key=lambda one: one[1], reverse=True)[:_NAMED]
    return Load(seen, tuple(one for one in most if one[1] >= _LEAST_CORES))


def _cpu_s() -> dict[tuple[int, str], tuple[str, float]]:
    """Name and CPU seconds so far of each other process, by its id and start time (proc_pid_stat(5)).

    The name is not part of the key, since it may change: a kernel worker's depends on its work.
    """
    found = {}
    for entry in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):  # it ended meanwhile
            before, _, after = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")
            pid, _, name = before.partition(" (")
            words = after.split()
            if int(pid) != os.getpid():
                found[int(pid), words[19]] = name, (int(words[11]) + int(words[12])) / _TICKS_PER_S
    return found
