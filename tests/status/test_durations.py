"""How long a block is thought to take, and what the hours of a run went to."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.config import Settings, options
from bisector.core.subject import Cell, Subject
from bisector.core.trial import Timings, Trial
from bisector.status.blocks import BOOT_AND_LAYOUT_S, Blocks, TimeSpent, asked_s, block_s, longest_planned_trial_s
from bisector.store.facts import Arm, Block, Extent, Place, Placed, Plan
from bisector.store.log import DATABASE
from bisector.store.store import Store
from tests import examples, fakes
from tests.compare import planted
from tests.examples import commit
from tests.store.examples import bisection

ARMS = tuple(Arm(name, Subject(commit(n))) for n, name in enumerate(("v6.1", "v6.2")))
CACHED = {"storage.stack": "lvmcache", "workload.runtime": "20s", "storage.fill_deadline": "3min"}
SEARCH = {"workload.kind": "gitgrep"}


def setup(flags: Mapping[str, str]) -> Settings:
    return options.load(flags, directory=Path("/")).settings


def blocks_of(*flags: Mapping[str, str]) -> Blocks:
    return Blocks(Plan(ARMS, tuple(map(setup, flags)), Extent(7, 6)))


def with_trials(blocks: Blocks, of: int, *trials: Trial) -> Blocks:
    block, *_ = begun = (*blocks.blocks, Block(1, of, 1, 1, (0, 1)))
    placed = (Placed(n, Place(block.n, n - 1), one) for n, one in enumerate(trials, 1))
    return replace(blocks, blocks=begun, placed=tuple(placed))


def trial(blocks: Blocks, of: int, total_s: float, workload_s: float = 0.0) -> Trial:
    made = planted.trial(Cell(ARMS[0].subject, blocks.plan.setups[of].setup), 1_000.0, total_s=total_s)
    return replace(made, timings=replace(made.timings, workload_s=workload_s))


@pytest.mark.parametrize(
    ("flags", "least_s", "most_s"),
    [
        pytest.param({"storage.stack": "hdd"}, 40, 40, id="nothing is filled"),
        pytest.param(CACHED, 20 + 20, 180 + 20, id="until the deadline"),
        pytest.param({**CACHED, "storage.fill_deadline": "0s"}, 20 + 20, 20 + 20, id="one round in any case"),
        pytest.param({**CACHED, "storage.fill_rounds": "3"}, 60 + 20, 180 + 20, id="at least three rounds"),
        pytest.param({"storage.stack": "hdd", **SEARCH}, 0, 0, id="nobody knows"),
    ],
)
def test_before_the_first_block_it_is_what_was_asked_for(
    flags: Mapping[str, str], least_s: float, most_s: float
) -> None:
    one = setup(flags)
    assert (asked_s(one), longest_planned_trial_s(one)) == (BOOT_AND_LAYOUT_S + least_s, BOOT_AND_LAYOUT_S + most_s)
    assert block_s(blocks_of(flags), 0) == 2 * (BOOT_AND_LAYOUT_S + most_s)


def test_then_it_is_the_longest_trial_so_far_without_its_build_and_without_faults() -> None:
    blocks = blocks_of(CACHED)
    first, second = trial(blocks, 0, 90.0), trial(blocks, 0, 130.0)
    built = replace(second, timings=replace(second.timings, build_s=30.0))
    assert block_s(with_trials(blocks, 0, first, built), 0) == 2 * 100.0
    failed = replace(second, fault=fakes.PANIC, runs=())
    assert block_s(with_trials(blocks, 0, first, failed), 0) == 2 * 90.0


def test_a_workload_of_unknown_length_takes_as_long_as_on_the_other_setups() -> None:
    blocks = blocks_of({"storage.stack": "hdd", **SEARCH}, {"storage.stack": "ssd", **SEARCH}, {"storage.stack": "hdd"})
    known = with_trials(blocks, 0, trial(blocks, 0, 90.0, workload_s=70.0), trial(blocks, 0, 80.0, workload_s=60.0))
    assert [block_s(known, setup) for setup in range(3)] == [2 * 90.0, 2 * (30.0 + 70.0), 2 * (30.0 + 40.0)]


def test_what_is_neither_build_nor_boot_nor_layout_nor_workload_is_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bisector.status.blocks.process_s", lambda _: 300.0)
    monkeypatch.setattr("bisector.status.blocks.build_seconds", lambda _: 90.0)
    took = [Timings(build_s=10.0, boot_s=6.0, storage_s=4.0, workload_s=84.0, total_s=110.0), Timings(workload_s=96.0)]
    with Store.create(tmp_path / DATABASE, bisection()) as store:
        found = TimeSpent.of(store, [replace(examples.trial(commit(n)), timings=one) for n, one in enumerate(took)])
        assert TimeSpent.of(store, []) is None
    assert found == TimeSpent(300.0, 100.0, 6.0, 4.0, 180.0)
    assert found.other_s == 10.0
    assert found.other_share == pytest.approx(0.05)
    assert replace(found, total_s=100.0).other_share == 0.0
