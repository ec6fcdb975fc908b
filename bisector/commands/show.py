"""``status``, ``table``, ``log`` and ``runs``; used during measurements, they do not load what letters need."""

import argparse
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from bisector.commands.arguments import Verbs, add_verb, objective_of, run_directory, show, write_json
from bisector.commands.output import show_blocks, write
from bisector.core.errors import BisectorError, UserError
from bisector.core.json_document import SCHEMA, JsonObject
from bisector.core.verdict import State
from bisector.report import comparison_table
from bisector.report.blocks import Column, Row, Table
from bisector.report.sections import footer
from bisector.report.table import run_blocks
from bisector.status import from_record
from bisector.status.blocks import Blocks, BlockState
from bisector.store.facts import Plan
from bisector.store.rundir import GIT_LOG, Index, IndexEntry, RunDirectory
from bisector.store.store import Store, state_of

_STATUS_EXAMPLES = """\
examples:
  bisector status                            the newest run
  bisector status --json | jq -r '.first_fixed.sha // .state'
"""
_TABLE_EXAMPLES = """\
examples:
  bisector table                             the newest run, also while it runs
  bisector table --times --logs              where the time went, and why commits were skipped
  bisector table --run-dir RUN --metric read.clat.p99   the same runs by another metric
"""
_LOG_EXAMPLES = """\
examples:
  bisector log > bisect.log                  for `git bisect replay bisect.log`
"""
_RUNS_EXAMPLES = """\
examples:
  bisector runs                            all runs, the newest last
  bisector runs --json | jq -r '.runs[] | select(.state == "found").answer'
`bisector table -r 3`, and every other command with --run-dir, takes a run by its number or name.
"""


class RunKind(StrEnum):
    """The kind of a run."""

    BISECTION = "bisection"
    COMPARISON = "comparison"
    IMPORT = "import"


class ListedRun(JsonObject, frozen=True, kw_only=True):
    """A run that this user began."""

    number: Annotated[int, "number of the run, which it keeps"]
    name: Annotated[str, "name of its directory"]
    run_dir: Annotated[str, "the directory"]
    kind: Annotated[RunKind | None, "what it is; `null` if its record cannot be read"]
    repository: Annotated[str | None, "kernel repository; `null` for an import without one"]
    old: Annotated[str, "old end as typed; of a comparison, its first kernel"]
    new: Annotated[str, "new end as typed; of a comparison, its last kernel"]
    state: Annotated[State | None, "how it stands; `null` if its record cannot be read"]
    answer: Annotated[str, "the answer, or why there is none"]
    started_at: Annotated[str, "time"]


class Runs(JsonObject, frozen=True, kw_only=True):
    """The output of ``bisector runs --json``."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    runs: Annotated[tuple[ListedRun, ...], "in the order in which they were begun"]


def add(verbs: Verbs) -> None:
    """Register ``status``, ``table``, ``log`` and ``runs``."""
    add_verb(verbs, "status", status, "run json", examples=_STATUS_EXAMPLES)
    shown = add_verb(verbs, "table", table, "run json metric", examples=_TABLE_EXAMPLES)
    shown.add_argument("--times", action="store_true", help="where each trial's seconds went, too")
    shown.add_argument("--logs", action="store_true", help="the last log lines of skipped commits, too")
    add_verb(verbs, "log", log, "run", examples=_LOG_EXAMPLES)
    add_verb(verbs, "runs", runs, "json", examples=_RUNS_EXAMPLES)


def status(arguments: argparse.Namespace, *, with_table: bool = False) -> int:
    """Show how a run stands, also while it is in progress."""
    run, by = run_directory(arguments), objective_of(arguments) if with_table else None
    with Store.open(run.database, readonly=True) as store:
        if (plan := store.plan) is not None:
            if by is not None:
                hint = "leave out --metric and --over; bisector report has the others"
                raise UserError("a comparison's table is of the metrics that decide", hint)
            return show_comparison(run, store, plan, as_json=arguments.json)
        view = from_record.view(run, store, by)
    above = run_blocks(view, logs=arguments.logs, times=arguments.times) if with_table else ()
    show(arguments, view, lambda: show_blocks((*above, *footer(view))))
    return 0


def table(arguments: argparse.Namespace) -> int:
    """Show the verdict table of a run, also while it is in progress."""
    return status(arguments, with_table=True)


def log(arguments: argparse.Namespace) -> int:
    """Print git's own log of the bisection, as of the last verdict."""
    run = run_directory(arguments)
    path = run.path / GIT_LOG
    with Store.open(run.database, readonly=True) as store:
        if store.plan is not None:
            raise UserError(f"{run.path} holds a comparison, in which git bisects nothing", "bisector table")
        if store.by_others:
            raise UserError(f"{run.path} was imported, and git bisected nothing in it", "bisector table")
    if not path.is_file():
        raise UserError("git has no log of this run yet: both ends are measured first", "bisector status")
    write(path.read_text(encoding="utf-8"))
    return 0


def show_comparison(run: RunDirectory, store: Store, plan: Plan, *, as_json: bool, failed: bool = False) -> int:
    """Print the deciding tables and the state of a comparison, or all of it as JSON; return the exit code.

    If an error ended it, which the caller reports (``failed``), print what was measured, if any block counts.
    """
    blocks = Blocks.of(plan, store)
    if failed and not blocks.count(BlockState.DONE):
        return 0
    if as_json:
        # Imported here, so that `status` of other runs, often repeated during a measurement, does not load it.
        from bisector.report import comparison  # noqa: PLC0415 - as the line above says

        write_json(comparison.report(run, store, blocks))
    else:
        show_blocks(comparison_table.measured(blocks) if failed else comparison_table.told(run, store, blocks))
    return 0


def runs(arguments: argparse.Namespace) -> int:
    """List all runs, including those whose record cannot be read."""
    listed = tuple(map(_listed, Index().entries()))
    if arguments.json:
        write_json(Runs(runs=listed))
    elif not listed:
        write("there is no run yet: bisector start OLD NEW\n")
    else:
        show_blocks([_table(listed)])
    return 0


def _listed(entry: IndexEntry) -> ListedRun:
    kind: RunKind | None = None
    state: State | None = None
    try:
        run = RunDirectory.open(Path(entry.run_dir))
        with Store.open(run.database, readonly=True) as store:
            if store.plan is not None:
                kind = RunKind.COMPARISON
            else:
                kind = RunKind.IMPORT if store.by_others else RunKind.BISECTION
            state, answer = (State.IMPORTED, "") if kind is RunKind.IMPORT else state_of(run, store)
    except BisectorError as error:
        answer = str(error)
    return ListedRun(
        number=entry.number,
        name=Path(entry.run_dir).name,
        run_dir=entry.run_dir,
        kind=kind,
        repository=entry.repository or None,
        old=entry.old,
        new=entry.new,
        state=state,
        answer=answer,
        started_at=entry.started_at,
    )


def _table(listed: tuple[ListedRun, ...]) -> Table:
    """A row for each run (number, start, state, range and name), with the answer below it."""
    rows = []
    for one in listed:
        ends = f"{one.old} {one.new}" if one.kind is RunKind.COMPARISON else f"{one.old}..{one.new}".strip(".")
        when = one.started_at
        with suppress(ValueError):  # else the recorded text is shown
            when = f"{datetime.fromisoformat(when).astimezone():%Y-%m-%d %H:%M}"
        rows.append(Row((str(one.number), when, str(one.state or "unreadable"), ends, one.name), one.answer))
    columns = (Column("n", figures=True), *map(Column, ("started", "state", "range", "name")))
    return Table(columns, tuple(rows))
