"""Built records, with every kind of field in use."""

from pathlib import Path

from bisector.model import (
    Artifact,
    CacheStatus,
    Commit,
    Contention,
    Direction,
    Fault,
    FaultKind,
    JobFigures,
    Kernel,
    Run,
    Stage,
    Timings,
    Trial,
)
from bisector.record.rows import BisectionRow


def bisection() -> BisectionRow:
    return BisectionRow(
        repository=Path("/src/linux"),
        old_rev="v4.11",
        old_sha="a" * 40,
        new_rev="v4.13-rc1",
        new_sha="b" * 40,
        term_old="broken",
        term_new="fixed",
        direction=Direction.IMPROVEMENT,
        paths=("drivers/md", "fs/ext4"),
        first_parent=True,
        skips=("c" * 40,),
        settings="{}",
        tool_version="0.1.0",
        created_at="2026-11-21T03:30:12+00:00",
    )


def commit(number: int) -> Commit:
    return Commit(f"{number:040x}", f"{number + 1000:040x}", f"dm cache: step {number}", "2017-05-03T10:00:00+02:00")


def cache(used: int) -> CacheStatus:
    return CacheStatus("smq", "writeback", used, 1024, 7, 1, 2, 3, 4, 5, 6)


def job(name: str, iops: float) -> JobFigures:
    return JobFigures(name, "read", iops, 12.5, iops * 4, 1.5e6, 9.9e6, int(iops * 40), 40001, 0)


def run(name: str, before: CacheStatus | None, after: CacheStatus | None) -> Run:
    jobs = (job("partial", 1002.25), job("partial", 8046.0))
    return Run(name, "2026-11-21T03:31:00Z", 40.2, jobs, before, after, Contention(0.02, 0.0, 0.015), -0.04)


def measured(number: int) -> Trial:
    kernel = Kernel(
        image=Path("/cache/kernels/ab/bzImage"),
        config=Path("/cache/kernels/ab/config"),
        release="4.12.0-rc3",
        build_id="0f" * 20,
        content_sha256="1e" * 32,
        key="2d" * 32,
        toolchain="gcc 12.2.0, GNU ld 2.40",
        quirks=("max-page-size",),
        unmet=("CONFIG_VIRTIO_MENU=y",),
        cached=True,
        build_s=16.625,
    )
    return Trial(
        commit=commit(number),
        started_at="2026-11-21T03:30:30+00:00",
        host="kiste",
        stage=Stage.DONE,
        fault=None,
        kernel=kernel,
        runs=(run("empty", None, cache(1000)), run("full", cache(1000), cache(1024))),
        timings=Timings(16.7, 6.5, 3.25, 95.0, 122.0),
        artifacts=(Artifact("console.log", f"trials/{number:04d}-{number:012x}/console.log", "ab" * 32, 0),),
    )


def faulty(number: int) -> Trial:
    tail = ("Kernel panic - not syncing", '  "quoted", \ud800 half a pair', "")
    fault = Fault(Stage.BOOT, FaultKind.PANIC, "Kernel panic - not syncing: VFS", tail)
    return Trial(commit(number), "2026-11-21T04:00:00Z", "kiste", Stage.BOOT, fault, None, (), Timings(1.0), ())


def equal_kernel(number: int) -> Trial:
    return Trial(
        commit(number),
        "2026-11-21T04:00:00Z",
        "kiste",
        Stage.BUILD,
        None,
        None,
        (),
        Timings(build_s=2.0, total_s=2.5),
        (),
        same_kernel_as="d" * 40,
    )
