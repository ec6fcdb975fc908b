"""A guest whose instructions are counted: the same to the last bit, whatever else the host does."""

import signal
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bisector.store.store import Store
from bisector.vm.definition import domain_prefix
from scenarios.demo.history import History
from tests.in_vms.conftest import SHORT, SHORT_RUNS, Tool, guests_of

pytestmark = pytest.mark.vm


def contents(trial: dict[str, Any]) -> dict[str, str]:
    """The digests of what is kept of it, but for what is known of the host."""
    return {one["name"]: one["sha256"] for one in trial["artifacts"] if one["name"] not in ("host.json", "build.log")}


def test_a_trial_is_the_same_again_beside_other_work(tool: Tool, demo: History, tmp_path: Path) -> None:
    words = (demo.new, *SHORT, "--clock", "instructions")
    quiet = tool.trial(*words)
    others = [subprocess.Popen(["sh", "-c", "while :; do :; done"])]
    try:
        beside = tool.trial(*words, "--run-dir", tmp_path / "other")
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert (quiet["verdict"], beside["verdict"]) == ("measured", "measured")
    assert {"console.log", "full/fio.json"} <= contents(quiet).keys()
    assert contents(beside) == contents(quiet)
    for again, first in zip(beside["runs"], quiet["runs"], strict=True):
        assert (again["jobs"], again["counters"]) == (first["jobs"], first["counters"])
        assert (first["counters"]["interrupts"], first["counters"]["io.instructions"] > 1000) == (0, True)
    assert beside["era"]["clock"] == "8 ns an instruction"
    assert {queue["bus"] for queue in beside["queues"]} == {"null_blk"}


def test_a_cache_on_the_disks_of_older_trees(tool: Tool, demo: History) -> None:
    """LVM sees each of them once, and dm-cache lies on both."""
    disks = ("--disk", "ssd=128MiB,bus=brd,bandwidth=1GiB", "--disk", "hdd=128MiB,bus=brd,latency=1ms")
    trial = tool.trial(demo.new, *SHORT_RUNS, *disks, "--clock", "instructions")
    assert trial["verdict"] == "measured"
    assert {queue["bus"] for queue in trial["queues"]} == {"brd"}


def test_two_guests_measure_at_a_time_and_none_outlives_a_kill(tool: Tool, demo: History, tmp_path: Path) -> None:
    """A kernel and its placebo: the block that is begun anew has both of them again at once, and they are the same."""
    run_dir = tmp_path / "run"
    prefix = domain_prefix(run_dir)
    words = ("--placebo", "--runs", "1", "--stack", "ram+ext4", "--runtime", "3s", "--file-size", "8MiB")
    counted = ("--clock", "instructions", "--set", "machine.guests=2")
    child = tool.spawn("compare", demo.new, "--repo", tool.repo, "--run-dir", run_dir, *words, *counted)
    tool.wait_for("two guests", run_dir, lambda: len(guests_of(prefix)) == 2)
    child.send_signal(signal.SIGKILL)
    child.wait()
    resumed = tool("resume", "--run-dir", run_dir)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert not guests_of(prefix)
    with Store.open(run_dir / "record.sqlite", readonly=True) as store:
        (first, again) = (trial for _, trial in store.trials()[-2:])
    files = [{one.name: one.sha256 for one in trial.artifacts} for trial in (first, again)]
    for name in ("console.log", "run/fio.json"):
        assert files[0][name] == files[1][name]
    begun = [datetime.fromisoformat(trial.started_at) for trial in (first, again)]
    assert abs((begun[1] - begun[0]).total_seconds()) < min(first.timings.total_s, again.timings.total_s)
