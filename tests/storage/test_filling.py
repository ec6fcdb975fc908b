"""How long a phase goes on that fills a cache."""

from dataclasses import replace

import pytest

from bisector.core.figures import Run, phase_name, round_name
from bisector.storage.layer import goes_on, not_full_before, unsteady
from tests import examples


def rounds(*seen: tuple[float | None, float | None]) -> list[Run]:
    """Rounds of the phase ``empty``: how full the cache was afterwards, and the hit ratio, in percent."""
    made = []
    for number, (filled, ratio) in enumerate(seen, 1):
        named = (("cache.filled", filled), ("cache.hit_ratio", ratio))
        counters = tuple((name, value) for name, value in named if value is not None)
        made.append(replace(examples.run(round_name("empty", number), 1.0, 1.0), counters=counters))
    return made


def test_a_cache_that_is_full_after_one_round_needs_no_other() -> None:
    assert not goes_on(rounds((100, 40)))
    assert not goes_on(rounds((95, 40)))
    assert goes_on(rounds((94.9, 40)))


def test_more_rounds_than_one_can_be_asked_for() -> None:
    assert goes_on(rounds((100, 40)), least=2)
    assert not goes_on(rounds((100, 40), (100, 44)), least=2)
    assert goes_on(rounds((100, 40), (100, 46)), least=2)


def test_a_cache_has_to_be_steady_once_there_is_a_round_before() -> None:
    filling = rounds((60, 30), (100, 31))
    assert goes_on(filling)
    assert list(unsteady(filling)) == [
        "the cache was not steady after 2 rounds: cache.filled went from 60.0 to 100.0 %"
    ]
    assert goes_on(rounds((60, 30), (100, 31), (100, 50)))
    assert not goes_on(rounds((60, 30), (100, 31), (100, 34)))
    assert not goes_on(rounds((94, None), (97, None)))  # not every kernel counts hits


def test_a_cache_that_takes_in_no_more_is_not_waited_for() -> None:
    assert goes_on(rounds((40, 30), (41, 30)))
    assert not goes_on(rounds((40, 30), (40.9, 30)))
    assert not goes_on(rounds((0, 0), (0, 0)))
    assert not goes_on(rounds((None, None)), least=3)  # nothing is counted
    assert list(unsteady(rounds((10, 10)))) == list(unsteady([])) == []


@pytest.mark.parametrize(
    ("counters", "why"),
    [
        ((("cache.filled_before", 94.0),), ["the cache was not full before the full run: 94.0 %"]),
        ((("cache.filled_before", 95.0),), []),
        ((), []),
    ],
)
def test_how_full_a_cache_was_before_a_run(counters: tuple[tuple[str, float], ...], why: list[str]) -> None:
    assert list(not_full_before(replace(examples.run("full", 1.0, 1.0), counters=counters))) == why


def test_rounds_tell_nothing_of_a_cache_that_was_filled_after_them() -> None:
    """As bcache is, which is far from full then; how full it was before the judged run is looked at by itself."""
    first, second = rounds((25, 30), (40, 60))
    assert len(list(unsteady([first, second]))) == 2
    assert not list(unsteady([first, replace(second, counters=(*second.counters, ("cache.fill", 7.9)))]))


def test_rounds_have_names_that_tell_their_phase() -> None:
    assert [round_name("empty", number) for number in (1, 2, 10)] == ["empty", "empty@2", "empty@10"]
    assert [phase_name(round_name("empty", number)) for number in (1, 2)] == ["empty", "empty"]
    assert [run.repeats for run in rounds((1, 1), (2, 2))] == [False, True]
