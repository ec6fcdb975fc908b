"""A comparison in a few lines: what decides on each setup, and how the run stands."""

import math
from collections.abc import Iterator
from pathlib import Path

from bisector.core import units
from bisector.core.verdict import State
from bisector.report.as_text import block_lines
from bisector.report.comparison_table import deciding_tables
from bisector.status.blocks import Blocks, BlockState, result_of
from bisector.status.from_record import resume_command
from bisector.status.progress import comparable, left_s
from bisector.store.comparison import Plan
from bisector.store.rundir import RunDirectory, state_of
from bisector.store.store import Store

_SPARE = 1.1  # a block that takes a little longer than those before is to have its time, too


def whole(run: RunDirectory, store: Store, plan: Plan) -> Iterator[str]:
    """The tables of the figures that decide, what is to be known beside them, and how the run stands."""
    blocks = Blocks.of(plan, store)
    yield from measured(blocks)
    state, message = state_of(run, store)
    yield f"{state}{f': {message}' if message else ''}"
    if state is State.MEASURED and blocks.unbuilt:
        yield f"{', '.join(blocks.unbuilt)} did not build; resume tries it again"
    if state is State.MEASURED and (takes_s := left_s(blocks)):  # it ended by its budget
        about = "about" if plan.extent.until is None else "at least"
        yield f"what is left takes {about} {units.duration(takes_s)}; to give it as much time:"
    if state in (State.MEASURED, State.STOPPED) and (command := to_go_on(run.path, state, blocks)):
        yield command


def to_go_on(run_dir: Path, state: State, blocks: Blocks) -> str:
    """What to type to go on: with more time where a budget ended it; empty where nothing is left to do."""
    resume = resume_command(run_dir)
    if state is not State.MEASURED:
        return resume
    if takes_s := left_s(blocks):
        return f"{resume} --budget {math.ceil(_SPARE * takes_s / 60)}min"
    return resume if blocks.unbuilt else ""


def measured(blocks: Blocks) -> Iterator[str]:
    """What was measured so far: the tables, and how many blocks there are."""
    for block in deciding_tables(result_of(blocks)):
        yield from block_lines(block)
        yield ""
    plan = blocks.plan
    first, *others = (arm.name for arm in plan.arms)
    void = blocks.count(BlockState.WEAK) + blocks.count(BlockState.FAILED)
    interrupted = blocks.count(BlockState.INTERRUPTED)
    lost = sum(not (comparable(blocks, setup) or blocks.counted(setup)) for setup in range(len(plan.setups)))
    setups = units.plural(len(plan.setups), "setup") + (f", {lost} of them n/a" if lost else "")
    what = f"{', '.join(others)} against {first} on {setups}"
    done = f"{units.plural(blocks.count(BlockState.DONE), 'block')} measured"
    besides = (f", {void} weak or failed" if void else "") + (f", {interrupted} interrupted" if interrupted else "")
    yield f"{what}: {done}{besides}"
