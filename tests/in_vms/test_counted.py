"""A guest whose instructions are counted: the same to the last bit, whatever else the host does."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.demo.history import History
from tests.in_vms.conftest import SHORT, SHORT_RUNS, Tool

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
