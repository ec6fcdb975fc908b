"""Caches in real guests: made, read back, filled and counted; one kernel has the drivers of all layers."""

from pathlib import Path
from typing import Any

import pytest

from scenarios.demo.history import History
from tests.in_vms.conftest import SHORT, Tool

pytestmark = pytest.mark.vm
RARE = pytest.mark.rare

SMALL = (
    *("--set", "storage.bcache.cache_size=16MiB", "--set", "storage.bcache.bucket_size=16KiB"),
    *("--set", "storage.lvmwritecache.cache_size=16MiB"),
)


def measured(tool: Tool, demo: History, stack: str, *words: str) -> dict[str, Any]:
    return tool.measured(demo.new, *SHORT, *SMALL, "--stack", stack, *words)


def made(trial: dict[str, Any]) -> str:
    """The commands that laid out the storage of a trial."""
    (path,) = (artifact["path"] for artifact in trial["artifacts"] if artifact["name"] == "storage.txt")
    return Path(trial["run_dir"], path).read_text()


def phases(trial: dict[str, Any]) -> list[str]:
    return [run["name"] for run in trial["runs"] if "@" not in run["name"]]


@pytest.mark.parametrize(
    ("stack", "mode"),
    [
        ("bcache", "writethrough"),
        pytest.param(
            "bcache(ssd,hdd,cache_mode=writearound,sequential_cutoff=0,replacement=fifo)+ext4",
            "writearound",
            marks=RARE,
        ),
        pytest.param("bcache(ssd,hdd,cache_size=auto,cache_mode=none)+ext4", "none", marks=RARE),
    ],
)
def test_bcache(tool: Tool, demo: History, stack: str, mode: str) -> None:
    trial = measured(tool, demo, stack)
    assert phases(trial) == ["empty", "full"]
    assert f"echo {mode} > /dev/bisector-bcache-sysfs/cache_mode" in made(trial)
    last = trial["runs"][-1]["counters"]
    assert {"cache.hits", "cache.misses", "cache.bypassed", "cache.dirty", "cache.hit_ratio"} <= set(last)
    if mode == "none":
        assert last["cache.hit_ratio"] < 1
        assert "cache.filled" not in last
    else:
        assert last["cache.hit_ratio"] > 20
        assert last["cache.filled_before"] >= 95, trial["runs"]
        assert trial["runs"][0]["counters"]["cache.fill"] > 0
        assert "not full" not in trial["reason"]
        # Some buckets of such a cache are always unused: it is full when filling it brings nothing more.
        assert ("cache.fills_up_to" in last) == ("fifo" in stack)


@RARE
def test_bcache_in_writeback_mode(tool: Tool, demo: History) -> None:
    """By a job that writes; what is dirty is not used again, so how full the cache gets is not for sure."""
    # What is written at once is let in at once: more than a small cache has room for, and the kernel hangs (v6.1).
    few_dirty = "machine.append=sysctl.vm.dirty_bytes=1048576 sysctl.vm.dirty_background_bytes=524288"
    job = ("--job", "rand-write-latency", "--file-size", "16MiB", "--metric", "write.clat.p99")
    words = (*job, "--set", few_dirty)
    trial = measured(tool, demo, "bcache(ssd,hdd,cache_mode=writeback,sequential_cutoff=0)+ext4", *words)
    assert phases(trial) == ["empty", "full"]
    last = trial["runs"][-1]["counters"]
    assert last["cache.dirty"] > 0
    assert last["cache.bypassed"] >= 0
    assert trial["value"] > 0


def test_dm_writecache(tool: Tool, demo: History) -> None:
    trial = measured(tool, demo, "lvmwritecache")
    assert phases(trial) == ["empty", "full"]
    last = trial["runs"][-1]["counters"]
    assert last["cache.filled_before"] >= 95, trial["runs"]
    assert 0 < last["cache.free_blocks"] < last["cache.blocks"]


@pytest.mark.parametrize(
    "options",
    [
        "cache_volume=cachevol,cache_policy=mq,cache_mode=writethrough,cache_metadata_format=2",
        pytest.param("cache_metadata_format=2,cache_chunk_size=128KiB,cache_migration_threshold=2MiB", marks=RARE),
        pytest.param("cache_policy=mq", marks=RARE),
    ],
)
def test_dm_cache_of_every_kind(tool: Tool, demo: History, options: str) -> None:
    trial = measured(tool, demo, f"lvmcache(ssd,hdd,{options})+ext4")
    assert phases(trial) == ["empty", "full"]
    assert trial["runs"][-1]["counters"]["cache.filled"] > 50


@RARE
@pytest.mark.parametrize(
    "option", ["cache_mode=passthrough", "cache_policy=cleaner,cache_mode=writethrough,cache_metadata_format=2"]
)
def test_a_dm_cache_that_takes_nothing_in(tool: Tool, demo: History, option: str) -> None:
    trial = measured(tool, demo, f"lvmcache(ssd,hdd,{option})+ext4")
    assert [run["name"] for run in trial["runs"]] == ["empty", "full"]
    assert trial["runs"][-1]["cache_after"]["used_blocks"] == 0
    assert "full" not in trial["reason"] or trial["verdict"] == "measured"


@pytest.mark.quiet
def test_a_cache_is_filled_in_rounds_until_it_is_full(tool: Tool, demo: History) -> None:
    """A cache that is as large as two rounds fill, with jobs that read each block once."""
    trial = measured(
        *(tool, demo, "lvmcache", "--cache-size", "24MiB", "--file-size", "24MiB"),
        *("--set", "storage.fill_rounds=2", "--set", "storage.fill_deadline=60s"),
    )
    names = [run["name"] for run in trial["runs"]]
    assert names[:2] == ["empty", "empty@2"]
    assert names[-1] == "full"
    first, second = trial["runs"][:2]
    # The second round has the files of the first, so it lays out none.
    aside_s = [run["duration_s"] - max(job["runtime_ms"] for job in run["jobs"]) / 1000 for run in (first, second)]
    assert aside_s[1] < aside_s[0]
