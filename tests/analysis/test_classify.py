import math
from dataclasses import replace

import pytest

from bisector.analysis.classify import classify, least_job_iops
from bisector.core.errors import InfraError, UserError
from bisector.core.figures import EarlyStop, StopReason
from bisector.core.model import Direction, Verdict
from tests.analysis.recorded import job, run, trial

UP, DOWN = Direction.IMPROVEMENT, Direction.REGRESSION


@pytest.mark.parametrize(
    ("jobs", "direction", "verdict"),
    [
        pytest.param((4000, 7000), UP, Verdict.NEW, id="every job above"),
        pytest.param((1000, 9000), UP, Verdict.OLD, id="one job below, the sum above"),
        pytest.param((9000, 1000), UP, Verdict.OLD, id="the other job below"),
        pytest.param((2000, 9000), UP, Verdict.OLD, id="equal is not above"),
        pytest.param((2000.001, 9000), UP, Verdict.NEW, id="just above"),
        pytest.param((4000, 7000), DOWN, Verdict.OLD, id="a regression: fast is old"),
        pytest.param((1000, 7000), DOWN, Verdict.NEW, id="a regression: slow is new"),
    ],
)
def test_each_job_counts(jobs: tuple[float, ...], direction: Direction, verdict: Verdict) -> None:
    assert classify(trial(run(*map(job, jobs))), 2000, direction).verdict is verdict


def test_only_the_last_run_counts() -> None:
    empty, full = run(job(100), name="empty"), run(job(5000))
    judgement = classify(trial(empty, full), 2000, UP)
    assert judgement.verdict is Verdict.NEW
    assert judgement.why == "slowest job partial/1: 5,000 IOPS in the full run, above the threshold of 2,000"


def test_writes_do_not_count() -> None:
    assert least_job_iops(trial(run(job(5000), job(3, direction="write")))) == 5000


@pytest.mark.parametrize("iops", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_figure_is_no_verdict(iops: float) -> None:
    with pytest.raises(InfraError, match="no measurement"):
        classify(trial(run(job(5000), job(iops, "partial/2"))), 2000, UP)


def test_a_workload_without_reads_cannot_be_judged() -> None:
    with pytest.raises(UserError, match="no job of the workload reads"):
        least_job_iops(trial(run(job(5000, direction="write"))))


def test_a_trial_without_runs_cannot_be_judged() -> None:
    with pytest.raises(InfraError, match="neither a fault nor a run"):
        least_job_iops(trial())


ABOVE = EarlyStop(StopReason.ABOVE, 12.2, 3_000.0, 2_000.0, "every job was above 3,000 IOPS for 6 s")
NOT_ABOVE = EarlyStop(StopReason.NOT_ABOVE, 26.0, 510.0, 2_000.0, "job partial/1 was below 510 IOPS for 9 s")


@pytest.mark.parametrize(
    ("stop", "direction", "verdict"),
    [
        (ABOVE, UP, Verdict.NEW),
        (ABOVE, DOWN, Verdict.OLD),
        (NOT_ABOVE, UP, Verdict.OLD),
        (NOT_ABOVE, DOWN, Verdict.NEW),
    ],
)
@pytest.mark.parametrize("mean", [100.0, 9_000.0])
def test_of_a_run_that_was_stopped_the_rule_says_the_side_and_not_its_mean(
    stop: EarlyStop, direction: Direction, verdict: Verdict, mean: float
) -> None:
    judgement = classify(trial(replace(run(job(mean)), stopped_early=stop)), 2000, direction)
    assert judgement.verdict is verdict
    assert judgement.why.startswith(f"stopped after {stop.at_s:.0f} s: {stop.why}, in the full run, ")
    assert ("not above the threshold" in judgement.why) is (stop is NOT_ABOVE)


@pytest.mark.parametrize(("stop", "line"), [(ABOVE, 3_000.0), (NOT_ABOVE, 700.0)])
def test_a_run_that_was_stopped_tells_nothing_of_a_threshold_it_was_not_clear_of(stop: EarlyStop, line: float) -> None:
    judgement = classify(trial(replace(run(job(2_500)), stopped_early=stop)), line, UP)
    assert judgement.verdict is Verdict.WEAK
    assert "before it was clear" in judgement.why
