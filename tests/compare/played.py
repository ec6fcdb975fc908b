"""A comparison that is planned, and played to its end by what a trial of each kernel gives."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bisector.campaign.instructions import Done, Notify, Record, Submit, Transient, Wait
from bisector.compare.schedule import CompareState, step
from bisector.config import Settings, options
from bisector.core.subject import Cell, Compiler, Subject
from bisector.core.trial import Trial
from bisector.executor.base import BuildRequest
from bisector.status.blocks import Blocks
from bisector.store.facts import Arm, Block, BuildTry, Compilers, Extent, Place, Placed, Plan
from tests import fakes
from tests.compare import planted
from tests.examples import commit


def on(stack: str, fill_deadline: str = "41s") -> Settings:
    """A setup; by default its cache may take one run to fill, so that a first block is thought as long as others."""
    flags = {"storage.stack": stack, "storage.fill_deadline": fill_deadline}
    return options.load(flags, directory=Path("/")).settings


SETUPS = tuple(map(on, ("lvmcache", "hdd")))
ARMS = tuple(Arm(name, Subject(commit(n))) for n, name in enumerate(("v6.1", "v6.2", "v6.3")))
PLAN = Plan(ARMS, SETUPS, Extent(7, 2))
MORE = Arm("v6.1 + hz.config", Subject(commit(0), fragment="e" * 64), Path("/run/inputs/hz.config"))
BUILT = tuple(BuildTry(fakes.GCC, arm.commit.sha, "") for arm in ARMS)


@dataclass(frozen=True)
class Begin:
    """A new block is put on record."""

    block: Block


@dataclass(frozen=True)
class Choose:
    """What every kernel is built with is put on record."""

    compilers: tuple[Compiler, ...]


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


Decided = Begin | Choose | Build | Measure | Done | Wait


def known(blocks: Blocks, spent_s: float = 0.0, **more: Any) -> CompareState:
    """What the schedule knows where one host has nothing to do, and people were told of all trials."""
    told = frozenset(f"trial {one.n}" for one in blocks.placed)
    return CompareState(blocks, Transient(idle=("",), notified=told), spent_s=spent_s, **more)


def decided(state: CompareState) -> Decided:
    """What comes next of what is known, in terms of the plan."""
    blocks, told = state.blocks, frozenset(f"trial {one.n}" for one in state.blocks.placed)
    state = replace(state, transient=replace(state.transient, notified=state.transient.notified | told))
    match step(state):
        case Notify(keys=keys):
            notified = state.transient.notified | {*keys}
            return decided(replace(state, transient=replace(state.transient, notified=notified)))
        case Record(facts=(Block() as block,)):
            return Begin(block)
        case Record(facts=(Compilers(compilers=compilers),)):
            return Choose(compilers)
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
            case Begin(block=block):
                blocks = replace(blocks, blocks=(*blocks.blocks, block))
            case Measure() as measure:
                blocks = after(blocks, measure, outcome(measure, len(blocks.placed) + 1))
            case Build() | Choose() | Wait() as early:
                raise AssertionError(early)
            case Done() as done:
                return blocks, done
