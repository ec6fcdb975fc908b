"""``next-step``: when the readings of a run lie on three levels, the bisection of the step it did not look for."""

import argparse
from pathlib import Path

from bisector.bisect import session
from bisector.bisect.next_step import next_step
from bisector.commands.arguments import Verbs, add_quiet, add_run_dir, add_verb, run_directory
from bisector.commands.bisect import conclude
from bisector.commands.output import note, warn
from bisector.store.store import Store

_EXAMPLES = """\
examples:
  bisector next-step                         the other change in the newest run's readings
  bisector next-step --run-dir RUN --to DIR  of another run; the new one is kept in DIR
The new run takes over all trials of the old one, and measures only what is missing.
"""


def add(verbs: Verbs) -> None:
    """Register ``next-step``."""
    verb = add_verb(verbs, "next-step", step, examples=_EXAMPLES)
    add_run_dir(verb)
    verb.add_argument(
        "--to", type=Path, metavar="DIR", help="where to keep the new run (default: below $XDG_STATE_HOME)"
    )
    add_quiet(verb)


def step(arguments: argparse.Namespace) -> int:
    """Take over what is known, and bisect."""
    run = run_directory(arguments)
    with Store.open(run.database, readonly=True) as store:
        asked = next_step(run, store)
    if not arguments.quiet:
        options = asked.settings.bisect
        at = options.objective.text(options.threshold_value or 0.0)
        note(f"bisector: the step at {at} ({options.metric}), between {asked.old[:12]} and {asked.new[:12]}")
    with session.begun(asked, arguments.to, warn) as (new, new_store):
        return conclude(new, new_store, quiet=arguments.quiet)
