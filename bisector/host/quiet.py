"""Wait until nothing else uses the host: a trial that other work made weak would be weak again."""

import os
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bisector.config import ContentionSettings
from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError
from bisector.core.figures import Contention
from bisector.core.kinds import duration_text
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

    def __str__(self) -> str:
        names = ", ".join(f"{name} {cores:.1f}" for name, cores in self.busiest)
        steal = f", {self.contention.steal_share:.0%} of CPU time stolen" if self.contention.steal_share else ""
        return f"{self.contention.other_busy_cores:.2f} cores of other work{f' ({names})' if names else ''}{steal}"


Look = Callable[[], Load]


def wait_until_quiet(limits: ContentionSettings, tell: Callable[[str], None], look: Look | None = None) -> None:
    """Return once the host is quiet by the limits of a run, at once when it is; tell what it does meanwhile.

    Raises :class:`InfraError` when that takes longer than ``limits.patience_s``; 0 is not to wait.
    """
    look = look or look_around
    if not limits.patience_s:
        return
    patience = Deadline("a quiet host", limits.patience_s)
    least_s = 0.0
    quiet = Deadline("quiet", _QUIET_S)
    while True:
        load = look()
        if _is_quiet(load.contention, limits):
            if quiet.elapsed_s >= least_s:
                return
        else:
            if not least_s:
                tell(f"waiting for a quiet host, at most {duration_text(limits.patience_s)}: {load}")
            least_s, quiet = _QUIET_S, Deadline("quiet", _QUIET_S)
        if patience.expired:
            raise InfraError(
                f"the host was busy for {duration_text(limits.patience_s)}: {load}, limit {limits.max_other_cores:.2f}",
                "ps -eo pcpu,pid,user,args --sort=-pcpu | head; contention.patience says how long to wait",
            )


def _is_quiet(seen: Contention, limits: ContentionSettings) -> bool:
    return seen.other_busy_cores <= limits.max_other_cores and seen.steal_share <= limits.max_steal_share


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
