"""The values in ``status --json``; its keys and types are held by docs/schema/."""

import json
from dataclasses import replace
from typing import Any

from bisector.core.deadline import BY_THE_HOST, GuestTime
from bisector.core.json_document import plain, text
from bisector.core.verdict import Verdict
from bisector.status.view import BisectionView
from tests.docs.json_schema import valid
from tests.report import examples


def through_json(view: BisectionView) -> dict[str, Any]:
    """What a script gets."""
    whole: dict[str, Any] = valid("status", text(view))
    return whole


def test_no_figure_is_null_and_strings_are_facts() -> None:
    commit = replace(examples.COMMITS[0], subject="\x1b[31mred \udce9")
    shown = examples.judged(1, commit, Verdict.OLD, (float("nan"), 1.0), (float("inf"), 2.0))
    made = replace(examples.view(shown), threshold=float("nan"))
    whole: Any = json.loads(json.dumps(plain(made), allow_nan=False))
    assert whole["threshold"] is None
    trials = whole["trials"]
    assert trials[0]["runs"][0]["jobs"][0]["iops_mean"] is None
    assert trials[0]["subject"] == "\x1b[31mred \udce9"


def test_the_clock_of_the_guests() -> None:
    counted = replace(examples.found(), clock=GuestTime(kind="instructions", instruction_ns=8))
    assert through_json(counted)["clock"] == {"kind": "instructions", "instruction_ns": 8}
    by_host = through_json(replace(counted, clock=BY_THE_HOST))
    assert by_host["clock"] == {"kind": "host", "instruction_ns": None}
    assert through_json(examples.found())["clock"] is None  # as of what others measured
