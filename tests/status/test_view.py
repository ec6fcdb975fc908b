"""The contract of ``status --json``: whoever renames a key must rename it here, and count SCHEMA up."""

import json
from dataclasses import replace

import pytest

from bisector.core.verdict import State, Verdict
from bisector.status.view import BisectionView, to_json, trial_to_json
from tests.report import examples

NUMBER = (int, float)
TEXT = (str,)
NONE = type(None)

COMMIT = {"sha": TEXT, "subject": TEXT, "committed_at": TEXT}
TOP: dict[str, tuple[type, ...]] = {
    "schema": (int,),
    "state": TEXT,
    "message": TEXT,
    "repository": TEXT,
    "terms": (dict,),
    "direction": (str, NONE),
    "objective": (dict,),
    "threshold": (*NUMBER, NONE),
    "threshold_origin": (str, NONE),
    "old": (dict,),
    "new": (dict,),
    "first_fixed": (dict, NONE),
    "candidates": (list,),
    "strategy": TEXT,
    "probability": (float, NONE),
    "candidate_probabilities": (list, NONE),
    "contradictions": (int, NONE),
    "expected_contradictions": (float, NONE),
    "one_change": (bool, NONE),
    "without_suspects": (dict, NONE),
    "confirmed": (list, NONE),
    "trials_left": (int, NONE),
    "skips_in_the_way": (list,),
    "relevance": (dict, NONE),
    "levels": (list,),
    "other_steps": (list,),
    "next_step_command": (str, NONE),
    "seen_again": (str, NONE),
    "evaluations": (int,),
    "skipped": (int,),
    "weak": (int,),
    "reused": (int,),
    "trials": (list,),
    "baselines": (list,),
    "infra_faults": (list,),
    "controls": (list,),
    "started_at": TEXT,
    "ended_at": (str, NONE),
    "run_dir": TEXT,
    "log": (str, NONE),
    "resume_command": (str, NONE),
}
TRIAL: dict[str, tuple[type, ...]] = {
    "n": (int,),
    **COMMIT,
    "verdict": TEXT,
    "side": TEXT,
    "stage": TEXT,
    "value": (float, NONE),
    "reason": TEXT,
    "fault": (dict, NONE),
    "runs": (list,),
    "build_s": NUMBER,
    "boot_s": NUMBER,
    "storage_s": NUMBER,
    "workload_s": NUMBER,
    "total_s": NUMBER,
    "ours_s": NUMBER,
    "kernel": (dict, NONE),
    "kind": TEXT,
    "changed_by": (str, NONE),
    "probability": (float, NONE),
    "same_kernel_as": (str, NONE),
    "same_sources": (bool,),
    "doubted": (bool,),
    "artifacts": (list,),
    "host": TEXT,
    "started_at": TEXT,
    "setup": (dict,),
    "taken_from": (dict, NONE),
    "origin": (dict, NONE),
}
RUN: dict[str, tuple[type, ...]] = {
    "name": TEXT,
    "started_at": TEXT,
    "duration_s": NUMBER,
    "jobs": (list,),
    "cache": (dict,),
    "counters": (dict,),
    "contention": (dict,),
    "clock_drift_s": NUMBER,
    "disks": (list,),
    "stopped_early": (dict, NONE),
}
JOB: dict[str, tuple[type, ...]] = {
    "name": TEXT,
    "direction": TEXT,
    "iops_mean": (*NUMBER, NONE),
    "iops_stddev": NUMBER,
    "bw_kib_s": NUMBER,
    "clat_mean_ns": NUMBER,
    "clat_p99_ns": NUMBER,
    "total_ios": (int,),
    "runtime_ms": (int,),
    "error": (int,),
    "latencies": (list,),
    "cpu": (dict, NONE),
    "depths_percent": (list,),
}
KERNEL = {
    "image",
    "config",
    "release",
    "build_id",
    "content_sha256",
    "key",
    "toolchain",
    "quirks",
    "modules",
    "unmet",
    "cached",
    "build_s",
}


def check(value: dict[str, object], shape: dict[str, tuple[type, ...]]) -> None:
    assert value.keys() == shape.keys()
    for key, types in shape.items():
        assert type(value[key]) in types, key


def through_json(view: BisectionView) -> dict[str, object]:
    """What a script gets, and that it is JSON by the letter: no NaN, plain types."""
    whole = json.loads(json.dumps(to_json(view), allow_nan=False))
    assert isinstance(whole, dict)
    assert whole == to_json(view)
    return whole


@pytest.mark.parametrize(
    "view",
    [examples.found(), examples.believed(), examples.narrowed(), examples.regression(), examples.empty()],
    ids=lambda v: v.state,
)
def test_contract(view: BisectionView) -> None:
    whole = through_json(view)
    check(whole, TOP)
    assert whole["state"] in set(State)
    trials = whole["trials"]
    assert isinstance(trials, list)
    assert len(trials) == whole["evaluations"]
    for trial in trials:
        check(trial, TRIAL)
        assert trial["side"] in set(Verdict)
        for artifact in trial["artifacts"]:
            check(artifact, {"name": TEXT, "path": TEXT, "sha256": TEXT, "size_bytes": (int,)})
        for run in trial["runs"]:
            check(run, RUN)
            assert run["cache"].keys() == {"before", "after"}
            assert run["contention"].keys() == {"other_busy_cores", "steal_share", "psi_some_share"}
            for job in run["jobs"]:
                check(job, JOB)


def test_values_of_a_found_one() -> None:
    whole = through_json(examples.found())
    assert whole["state"] == "found"
    assert whole["first_fixed"] == {
        "sha": examples.COMMITS[3].sha,
        "subject": "dm cache policy smq: demote when the cache is full",
        "committed_at": "2026-01-13T12:00:00+01:00",
        "config_changes": [
            {
                "parent": examples.COMMITS[2].sha,
                "options": [
                    {"option": "CONFIG_DM_CACHE_SMQ", "parent": "n", "child": "y"},
                    {"option": "CONFIG_HZ", "parent": "250", "child": "1000"},
                ],
            }
        ],
    }
    assert whole["candidates"] == [examples.COMMITS[3].sha]
    assert whole["threshold"] == 2003.1


def test_values_of_a_belief() -> None:
    whole = through_json(examples.believed())
    culprit = examples.COMMITS[3].sha
    assert (whole["strategy"], whole["probability"], whole["candidate_probabilities"]) == ("bayes", 0.9941, [0.9941])
    assert (whole["contradictions"], whole["expected_contradictions"], whole["one_change"]) == (1, 0.62, True)
    assert (whole["confirmed"], whole["trials_left"]) == (["reverted"], 0)
    assert whole["without_suspects"] == {"sha": culprit, "probability": 0.981}
    trials = whole["trials"]
    assert isinstance(trials, list)
    assert [(one["kind"], one["changed_by"], one["probability"]) for one in trials[2:]] == [
        ("commit", None, 0.001),
        ("commit", None, 0.9999),
        ("reverted", culprit, None),
    ]
    assert through_json(examples.found())["probability"] is None


def test_values_of_a_trial() -> None:
    trial = trial_to_json(examples.BROKEN, examples.regression().terms)
    assert (trial["verdict"], trial["side"], trial["stage"]) == ("fast", "old", "done")
    assert trial["ours_s"] == pytest.approx(5.5)
    kernel = trial["kernel"]
    assert isinstance(kernel, dict)
    assert kernel.keys() == KERNEL
    assert kernel["config"] == "/cache/kernels/k1/kernel.config"
    runs = trial["runs"]
    assert isinstance(runs, list)
    assert [run["name"] for run in runs] == ["empty", "full"]
    assert runs[1]["jobs"][0]["iops_mean"] == 1001.6
    assert runs[1]["cache"]["before"] is None
    assert runs[1]["cache"]["after"]["full"] is True
    assert runs[1]["counters"] == {}  # nobody looked before it


def test_skip_keeps_its_reason_and_tail() -> None:
    trial = trial_to_json(examples.SKIPPED, examples.found().terms)
    fault = trial["fault"]
    assert isinstance(fault, dict)
    assert (trial["verdict"], fault["stage"], fault["kind"], len(fault["tail"])) == ("skip", "build", "build error", 4)


def test_no_figure_is_null_and_strings_are_facts() -> None:
    commit = replace(examples.COMMITS[0], subject="\x1b[31mred \udce9")
    shown = examples.judged(1, commit, Verdict.OLD, (float("nan"), 1.0), (float("inf"), 2.0))
    whole = through_json(replace(examples.view(shown), threshold=float("nan")))
    assert whole["threshold"] is None
    trials = whole["trials"]
    assert isinstance(trials, list)
    assert trials[0]["runs"][0]["jobs"][0]["iops_mean"] is None
    assert trials[0]["subject"] == "\x1b[31mred \udce9"
