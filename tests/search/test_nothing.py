"""Whether nothing in the range changed: what readings say of it, and what is read because of it."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bisector.core.verdict import Strategy, Verdict
from bisector.search.graph import OLD_END, Kernel, RangeGraph, Reading, SearchFacts
from bisector.search.simulate.runs import Summary, search_for, simulate
from bisector.search.simulate.world import Conditions
from bisector.search.step import CommitToRead, Rules, SearchAnswer, SearchEnding, believe, decide
from tests.search.graphs import LINE, NOISE, TENTH, TIP, answer_of, kernel_like, of_figures, plain, read

CULPRIT = 100
ENDS = (OLD_END, TIP)
TRIED = (100, 50, 150, 25, 175, 12, 187, 6, 193, 3, 196)


def ends(host: str = "", above: float = 0.0, level: float = TENTH) -> list[Reading]:
    levels = dict(zip(ENDS, (above, above + level), strict=True))
    return [read(end, levels[end] + noise, host=host) for noise in NOISE for end in ENDS]


def on(level: float, tried: Sequence[int] = TRIED, per_hour: float = 0.0) -> list[Reading]:
    """Readings half an hour apart on one level, which grows by so much in an hour."""
    return [
        read(commit, level + NOISE[n % 6] + per_hour * n / 2, hour=n / 2) for n, commit in enumerate(tried, start=1)
    ]


def nothing(*readings: Reading, hosts: Sequence[str] = ()) -> float:
    return believe(plain(LINE), SearchFacts(readings), of_figures(*hosts)).nothing


def test_while_the_ends_alone_were_read_it_is_by_these() -> None:
    assert nothing(*ends()) < 1e-3
    assert nothing(*ends(level=0.004)) > 0.05  # which are hardly apart


@pytest.mark.parametrize("apart", [TENTH, math.log(3)])
def test_in_a_range_of_one_commit_the_readings_of_the_ends_are_the_pairs(apart: float) -> None:
    graph = RangeGraph.of([()])
    readings = [
        Reading(end, Kernel.COMMIT, side, level + noise)
        for noise in NOISE
        for end, side, level in ((OLD_END, Verdict.OLD, 0.0), (0, Verdict.NEW, apart))
    ]
    failed = ((0, Kernel.REVERTED), (0, Kernel.PICKED))
    answer = answer_of(SearchFacts(tuple(readings), failed=failed), of_figures(apart=apart), graph)
    assert answer.ending is SearchEnding.FOUND
    assert answer.effect is not None
    assert answer.effect.counts == (6, 6)
    # Twelve readings that spread by 0.0111 about two means: 2.228 * 0.0111 * sqrt(1/6 + 1/6)
    assert answer.effect.half_width == pytest.approx(0.0143, abs=2e-4)


@pytest.mark.parametrize(("level", "per_hour"), [(0.0, 0.0), (TENTH / 2, 0.01), (TENTH, -0.01), (1.5 * TENTH, 0.0)])
def test_readings_on_one_level_speak_for_it(level: float, per_hour: float) -> None:
    assert nothing(*ends(), *on(level, per_hour=per_hour)) > 0.6


@pytest.mark.parametrize("per_hour", [0.0, 0.01])
def test_readings_on_two_levels_speak_against_it(per_hour: float) -> None:
    levels = [TENTH if commit >= CULPRIT else 0.0 for commit in TRIED]
    readings = [
        read(one.commit, one.score + level, hour=one.hour)
        for one, level in zip(on(0.0, per_hour=per_hour), levels, strict=True)
        if one.score is not None
    ]
    assert nothing(*ends(), *readings) < 1e-3


def test_verdicts_of_runs_that_were_stopped_early_count_beside_figures() -> None:
    stopped = [Reading(commit, Kernel.COMMIT, Verdict.OLD, full=False) for commit in (150, 175, 187, 193, 196, 198)]
    assert nothing(*ends(), *stopped) > 0.5
    mixed = [*stopped[:-1], Reading(198, Kernel.COMMIT, Verdict.NEW, full=False)]
    assert nothing(*ends(), *mixed) < 0.1


def test_each_host_has_a_level_of_its_own() -> None:
    """All figures of the second one are higher."""
    both = [*ends("a"), *ends("b", above=1.0)]
    tried = {"a": (90, 110, 25, 175, 6, 193), "b": (75, 125, 12, 187, 3, 196)}
    same, apart = (
        [
            read(commit, (host == "b") + noise + (change if commit >= CULPRIT else 0.0), hour=hour, host=host)
            for host, commits in tried.items()
            for hour, (commit, noise) in enumerate(zip(commits, NOISE, strict=True), start=1)
        ]
        for change in (0.0, TENTH)
    )
    assert nothing(*both, *same, hosts="ab") > 0.3
    assert nothing(*both, *apart, hosts="ab") < 0.001
    first = [one for one in same if one.host == "a"]
    assert nothing(*both, *first, hosts="ab") == pytest.approx(nothing(*ends("a"), *first, hosts="a"), rel=0.05)


def test_it_is_an_answer_once_both_ends_confirm_it() -> None:
    readings = [*ends(), *on(0.0)]
    for n in range(20):
        step = decide(plain(LINE), SearchFacts(tuple(readings)), of_figures())
        if not isinstance(step, CommitToRead):
            break
        assert step.commit in ENDS
        readings.append(read(step.commit, NOISE[n % 6], hour=4 + n / 2))
    assert isinstance(step, SearchAnswer)
    assert step.ending is SearchEnding.NO_CHANGE
    assert step.nothing > 0.9
    assert step.of_all is not None
    assert 2 <= min(step.of_all.counts) <= 4


def test_it_is_none_while_it_is_likely_and_the_ends_were_not_read_again() -> None:
    late = replace(of_figures(), left_min=1.0)  # for no trial at all
    answer = answer_of(SearchFacts((*ends(), *on(0.0))), late)
    assert (answer.ending, answer.out_of_time) == (SearchEnding.NARROWED, True)


def test_no_commit_is_named_while_nothing_may_have_changed() -> None:
    """A factor of 2 needs no pairs; the new end was read before the search alone, and all commits are on one level."""
    large = math.log(3)
    tried = tuple(range(199 - 20, 199))
    readings = SearchFacts((read(OLD_END, 0.0), read(TIP, large), *on(0.0, tried)))
    at_its_end = of_figures(apart=large, rules=Rules(max_runs=1, patience=0.0))
    answer = answer_of(readings, at_its_end)
    assert answer.probability > Rules().target
    assert answer.nothing > 1 - Rules().target
    assert answer.ending is SearchEnding.NARROWED
    assert answer_of(readings.with_reading(read(TIP, large, hour=12.0)), at_its_end).ending is SearchEnding.FOUND


def test_ends_that_differ_by_the_day_end_as_no_change() -> None:
    day = Conditions(effect=1.3, spread=0.05, drift=0.01, of_the_day=True)
    results = tuple(simulate(kernel_like(1000), Strategy.BAYES, day, search_for(day), seed=4, trials=2))
    assert [one.ending for one in results] == [SearchEnding.NO_CHANGE] * 2
    assert Summary.of(results).success_rate == 1
    assert max(one.evaluations - one.ends_again for one in results) <= 40
