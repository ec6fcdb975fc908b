"""What is run: that bisector takes it, that it fits into its time, and what is scaled."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector import cli
from bisector.commands import compare
from bisector.core.subject import Subject
from bisector.status.blocks import Blocks, asked_s, block_s
from bisector.store.facts import Arm, Extent, Plan
from scenarios.articles import sets
from scenarios.articles.planted import KERNELS
from tests.examples import commit


def test_all_of_it_fits_into_its_time() -> None:
    runs = sets.runs(KERNELS)
    assert sum(run.most_s for run in runs) < sets.BUDGET_S
    assert len({run.directory for run in runs}) == len(runs) == len({run.name for run in runs})


@pytest.mark.parametrize("name", [sets.STACKS, sets.GREP, sets.KERNELS, sets.SUBMIT, sets.CLOUD])
def test_no_budget_keeps_a_stack_from_being_measured(name: str, tmp_path: Path) -> None:
    """Each trial takes its share of what is expected, and a tenth more; a first block is thought to take longest."""
    (run,) = (one for one in sets.runs(KERNELS) if one.name == name)
    arguments = cli.parsed([*run.words, "--run-dir", str(tmp_path)])
    kernels = [*arguments.subjects, *arguments.patch, *(["again"] if arguments.placebo else [])]
    arms = tuple(Arm(arm, Subject(commit(n))) for n, arm in enumerate(kernels))
    setups = tuple(compare.settings_of(arguments))
    blocks = Blocks(Plan(arms, setups, Extent(1, arguments.runs)))
    slower = 1.1 * run.expected_s / (len(arms) * arguments.runs * sum(map(asked_s, setups)))
    spent_s = 0.0
    for round_ in range(arguments.runs):
        for n, one in enumerate(setups):
            takes_s = len(arms) * asked_s(one) * slower
            thought_s = takes_s if round_ else block_s(blocks, n)
            assert spent_s + thought_s <= arguments.budget
            spent_s += takes_s


def test_each_command_is_one_that_bisector_takes(tmp_path: Path) -> None:
    for run in sets.runs(KERNELS):
        arguments = cli.parsed([*run.words, "--run-dir", str(tmp_path)])
        if run.words[0] == "compare":
            assert [one.storage.stack.text for one in compare.settings_of(arguments)]
            assert arguments.budget == pytest.approx(run.most_s)


def test_a_machine_with_one_kernel_compares_it_alone() -> None:
    of = {run.name: run for run in sets.runs(replace(KERNELS, older=""))}
    words = of[sets.KERNELS].words
    assert words[1:3] == (KERNELS.slow_cache, KERNELS.newest)
    assert "" not in words


def test_a_kernel_is_built_by_words_that_the_command_has() -> None:
    assert cli.parsed(["kernel", "build", "v6.1", *sets.fragments()]).commit == "v6.1"
