"""When a run may end early: the rule on recorded runs, and on simulated ones whose curves make it hard."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bisector.analysis.early_stop import Floats, StopRule, became_fast_s, guard_s
from bisector.core.figures import EarlyStop, StopReason
from bisector.workload.base import RunProgress
from bisector.workload.fio.logs import parse_log, resample
from tests.analysis.early_stops import World, concave, ended, stop_of

DATA = Path(__file__).parent.parent / "data" / "fio"
SEED = 20170514


def shares(stops: list[EarlyStop | None]) -> tuple[float, float]:
    """The shares of runs that were stopped as above, and as not above."""
    return (
        sum(stop is not None and stop.reason is StopReason.ABOVE for stop in stops) / len(stops),
        sum(stop is not None and stop.reason is StopReason.NOT_ABOVE for stop in stops) / len(stops),
    )


@pytest.fixture
def world() -> World:
    """Of one length: all times follow from it."""
    return World(40.0, np.random.default_rng(SEED))


def recorded(kernel: str) -> tuple[list[Floats], list[RunProgress]]:
    """The full-cache run of either end of the demonstration, 40 s in emulation: batches, and what fio would report."""
    texts = [(DATA / f"{kernel}-full_iops.{job}.log").read_text(encoding="utf-8") for job in (1, 2)]
    jobs = [resample(parse_log(text), 500.0, 39_500.0) for text in texts]
    at_s = np.arange(1.0, 80.0) * 0.5
    return jobs, [
        RunProgress(f"partial/{n}", at_s.tolist(), (np.cumsum(iops) * 0.5).tolist()) for n, iops in enumerate(jobs, 1)
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
    assert ended(recorded_stop("fixed", guard)) == (StopReason.ABOVE, 21.5)
    broken = recorded_stop("broken", guard)
    assert ended(broken) == (StopReason.NOT_ABOVE, 33.0)
    assert broken is not None
    assert broken.bound < 550
    unguarded = recorded_stop("fixed", 9.0)
    assert unguarded is not None
    assert unguarded.reason is StopReason.NOT_ABOVE


RAMPS: dict[str, Callable[[Floats], Floats]] = {
    "at once": lambda at: np.full(at.size, 22_000.0),
    "concave": concave,
    "linear, 11 of 15 min": lambda at: np.minimum(2_000 + at / (11 / 15) * 20_000, 22_000),
}


@pytest.mark.parametrize("ramp", [*RAMPS, "late jump"])
def test_fast_ones_are_never_called_slow(world: World, ramp: str) -> None:
    runs = world.runs(*[RAMPS[ramp](world.at)] * 2) if ramp in RAMPS else world.late_jump()
    above, not_above = shares(world.stops(runs, world.guard(runs)))
    assert not_above == 0
    assert above > 0.9


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


@pytest.mark.parametrize("stall_s", [30, 90])
def test_a_host_that_stood_still_makes_no_kernel_slow(world: World, stall_s: int) -> None:
    """Of 15 minutes, or as much of a shorter run. Looked at from there on only: else the run is over by then."""
    fast = world.runs(*[concave(world.at)] * 2)
    runs = world.stalled(fast, stall_s / 900)
    assert shares(world.stops(runs, world.guard(fast), first=45))[1] == 0
