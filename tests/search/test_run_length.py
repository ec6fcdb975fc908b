"""Where the spread of readings comes from, and which length of a run tells a change in the least time."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from bisector.search.apart import pairs_to_tell
from bisector.search.run_length import PAIRS, Advice, Floats, Spread, Trials, advice

NOW_S = 40.0
SAMPLES = 80  # of half a second
FLAT = np.ones(SAMPLES)


def courses(
    draw: np.random.Generator, spread: Spread, trials: int, shape: Floats = FLAT, alike: float = 0.0
) -> tuple[tuple[tuple[Floats, ...], ...], float]:
    """So many runs of each of two kernels, each sample ``alike`` the one before, and the deviation of their means."""
    deviation = math.sqrt(spread.within_s / (NOW_S / SAMPLES))
    found = []
    for _ in range(2):
        levels = np.exp(draw.normal(0, math.sqrt(spread.between), (trials, 1)))
        noise = draw.normal(0, deviation, (trials, SAMPLES + 1)) * math.sqrt((1 - alike) / (1 + alike))
        for place in range(1, SAMPLES + 1):  # of the same variance over a long run, whatever the samples have in common
            noise[:, place] = alike * noise[:, place - 1] + math.sqrt(1 - alike**2) * noise[:, place]
        found.append(1000 * levels * shape * (1 + noise[:, 1:]))
    variance = np.mean([np.log(one.mean(axis=1)).var(ddof=1) for one in found])
    return tuple(tuple(one) for one in found), math.sqrt(variance)


def seen(of: tuple[tuple[tuple[Floats, ...], ...], float]) -> Spread:
    found = Spread.seen(*of, NOW_S)
    assert found is not None
    return found


@pytest.mark.parametrize("shape", [FLAT, np.linspace(0.2, 1.8, SAMPLES)], ids=["steady", "becomes warm"])
@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_the_spread_within_runs_and_that_between_trials_are_told_apart(shape: Floats, alike: float) -> None:
    real = Spread(0.02**2, 0.03**2 * NOW_S)
    found = seen(courses(np.random.default_rng(1), real, 400, shape, alike))
    # Samples that have much in common make batches that have some: what these have counts as that of trials.
    assert found.within_s == pytest.approx(real.within_s, rel=0.25)
    assert found.between == pytest.approx(real.between, rel=0.5)
    assert found.of(NOW_S) ** 2 == pytest.approx(real.between + real.within_s / NOW_S, rel=0.3)


def test_no_part_is_less_than_nothing() -> None:
    draw = np.random.default_rng(2)
    for _ in range(50):
        found = seen(courses(draw, Spread(0.0, 0.05**2 * NOW_S), PAIRS))
        assert found.between >= 0
        assert found.within_s > 0


def test_nothing_is_told_by_one_run_of_each_kernel_or_by_runs_too_short_for_their_logs() -> None:
    one = FLAT * 1000
    assert Spread.seen([[one], [one]], 0.1, NOW_S) is None
    assert Spread.seen([[one[:9], one[:9]]], 0.1, NOW_S) is None
    assert Spread.seen([[one * 0, one]], 0.1, NOW_S) is None
    assert Spread.seen([[one, one], [one]], 0.1, NOW_S) == Spread(0.1**2, 0.0)


def advised(
    between: float, within: float, *, around_s: float = 20.0, runs: int = 1, read: int = PAIRS, may_shrink: bool = True
) -> Advice:
    """For a change of 5 %, given both parts of the deviation of runs as long as they are."""
    spread = Spread(between**2, within**2 * NOW_S)
    return advice(spread, Trials(around_s, runs), 0.05, NOW_S, read=read, may_shrink=may_shrink)


def test_runs_are_longer_where_their_own_noise_dominates_and_shorter_where_the_boots_does() -> None:
    longer, shorter = advised(0.0, 0.06, around_s=60.0), advised(0.06, 0.0)
    assert (longer.best.runtime_s, longer.pays) == (4 * NOW_S, True)
    assert (shorter.best.runtime_s, shorter.pays) == (10.0, True)
    assert not advised(0.0, 0.06, around_s=10.0).pays  # where runs are nearly all of a trial
    assert not advised(0.06, 0.0, around_s=300.0).pays  # where they are little of it


@pytest.mark.parametrize(("between", "within"), [(0.04, 0.04), (0.03, 0.05), (0.05, 0.03), (0.02, 0.06)])
@pytest.mark.parametrize("around_s", [10.0, 40.0])
@pytest.mark.parametrize("runs", [1, 2])
def test_the_best_length_is_the_one_of_two_stage_sampling(
    between: float, within: float, around_s: float, runs: int
) -> None:
    """But for the steps, and for pairs of which there is a whole number."""
    optimum_s = math.sqrt(within**2 * NOW_S * around_s / (between**2 * runs))
    best_s = advised(between, within, around_s=around_s, runs=runs).best.runtime_s
    assert abs(math.log2(best_s / min(max(optimum_s, 10.0), 4 * NOW_S))) < 0.6


def test_what_was_read_already_counts_for_the_length_that_it_was_read_with() -> None:
    found = advised(0.03, 0.0)
    pairs = pairs_to_tell(0.03, 0.05)
    assert pairs == found.now.pairs == 24
    assert found.now.took_s == 2 * (pairs - PAIRS) * (20.0 + NOW_S)
    assert found.pays
    assert not advised(0.03, 0.0, read=12).pays


def test_no_run_is_shorter_than_it_may_be() -> None:
    assert advised(0.06, 0.0, around_s=1.0).best.runtime_s == 10.0
    assert advised(0.06, 0.0, around_s=1.0, may_shrink=False).best.runtime_s == NOW_S


def test_where_no_length_tells_anything_all_stays_as_it_is() -> None:
    found = advised(50.0, 0.0, may_shrink=False)
    assert (found.now.pairs, found.best.runtime_s, found.pays) == (None, NOW_S, False)
    possible = advised(0.0, 2.0, may_shrink=False)
    assert (possible.now.pairs, possible.best.pairs is None, possible.pays) == (None, False, True)


def _cost(draw: np.random.Generator, spread: Spread, around_s: float, pairs: int) -> float:
    """What a length that is chosen by so many pairs makes of the time that the ends take: 1 is as without choosing."""
    trials = Trials(around_s, 1)

    def all_s(runtime_s: float) -> float:
        return 2 * (pairs_to_tell(spread.of(runtime_s), 0.05) or math.inf) * trials.trial_s(runtime_s)

    made_s, found = 2 * pairs * trials.trial_s(NOW_S), []
    for _ in range(40):
        chosen = advice(seen(courses(draw, spread, pairs)), trials, 0.05, NOW_S, read=pairs, may_shrink=True)
        found.append((made_s + all_s(chosen.best.runtime_s) if chosen.pays else all_s(NOW_S)) / all_s(NOW_S))
    return float(np.mean(found))


@pytest.mark.parametrize(
    ("between", "within", "around_s", "fits"),
    [
        (0.0, 0.06, 100.0, lambda cost: cost < 0.8),
        (0.06, 0.0, 4.0, lambda cost: cost < 0.6),
        (0.0, 0.06, 20.0, lambda cost: cost < 1.03),
        (0.042, 0.042, 20.0, lambda cost: cost < 1.03),
        (0.03, 0.05, 20.0, lambda cost: cost < 1.03),
        (0.05, 0.03, 20.0, lambda cost: cost < 1.06),
    ],
)
def test_a_length_that_few_pairs_choose_saves_much_where_it_can_and_costs_little_elsewhere(
    between: float, within: float, around_s: float, fits: Callable[[float], bool]
) -> None:
    cost = _cost(np.random.default_rng(3), Spread(between**2, within**2 * NOW_S), around_s, PAIRS)
    assert fits(cost), cost
