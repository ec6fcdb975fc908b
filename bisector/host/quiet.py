"""Wait until nothing else uses the host: a trial that other work made weak would be weak again."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bisector.config import ContentionSettings
from bisector.core.deadline import Deadline, awake_s
from bisector.core.errors import InfraError
from bisector.core.figures import Contention
from bisector.core.units import duration_text
from bisector.host.load import ContentionMeter

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_LOOK_S = 2.0
_QUIET_S = 30.0  # after other work was seen: it pauses, too
_NAMED = 3
_LEAST_CORES = 0.05


@dataclass(frozen=True, slots=True)
class Load:
    """What the host did besides this process for a while, and which programs did most of it, in cores."""

    contention: Contention
    busiest: tuple[tuple[str, float], ...]

    def is_above(self, limits: ContentionSettings) -> bool:
        """Whether a run beside it would be weak."""
        seen = self.contention
        return seen.other_busy_cores > limits.max_other_cores or seen.steal_share > limits.max_steal_share

    def __str__(self) -> str:
        names = ", ".join(f"{name} {cores:.1f}" for name, cores in self.busiest)
        steal = f", {self.contention.steal_share:.0%} of CPU time stolen" if self.contention.steal_share else ""
        return f"{self.contention.other_busy_cores:.2f} cores of other work{f' ({names})' if names else ''}{steal}"


Look = Callable[[], Load]
Turn = Callable[[], AbstractContextManager[None]]


@contextmanager
def quiet_turn(
    limits: ContentionSettings,
    turn: Turn,
    others_turn: Callable[[], bool],
    tell: Callable[[str], None],
    look: Look | None = None,
) -> Iterator[None]:
    """Have a turn on this host in which the host is quiet by the limits of a run; tell what it does meanwhile.

    ``turn`` waits until no other run builds or measures here, and keeps it so; ``others_turn`` tells whether one does,
    whose work is not foreign. As long as foreign work goes on, the turn is given back, so that other runs build.
    Raises :class:`InfraError` when foreign work is seen after ``limits.patience_s`` of waiting, in which the turns of
    other runs do not count; 0 is not to wait.
    """
    if not limits.patience_s:
        with turn():
            yield
        return
    host = _Host(limits, tell, look or look_around)
    needed_s = 0.0
    while True:
        with turn():
            if host.is_quiet(needed_s):
                yield
                return
        needed_s = _QUIET_S
        while not (others_turn() or host.is_quiet(0.0)):
            pass  # each look takes its time


@dataclass(slots=True)
class _Host:
    """Looked at until it is quiet; ``looked_s`` is how long that has taken."""

    limits: ContentionSettings
    tell: Callable[[str], None]
    look: Look
    looked_s: float = 0.0
    told: bool = False

    def is_quiet(self, seconds: float) -> bool:
        """Whether it is now, and stays so for some seconds; raises :class:`InfraError` for a busy one in the end."""
        quiet = Deadline("quiet", seconds)
        while not (load := self._load()).is_above(self.limits):
            if quiet.expired:
                return True
        patience = duration_text(self.limits.patience_s)
        if self.looked_s >= self.limits.patience_s:
            raise InfraError(
                f"the host was busy for {patience}: {load}, limit {self.limits.max_other_cores:.2f}",
                "ps -eo pcpu,pid,user,args --sort=-pcpu | head; contention.patience says how long to wait",
            )
        if not self.told:
            self.tell(f"waiting for a quiet host, at most {patience}: {load}")
            self.told = True
        return False

    def _load(self) -> Load:
        begin_s = awake_s()
        load = self.look()
        self.looked_s += awake_s() - begin_s
        return load


def look_around(seconds: float = _LOOK_S, proc: Path = _PROC) -> Load:
    """Watch the host for some seconds."""
    meter, before = ContentionMeter(lambda: 0.0, proc), _cpu_s(proc)
    time.sleep(seconds)
    seen, after = meter.stop(), _cpu_s(proc)
    cores: defaultdict[str, float] = defaultdict(float)
    for process, (name, cpu_s) in after.items():
        cores[name] += max(cpu_s - before.get(process, (name, 0.0))[1], 0.0) / seconds
    most = sorted(cores.items(), key=lambda one: one[1], reverse=True)[:_NAMED]
    return Load(seen, tuple(one for one in most if one[1] >= _LEAST_CORES))


def _cpu_s(proc: Path) -> dict[tuple[int, str], tuple[str, float]]:
    """Name and CPU seconds so far of each other process, by its number and when it began (proc_pid_stat(5)).

    Its name changes, as that of a kernel's worker does with its work.
    """
    found = {}
    for entry in proc.glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):  # it ended meanwhile
            before, _, after = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")
            pid, _, name = before.partition(" (")
            words = after.split()
            if int(pid) != os.getpid():
                found[int(pid), words[19]] = name, (int(words[11]) + int(words[12])) / _TICKS_PER_S
    return found
