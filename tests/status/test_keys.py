"""The tables of JSON keys are the documents' own: no object has another key, and none lacks one."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bisector.core.commit import Relevance
from bisector.core.figures import CpuUse, DiskFigures, EarlyStop, Latency, LatencyKind, StopReason
from bisector.core.json_keys import Key
from bisector.core.trial import Origin, Taken
from bisector.core.verdict import Verdict
from bisector.status import keys
from bisector.status.view import BisectionView, InfraFaultView, LevelView, to_json
from tests.examples import baseline
from tests.report import examples

TABLE: dict[str, Key] = {one.path: one for one in keys.STATUS}
TABLE |= {f"trials[].{one.path}": one for one in keys.TRIAL}
_TROUBLE = InfraFaultView("2026-03-01T10:00:00+00:00", "a" * 40, "box", "x")
_RUN = examples.BROKEN.trial.runs[-1]
_JOB = replace(
    _RUN.jobs[0], latencies=(Latency(LatencyKind.COMPLETION, 1.0, 2.0, 1.5, 0.5),), cpu=CpuUse(1.0, 2.0, 3, 4)
)
_STOPPED = replace(
    _RUN,
    jobs=(_JOB,),
    cache_before=_RUN.cache_after,
    disks=(DiskFigures("vda", 1, 2, 3, 4, 5, 6, 7, 8.0),),
    stopped_early=EarlyStop(StopReason.ABOVE, 20.0, 1.0, 0.5, "clear"),
)
VIEWS = (
    replace(examples.two_changes(), levels=(LevelView(500.0, 502.0, 3), LevelView(1900.0, 3702.0, 4))),
    examples.view(replace(examples.BROKEN, trial=replace(examples.BROKEN.trial, runs=(_STOPPED,)))),
    replace(examples.found(), infra_faults=(_TROUBLE,), baselines=(baseline("ssd", 5_000.0),)),
    replace(examples.believed(), relevance=Relevance(5, 2)),
    examples.narrowed(),
    examples.regression(),
    examples.empty(),
    examples.view(
        replace(examples.BROKEN, taken_from=Taken("/runs/1", 3)),
        replace(examples.FIXED, trial=replace(examples.FIXED.trial, origin=Origin("fio-2.16", "4.12", Verdict.NEW))),
    ),
)


def objects(value: object, path: str = "") -> Iterator[tuple[str, set[str]]]:
    """Every object of a document, by the path of its key, or of its list's."""
    for item in value if isinstance(value, list) else (value,):
        if isinstance(item, dict):
            if path in TABLE and TABLE[path].free:
                continue
            yield path, set(item)
            prefix = f"{path}[]." if isinstance(value, list) else f"{path}." if path else ""
            for key, inner in item.items():
                yield from objects(inner, prefix + key)


def documented(path: str) -> set[str]:
    """The keys of an object: those that its row names, or those that have rows of their own."""
    if path in TABLE and TABLE[path].keys:
        return set(TABLE[path].keys)
    depth = {path, f"{path}[]"}
    parents = {one.rpartition(".") for one in TABLE}
    return {key for parent, _, key in parents if parent in depth}


@pytest.mark.parametrize("view", VIEWS)
def test_every_object_has_the_keys_of_its_table(view: BisectionView) -> None:
    document = json.loads(json.dumps(to_json(view)))
    assert tuple(document) == tuple(one.path for one in keys.STATUS if "." not in one.path)
    for path, found in objects(document):
        assert found == documented(_as_in_trials(path)), path


def _as_in_trials(path: str) -> str:
    """What a baseline and a trial both have has the same keys in both."""
    for mine, theirs in (("run.", "runs[]."), ("run", "runs"), ("artifacts", "artifacts"), ("setup", "setup")):
        if path.startswith(f"baselines[].{mine}"):
            return path.replace(f"baselines[].{mine}", f"trials[].{theirs}", 1)
    return path


def test_examples_have_every_object() -> None:
    seen = {path for view in VIEWS for path, _ in objects(json.loads(json.dumps(to_json(view))))}
    assert {path for path, one in TABLE.items() if one.keys} - seen == set()
