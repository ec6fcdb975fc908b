"""A report as JSON, for scripts; the whole of ``status --json`` is in it.

=================  ================================================================================
``schema``         1
``title``          one line
``status``         the object of ``bisector status --json``, its own ``schema`` included
``rows``           ``[{place, n, sha, verdict, why}]`` in history order; ``n`` finds it in ``status.trials``
``asked``          ``{old_rev, new_rev, paths, skips, first_parent, command}``
``origin``         ``{tree, branch, url}``
``comparison``     ``{before, after, basis, metrics: [{name, before: [number], after: [number]}]}`` or ``null``;
                   ``before`` and ``after`` are hashes, and in a metric one figure for each trial;
                   ``basis`` is ``parent``, ``nearest`` or ``ends``
``workload``       ``{name, text, variables}``; ``kernel``, ``baselines`` and each host's ``facts`` are objects, too;
                   the figures of ``baselines`` are in ``status``
``storage``        ``[line]``
``hosts``          ``[{name, trials, facts, contention: [{other_busy_cores, steal_share, psi_some_share}]}]``
``bisect_log``     text, ``null`` before there is one
``tool_version``   of bisector
=================  ================================================================================
"""

import json
from dataclasses import asdict

from bisector.report import baselines, compare
from bisector.report.document import Comparison, Report, Row
from bisector.report.sections import title
from bisector.status.view import plain, to_json

SCHEMA = 1


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
        "baselines": dict(baselines.facts(report.bisection.baselines)),
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
