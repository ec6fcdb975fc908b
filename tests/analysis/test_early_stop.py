"""When a run may end early: against the curves that make it hard, and against its own margins."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from bisector.analysis.early_stop import (
    Floats,
    StopRule,
    batch_s,
    became_fast_s,
    deciding_rates,
    guard_s,
    holds,
    reached_s,
)
from bisector.core.figures import EarlyStop, StopReason
from bisector.core.objective import Objective
from bisector.workload.base import Progress
from bisector.workload.fio.logs import parse_log, resample

DATA = Path(__file__).parent.parent / "data" / "fio"

LINE = 12_000.0
LENGTHS_S = (900.0, 40.0)
SEED = 20170514
RUNS = 20
Runs = Floats  # IOPS by run, job and twentieth of a batch


@dataclass(frozen=True)
class World:
    """Runs of two jobs of one length: what a job does is its level at each moment, times noise that lasts."""

    length_s: float
    rng: np.random.Generator

    @property
    def step_s(self) -> float:
        return batch_s(self.length_s) / 20

    @property
    def at(self) -> Floats:
        """The middle of each step, as a share of the run."""
        steps = np.arange(round(self.length_s / self.step_s), dtype=np.float64)
        return (steps + 0.5) * (self.step_s / self.length_s)

    def runs(self, *levels: Floats) -> Runs:
        """Noise as in the study: autocorrelation 0.8 of steps, 25 % a step, a slow drift of 5 %."""
        shape = (RUNS, len(levels), self.at.size)
        noise, state = np.empty(shape), self.rng.normal(size=shape[:2])
        for step in range(shape[2]):
            state = 0.8 * state + 0.6 * self.rng.normal(size=shape[:2])
            noise[:, :, step] = state
        drift = np.sin(self.at * 2 * np.pi * 30 + self.rng.uniform(0, 6, (*shape[:2], 1)))
        return np.maximum(np.array(levels) * (1 + 0.25 * noise + 0.05 * drift), 0.0)

    def late_jump(self) -> Runs:
        """From slow to fast at some moment between 4 and 7 of 15 minutes, another one in each run."""
        jump = self.rng.uniform(4, 7, (RUNS, 1, 1)) / 15
        return self.runs(*[np.ones(self.at.size)] * 2) * np.where(self.at < jump, 2_000.0, 22_000.0)

    def stalled(self, runs: Runs, share: float) -> Runs:
        """The host stands still for a while in the second half of each run; fio goes on reporting."""
        begin = self.rng.uniform(0.5, 0.85, (RUNS, 1, 1))
        return np.where((self.at >= begin) & (self.at < begin + share), 0.0, runs)

    def guard(self, runs: Runs) -> float | None:
        """What three whole runs of the fast end give."""
        batches = runs[:3].reshape(3, 2, -1, 20).mean(-1)
        return guard_s([became_fast_s(list(run), self.length_s, LINE) for run in batches], self.length_s)

    def progress(self, runs: Runs) -> tuple[Floats, Floats]:
        """Second and I/Os at the end of each batch."""
        ios = np.cumsum(runs, axis=-1)[..., 19::20] * self.step_s
        return np.arange(1, ios.shape[-1] + 1) * batch_s(self.length_s), ios

    def stops(self, runs: Runs, guard: float | None, first: int = 0) -> list[EarlyStop | None]:
        at_s, ios = self.progress(runs)
        rule = StopRule(LINE, self.length_s, guard)
        return [stop_of(rule, at_s, run, first) for run in ios]


def stop_of(rule: StopRule, at_s: Floats, ios: Floats, first: int = 0) -> EarlyStop | None:
    """What becomes of a run that reports at these seconds."""
    for n in range(first + 1, at_s.size + 1):
        jobs = [Progress(f"job/{job}", at_s[:n].tolist(), done[:n].tolist()) for job, done in enumerate(ios, 1)]
        if (stop := rule.met_by(jobs)) is not None:
            return stop
    return None


def shares(stops: list[EarlyStop | None]) -> tuple[float, float]:
    """The shares of runs that were stopped as above, and as not above."""
    return (
        sum(stop is not None and stop.reason is StopReason.ABOVE for stop in stops) / len(stops),
        sum(stop is not None and stop.reason is StopReason.NOT_ABOVE for stop in stops) / len(stops),
    )


@pytest.fixture(params=LENGTHS_S, ids=lambda length: f"{length:g} s")
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param, np.random.default_rng(SEED))


def concave(at: Floats) -> Floats:
    return 22_000.0 - 20_000.0 * np.exp(-at / 0.15)


def recorded(kernel: str) -> tuple[list[Floats], list[Progress]]:
    """The full-cache run of either end of the demonstration, 40 s in emulation: batches, and what fio would report."""
    texts = [(DATA / f"{kernel}-full_iops.{job}.log").read_text(encoding="utf-8") for job in (1, 2)]
    jobs = [resample(parse_log(text), 500.0, 39_500.0) for text in texts]
    at_s = np.arange(1.0, 80.0) * 0.5
    return jobs, [
        Progress(f"partial/{n}", at_s.tolist(), (np.cumsum(iops) * 0.5).tolist()) for n, iops in enumerate(jobs, 1)
    ]


def recorded_stop(kernel: str, guard: float | None) -> EarlyStop | None:
    _, jobs = recorded(kernel)
    return stop_of(StopRule(1_363.0, 40.0, guard), np.array(jobs[0].at_s), np.array([job.done for job in jobs]))


def test_recorded_runs_of_both_ends() -> None:
    """smq looks at the whole cache once a minute: the fixed kernel is fast from one moment on, late in this run."""
    jobs, _ = recorded("fixed")
    fast_after_s = became_fast_s(jobs, 40.0, 1_363.0)
    assert fast_after_s == 16.5
    assert became_fast_s(recorded("broken")[0], 40.0, 1_363.0) is None
    guard = guard_s([fast_after_s], 40.0)
    fixed, broken = recorded_stop("fixed", guard), recorded_stop("broken", guard)
    assert fixed is not None
    assert broken is not None
    assert (fixed.reason, fixed.at_s) == (StopReason.ABOVE, 21.5)
    assert (broken.reason, broken.at_s) == (StopReason.NOT_ABOVE, 33.0)
    assert broken.bound < 550
    unguarded = recorded_stop("fixed", 9.0)
    assert unguarded is not None
    assert unguarded.reason is StopReason.NOT_ABOVE


RAMPS: dict[str, Callable[[Floats], Floats]] = {
    "at once": lambda at: np.full(at.size, 22_000.0),
    "concave": concave,
    "linear, 11 of 15 min": lambda at: np.minimum(2_000 + at / (11 / 15) * 20_000, 22_000),
}


@pytest.mark.parametrize("ramp", RAMPS)
def test_fast_ones_are_never_called_slow(world: World, ramp: str) -> None:
    runs = world.runs(*[RAMPS[ramp](world.at)] * 2)
    above, not_above = shares(world.stops(runs, world.guard(runs)))
    assert not_above == 0
    assert above > 0.9


def test_a_late_jump_is_never_called_slow(world: World) -> None:
    runs = world.late_jump()
    above, not_above = shares(world.stops(runs, world.guard(runs)))
    assert (above, not_above) == (1, 0)


def test_it_is_the_guard_that_makes_a_late_jump_safe(world: World) -> None:
    floor = 0.2 * world.length_s
    assert shares(world.stops(world.late_jump(), floor))[1] > 0.9
    assert shares(world.stops(world.late_jump(), None))[1] == 0


SLOW = {
    "both": (1_000.0, 1_000.0),
    "one job good, one bad": (17_000.0, 700.0),
    "one job bad, one good": (700.0, 17_000.0),
    "between the classes": (7_000.0, 7_000.0),
}


@pytest.mark.parametrize("levels", SLOW)
def test_slow_ones_are_never_called_fast(world: World, levels: str) -> None:
    fast = world.runs(*[concave(world.at)] * 2)
    runs = world.runs(*(np.full(world.at.size, level) for level in SLOW[levels]))
    stops = world.stops(runs, world.guard(fast))
    assert shares(stops)[0] == 0
    if levels != "between the classes":  # that is for whole runs to say
        assert shares(stops)[1] == 1


def test_near_the_line_nothing_is_concluded_of_a_slow_one(world: World) -> None:
    runs = world.runs(*[np.full(world.at.size, 0.95 * LINE)] * 2)
    assert shares(world.stops(runs, 0.2 * world.length_s)) == (0, 0)


@pytest.mark.parametrize("stall_s", [30, 90])
def test_a_host_that_stood_still_makes_no_kernel_slow(world: World, stall_s: int) -> None:
    """Of 15 minutes, or as much of a shorter run. Looked at from there on only: else the run is over by then."""
    fast = world.runs(*[concave(world.at)] * 2)
    runs = world.stalled(fast, stall_s / 900)
    assert shares(world.stops(runs, world.guard(fast), first=45))[1] == 0


def test_a_kernel_that_collapses_after_good_minutes_is_called_fast(world: World) -> None:
    """The price; it is why a culprit and its parents get whole runs before they are named."""
    runs = world.runs(*[np.where(world.at < 0.4, 22_000.0, 1_000.0)] * 2)
    assert shares(world.stops(runs, 0.5 * world.length_s)) == (1, 0)


@pytest.mark.parametrize("runtime_s", LENGTHS_S)
def test_times_follow_from_the_length_of_the_run(runtime_s: float) -> None:
    rule = StopRule(LINE, runtime_s, 0.0)
    batch = {900.0: 10.0, 40.0: 0.5}[runtime_s]
    assert (rule.batch_s, rule.window_s) == (batch, 6 * batch)
    at_s = np.arange(1.0, 91.0) * batch
    fast, slow = stop_of(rule, at_s, at_s * np.full((2, 1), 13_000.0)), stop_of(rule, at_s, at_s * np.ones((2, 1)))
    assert fast is not None
    assert slow is not None
    assert (fast.at_s, slow.at_s) == (12 * batch, 18 * batch)


def steady(iops: float, *, until_s: float, every_s: float = 0.5) -> Progress:
    at_s = np.arange(every_s, until_s + every_s / 2, every_s)
    return Progress("job/1", at_s.tolist(), (at_s * iops).tolist())


def test_what_is_done_cannot_be_undone() -> None:
    """More I/Os than the threshold asks of the whole run: the mean is above, whatever comes."""
    rule = StopRule(100.0, 40.0)
    stop = rule.met_by((steady(5_000, until_s=1.0), steady(4_001, until_s=1.0)))
    assert stop is not None
    assert (stop.reason, stop.at_s) == (StopReason.ABOVE, 1.0)
    assert stop.bound == pytest.approx(4_001 / 40)
    assert rule.met_by((steady(5_000, until_s=1.0), steady(3_999, until_s=1.0))) is None


def test_a_run_that_is_over_is_not_ended_early() -> None:
    assert StopRule(100.0, 1.0).met_by((steady(5_000, until_s=1.0),)) is None


def test_no_report_in_time_says_nothing() -> None:
    rule = StopRule(LINE, 40.0, 5.0)
    whole = steady(10, until_s=20)
    late = Progress("job/1", [*whole.at_s[:30], *whole.at_s[32:]], [*whole.done[:30], *whole.done[32:]])
    assert rule.met_by((whole,)) is not None
    assert rule.met_by((late,)) is None


@pytest.mark.parametrize("jobs", [(), (steady(5_000, until_s=0.1),)])
def test_nothing_is_concluded_before_a_job_has_begun(jobs: tuple[Progress, ...]) -> None:
    assert StopRule(1.0, 40.0, 0.0).met_by(jobs) is None


def test_the_slow_job_is_the_same_in_all_windows() -> None:
    """Two jobs that take turns are each fast enough on the whole."""
    at_s = np.arange(1.0, 91.0) * 0.5
    turn = np.where((at_s // 3).astype(int) % 2, 1.0, 20_000.0)
    ios = np.cumsum(np.array((turn, 20_001.0 - turn)), axis=1) * 0.5
    assert stop_of(StopRule(LINE, 40.0, 9.0), at_s, ios) is None


def test_a_run_is_fast_when_its_slowest_job_is() -> None:
    jump = [np.where(np.arange(80) < batch, 0.0, 2.5 * LINE) for batch in (10, 20, 30)]
    # 2 of 6 batches at 2.5 times the line are not above it, 3 are
    assert [reached_s(job, 40.0, LINE) for job in jump] == [6.5, 11.5, 16.5]
    assert became_fast_s(jump[:2], 40.0, LINE) == 11.5


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


def test_it_counts_from_when_it_stays_fast() -> None:
    dips = np.where((np.arange(80) > 10) & (np.arange(80) < 40), 0.0, 2.5 * LINE)
    assert reached_s(dips, 40.0, LINE) == 21.5


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


def two_steady(one: float, other: float, *, until_s: float) -> tuple[Progress, Progress]:
    return steady(one, until_s=until_s), replace(steady(other, until_s=until_s), job="job/2")


@pytest.mark.parametrize(
    ("objective", "line", "reason", "why"),
    [
        (Objective(), 3_000.0, None, ""),
        (Objective("read.iops", "sum"), 6_000.0, StopReason.ABOVE, "the sum over jobs was above 7,000 IOPS for 6 s"),
        (Objective("read.iops", "mean"), 3_000.0, StopReason.ABOVE, "the mean over jobs was above 3,500 IOPS for 6 s"),
        (Objective("read.iops", "job/1"), 3_000.0, StopReason.ABOVE, "job job/1 was above 5,000 IOPS for 6 s"),
        (Objective("read.iops", "sum"), 12_000.0, StopReason.NOT_ABOVE, "the sum over jobs was below 7,000 IOPS"),
        (Objective("write.bw", "job/2"), 4_000.0, StopReason.NOT_ABOVE, "job job/2 was below 2 KiB/s for 9 s"),
    ],
)
def test_a_run_is_ended_by_what_the_objective_looks_at(
    objective: Objective, line: float, reason: StopReason | None, why: str
) -> None:
    """One job does 5,000 a second, the other 2,000; by the worst of them nothing is clear before the guard."""
    guard = 10.0 if reason is StopReason.NOT_ABOVE else None
    stop = StopRule(line, 40.0, guard, objective).met_by(two_steady(5_000, 2_000, until_s=20))
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
