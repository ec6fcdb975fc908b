"""The real thing: git, kbuild, libvirt, QEMU, LVM and fio, on kernels of the demonstration's history."""

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from bisector.core.trial import FaultKind
from bisector.vm.definition import domain_prefix
from tests.demo.history import History
from tests.docs.json_schema import valid
from tests.in_vms.conftest import Tool, guests_of

pytestmark = pytest.mark.vm

CLEAN_STOP_S = 5.0


def worktrees(repo: Path) -> str:
    return subprocess.run(
        ["git", "-C", repo, "worktree", "list"], capture_output=True, text=True, check=True
    ).stdout  # fmt: skip


def check_facts(trial: dict[str, Any], run_dir: Path) -> None:
    """Of a trial of the fixed end: its cache was full, its jobs ran as asked, its files are there."""
    empty, full = trial["runs"]
    assert [empty["name"], full["name"]] == ["empty", "full"]
    assert full["cache"]["before"]["full"]
    assert (full["cache"]["before"]["policy"], full["cache"]["before"]["mode"]) == ("smq", "writeback")
    assert len(full["jobs"]) == 2
    assert all(job["iops_mean"] > 0 and job["error"] == 0 for job in full["jobs"])
    kept = {artifact["name"] for artifact in trial["artifacts"]}
    assert {"console.log", "kernel.config", "full/fio.json", "host.json", "storage.txt"} <= kept
    assert any(name.startswith("full/") and "iops" in name for name in kept)
    for artifact in trial["artifacts"]:
        assert (run_dir / artifact["path"]).stat().st_size == artifact["size_bytes"]


@pytest.mark.quiet
def test_killed_bisection_goes_on_where_its_facts_end(tool: Tool, demo: History, tmp_path: Path) -> None:
    """The fixing commit and its parent as the ends: one answer, two measurements, a kill -9 in the second."""
    run_dir = tmp_path / "run"
    before = worktrees(tool.repo)
    culprit = demo.culprit.sha
    child = tool.spawn("start", f"{culprit}^", culprit, "--repo", tool.repo, "--run-dir", run_dir)
    prefix = domain_prefix(run_dir)

    def second_trial_has_its_guest() -> bool:
        record = (run_dir / "record.sqlite").exists() and tool.status(run_dir)
        return bool(record and record["evaluations"] == 1 and guests_of(prefix))

    tool.wait_for("the guest of the second trial", run_dir, second_trial_has_its_guest, every_s=5.0)
    child.send_signal(signal.SIGKILL)
    child.wait()
    killed = tool.status(run_dir)
    assert killed["state"] == "stopped"
    resumed = tool("resume", "--run-dir", run_dir)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    status = tool.status(run_dir)
    assert status["state"] == "found"
    assert status["first_fixed"]["sha"] == culprit
    assert status["candidates"] == [culprit]
    # The verdict follows once there is a threshold; what was measured stays.
    kept = ("n", "sha", "started_at", "runs", "artifacts", "total_s")
    assert [status["trials"][0][key] for key in kept] == [killed["trials"][0][key] for key in kept]
    counted = [trial for trial in status["trials"] if trial["verdict"] != "weak"]
    assert [(trial["kind"], trial["verdict"]) for trial in counted][:2] == [("commit", "broken"), ("commit", "fixed")]
    check_facts(counted[1], run_dir)
    # The ends without the commit, and with it, are kernels that are known: nothing is built or measured for them.
    assert all(trial["kind"] != "commit" and trial["same_kernel_as"] for trial in counted[2:])
    assert not guests_of(prefix)
    assert not list(run_dir.glob("*.img")) + list(run_dir.glob("*.qcow2"))
    assert worktrees(tool.repo) == before
    log = tool("log", "--run-dir", run_dir).stdout
    assert f"# first fixed commit: [{culprit}]" in log
    table = tool("table", "--run-dir", run_dir).stdout
    assert culprit[:12] in table
    assert demo.culprit.subject in table


@pytest.mark.parametrize(
    ("effect", "kind", "words"),
    [
        pytest.param("panic", FaultKind.PANIC, "Kernel panic", id="the kernel's own words"),
        pytest.param("no-build", FaultKind.BUILD_ERROR, " error: ", id="the compiler's own words"),
    ],
)
def test_kernel_that_cannot_be_judged_is_a_skip(
    tool: Tool, demo: History, effect: str, kind: FaultKind, words: str
) -> None:
    stage = {FaultKind.PANIC: "boot", FaultKind.BUILD_ERROR: "build"}[kind]
    faulty = next(commit for commit in demo.commits if commit.effect == effect)
    tested = tool("test", faulty.sha, "--repo", tool.repo, "--json", "--quiet")
    assert tested.returncode == 3, tested.stderr
    trial = valid("test", tested.stdout)
    assert (trial["verdict"], trial["fault"]["kind"], trial["stage"]) == ("skip", kind, stage)
    assert words in trial["reason"]
    assert trial["runs"] == []


def test_source_that_does_not_compile_is_compiled_once(tool: Tool, demo: History) -> None:
    broken = next(commit for commit in demo.commits if commit.effect == "no-build")
    first, second = (
        valid("test", tool("test", broken.sha, "--repo", tool.repo, "--json", "--quiet").stdout) for _ in range(2)
    )
    assert second["fault"] == {**first["fault"], "cached": True}
    assert "known from an earlier build" in second["reason"]
    assert [artifact["name"] for artifact in second["artifacts"]] == ["build.log"]


@pytest.mark.quiet
def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(tool: Tool, demo: History, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    child = tool.spawn("start", f"{demo.culprit.sha}^", demo.culprit.sha, "--repo", tool.repo, "--run-dir", run_dir)
    prefix = domain_prefix(run_dir)
    tool.wait_for("the first guest", run_dir, lambda: bool(guests_of(prefix)))
    child.send_signal(signal.SIGINT)
    pressed = time.monotonic()
    output, _ = child.communicate(timeout=60)
    assert time.monotonic() - pressed < CLEAN_STOP_S
    assert child.returncode == 130
    assert f"bisector resume --run-dir {run_dir}" in output
    assert "Traceback" not in output
    assert not guests_of(prefix)
    assert tool.status(run_dir)["state"] == "stopped"
    assert tool("reset", "--delete", "--run-dir", run_dir).returncode == 0
    assert not run_dir.exists()
