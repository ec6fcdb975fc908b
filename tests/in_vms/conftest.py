"""The demonstration's history and this user's caches, with a state directory of the test's own.

Kernels and the guest image are kept between runs, as they are for a person: that is what makes the
second ``make test`` fast.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bisector.config import options
from bisector.core.deadline import Deadline
from bisector.core.resources import cache_home
from bisector.executor.local import kernel_builder
from bisector.storage.layers import LAYERS
from tests.demo import history
from tests.demo.run import newest_tarball
from tests.docs.json_schema import valid

TRIAL_DEADLINE_S = 1500.0


def _of(*names: str) -> tuple[str, ...]:
    return tuple(word for name in names for word in ("--fragment", name))


# The kernels of these tests are few, since each of them is compiled from nothing: with one option more ccache knows
# no file again (`behind-ccache.sh`), and sched.h, which all files include, has an option of bcache. They are the
# default one, one with the drivers of all layers, and the default one with what is on top of it here.
KERNEL = _of("tiny", "vm", "storage-lvmcache")
ALL_LAYERS = _of("tiny", "vm", *dict.fromkeys(name for layer in LAYERS.values() for name in layer.fragments))
MODULES = """\
# What the stack loads by itself; the guest's root, console and network stay built in.
CONFIG_MODULES=y
CONFIG_MODULE_UNLOAD=y
CONFIG_DM_CACHE=m
CONFIG_DM_CACHE_SMQ=m
"""

# A trial of seconds, with the kernels that other tests have: the slow disk is not slowed down, so that even a run of
# this length leaves the small cache full.
SHORT_RUNS = ("--cache-size", "16MiB", "--file-size", "8MiB", "--runtime", "3s", "--set", "storage.hdd.iops_limit=0")
SHORT = (*SHORT_RUNS, "--set", "storage.ssd.size=128MiB", "--set", "storage.hdd.size=128MiB")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Nothing is left at the end that would wait alone."""
    items.sort(key=lambda item: "waits" not in item.keywords)


@dataclass
class Tool:
    """The command line, as a person has it, in a world of its own."""

    repo: Path
    state: Path
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    def __call__(self, *words: str | Path, deadline_s: float = TRIAL_DEADLINE_S) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.argv(*words), env=self.environment, capture_output=True, text=True, timeout=deadline_s, check=False
        )

    def spawn(self, *words: str | Path) -> "subprocess.Popen[str]":
        child = subprocess.Popen(
            self.argv(*words), env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.children.append(child)
        return child

    def end(self) -> None:
        """Kill what still runs; also of a test that failed, which may have read a child's output to its end."""
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
            with child:  # closes the pipe, closed or not, and waits
                pass

    def argv(self, *words: str | Path) -> list[str]:
        return [sys.executable, "-m", "bisector", *map(str, words)]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "XDG_STATE_HOME": str(self.state)}

    def measured(self, *words: str | Path) -> dict[str, Any]:
        """The facts of ``bisector test`` with these words, which has to end well."""
        tested = self("test", *words, "--repo", self.repo, "--json", "--quiet")
        assert tested.returncode == 0, tested.stdout + tested.stderr
        trial: dict[str, Any] = valid("test", tested.stdout)
        assert trial["verdict"] in ("measured", "weak"), trial["reason"]
        return trial

    def trial(self, *words: str | Path) -> dict[str, Any]:
        """The facts of one whose cache is filled by a first run, and measured by a second one."""
        trial = self.measured(*words)
        assert [run["name"] for run in trial["runs"] if "@" not in run["name"]] == ["empty", "full"]
        return trial

    def refused(self, *words: str | Path, code: int = 2) -> str:
        """What the person reads when ``bisector test`` with these words is refused."""
        tested = self("test", *words, "--repo", self.repo, "--quiet")
        assert tested.returncode == code, tested.stdout + tested.stderr
        assert "Traceback" not in tested.stderr
        return tested.stderr

    def status(self, run_dir: Path) -> dict[str, Any]:
        shown = self("status", "--json", "--run-dir", run_dir)
        assert shown.returncode == 0, shown.stderr
        document: dict[str, Any] = valid("status", shown.stdout)
        return document

    def wait_for(self, what: str, run_dir: Path, seen: Callable[[], bool], every_s: float = 0.2) -> None:
        """Poll until ``seen``; the run is over too early when its process has ended.

        Where ``seen`` starts a process it is to be asked seldom, or it is the other work that makes runs weak.
        """

        def probe() -> bool | None:
            assert self.children[-1].poll() is None, self.children[-1].communicate()[0]
            return seen() or None

        Deadline(what, TRIAL_DEADLINE_S).poll(probe, every_s)


@pytest.fixture(scope="session")
def demo() -> history.History:
    return history.make(newest_tarball(), cache_home() / "demo" / "linux")


@pytest.fixture(scope="session")
def built(demo: history.History, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The kernel of the new end is among those that are kept."""
    settings = options.load().settings.kernel
    new = subprocess.run(
        ["git", "-C", demo.repo, "rev-parse", f"{demo.new}^{{tree}}"], capture_output=True, text=True, check=True
    )
    if kernel_builder(settings).find(new.stdout.strip()) is None:
        Tool(Path(demo.repo), tmp_path_factory.mktemp("built")).trial(demo.new, *SHORT)


@pytest.fixture
def tool(demo: history.History, tmp_path: Path) -> Iterator[Tool]:
    made = Tool(Path(demo.repo), tmp_path / "state")
    yield made
    made.end()


def guests_of(marker: str) -> list[str]:
    """Command lines of QEMU processes with this text in them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if "qemu-system" in words and marker in words:
            found.append(words)
    return found
