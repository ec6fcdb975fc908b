"""Stacks that are written out, in real guests."""

from pathlib import Path
from typing import Any

import pytest

from scenarios.demo.history import History
from tests.in_vms.conftest import SHORT, SHORT_RUNS, Tool

pytestmark = pytest.mark.vm
RARE = pytest.mark.rare

# mkfs.xfs wants 300 MiB; most of it stays a hole.
LARGER = ("--set", "storage.ssd.size=512MiB", "--set", "storage.hdd.size=512MiB")


def made(trial: dict[str, Any]) -> str:
    """The commands that laid out the storage of a trial."""
    (path,) = (artifact["path"] for artifact in trial["artifacts"] if artifact["name"] == "storage.txt")
    return Path(trial["run_dir"], path).read_text()


def test_a_layer_with_a_setting_of_its_own(tool: Tool, demo: History) -> None:
    trial = tool.trial(demo.new, *SHORT, "--stack", "lvmcache(ssd,hdd,cache_mode=writethrough)+ext4")
    assert {run["cache_before"]["mode"] for run in trial["runs"]} == {"writethrough"}
    assert " --cachemode writethrough " in made(trial)


@RARE
def test_a_disk_that_the_stack_does_not_name_is_not_attached(tool: Tool, demo: History) -> None:
    trial = tool.measured(demo.new, "--stack", "hdd+ext4", *SHORT)
    (run,) = trial["runs"]
    assert (run["name"], run["cache_before"], run["cache_after"]) == ("hdd", None, None)
    assert "virtio-hdd" in made(trial)
    assert "virtio-ssd" not in made(trial)


@pytest.mark.parametrize(
    ("stack", "commands"),
    [
        pytest.param("hdd+xfs", ["mkfs.xfs", "mount"], marks=RARE),
        ("hdd+btrfs", ["mkfs.btrfs", "mount"]),
        pytest.param('hdd+ext4(mount_options="noatime,data=writeback")', ["mkfs.ext4", "mount"], marks=RARE),
        pytest.param("raid1(ssd,hdd)+ext4", ["export", "mdadm", "mkfs.ext4", "mount"], marks=RARE),
        ("raid5(hdd,hdd2,hdd3)+xfs", ["export", "mdadm", *("!",) * 5, "mkfs.xfs", "mount"]),
        pytest.param("crypt(hdd)+ext4", ["export", "seq", "cryptsetup", "mkfs.ext4", "mount"], marks=RARE),
        ("crypt(raid1(ssd,hdd))+xfs", ["export", "mdadm", "export", "seq", "cryptsetup", "mkfs.xfs", "mount"]),
    ],
)
def test_a_layer_is_made_and_read_back(tool: Tool, demo: History, stack: str, commands: list[str]) -> None:
    further = [word for name in ("hdd2", "hdd3") if name in stack for word in ("--disk", f"{name}=512MiB")]
    trial = tool.measured(demo.new, "--stack", stack, *SHORT_RUNS, *LARGER, *further)
    assert len(trial["runs"]) == 1
    assert [line.split()[0] for line in made(trial).splitlines() if not line.startswith("stat ")] == commands


@pytest.mark.parametrize(
    "stack",
    ["lvmcache(crypt(ssd),crypt(hdd))+xfs", pytest.param("crypt(lvmcache(ssd,hdd))+btrfs", marks=RARE)],
)
def test_a_cache_below_and_above_encryption(tool: Tool, demo: History, stack: str) -> None:
    trial = tool.trial(demo.new, *SHORT_RUNS, *LARGER, "--stack", stack)
    assert trial["runs"][1]["cache_before"]["used_blocks"] > 0
    assert "cryptsetup open" in made(trial)
