import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.analysis import quality
from bisector.analysis.quality import AtSpeed, Speed, host_speed, speed_of
from bisector.config import options
from bisector.core.figures import EarlyStop, JobFigures, Latency, Run, StopReason, round_name
from bisector.core.metric import LatencyKind
from bisector.core.trial import Fault, FaultKind, Origin, Stage, Timings, Trial, difference
from tests.analysis.recorded import FULL, QUIET, job, run, trial
from tests.examples import ERA
from tests.fakes import at_speed

AT_400 = Speed(400.0, "when the ends were read")
EMPTY = run(job(9000), job(1000, "partial/2"), name="empty", cache_before=replace(FULL, used_blocks=272))
GOOD = run(job(4000), job(7000, "partial/2"))


def weaknesses(
    trial: Trial, stack: str = "lvmcache", metric: str = "read.iops", runtime: str = "40s", speed: Speed | None = None
) -> tuple[str, ...]:
    asked = {"workload.runtime": runtime, "storage.stack": stack, "bisect.metric": metric}
    limits = {"contention.max_other_cores": "0.5", "contention.max_steal_share": "0.05"}
    return quality.weaknesses(trial, options.load(asked | limits, directory=Path("/")).settings, speed)


@pytest.mark.parametrize(
    ("weak", "why"),
    [
        (replace(GOOD, contention=replace(QUIET, other_busy_cores=1.2)), "1.20 cores of other work, limit 0.50"),
        (replace(GOOD, contention=replace(QUIET, other_busy_cores=math.nan)), "the host was busy"),
        (replace(GOOD, contention=replace(QUIET, steal_share=0.2)), "steal 20.0%"),
        (replace(GOOD, clock_drift_s=2.1), "drifted by +2.1 s in 40 s"),
        (replace(GOOD, clock_drift_s=-2.1), "drifted by -2.1 s in 40 s"),
        (replace(GOOD, cache_before=replace(FULL, used_blocks=900)), "900 of 1024 blocks"),
        (run(job(4000), job(7000, "partial/2", runtime_ms=20_000)), "job partial/2 ran 20.0 s of 40 s"),
        (run(job(4000), replace(job(7000), error=5)), "error 5"),
    ],
)
def test_each_weakness_is_named(weak: Run, why: str) -> None:
    (found,) = weaknesses(trial(EMPTY, weak))
    assert why in found


@pytest.mark.parametrize(
    ("before", "after", "speed", "why"),
    [
        (340.0, 346.0, AT_400, ""),
        (454.0, 460.0, AT_400, ""),
        (208.0, 208.0, AT_400, "ran at 52% of the speed they had when the ends were read, limit 15% of change"),
        (470.0, 470.0, AT_400, "ran at 118% of the speed they had when the ends were read"),
        (208.0, 208.0, None, ""),
        (400.0, 335.0, None, "ran at 84% of the speed after the run that they had before it"),
        (400.0, 470.0, AT_400, "ran at 118% of the speed after the run that they had before it"),
        (None, None, AT_400, ""),
    ],
)
def test_a_run_is_of_the_speed_that_the_hosts_cores_had_when_the_ends_were_read(
    before: float | None, after: float | None, speed: Speed | None, why: str
) -> None:
    """An older record, and what others measured, has no speed."""
    seen = replace(QUIET, mib_s_before=before, mib_s_after=after)
    for runs, of in (((EMPTY, replace(GOOD, contention=seen)), ""), ((replace(EMPTY, contention=seen), GOOD), "empty")):
        found = weaknesses(trial(*runs), speed=speed)
        assert len(found) == bool(why)
        assert all(why in one and ("in the empty run" in one) is (of == "empty") for one in found)


def test_a_job_that_stood_still_is_no_measurement_of_what_it_took_either() -> None:
    """It took little of the CPU, and less is better."""
    still = replace(job(0), total_ios=0)
    stalled = trial(EMPTY, run(still, job(7000, "partial/2")))
    for metric in ("cpu.user", "read.iops"):
        assert weaknesses(stalled, metric=metric)[0] == f"job {still.name} did no I/O"
    assert weaknesses(stalled, metric="write.iops") == ()


def test_which_state_a_run_begins_in_is_the_stacks_own() -> None:
    half = trial(EMPTY, replace(GOOD, cache_before=replace(FULL, used_blocks=512)))
    assert len(weaknesses(half)) == 1
    assert weaknesses(half, "lvmcache(ssd,hdd,cache_mode=writethrough)+ext4") == weaknesses(half)
    assert weaknesses(half, "hdd") == ()


def filled(percent: float, number: int) -> Run:
    """A round that filled the cache so far."""
    return replace(EMPTY, name=round_name("empty", number), counters=(("cache.filled", percent),))


def test_a_cache_that_was_not_steady_makes_weak_evidence() -> None:
    assert weaknesses(trial(filled(90, 1), filled(97, 2), filled(98, 3), GOOD)) == ()
    assert weaknesses(trial(filled(90, 1), filled(97, 2), GOOD)) == (
        "the cache was not steady after 2 rounds: cache.filled went from 90.0 to 97.0 %",
    )
    assert weaknesses(trial(filled(90, 1), filled(97, 2), GOOD), "hdd") == ()


# The second trial of a commit in emulation on a host of two cores, other work on a fraction of one.
AS_MEASURED = (
    replace(EMPTY, duration_s=42.21, clock_drift_s=0.0001, jobs=(job(4854, runtime_ms=40_004), job(2111))),
    replace(GOOD, duration_s=41.32, clock_drift_s=0.0003, jobs=(job(2523, runtime_ms=40_002), job(2541))),
)
WORKLOAD_S = 85.04


def timed(*runs: Run, workload_s: float = WORKLOAD_S) -> Trial:
    return replace(trial(*runs), timings=Timings(workload_s=workload_s))


def slow_io(run: Run, seconds: float, mean_s: float = 2e-3) -> Run:
    latency = Latency(LatencyKind.COMPLETION, 1e5, seconds * 1e9, mean_s * 1e9, 1e6)
    return replace(run, jobs=(replace(run.jobs[0], latencies=(latency,)), *run.jobs[1:]))


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda run: replace(run, duration_s=63.2, jobs=(job(4000, runtime_ms=61_000),)), "ran 61.0 s of 40 s"),
        (lambda run: slow_io(run, 20.0), "an I/O of job partial/1 took 20.0 s, limit 4.0 s"),
    ],
)
def test_a_guest_that_stood_still_in_a_run_is_seen(which: int, change: Callable[[Run], Run], why: str) -> None:
    """Its clock goes on, and agrees with the host's afterwards."""
    runs = [change(run) if place == which else run for place, run in enumerate(AS_MEASURED)]
    (found,) = weaknesses(timed(*runs))
    assert why in found
    assert found.startswith("in the empty run") is (which == 0)


def test_the_wait_in_a_deep_queue_is_no_stall() -> None:
    """As 64 reads of 1 MiB at a time on a disk of 24 MiB/s; one of them would take 42 ms."""
    queued = [slow_io(run, 5.29, 2.61) for run in AS_MEASURED]
    assert weaknesses(timed(*queued)) == ()
    (found,) = weaknesses(timed(queued[0], slow_io(queued[1], 8.0, 2.61)))
    assert "an I/O of job partial/1 took 8.0 s, limit 7.8 s" in found


def prepared(first_s: float, last_s: float) -> list[Run]:
    """Two runs of a command whose files take so long to lay out."""
    sides = ((EMPTY, first_s), (GOOD, last_s))
    return [replace(one, jobs=(), duration_s=40.0, counters=(("prepared", took_s),)) for one, took_s in sides]


def long_runs(*more: JobFigures) -> list[Run]:
    """Two runs of 15 min; smq looks the cache over once a minute."""
    jobs = (job(4000, runtime_ms=900_000), job(7000, "partial/2", runtime_ms=900_000), *more)
    return [replace(one, jobs=jobs, duration_s=900.0) for one in (EMPTY, GOOD)]


FILLS = [replace(EMPTY, counters=(("cache.fill", 600.0),)), replace(GOOD, duration_s=40.0)]
WRITER = replace(job(100, runtime_ms=900_000), direction="write")  # its dirty data is written back between the runs


@pytest.mark.parametrize(
    ("runs", "workload_s", "why"),
    [
        (AS_MEASURED, WORKLOAD_S + 5, ""),
        (AS_MEASURED, WORKLOAD_S + 15, "16.5 s went by between the runs, limit 10.0 s"),
        (FILLS, 680.0 + 9.0, ""),
        (FILLS, 680.0 + 11.0, "11.0 s went by between the runs, limit 10.0 s"),
        (prepared(60.0, 80.0), 220.0 + 9.0, ""),
        (prepared(60.0, 80.0), 220.0 + 11.0, "11.0 s went by between the runs, limit 10.0 s"),
        (prepared(80.0, 60.0), 220.0, ""),
        (prepared(91.0, 60.0), 231.0, "the empty run lasted 31.0 s longer than it should, limit 30.0 s"),
        (long_runs(), 1_830.0, ""),
        (long_runs(), 1_860.0, "60.0 s went by between the runs, limit 45.0 s"),
        (long_runs(WRITER), 2_100.0, ""),
        (long_runs(WRITER), 2_260.0, "460.0 s went by between the runs, limit 450.0 s"),
    ],
)
def test_a_cache_is_idle_no_longer_than_its_filling_and_its_files_take(
    runs: Sequence[Run], workload_s: float, why: str
) -> None:
    found = weaknesses(timed(*runs, workload_s=workload_s), runtime="15min" if runs[0].duration_s == 900 else "40s")
    assert found == ((why,) if why else ())


def test_a_faulty_trial_is_not_weak_but_skipped() -> None:
    fault = Fault(Stage.WORKLOAD, FaultKind.HANG, "silent")
    assert weaknesses(trial(replace(GOOD, clock_drift_s=30), fault=fault)) == ()


OTHERS = Origin("fio-2.16", "4.12.0-rc1+", None)


def test_what_nobody_watched_is_weak_if_it_is_ours_and_judged_if_others_measured_it() -> None:
    unwatched = replace(GOOD, contention=None, clock_drift_s=None)
    assert weaknesses(trial(EMPTY, unwatched)) == ("nobody looked at the host and the clock during the full run",)
    assert weaknesses(trial(EMPTY, replace(GOOD, clock_drift_s=None))) != ()
    imported = replace(trial(EMPTY, unwatched), origin=OTHERS)
    assert weaknesses(imported) == ()


COUNTED = replace(ERA, clock="8 ns an instruction").sealed


def test_what_the_host_did_is_nothing_to_a_guest_whose_instructions_are_counted() -> None:
    bad = replace(GOOD, contention=replace(QUIET, other_busy_cores=2.0, steal_share=0.5), clock_drift_s=-9.0)
    disturbed = timed(EMPTY, slow_io(bad, 20.0), workload_s=900.0)
    assert len(weaknesses(replace(disturbed, era=ERA))) > 3
    assert weaknesses(replace(disturbed, era=COUNTED)) == ()
    failed = replace(disturbed, runs=(EMPTY, replace(bad, jobs=(replace(job(1002), error=5),))), era=COUNTED)
    assert weaknesses(failed) == ("fio reported error 5 in job partial/1",)
    assert difference(ERA, COUNTED) == "clock host → 8 ns an instruction"
    assert ERA.digest != COUNTED.digest


def test_a_guest_whose_instructions_are_counted_meets_nothing_from_outside() -> None:
    """By the host's clock its disks and its network ask for interrupts all the time."""
    met, none = (("interrupts", 2.0),), (("interrupts", 0.0),)
    for of_empty, of_full, run_of in ((none, met, "full"), (met, none, "empty")):
        made = trial(replace(EMPTY, counters=of_empty), replace(GOOD, counters=of_full))
        said = f"2 interrupts reached the guest from outside in the {run_of} run"
        assert weaknesses(replace(made, era=COUNTED)) == (said,)
        assert weaknesses(made) == ()


def test_what_is_known_of_others_runs_can_still_be_weak() -> None:
    short = replace(GOOD, contention=None, jobs=(job(1002, runtime_ms=9_000),))
    assert weaknesses(replace(trial(EMPTY, short), origin=OTHERS)) == ()  # nobody knows what was asked for
    failed = replace(GOOD, contention=None, jobs=(replace(job(1002), error=5),))
    assert weaknesses(replace(trial(EMPTY, failed), origin=OTHERS)) == ("fio reported error 5 in job partial/1",)
    half = replace(GOOD, contention=None, cache_before=replace(FULL, used_blocks=512))
    assert "the cache was not full" in weaknesses(replace(trial(EMPTY, half), origin=OTHERS))[0]
    late = timed(replace(EMPTY, duration_s=400.0), slow_io(GOOD, 20.0), workload_s=900.0)
    assert weaknesses(replace(late, origin=OTHERS)) == ()
    busy = replace(GOOD, contention=replace(QUIET, other_busy_cores=2.0))
    assert "busy" in weaknesses(replace(trial(EMPTY, busy), origin=OTHERS))[0]


def test_a_run_that_was_stopped_early_need_not_be_long_but_everything_else() -> None:
    short = run(job(4000, runtime_ms=12_000), job(7000, "partial/2", runtime_ms=12_000))
    stop = EarlyStop(StopReason.ABOVE, 12.0, 3_000.0, 2_000.0, "")
    early = replace(short, stopped_early=stop)
    assert len(weaknesses(trial(EMPTY, short))) == 2
    assert weaknesses(trial(EMPTY, early)) == ()
    weak = replace(
        early,
        contention=replace(QUIET, other_busy_cores=1.2),
        clock_drift_s=2.1,
        cache_before=replace(FULL, used_blocks=900),
    )
    assert len(weaknesses(trial(EMPTY, weak))) == 3


@pytest.mark.parametrize(
    ("trials", "mib_s", "since"),
    [
        ("", None, 0),
        ("c400 c400", None, 0),  # what is no end says nothing of the ends
        ("e400", 400, 1),
        ("e400 e420 e410", 410, 1),  # the median of the ends alone
        ("e400 e420 c430 c430 c430", 410, 1),
        ("e400 e200", 400, 1),  # once may be chance
        ("e400 e400 c200 c400 c200 c400", 400, 1),
        ("e400 e400 c200 c100 c200", 400, 1),  # not one other speed
        ("e400 e200 e210", 205, 2),  # the first end is read again
        ("e400 e400 c400 c200 c210", 205, 4),
        ("e400 e400 c200 c200 e190 e190", 195, 3),
        ("e400 e400 c200 c200 c400 c400", 400, 5),  # and back
    ],
)
def test_a_host_has_another_speed_once_two_trials_in_a_row_show_it(
    trials: str, mib_s: float | None, since: int
) -> None:
    found = host_speed(
        (AtSpeed(n, one[0] == "e", float(one[1:])) for n, one in enumerate(trials.split(), 1)), max_change=0.15
    )
    assert (found and found.mib_s, found.since if found else 0) == (mib_s, since)


def test_a_trial_has_the_speed_of_all_its_runs_or_none() -> None:
    def ran(*mib_s: float) -> float | None:
        return speed_of(trial(*(replace(run(job(1000)), contention=at_speed(one)) for one in mib_s)), 0.15)

    assert ran(400, 440) == 420
    assert ran(200, 400) is None
    assert speed_of(trial(run(job(1000))), 0.15) is None
