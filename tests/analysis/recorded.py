"""Trials made of figures, and of the text that fio 2.16 wrote in 2017."""

from pathlib import Path

from bisector.core.figures import CacheStatus, Contention, JobFigures, Run
from bisector.core.subject import Commit
from bisector.core.trial import Fault, Stage, Timings, Trial
from bisector.workload.fio.output import parse_text
from tests.examples import cell

RECORDED = Path(__file__).parent.parent / "data" / "recorded-runs"
QUIET = Contention(other_busy_cores=0.05, steal_share=0.0, psi_some_share=0.0)
FULL = CacheStatus("smq", "writeback", 1024, 1024, 0, 0, 0, 0, 0, 0, 0)


def job(iops: float, name: str = "partial/1", direction: str = "read", runtime_ms: int = 40_000) -> JobFigures:
    return JobFigures(name, direction, iops, 0.0, iops * 4, 0.0, 0.0, 1000, runtime_ms, 0)


def run(*jobs: JobFigures, name: str = "full", cache_before: CacheStatus | None = FULL) -> Run:
    return Run(name, "2017-07-28T18:51:41+00:00", jobs[0].runtime_ms / 1000, jobs, cache_before, None, QUIET, 0.0)


def trial(*runs: Run, fault: Fault | None = None, sha: str = "0" * 40) -> Trial:
    commit = Commit(sha, "1" * 40, "dm cache: a commit", "2017-05-14T21:54:33-04:00")
    return Trial(cell(commit), "", "host", Stage.DONE, fault, None, runs, Timings(), ())


def fio_2_run(path: Path, name: str) -> Run:
    """A run from fio 2.16's text."""
    return run(*parse_text(path.read_text(encoding="utf-8")).jobs, name=name)
