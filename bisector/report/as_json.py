"""A report as JSON, for scripts; the whole of ``status --json`` is in it."""

from dataclasses import asdict
from typing import Annotated, Literal

from bisector.core.figures import Contention
from bisector.core.json_document import SCHEMA, Record, text
from bisector.report import before_after
from bisector.report.document import Basis, BeforeAfter, Report, Row
from bisector.report.figures import baseline_facts
from bisector.report.sections import title
from bisector.status import document_of
from bisector.status.document import Status


class PlacedTrial(Record, frozen=True, kw_only=True):
    """A trial at its place in history."""

    place: Annotated[int | None, "number of commits from the old end; `null` where git is not asked"]
    n: Annotated[int, "number of the trial, as in `status.trials`"]
    sha: Annotated[str, "commit"]
    verdict: Annotated[str, "in your terms"]
    why: Annotated[str, "one sentence"]


class Request(Record, frozen=True, kw_only=True):
    """What was asked for."""

    old_rev: Annotated[str, "the old end, as it was typed"]
    new_rev: Annotated[str, "the new end, as it was typed"]
    paths: Annotated[tuple[str, ...], "only commits that touch these; empty for all"]
    skips: Annotated[tuple[str, ...], "commits that were not to be tried"]
    first_parent: Annotated[bool, "whether only first parents were followed"]
    command: Annotated[str, "command that asks for the same again"]


class TreeOrigin(Record, frozen=True, kw_only=True):
    """Where the commits come from; empty where that is not known."""

    tree: Annotated[str, "name of the tree, as kernel robots give it"]
    branch: Annotated[str, "branch"]
    url: Annotated[str, "address"]


class ComparedMetric(Record, frozen=True, kw_only=True):
    """A metric of both sides of a comparison."""

    name: Annotated[
        str, "name of the metric, as kernel robots give it; ends with the unit of its values, if any: `_us`, `_MiB_s`"
    ]
    before: Annotated[tuple[float, ...], "value of each trial before the change"]
    after: Annotated[tuple[float, ...], "value of each trial after it"]


class ComparedCommits(Record, frozen=True, kw_only=True):
    """The answer against what was before it."""

    before: Annotated[str, "commit before the change"]
    after: Annotated[str, "commit after it"]
    basis: Annotated[
        Basis, "what `before` is: the parent, the nearest before it where no parent was measured, or the old end"
    ]
    metrics: Annotated[tuple[ComparedMetric, ...], "the metric that decides comes first"]


class JobFile(Record, frozen=True, kw_only=True):
    """The job file as it was used."""

    name: Annotated[str, "name of the file"]
    text: Annotated[str, "its contents"]
    variables: Annotated[dict[str, str], "the variables that it was given"]


class MeasuringHost(Record, frozen=True, kw_only=True):
    """A host that measured."""

    name: Annotated[str, "name of the host"]
    trials: Annotated[int, "number of its trials"]
    facts: Annotated[dict[str, str], "what is on record of it; may be empty"]
    contention: Annotated[tuple[Contention, ...], "what else it was doing during each run"]


class ReportDocument(Record, frozen=True, kw_only=True):
    """What ``bisector report --format json`` prints."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    title: Annotated[str, "one line"]
    status: Annotated[Status, "its own `schema` included"]
    rows: Annotated[tuple[PlacedTrial, ...], "the trials in the order of history"]
    asked: Annotated[Request, "what was asked for"]
    origin: Annotated[TreeOrigin, "where the tree comes from"]
    comparison: Annotated[ComparedCommits | None, "the answer against its parent; `null` where figures are missing"]
    workload: Annotated[JobFile, "the job file"]
    kernel: Annotated[dict[str, str], "sentences about the kernel"]
    storage: Annotated[tuple[str, ...], "the commands that made the stack"]
    hosts: Annotated[tuple[MeasuringHost, ...], "the hosts that measured"]
    baselines: Annotated[dict[str, str], "a sentence for each disk; the figures are in `status.baselines`"]
    bisect_log: Annotated[str | None, "git's bisect log; `null` until git is asked"]
    tool_version: Annotated[str, "version of bisector"]


def render(report: Report) -> str:
    """The document as text."""
    return text(document(report))


def document(report: Report) -> ReportDocument:
    """The document."""
    workload = report.workload
    return ReportDocument(
        title=title(report),
        status=document_of.status(report.bisection),
        rows=tuple(_row(row, report) for row in report.rows),
        asked=Request(**asdict(report.asked)),
        origin=TreeOrigin(**asdict(report.origin)),
        comparison=_compared(report.before_after) if report.before_after else None,
        workload=JobFile(name=workload.name, text=workload.text, variables=dict(workload.variables)),
        kernel=dict(report.kernel),
        storage=report.storage,
        hosts=tuple(
            MeasuringHost(name=one.name, trials=one.trials, facts=dict(one.facts), contention=one.contention)
            for one in report.hosts
        ),
        baselines=dict(baseline_facts(report.bisection.baselines, report.bisection.objective)),
        bisect_log=report.bisect_log or None,
        tool_version=report.tool_version,
    )


def _row(row: Row, report: Report) -> PlacedTrial:
    shown = row.shown
    word = report.bisection.terms.word(shown.verdict)
    return PlacedTrial(place=row.place, n=shown.n, sha=shown.trial.commit.sha, verdict=word, why=shown.why)


def _compared(compared: BeforeAfter) -> ComparedCommits:
    metrics = (
        ComparedMetric(name=one.name, before=one.before, after=one.after) for one in before_after.metrics(compared)
    )
    return ComparedCommits(
        before=compared.before.commit.sha,
        after=compared.after.commit.sha,
        basis=compared.basis,
        metrics=tuple(metrics),
    )
