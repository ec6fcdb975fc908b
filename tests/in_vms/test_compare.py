"""A comparison for real: kernels in turns, killed in the second trial; fragments and images as arms."""

import shutil
import signal
from pathlib import Path

import pytest

from bisector.core.subject import Kernel, Kind
from bisector.status.blocks import Blocks, BlockState
from bisector.store.store import Store
from bisector.vm.definition import domain_prefix
from scenarios.demo.history import History
from tests.in_vms.conftest import DISTURBED, SHORT, Branch, Tool, guests_of

pytestmark = pytest.mark.vm


def blocks_of(run_dir: Path) -> Blocks:
    with Store.open(run_dir / "record.sqlite", readonly=True) as store:
        assert store.plan is not None
        return Blocks.of(store.plan, store)


def test_killed_comparison_goes_on_where_its_facts_end(tool: Tool, demo: History, tmp_path: Path) -> None:
    """The kernels are those of the killed bisection."""
    run_dir, branch = tmp_path / "run", Branch(demo, tmp_path / "linux")
    slow = branch.commit(branch.slow(), "dm cache: wait for a full cache")
    tool.repo = branch.path
    words = ("--stack", "lvmcache", "--stack", "hdd", "--runs", "1", *SHORT, *DISTURBED)
    child = tool.spawn("compare", slow, demo.new, "--repo", tool.repo, "--run-dir", run_dir, *words)
    prefix = domain_prefix(run_dir)

    def second_trial_has_its_guest() -> bool:
        begun = (run_dir / "record.sqlite").exists() and len(blocks_of(run_dir).placed) == 1
        return bool(begun and guests_of(prefix))

    tool.wait_for("the guest of the second trial", run_dir, second_trial_has_its_guest)
    child.send_signal(signal.SIGKILL)
    child.wait()
    killed = blocks_of(run_dir)
    assert "stopped: process " in tool("status", "--run-dir", run_dir).stdout
    resumed = tool("resume", "--run-dir", run_dir)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr

    blocks = blocks_of(run_dir)
    assert [len(blocks.counted(setup)) for setup in (0, 1)] == [1, 1]
    assert blocks.count(BlockState.OPEN) == 0
    assert blocks.placed[0] == killed.placed[0]
    assert [one.n for one in blocks.placed] == list(range(1, len(blocks.placed) + 1))
    for setup, stack in enumerate(("lvmcache(ssd,hdd)+ext4", "hdd+ext4")):
        (block,) = blocks.counted(setup)
        trials = [trial for _, trial in blocks.trials(block).values()]
        assert {trial.setup.stack for trial in trials} == {stack}
        assert {trial.commit.sha for trial in trials} == {slow, blocks.plan.arms[1].commit.sha}
        assert all(value > 0 for value in blocks.values(setup)[0].values())
    # One kernel of each arm, for both stacks.
    kernels = {(one.trial.commit.sha, one.trial.kernel.content_sha256) for one in blocks.placed if one.trial.kernel}
    assert len(kernels) == 2
    assert not guests_of(prefix)
    assert not list(run_dir.glob("*.img")) + list(run_dir.glob("*.qcow2"))
    table = tool("table", "--run-dir", run_dir).stdout
    assert "lvmcache(ssd,hdd)+ext4" in table
    assert "hdd+ext4" in table


# What a guest says of its kernel, as the figure of a command.
# On the disk alone, since a command that writes nothing fills no cache.
ONCE = ("--runs", "1", "--stack", "ssd", *SHORT, *DISTURBED)


def figures(blocks: Blocks, setup: int = 0) -> dict[str, float]:
    """What decides in the one block of a setup, by the names of the arms: of a command what it printed."""
    (row,) = blocks.values(setup)
    return {blocks.plan.arms[arm].name: value for arm, value in row.items()}


@pytest.mark.rare
def test_fragment_on_top_is_in_the_kernel_that_boots(tool: Tool, demo: History, tmp_path: Path) -> None:
    """By a command and a job of fio: of two kernels one has a name of its own; it is compiled from nothing."""
    fragment, run_dir = tmp_path / "named.config", tmp_path / "run"
    fragment.write_text('CONFIG_LOCALVERSION="-named"\n')
    line = "echo shown=$((1 + $(uname -r | grep -c named)))"
    words = ("--command", line, "--figure", "shown=count,higher", "--job", "partial", *ONCE)
    compared = tool(
        "compare", demo.new, "--config-fragment", fragment, "--repo", tool.repo, "--run-dir", run_dir, *words
    )
    assert compared.returncode == 0, compared.stdout + compared.stderr
    blocks, named = blocks_of(run_dir), f"{demo.new} + named.config"
    assert [one.setup.workload.partition("(")[0] for one in blocks.plan.setups] == ["command", "fio"]
    assert figures(blocks) == {demo.new: 1.0, named: 2.0}
    of_fio = figures(blocks, setup=1)
    assert set(of_fio) == {demo.new, named}
    assert all(value > 0 for value in of_fio.values())
    kernels = {(one.place.arm, one.trial.kernel.content_sha256) for one in blocks.placed if one.trial.kernel}
    assert len(kernels) == 2, "one kernel of each arm, for both workloads"
    assert "fio(partial.fio)" in tool("table", "--run-dir", run_dir).stdout


def test_fragment_that_kconfig_drops_ends_before_the_kernel_is_compiled(
    tool: Tool, demo: History, tmp_path: Path
) -> None:
    """IKCONFIG_PROC depends on IKCONFIG, which is off."""
    fragment, run_dir = tmp_path / "shown.config", tmp_path / "run"
    fragment.write_text("CONFIG_IKCONFIG_PROC=y\n")
    words = ("compare", demo.new, "--config-fragment", fragment, "--repo", tool.repo, "--run-dir", run_dir, *SHORT)
    refused = tool(*words)
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert "shown.config asks for CONFIG_IKCONFIG_PROC=y, which Kconfig does not set" in refused.stderr
    assert blocks_of(run_dir).blocks == ()
    assert not list(run_dir.glob("build/**/vmlinux"))


def test_image_is_booted_as_it_was_given(tool: Tool, kernel: Kernel, demo: History, tmp_path: Path) -> None:
    """The kept kernel of a commit, as a file of somebody else's, beside that commit; the file is gone by then."""
    run_dir, file = tmp_path / "run", tmp_path / "vmlinuz-given"
    shutil.copyfile(kernel.image, file)
    child = tool.spawn("compare", demo.new, f"image:{file}", "--repo", tool.repo, "--run-dir", run_dir, *ONCE)

    def begun() -> bool:
        return (run_dir / "record.sqlite").exists() and bool(blocks_of(run_dir).blocks)

    tool.wait_for("the first block", run_dir, begun)
    file.unlink()
    said, _ = child.communicate()
    assert child.returncode == 0, said
    (block,) = blocks_of(run_dir).counted(0)
    trials = blocks_of(run_dir).trials(block)
    assert set(trials) == {demo.new, "vmlinuz-given"}
    (_, trial) = trials["vmlinuz-given"]
    assert trial.kernel is not None
    assert (trial.kernel.release, trial.subject.kind) == (kernel.release, Kind.IMAGE)
    assert trial.kernel.image == run_dir / "inputs/vmlinuz-given"
