"""When a run is clear of its counterpart's, or like its own: by hand, and how often that errs on simulated runs."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from bisector.analysis.early_stop import Alike, Counterpart, Course, Floats, StopRule, batch_s
from bisector.core.figures import EarlyStop, StopReason
from tests.analysis.early_stops import LINE, World, concave, stop_of

SHA = "a1b2c3d4e5f6" + "0" * 28


def counterpart(run: Floats, length_s: float, *, is_better: bool = True) -> Counterpart:
    """A whole run, by job and batch."""
    return Counterpart(SHA, is_better, batch_s(length_s), tuple(tuple(map(float, job)) for job in run))


def steady(*levels: float, batches: int = 80) -> Floats:
    """Jobs at these rates, with a ripple so that there is some noise."""
    ripple = 1 + 0.02 * np.cos(np.arange(batches) * 1.7)
    rates: Floats = np.array(levels)[:, None] * ripple
    return rates


def stopped(run: Floats, *others: Counterpart, guard: float | None = 13.5, line: float = 2_000.0) -> EarlyStop | None:
    rule = StopRule(line, 40.0, guard, counterparts=others)
    at_s = np.arange(1, run.shape[1] + 1) * 0.5
    return stop_of(rule, at_s, np.cumsum(run, axis=1) * 0.5)


def test_it_is_clear_of_the_line_and_of_the_other_run() -> None:
    stop = stopped(steady(500.0, 510.0), counterpart(steady(4_000.0, 4_100.0), 40.0))
    assert stop is not None
    assert (stop.reason, stop.at_s, stop.against) == (StopReason.NOT_ABOVE, 20.0, SHA)
    assert stop.apart == pytest.approx(1 / 8)  # the ripple is in both, and cancels
    assert stop.why.endswith("and it was at least 8.0 times below the run of a1b2c3d4e5f6")
    alone = stopped(steady(500.0, 510.0))
    assert alone is not None
    assert (alone.at_s, alone.against, alone.apart) == (13.5, "", None)


def test_what_is_clear_of_the_line_alone_goes_on() -> None:
    """The other run was as slow at the same moments: it became fast later, and so may this one."""
    late = np.where(np.arange(80) < 64, steady(500.0, 510.0), steady(4_000.0, 4_100.0))
    assert stopped(steady(500.0, 510.0)) is not None
    assert stopped(steady(500.0, 510.0), counterpart(late, 40.0)) is None


def test_one_on_its_own_side_of_the_line_is_no_counterpart() -> None:
    other = counterpart(steady(500.0, 510.0), 40.0, is_better=False)
    assert stopped(steady(50.0, 51.0), other) is None
    assert stopped(steady(50.0, 51.0), replace(other, is_better=True)) is not None


def test_the_first_on_the_other_side_of_the_line_is_its_counterpart() -> None:
    """Which side a run is on is known when it is clear of the line."""
    slow = replace(counterpart(steady(510.0), 40.0, is_better=False), sha="1" * 40)
    fast, faster = (replace(counterpart(steady(one), 40.0), sha=f"{one:.0f}" * 10) for one in (4_000.0, 8_000.0))
    for level, against in ((500.0, fast.sha), (4_100.0, slow.sha)):
        stop = stopped(steady(level), slow, fast, faster)
        assert stop is not None
        assert stop.against == against
    assert stopped(steady(500.0), slow) is None


def test_the_worst_job_decides_as_it_does_for_the_line() -> None:
    """One job of the fast kernel starves: the sum would be apart, and the worst jobs are not."""
    assert stopped(steady(500.0, 510.0), counterpart(steady(9_000.0, 505.0), 40.0)) is None


def test_where_the_log_of_the_other_ends_nothing_is_known() -> None:
    other = counterpart(steady(4_000.0, 4_100.0, batches=30), 40.0)
    assert stopped(steady(500.0, 510.0), other) is None
    assert Counterpart(SHA, True, 0.5, ()).apart([], 30.0, 40.0) is None


def same(run: Floats, *, most: float = 1.25, is_better: bool = True) -> Alike:
    return Alike(counterpart(run, 40.0, is_better=is_better), most)


def stopped_like(run: Floats, alike: Alike, line: float = 2_000.0) -> EarlyStop | None:
    at_s = np.arange(1, run.shape[1] + 1) * 0.5
    return stop_of(StopRule(line, 40.0, 40.0 / 3, alike=alike), at_s, np.cumsum(run, axis=1) * 0.5)


def test_it_is_clear_of_the_line_and_like_its_own_run() -> None:
    own = steady(500.0, 510.0)
    stop = stopped_like(1.1 * own, same(own, is_better=False))
    assert stop is not None
    assert (stop.reason, stop.at_s, stop.against) == (StopReason.NOT_ABOVE, 14.5, SHA)
    assert stop.apart == pytest.approx(1.1)
    assert stop.why.endswith("and it was 1.10 times this kernel's whole run")
    fast = steady(4_000.0, 4_100.0)
    above = stopped_like(0.9 * fast, same(fast))
    assert above is not None
    assert (above.reason, above.at_s) == (StopReason.ABOVE, 14.5)
    assert above.apart == pytest.approx(0.9)


def test_what_is_not_like_its_own_run_goes_on() -> None:
    own = steady(500.0, 510.0)
    assert stopped_like(1.3 * own, same(own, is_better=False)) is None
    assert stopped_like(1.1 * own, same(own, most=1.05, is_better=False)) is None
    assert stopped_like(steady(4_000.0, 4_100.0), same(own, is_better=False)) is None
    # Like its own run, and not clear of the line.
    assert stopped_like(own, same(own, is_better=False), line=505.0) is None
    assert stopped_like(own, same(steady(500.0, 510.0, batches=25), is_better=False)) is None


def test_what_becomes_fast_at_another_time_is_not_called_alike_before_both_are_fast() -> None:
    late = np.where(np.arange(80) < 60, steady(500.0, 510.0), steady(4_000.0, 4_100.0))
    early = np.where(np.arange(80) < 10, steady(500.0, 510.0), steady(4_000.0, 4_100.0))
    assert stopped_like(late, same(early)) is None
    assert stopped_like(early, same(late)) is None
    sooner = np.where(np.arange(80) < 30, steady(500.0, 510.0), steady(4_000.0, 4_100.0))
    for run, other in ((sooner, early), (early, sooner)):
        stop = stopped_like(run, same(other))
        assert stop is not None
        assert stop.at_s > 29.0


def test_a_fast_kernel_is_not_called_slow_while_its_whole_run_was_slow_too() -> None:
    late = np.where(np.arange(80) < 60, steady(500.0, 510.0), steady(4_000.0, 4_100.0))
    slow = stopped_like(late, same(late, is_better=False))
    assert slow is not None
    assert (slow.reason, slow.at_s) == (StopReason.NOT_ABOVE, 14.5)
    stop = stopped_like(late, same(late))
    assert stop is not None
    assert (stop.reason, stop.at_s) == (StopReason.ABOVE, 36.0)


RUNS = 20


@pytest.fixture
def world() -> World:
    """Of one length: all times follow from it."""
    return World(40.0, np.random.default_rng(20170514), RUNS)


def from_run_to_run(world: World, runs: Floats, deviation: float) -> Floats:
    """What two runs of a kernel differ by from beginning to end."""
    moved: Floats = runs * np.exp(world.rng.normal(0.0, deviation, (RUNS, 1, 1)))
    return moved


def found_at(
    world: World, runs: Floats, others: Floats, ask: Callable[[Counterpart, list[Course], float], float | None]
) -> list[float | None]:
    """By what share of each run it was known what is asked of it and the other one; None where it never was."""
    at_s, done = world.progress(runs)
    found = []
    for run, other in zip(done, others.reshape(RUNS, 2, -1, 20).mean(-1), strict=True):
        pair = counterpart(other, world.length_s)
        looks = range(at_s.size // 3, at_s.size + 1)
        times = (n for n in looks if ask(pair, [(at_s[:n], job[:n]) for job in run], float(at_s[n - 1])) is not None)
        found.append(next((n / at_s.size for n in times), None))
    return found


def clear(world: World, runs: Floats, others: Floats) -> list[float | None]:
    """When each run was clear of the other kernel's, whatever the line."""
    return found_at(world, runs, others, lambda pair, run, at_s: pair.apart(run, at_s, world.length_s))


def alike(world: World, runs: Floats, others: Floats, most: float) -> list[float | None]:
    """When each run was like the other kernel's."""
    return found_at(world, runs, others, lambda pair, run, at_s: pair.alike(run, at_s, world.length_s, most))


def share(found: list[float | None]) -> float:
    return sum(one is not None for one in found) / len(found)


def test_two_runs_of_one_kernel_are_not_clear_of_each_other(world: World) -> None:
    """With 5 % from run to run none of 60; with 10 % about 1 of 100, and then the line is still between."""
    for level in (22_000.0, 1_000.0):
        flat = [np.full(world.at.size, level)] * 2
        both = [from_run_to_run(world, world.runs(*flat), 0.05) for _ in range(2)]
        assert share(clear(world, *both)) == 0
    assert share(clear(world, *(world.runs(*[concave(world.at)] * 2) for _ in range(2)))) == 0


def stops(
    world: World, runs: Floats, others: Floats, *, others_better: bool, guard: float | None
) -> list[EarlyStop | None]:
    """By the line and the other run, as in the loop."""
    at_s, done = world.progress(runs)
    batches = others.reshape(RUNS, 2, -1, 20).mean(-1)
    pairs = [counterpart(other, world.length_s, is_better=others_better) for other in batches]
    return [
        stop_of(StopRule(LINE, world.length_s, guard, counterparts=(pair,)), at_s, run, first=20)
        for pair, run in zip(pairs, done, strict=True)
    ]


def test_a_kernel_that_collapses_after_good_minutes_is_not_called_fast(world: World) -> None:
    """The price of the line alone, which answers do not pay."""
    runs = world.runs(*[np.where(world.at < 0.4, 22_000.0, 1_000.0)] * 2)
    slow = world.runs(*[np.full(world.at.size, 1_000.0)] * 2)
    found = stops(world, runs, slow, others_better=False, guard=None)
    assert [one for one in found if one is not None and one.reason is StopReason.ABOVE] == []
