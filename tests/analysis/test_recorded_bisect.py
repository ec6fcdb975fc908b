"""The bisection by hand of 2017: 16 kernels, each with the verdict that a person gave it."""

import csv
from pathlib import Path

import pytest

from bisector.analysis.judgement import classify, score
from bisector.analysis.levels import MeasuredEnds, from_scores
from bisector.analysis.quality import weaknesses
from bisector.config import options
from bisector.core.objective import Objective
from bisector.core.trial import Trial
from bisector.core.verdict import Direction, SideWords
from tests.analysis.recorded import RECORDED, fio_2_run, trial

SET = RECORDED / "lvmcache-bisect-2017"
THRESHOLD_IOPS = 20_000
IOPS = Objective()
SETTINGS = options.load({"workload.runtime": "15min"}, directory=Path("/")).settings


def rows(name: str) -> list[dict[str, str]]:
    with (RECORDED / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def measured(order: int, kernel: str) -> Trial:
    return trial(*(fio_2_run(SET / f"{order:02}-{kernel}-{name}.txt", name) for name in ("empty", "full")))


VERDICTS = [(int(row["order"]), row["kernel"], row["verdict"]) for row in rows("expected-verdicts.csv")]
SCORES = {kernel: [score(measured(order, kernel), IOPS)] for order, kernel, _ in VERDICTS}


@pytest.mark.parametrize(("order", "kernel", "verdict"), VERDICTS)
def test_every_verdict_is_the_persons(order: int, kernel: str, verdict: str) -> None:
    facts = measured(order, kernel)
    assert weaknesses(facts, SETTINGS) == ()
    judgement = classify(facts, IOPS.score(THRESHOLD_IOPS), Direction.IMPROVEMENT, IOPS)
    assert SideWords().word(judgement.verdict) == verdict, judgement.why


def test_the_threshold_of_the_ends_is_told_apart_from_the_persons_by_one_kernel() -> None:
    """Between the ends lies a parent of the fix at 6,120 IOPS, neither as slow nor as fast as they.

    The middle between the ends alone calls it fixed, the person's 20,000 did not: with several steps in a range the
    threshold decides which of them is looked for. The line among all readings is the person's again.
    """
    old, new, *_ = (one for (one,) in SCORES.values())
    ends = MeasuredEnds(old, new, IOPS, None, SideWords())
    of_ends = from_scores(ends, {})
    assert of_ends.direction is Direction.IMPROVEMENT
    assert IOPS.value_of(of_ends.score) == pytest.approx(3828, abs=1)
    assert others(of_ends.score) == ["4.12.0-rc1+4d44ec5ab751"]
    assert others(from_scores(ends, SCORES).score) == []


def others(line: float) -> list[str]:
    """The kernels that a threshold calls otherwise than the person did."""
    return [
        kernel
        for order, kernel, verdict in VERDICTS
        if SideWords().word(classify(measured(order, kernel), line, Direction.IMPROVEMENT, IOPS).verdict) != verdict
    ]
