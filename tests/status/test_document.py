"""What ``status``, ``table``, ``test`` and ``baselines`` print for scripts holds to the schemas of docs/schema/."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum

import pytest

from bisector.core.figures import CpuUse, DiskFigures, DiskQueue, EarlyStop, Latency, StopReason
from bisector.core.json_document import members, plain, text
from bisector.core.metric import LatencyKind
from bisector.core.subject import Relevance
from bisector.core.trial import Origin, Stage, Taken
from bisector.core.verdict import Verdict
from bisector.status.view import BisectionView, BudgetView, LevelView, MeasuredCommit
from bisector.store.facts import InfraFault
from tests.docs import json_schema
from tests.docs.json_schema import valid
from tests.examples import ERA, baseline
from tests.report import examples

_TROUBLE = InfraFault("2026-03-01T10:00:00+00:00", "a" * 40, Stage.BOOT, "box", "x")
_TRIAL = examples.BROKEN.trial
_RUN = _TRIAL.runs[-1]
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
_QUEUE = DiskQueue("hdd", "scsi", "none", 128, None, None)
VIEWS = (
    replace(examples.two_changes(), levels=(LevelView(500.0, 502.0, 3), LevelView(1900.0, 3702.0, 4))),
    examples.view(replace(examples.BROKEN, trial=replace(_TRIAL, runs=(_STOPPED,), era=ERA, queues=(_QUEUE,)))),
    replace(examples.found(), infra_faults=(_TROUBLE,), baselines=(baseline("ssd", 5_000.0),)),
    replace(examples.believed(), relevance=Relevance(5, 2)),
    replace(examples.narrowed(), budget=BudgetView(3_600.0, 3_500.0, is_over=True)),
    examples.by_both_clocks(),
    examples.regression(),
    examples.on_two_hosts(),
    examples.empty(),
    examples.view(
        replace(examples.BROKEN, taken_from=Taken("/runs/1", 3)),
        replace(examples.FIXED, trial=replace(examples.FIXED.trial, origin=Origin("fio-2.16", "4.12", Verdict.NEW))),
    ),
)


@pytest.mark.parametrize("view", VIEWS)
def test_documents_hold_to_their_schemas(view: BisectionView) -> None:
    whole = valid("status", text(view))
    assert len(whole["trials"]) == whole["evaluations"]


def test_a_trial_alone() -> None:
    tested = valid("test", text(MeasuredCommit(examples.BROKEN, "/runs/2")))
    assert (tested.pop("run_dir"), tested.pop("schema")) == ("/runs/2", 3)
    assert tested == plain(examples.BROKEN)


def objects(value: object) -> Iterator[type]:
    """The types of all objects in a document."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from objects(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield type(value)
        for one in members(type(value)):
            yield from objects(getattr(value, one.attribute))


def test_examples_have_every_object() -> None:
    seen = {record for view in VIEWS for record in objects(view)}
    assert {one for one in json_schema.within((BisectionView,)) if not issubclass(one, Enum)} - seen == set()


def test_no_figure_is_null_and_strings_are_facts() -> None:
    commit = replace(examples.COMMITS[0], subject="\x1b[31mred \udce9")
    shown = examples.judged(1, commit, Verdict.OLD, (float("nan"), 1.0), (float("inf"), 2.0))
    whole = json.loads(json.dumps(plain(replace(examples.view(shown), threshold=float("nan"))), allow_nan=False))
    (trial,) = whole["trials"]
    assert (whole["threshold"], trial["runs"][0]["jobs"][0]["iops_mean"]) == (None, None)
    assert trial["subject"] == "\x1b[31mred \udce9"
