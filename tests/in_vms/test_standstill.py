"""A host that stands still in a run: whoever of both goes on meanwhile, the trial is weak."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bisector.vm.definition import domain_prefix
from scenarios.demo.history import History
from tests.in_vms.conftest import SHORT, Tool

pytestmark = [pytest.mark.vm, pytest.mark.quiet]

_STOPPED_S = 12.0
_LAID_OUT_S = 8.0  # four times what it takes on a quiet host


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does nothing, as on a suspended laptop or in a frozen cgroup."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def begun(child: "subprocess.Popen[str]", run: str) -> None:
    """Return when the run has begun; its files are still to be laid out."""
    assert child.stdout is not None
    seen = []
    for line in child.stdout:
        seen.append(line)
        if f"{run} run" in line:
            return
    raise AssertionError("".join(seen))


def guest_of(run_dir: Path) -> int:
    """The QEMU process of a run."""
    prefix = f"guest={domain_prefix(run_dir)}".encode()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if prefix in entry.read_bytes():
                return int(entry.parent.name)
        except OSError:
            continue
    raise AssertionError("no guest")


@pytest.mark.rare
def test_nobody_listens_while_the_first_run_ends(tool: Tool, demo: History, tmp_path: Path) -> None:
    """The guest goes on, and its cache has that much longer before the second run."""
    run_dir = tmp_path / "run"
    child = tool.spawn("test", demo.new, "--repo", tool.repo, "--run-dir", run_dir, *SHORT)
    begun(child, "empty")
    time.sleep(2.0)
    with stopped(child.pid):
        time.sleep(_STOPPED_S)
    said, _ = child.communicate()
    assert " weak at " in said
    assert "in the empty run the guest's clock drifted by -" in said


@pytest.mark.parametrize("run", [pytest.param("empty", marks=pytest.mark.rare), "full"])
def test_a_guest_that_stands_still(tool: Tool, demo: History, tmp_path: Path, run: str) -> None:
    """Its clock has gone on when it is let: the run is over in time, and no clock drifted."""
    run_dir = tmp_path / "run"
    longer = ("--set", "workload.runtime=25s")
    sizes = tuple(word for word in SHORT if word not in ("--runtime", "3s"))
    child = tool.spawn("test", demo.new, "--repo", tool.repo, "--run-dir", run_dir, *sizes, *longer)
    begun(child, run)
    time.sleep(_LAID_OUT_S)
    with stopped(guest_of(run_dir)):
        time.sleep(_STOPPED_S)
    said, _ = child.communicate()
    assert " weak at " in said
    assert "an I/O of job partial/" in said
    assert ("in the empty run an I/O of job" in said) is (run == "empty")
    assert "drifted" not in said
