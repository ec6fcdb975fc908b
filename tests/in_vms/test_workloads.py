"""Workloads in real guests: each job that comes with the tool, a command with what it needs, a search in a clone."""

import json
from pathlib import Path
from typing import Any

import pytest

from bisector.core import resources
from tests.demo.history import History
from tests.docs.json_schema import valid
from tests.in_vms.conftest import SHORT, Tool
from tests.in_vms.test_stacks import KERNEL

pytestmark = pytest.mark.vm

ON_DISK = (*KERNEL, "--stack", "hdd+ext4", "--set", "storage.hdd.iops_limit=0", "--set", "storage.hdd.size=128MiB")


def tested(tool: Tool, *words: str | Path) -> dict[str, Any]:
    done = tool("test", *words, "--repo", tool.repo, "--json", "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    trial: dict[str, Any] = valid("test", done.stdout)
    assert trial["fault"] is None, trial["fault"]
    return trial


def files_of(trial: dict[str, Any], run: str) -> dict[str, str]:
    """The texts that a run left, by their names."""
    found = {one["name"]: Path(trial["run_dir"], one["path"]) for one in trial["artifacts"]}
    return {
        name.removeprefix(f"{run}/"): path.read_text(errors="replace")
        for name, path in found.items()
        if name.startswith(f"{run}/")
    }


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("job", sorted(path.stem for path in resources.jobs().iterdir()))
def test_each_job_has_what_decides(tool: Tool, demo: History, job: str) -> None:
    trial = tested(tool, demo.new, *ON_DISK, "--job", job, "--runtime", "2s", "--file-size", "16MiB")
    assert trial["verdict"] in ("measured", "weak")
    (run,) = trial["runs"]
    assert trial["value"] > 0
    assert job in {one["name"].partition("/")[0] for one in run["jobs"]}


@pytest.mark.usefixtures("built")
def test_a_command_with_what_it_needs(tool: Tool, demo: History, tmp_path: Path) -> None:
    bench, data = tmp_path / "bench", tmp_path / "data"
    bench.write_text('#!/bin/sh\ncat here | wc -c >&2\necho "read = $(($(stat -c %s here) / 1024)) KiB"\n')
    bench.chmod(0o755)
    data.write_bytes(bytes(range(256)) * 4096)
    trial = tool.trial(
        *(demo.new, *SHORT, "--command", "bench", "--carry", bench, "--carry", data, "--figure", "read=MiB,higher"),
        *("--setup", "cat $CARRIED/data $CARRIED/data >here", "--set", "workload.command.size=16MiB"),
    )
    assert trial["value"] == 2 * 2**20
    for run in trial["runs"]:
        values = run["counters"]
        assert values["custom:read:B:higher"] == 2 * 2**20
        assert 0 < values["user"] + values["system"] < values["elapsed"] < 60
        left = files_of(trial, run["name"])
        assert left["output.1.txt"] == left["output.3.txt"] == "read = 2048 KiB\n"
        assert left["errors.2.txt"] == f"{2 * 2**20}\n"
        assert len(json.loads(left["repetitions.json"])) == 3


@pytest.mark.usefixtures("built")
def test_a_command_that_prints_no_figure_is_refused_by_the_first_trial(tool: Tool, demo: History) -> None:
    words = ("--command", "echo done", "--figure", "tps=1/s,higher", "--set", "workload.command.size=16MiB")
    said = tool.refused(demo.new, *ON_DISK, *words)
    assert "the command: it ended well and printed no figure tps" in said


@pytest.mark.usefixtures("built")
def test_a_search_in_a_clone(tool: Tool, demo: History) -> None:
    size = ("--set", "workload.gitgrep.size=32MiB", "--set", "workload.gitgrep.runs=2")
    trial = tool.trial(demo.new, *SHORT, "--grep", "ext4_inode", "--set", "workload.gitgrep.path=fs/ext4", *size)
    assert trial["value"] == trial["runs"][-1]["counters"]["elapsed"]
    for run in trial["runs"]:
        assert set(run["counters"]) >= {"elapsed", "user", "system", "cpu"}
        left = files_of(trial, run["name"])
        assert left["output.1.txt"] == left["output.2.txt"]
        assert int(left["output.1.txt"].split()[1]) > 1000
