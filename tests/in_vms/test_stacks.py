"""Stacks that are written out, in real guests."""

from pathlib import Path
from typing import Any

import pytest

from tests.demo.history import History
from tests.docs.json_schema import valid
from tests.in_vms.conftest import SHORT, Tool

pytestmark = pytest.mark.vm

# The kernel that other tests have; a stack without a cache would do with less.
KERNEL = ("--fragment", "tiny", "--fragment", "vm", "--fragment", "storage-lvmcache")


def made(trial: dict[str, Any]) -> str:
    """The commands that laid out the storage of a trial."""
    (path,) = (artifact["path"] for artifact in trial["artifacts"] if artifact["name"] == "storage.txt")
    return Path(trial["run_dir"], path).read_text()


@pytest.mark.usefixtures("built")
def test_a_layer_with_a_setting_of_its_own(tool: Tool, demo: History) -> None:
    trial = tool.trial(demo.new, *SHORT, "--stack", "lvmcache(ssd,hdd,cache_mode=writethrough)+ext4")
    assert {run["cache"]["before"]["mode"] for run in trial["runs"]} == {"writethrough"}
    assert " --cachemode writethrough " in made(trial)


@pytest.mark.usefixtures("built")
def test_a_disk_that_the_stack_does_not_name_is_not_attached(tool: Tool, demo: History) -> None:
    tested = tool(
        *("test", demo.new, "--repo", tool.repo, "--json", "--quiet", *SHORT, *KERNEL),
        *("--stack", "hdd+ext4", "--ssd", "/dev/nowhere"),
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    trial = valid("test", tested.stdout)
    (run,) = trial["runs"]
    assert (run["name"], run["cache"]) == ("hdd", {"before": None, "after": None})
    assert "virtio-hdd" in made(trial)
    assert "virtio-ssd" not in made(trial)
