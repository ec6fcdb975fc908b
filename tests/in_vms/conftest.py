"""The demonstration's history and this user's caches, with a state directory of the test's own, and one kernel.

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

from bisector.config import Settings, options
from bisector.core.deadline import Deadline
from bisector.core.resources import cache_home
from bisector.core.subject import Kernel
from bisector.executor.local import kernel_builder
from bisector.git.repository import Repository
from bisector.storage.disks import Bus
from bisector.storage.layer import LAYERS
from scenarios.demo import history
from scenarios.demo.run import newest_tarball
from tests.docs.json_schema import valid

TRIAL_DEADLINE_S = 1500.0
ROOT = Path(__file__).parents[2]


# Each configuration is compiled from nothing: with one option more ccache knows no file again (`behind-ccache.sh`). So
# all of these tests have one: the drivers of all layers and buses, the schedulers, and the cache's target and policy as
# modules.
MODULES = """\
# What the stack loads by itself; the guest's root, console and network stay built in.
CONFIG_MODULES=y
CONFIG_MODULE_UNLOAD=y
CONFIG_DM_CACHE=m
CONFIG_DM_CACHE_SMQ=m
"""
FRAGMENTS = (
    *("tiny", "vm", *dict.fromkeys(name for layer in LAYERS.values() for name in layer.fragments)),
    *dict.fromkeys(fragment for bus in Bus for fragment in bus.fragments),
    *("counted", "scheduler-bfq", "scheduler-kyber", "scheduler-mq-deadline", "writeback-throttling"),
)

# A trial of seconds: the slow disk is not slowed down, so that even a run of this length leaves the small cache full.
SHORT_RUNS = ("--cache-size", "16MiB", "--file-size", "8MiB", "--runtime", "3s", "--set", "storage.hdd.iops_limit=0")
SHORT = (*SHORT_RUNS, "--set", "storage.ssd.size=128MiB", "--set", "storage.hdd.size=128MiB")
# Measurements that other work on the host disturbs count all the same: for a test in which no figure decides.
DISTURBED = (
    *("--set", "contention.max_other_cores=1000", "--set", "contention.max_steal_share=1"),
    *("--set", "contention.max_speed_change=1000", "--set", "contention.patience=0"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Nothing is left at the end that would wait alone."""
    items.sort(key=lambda item: "waits" not in item.keywords)


@dataclass
class Tool:
    """The command line, as a person has it, in a world of its own."""

    repo: Path
    state: Path
    directory: Path  # with the settings of these tests
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    def __call__(self, *words: str | Path, deadline_s: float = TRIAL_DEADLINE_S) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.argv(*words), env=self.environment, capture_output=True, text=True, timeout=deadline_s, check=False,
            cwd=self.directory,
        )  # fmt: skip

    def spawn(self, *words: str | Path) -> "subprocess.Popen[str]":
        child = subprocess.Popen(
            self.argv(*words), env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=self.directory,
        )  # fmt: skip
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
        """A search does without the builds from nothing at its end, which take minutes: the demonstration has them."""
        brief = ("--set", "kernel.recheck=false") if words[0] == "start" else ()
        return [sys.executable, "-m", "bisector", *map(str, words), *brief]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "XDG_STATE_HOME": str(self.state), "PYTHONPATH": str(ROOT)}

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


def furnish(directory: Path) -> Path:
    """A directory with the settings of these tests, which are those of each command that runs there."""
    (directory / "modules.config").write_text(MODULES)
    fragments = ", ".join(f'"{name}"' for name in (*FRAGMENTS, "./modules.config"))
    (directory / "bisector.toml").write_text(f"[kernel]\nfragments = [{fragments}]\n")
    return directory


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return furnish(tmp_path_factory.mktemp("settings"))


@pytest.fixture(scope="session")
def settings(furnished: Path) -> Settings:
    return options.load(directory=furnished).settings


@pytest.fixture(scope="session")
def kernel(
    demo: history.History, furnished: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Kernel:
    """That of the new end, which is among those that are kept."""
    repository = Repository.open(Path(demo.repo))
    tree = repository.resolve(demo.new).tree
    builder = kernel_builder(settings.kernel)
    if builder.find(tree) is None:
        Tool(Path(demo.repo), tmp_path_factory.mktemp("built"), furnished).trial(demo.new, *SHORT)
    found = builder.find(tree)
    assert found is not None
    return found


@pytest.fixture
def tool(demo: history.History, furnished: Path, tmp_path: Path) -> Iterator[Tool]:
    made = Tool(Path(demo.repo), tmp_path / "state", furnished)
    yield made
    made.end()


class Branch:
    """Commits on top of one of the demonstration's, in a clone that shares its objects."""

    def __init__(self, demo: history.History, path: Path) -> None:
        self.demo, self.path = demo, path
        subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", demo.repo, path], check=True)
        self.tip = demo.new

    def git(self, *words: str, stdin: str = "") -> str:
        who = {f"GIT_{who}_{what}": "test@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {**os.environ, **who, "GIT_INDEX_FILE": str(self.path / "index")}
        command = ["git", "-C", str(self.path), *words]
        return subprocess.run(
            command, env=environment, input=stdin, stdout=subprocess.PIPE, text=True, check=True
        ).stdout.rstrip("\n")

    def edited(self, tree: str, path: str, edits: tuple[tuple[str, str], ...]) -> str:
        """The tree with changes in one file, each at a text that is there once."""
        text = self.git("show", f"{tree}:{path}") + "\n"
        for old, new in edits:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        blob = self.git("hash-object", "-w", "--stdin", stdin=text)
        self.git("read-tree", tree)
        self.git("update-index", "--cacheinfo", f"100644,{blob},{path}")
        return self.git("write-tree")

    @property
    def fast(self) -> str:
        return self.git("rev-parse", f"{self.demo.new}^{{tree}}")

    def slow(self) -> str:
        """A tree whose dm-cache waits once it is full: an order of magnitude slower, also in runs of seconds."""
        return self.edited(self.fast, "drivers/md/dm-cache-target.c", SLOW)

    def commit(self, tree: str, subject: str) -> str:
        self.tip = self.git("commit-tree", tree, "-p", self.tip, "-m", subject)
        return self.tip


# Only once the cache is full: a slow first run would not fill it.
SLOW = (
    ("#include <linux/jiffies.h>\n", "#include <linux/delay.h>\n#include <linux/jiffies.h>\n"),
    (
        "\n\tinit_per_bio_data(bio);\n\tif (unlikely(from_oblock(block)",
        "\n\tif (from_cblock(policy_residency(cache->policy)) == from_cblock(cache->cache_size))\n\t\tmsleep(20);"
        "\n\tinit_per_bio_data(bio);\n\tif (unlikely(from_oblock(block)",
    ),
)


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
