"""The real thing: git, kbuild, libvirt, QEMU, LVM and fio, on kernels of the demonstration's history."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bisector.core.subject import Kernel
from bisector.core.trial import FaultKind
from bisector.vm.definition import domain_prefix
from scenarios.demo.history import History
from tests.docs.json_schema import valid
from tests.in_vms.conftest import DISTURBED, SHORT, Branch, Tool, guests_of

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
    assert full["cache_before"]["full"]
    assert (full["cache_before"]["policy"], full["cache_before"]["mode"]) == ("smq", "writeback")
    assert len(full["jobs"]) == 2
    assert all(job["iops_mean"] > 0 and job["error"] == 0 for job in full["jobs"])
    kept = {artifact["name"] for artifact in trial["artifacts"]}
    assert {"console.log", "kernel.config", "kernel.defconfig", "full/fio.json", "host.json", "storage.txt"} <= kept
    assert any(name.startswith("full/") and "iops" in name for name in kept)
    for artifact in trial["artifacts"]:
        assert (run_dir / artifact["path"]).stat().st_size == artifact["size_bytes"]


def planted(demo: History, path: Path) -> tuple[Path, str]:
    """A clone with a commit that makes a full cache an order of magnitude faster, and that commit."""
    branch = Branch(demo, path)
    branch.commit(branch.slow(), "dm cache: wait for a full cache")
    return branch.path, branch.commit(branch.fast, "dm cache: do not wait for a full cache")


def of_2017(demo: History, path: Path) -> tuple[Path, str]:
    """The commit of the demonstration, whose effect takes runs of 40 s to be seen, on a quiet host."""
    return Path(demo.repo), demo.culprit.sha


@pytest.mark.parametrize(
    ("history", "flags"),
    [
        pytest.param(planted, (*SHORT, *DISTURBED), id="planted"),
        pytest.param(of_2017, (), id="of 2017", marks=[pytest.mark.quiet, pytest.mark.rare]),
    ],
)
def test_killed_bisection_goes_on_where_its_facts_end(
    tool: Tool,
    demo: History,
    tmp_path: Path,
    history: Callable[[History, Path], tuple[Path, str]],
    flags: tuple[str, ...],
) -> None:
    """A commit that makes it faster and its parent as the ends: two measurements, a kill -9 in the second."""
    run_dir = tmp_path / "run"
    tool.repo, culprit = history(demo, tmp_path / "linux")
    before = worktrees(tool.repo)
    child = tool.spawn("start", f"{culprit}^", culprit, "--repo", tool.repo, "--run-dir", run_dir, *flags)
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
    assert [one["sha"] for one in status["candidates"]] == [culprit]
    # The verdict follows once there is a threshold; what was measured stays.
    kept = ("n", "sha", "started_at", "runs", "artifacts", "total_s")
    assert [status["trials"][0][key] for key in kept] == [killed["trials"][0][key] for key in kept]
    counted = [trial for trial in status["trials"] if trial["verdict"] != "weak"]
    assert [(trial["kind"], trial["verdict"]) for trial in counted][:2] == [("commit", "old"), ("commit", "new")]
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
    assert status["first_fixed"]["subject"] in table


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
    """And source that does not compile is compiled once. What panics is a module, which is loaded for the stack."""
    stage = {FaultKind.PANIC: "storage", FaultKind.BUILD_ERROR: "build"}[kind]
    faulty = next(commit for commit in demo.commits if commit.effect == effect)
    for repeated in (False, True) if kind is FaultKind.BUILD_ERROR else (False,):
        tested = tool("test", faulty.sha, "--repo", tool.repo, "--json", "--quiet")
        assert tested.returncode == 3, tested.stderr
        trial = valid("test", tested.stdout)
        assert (trial["verdict"], trial["fault"]["kind"], trial["stage"]) == ("skip", kind, stage)
        assert words in trial["reason"]
        assert trial["runs"] == []
        if repeated:
            assert trial["fault"]["cached"]
            assert "known from an earlier build" in trial["reason"]
            assert [artifact["name"] for artifact in trial["artifacts"]] == ["build.log"]


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(tool: Tool, demo: History, kernel: Kernel, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    child = tool.spawn("start", f"{demo.new}~1", demo.new, "--repo", tool.repo, "--run-dir", run_dir)
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
