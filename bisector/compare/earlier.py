"""What earlier processes of a comparison have left on record, for the one that goes on: compilers, and what failed."""

from dataclasses import replace

from bisector.core.errors import UserError
from bisector.core.events import Listener, Note
from bisector.core.subject import Compiler
from bisector.executor.base import Executor
from bisector.kernel.toolchain import check_unchanged
from bisector.status.blocks import Blocks, BlockState, Earlier
from bisector.store.comparison import Plan
from bisector.store.store import Store


def usable_compilers(store: Store, executor: Executor, tell: Listener) -> tuple[Compiler, ...]:
    """The compilers to choose from; once one is chosen, it is told when that one cannot build any more.

    What it has built is kept and measured; a kernel that is not stops the run, with the name of its arm. Raises
    :class:`UserError` for a compiler that is asked for and not there.
    """
    recorded = store.compilers()
    try:
        found = executor.compilers()
        check_unchanged(recorded, found)
    except UserError as error:
        if not recorded:
            raise
        tell(Note(f"{error.message}; the kernels that are kept are measured all the same"))
        return recorded
    return found


def given_up_before(plan: Plan, store: Store, tell: Listener) -> Earlier:
    """How much earlier processes have on record; what they gave up of an arm is told, since it is tried again."""
    before = Blocks.of(plan, store)
    _tell_interrupted(before, tell)
    now = replace(before, earlier=before.so_far)
    for arm, one in enumerate(plan.arms):
        for why in dict.fromkeys(before.absent(setup, arm) for setup in range(len(plan.setups))):
            if why and why not in {now.absent(setup, arm) for setup in range(len(plan.setups))}:
                tell(Note(f"{one.name} is tried again: {why}"))
    return before.so_far


def _tell_interrupted(blocks: Blocks, tell: Listener) -> None:
    """Tell of the blocks that were left open by the process before this one."""
    for block in blocks.blocks:
        if blocks.state(block) is BlockState.INTERRUPTED and blocks.left(block):
            tell(Note(f"block {block.n} does not count and is begun anew: {blocks.why(block)}"))
