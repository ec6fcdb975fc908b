"""The page of all histories: what was planted, what was answered, and what that took."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from bisector.core import units
from bisector.report import blocks
from bisector.report.blocks import Column, Listing, Page, Paragraph, Section, Table
from scenarios.histories.judge import Judged, Word
from scenarios.histories.make import Made
from scenarios.kept_runs import Run

_COLUMNS = (
    Column("history"), Column("setup"), Column("commits", figures=True), Column("planted"), Column("answer"),
    Column("verdict"), Column("confidence", figures=True), Column("trials", figures=True),
    Column("skips", figures=True), Column("time", figures=True),
)  # fmt: skip
_HOW = (
    "A planted change is given with its place among the commits, in the order of their making, and with its branch."
    " Right is the planted commit; of two changes the one beside the new end's level together with a hint of the other,"
    " or that there is not one change; and where nothing was planted, that the ends do not differ, or that nothing"
    " changed. Narrowed is a set that has the planted commit. Trials contain those of the ends and of the confirmation."
)


@dataclass(frozen=True, slots=True)
class Row:
    """A history, its run, what bisector printed of it, what that is, and the seconds it took with its builds."""

    made: Made
    run: Run
    status: Mapping[str, Any] | None
    judged: Judged
    took_s: float


def page(rows: Sequence[Row], seed: int) -> Page:
    """The whole document."""
    table = Table(_COLUMNS, tuple(blocks.Row(_cells(row), row.judged.why) for row in rows), "why")
    listing = Listing(tuple(shlex.join(("bisector", *row.run.words)) for row in rows))
    sections = (
        Section("histories", "Histories", (table, Paragraph(_summary(rows, seed)), Paragraph(_HOW))),
        Section("commands", "Commands", (listing,)),
    )
    return Page(title(rows), sections, version("bisector"))


def title(rows: Sequence[Row]) -> str:
    """How many of each word."""
    count = Counter(row.judged.word for row in rows)
    told = ", ".join(f"{count[word]} {word}" for word in Word if count[word])
    return f"{units.plural(len(rows), 'history', 'histories')}: {told}"


def _summary(rows: Sequence[Row], seed: int) -> str:
    """What all of them took, and how sure the answers were beside how often they were right."""
    total = units.duration(sum(row.took_s for row in rows))
    sure = [probability for row in rows if (probability := _probability(row)) is not None]
    named = [row for row in rows if row.status is not None and row.status["state"] == "found"]
    right = sum(row.judged.word is Word.RIGHT for row in named)
    claimed = f"; {right} of {len(named)} named commits are right, claimed {_mean(sure)}" if named and sure else ""
    return f"Seed {seed}; {total} in all, builds included{claimed}."


def _mean(shares: Sequence[float]) -> str:
    return units.share(sum(shares) / len(shares))


def _cells(row: Row) -> tuple[str, ...]:
    status = row.status or {}
    drawn = row.made.drawn
    probability = _probability(row)
    return (
        drawn.name,
        drawn.setup.name,
        str(len(drawn.in_range)),
        _planted(row.made),
        row.judged.answer or units.UNKNOWN,
        row.judged.word,
        units.share(probability) if probability is not None else units.UNKNOWN,
        str(status.get("evaluations", units.UNKNOWN)),
        str(status.get("skipped", units.UNKNOWN)),
        units.duration(row.took_s) if row.took_s else units.UNKNOWN,
    )


def _planted(made: Made) -> str:
    told = " and ".join(f"{one.change} (commit {one.place}, {one.line})" for one in made.planted)
    return f"{made.drawn.direction}: {told}" if told else "nothing"


def _probability(row: Row) -> float | None:
    """What an answer claims; a run without one claims nothing."""
    if row.status is None or row.status["state"] != "found":
        return None
    return None if (claimed := row.status["probability"]) is None else float(claimed)
