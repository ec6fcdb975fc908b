"""What the commands that measure share: hosts, notice of the end, and the forecast."""

import argparse
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bisector.analysis.comparison import Outcome
from bisector.bisect.session import BisectRequest, checked, range_remarks
from bisector.campaign.equipment import KernelEquality, MeasurerFactory, here
from bisector.commands.output import note
from bisector.commands.show import show_comparison
from bisector.compare import session
from bisector.core.errors import BisectorError, Interrupted
from bisector.core.verdict import State
from bisector.executor.local import guests_at_once, kernel_builder
from bisector.git.ranges import graph_of_range
from bisector.git.repository import Repository
from bisector.git.trees import Trees
from bisector.host import process
from bisector.host.identity import host_id
from bisector.plan.experience import experience
from bisector.plan.forecast import Forecast, ForecastRequest, forecast
from bisector.report.display import display_for
from bisector.status.blocks import Blocks, result_of
from bisector.store.facts import Plan
from bisector.store.rundir import Index, RunDirectory
from bisector.store.store import Store
from bisector.vm.accelerator import could_count

SEARCHES = 30
FAILED = 5
_NOTIFY_DEADLINE_S = 60.0
# The flag with which ``compare`` and ``resume`` tell a script that an outcome occurred.
FAIL_ON: Mapping[str, Any] = {
    "choices": tuple(map(str, (Outcome.SLOWER, Outcome.FASTER, Outcome.UNCLEAR))),
    "action": "append",
    "default": [],
    "help": f"end with {FAILED} if any kernel of a comparison is that on any setup; repeatable",
}


def measurers_for(file: Path | None) -> MeasurerFactory:
    """What measures: this host, or the hosts in ``file``; raises :class:`UserError` if that lets no host connect."""
    if file is None:
        return here
    from bisector.campaign.on_hosts import on_hosts  # noqa: PLC0415 - only fleets need it
    from bisector.fleet import hosts  # noqa: PLC0415 - see above

    return on_hosts(hosts.load(file))


@dataclass(slots=True)
class Notice:
    """``--notify``: a person's command that is run once when a long command has ended by itself.

    It runs only if there is a run to tell of: not if the command was refused, nor if it was interrupted. The run is
    unlocked by then, so that the person's command can read it.
    """

    command: str = ""
    run_dir: Path | None = None
    exit_code: int = 0
    answer: str = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.command or self.run_dir is None or isinstance(error, (KeyboardInterrupt, Interrupted)):
            return
        if isinstance(error, BisectorError):
            self.exit_code, self.answer = error.exit_code, str(error)
        elif error is not None:
            self.exit_code, self.answer = BisectorError.exit_code, "a bug in bisector"
        told = {
            "BISECTOR_EXIT_CODE": str(self.exit_code),
            "BISECTOR_RUN_DIR": str(self.run_dir),
            "BISECTOR_ANSWER": self.answer,
        }
        try:
            process.run(("sh", "-c", self.command), deadline_s=_NOTIFY_DEADLINE_S, env={**os.environ, **told})
        except (process.CommandFailed, process.CommandMissing, process.CommandTimeout, OSError) as failed:
            note(f"bisector: warning: --notify: {failed}")


def is_over(store: Store, plan: Plan) -> bool:
    """Whether a comparison has nothing left to measure or to build; a kernel that did not build is tried again."""
    last = store.state()
    return last is not None and last.state is State.MEASURED and not Blocks.of(plan, store).unbuilt


def conclude_comparison(
    run: RunDirectory,
    store: Store,
    equip: MeasurerFactory,
    notice: Notice,
    arguments: argparse.Namespace,
    *,
    as_json: bool,
) -> int:
    """Finish a locked comparison, or show one that is over; return the exit code, which ``--fail-on`` may set.

    If an error or a bug ends the comparison, what was measured is shown before that is raised again.
    """
    plan, _ = session.plan_of(store)
    try:
        with display_for(sys.stderr if as_json else sys.stdout, quiet=arguments.quiet) as display:
            if not is_over(store, plan):
                notice.run_dir = run.path
                session.go_on(run, store, display, equip)
    except Interrupted:
        raise
    except Exception:  # a bug, too, is raised again, by which the caller tells its traceback
        with suppress(Exception):  # report the error that ended the run, and no further trouble with the record
            show_comparison(run, store, plan, as_json=as_json, failed=True)
        raise
    show_comparison(run, store, plan, as_json=as_json)
    # The outcome for each kernel on each setup; unclear if it could not be compared. A placebo is no kernel of its own.
    rows = result_of(Blocks.of(plan, store)).rows
    changes = [(row.label, change) for row in rows for change in row.changes if not change.placebo]
    outcomes = [
        (change.arm, setup, Outcome.UNCLEAR if change.decision is None else change.decision.outcome)
        for setup, change in changes
    ]
    notice.answer = "; ".join(f"{arm} is {outcome} on {setup}" for arm, setup, outcome in outcomes)
    notice.exit_code = FAILED if any(outcome in arguments.fail_on for _, _, outcome in outcomes) else 0
    session.let_go(run, store, display)
    return notice.exit_code


def forecast_of(asked: BisectRequest, searches: int = SEARCHES, seed: int = 1, hosts: int = 1) -> Forecast:
    """Forecast a search from the times and readings of all known runs on this host; raises what ``start`` raises."""
    repository = Repository.open(asked.repository)
    wanted, settings, _ = checked(repository, asked)
    known = experience(settings, host_id(), [Path(entry.run_dir) for entry in Index().entries()])
    for text in known.unreadable:
        note(f"bisector: passed over {text}")
    graph, _ = graph_of_range(repository, wanted)
    # How many commits can matter is known only if both ends were built before and their builds are kept.
    old, new = (known.kernels.get(end.sha) for end in (wanted.old, wanted.new))
    mattering = None
    if old is not None and new is not None:
        equality = KernelEquality(Trees(repository), kernel_builder(settings.kernel), wanted.first_parent)
        mattering = equality.mattering(wanted, old, new)
    told = tuple(range_remarks(repository, wanted, settings))
    simulated = ForecastRequest(
        wanted,
        graph,
        settings,
        settings.bisect.strategy,
        searches,
        seed,
        asked.budget_s,
        hosts,
        guests_at_once(settings),
        told,
        could_count(settings.machine, settings.storage),
    )
    return forecast(simulated, known, mattering.relevance if mattering is not None else None)
