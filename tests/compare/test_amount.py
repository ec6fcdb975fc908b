"""How many blocks a comparison has: by its budget, or by how narrow its intervals are."""

from dataclasses import replace

import pytest

from bisector.analysis.comparison import ALPHA, LOOKED_ALPHA
from bisector.campaign.instructions import Done
from bisector.core.trial import Trial
from bisector.core.verdict import State
from bisector.status.blocks import BlockState, block_s, left_s, result_of
from bisector.store.facts import Absent, Budget, Extent
from tests.compare import planted
from tests.compare.played import (
    ARMS,
    PLAN,
    SETUPS,
    Begin,
    Measure,
    cell,
    decided,
    known,
    nothing,
    on,
    played,
    sound,
)


def test_the_budget_has_room_for_whole_blocks_only() -> None:
    plan = replace(PLAN, extent=Extent(7, 6, budget_s=600.0))
    blocks, done = played(nothing(plan), sound(plan))  # 60 s a trial
    assert done == Done(State.MEASURED, "another block would end after the budget of 10 min")
    assert len(blocks.blocks) == 3
    assert all(blocks.state(block) is BlockState.DONE for block in blocks.blocks)


def test_where_the_next_block_is_too_long_for_the_budget_a_shorter_one_is_measured() -> None:
    """A first block that fills a cache is thought to take as long as it may, 3 times 370 s; later ones what it took."""
    slow = (on("lvmcache", fill_deadline="5min"), SETUPS[1])
    plan = replace(PLAN, setups=slow, extent=Extent(7, 3, budget_s=1_000.0))
    blocks, done = played(nothing(plan), sound(plan))
    assert [block.setup for block in blocks.blocks] == [1, 1, 1]
    assert done == Done(State.MEASURED, "another block would end after the budget of 16 min 40 s")
    blocks, _ = played(nothing(replace(plan, extent=Extent(7, 3, budget_s=1_120.0))), sound(plan))
    assert [block.setup for block in blocks.blocks] == [0, 1, 0, 1, 0, 1]


def test_a_budget_that_is_given_later_counts_from_then_on() -> None:
    plan = replace(PLAN, extent=Extent(7, 6, budget_s=600.0))
    blocks, _ = played(nothing(plan), sound(plan))
    spent_s = 540.0
    more = known(blocks, spent_s, given=Budget(400.0, spent_s))
    assert isinstance(decided(more), Begin)
    assert isinstance(decided(replace(more, spent_s=spent_s + 220.0)), Begin)  # a block takes 180 s
    assert decided(replace(more, spent_s=spent_s + 221.0)) == Done(
        State.MEASURED, "another block would end after the budget of 6 min 40 s"
    )
    assert isinstance(decided(known(nothing(replace(plan, extent=Extent(7, 6))), given=Budget(1.0))), Done)


def test_what_is_left_takes_as_long_as_the_blocks_that_are_due() -> None:
    plan = replace(PLAN, extent=Extent(7, 6, budget_s=600.0), absent=(Absent(0, 2, "needs CONFIG_MD"),))
    blocks, _ = played(nothing(plan), sound(plan))
    assert [(block.setup, len(block.arms)) for block in blocks.blocks] == [(0, 2), (1, 3), (0, 2), (1, 3)]
    assert left_s(blocks) == 4 * 2 * 60.0 + 4 * 3 * 60.0
    assert left_s(played(nothing(), sound(PLAN))[0]) == 0.0
    until = replace(plan, extent=Extent(7, 6, until=0.05), absent=(Absent(0, 0, "no"),))
    assert left_s(replace(blocks, plan=until)) == (6 - 2) * 3 * 60.0


def test_a_budget_that_ends_hides_no_setup_that_was_given_up() -> None:
    plan = replace(PLAN, extent=Extent(7, 9, budget_s=900.0))

    def outcome(measure: Measure, n: int) -> Trial:
        return planted.trial(cell(plan, measure.block, measure.arm), 1_000.0, busy=measure.block.setup == 0)

    _, done = played(nothing(plan), outcome)
    assert done.message.startswith("another block would end after the budget")
    assert [why.partition(":")[0] for why in done.given_up] == ["fio(partial.fio) on lvmcache(ssd,hdd)+ext4"]


def test_a_weak_block_that_the_budget_does_not_repeat_has_nothing_in_its_place() -> None:
    plan = replace(PLAN, setups=SETUPS[1:], extent=Extent(7, 6, budget_s=750.0))

    def outcome(measure: Measure, n: int) -> Trial:
        return planted.trial(cell(plan, measure.block, measure.arm), 1_000.0, busy=n in (3, 10))

    blocks, done = played(nothing(plan), outcome)
    assert done.message.startswith("another block would end after the budget")
    assert [blocks.state(block) for block in blocks.blocks] == [
        BlockState.WEAK, BlockState.DONE, BlockState.DONE, BlockState.WEAK,
    ]  # fmt: skip
    found = result_of(blocks)
    assert (found.void, found.missing) == (2, 1)


def test_a_block_that_is_too_long_for_the_budget_is_not_begun_at_all() -> None:
    plan = replace(PLAN, extent=Extent(7, 6, budget_s=200.0))
    assert block_s(nothing(plan), 0) == 3 * (30.0 + 41.0 + 40.0)
    blocks, done = played(nothing(plan), sound(plan))
    assert (blocks.blocks, done.message) == ((), "another block would end after the budget of 3 min 20 s")


NOISE = (0.0, 0.02, -0.02, 0.01, -0.01, 0.03, -0.03)


@pytest.mark.parametrize(("noise", "looked_after"), [(0.5, 6), (1.4, 9), (1.8, 12), (10.0, 20)])
def test_until_goes_on_as_long_as_an_interval_is_wide(noise: float, looked_after: int) -> None:
    plan = replace(PLAN, arms=ARMS[:2], setups=SETUPS[1:], extent=Extent(7, 6, until=0.05))

    def outcome(measure: Measure, n: int) -> Trial:
        value = 1_000.0 * (1 + noise * NOISE[n % len(NOISE)]) * (2 if measure.arm == 1 else 1)
        return planted.trial(cell(plan, measure.block, measure.arm), value)

    blocks, done = played(nothing(plan), outcome)
    assert len(blocks.counted(0)) == looked_after
    every = "every" if looked_after < 20 else "not every"
    assert done.message == f"{every} interval is within ±5 %: {looked_after} blocks on each setup"


def test_how_many_blocks_made_the_intervals_narrow_is_said_of_each_setup() -> None:
    plan = replace(PLAN, arms=ARMS[:2], extent=Extent(7, 6, until=0.05), absent=(Absent(2, 0, "no"),))
    plan = replace(plan, setups=(*SETUPS, on("ssd"), on("hdd+xfs")))

    def outcome(measure: Measure, n: int) -> Trial:
        noise = 1.4 if measure.block.setup == 1 else 0.1
        value = 1_000.0 * (1 + noise * NOISE[n % len(NOISE)])
        return planted.trial(cell(plan, measure.block, measure.arm), value)

    blocks, done = played(nothing(plan), outcome)
    assert [len(blocks.counted(setup)) for setup in range(4)] == [6, 9, 0, 6]
    assert done.message == (
        "every interval is within ±5 %: 6 blocks on lvmcache(ssd,hdd)+ext4 and hdd+xfs; 9 blocks on hdd+ext4;"
        " n/a: ssd+ext4"
    )


def test_a_lone_interval_that_ends_its_setup_leaves_out_less() -> None:
    """By chance it is narrow too early; that several are so at once is no such chance."""
    until = Extent(7, 6, until=0.05)
    lone = nothing(replace(PLAN, arms=ARMS[:2], extent=until))
    assert lone.alpha(0) == LOOKED_ALPHA
    assert nothing(replace(PLAN, arms=ARMS[:2])).alpha(0) == ALPHA, "six blocks, whatever they show"
    assert nothing(replace(PLAN, extent=until)).alpha(0) == ALPHA
    lacks = replace(PLAN, extent=until, absent=(Absent(0, 2, "needs CONFIG_X"),))
    assert [nothing(lacks).alpha(setup) for setup in (0, 1)] == [LOOKED_ALPHA, ALPHA]
