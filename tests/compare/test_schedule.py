"""What a comparison measures next follows from its record alone."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from bisector.campaign.instructions import Done
from bisector.compare.schedule import drawn, tries_again
from bisector.core.errors import UserError
from bisector.core.subject import Cell
from bisector.core.trial import Stage, Trial
from bisector.core.verdict import State
from bisector.status.blocks import Blocks, BlockState, Earlier, effects, result_of
from bisector.store.facts import Absent, Block, BuildTry, Extent, Place, Placed, Plan
from tests import fakes
from tests.compare import planted
from tests.compare.played import (
    ARMS,
    BUILT,
    PLAN,
    SETUPS,
    Begin,
    Build,
    Choose,
    Measure,
    Outcome,
    cell,
    decided,
    known,
    nothing,
    played,
    sound,
)
from tests.examples import ERA, STARTED_AT, UPGRADED


def faulty(when: Callable[[Measure, int], bool], plan: Plan = PLAN, stage: Stage = Stage.BOOT) -> Outcome:
    """Trials of which some panic at a stage; each arm has a value of its own."""

    def outcome(measure: Measure, n: int) -> Trial:
        made = sound(plan, lambda arm: 1_000.0 + arm)(measure, n)
        return replace(made, fault=replace(fakes.PANIC, stage=stage), runs=()) if when(measure, n) else made

    return outcome


def busy(when: Callable[[Measure, int], bool]) -> Outcome:
    """Trials of which some are on a busy host."""
    return lambda measure, n: planted.trial(cell(PLAN, measure.block, measure.arm), 1_000.0, busy=when(measure, n))


def test_each_block_measures_every_arm_once_in_rounds() -> None:
    blocks, done = played(nothing(), sound(PLAN))
    assert done == Done(State.MEASURED, "2 blocks on each setup")
    assert [(one.n, one.setup, one.round) for one in blocks.blocks] == [(1, 0, 1), (2, 1, 1), (3, 0, 2), (4, 1, 2)]
    assert all(sorted(one.arms) == [0, 1, 2] for one in blocks.blocks)
    order = [(one.place.block, one.place.arm) for one in blocks.placed]
    assert order == [(block.n, arm) for block in blocks.blocks for arm in block.arms]


def test_orders_and_seeds_follow_from_the_seed_and_differ_between_blocks() -> None:
    plan = replace(PLAN, setups=SETUPS[1:], extent=Extent(7, 24))
    (first, _), (second, _) = (played(nothing(plan), sound(plan)) for _ in range(2))
    assert first.blocks == second.blocks
    assert len({block.seed for block in first.blocks}) == 24
    orders = Counter(block.arms for block in first.blocks)
    assert len(orders) == 6
    assert max(orders.values()) <= 8
    other, _ = played(nothing(replace(plan, extent=Extent(8, 24))), sound(plan))
    assert [block.arms for block in other.blocks] != [block.arms for block in first.blocks]


def test_both_orders_are_drawn_as_often() -> None:
    orders = [drawn(seed, n, (0, 1))[0] for seed in range(500) for n in range(1, 7)]
    assert 0.46 <= orders.count((0, 1)) / len(orders) <= 0.54


def test_one_commit_under_two_names_is_built_once() -> None:
    plan = replace(PLAN, arms=(ARMS[0], replace(ARMS[0], name="v6.1 (again)")))
    assert isinstance(decided(known(replace(nothing(plan), build_tries=BUILT[:1]))), Begin)


def test_a_single_compiler_is_on_record_once_it_leaves_something_to_compare() -> None:
    """Until then another one that is installed may make all kernels."""
    plan = replace(PLAN, arms=ARMS[:2])
    failed = BuildTry(fakes.GCC, ARMS[1].commit.sha, "no")
    alone = known(Blocks(plan, build_tries=BUILT[:1]), installed=(fakes.GCC,))
    assert decided(alone) == Build(1, fakes.GCC)
    with pytest.raises(UserError, match=r"v6\.2: does not build: no"):
        decided(replace(alone, blocks=replace(alone.blocks, build_tries=(BUILT[0], failed))))
    assert decided(replace(alone, blocks=replace(alone.blocks, build_tries=BUILT))) == Choose((fakes.GCC,))


def test_a_setup_goes_on_until_each_arm_has_its_blocks() -> None:
    """One that did not build at first has missed some; those that have it count for it."""
    plan = replace(PLAN, setups=SETUPS[1:])
    failed = BuildTry(fakes.GCC, ARMS[1].commit.sha, "no header")
    before, _ = played(replace(nothing(plan), build_tries=(BUILT[0], failed, BUILT[2])), sound(plan))
    again = replace(before, earlier=before.so_far)
    assert decided(known(again)) == Build(1, fakes.GCC)
    after_all, done = played(replace(again, build_tries=(*before.build_tries, BUILT[1])), sound(plan))
    assert done == Done(State.MEASURED, "4 blocks on each setup")
    assert [len(after_all.pairs(0, arm)) for arm in (1, 2)] == [2, 4]
    assert [block.round for block in after_all.blocks] == [1, 2, 3, 4]


def test_a_kernel_that_could_be_compared_with_nothing_is_not_built() -> None:
    """The first arm is on one setup alone, and another one on the other alone."""
    plan = replace(PLAN, absent=(Absent(0, 0, "needs CONFIG_MD"), Absent(1, 1, "needs CONFIG_BCACHE")))
    assert decided(known(replace(nothing(plan), build_tries=BUILT[:1]))) == Build(2, fakes.GCC)


def test_a_cell_that_a_tree_cannot_have_is_not_measured() -> None:
    plan = replace(PLAN, absent=(Absent(0, 2, "needs CONFIG_DM_CACHE"),))
    blocks, _ = played(nothing(plan), sound(plan))
    measured = {(block.setup, arm) for block in blocks.blocks for arm in block.arms}
    assert measured == {(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)}


def test_a_kernel_that_is_measured_nowhere_is_not_built() -> None:
    plan = replace(PLAN, absent=(Absent(0, 1, "no"), Absent(1, 1, "no")))
    assert decided(known(replace(nothing(plan), build_tries=BUILT[:1]))) == Build(2, fakes.GCC)
    untried = known(Blocks(plan, build_tries=BUILT[:1]), installed=(fakes.GCC, fakes.OLD_GCC))
    assert decided(untried) == Build(2, fakes.GCC)


def test_a_setup_without_its_first_arm_is_left_out() -> None:
    plan = replace(PLAN, absent=(Absent(0, 0, "needs CONFIG_DM_CACHE"),))
    blocks, done = played(nothing(plan), sound(plan))
    assert {block.setup for block in blocks.blocks} == {1}
    assert done == Done(State.MEASURED, "2 blocks on hdd+ext4; n/a: lvmcache(ssd,hdd)+ext4")


def test_a_setup_that_is_lost_on_the_way_is_not_said_to_have_all_its_blocks() -> None:
    """The first kernel panics on one stack, from its third block on."""
    plan = replace(PLAN, extent=Extent(7, 4))

    def panics(measure: Measure, _: int) -> bool:
        return measure.arm == 0 and measure.block.setup == 0 and measure.block.round > 2

    _, done = played(nothing(plan), faulty(panics, plan, Stage.STORAGE))
    assert done == Done(State.MEASURED, "4 blocks on hdd+ext4; n/a: lvmcache(ssd,hdd)+ext4 (after 2 blocks)")


def test_a_comparison_of_which_nothing_is_left_is_not_measured_and_says_why() -> None:
    plan = replace(PLAN, arms=ARMS[:2], absent=(Absent(1, 1, "needs CONFIG_MD"),))
    with pytest.raises(
        UserError, match=r"^nothing can be compared: v6\.1: panic: .* test; v6\.2 on .*: needs CONFIG_MD"
    ):
        played(nothing(plan), faulty(lambda measure, _: measure.arm == 0, plan))
    failed = BuildTry(fakes.GCC, ARMS[0].commit.sha, "no gelf.h")
    with pytest.raises(UserError, match=r"v6\.1: does not build: no gelf\.h"):
        decided(known(replace(nothing(plan), build_tries=(failed, *BUILT[1:]))))


def test_a_weak_trial_voids_its_block_and_another_one_takes_its_place() -> None:
    blocks, _ = played(nothing(), busy(lambda _, n: n == 2))
    void, instead = blocks.blocks[:2]
    assert (blocks.state(void), blocks.count(BlockState.WEAK)) == (BlockState.WEAK, 1)
    assert blocks.why(void).startswith(f"{ARMS[void.arms[1]].name}: ")
    assert blocks.left(void) == void.arms[2:]  # nothing more was measured in it
    assert (instead.setup, instead.round) == (void.setup, void.round)
    assert instead.seed != void.seed
    assert tries_again(blocks, instead)
    assert not tries_again(blocks, blocks.blocks[2])
    assert [len(blocks.counted(setup)) for setup in (0, 1)] == [2, 2]
    assert void.n not in {block.n for block in blocks.counted(0)}
    assert len(blocks.values(0)) == 2


def test_a_block_of_two_hosts_does_not_count() -> None:
    """A run directory may be taken to another machine in the middle of a block."""

    def outcome(measure: Measure, n: int) -> Trial:
        return replace(planted.trial(cell(PLAN, measure.block, measure.arm), 1_000.0), host="one" if n < 3 else "other")

    blocks, _ = played(nothing(), outcome)
    assert blocks.state(blocks.blocks[0]) is BlockState.WEAK
    assert blocks.why(blocks.blocks[0]) == "measured on one and other, whose figures cannot be compared"
    assert blocks.count(BlockState.DONE) == 4


def test_a_block_in_which_the_cores_had_two_speeds_does_not_count() -> None:
    """They stay at the second one: the blocks after it count."""

    def outcome(measure: Measure, n: int) -> Trial:
        made = planted.trial(cell(PLAN, measure.block, measure.arm), 1_000.0)
        seen = fakes.at_speed(400.0 if n < 3 else 200.0)
        return replace(made, runs=tuple(replace(run, contention=seen) for run in made.runs))

    blocks, _ = played(nothing(), outcome)
    assert blocks.state(blocks.blocks[0]) is BlockState.WEAK
    arm = PLAN.arms[blocks.blocks[0].arms[2]].name
    said = "the host's cores ran at 50% of the speed they had in the first trial of the block"
    assert blocks.why(blocks.blocks[0]) == f"{arm}: {said}"
    assert blocks.count(BlockState.DONE) == 4


def test_no_two_blocks_that_count_are_of_one_round() -> None:
    """Another version of the tool may take an earlier block for weak: the later ones keep their rounds."""
    blocks, _ = played(nothing(plan := replace(PLAN, setups=SETUPS[1:])), sound(plan))
    first, *rest = blocks.placed
    weak = replace(first, trial=planted.trial(cell(plan, blocks.blocks[0], first.place.arm), 1.0, busy=True))
    again, _ = played(replace(blocks, placed=(weak, *rest)), sound(plan))
    assert [block.round for block in again.counted(0)] == [2, 1]


def test_a_panic_is_believed_when_it_is_seen_again() -> None:
    def panics(measure: Measure, _: int) -> bool:
        return measure.arm == 1 and measure.block.setup == 0

    blocks, done = played(nothing(), faulty(panics, stage=Stage.STORAGE))
    assert done == Done(State.MEASURED, "2 blocks on each setup")
    assert [blocks.state(one) for one in blocks.of_setup(0)] == [BlockState.FAILED] * 2 + [BlockState.DONE] * 2
    assert (blocks.absent(0, 1), blocks.absent(1, 1)) == ("panic: Kernel panic - not syncing: test", "")
    assert all(1 not in block.arms for block in blocks.counted(0))


def test_a_kernel_that_does_not_boot_is_tried_on_no_other_stack() -> None:
    blocks, _ = played(nothing(), faulty(lambda measure, _: measure.arm == 1))
    assert sum(one.place.arm == 1 for one in blocks.placed) == 2
    assert blocks.absent(0, 1) == blocks.absent(1, 1) != ""


@pytest.mark.parametrize(("where", "believed"), [("one", True), ("odd", False)])
def test_what_works_on_one_host_and_never_on_another_is_no_kernels_doing(where: str, believed: bool) -> None:
    begun = tuple(Block(n, 0, n, 1, (0, 1, 2)) for n in (1, 2, 3))
    plan = replace(PLAN, setups=SETUPS[:1])
    placed, fault = list[Placed](), replace(fakes.PANIC, stage=Stage.STORAGE)
    for block in begun:
        for arm in (0, 1):
            made = planted.trial(cell(plan, block, arm), 1_000.0)
            panics = block.n > 1 and arm == 1
            made = replace(made, host="one" if block.n == 1 else where, fault=fault if panics else None)
            placed.append(Placed(len(placed) + 1, Place(block.n, arm), made))
    blocks = replace(nothing(plan), blocks=begun, placed=tuple(placed))
    assert bool(blocks.absent(0, 1)) is believed
    assert blocks.works_on_another_host(begun[1]) is not believed


def test_one_panic_says_nothing() -> None:
    blocks, _ = played(nothing(), faulty(lambda _, n: n in (2, 9)))
    assert [blocks.absent(setup, arm) for setup in (0, 1) for arm in range(3)] == [""] * 6
    assert blocks.count(BlockState.FAILED) == 2


def test_a_boot_on_another_stack_is_between_two_panics() -> None:
    """They are not in a row, though one stack has seen nothing else."""
    cells = tuple(Cell(ARMS[1].subject, one.setup) for one in SETUPS)
    panics = [replace(planted.trial(one, 1.0), fault=fakes.PANIC, runs=()) for one in cells]
    begun = tuple(Block(n, setup, 1, 1, (1, 0, 2)) for n, setup in enumerate((0, 1, 1), 1))
    trials = panics[0], planted.trial(cells[1], 1_000.0), panics[1]
    placed = tuple(Placed(n, Place(n, 1), one) for n, one in enumerate(trials, 1))
    blocks = replace(nothing(), blocks=begun, placed=placed)
    assert [blocks.absent(setup, 1) for setup in (0, 1)] == ["", ""]
    other = planted.trial(Cell(ARMS[0].subject, SETUPS[1].setup), 1_000.0)
    again = Placed(4, Place(4, 0), other), Placed(5, Place(4, 1), panics[1])
    twice = replace(blocks, blocks=(*begun, Block(4, 1, 1, 1, (0, 1, 2))), placed=(*placed, *again))
    assert all(twice.absent(setup, 1) for setup in (0, 1))


def test_faults_of_every_kernel_are_no_kernels_doing() -> None:
    """A host on which no guest boots leaves no cell n/a: the setups are given up, and can be gone on with."""
    blocks, done = played(nothing(), faulty(lambda *_: True))
    assert [blocks.absent(setup, arm) for setup in (0, 1) for arm in range(3)] == [""] * 6
    assert len(done.given_up) == 2
    assert "no sound block in 10" in done.given_up[0]


@pytest.mark.parametrize("forgiven", [0, 2])
def test_a_setup_is_given_up_when_no_block_is_sound(forgiven: int) -> None:
    begun = replace(nothing(), earlier=Earlier(blocks=forgiven))
    blocks, done = played(begun, busy(lambda measure, _: measure.block.setup == 0))
    (why,) = done.given_up
    assert why.startswith("fio(partial.fio) on lvmcache(ssd,hdd)+ext4: no sound block in 4: ")
    of_before = sum(block.n <= forgiven for block in blocks.of_setup(0))
    assert len(blocks.of_setup(0)) == 4 + of_before
    assert len(blocks.counted(1)) == 2


def test_schedule_and_result_have_the_same_intervals() -> None:
    plan = replace(PLAN, arms=ARMS[:2], setups=SETUPS[1:], extent=Extent(7, 6, until=0.05))
    blocks, _ = played(
        nothing(plan), lambda measure, n: planted.trial(cell(plan, measure.block, measure.arm), 1000.0 + n % 7)
    )
    (row,) = result_of(blocks).rows
    assert (row.changes[0].effect,) == effects(blocks, 0)


def test_values_and_pairs_are_those_of_blocks_that_count() -> None:
    blocks, _ = played(nothing(), sound(PLAN, lambda arm: 1_000.0 + arm))
    assert blocks.values(0) == ({0: 1_000.0, 1: 1_001.0, 2: 1_002.0},) * 2
    assert blocks.pairs(1, 2) == ((1_000.0, 1_002.0),) * 2


def test_an_arm_that_is_lost_keeps_its_values() -> None:
    """Its kernel panics from the fourth block on, and those before it count."""
    plan = replace(PLAN, setups=SETUPS[1:], extent=Extent(7, 5))
    blocks, _ = played(nothing(plan), faulty(lambda one, _: one.arm == 1 and one.block.n > 3, plan))
    (row,) = result_of(blocks).rows
    assert [len(side.figures) for side in row.sides] == [5, 3, 5]
    assert row.sides[1].absent == "after block 3: panic: Kernel panic - not syncing: test"
    assert [change.effect and change.effect.blocks for change in row.changes] == [3, 5]


def later(trial: Trial, seconds: float, **more: object) -> Trial:
    began = datetime.fromisoformat(STARTED_AT) + timedelta(seconds=seconds)
    return replace(trial, started_at=began.isoformat(timespec="seconds"), **more)  # type: ignore[arg-type] # its own fields


@pytest.mark.parametrize(
    ("seconds", "more", "processes", "why"),
    [
        (60.0, {}, {1: (1, 1), 2: (1, 2)}, ""),
        (121.0, {}, {}, ""),
        (122.0, {}, {}, "1 min 2 s passed, and its longest trial took 1 min"),
        (3 * 86_400.0, {}, {}, "3 d passed, and its longest trial took 1 min"),
        (60.0, {}, {1: (1, 1), 2: (2, 2)}, "its process ended"),
        (60.0, {"era": replace(ERA, boot="b2")}, {}, "the host was booted anew"),
        (60.0, {"era": UPGRADED}, {}, "the host changed: QEMU 7.2.22 → 7.2.23"),
    ],
)
def test_a_block_that_was_interrupted_is_begun_anew(
    seconds: float, more: dict[str, object], processes: dict[int, tuple[int, int]], why: str
) -> None:
    plan = replace(PLAN, setups=SETUPS[1:], arms=ARMS[:2], extent=Extent(7, 1))

    def outcome(measure: Measure, n: int) -> Trial:
        trial = replace(sound(plan)(measure, n), era=ERA)
        return later(trial, seconds + 60 * n, **more) if n > 1 else later(trial, 120.0)

    blocks, done = played(nothing(plan), outcome)
    first, *others = blocks.blocks
    assert done == Done(State.MEASURED, "1 block on each setup")
    blocks = replace(blocks, processes=processes)
    state = BlockState.INTERRUPTED if why else BlockState.DONE
    assert (blocks.state(first), blocks.why(first)) == (state, why and f"interrupted after trial 1: {why}")
    anew = [(BlockState.DONE, first.round)] if why and not processes else []
    assert [(blocks.state(one), one.round) for one in others] == anew


def test_of_a_block_that_an_earlier_process_left_open_nothing_more_is_measured() -> None:
    plan = replace(PLAN, setups=SETUPS[1:], extent=Extent(7, 1))
    begun = replace(nothing(plan), blocks=(Block(1, 0, 1, 5, (2, 0, 1)),), process=2)
    assert decided(known(begun)) == Measure(begun.blocks[0], 2)
    one = Placed(1, Place(1, 2), planted.trial(cell(plan, begun.blocks[0], 2), 1_000.0))
    assert decided(known(replace(begun, placed=(one,), processes={1: (1, 2)}))) == Measure(begun.blocks[0], 0)
    left = replace(begun, placed=(one,), processes={1: (1, 1)})
    assert isinstance(decided(known(left)), Begin)
    assert left.state(left.blocks[0]) is BlockState.INTERRUPTED
    assert replace(left, under_way=frozenset((1,))).state(left.blocks[0]) is BlockState.OPEN
