"""A report as JSON, for scripts; the whole of ``status --json`` is in it."""

import json
from dataclasses import asdict

from bisector.core.json_keys import Key
from bisector.report import compare
from bisector.report.compare import Metric
from bisector.report.document import Asked, Comparison, Host, Origin, Report, Row, Workload
from bisector.report.figures import baseline_facts
from bisector.report.sections import title
from bisector.status.view import plain, to_json

SCHEMA = 1
KEYS: tuple[Key, ...] = (
    Key("schema", "1; counts up when a key is renamed, removed or changes its meaning"),
    Key("title", "one line"),
    Key("status", "the object of `bisector status --json`, its own `schema` included"),
    Key("rows", "the trials in the order of history; `n` finds each in `status.trials`",
        more=("place", "n", "sha", "verdict", "why")),
    Key("asked", "what was asked for; `command` asks for the same again", Asked),
    Key("origin", "where the tree comes from", Origin),
    Key("comparison", "the answer against its parent, or `null`; `basis` is `parent`, `nearest` (the parent was not "
        "measured) or `ends`", more=("before", "after", "basis", "metrics")),
    Key("comparison.metrics", "for each metric a value of each trial", Metric),
    Key("workload", "the job file", Workload),
    Key("kernel", "sentences about the kernel", free=True),
    Key("storage", "the commands that made the stack"),
    Key("hosts", "the hosts that measured", Host),
    Key("baselines", "a sentence for each disk; the figures are in `status.baselines`", free=True),
    Key("bisect_log", "git's bisect log, or `null`"),
    Key("tool_version", "version of bisector"),
)  # fmt: skip


def render(report: Report) -> str:
    """The document as text."""
    return json.dumps(as_json(report), indent=2) + "\n"


def as_json(report: Report) -> dict[str, object]:
    """The documented contract as plain dictionaries, lists, strings, numbers and None."""
    whole = {
        "schema": SCHEMA,
        "title": title(report),
        "status": to_json(report.bisection),
        "rows": [_row(row, report) for row in report.rows],
        "asked": asdict(report.asked),
        "origin": asdict(report.origin),
        "comparison": _comparison(report.comparison) if report.comparison else None,
        "workload": {**asdict(report.workload), "variables": dict(report.workload.variables)},
        "kernel": dict(report.kernel),
        "storage": report.storage,
        "hosts": [{**asdict(host), "facts": dict(host.facts)} for host in report.hosts],
        "baselines": dict(baseline_facts(report.bisection.baselines, report.bisection.objective)),
        "bisect_log": report.bisect_log or None,
        "tool_version": report.tool_version,
    }
    return {key: plain(value) for key, value in whole.items()}


def _row(row: Row, report: Report) -> dict[str, object]:
    shown = row.shown
    word = report.bisection.terms.word(shown.verdict)
    return {"place": row.place, "n": shown.n, "sha": shown.trial.commit.sha, "verdict": word, "why": shown.why}


def _comparison(comparison: Comparison) -> dict[str, object]:
    return {
        "before": comparison.before.commit.sha,
        "after": comparison.after.commit.sha,
        "basis": comparison.basis,
        "metrics": [asdict(metric) for metric in compare.metrics(comparison)],
    }
