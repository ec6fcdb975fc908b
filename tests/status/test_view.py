"""The values in ``status --json``; its keys and types are held by docs/schema/."""

import json
from dataclasses import replace
from typing import Any

import pytest

from bisector.core.guest_time import BY_THE_HOST, GuestTime
from bisector.core.json_document import plain, text
from bisector.core.verdict import Verdict
from bisector.status.view import BisectionView, MeasuredCommit, TrialView
from tests.docs.json_schema import valid
from tests.report import examples


def through_json(view: BisectionView) -> dict[str, Any]:
    """What a script gets."""
    whole: dict[str, Any] = valid("status", text(view))
    return whole


def of_trial(view: TrialView) -> dict[str, Any]:
    trial: dict[str, Any] = valid("test", text(MeasuredCommit(view, "/runs/1")))
    return trial


def test_values_of_a_found_one() -> None:
    whole = through_json(examples.found())
    assert whole["state"] == "found"
    assert whole["first_fixed"] == {
        "sha": examples.COMMITS[3].sha,
        "subject": "dm cache policy smq: demote when the cache is full",
        "committed_at": "2026-01-13T12:00:00+01:00",
    }
    (changes,) = whole["config_changes"]
    assert changes["parent"]["sha"] == examples.COMMITS[2].sha
    assert changes["options"] == [
        {"option": "CONFIG_DM_CACHE_SMQ", "parent": "n", "child": "y"},
        {"option": "CONFIG_HZ", "parent": "250", "child": "1000"},
    ]
    assert [one["sha"] for one in whole["candidates"]] == [examples.COMMITS[3].sha]
    assert whole["threshold"] == 2003.1


def test_values_of_a_belief() -> None:
    whole = through_json(examples.believed())
    culprit = examples.COMMITS[3].sha
    assert (whole["strategy"], whole["probability"]) == ("bayes", 0.9941)
    assert [(one["sha"], one["probability"]) for one in whole["likely"]] == [(culprit, 0.9941)]
    assert (whole["contradictions"], whole["expected_contradictions"], whole["one_change"]) == (1, 0.62, True)
    assert (whole["confirmed"], whole["trials_left"]) == (["reverted"], 0)
    assert (whole["without_suspects"]["sha"], whole["without_suspects"]["probability"]) == (culprit, 0.981)
    assert [(one["kind"], one["changed_by"]) for one in whole["trials"][3:]] == [
        ("commit", None),
        ("reverted", culprit),
    ]
    without = through_json(examples.found())
    assert {without[key] for key in ("probability", "likely", "one_change")} == {None}


def test_values_of_a_trial() -> None:
    trial = of_trial(examples.BROKEN)
    assert (trial["verdict"], trial["stage"]) == ("old", "done")
    assert trial["ours_s"] == pytest.approx(5.5)
    assert trial["kernel"]["config"] == "/cache/kernels/k1/kernel.config"
    runs = trial["runs"]
    assert [run["name"] for run in runs] == ["empty", "full"]
    assert runs[1]["jobs"][0]["iops_mean"] == 1001.6
    assert runs[1]["cache_before"] is None
    assert runs[1]["cache_after"]["full"] is True
    assert runs[1]["counters"] == {}  # nobody looked before it


def test_skip_keeps_its_reason_and_tail() -> None:
    trial = of_trial(examples.SKIPPED)
    fault = trial["fault"]
    assert (trial["verdict"], fault["stage"], fault["kind"], len(fault["tail"])) == ("skip", "build", "build error", 4)


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
