"""A process may die before and after each fact of a comparison: the next one comes to the same, and repeats nothing."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from bisector.campaign.equipment import Equipment
from bisector.campaign.instructions import Done
from bisector.compare.plan import CompareRequest, planned
from bisector.compare.session import carry_out
from bisector.core.verdict import State
from bisector.git.repository import Repository
from bisector.status.blocks import Blocks, BlockState
from bisector.store.facts import (
    Block,
    BuildTry,
    Compilers,
    Ended,
    Extent,
    Fact,
    InfraFault,
    NumberedTrial,
    Placed,
    Plan,
    RunHeader,
    Submitted,
)
from tests import fakes
from tests.compare import planted
from tests.compare.desk import settings
from tests.git import histories
from tests.mortal import Mortal, moments

TIMES = 65


@dataclass(frozen=True)
class World:
    """What is compared, and what a run that nobody killed came to."""

    plan: Plan
    shas: dict[str, str]
    row: RunHeader
    done: Done
    requests: int
    added: list[tuple[type[Fact], ...]]
    blocks: tuple[Block, ...]
    placed: tuple[Placed, ...]


def bench(shas: dict[str, str]) -> planted.Bench:
    """The first compiler does not build an arm, hosts are busy, a network goes away, and a kernel panics once."""
    return planted.Bench(
        value=planted.by_name(shas, {"c0": 1_000.0, "c2": 1_200.0}),
        installed=(fakes.GCC, fakes.OLD_GCC),
        does_not_build={("gcc", shas["c2"]): fakes.BUILD_ERROR},
        infra_n={3: 1},
        busy_n=frozenset((4,)),
        panics_n=frozenset((7,)),
    )


def life(
    plan: Plan,
    row: RunHeader,
    path: Path,
    executor: planted.Bench,
    dies_at: int | None = None,
    *,
    before: bool = True,
) -> tuple[Done, list[tuple[type[Fact], ...]]]:
    """One process's life to the end, with the facts that it added; or to its death."""
    with Mortal.open(path) if path.exists() else Mortal.create(path, row, plan=plan) as store:
        store.log.connection.execute("PRAGMA synchronous = OFF")  # nobody pulls the plug
        store.added, store.dies_at = [], None
        store.set_state(State.RUNNING)
        store.added, store.dies_at, store.before = [], dies_at, before
        equipment = Equipment(executor, None)  # type: ignore[arg-type] # no comparison asks for kin
        return carry_out(plan, store, equipment, lambda event: None), store.added


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    place = tmp_path_factory.mktemp("world")
    shas = histories.build(place / "linux", histories.linear(3))
    (place / "hz.config").write_text("CONFIG_DM_CACHE_SMQ=y\n")
    setups, own = (settings("lvmcache"), settings("hdd")), (str(place / "hz.config"),)
    asked = CompareRequest(place / "linux", (shas["c0"], shas["c2"]), setups, Extent(7, 2), placebo=True, fragments=own)
    repository = Repository.open(place / "linux")
    plan = planned(repository, asked)
    row = RunHeader.of(plan.setups[0], place / "linux")
    executor = bench(shas)
    done, added = life(plan, row, place / "unbroken.sqlite", executor)
    with Mortal.open(place / "unbroken.sqlite") as store:
        return World(plan, shas, row, done, len(executor.requests), added, store.facts(Block), store.placed())


def test_the_unbroken_run_has_every_kind_of_fact(world: World) -> None:
    kinds = {kind for facts in world.added for kind in facts}
    assert kinds == {Submitted, Ended, NumberedTrial, Block, BuildTry, Compilers, InfraFault}
    assert len(world.added) == TIMES
    blocks = Blocks(world.plan, world.blocks, world.placed)
    assert [blocks.count(state) for state in BlockState] == [0, 4, 1, 1, 0]


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("dies_at", moments(TIMES))
def test_killed_at_any_fact_it_comes_to_the_same(world: World, tmp_path: Path, dies_at: int, before: bool) -> None:
    path, executor = tmp_path / "record.sqlite", bench(world.shas)
    with pytest.raises(fakes.Killed):
        life(world.plan, world.row, path, executor, dies_at, before=before)
    executor.jobs.clear()  # what it had in flight is gone with it
    done, _ = life(world.plan, world.row, path, executor)
    assert done == world.done
    with Mortal.open(path) as store:
        blocks = Blocks.of(world.plan, store)
        assert store.in_flight() == ()
    assert [len(blocks.counted(setup)) for setup in (0, 1)] == [2, 2]
    # What was measured and not on record yet is measured again, and the block that was under way; nothing else.
    void = [block for block in blocks.blocks if blocks.state(block) is BlockState.INTERRUPTED]
    assert len(void) <= 1
    lost = int(before and NumberedTrial in world.added[dies_at - 1])
    assert len(executor.requests) - world.requests <= lost + sum(len(blocks.trials(block)) for block in void)


GIVEN_UP_TIMES = 27


def hopeless(shas: dict[str, str]) -> planted.Bench:
    """One kernel panics each time, and another one does not build."""
    return planted.Bench(
        value=planted.by_name(shas, {"c0": 1_000.0, "c3": 1_200.0}),
        does_not_build={("gcc", shas["c2"]): fakes.BUILD_ERROR},
        faults={shas["c1"]: fakes.PANIC},
    )


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, dict[str, str], RunHeader]:
    place = tmp_path_factory.mktemp("without")
    shas = histories.build(place / "linux", histories.linear(4))
    asked = CompareRequest(place / "linux", tuple(shas[f"c{n}"] for n in range(4)), (settings("hdd"),), Extent(7, 2))
    repository = Repository.open(place / "linux")
    plan = planned(repository, asked)
    row = RunHeader.of(plan.setups[0], place / "linux")
    _, added = life(plan, row, place / "unbroken.sqlite", hopeless(shas))
    assert len(added) == GIVEN_UP_TIMES
    return plan, shas, row


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("dies_at", moments(GIVEN_UP_TIMES))
def test_what_was_given_up_is_tried_once_more_by_the_next_process_and_no_oftener(
    without: tuple[Plan, dict[str, str], RunHeader], tmp_path: Path, dies_at: int, before: bool
) -> None:
    plan, shas, row = without
    path, executor = tmp_path / "record.sqlite", hopeless(shas)
    with pytest.raises(fakes.Killed):
        life(plan, row, path, executor, dies_at, before=before)
    executor.jobs.clear()
    done, _ = life(plan, row, path, executor)
    assert done == Done(State.MEASURED, "2 blocks on each setup")
    with Mortal.open(path) as store:
        blocks = Blocks.of(plan, store)
        assert [sorted(block.arms) for block in blocks.counted(0)] == [[0, 3]] * 2
        assert [bool(blocks.absent(0, arm)) for arm in range(4)] == [False, True, True, False]
        assert blocks.count(BlockState.OPEN) == 0
        assert [one.place.arm for one in blocks.placed].count(1) <= 3
        assert [one.sha for one in store.facts(BuildTry)].count(shas["c2"]) <= 2
        assert store.in_flight() == ()
