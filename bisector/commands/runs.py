"""``runs``: which runs there are, and how each stands, from what it has on record of that."""

import argparse
import shutil
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from bisector.commands.arguments import Verbs, add_json, add_verb, write_json
from bisector.commands.output import write
from bisector.core.errors import BisectorError
from bisector.core.json_document import JsonObject
from bisector.core.json_keys import SCHEMA
from bisector.core.printable import clean
from bisector.core.verdict import State
from bisector.report.terminal import Span, columns, line_text, shorten
from bisector.store.rundir import Index, IndexEntry, RunDirectory, state_of
from bisector.store.store import Store

_EXAMPLES = """\
examples:
  bisector runs                            all runs, the newest last
  bisector runs --json | jq -r '.runs[] | select(.state == "found").answer'
`bisector table -r 3`, and every other command with --run-dir, takes a run by its number or name.
"""
_WIDTH = 120
_INDENT = 4


class RunKind(StrEnum):
    """What a run is."""

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
    """What ``bisector runs --json`` prints."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    runs: Annotated[tuple[ListedRun, ...], "in the order in which they were begun"]


def add(verbs: Verbs) -> None:
    """Register ``runs``."""
    add_json(add_verb(verbs, "runs", runs, examples=_EXAMPLES))


def runs(arguments: argparse.Namespace) -> int:
    """List them; one whose record cannot be read is one of them."""
    listed = tuple(map(_listed, Index().entries()))
    if arguments.json:
        write_json(Runs(runs=listed))
    elif not listed:
        write("there is no run yet: bisector start OLD NEW\n")
    else:
        width = shutil.get_terminal_size((_WIDTH, 24)).columns
        write("".join(f"{line}\n" for line in lines(listed, width)))
    return 0


def _listed(entry: IndexEntry) -> ListedRun:
    kind: RunKind | None = None
    state: State | None = None
    try:
        run = RunDirectory.open(Path(entry.run_dir))
        with Store.open(run.database, readonly=True) as store:
            kind = _kind(store)
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


def _kind(store: Store) -> RunKind:
    if store.plan is not None:
        return RunKind.COMPARISON
    return RunKind.IMPORT if store.by_others else RunKind.BISECTION


def lines(listed: tuple[ListedRun, ...], width: int) -> Iterator[str]:
    """A row for each run, as wide as the terminal: number, time, state, range and name; below it the answer."""
    heads = ("n", "started", "state", "range", "name")
    rows = [
        (str(one.number), _when(one.started_at), str(one.state or "unreadable"), _range(one), one.name)
        for one in listed
    ]
    table = columns([[Span(cell) for cell in row] for row in (heads, *rows)], figures={0})
    for line, one in zip(table, (None, *listed), strict=True):
        yield shorten(line_text(line), width)
        if one is not None and one.answer:
            yield " " * _INDENT + shorten(one.answer, width - _INDENT)


def _range(one: ListedRun) -> str:
    return clean(f"{one.old} {one.new}" if one.kind is RunKind.COMPARISON else f"{one.old}..{one.new}".strip("."))


def _when(started_at: str) -> str:
    try:
        return f"{datetime.fromisoformat(started_at).astimezone():%Y-%m-%d %H:%M}"
    except ValueError:
        return started_at
