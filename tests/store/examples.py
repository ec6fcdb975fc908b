"""What a record holds: a bisection, and trials with every kind of field in use."""

from dataclasses import replace
from pathlib import Path

from bisector.core.figures import CpuUse, DiskFigures, DiskQueue, Latency
from bisector.core.metric import LatencyKind
from bisector.core.subject import Cell, Setup, Subject
from bisector.core.trial import Fault, FaultKind, Origin, Stage, Timings, Trial
from bisector.core.verdict import Verdict
from bisector.store.facts import RunHeader
from tests.examples import EARLY, cache, commit, kernel, run, trial


def bisection() -> RunHeader:
    return RunHeader(
        repository=Path("/src/linux"),
        old_rev="v4.11",
        old_sha="a" * 40,
        new_rev="v4.13-rc1",
        new_sha="b" * 40,
        paths=("drivers/md", "fs/ext4"),
        first_parent=True,
        skips=("c" * 40,),
        settings="{}",
        tool_version="0.1.0",
        created_at="2026-11-21T03:30:12+00:00",
    )


def measured(number: int) -> Trial:
    built = replace(
        kernel(unmet=("CONFIG_VIRTIO_MENU=y",), quirks=("max-page-size",)),
        cached=True,
        build_s=16.625,
        modules=Path("/cache/kernels/ab/modules.ext4"),
    )
    empty = run("empty", 1002.25, 8046.0, after=cache(1000))
    full = run("full", 1002.25, 8046.0, before=cache(1000), after=cache())
    return trial(commit(number), empty, full, built=built)


def queued(number: int) -> Trial:
    """One whose guest's kernel told of the disks."""
    queues = (DiskQueue("ssd", "virtio", "none", 128, 256, None), DiskQueue("hdd", "scsi", "", None, None, 0))
    return replace(measured(number), queues=queues)


def imported(number: int) -> Trial:
    """Facts of others: no kernel, no look at the host, and what fio's text says."""
    percentiles = ((50.0, 109_000.0), (99.0, 100_864_000.0))
    latency = Latency(LatencyKind.COMPLETION, 34_000.0, 1.5e9, 3_725_260.0, 24_447_200.0, percentiles)
    unknown = replace(
        run("full", 730.0).jobs[0],
        iops_stddev=None,
        clat_p99_ns=None,
        latencies=(latency,),
        cpu=CpuUse(0.73, 2.52, 1_993_978, 0),
        depths_percent=(("8", 100.0), (">=64", 0.0)),
    )
    disk = DiskFigures("dm-2", 2_585_032, 29, 0, 0, 14_380_160, 2084, 14_383_828, 100.0)
    full = replace(run("full"), jobs=(unknown,), contention=None, clock_drift_s=None, disks=(disk,))
    origin = Origin("fio-2.16", "4.12.0-rc1+", Verdict.OLD)
    return replace(trial(commit(number), full), cell=Cell(Subject(commit(number)), Setup()), kernel=None, origin=origin)


def stopped(number: int) -> Trial:
    return trial(commit(number), run("empty", 1002.25, after=cache()), run("full", 3818.5, stopped_early=EARLY))


def faulty(number: int) -> Trial:
    tail = ("Kernel panic - not syncing", '  "quoted", half a word', "")
    fault = Fault(Stage.BOOT, FaultKind.PANIC, "Kernel panic - not syncing: VFS", tail)
    return replace(trial(commit(number), fault=fault, timings=Timings(1.0)), artifacts=())


def equal_kernel(number: int) -> Trial:
    return trial(commit(number), timings=Timings(build_s=2.0, total_s=2.5), same_kernel_as="d" * 40)
