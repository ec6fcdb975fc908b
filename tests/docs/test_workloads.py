"""The page of the workloads: its settings are read, its job file is one, and each workload has its section."""

import re
from pathlib import Path

import pytest

from bisector import cli
from bisector.commands.arguments import given_settings
from bisector.config import options
from bisector.core import resources
from bisector.host.process import run_here
from bisector.workload.command import read_figure
from bisector.workload.fio.fio import Fio
from bisector.workload.workloads import WORKLOADS
from tests.docs.generate import DOCS
from tests.docs.test_commands import blocks, words_of

PAGE = DOCS / "workloads.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_every_workload_has_its_section() -> None:
    assert {f"## {name}" for name in WORKLOADS} <= set(TEXT.splitlines())


@pytest.mark.parametrize("command", [one.command for block in blocks(PAGE) for one in block])
def test_settings_of_the_examples_work(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in re.findall(r"--carry \./(\S+)", command):
        Path(name).touch()
    settings = options.load(given_settings(cli.parsed(words_of(command)))).settings
    settings.workload.workload.check(settings.bisect.objective, run_here)


def test_job_files_of_the_page(tmp_path: Path) -> None:
    found = re.findall(r"```ini\n(.*?)```", TEXT, re.DOTALL)
    assert found
    for text in found:
        (job := tmp_path / "mine.fio").write_text(text, encoding="utf-8")
        own = Fio(job, 1 << 20, 1)
        own.check(own.deciding().objective, run_here)


def test_table_of_jobs_has_those_that_there_are_and_what_decides() -> None:
    rows = dict(re.findall(r"^\| `([a-z-]+)`(?: \(default\))? \|[^|]*\| `([a-z.]+)` \|$", TEXT, re.MULTILINE))
    jobs = {path.stem: Fio(path, 1, 1).deciding().objective.metric for path in resources.jobs().iterdir()}
    assert rows == jobs


def test_table_of_figures(tmp_path: Path) -> None:
    rows = re.findall(r"^\| `(\S.*?,(?:higher|lower).*?)` \| (.*) \|$", TEXT, re.MULTILINE)
    assert len(rows) > 1
    for spec, shown in rows:
        values = {read_figure(spec).value(printed) for printed in re.findall(r"`([^`]+)`", shown)}
        assert len(values) == 1
