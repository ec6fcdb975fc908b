"""Other work on the host beside the guest: measured again, then given up on, never a verdict."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scenarios.demo.history import History
from tests.in_vms.conftest import SHORT, Tool
from tests.loopdevice import command

pytestmark = pytest.mark.vm


@pytest.fixture
def busy() -> Iterator[None]:
    """Two processes that never rest."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


def child_of(parent: str, repo: Path, clone: Path) -> str:
    """A clone with one commit more, which changes nothing: both ends' kernel is one that is kept."""
    command("git", "clone", "--quiet", "--shared", "--no-checkout", repo, clone)
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
    made = command("git", "-C", clone, *who, "commit-tree", f"{parent}^{{tree}}", "-p", parent, "-m", "nothing new")
    return made.strip()


def test_weak_evidence_is_never_a_verdict(tool: Tool, demo: History, tmp_path: Path, busy: None) -> None:
    repo, run_dir = tmp_path / "linux", tmp_path / "run"
    child = child_of(demo.new, tool.repo, repo)
    # A threshold by which any figure would have a verdict.
    flags = ("--threshold", "1", "--set", "bisect.max_repeats=1", "--set", "contention.patience=0", *SHORT)
    started = tool("start", demo.new, child, "--repo", repo, "--run-dir", run_dir, *flags)
    assert started.returncode == 4, started.stdout + started.stderr
    assert "could not be measured: no sound measurement in 2: the host was busy" in started.stderr
    status = tool.status(run_dir)
    assert status["state"] == "stopped"
    assert [trial["verdict"] for trial in status["trials"]] == ["weak", "weak"]
    assert all(trial["runs"][-1]["contention"]["other_busy_cores"] > 0.5 for trial in status["trials"])
    assert (status["first_fixed"], status["weak"]) == (None, 2)


@pytest.mark.rare
def test_two_runs_take_turns(tool: Tool, demo: History, tmp_path: Path) -> None:
    """Whoever waits tells for whom, and the later guest boots when the earlier trial has ended."""
    runs = tmp_path / "one", tmp_path / "another"
    children = [tool.spawn("test", demo.new, "--repo", tool.repo, "--run-dir", run, *SHORT) for run in runs]
    said = [child.communicate()[0] for child in children]
    told = [f"waiting for run {run}, process {child.pid}: " for run, child in zip(runs, children, strict=True)]
    assert told[0] in said[1] or told[1] in said[0]
    earlier, later = sorted(said, key=lambda text: at(text, "  boot"))
    assert at(earlier, "trial 1: ") <= at(later, "  boot")


def at(said: str, words: str) -> str:
    """The time of day of the last line with these words."""
    return [line for line in said.splitlines() if words in line][-1].split()[0]
