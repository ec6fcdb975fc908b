"""The records of an invented bisection, built in one place; each test changes what it is about."""

from dataclasses import replace
from pathlib import Path

from bisector.core.figures import CacheStatus, Contention, DiskQueue, EarlyStop, JobFigures, Run, StopReason
from bisector.core.subject import Cell, Commit, Kernel, Kind, Setup, Subject
from bisector.core.trial import Artifact, Era, Fault, Stage, Timings, Trial
from bisector.storage.lvmcache import counted

EARLY = EarlyStop(StopReason.ABOVE, 16.5, 3012.5, 1363.0, "every job was above 3,012 IOPS for 6 s")
STARTED_AT = "2026-03-01T10:00:00+00:00"
HOST = "box"
SETUP = Setup("lvmcache(ssd,hdd)+ext4", "fio(partial.fio)")
QUIET = Contention(other_busy_cores=0.02, steal_share=0.0, psi_some_share=0.015)
BUSY = Contention(other_busy_cores=1.4, steal_share=0.0, psi_some_share=0.9)


ERA = Era("tcg", "7.2.22", "6.1.0-25-amd64", "Example CPU", 2, 24, "1a" * 8, ("ssd: WD-1", "hdd: WD-2"), "b1").sealed
UPGRADED = replace(ERA, qemu="7.2.23", boot="b2").sealed


def commit(number: int) -> Commit:
    return Commit(f"{number:040x}", f"{number + 1000:040x}", f"dm cache: step {number}", "2017-05-03T10:00:00+02:00")


def cell(of: Commit, kind: Kind = Kind.COMMIT, changed_by: str | None = None) -> Cell:
    """A commit, or an end that is changed by one, on the setup of the default settings."""
    return Cell(Subject(of, kind, changed_by), SETUP)


def alone(disk: str) -> Setup:
    """A disk with a file system and nothing else."""
    return replace(SETUP, stack=f"{disk}+ext4")


def cache(used: int = 1024) -> CacheStatus:
    return CacheStatus("smq", "writeback", used, 1024, 7, 1, 2, 3, 4, 5, 6)


def job(name: str, iops: float, direction: str = "read") -> JobFigures:
    return JobFigures(name, direction, iops, 12.5, iops * 4, 1.5e6, 9.9e6, 200_000, 40_001, 0)


def run(
    name: str,
    *iops: float,
    before: CacheStatus | None = None,
    after: CacheStatus | None = None,
    contention: Contention = QUIET,
    stopped_early: EarlyStop | None = None,
) -> Run:
    jobs = tuple(job(f"job{n}", figure) for n, figure in enumerate(iops))
    measured = Run(name, STARTED_AT, 40.2, jobs, before, after, contention, -0.04, stopped_early=stopped_early)
    return replace(measured, counters=tuple(counted(before, after)))


def kernel(unmet: tuple[str, ...] = (), quirks: tuple[str, ...] = (), content: str = "c" * 64) -> Kernel:
    return Kernel(
        image=Path("/cache/kernels/k1/bzImage"),
        config=Path("/cache/kernels/k1/kernel.config"),
        release="5.0.0-test",
        build_id="0f" * 20,
        content_sha256=content,
        key="k1",
        toolchain="gcc 12.2.0, GNU ld 2.40",
        quirks=quirks,
        unmet=unmet,
        cached=False,
        build_s=47.0,
    )


def trial(
    of: Commit,
    *runs: Run,
    fault: Fault | None = None,
    built: Kernel | None = None,
    timings: Timings | None = None,
    same_kernel_as: str | None = None,
    queues: tuple[DiskQueue, ...] = (),
) -> Trial:
    """A trial that came as far as its fault, or to its end; ``built`` is for tests that look at the kernel."""
    makes_none = fault is not None and fault.stage in (Stage.CONFIG, Stage.BUILD)
    return Trial(
        cell=cell(of),
        started_at=STARTED_AT,
        host=HOST,
        stage=fault.stage if fault else Stage.DONE,
        fault=fault,
        kernel=None if makes_none else built or kernel(),
        runs=runs,
        timings=timings or Timings(47.0, 5.7, 4.2, 84.0, 146.4),
        artifacts=(Artifact("console.log", f"trials/{of.short}/console.log", "ab" * 32, 20_000),),
        same_kernel_as=same_kernel_as,
        queues=queues,
    )


def baseline(disk: str, *iops: float, of: Commit | None = None, contention: Contention = QUIET) -> Trial:
    """What a disk does without a cache."""
    measured = trial(of or commit(7), run(disk, *iops, contention=contention))
    return replace(measured, cell=Cell(measured.subject, alone(disk)))
