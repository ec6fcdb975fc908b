"""The rule by which a run ends before its time, case by case."""

from dataclasses import replace

import numpy as np
import pytest

from bisector.analysis.early_stop import Floats, StopRule, became_fast_s, deciding_rates, guard_s
from bisector.analysis.judgement import holds
from bisector.core.figures import EarlyStop, StopReason
from bisector.core.objective import Objective
from bisector.workload.base import RunProgress
from tests.analysis.early_stops import LENGTHS_S, LINE, ended, stop_of


@pytest.mark.parametrize("runtime_s", LENGTHS_S)
def test_times_follow_from_the_length_of_the_run(runtime_s: float) -> None:
    rule = StopRule(LINE, runtime_s, 0.0)
    batch = {900.0: 10.0, 40.0: 0.5}[runtime_s]
    assert (rule.batch_s, rule.window_s) == (batch, 6 * batch)
    at_s = np.arange(1.0, 91.0) * batch
    assert ended(stop_of(rule, at_s, at_s * np.full((2, 1), 13_000.0))) == (StopReason.ABOVE, 12 * batch)
    assert ended(stop_of(rule, at_s, at_s * np.ones((2, 1)))) == (StopReason.NOT_ABOVE, 18 * batch)


def steady(iops: float, *, until_s: float, every_s: float = 0.5) -> RunProgress:
    at_s = np.arange(every_s, until_s + every_s / 2, every_s)
    return RunProgress("job/1", at_s.tolist(), (at_s * iops).tolist())


def test_what_is_done_cannot_be_undone() -> None:
    """More I/Os than the threshold asks of the whole run: the mean is above, whatever comes."""
    rule = StopRule(100.0, 40.0)
    stop = rule.met_by((steady(5_000, until_s=1.0), steady(4_001, until_s=1.0)))
    assert stop is not None
    assert (stop.reason, stop.at_s) == (StopReason.ABOVE, 1.0)
    assert stop.bound == pytest.approx(4_001 / 40)
    assert rule.met_by((steady(5_000, until_s=1.0), steady(3_999, until_s=1.0))) is None


def test_what_is_done_tells_nothing_of_the_steady_part() -> None:
    """A burst at the beginning, and what a run amounts to with it."""
    at_s = np.arange(0.5, 20.5, 0.5)
    burst = RunProgress("job/1", at_s.tolist(), (np.minimum(at_s, 8.0) * 5_000 + at_s).tolist())
    whole, steady_part = (StopRule(500.0, 40.0, None, Objective(one)) for one in ("read.iops", "read.iops.steady"))
    assert whole.met_by((burst,)) is not None
    assert steady_part.met_by((burst,)) is None


@pytest.mark.parametrize(("iops", "reason"), [(5_000, StopReason.ABOVE), (10, StopReason.NOT_ABOVE)])
def test_no_run_is_ended_before_others_were_steady(iops: float, reason: StopReason) -> None:
    rule = StopRule(500.0, 40.0, 10.0, Objective("read.iops.steady"), steady_s=16.0)
    assert rule.met_by((steady(iops, until_s=15.5),)) is None
    assert ended(rule.met_by((steady(iops, until_s=16.0),))) == (reason, 16.0)


def test_no_report_in_time_says_nothing() -> None:
    rule = StopRule(LINE, 40.0, 5.0)
    whole = steady(10, until_s=20)
    late = RunProgress("job/1", [*whole.at_s[:30], *whole.at_s[32:]], [*whole.done[:30], *whole.done[32:]])
    assert rule.met_by((whole,)) is not None
    assert rule.met_by((late,)) is None


@pytest.mark.parametrize("jobs", [(), (steady(5_000, until_s=0.1),)])
def test_nothing_is_concluded_before_a_job_has_begun(jobs: tuple[RunProgress, ...]) -> None:
    assert StopRule(1.0, 40.0, 0.0).met_by(jobs) is None


def test_the_slow_job_is_the_same_in_all_windows() -> None:
    """Two jobs that take turns are each fast enough on the whole."""
    at_s = np.arange(1.0, 91.0) * 0.5
    turn = np.where((at_s // 3).astype(int) % 2, 1.0, 20_000.0)
    ios = np.cumsum(np.array((turn, 20_001.0 - turn)), axis=1) * 0.5
    assert stop_of(StopRule(LINE, 40.0, 9.0), at_s, ios) is None


@pytest.mark.parametrize(
    ("fast_after_s", "guard"),
    [
        ((15.0,), 30.0),
        ((10.0, 8.0), 15.0),
        ((8.0, 10.0, 9.0, 9.5), 13.0),
        ((10.0,) * 9, 13.0),
        # One that was fast much sooner takes nothing from the slowest, and does not stand for others by itself.
        ((15.0, 3.0), 30.0),
        ((15.0, 3.0, 14.0, 1.0), 22.5),
        ((3.0,), 20.0),
        ((3.0, 4.0), 40 / 3),
        ((1.0,) * 9, 9.0),  # the floor: three windows
        ((20.0,), None),  # the end of the run
        ((10.0, None), None),
        ((), None),
    ],
)
def test_guard_is_the_slowest_and_the_more_the_fewer_there_are(
    fast_after_s: tuple[float | None, ...], guard: float | None
) -> None:
    assert guard_s(fast_after_s, 40.0) == (None if guard is None else pytest.approx(guard))


def test_a_run_is_fast_from_when_its_slowest_job_stays_fast() -> None:
    batches = np.arange(80)
    jump = [np.where(batches < first, 0.0, 2.5 * LINE) for first in (10, 20, 30)]
    dips = np.where((batches > 10) & (batches < 40), 0.0, 2.5 * LINE)
    # 2 of 6 batches at 2.5 times the line are not above it, 3 are
    assert [became_fast_s([job], 40.0, LINE) for job in (*jump, dips)] == [6.5, 11.5, 16.5, 21.5]
    assert became_fast_s(jump[:2], 40.0, LINE) == 11.5


@pytest.mark.parametrize("never", [np.zeros(80), np.r_[np.full(70, 2 * LINE), np.zeros(10)], np.zeros(0)])
def test_a_job_that_is_slow_in_the_end_never_became_fast(never: Floats) -> None:
    fast = np.full(80, 2 * LINE)
    assert became_fast_s((fast, fast), 40.0, LINE) is not None
    assert became_fast_s((fast, never), 40.0, LINE) is None
    assert became_fast_s((), 40.0, LINE) is None


@pytest.mark.parametrize(
    ("reason", "bound", "line", "above"),
    [
        (StopReason.ABOVE, 3_000.0, 2_999.0, True),
        (StopReason.ABOVE, 3_000.0, 3_000.0, None),
        (StopReason.NOT_ABOVE, 500.0, 751.0, False),
        (StopReason.NOT_ABOVE, 500.0, 750.0, None),
    ],
)
def test_a_side_holds_for_other_thresholds_up_to_its_bound(
    reason: StopReason, bound: float, line: float, above: bool | None
) -> None:
    assert holds(EarlyStop(reason, 10.0, bound, 1_363.0, ""), line, Objective()) is above


@pytest.mark.parametrize(
    ("objective", "line", "reason", "why"),
    [
        (Objective(), 3_000.0, None, ""),
        (Objective("read.iops", "sum"), 6_000.0, StopReason.ABOVE, "the sum over jobs was above 7,000 IOPS for 6 s"),
        (Objective("read.iops", "mean"), 3_000.0, StopReason.ABOVE, "the mean over jobs was above 3,500 IOPS for 6 s"),
        (Objective("read.iops", "job/1"), 3_000.0, StopReason.ABOVE, "job job/1 was above 5,000 IOPS for 6 s"),
        (Objective("read.iops", "sum"), 12_000.0, StopReason.NOT_ABOVE, "the sum over jobs had been below 7,000 IOPS"),
        (Objective("write.bw", "job/2"), 4_000.0, StopReason.NOT_ABOVE, "job job/2 had been below 2 KiB/s for 9 s"),
    ],
)
def test_a_run_is_ended_by_what_the_objective_looks_at(
    objective: Objective, line: float, reason: StopReason | None, why: str
) -> None:
    """One job does 5,000 a second, the other 2,000; by the worst of them nothing is clear before the guard."""
    guard = 10.0 if reason is StopReason.NOT_ABOVE else None
    jobs = steady(5_000, until_s=20), replace(steady(2_000, until_s=20), job="job/2")
    stop = StopRule(line, 40.0, guard, objective).met_by(jobs)
    assert (stop.reason if stop else None) is reason
    if stop is not None:
        assert stop.why.startswith(why)
        assert (stop.metric, stop.over, stop.threshold) == (objective.metric, objective.over, line)
        assert holds(stop, line, objective) is (reason is StopReason.ABOVE)
        assert holds(stop, line, Objective("read.lat.mean")) is None


def test_rates_of_jobs_become_those_that_decide() -> None:
    jobs = {"a": np.array([1.0, 2.0, 3.0]), "b": np.array([5.0, 5.0])}
    assert [list(one) for one in deciding_rates(Objective("read.iops", "sum"), jobs)] == [[6.0, 7.0]]
    assert [list(one) for one in deciding_rates(Objective("read.iops", "mean"), jobs)] == [[3.0, 3.5]]
    assert [list(one) for one in deciding_rates(Objective("read.iops", "b"), jobs)] == [[5.0, 5.0]]
    assert len(deciding_rates(Objective(), jobs)) == 2
    assert deciding_rates(Objective("read.iops", "c"), jobs) == deciding_rates(Objective("read.iops", "sum"), {}) == ()
