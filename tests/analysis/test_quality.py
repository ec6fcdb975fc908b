import math
from dataclasses import replace

import pytest

from bisector.analysis.quality import Limits, weaknesses
from bisector.figures import EarlyStop, Run, StopReason
from bisector.model import Fault, FaultKind, Origin, Stage
from tests.analysis.recorded import FULL, QUIET, job, run, trial

LIMITS = Limits(max_other_cores=0.5, max_steal_share=0.05, asked_runtime_s=40)
EMPTY = run(job(9000), job(1000, "partial/2"), name="empty", cache_before=replace(FULL, used_blocks=272))
GOOD = run(job(4000), job(7000, "partial/2"))


def test_a_quiet_full_run_is_strong() -> None:
    assert weaknesses(trial(EMPTY, GOOD), LIMITS) == ()


@pytest.mark.parametrize(
    ("weak", "why"),
    [
        (replace(GOOD, contention=replace(QUIET, other_busy_cores=1.2)), "1.20 cores of other work, limit 0.50"),
        (replace(GOOD, contention=replace(QUIET, other_busy_cores=math.nan)), "the host was busy"),
        (replace(GOOD, contention=replace(QUIET, steal_share=0.2)), "20.0% of its CPU time stolen"),
        (replace(GOOD, clock_drift_s=2.1), "drifted by +2.1 s in 40 s"),
        (replace(GOOD, clock_drift_s=-2.1), "drifted by -2.1 s in 40 s"),
        (replace(GOOD, cache_before=replace(FULL, used_blocks=900)), "900 of 1024 blocks"),
        (run(job(4000), job(7000, "partial/2", runtime_ms=20_000)), "job partial/2 ran 20.0 s of 40 s"),
        (run(job(4000), replace(job(7000), error=5)), "error 5"),
    ],
)
def test_each_weakness_is_named(weak: Run, why: str) -> None:
    (found,) = weaknesses(trial(EMPTY, weak), LIMITS)
    assert why in found


def test_the_limits_themselves_are_allowed() -> None:
    edge = replace(GOOD, contention=replace(QUIET, other_busy_cores=0.5, steal_share=0.05), clock_drift_s=2.0)
    assert weaknesses(trial(EMPTY, edge), LIMITS) == ()


def test_a_block_or_two_may_be_free() -> None:
    assert weaknesses(trial(EMPTY, replace(GOOD, cache_before=replace(FULL, used_blocks=1020))), LIMITS) == ()


def test_no_cache_need_not_be_full() -> None:
    assert weaknesses(trial(EMPTY, replace(GOOD, cache_before=None)), LIMITS) == ()
    assert weaknesses(trial(EMPTY), LIMITS) == ()


def test_only_the_judged_run_is_asked() -> None:
    busy = replace(EMPTY, contention=replace(QUIET, other_busy_cores=2.0))
    assert weaknesses(trial(busy, GOOD), LIMITS) == ()


def test_a_faulty_trial_is_not_weak_but_skipped() -> None:
    fault = Fault(Stage.WORKLOAD, FaultKind.HANG, "silent")
    assert weaknesses(trial(replace(GOOD, clock_drift_s=30), fault=fault), LIMITS) == ()


def test_several_weaknesses_are_all_told() -> None:
    bad = replace(GOOD, contention=replace(QUIET, other_busy_cores=2.0), clock_drift_s=9)
    assert len(weaknesses(trial(EMPTY, bad), LIMITS)) == 2


def test_a_job_that_never_got_an_io_through_is_no_slow_job() -> None:
    starved = replace(GOOD.jobs[0], iops_mean=0.0, total_ios=0)
    (why,) = weaknesses(trial(EMPTY, replace(GOOD, jobs=(starved, *GOOD.jobs[1:]))), LIMITS)
    assert "did no I/O" in why


OTHERS = Origin("fio-2.16", "4.12.0-rc1+", None)


def test_what_nobody_watched_is_weak_if_it_is_ours_and_judged_if_others_measured_it() -> None:
    unwatched = replace(GOOD, contention=None, clock_drift_s=None)
    assert weaknesses(trial(EMPTY, unwatched), LIMITS) == (
        "nobody looked at the host and the clock during the full run",
    )
    assert weaknesses(trial(EMPTY, replace(GOOD, clock_drift_s=None)), LIMITS) != ()
    imported = replace(trial(EMPTY, unwatched), origin=OTHERS)
    assert weaknesses(imported, LIMITS) == ()


def test_what_is_known_of_others_runs_can_still_be_weak() -> None:
    short = replace(GOOD, contention=None, jobs=(job(1002, runtime_ms=9_000),))
    assert weaknesses(replace(trial(EMPTY, short), origin=OTHERS), LIMITS) == ()  # nobody knows what was asked for
    failed = replace(GOOD, contention=None, jobs=(replace(job(1002), error=5),))
    assert weaknesses(replace(trial(EMPTY, failed), origin=OTHERS), LIMITS) == (
        "fio reported error 5 in job partial/1",
    )
    half = replace(GOOD, contention=None, cache_before=replace(FULL, used_blocks=512))
    assert "the cache was not full" in weaknesses(replace(trial(EMPTY, half), origin=OTHERS), LIMITS)[0]
    busy = replace(GOOD, contention=replace(QUIET, other_busy_cores=2.0))
    assert "busy" in weaknesses(replace(trial(EMPTY, busy), origin=OTHERS), LIMITS)[0]


def test_a_run_that_was_stopped_early_need_not_be_long_but_everything_else() -> None:
    short = run(job(4000, runtime_ms=12_000), job(7000, "partial/2", runtime_ms=12_000))
    stop = EarlyStop(StopReason.ABOVE, 12.0, 3_000.0, 2_000.0, "")
    early = replace(short, stopped_early=stop)
    assert len(weaknesses(trial(EMPTY, short), LIMITS)) == 2
    assert weaknesses(trial(EMPTY, early), LIMITS) == ()
    weak = replace(
        early,
        contention=replace(QUIET, other_busy_cores=1.2),
        clock_drift_s=2.1,
        cache_before=replace(FULL, used_blocks=900),
    )
    assert len(weaknesses(trial(EMPTY, weak), LIMITS)) == 3
