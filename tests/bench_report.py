"""How long a report of 40 trials with all its plots takes, and how large it is; ``make bench`` runs it.

Each trial has real IOPS logs, a real console and a real .config of a distribution, every seventh another one.
"""

import gzip
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bisector.core import resources
from tests import fakes
from tests.git import histories
from tests.recorded_run import FAST, SLOW, RecordedRun

TRIALS = 40
GOAL_S, GOAL_BYTES = 5.0, 3_000_000
DATA = Path(__file__).parent / "data"


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


def files(kind: str, n: int) -> Mapping[str, str]:
    config = gzip.decompress((DATA / "kconfig" / "debian-12-6.1.192-2-amd64.gz").read_bytes()).decode()
    found = {
        "console.log": (DATA / "console" / "boot-ready-poweroff.log").read_text(errors="replace"),
        "kernel.config": f"{config}CONFIG_STEP_{n // 7}=y\n",
    }
    for run in ("empty", "full"):
        for job in (1, 2):
            found[f"{run}/partial_iops.{job}.log"] = (DATA / "fio" / f"{kind}-full_iops.{job}.log").read_text()
    return found


def recorded(path: Path) -> RecordedRun:
    """Both ends, then from either end towards the culprit; every ninth does not build."""
    run = RecordedRun(path, histories.linear(TRIALS), {})
    culprit = TRIALS * 3 // 5
    for n in (0, TRIALS - 1, *range(1, culprit), *range(TRIALS - 2, culprit - 1, -1)):
        if n % 9 == 4:
            run.add(f"c{n}", fault=fakes.BUILD_ERROR, more={"kernel.config": files("broken", n)["kernel.config"]})
        else:
            slow = n < culprit
            run.add(f"c{n}", SLOW if slow else FAST, more=files("broken" if slow else "fixed", n))
    run.log(("fixed", f"c{TRIALS - 1}"), ("broken", "c0"))
    run.end()
    return run


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        where = Path(scratch)
        run = recorded(where)
        page = where / "report.html"
        for words, goal in (
            (["plot"], ""),
            (["report", "--format", "html", "-o", str(page)], f"   (goal: {GOAL_S:g} s)"),
        ):
            before = time.monotonic()
            command = [sys.executable, "-m", "bisector", words[0], "--run-dir", str(run.run.path), *words[1:]]
            subprocess.run(command, cwd=resources.ROOT, check=True, stdout=subprocess.DEVNULL)
            say(f"{f'bisector {words[0]}, {TRIALS} trials':<40}{time.monotonic() - before:7.2f} s{goal}")
        say(f"{'the page':<40}{page.stat().st_size / 1e6:7.2f} MB   (goal: {GOAL_BYTES / 1e6:g} MB)")


if __name__ == "__main__":
    main()
