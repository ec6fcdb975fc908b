"""The page: each article's findings beside what was measured here, and how."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from bisector.core import units
from bisector.report.blocks import Block, Column, Fact, FactList, Listing, Page, Paragraph, Row, Section, Table
from scenarios.articles.articles import Article
from scenarios.articles.findings import Measured, Shown, Verdict, figure
from scenarios.articles.sets import Run

_FINDINGS = (
    Column("finding"), Column("held if"), Column("recorded", figures=True), Column("measured", figures=True),
    Column("verdict"),
)  # fmt: skip
_FIGURES = (Column("figure"), Column("recorded", figures=True), Column("measured", figures=True))
_HOW = (
    "A finding is a quotient of two figures, and from where on it is called held was written down before anything was"
    " measured. Behind a measured quotient stand the least and the greatest that the values of both figures give, or"
    " the 95 % interval of a comparison of two kernels; it is held where all of that is as it is wanted. Absolute"
    " figures are not to be compared: disks, files and runs are smaller here, and the machine may be emulated."
)


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds that a run took, those of builds left out."""

    seconds: float
    builds_s: float = 0.0


def page(
    articles: Sequence[Article], runs: Sequence[Run], measured: Measured, spent: Mapping[str, Spent], builds_s: float
) -> Page:
    """The whole document; ``builds_s`` are the seconds of the builds before the first run."""
    shown = {one.name: [finding.shown(measured) for finding in one.findings] for one in articles}
    sections = [
        Section("summary", "Summary", tuple(_summary(runs, measured, spent, builds_s, shown))),
        *(Section(one.name, one.name, tuple(_article(one, runs, measured, shown[one.name]))) for one in articles),
        Section("commands", "Commands", tuple(_commands(runs))),
    ]
    return Page(_title(shown), tuple(sections), version("bisector"))


def _title(shown: Mapping[str, Sequence[Shown]]) -> str:
    count = Counter(one.verdict for rows in shown.values() for one in rows)
    told = ", ".join(f"{count[verdict]} {verdict}" for verdict in Verdict if count[verdict])
    return f"The articles again: {told}"


def _summary(
    runs: Sequence[Run],
    measured: Measured,
    spent: Mapping[str, Spent],
    builds_s: float,
    shown: Mapping[str, Sequence[Shown]],
) -> Iterator[Block]:
    rows = []
    for name, findings in shown.items():
        count = Counter(one.verdict for one in findings)
        rows.append((name, *(str(count[verdict]) for verdict in Verdict)))
    columns = (Column("set"), *(Column(verdict, figures=True) for verdict in Verdict))
    yield Table(columns, tuple(map(Row, rows)))
    yield Paragraph(_HOW)
    hosts = [host for document in measured.documents.values() for host in document.get("hosts", ())]
    machine: Mapping[str, str] = next((host["facts"] for host in hosts if host["facts"]), {})
    yield FactList(tuple(Fact(name, (text,)) for name, text in (*machine.items(), *_kernels(measured))))
    yield _times(runs, measured, spent, builds_s)


def _kernels(measured: Measured) -> Iterator[tuple[str, str]]:
    """Each kernel that was compared, once."""
    arms = {
        arm["name"]: arm
        for document in measured.documents.values()
        for arm in document.get("arms", ())
        if not arm["placebo"] and arm["release"]
    }
    for name, arm in arms.items():
        yield name, "; ".join(filter(None, (arm["commit"], arm["release"], arm["compiler"])))


def _times(runs: Sequence[Run], measured: Measured, spent: Mapping[str, Spent], builds_s: float) -> Table:
    rows, total_s = [], 0.0
    for run in runs:
        took = spent.get(run.name, Spent(0.0))
        total_s += took.seconds
        builds_s += took.builds_s
        cells = (run.name, units.duration(took.seconds), units.duration(run.expected_s))
        rows.append(Row(cells, measured.missing.get(run.name, "")))
    rows.append(Row(("all of them", units.duration(total_s), units.duration(sum(run.expected_s for run in runs)))))
    rows.append(Row(("builds, beside that", units.duration(builds_s), units.UNKNOWN)))
    columns = (Column("run"), Column("took", figures=True), Column("expected", figures=True))
    return Table(columns, tuple(rows))


def _article(article: Article, runs: Sequence[Run], measured: Measured, shown: Sequence[Shown]) -> Iterator[Block]:
    yield Paragraph(article.about)
    for run in runs:
        if run.article == article.name:
            yield Paragraph(f"Here: {run.what}. {run.scaled}")
    rows = (Row((one.sentence, one.wanted, one.recorded, one.measured, str(one.verdict)), one.why) for one in shown)
    yield Table(_FINDINGS, tuple(rows), "why")
    yield Table(_FIGURES, tuple(Row((cell.label, *figure(cell, measured))) for cell in article.cells))


def _commands(runs: Sequence[Run]) -> Iterator[Block]:
    yield Listing(tuple(shlex.join(("bisector", *run.words)) for run in runs))
