"""The same trial with a libvirt daemon (``qemu:///system``), as root and as somebody who may only talk to it."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bisector.core.deadline import Deadline
from bisector.vm.definition import domain_prefix
from scenarios.demo.history import History
from tests.in_vms.conftest import SHORT, Tool, guests_of
from tests.in_vms.test_counted import contents
from tests.libvirtd import libvirtd

pytestmark = pytest.mark.vm

GONE_S = 10.0
# Emulation, which there is everywhere: what is tried out under the embedded driver is not tried again under this one.
TCG = ("--accelerator", "tcg", *SHORT)
COUNTED = ("--clock", "instructions")


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the daemon does not see."""
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture(scope="module")
def uri(hidden: Path) -> Iterator[str]:
    with libvirtd((hidden,)) as made:
        yield made


def test_trial(tool: Tool, demo: History, uri: str) -> None:
    """Run directory and caches are in pytest's private directories: QEMU has to be this user to enter them."""
    trial = tool.trial(demo.new, "--connect", uri, *TCG)
    (console,) = (artifact for artifact in trial["artifacts"] if artifact["name"] == "console.log")
    text = (Path(trial["run_dir"]) / console["path"]).read_text(errors="replace")
    assert text.startswith("early console in extract_kernel"), "the kernel's first words, from before it is unpacked"
    assert "bisector-guest: ready" in text
    assert not guests_of(domain_prefix(Path(trial["run_dir"])))


def test_a_counted_trial_has_the_figures_of_the_other_driver(tool: Tool, demo: History, uri: str) -> None:
    words = (demo.new, *COUNTED, "--stack", "ram+ext4", "--file-size", "8MiB", "--runtime", "1s")
    by_daemon, embedded = tool.measured("--connect", uri, *words), tool.measured(*words)
    assert {"console.log", "run/fio.json"} <= contents(by_daemon).keys()
    assert contents(by_daemon) == contents(embedded)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.rare), signal.SIGKILL])
def test_no_guest_outlives_us(tool: Tool, demo: History, uri: str, tmp_path: Path, number: signal.Signals) -> None:
    """Stopped, we end the guest; killed, the daemon does, since nobody is left at the other end."""
    run_dir = tmp_path / "run"
    child = tool.spawn("test", demo.new, "--repo", tool.repo, "--run-dir", run_dir, "--connect", uri, *TCG)
    running = f"{domain_prefix(run_dir)}1,"
    tool.wait_for("the guest", run_dir, lambda: bool(guests_of(running)))
    child.send_signal(number)
    output, _ = child.communicate(timeout=60)
    assert child.returncode == (130 if number == signal.SIGINT else -number), output
    assert "Traceback" not in output
    Deadline("the end of the guest", GONE_S).poll(lambda: None if guests_of(running) else True)


@pytest.mark.parametrize("clock", ["host", "instructions"])
def test_files_that_the_daemon_cannot_have_are_found_before_anything_is_built(
    tool: Tool, demo: History, uri: str, hidden: Path, clock: str
) -> None:
    said = tool.refused(demo.new, "--connect", uri, "--run-dir", hidden / "run", *TCG, "--clock", clock)
    assert f"libvirt's QEMU cannot work with files in {hidden}/run" in said
    assert "--run-dir DIRECTORY" in said
