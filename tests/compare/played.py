"""A comparison that is planned, and played to its end by what a trial of each kernel gives."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bisector.compare.schedule import (
    Begin,
    Build,
    Choose,
    Done,
    Facts,
    Measure,
    step,
)
from bisector.config import options
from bisector.core.subject import Cell, Subject
from bisector.core.trial import Trial
from bisector.status.blocks import Blocks
from bisector.store.comparison import Arm, Block, Extent, Placed, Plan, PlannedSetup
from bisector.store.facts import BuildTry
from tests import fakes
from tests.compare import planted
from tests.examples import commit


def on(stack: str, fill_deadline: str = "41s") -> PlannedSetup:
    """A setup; by default its cache may take one run to fill, so that a first block is thought as long as others."""
    flags = {"storage.stack": stack, "storage.fill_deadline": fill_deadline}
    return PlannedSetup(options.load(flags, directory=Path("/")).settings)


SETUPS = tuple(map(on, ("lvmcache", "hdd")))
ARMS = tuple(Arm(name, Subject(commit(n))) for n, name in enumerate(("v6.1", "v6.2", "v6.3")))
PLAN = Plan(ARMS, SETUPS, Extent(7, 2))
MORE = Arm("v6.1 + hz.config", Subject(commit(0), fragment="e" * 64), Path("/run/inputs/hz.config"))
BUILT = tuple(BuildTry(fakes.GCC, arm.commit.sha, "") for arm in ARMS)

Outcome = Callable[[Measure, int], Trial]


def nothing(plan: Plan = PLAN) -> Blocks:
    return Blocks(plan, compilers=(fakes.GCC,), build_tries=BUILT)


def cell(plan: Plan, block: Block, arm: int) -> Cell:
    return Cell(plan.arms[arm].subject, plan.setups[block.setup].setup)


def sound(plan: Plan, value: Callable[[int], float] = lambda arm: 1_000.0) -> Outcome:
    return lambda measure, _: planted.trial(cell(plan, measure.block, measure.arm), value(measure.arm))


def after(blocks: Blocks, measure: Measure, trial: Trial) -> Blocks:
    n = len(blocks.placed) + 1
    return replace(blocks, placed=(*blocks.placed, Placed(n, measure.place, trial)))


def played(blocks: Blocks, outcome: Outcome, *, spent_s: float = 0.0) -> tuple[Blocks, Done]:
    """Everything that is measured until there is nothing left."""
    while True:
        spent = spent_s + sum(one.trial.timings.total_s for one in blocks.placed)
        match step(Facts(blocks, spent)):
            case Begin(block=block):
                blocks = replace(blocks, blocks=(*blocks.blocks, block))
            case Measure() as measure:
                blocks = after(blocks, measure, outcome(measure, len(blocks.placed) + 1))
            case Build() | Choose() as early:
                raise AssertionError(early)
            case Done() as done:
                return blocks, done
