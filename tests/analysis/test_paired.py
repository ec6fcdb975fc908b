"""When a run is clear of its counterpart's, or like its own: by hand, and how often that errs on simulated runs."""

from dataclasses import replace

import numpy as np
import pytest

from bisector.analysis.early_stop import Alike, Counterpart, Floats, StopRule, batch_s
from bisector.core.figures import EarlyStop, StopReason
from tests.analysis.early_stops import LINE, World, concave, ended, stop_of

SHA = "a1b2c3d4e5f6" + "0" * 28


def counterpart(run: Floats, length_s: float, *, is_better: bool = True) -> Counterpart:
    """A whole run, by job and batch."""
    return Counterpart(SHA, is_better, batch_s(length_s), tuple(tuple(map(float, job)) for job in run))


def steady(*levels: float, batches: int = 80) -> Floats:
    """Jobs at these rates, with a ripple so that there is some noise."""
    ripple = 1 + 0.02 * np.cos(np.arange(batches) * 1.7)
    rates: Floats = np.array(levels)[:, None] * ripple
    return rates


SLOW, FAST = steady(500.0, 510.0), steady(4_000.0, 4_100.0)


def fast_from(batch: int) -> Floats:
    """A kernel that is slow until then."""
    return np.where(np.arange(80) < batch, SLOW, FAST)


def stopped(
    run: Floats, *others: Counterpart, alike: Alike | None = None, guard: float = 13.5, line: float = 2_000.0
) -> EarlyStop | None:
    at_s = np.arange(1, run.shape[1] + 1) * 0.5
    return stop_of(StopRule(line, 40.0, guard, counterparts=others, alike=alike), at_s, np.cumsum(run, axis=1) * 0.5)


def stopped_like(run: Floats, own: Floats, *, most: float = 1.25, line: float = 2_000.0) -> EarlyStop | None:
    """Beside a whole run of the same kernel, which is on its side of the usual line."""
    whole = counterpart(own, 40.0, is_better=float(own[0, -1]) > 2_000.0)
    return stopped(run, alike=Alike(whole, most), guard=40.0 / 3, line=line)


def test_it_is_clear_of_the_line_and_of_the_other_run() -> None:
    stop, alone = stopped(SLOW, counterpart(FAST, 40.0)), stopped(SLOW)
    assert stop is not None
    assert (ended(stop), stop.against) == ((StopReason.NOT_ABOVE, 20.0), SHA)
    assert stop.apart == pytest.approx(1 / 8)  # the ripple is in both, and cancels
    assert stop.why.endswith("and it was at least 8.0 times below the run of a1b2c3d4e5f6")
    assert alone is not None
    assert (alone.at_s, alone.against, alone.apart) == (13.5, "", None)


def test_what_is_clear_of_the_line_alone_goes_on() -> None:
    """The other run was as slow at the same moments: it became fast later, and so may this one."""
    assert stopped(SLOW, counterpart(fast_from(64), 40.0)) is None


def test_the_first_on_the_other_side_of_the_line_is_its_counterpart() -> None:
    """Which side a run is on is known when it is clear of the line."""
    slow = replace(counterpart(steady(510.0), 40.0, is_better=False), sha="1" * 40)
    fast, faster = (replace(counterpart(steady(one), 40.0), sha=f"{one:.0f}" * 10) for one in (4_000.0, 8_000.0))
    for level, against in ((500.0, fast.sha), (4_100.0, slow.sha)):
        stop = stopped(steady(level), slow, fast, faster)
        assert stop is not None
        assert stop.against == against
    assert stopped(steady(50.0), slow) is None
    assert stopped(steady(50.0), replace(slow, is_better=True)) is not None


def test_the_worst_job_decides_as_it_does_for_the_line() -> None:
    """One job of the fast kernel starves: the sum would be apart, and the worst jobs are not."""
    assert stopped(SLOW, counterpart(steady(9_000.0, 505.0), 40.0)) is None


def test_where_the_log_of_the_other_ends_nothing_is_known() -> None:
    assert stopped(SLOW, counterpart(FAST[:, :30], 40.0)) is None
    assert Counterpart(SHA, True, 0.5, ()).apart([], 30.0, 40.0) is None
    assert stopped_like(SLOW, SLOW[:, :25]) is None


def test_it_is_clear_of_the_line_and_like_its_own_run() -> None:
    for own, factor, reason in ((SLOW, 1.1, StopReason.NOT_ABOVE), (FAST, 0.9, StopReason.ABOVE)):
        stop = stopped_like(factor * own, own)
        assert stop is not None
        assert (ended(stop), stop.against) == ((reason, 14.5), SHA)
        assert stop.apart == pytest.approx(factor)
        assert stop.why.endswith(f"and it was {factor:.2f} times this kernel's whole run")


def test_what_is_not_like_its_own_run_goes_on() -> None:
    assert stopped_like(1.3 * SLOW, SLOW) is None
    assert stopped_like(1.1 * SLOW, SLOW, most=1.05) is None
    assert stopped_like(FAST, SLOW) is None
    assert stopped_like(SLOW, SLOW, line=505.0) is None  # like its own run, and not clear of the line


def test_what_becomes_fast_at_another_time_is_not_called_alike_before_both_are_fast() -> None:
    early, sooner, late = map(fast_from, (10, 30, 60))
    assert stopped_like(late, early) is None
    assert stopped_like(early, late) is None
    for run, other in ((sooner, early), (early, sooner)):
        stop = stopped_like(run, other)
        assert stop is not None
        assert stop.at_s > 29.0


def test_a_fast_kernel_is_not_called_slow_while_its_whole_run_was_slow_too() -> None:
    late = fast_from(60)
    slow = Alike(counterpart(late, 40.0, is_better=False), 1.25)
    assert ended(stopped(late, alike=slow, guard=40.0 / 3)) == (StopReason.NOT_ABOVE, 14.5)
    assert ended(stopped_like(late, late)) == (StopReason.ABOVE, 36.0)


RUNS = 20


@pytest.fixture
def world() -> World:
    """Of one length: all times follow from it."""
    return World(40.0, np.random.default_rng(20170514), RUNS)


def is_ever_clear(world: World, runs: Floats, others: Floats) -> bool:
    """Whether any run is ever clear of the other kernel's, whatever the line."""
    at_s, done = world.progress(runs)
    return any(
        counterpart(other, world.length_s).apart([(at_s[:n], job[:n]) for job in run], float(at_s[n - 1]), 40.0)
        for run, other in zip(done, others.reshape(RUNS, 2, -1, 20).mean(-1), strict=True)
        for n in range(at_s.size // 3, at_s.size + 1)
    )


def test_two_runs_of_one_kernel_are_not_clear_of_each_other(world: World) -> None:
    """With 5 % from run to run none of 60; with 10 % about 1 of 100, and then the line is still between."""
    for level in (22_000.0, 1_000.0):
        runs = [world.runs(*[np.full(world.at.size, level)] * 2) for _ in range(2)]
        one, other = (each * np.exp(world.rng.normal(0.0, 0.05, (RUNS, 1, 1))) for each in runs)
        assert not is_ever_clear(world, one, other)
    assert not is_ever_clear(world, *(world.runs(*[concave(world.at)] * 2) for _ in range(2)))


def test_a_kernel_that_collapses_after_good_minutes_is_not_called_fast(world: World) -> None:
    """The price of the line alone, which answers do not pay."""
    runs = world.runs(*[np.where(world.at < 0.4, 22_000.0, 1_000.0)] * 2)
    slow = world.runs(*[np.full(world.at.size, 1_000.0)] * 2).reshape(RUNS, 2, -1, 20).mean(-1)
    at_s, done = world.progress(runs)
    for run, other in zip(done, slow, strict=True):
        pair = counterpart(other, world.length_s, is_better=False)
        stop = stop_of(StopRule(LINE, world.length_s, counterparts=(pair,)), at_s, run, first=20)
        assert stop is None or stop.reason is not StopReason.ABOVE
