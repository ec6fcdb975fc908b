"""What a run of fio meets in a guest that answers from a table."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bisector.core.events import LiveSample
from bisector.core.figures import CacheStatus, Contention, Run
from bisector.host.process import run_here
from bisector.storage.layer import Counters, LayerPlan, MountedStack
from bisector.workload.base import RunSite
from bisector.workload.fio.fio import Fio
from tests.guest_answers import listed
from tests.guestshell import Answer, FakeShell

PROJECT = Path(__file__).parent.parent.parent
DATA = Path(__file__).parent.parent / "data" / "fio"
SETTINGS = Fio(PROJECT / "fio" / "partial.fio", 32 << 20, 40)
QUIET = Contention(0.1, 0.0, 0.0)
CACHE = CacheStatus("smq", "writeback", 1024, 1024, 0, 1, 2, 3, 4, 5, 6)
FAILED = Answer(listed("fio.json", "job.fio"), "\n@uptime 10.00\nfio: went wrong\n\n@uptime 10.20\n", 1)
OWN = "[global]\nrw=randread\ndirectory=${DIRECTORY}\nlog_avg_msec=500\ntime_based\nruntime=${RUNTIME}\n"


COUNTERS = Counters(lambda shell: CACHE, lambda before, after: [("cache.promotions", 2.0)])
STACK = MountedStack("/mnt", (), room="storage.hdd.size", made=(LayerPlan("/mnt", (), counters=COUNTERS),))


@dataclass
class Bench:
    logs: Path
    settings: Fio = SETTINGS
    samples: list[LiveSample] = field(default_factory=list)
    stack: MountedStack = STACK
    stopped_meters: int = 0

    def _stop_meter(self) -> Contention:
        self.stopped_meters += 1
        return QUIET

    def run(self, shell: FakeShell, name: str = "full", *, keep_files: bool = False, **more: Any) -> Run:
        """A run; ``more`` are further fields of its :class:`RunSite`."""
        meter, on_sample = (lambda: self._stop_meter), self.samples.append
        site = RunSite(shell, self.stack, name, self.logs, keep_files, meter, on_sample, 100, run_here, **more)
        return self.settings.run(site)


def own_job(tmp_path: Path, text: str) -> Fio:
    """A person's own job file."""
    job = tmp_path / "own.fio"
    job.write_text(OWN + text, encoding="utf-8")
    return replace(SETTINGS, job=job)
