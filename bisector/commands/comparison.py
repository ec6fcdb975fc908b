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


def conclude(run: RunDirectory, store: Store, plan: Plan, *, quiet: bool, as_json: bool = False) -> int:
    """Go on with a locked run that compares to its end, and show it; the exit code.

    One that has ended is only shown, unless an arm did not build: that is tried again. Of one that ends with an error
    what was measured is shown, and the error raised.
    """
    last = store.state()
    try:
        with display_for(sys.stderr if as_json else sys.stdout, quiet=quiet) as display:
            if last is not None and last.state is State.MEASURED and not Blocks.of(plan, store).unbuilt:
                session.after_the_end(run, store, display)
            else:
                session.go_on(run, store, display)
    except (InfraError, UserError):
        with suppress(BisectorError):  # what ended the run is told, and no trouble with the record besides
            show_measured(run, store, plan, as_json=as_json)
        raise
    return show(run, store, plan, as_json=as_json)
