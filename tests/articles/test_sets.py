"""What is run: that bisector takes it, that it fits into its time, and what is scaled."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector import cli
from bisector.commands import compare_setups
from bisector.core import resources
from bisector.workload.fio import job_file
from tests.articles import sets
from tests.articles.planted import KERNELS


def test_all_of_it_fits_into_its_time(tmp_path: Path) -> None:
    runs = sets.runs(KERNELS, tmp_path)
    assert sum(run.most_s for run in runs) < sets.BUDGET_S
    assert len({run.directory for run in runs}) == len(runs) == len({run.name for run in runs})


def test_each_command_is_one_that_bisector_takes(tmp_path: Path) -> None:
    for run in sets.runs(KERNELS, tmp_path):
        arguments = cli.parsed([*run.words, "--run-dir", str(tmp_path)])
        if run.words[0] == "compare":
            assert [one.storage.stack.text for one in compare_setups.settings_of(arguments)]
            assert arguments.budget == run.most_s


def test_another_thing_to_run_has_another_directory(tmp_path: Path) -> None:
    run = sets.runs(KERNELS, tmp_path)[0]
    assert run.directory.startswith(f"{run.name}-")
    assert replace(run, words=(*run.words, "--placebo")).directory != run.directory
    assert replace(run, scaled="otherwise", expected_s=1.0).directory == run.directory


def test_a_machine_with_one_kernel_compares_it_alone(tmp_path: Path) -> None:
    of = {run.name: run for run in sets.runs(replace(KERNELS, older=""), tmp_path)}
    words = of[sets.KERNELS].words
    assert words[1:3] == (KERNELS.slow_cache, KERNELS.newest)
    assert "" not in words


@pytest.mark.parametrize("name", sets.JOBS)
def test_the_scaled_jobs_differ_in_where_they_do_their_io(name: str, tmp_path: Path) -> None:
    made = sets.scaled_jobs(tmp_path)[name].read_text(encoding="utf-8")
    original = (resources.jobs() / f"{name}.fio").read_text(encoding="utf-8")
    more = [line for line in made.splitlines() if line not in original.splitlines()]
    assert len(more) == (1 if name.startswith("rand-") else 4)
    assert [line for line in made.splitlines() if line not in more] == original.splitlines()
    assert job_file.objection(made) is None
    assert job_file.deciding(made) == job_file.deciding(original)
