"""What ``compare``, ``resume``, ``status`` and ``table`` print of a run that compares."""

from bisector.commands.arguments import write_json
from bisector.commands.output import write
from bisector.report import comparison_lines
from bisector.status.blocks import Blocks, BlockState
from bisector.store.comparison import Plan
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store


def show_measured(run: RunDirectory, store: Store, plan: Plan, *, as_json: bool) -> None:
    """Print what a run that an error ends has measured, if any block counts; the error says how it stands."""
    blocks = Blocks.of(plan, store)
    if not blocks.count(BlockState.DONE):
        return
    if as_json:
        show(run, store, plan, as_json=True)
    else:
        write("".join(f"{line}\n" for line in comparison_lines.measured(blocks)))


def show(run: RunDirectory, store: Store, plan: Plan, *, as_json: bool) -> int:
    """Print the tables of what decides and how the run stands, or all of it for scripts; the exit code."""
    if as_json:
        # Not above: `status` of every other run would load it in vain, again and again beside a measurement.
        from bisector.report import comparison_record  # noqa: PLC0415 - as the line above says

        write_json(comparison_record.report(run, store, Blocks.of(plan, store)))
    else:
        write("".join(f"{line}\n" for line in comparison_lines.whole(run, store, plan)))
    return 0
