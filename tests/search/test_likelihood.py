"""What a reading is worth, and what it is not."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisector.core.verdict import Verdict
from bisector.search.graph import OLD_END, Kernel, RangeGraph, Reading, SearchFacts
from bisector.search.likelihood import (
    Cases,
    HostLevels,
    HostScale,
    ReadingTable,
    Sides,
    Weighing,
    log_likelihoods,
    with_sticky,
)
from bisector.search.noise import EarlierSearches, Level, Levels, Noise, Particles, Rates
from bisector.search.posterior import Posterior, posterior, prior

NOISE = Noise(old_as_new=0.003, new_as_old=0.05, sticky=0.01)
LEVELS = Levels(Level(math.log(1_000), 0.1), Level(math.log(20_000), 0.1))
OLD, NEW = Verdict.OLD, Verdict.NEW
LINE = RangeGraph.of([(), *((n,) for n in range(9))])


def reading(verdict: Verdict, figure: float | None = None, kernel: Kernel = Kernel.COMMIT) -> Reading:
    return Reading(1, kernel, verdict, None if figure is None else math.log(figure))


def sides(readings: Sequence[Reading], levels: Levels | None = None) -> Sides:
    cases = Cases(Rates.known(NOISE)) if levels is None else cases_of(levels, math.log(4_500))
    return log_likelihoods(ReadingTable.gather(readings), cases)


def cases_of(levels: Levels, line: float) -> Cases:
    return Cases(Rates.known(NOISE), {"": HostLevels(Particles.known(levels), HostScale((0.0, 0.0), line))})


def ratio(readings: Sequence[Reading], levels: Levels | None = None) -> float:
    """How much likelier the readings of one kernel are if it is new."""
    found = sides(readings, levels)
    return float(np.exp(found.new - found.old)[0, 0])


def test_a_verdict_counts_by_the_error_rates() -> None:
    assert ratio([reading(NEW)]) == pytest.approx(0.95 / 0.003)
    assert ratio([reading(OLD)]) == pytest.approx(0.05 / 0.997)
    assert ratio([reading(NEW), reading(OLD)]) == pytest.approx(0.95 / 0.003 * 0.05 / 0.997)
    assert ratio([reading(Verdict.MEASURED)]) == 1


@settings(max_examples=30)
@given(st.lists(st.sampled_from([OLD, NEW]), min_size=1, max_size=30))
def test_trust_in_one_kernel_saturates(verdicts: list[Verdict]) -> None:
    side = sides([reading(verdict) for verdict in verdicts])
    old, new = with_sticky(side.old, side.new, np.array([0.01]))
    assert abs(new - old).max() <= math.log(0.99 / 0.01) + 1e-9
    assert ((new - old) * (side.new - side.old) >= 0).all()


def test_a_figure_between_the_levels_says_little() -> None:
    assert ratio([reading(NEW, 20_000)], LEVELS) > 200
    assert ratio([reading(OLD, 1_000)], LEVELS) < 1 / 15
    for figure, says in ((4_000, 1 / 3), (5_000, 3), (400_000, 3)):
        assert ratio([reading(NEW, figure)], LEVELS) == pytest.approx(says, rel=0.35)
        assert ratio([reading(NEW, figure)] * 3, LEVELS) == pytest.approx(says**3, rel=0.8)


def test_a_verdict_misleads_by_what_the_levels_overlap_and_a_figure_wherever_the_line_is() -> None:
    near = Levels(Level(0.0, 0.1), Level(0.2, 0.1))
    between, beside = cases_of(near, 0.1), cases_of(near, 0.5)
    looks_new, looks_old = between.misleads()
    beyond = near.overlap
    assert between.overlap[0] == pytest.approx(beyond)
    assert looks_new[0] == pytest.approx(0.997 * beyond + 0.003 * (1 - beyond))
    assert looks_old[0] == pytest.approx(0.95 * beyond + 0.05 * (1 - beyond))
    assert beside.misleads()[1][0] > 0.9
    assert beside.misleads(figures=True)[1][0] == pytest.approx(looks_old[0])


def test_a_pick_in_vain_is_weak() -> None:
    """It is in vain in each of its runs, or in none: more of them tell no more."""
    old, new = (reading(verdict, kernel=Kernel.PICKED) for verdict in (OLD, NEW))
    assert ratio([old]) == pytest.approx(0.3 + 0.7 * 0.05 / 0.997)
    assert ratio([old] * 4) == pytest.approx(0.3, rel=1e-4)
    assert ratio([new]) == pytest.approx(0.3 + 0.7 * 0.95 / 0.003)
    for readings, in_vain in (([old], 0.895), ([old] * 4, 1.0), ([new], 0.00135), ([old, new], 0.0265)):
        assert sides(readings).in_vain[0, 0] == pytest.approx(in_vain, rel=0.01)
    assert sides([reading(OLD)]).in_vain[0, 0] == 0
    assert ratio([reading(OLD, 1_000, Kernel.PICKED)] * 3, LEVELS) == pytest.approx(0.3, rel=1e-3)


# What is learnt


def learnt(readings: Sequence[Reading], ends: tuple[float, float] | None = None, line: float = 0.0) -> Posterior:
    weighing = Weighing(Rates.unknown(), {} if ends is None else {"": HostScale(ends, line)})
    return posterior(LINE, prior(len(LINE)), SearchFacts(tuple(readings)), weighing)


def verdicts(kernel: int, verdict: Verdict, times: int) -> list[Reading]:
    return [Reading(kernel, Kernel.COMMIT, verdict)] * times


def test_rates_are_learnt_from_readings_of_the_ends() -> None:
    before = learnt([])
    quiet = learnt([*verdicts(OLD_END, OLD, 10), *verdicts(9, NEW, 10)])
    loud = learnt([*verdicts(OLD_END, OLD, 10), *verdicts(9, NEW, 10), *verdicts(9, OLD, 3)])
    assert quiet.noise.new_as_old < before.noise.new_as_old / 2
    assert quiet.noise.old_as_new < before.noise.old_as_new / 2
    assert loud.noise.new_as_old == pytest.approx(3 / 13, abs=0.09)
    assert loud.noise.old_as_new < before.noise.old_as_new


def test_the_posterior_is_the_sum_over_rates() -> None:
    readings = [*verdicts(2, OLD, 2), *verdicts(5, NEW, 1), *verdicts(6, OLD, 1), Reading(5, Kernel.REVERTED, OLD)]
    rates = Rates.unknown()
    parts = []
    for a, b, sticky, log_prior in zip(rates.old_as_new, rates.new_as_old, rates.sticky, rates.log_prior, strict=True):
        known = Weighing(Rates.known(Noise(float(a), float(b), float(sticky))))
        one = posterior(LINE, prior(len(LINE)), SearchFacts(tuple(readings)), known)
        parts.append((one.p, math.exp(one.joint.log_evidence + float(log_prior))))
    total = sum(weight for _, weight in parts)
    np.testing.assert_allclose(learnt(readings).p, sum(p * weight for p, weight in parts) / total, rtol=1e-9)


def figures(kernel: int, *values: float) -> list[Reading]:
    return [Reading(kernel, Kernel.COMMIT, NEW if value > 0.5 else OLD, value) for value in values]


def test_levels_and_spreads_are_learnt_for_each_side() -> None:
    rng = np.random.default_rng(3)
    old, new = 0.02 * rng.standard_t(4, 40), 1 + 0.15 * rng.standard_t(4, 40)
    levels = learnt([*figures(OLD_END, *old), *figures(9, *new)], (old[0], new[0]), 0.5).levels[""]
    assert levels.old.centre == pytest.approx(0, abs=0.01)
    assert levels.new.centre == pytest.approx(1, abs=0.1)
    assert levels.old.spread == pytest.approx(0.02, rel=0.3)
    assert levels.new.spread == pytest.approx(0.15, rel=0.3)


def test_a_stray_figure_moves_no_level() -> None:
    usual = [*figures(OLD_END, 0.0, 0.02), *figures(9, 3.0, 3.03), *figures(3, 0.01), *figures(7, 2.98)]
    levels = [learnt(readings, (0.0, 3.0), 1.5).levels[""] for readings in (usual, [*usual, *figures(4, 1.4)])]
    assert levels[1].old.centre == pytest.approx(levels[0].old.centre, abs=0.03)
    assert levels[1].new.centre == pytest.approx(levels[0].new.centre, abs=0.03)


def test_the_order_of_readings_makes_no_difference() -> None:
    rows = [*figures(OLD_END, 0.0, 0.1), *figures(9, 1.0, 1.2), *figures(4, 0.9, 0.2), *verdicts(6, NEW, 2)]
    np.testing.assert_array_equal(learnt(rows, (0.0, 1.0), 0.5).p, learnt(rows[::-1], (0.0, 1.0), 0.5).p)


def test_what_earlier_runs_read_is_believed_up_to_a_point() -> None:
    few, many = (Rates.unknown(earlier=EarlierSearches(better=n, worse=n)) for n in (10, 10_000))
    means = [float(np.exp(one.log_prior) @ one.new_as_old) for one in (Rates.unknown(), few, many)]
    assert means == sorted(means, reverse=True)
    top = np.exp(many.log_prior[many.new_as_old == many.new_as_old.max()]).sum()
    assert top > 0.005  # a host can become loud
    assert np.exp(many.log_prior).sum() == pytest.approx(1)
    wrong = Rates.unknown(earlier=EarlierSearches(better=20, better_contradicted=4))
    assert float(np.exp(wrong.log_prior) @ wrong.new_as_old) == pytest.approx(0.2, abs=0.06)


# Several hosts


def on_hosts(shift: float, new_of_second: float = 2.0) -> Posterior:
    """Both ends on two hosts, and commits that one or the other read; all figures of the second are shifted."""
    readings = [
        *figures_on("one", 0.0, (OLD_END, 0.0), (9, 1.0), (5, 1.02), (2, 0.05)),
        *figures_on("two", shift, (OLD_END, 0.1), (9, new_of_second), (4, 0.05), (6, new_of_second - 0.1)),
    ]
    middle = shift + (0.1 + new_of_second) / 2
    scales = {
        "one": HostScale((0.0, 1.0), 0.5),
        "two": HostScale((shift + 0.1, shift + new_of_second), middle),
    }
    return posterior(LINE, prior(len(LINE)), SearchFacts(tuple(readings)), Weighing(Rates.unknown(), scales))


def figures_on(host: str, shift: float, *values: tuple[int, float]) -> list[Reading]:
    return [
        Reading(commit, Kernel.COMMIT, NEW if value > 0.5 else OLD, value + shift, host=host)
        for commit, value in values
    ]


@pytest.mark.parametrize("shift", [-3.0, 0.7, 5.0])
def test_how_fast_another_host_is_says_nothing(shift: float) -> None:
    np.testing.assert_allclose(on_hosts(shift).p, on_hosts(0.0).p, rtol=0.01)


def test_a_figure_of_a_host_without_ends_says_nothing() -> None:
    readings = figures_on("one", 0.0, (OLD_END, 0.0), (9, 1.0), (5, 1.02), (2, 0.05))
    scales = {"one": HostScale((0.0, 1.0), 0.5)}
    known, more = (
        posterior(LINE, prior(len(LINE)), SearchFacts(tuple(all_of)), Weighing(Rates.unknown(), scales))
        for all_of in (readings, [*readings, *figures_on("two", 0.0, (3, 7.0))])
    )
    np.testing.assert_allclose(more.p, known.p, rtol=0.03)
