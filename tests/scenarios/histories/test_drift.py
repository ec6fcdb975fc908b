"""Other work beside a run: how much of it there is, and that it ends with the run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bisector.config import options
from bisector.core.deadline import Deadline
from scenarios.histories.drift import MOST_CORES, PERIOD_S, busy_share, drifting

EACH = [{cpu} for cpu in sorted(os.sched_getaffinity(0))]


def children(parent: int) -> set[int]:
    return set(map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()))


def there(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def test_it_rises_and_falls_and_no_run_is_weak_for_it() -> None:
    shares = [busy_share(PERIOD_S * eighth / 8, 2) for eighth in range(9)]
    assert shares == pytest.approx([MOST_CORES / 2 * part / 4 for part in (0, 1, 2, 3, 4, 3, 2, 1, 0)])
    limit = options.load(directory=Path("/")).settings.contention.max_other_cores
    assert 2 * max(shares) <= limit / 2


def test_each_cpu_has_it_as_long_as_the_run_lasts() -> None:
    before = children(os.getpid())
    with drifting():
        work = children(os.getpid()) - before
        all_are_there = Deadline("work on each CPU", 20).poll
        assert all_are_there(lambda: sorted(map(os.sched_getaffinity, work), key=sorted) == EACH or None)
    assert not any(map(there, work))


def test_it_ends_with_a_process_that_is_killed() -> None:
    drift = "from scenarios.histories.drift import drifting"
    code = f"import time; {drift}\nwith drifting(): print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        work = children(parent.pid)
        assert len(work) == len(EACH)
        parent.send_signal(signal.SIGKILL)
    assert Deadline("the end of the work", 20).poll(lambda: not any(map(there, work)) or None)
