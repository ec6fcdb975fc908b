"""What ``compare`` and ``resume`` have in common: a comparison is gone on with to its end, and shown."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bisector.analysis.comparison import Outcome
from bisector.campaign.equipment import Equip
from bisector.commands.comparison_show import show, show_measured
from bisector.commands.equip import equip_of, remember
from bisector.commands.notice import Notice
from bisector.commands.output import warn
from bisector.compare import session
from bisector.core.errors import BisectorError, InfraError, UserError
from bisector.core.verdict import State
from bisector.doctor import checks
from bisector.report.display import display_for
from bisector.status.blocks import Blocks, result_of
from bisector.store.comparison import Plan
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store

FAILED = 5
_FAILURES = (Outcome.SLOWER, Outcome.FASTER, Outcome.UNCLEAR)


@dataclass(frozen=True, slots=True)
class EndActions:
    """What is done at the end of a comparison: who is told, and by which outcomes it fails."""

    notice: Notice
    fail_on: tuple[Outcome, ...] = ()
    quiet: bool = False
    as_json: bool = False


def add_fail_on(verb: argparse.ArgumentParser) -> None:
    """``--fail-on``: an exit code for scripts that look for one outcome."""
    verb.add_argument(
        "--fail-on",
        choices=tuple(map(str, _FAILURES)),
        action="append",
        default=[],
        help=f"end with {FAILED} if any kernel of a comparison is that on any setup; repeatable",
    )


def resume(
    run: RunDirectory, store: Store, plan: Plan, budget_s: float | None, ends: EndActions, *, hosts: Path | None
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
    return conclude(run, store, plan, equip, ends)


def _is_over(store: Store, plan: Plan) -> bool:
    """Whether nothing is left to measure, nor to build: what did not build is tried again."""
    last = store.state()
    return last is not None and last.state is State.MEASURED and not Blocks.of(plan, store).unbuilt


def conclude(run: RunDirectory, store: Store, plan: Plan, equip: Equip, ends: EndActions) -> int:
    """Go on with a locked run that compares to its end, and show it; the exit code.

    One that is over is only shown. Of one that ends with an error what was measured is shown, and the error raised.
    """
    try:
        with display_for(sys.stderr if ends.as_json else sys.stdout, quiet=ends.quiet) as display:
            if _is_over(store, plan):
                session.after_the_end(run, store, display)
            else:
                ends.notice.run_dir = run.path
                session.go_on(run, store, display, equip)
    except (InfraError, UserError):
        with suppress(BisectorError):  # what ended the run is told, and no trouble with the record besides
            show_measured(run, store, plan, as_json=ends.as_json)
        raise
    show(run, store, plan, as_json=ends.as_json)
    outcomes = tuple(_outcomes(plan, store))
    ends.notice.answer = "; ".join(f"{arm} is {outcome} on {setup}" for arm, setup, outcome in outcomes)
    ends.notice.exit_code = FAILED if any(outcome in ends.fail_on for _, _, outcome in outcomes) else 0
    return ends.notice.exit_code


def _outcomes(plan: Plan, store: Store) -> Iterator[tuple[str, str, Outcome]]:
    """What is said of each kernel on each setup; unclear where they could not be compared. A placebo is none."""
    for row in result_of(Blocks.of(plan, store)).rows:
        for change in (one for one in row.changes if not one.placebo):
            outcome = Outcome.UNCLEAR if change.decision is None else change.decision.outcome
            yield change.arm, row.label, outcome
