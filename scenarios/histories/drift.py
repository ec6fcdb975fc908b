"""Other work on this host that slowly becomes more and less: what is measured beside it by the host's clock drifts.

All CPUs are busy at the same moments, so that a guest meets the work on whichever of them it runs.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

# Half of what makes a run weak (contention.max_other_cores): kernel threads of a quiet host take the rest now and then.
MOST_CORES = 0.25
# From nothing to most and back: ends that are read in turn for some ten minutes see it rise and fall.
PERIOD_S = 600.0
# A guest's CPU loses no more than a few ms at a time, which is no stand-still.
_TURN_S = 0.05


def busy_share(at_s: float, cpus: int) -> float:
    """The share of its time that each of so many CPUs is busy at a moment: a triangle over a period."""
    phase = at_s % PERIOD_S / PERIOD_S
    return MOST_CORES / cpus * (1 - abs(2 * phase - 1))


@contextmanager
def drifting() -> Iterator[None]:
    """Have the other work as long as this lasts, or until this process is gone."""
    cpus, began_s = os.sched_getaffinity(0), time.monotonic()
    with ExitStack() as stack:
        for cpu in cpus:
            words = (sys.executable, __file__, *map(str, (cpu, len(cpus), os.getpid(), began_s)))
            # Ctrl-C is for the run beside it, which ends in its own way.
            work = stack.enter_context(subprocess.Popen(words, start_new_session=True))
            stack.callback(work.kill)
        yield


def _work(cpu: int, cpus: int, parent: int, began_s: float) -> None:
    os.sched_setaffinity(0, {cpu})
    while os.getppid() == parent:
        now_s = time.monotonic()
        turn_s = now_s - now_s % _TURN_S
        until_s = turn_s + _TURN_S * busy_share(now_s - began_s, cpus)
        while time.monotonic() < until_s:
            pass
        time.sleep(max(0.0, turn_s + _TURN_S - time.monotonic()))


if __name__ == "__main__":
    _work(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
