"""Builds that were killed or ran by a wrong clock, and what they leave in a build directory."""

import os
import shutil
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError
from bisector.core.trial import KernelFault
from bisector.host import process
from bisector.kernel.builddir import Moment
from tests.kernel.bench import SETTINGS, Bench, recalled, slow_compiler
from tests.kernel.fake_tree import edit, iops_of, set_iops, spoil


def change_moment(bench: Bench, **of_moment: str | int) -> None:
    """Have the last build end at another moment."""
    stamp = bench.path / "build/.bisector/finished"
    moment = Moment.read(stamp)
    assert moment is not None
    replace(moment, **of_moment).write(stamp)  # type: ignore[arg-type]  # its fields


def test_what_was_built_before_the_clock_was_set_back_is_built_again(bench: Bench) -> None:
    """The clock was an hour ahead, and was put right before the next checkout."""
    first = bench.build()
    hour_ns = 3600 * 10**9
    for path in (path for path in (bench.path / "build").rglob("*") if path.is_file()):
        at_ns = path.stat().st_mtime_ns + hour_ns
        os.utime(path, ns=(at_ns, at_ns))
    change_moment(bench, ahead_ns=Moment.now().ahead_ns + hour_ns)
    set_iops(bench.source, 4000)
    edit(bench.source, "include/linux/kernel.h", "#define _LINUX_KERNEL_H", "#define _LINUX_KERNEL_H\n#define NEW")
    second = bench.build()
    assert iops_of(second.image) == 4000
    assert second.content_sha256 != first.content_sha256
    shutil.rmtree(bench.path / "build")
    assert bench.build().content_sha256 == second.content_sha256


def test_what_a_power_cut_left_empty_is_built_again(bench: Bench) -> None:
    first = bench.build()
    for name in ("fs/dcache.o", "init/main.o", "include/generated/autoconf.h", "vmlinux"):
        (bench.path / "build" / name).write_bytes(b"")
    change_moment(bench, boot="the one before")
    assert bench.build().content_sha256 == first.content_sha256
    assert len(bench.made()) == 6


def test_a_build_by_a_wrong_clock_is_never_kept(bench: Bench) -> None:
    first = bench.build()
    os.utime(bench.source / "fs/dcache.c", (time.time() + 3600,) * 2)
    with pytest.raises(InfraError, match=r"the clock was wrong \(make.* Clock skew detected"):
        bench.build("wrong")
    assert bench.builder.find("wrong") is None
    assert bench.build("right").content_sha256 == first.content_sha256


def test_a_build_that_ends_without_an_image_is_tried_again(bench: Bench) -> None:
    edit(bench.source, "Makefile", "bzImage: arch/x86/boot/bzImage", "bzImage: vmlinux")
    with pytest.raises(KernelFault, match="made no"):
        bench.build("tree")
    assert recalled(bench, "tree") is None


@pytest.mark.parametrize(
    ("include", "compiled"),
    [
        pytest.param(".DELETE_ON_ERROR:", ["fs/dcache.o"], id="make deletes what failed"),
        pytest.param("# as before v4.19", ["fs/dcache.o", "init/main.o"], id="half a target may be left"),
    ],
)
def test_what_a_bad_commit_built_counts_if_make_tidies_up(bench: Bench, include: str, compiled: list[str]) -> None:
    bench.settings = replace(SETTINGS, jobs=1)  # main.o is before dcache.o
    edit(bench.source, "scripts/Kbuild.include", ".DELETE_ON_ERROR:", include)
    bench.build()
    edit(bench.source, "init/main.c", "for (;;)", "while (1)")
    spoil(bench.source)
    with pytest.raises(KernelFault):
        bench.build()
    edit(bench.source, "fs/dcache.c", "nr_dentries = 0;", "nr_dentry = 0;")
    bench.build()
    assert bench.made() == compiled


def test_half_an_object_of_a_killed_build_is_compiled_again(bench: Bench) -> None:
    first = bench.build()
    edit(bench.source, "fs/dcache.c", "nr_dentry = 0;", "nr_dentry = 1;")
    hung = bench.path / "build/hung"
    bench.settings = replace(SETTINGS, compilers=(slow_compiler(bench.path / "slow-cc", hung),))

    def kill_make() -> None:
        Deadline("hung compiler", 30).poll(lambda: hung.exists() or None, every_s=0.01)
        others = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and int(entry.name) != os.getpid()]
        victims = [int(entry.name) for entry in others if marked(entry, bench.path)]
        # What kill -9 of everything at once leaves. One after the other, make could see its compiler end, and tidy up.
        for signum in (signal.SIGSTOP, signal.SIGKILL):
            for victim in victims:
                with suppress(ProcessLookupError):  # a sandbox ends with its first process
                    os.kill(victim, signum)

    killer = threading.Thread(target=kill_make)
    killer.start()
    with pytest.raises(InfraError, match="signal 9"):
        bench.build("killed")
    killer.join()
    half = bench.path / "build/fs/dcache.o"
    assert half.read_text() == "half"
    bench.settings = SETTINGS
    second = bench.build()
    assert "fs/dcache.o" in bench.made()
    assert second.content_sha256 != first.content_sha256
    assert bench.builder.find("killed") is None


def marked(entry: Path, run_dir: Path) -> bool:
    try:
        return f"{process.RUN_MARKER}={run_dir}".encode() in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
