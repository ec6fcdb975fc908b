"""Workloads in a real guest: each job that comes with the tool, a command with what it needs, a search in a clone.

One guest with one stack runs them all. What of a trial is around them, one whole trial shows.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bisector.config import Settings, options
from bisector.core import resources
from bisector.core.errors import UserError
from bisector.core.figures import Contention, Run
from bisector.core.shell import Shell
from bisector.core.subject import Kernel
from bisector.core.trial import KernelFault
from bisector.git.repository import Repository
from bisector.git.transfer import bundled
from bisector.host.process import run_here
from bisector.storage.layer import MountedStack
from bisector.storage.stack import lay_out
from bisector.vm.machine import VirtualMachines, guest_image
from bisector.workload.base import RunSite
from bisector.workload.fio import job_file
from scenarios.demo.history import History
from tests.in_vms.conftest import SHORT, Tool

pytestmark = pytest.mark.vm

DISK = {"storage.stack": "hdd+ext4", "storage.hdd.size": "512MiB", "storage.hdd.iops_limit": "0"}
HERE = Path("/")


@dataclass
class Mounted:
    """A guest that runs, with a file system; each run has a directory of its own."""

    guest: Shell
    stack: MountedStack
    path: Path
    runs: Iterator[int] = field(default_factory=count)

    def run(self, settings: Settings, seed: int | None = None) -> Run:
        name = f"run{next(self.runs)}"
        self.logs = self.path / name
        site = RunSite(
            self.guest,
            self.stack,
            name,
            self.logs,
            False,
            lambda: lambda: Contention(0.0, 0.0, 0.0),
            lambda sample: None,
            300.0,
            run_here,
            seed=seed,
        )
        run = settings.workload.workload.run(site)
        assert settings.bisect.objective.value(run) > 0
        return run


@pytest.fixture(scope="module")
def mounted(kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    run_dir, settings = tmp_path_factory.mktemp("run"), load()
    storage, image = settings.storage, guest_image(settings.machine, run_dir, print)
    with (
        VirtualMachines.open(settings, image, run_dir, print) as machines,
        machines.prepared("workloads", kernel, run_dir, storage, "") as machine,
    ):
        machine.boot()
        stack = lay_out(machine.guest, storage.stack, storage.layers, settings.workload.files, 300.0)
        yield Mounted(machine.guest, stack, run_dir)


def load(given: dict[str, Any] | None = None) -> Settings:
    return options.load({**DISK, **(given or {})}, directory=HERE).settings


def test_job_files_are_held_against_the_fio_that_is_there(mounted: Mounted) -> None:
    assert mounted.guest.run("fio --version").stdout.strip() == job_file.VERSION


@pytest.mark.parametrize("job", sorted(path.stem for path in resources.jobs().iterdir()))
def test_each_job_has_what_decides(mounted: Mounted, job: str) -> None:
    short = {"workload.job": job, "workload.runtime": "2s", "workload.file_size": "16MiB"}
    run = mounted.run(load(short), seed=7)
    assert {one.name.partition("/")[0] for one in run.jobs} == {job}
    told = json.loads((mounted.logs / "fio.json").read_text())
    assert "randseed=7" in (mounted.logs / "job.fio").read_text()
    assert told["jobs"][0]["job options"].get("randseed", told["global options"].get("randseed")) == "7"


def test_a_command_with_what_it_needs(mounted: Mounted, tmp_path: Path) -> None:
    bench, data = tmp_path / "bench", tmp_path / "data"
    bench.write_text('#!/bin/sh\ncat here | wc -c >&2\necho "read = $(($(stat -c %s here) / 1024)) KiB; seed $SEED"\n')
    bench.chmod(0o755)
    data.write_bytes(bytes(range(256)) * 4096)
    settings = load(
        {
            "workload.command.line": "bench",
            "workload.command.carry": [str(bench), str(data)],
            "workload.command.setup": "cat $CARRIED/data $CARRIED/data >here",
            "workload.command.figures": ["read=MiB,higher,regex:read = ([0-9]+ KiB)"],
        }
    )
    values = dict(mounted.run(settings, seed=5).counters)
    assert values["custom:read:B:higher"] == 2 * 2**20
    # The two ends of the pipe run side by side.
    assert 0 < values["user"] + values["system"] < 2 * values["elapsed"] < 60
    outputs = [(mounted.logs / f"output.{n}.txt").read_text() for n in (1, 2, 3)]
    assert outputs == ["read = 2048 KiB; seed 5\n"] * 3
    assert (mounted.logs / "errors.2.txt").read_text() == f"{2 * 2**20}\n"
    assert len(json.loads((mounted.logs / "repetitions.json").read_text())) == 3


@pytest.mark.parametrize(
    ("line", "expected", "message"),
    [
        ("echo done", UserError, "the command: it ended well and printed no figure tps"),
        ("yes tps=1", UserError, "it wrote more than 1 MiB on standard output"),
        ("no-such-program", UserError, "the guest cannot run it: the command: exit 127"),
        ("echo cannot read >&2; exit 5", KernelFault, "the command: exit 5: cannot read"),
    ],
)
def test_commands_that_cannot_be_measured(mounted: Mounted, line: str, expected: type[Exception], message: str) -> None:
    settings = load({"workload.command.line": line, "workload.command.figures": ["tps=1/s,higher"]})
    with pytest.raises(expected, match=message):
        mounted.run(settings)


def test_page_cache_is_dropped_or_filled_as_told(mounted: Mounted) -> None:
    """What is in memory is read with less of the system's time; a dropped cache has to be read from the disk again."""
    given = {
        "workload.command.line": 'cat data | wc -c; awk \'$3 == "vdc" || $3 == "vdb" {print $6}\' /proc/diskstats',
        "workload.command.setup": "dd if=/dev/zero of=data bs=1M count=8 2>/dev/null; sync",
    }
    sectors = {}
    for state in ("dropped", "filled"):
        mounted.run(load({**given, "workload.command.page_cache": state}))
        first, last = (sum(map(int, (mounted.logs / f"output.{n}.txt").read_text().splitlines()[1:])) for n in (1, 3))
        sectors[state] = last - first
    assert sectors["dropped"] >= 2 * 8 * 2048 > sectors["filled"] + 2048


def test_a_search_in_a_clone(mounted: Mounted, demo: History) -> None:
    wanted = load(
        {
            "workload.gitgrep.pattern": "ext4_inode",
            "workload.gitgrep.path": "fs/ext4",
            "workload.gitgrep.size": "32MiB",
            "workload.gitgrep.runs": "2",
        }
    )
    repository = Repository.open(Path(demo.repo))
    settings = bundled(wanted, repository)
    values = dict(mounted.run(settings).counters)
    assert {"elapsed", "user", "system", "cpu"} <= set(values)
    assert values["user"] > 0
    first, second = ((mounted.logs / f"output.{n}.txt").read_text() for n in (1, 2))
    assert first == second
    assert int(first.split()[1]) > 1000
    searched: Any = settings.workload.workload
    other = {**settings.workload.own, "gitgrep": replace(searched, pattern="no such line is there")}
    with pytest.raises(UserError, match="it found no line with"):
        mounted.run(replace(settings, workload=replace(settings.workload, own=other)))


def test_a_trial_of_a_command_has_its_figure_in_both_phases(tool: Tool, demo: History) -> None:
    words = ("--command", "echo tps=$((1 + 1))", "--figure", "tps=1/s,higher", "--set", "workload.command.size=16MiB")
    trial = tool.trial(demo.new, *SHORT, *words)
    assert trial["value"] == 2
    # What fills nothing is run once more before the cache is given up.
    assert [run["name"] for run in trial["runs"]] == ["empty", "empty@2", "full"]
    assert {run["counters"]["custom:tps:1/s:higher"] for run in trial["runs"]} == {2}
