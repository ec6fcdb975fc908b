"""What ``compare`` and ``resume`` have in common: a comparison is gone on with to its end, and shown."""

import sys
from contextlib import suppress
from pathlib import Path

from bisector.bisect.equipment import Equip
from bisector.commands.comparison_show import show, show_measured
from bisector.commands.equip import equip_of, remember
from bisector.commands.output import warn
from bisector.compare import session
from bisector.core.errors import BisectorError, InfraError, UserError
from bisector.core.verdict import State
from bisector.doctor import checks
from bisector.report.display import display_for
from bisector.status.blocks import Blocks
from bisector.store.comparison import Plan
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store


def resume(
    run: RunDirectory, store: Store, plan: Plan, budget_s: float | None, *, hosts: Path | None, quiet: bool
) -> int:
    """Go on with a locked run that compares, for so much time from now on if that is given; the exit code.

    On the ``hosts`` of a file, or those that it was begun on; else here.
    """
    equip = equip_of(used := hosts or run.hosts)
    if budget_s is not None:
        session.give_time(run, store, budget_s)
    if used is None and not _is_over(store, plan):
        checks.warn_again(plan.setups[0].settings, run.path, warn)
    remember(run, hosts)
    return conclude(run, store, plan, equip, quiet=quiet)


def _is_over(store: Store, plan: Plan) -> bool:
    """Whether nothing is left to measure, nor to build: what did not build is tried again."""
    last = store.state()
    return last is not None and last.state is State.MEASURED and not Blocks.of(plan, store).unbuilt


def conclude(run: RunDirectory, store: Store, plan: Plan, equip: Equip, *, quiet: bool, as_json: bool = False) -> int:
    """Go on with a locked run that compares to its end, and show it; the exit code.

    One that is over is only shown. Of one that ends with an error what was measured is shown, and the error raised.
    """
    try:
        with display_for(sys.stderr if as_json else sys.stdout, quiet=quiet) as display:
            if _is_over(store, plan):
                session.after_the_end(run, store, display)
            else:
                session.go_on(run, store, display, equip)
    except (InfraError, UserError):
        with suppress(BisectorError):  # what ended the run is told, and no trouble with the record besides
            show_measured(run, store, plan, as_json=as_json)
        raise
    return show(run, store, plan, as_json=as_json)
