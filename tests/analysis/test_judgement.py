from dataclasses import replace

import pytest

from bisector.analysis.judgement import classify, judged_run
from bisector.core.errors import InfraError
from bisector.core.figures import EarlyStop, StopReason
from bisector.core.objective import Objective
from bisector.core.verdict import Direction, Verdict
from tests.analysis.recorded import job, run, trial

UP, DOWN = Direction.IMPROVEMENT, Direction.REGRESSION
IOPS = Objective()
LINE = IOPS.score(2000)


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
    assert classify(trial(run(*map(job, jobs))), LINE, direction, IOPS).verdict is verdict


def test_only_the_last_run_counts() -> None:
    empty, full = run(job(100), name="empty"), run(job(5000))
    judgement = classify(trial(empty, full), LINE, UP, IOPS)
    assert judgement.verdict is Verdict.NEW
    why = "job partial/1: 5,000 IOPS (read.iops) in the full run, above the threshold of 2,000 IOPS"
    assert judgement.why == why


@pytest.mark.parametrize(
    ("objective", "line", "side", "why"),
    [
        (IOPS, 1334, Verdict.OLD, "worst job b: 501 IOPS (read.iops) in the full run, below the threshold of 1,334"),
        (Objective("read.iops", "a"), 501.0, Verdict.NEW, "job a: 700 IOPS (read.iops) in the full run, above"),
        (Objective("read.iops", "b"), 501, Verdict.OLD, "job b: 501 IOPS (read.iops) in the full run, at the"),
        (Objective("read.bw", "sum"), 2**20, Verdict.NEW, "sum over jobs: 4.7 MiB/s (read.bw) in the full run, above"),
        (Objective("read.iops", "mean"), 601.0, Verdict.OLD, "mean over jobs: 600 IOPS (read.iops) in the full run"),
        (Objective("read.clat.mean"), 1e6, Verdict.OLD, "worst job b: 9.00 ms (read.clat.mean) in the full run, above"),
        (Objective("read.clat.mean", "mean"), 6e6, Verdict.NEW, "mean over jobs: 5.50 ms (read.clat.mean) in the full"),
    ],
)
def test_figure_and_unit_are_named_whatever_the_metric(
    objective: Objective, line: float, side: Verdict, why: str
) -> None:
    jobs = replace(job(700, "a"), clat_mean_ns=2e6), replace(job(501, "b"), clat_mean_ns=9e6)
    judgement = classify(trial(run(*jobs)), objective.score(line), UP, objective)
    assert judgement.verdict is side
    assert judgement.why.startswith(why)


def test_while_the_direction_is_not_known_a_value_has_no_side() -> None:
    judgement = classify(trial(run(job(5000))), LINE, None, IOPS)
    assert judgement.verdict is Verdict.MEASURED
    assert "above the threshold" in judgement.why


def test_a_trial_without_runs_cannot_be_judged() -> None:
    with pytest.raises(InfraError, match="neither a fault nor a run"):
        judged_run(trial())


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
    judgement = classify(trial(replace(run(job(mean)), stopped_early=stop)), LINE, direction, IOPS)
    assert judgement.verdict is verdict
    side = "not above" if stop is NOT_ABOVE else "above"
    line = f"stopped after {stop.at_s:.0f} s of the full run, {side} the threshold of 2,000 IOPS: {stop.why}"
    assert judgement.why == line


@pytest.mark.parametrize(("stop", "line"), [(ABOVE, 3_000.0), (NOT_ABOVE, 700.0)])
def test_a_run_that_was_stopped_tells_nothing_of_a_threshold_it_was_not_clear_of(stop: EarlyStop, line: float) -> None:
    judgement = classify(trial(replace(run(job(2_500)), stopped_early=stop)), IOPS.score(line), UP, IOPS)
    assert judgement.verdict is Verdict.WEAK
    assert "before it was clear" in judgement.why


def test_a_run_that_was_stopped_by_one_metric_says_nothing_of_another() -> None:
    stopped = trial(replace(run(job(2_500)), stopped_early=ABOVE))
    for other in (Objective("read.bw"), Objective("read.iops", "sum")):
        judgement = classify(stopped, other.score(1.0), UP, other)
        assert judgement.verdict is Verdict.WEAK
        assert judgement.why == f"stopped early by read.iops of the worst job, which says nothing of {other.label}"
