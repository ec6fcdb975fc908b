"""A comparison for real: two kernels on two stacks, killed in its second trial."""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from bisector.config import options
from bisector.core.subject import Kind
from bisector.executor.local import kernel_builder
from bisector.status.blocks import Blocks, BlockState
from bisector.store.store import Store
from bisector.vm.definition import domain_prefix
from tests.demo.history import History
from tests.in_vms.conftest import KERNEL, MODULES, SHORT, Tool, guests_of

pytestmark = pytest.mark.vm


def blocks_of(run_dir: Path) -> Blocks:
    with Store.open(run_dir / "record.sqlite", readonly=True) as store:
        assert store.plan is not None
        return Blocks.of(store.plan, store)


@pytest.mark.quiet
def test_killed_comparison_goes_on_where_its_facts_end(tool: Tool, demo: History, tmp_path: Path) -> None:
    """The fixing commit against its parent; the kernels are those of the killed bisection."""
    run_dir, culprit = tmp_path / "run", demo.culprit.sha
    words = ("--stack", "lvmcache", "--stack", "hdd", "--runs", "1", *SHORT)
    child = tool.spawn("compare", f"{culprit}^", culprit, "--repo", tool.repo, "--run-dir", run_dir, *words)
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
        assert {trial.commit.sha for trial in trials} == {demo.culprit.sha, blocks.plan.arms[0].commit.sha}
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
# On the disk alone, since a command that writes nothing fills no cache; by the kernel that the others have built.
SAYS = ("--runs", "1", "--stack", "ssd", *KERNEL, *SHORT)


def figures(blocks: Blocks, setup: int = 0) -> dict[str, float]:
    """What decides in the one block of a setup, by the names of the arms: of a command what it printed."""
    (row,) = blocks.values(setup)
    return {blocks.plan.arms[arm].name: value for arm, value in row.items()}


@pytest.mark.quiet
def test_fragment_on_top_is_in_the_kernel_that_boots(tool: Tool, built: None, demo: History, tmp_path: Path) -> None:
    """By a command and a job of fio: of two kernels one lists its modules (proc(5)), and has a target and its policy.

    That one is built here, with the other one kept; the test of modules finds it.
    """
    fragment, run_dir = tmp_path / "modules.config", tmp_path / "run"
    fragment.write_text(MODULES)
    modules = "/proc/modules /lib/modules/$(uname -r)/kernel/drivers/md/dm-cache*.ko"
    line = f"echo shown=$((1 + $(ls -d {modules} 2>/dev/null | wc -l)))"
    words = ("--command", line, "--figure", "shown=count,higher", "--job", "partial", *SAYS)
    compared = tool(
        "compare", demo.new, "--config-fragment", fragment, "--repo", tool.repo, "--run-dir", run_dir, *words
    )
    assert compared.returncode == 0, compared.stdout + compared.stderr
    blocks, with_modules = blocks_of(run_dir), f"{demo.new} + modules.config"
    assert [one.setup.workload.partition("(")[0] for one in blocks.plan.setups] == ["command", "fio"]
    assert figures(blocks) == {demo.new: 1.0, with_modules: 4.0}
    of_fio = figures(blocks, setup=1)
    assert set(of_fio) == {demo.new, with_modules}
    assert all(value > 0 for value in of_fio.values())
    kernels = {(one.place.arm, one.trial.kernel.content_sha256) for one in blocks.placed if one.trial.kernel}
    assert len(kernels) == 2, "one kernel of each arm, for both workloads"
    assert "fio(partial.fio)" in tool("table", "--run-dir", run_dir).stdout


def test_fragment_that_kconfig_drops_ends_before_the_kernel_is_compiled(
    tool: Tool, built: None, demo: History, tmp_path: Path
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


@pytest.mark.quiet
def test_image_is_booted_as_it_was_given(tool: Tool, built: None, demo: History, tmp_path: Path) -> None:
    """The kept kernel of a commit, as a file of somebody else's, beside that commit; the file is gone by then."""
    run_dir, file = tmp_path / "run", tmp_path / "vmlinuz-given"
    tree = subprocess.run(
        ["git", "-C", demo.repo, "rev-parse", f"{demo.new}^{{tree}}"], capture_output=True, text=True, check=True
    )
    kernel = kernel_builder(options.load().settings.kernel).find(tree.stdout.strip())
    assert kernel is not None
    shutil.copyfile(kernel.image, file)
    words = ("--runs", "1", *SHORT)
    child = tool.spawn("compare", demo.new, f"image:{file}", "--repo", tool.repo, "--run-dir", run_dir, *words)

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
