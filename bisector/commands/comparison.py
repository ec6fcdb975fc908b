"""What ``compare`` and ``resume`` have in common: a comparison is gone on with to its end, and shown."""

import sys
from contextlib import suppress

from bisector.commands.comparison_show import show, show_measured
from bisector.compare import session
from bisector.core.errors import BisectorError, InfraError, UserError
from bisector.core.verdict import State
from bisector.report.display import display_for
from bisector.status.blocks import Blocks
from bisector.store.comparison import Plan
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store


def is_over(store: Store, plan: Plan) -> bool:
    """Whether nothing is left to measure, nor to build: what did not build is tried again."""
    last = store.state()
    return last is not None and last.state is State.MEASURED and not Blocks.of(plan, store).unbuilt


def conclude(run: RunDirectory, store: Store, plan: Plan, *, quiet: bool, as_json: bool = False) -> int:
    """Go on with a locked run that compares to its end, and show it; the exit code.

    One that is over is only shown. Of one that ends with an error what was measured is shown, and the error raised.
    """
    try:
        with display_for(sys.stderr if as_json else sys.stdout, quiet=quiet) as display:
            if is_over(store, plan):
                session.after_the_end(run, store, display)
            else:
                session.go_on(run, store, display)
    except (InfraError, UserError):
        with suppress(BisectorError):  # what ended the run is told, and no trouble with the record besides
            show_measured(run, store, plan, as_json=as_json)
        raise
    return show(run, store, plan, as_json=as_json)
