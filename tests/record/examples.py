"""What a record holds: a bisection, and trials with every kind of field in use."""

from dataclasses import replace
from pathlib import Path

from bisector.model import Direction, Fault, FaultKind, Stage, Timings, Trial
from bisector.record.rows import BisectionRow
from tests.examples import cache, commit, kernel, run, trial


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


def faulty(number: int) -> Trial:
    tail = ("Kernel panic - not syncing", '  "quoted", \ud800 half a pair', "")
    fault = Fault(Stage.BOOT, FaultKind.PANIC, "Kernel panic - not syncing: VFS", tail)
    return replace(trial(commit(number), fault=fault, timings=Timings(1.0)), artifacts=())


def equal_kernel(number: int) -> Trial:
    return trial(commit(number), timings=Timings(build_s=2.0, total_s=2.5), same_kernel_as="d" * 40)
