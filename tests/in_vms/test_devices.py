"""RAM disks, disks that a person names, and devices without a file system, in real guests."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scenarios.demo.history import History
from tests.in_vms.conftest import SHORT, Tool

pytestmark = pytest.mark.vm

MIB = 1 << 20
JOB = """\
[raw]
ioengine=libaio
direct=1
iodepth=8
numjobs=2
readwrite=randread
directory=${DIRECTORY}
filename=${DEVICE}
offset=${OFFSET}
offset_increment=${FILE_SIZE}
size=${FILE_SIZE}
time_based
runtime=${RUNTIME}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "device.fio"
    path.write_text(JOB)
    return path


def measured(tool: Tool, demo: History, job: Path, *words: str) -> dict[str, Any]:
    """One trial with its runs."""
    return tool.measured(demo.new, *SHORT, "--job", job, *words)


def artifact(trial: dict[str, Any], name: str) -> str:
    (path,) = (artifact["path"] for artifact in trial["artifacts"] if artifact["name"] == name)
    return Path(trial["run_dir"], path).read_text()


def options_of_jobs(trial: dict[str, Any], run: str) -> list[dict[str, str]]:
    return [one["job options"] for one in json.loads(artifact(trial, f"{run}/fio.json"))["jobs"]]


def test_a_ram_disk_without_a_file_system(tool: Tool, demo: History, job: Path) -> None:
    trial = measured(tool, demo, job, "--stack", "ram(size=64MiB)+raw")
    (run,) = trial["runs"]
    assert (run["name"], len(run["jobs"])) == ("run", 2)
    assert all(one["total_ios"] > 0 for one in run["jobs"])
    assert artifact(trial, "storage.txt").splitlines() == [
        "test -b /dev/ram0",
        f"dd if=/dev/zero of=/dev/ram0 bs=1M iflag=count_bytes count={64 * MIB} oflag=direct",
        "blockdev --getsize64 /dev/ram0",
    ]
    assert {one["filename"] for one in options_of_jobs(trial, "run")} == {"/dev/ram0"}


@pytest.mark.quiet
def test_a_cache_in_memory_for_a_disk_that_is_named(tool: Tool, demo: History, job: Path) -> None:
    """Without a file system each run has its own place, so that the second one finds a cache of other blocks."""
    stack = ("--stack", "lvmcache(ram,slow)+raw", "--disk", "slow=128MiB,iops=4000", "--set", "storage.ram.size=64MiB")
    trial = measured(tool, demo, job, *stack)
    assert [run["name"] for run in trial["runs"]] == ["empty", "full"]
    assert [{one["offset"] for one in options_of_jobs(trial, run)} for run in ("empty", "full")] == [
        {"0"},
        {str(16 * MIB)},
    ]
    empty, full = (run["cache_before"] for run in trial["runs"])
    # LVM wipes the head of the volume, and udev reads its head and its tail.
    assert empty["used_blocks"] <= 0.01 * empty["total_blocks"]
    assert full["used_blocks"] >= 0.9 * full["total_blocks"]
    made = artifact(trial, "storage.txt")
    assert "/dev/ram0 /dev/disk/by-id/virtio-slow" in made
    assert "virtio-ssd" not in made
    assert "mkfs" not in made


@pytest.mark.rare
def test_a_job_of_both_kinds_has_a_file_on_a_ram_disk(tool: Tool, demo: History, job: Path) -> None:
    trial = measured(tool, demo, job, "--stack", "ram(size=128MiB)+ext4")
    assert {one["directory"] for one in options_of_jobs(trial, "run")} == {"/mnt/run"}
    assert "mkfs.ext4" in artifact(trial, "storage.txt")


@pytest.mark.quiet
def test_a_latency_is_added_to_each_read(tool: Tool, demo: History, job: Path) -> None:
    """By the host: the guest's kernel has no part in it."""
    job.write_text(JOB.replace("iodepth=8", "iodepth=1").replace("numjobs=2", "numjobs=1"))
    trial = measured(tool, demo, job, "--stack", "slow+raw", "--disk", "slow=64MiB,latency=20ms")
    (run,) = trial["runs"]
    (one,) = json.loads(artifact(trial, "slow/fio.json"))["jobs"]
    assert run["name"] == "slow"
    assert 19e6 < one["read"]["clat_ns"]["mean"] < 40e6  # of one request the guest's clock may tell a little less


@pytest.mark.quiet
def test_disks_on_every_bus_with_queues_of_their_own(tool: Tool, demo: History, job: Path) -> None:
    """A mirror waits for each of its disks: one bounds its rate, and another one each of its writes."""
    job.write_text(JOB.replace("numjobs=2", "numjobs=1").replace("randread", "randwrite"))
    disks = (
        "a=64MiB,bus=scsi,scheduler=bfq,iops=100",
        "b=64MiB,bus=sata,scheduler=mq-deadline,latency=20ms,read_ahead_kb=512,wbt_lat_usec=5000",
        "c=64MiB,nr_requests=64",
        "d=64MiB,bus=nvme,iops=1000,read_ahead_kb=64",
    )
    words = [word for disk in disks for word in ("--disk", disk)]
    trial = measured(tool, demo, job, "--stack", "raid1(a,b,c,d)+raw", "--metric", "write.iops", *words)
    a, b, c, d = trial["queues"]
    assert (a["disk"], a["bus"], a["scheduler"]) == ("a", "scsi", "bfq")
    assert (b["bus"], b["scheduler"], b["read_ahead_kb"], b["wbt_lat_usec"]) == ("sata", "mq-deadline", 512, 5000)
    assert (c["bus"], c["scheduler"], c["nr_requests"]) == ("virtio", "none", 64)
    assert (d["bus"], d["read_ahead_kb"]) == ("nvme", 64)
    (run,) = trial["runs"]
    (one,) = run["jobs"]
    assert 60 < one["iops_mean"] < 130
    (shortest_ns,) = (latency["min_ns"] for latency in one["latencies"] if latency["kind"] == "clat")
    assert shortest_ns > 19e6


def test_a_scheduler_that_the_kernel_does_not_have(tool: Tool, demo: History, job: Path) -> None:
    disk = ("--stack", "a+raw", "--disk", "a=64MiB,bus=sata,scheduler=cfq")
    said = tool.refused(demo.new, *SHORT, "--job", job, *disk)
    assert re.search(r"storage\.a\.scheduler = cfq: the kernel has (?=.*bfq)(?=.*kyber).*\[\S+\]", said), said
