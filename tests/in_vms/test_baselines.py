"""The disks alone, for real: the HDD at its limit, the SSD well above, each measured once whatever is killed."""

import signal
from pathlib import Path
from typing import Any

import pytest

from bisector.storage.stack import lone_disk
from bisector.vm.definition import domain_prefix
from scenarios.demo.history import History
from tests.in_vms.conftest import Tool, guests_of

pytestmark = [pytest.mark.vm, pytest.mark.quiet, pytest.mark.rare]

LIMIT_IOPS = 1000
WISHES = (
    *("--cache-size", "16MiB", "--file-size", "8MiB", "--runtime", "5s", "--set", "storage.ssd.size=128MiB"),
    *("--set", "storage.hdd.size=128MiB", "--set", f"storage.hdd.iops_limit={LIMIT_IOPS}"),
)


def figures(baseline: dict[str, Any]) -> list[float]:
    return [job["iops_mean"] for job in baseline["runs"][-1]["jobs"]]


def disk(baseline: dict[str, Any]) -> str | None:
    return lone_disk(baseline["setup"]["stack"])


def test_killed_between_the_disks(tool: Tool, demo: History, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    prefix = domain_prefix(run_dir)
    # A run that has measured nothing yet; the kernel of its new end is among those that are kept.
    child = tool.spawn("start", f"{demo.new}~1", demo.new, "--repo", tool.repo, "--run-dir", run_dir, *WISHES)
    tool.wait_for("the record", run_dir, (run_dir / "record.sqlite").exists)
    child.send_signal(signal.SIGKILL)
    child.wait()

    child = tool.spawn("baselines", "--run-dir", run_dir)
    hdd = run_dir / "trials" / f"0002-{demo.new[:12]}" / "console.log"
    tool.wait_for("the guest of the second disk", run_dir, hdd.exists)
    child.send_signal(signal.SIGKILL)
    child.wait()
    (ssd,) = tool.status(run_dir)["baselines"]
    assert (disk(ssd), ssd["sha"], len(figures(ssd))) == ("ssd", demo.new, 2)

    measured = tool("baselines", "--run-dir", run_dir)
    assert measured.returncode == 0, measured.stdout + measured.stderr
    status = tool.status(run_dir)
    assert status["baselines"][0] == ssd
    _, hdd_alone = status["baselines"]
    assert disk(hdd_alone) == "hdd"
    assert sum(figures(hdd_alone)) == pytest.approx(LIMIT_IOPS, rel=0.08)  # by seconds, of few
    assert min(figures(ssd)) > 2 * LIMIT_IOPS
    assert status["trials"] == []
    assert not guests_of(prefix)
    assert {path.name for path in (run_dir / "trials").iterdir()} == {f"000{n}-{demo.new[:12]}" for n in (1, 2)}
    for baseline in status["baselines"]:
        (layout,) = (artifact["path"] for artifact in baseline["artifacts"] if artifact["name"] == "storage.txt")
        made = (run_dir / layout).read_text()
        assert f"virtio-{disk(baseline)} /mnt\n" in made
        assert "lvcreate" not in made

    again = tool("baselines", "--run-dir", run_dir)
    assert (again.returncode, tool.status(run_dir)["baselines"]) == (0, status["baselines"])
    assert [line[:9] for line in again.stdout.splitlines()] == ["SSD alone", "HDD alone"]
    for shown in (tool("table", "--run-dir", run_dir), tool("report", "--run-dir", run_dir)):
        assert "HDD alone" in shown.stdout
