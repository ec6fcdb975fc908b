"""What a comparison measures next, and how much in all, follows from its record alone; it is played to its end."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bisector.analysis.comparison import ALPHA, LOOKED_ALPHA
from bisector.campaign.instructions import Done, Notify, Record, Submit, Transient, Wait
from bisector.compare.schedule import CompareState, drawn, step, tries_again
from bisector.config import Settings, options
from bisector.core.errors import UserError
from bisector.core.subject import Cell, Compiler, Subject
from bisector.core.trial import Stage, Trial
from bisector.core.verdict import State
from bisector.executor.base import BuildRequest
from bisector.status.blocks import Blocks, BlockState, Earlier, block_s, effects, left_s, result_of
from bisector.store.facts import Absent, Arm, Block, Budget, BuildTry, Compilers, Extent, Place, Placed, Plan
from tests import fakes
from tests.compare import planted
from tests.examples import ERA, STARTED_AT, UPGRADED, commit


def on(stack: str, fill_deadline: str = "41s") -> Settings:
    """A setup; by default its cache may take one run to fill, so that a first block is thought as long as others."""
    flags = {"storage.stack": stack, "storage.fill_deadline": fill_deadline}
    return options.load(flags, directory=Path("/")).settings


SETUPS = tuple(map(on, ("lvmcache", "hdd")))
ARMS = tuple(Arm(name, Subject(commit(n))) for n, name in enumerate(("v6.1", "v6.2", "v6.3")))
PLAN = Plan(ARMS, SETUPS, Extent(7, 2))
BUILT = tuple(BuildTry(fakes.GCC, arm.commit.sha, "") for arm in ARMS)


@dataclass(frozen=True)
class Build:
    """The kernel of the first arm with these sources and options is built."""

    arm: int
    compiler: Compiler


@dataclass(frozen=True)
class Measure:
    """An arm of a block is measured."""

    block: Block
    arm: int


Decided = Block | Compilers | Build | Measure | Done | Wait


def known(blocks: Blocks, spent_s: float = 0.0, **more: Any) -> CompareState:
    """What the schedule knows where one host has nothing to do."""
    return CompareState(blocks, Transient(idle=("",)), spent_s=spent_s, **more)


def decided(state: CompareState) -> Decided:
    """What comes next, once people were told of all trials: what is put on record, built or measured."""
    blocks, told = state.blocks, frozenset(f"trial {one.n}" for one in state.blocks.placed)
    state = replace(state, transient=replace(state.transient, notified=state.transient.notified | told))
    match step(state):
        case Notify(keys=keys):
            notified = state.transient.notified | {*keys}
            return decided(replace(state, transient=replace(state.transient, notified=notified)))
        case Record(facts=(Block() | Compilers() as fact,)):
            return fact
        case Submit(place=Place(block=n, arm=arm)):
            return Measure(next(one for one in blocks.blocks if one.n == n), arm)
        case Submit(request=BuildRequest(commit=commit, compiler=compiler, fragment=fragment)):
            built = [one.subject.built_of for one in blocks.plan.arms]
            return Build(built.index((commit.sha, fragment)), compiler)
        case Done() | Wait() as found:
            return found
        case found:
            raise AssertionError(found)


Outcome = Callable[[Measure, int], Trial]


def nothing(plan: Plan = PLAN) -> Blocks:
    return Blocks(plan, compilers=(fakes.GCC,), build_tries=BUILT)


def cell(plan: Plan, block: Block, arm: int) -> Cell:
    return Cell(plan.arms[arm].subject, plan.setups[block.setup].setup)


def sound(plan: Plan, value: Callable[[int], float] = lambda arm: 1_000.0) -> Outcome:
    return lambda measure, _: planted.trial(cell(plan, measure.block, measure.arm), value(measure.arm))


def after(blocks: Blocks, measure: Measure, trial: Trial) -> Blocks:
    n = len(blocks.placed) + 1
    return replace(blocks, placed=(*blocks.placed, Placed(n, Place(measure.block.n, measure.arm), trial)))


def played(blocks: Blocks, outcome: Outcome, *, spent_s: float = 0.0) -> tuple[Blocks, Done]:
    """Everything that is measured until there is nothing left."""
    while True:
        spent = spent_s + sum(one.trial.timings.total_s for one in blocks.placed)
        match decided(known(blocks, spent)):
            case Block() as block:
                blocks = replace(blocks, blocks=(*blocks.blocks, block))
            case Measure() as measure:
                blocks = after(blocks, measure, outcome(measure, len(blocks.placed) + 1))
            case Build() | Compilers() | Wait() as early:
                raise AssertionError(early)
            case Done() as done:
                return blocks, done


def faulty(when: Callable[[Measure, int], bool], plan: Plan = PLAN, stage: Stage = Stage.BOOT) -> Outcome:
    """Trials of which some panic at a stage; each arm has a value of its own."""

    def outcome(measure: Measure, n: int) -> Trial:
        made = sound(plan, lambda arm: 1_000.0 + arm)(measure, n)
        return replace(made, fault=replace(fakes.PANIC, stage=stage), runs=()) if when(measure, n) else made

    return outcome


def busy(when: Callable[[Measure, int], bool]) -> Outcome:
    """Trials of which some are on a busy host."""
    return lambda measure, n: planted.trial(cell(PLAN, measure.block, measure.arm), 1_000.0, busy=when(measure, n))


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


def test_a_single_compiler_is_on_record_once_it_leaves_something_to_compare() -> None:
    """Until then another one that is installed may make all kernels."""
    plan = replace(PLAN, arms=ARMS[:2])
    failed = BuildTry(fakes.GCC, ARMS[1].commit.sha, "no")
    alone = known(Blocks(plan, build_tries=BUILT[:1]), installed=(fakes.GCC,))
    assert decided(alone) == Build(1, fakes.GCC)
    with pytest.raises(UserError, match=r"v6\.2: does not build: no"):
        decided(replace(alone, blocks=replace(alone.blocks, build_tries=(BUILT[0], failed))))
    assert decided(replace(alone, blocks=replace(alone.blocks, build_tries=BUILT))) == Compilers((fakes.GCC,))


@pytest.mark.parametrize(
    "absent",
    [(Absent(0, 1, "no"), Absent(1, 1, "no")), (Absent(0, 0, "needs CONFIG_MD"), Absent(1, 1, "needs CONFIG_BCACHE"))],
    ids=["measured nowhere", "compared with nothing: the first arm is on one setup alone, this one on the other"],
)
def test_a_kernel_that_is_of_no_use_is_not_built(absent: tuple[Absent, ...]) -> None:
    plan = replace(PLAN, absent=absent)
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
    assert isinstance(decided(known(left)), Block)
    assert left.state(left.blocks[0]) is BlockState.INTERRUPTED
    assert replace(left, under_way=frozenset((1,))).state(left.blocks[0]) is BlockState.OPEN


# How many blocks there are: by the budget, or by how narrow the intervals are


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
    assert isinstance(decided(more), Block)
    assert isinstance(decided(replace(more, spent_s=spent_s + 220.0)), Block)  # a block takes 180 s
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
