"""How large the change of a suspect is, and what is read in turn before an answer is given."""

import math
from dataclasses import replace

import pytest

from bisector.search.effect import SuspectEffect, effect_of
from bisector.search.graph import OLD_END, Kernel, Reading, SearchFacts
from bisector.search.likelihood import Key
from bisector.search.noise import Level, Levels
from bisector.search.step import ChangedEndToRead, CommitToRead, Rules, Search, SearchAnswer, SearchEnding, decide
from tests.search.graphs import LINE, NOISE, TENTH, TIP, of_figures, plain, read

SUSPECT = 100
PARENT, ITSELF = (SUSPECT - 1, Kernel.COMMIT), (SUSPECT, Kernel.COMMIT)


def spread(commit: int, centre: float, times: int = 6) -> list[Reading]:
    return [read(commit, centre + NOISE[n % 6]) for n in range(times)]


def known(*more: Reading, effect: float = TENTH) -> SearchFacts:
    """Both ends and whole runs all over the range, and the new end without the suspect."""
    around = [(n, 0.0 if n < SUSPECT else effect) for n in (50, 75, 90, 95, 98, 102, 105, 110, 125, 150)]
    whole = [read(n, score + NOISE[n % 6]) for n, score in around]
    ends = [*spread(OLD_END, 0.0), *spread(TIP, effect)]
    return SearchFacts((*ends, *whole, read(SUSPECT, 0.003, Kernel.REVERTED), *more))


def effect_in(facts: SearchFacts, levels: Levels | None = None) -> SuspectEffect:
    found = effect_of(plain(LINE), facts, SUSPECT, {} if levels is None else {"": levels})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("effect", "shown", "refuted"),
    [
        (SuspectEffect((PARENT, ITSELF), (4, 4), 0.1, 0.04, 0.1), True, False),
        (SuspectEffect((PARENT, ITSELF), (4, 4), 0.1, 0.06, 0.1), False, False),  # it may be less than half
        (SuspectEffect((PARENT, ITSELF), (4, 4), 0.02, 0.04, 0.1), False, False),  # or more
        (SuspectEffect((PARENT, ITSELF), (4, 4), 0.02, 0.02, 0.1), False, True),
        (SuspectEffect((PARENT, ITSELF), (4, 4), -0.1, 0.04, -0.1), True, False),
        (SuspectEffect((PARENT, ITSELF), (4, 4), -0.1, 0.04, 0.1), False, True),  # the other way
        (SuspectEffect((PARENT, ITSELF), (0, 4), 0.0, math.inf, 0.1), False, False),
        (SuspectEffect((PARENT, ITSELF), (1, 0), 0.0, math.inf, 0.7), True, False),  # is seen in whole runs
    ],
)
def test_an_effect_is_shown_where_its_interval_excludes_half_of_what_the_ends_differ_by(
    effect: SuspectEffect, shown: bool, refuted: bool
) -> None:
    assert (effect.is_shown, effect.is_refuted) == (shown, refuted)


def test_the_effect_is_that_of_the_commit_beside_its_parent_by_the_spread_of_all_kernels() -> None:
    facts = known(*spread(99, 0.0, 2), *spread(100, 0.09, 2))
    found = effect_in(facts)
    assert (found.sides, found.counts) == ((PARENT, ITSELF), (2, 2))
    assert (found.mean, found.of_ends) == pytest.approx((0.09, TENTH))
    # 12 readings of the ends and 4 of these two around 4 means: 12 degrees of freedom, of which t is 2.179
    squares = 2 * sum(one**2 for one in NOISE) + 2 * sum(one**2 for one in NOISE[:2])
    assert found.half_width == pytest.approx(2.1788 * math.sqrt(squares / 12), rel=1e-4)


def test_figures_of_hosts_are_seen_from_the_middle_of_their_own_ends() -> None:
    facts = known(*spread(99, 0.0, 2), *spread(100, 0.09, 2))
    other = [replace(one, score=(one.score or 0.0) + 3, host="other") for one in facts.readings]
    alone, both = effect_in(facts), effect_in(SearchFacts((*facts.readings, *other)))
    assert both.mean == pytest.approx(alone.mean)
    assert both.counts == (4, 4)
    assert both.half_width < alone.half_width
    unknown = [one for one in other if one.commit not in (OLD_END, TIP)]  # a host without ends
    assert effect_in(SearchFacts((*facts.readings, *unknown))) == alone


@pytest.mark.parametrize("closed", [99, 100])
def test_where_one_of_both_cannot_be_tested_it_is_the_new_end_without_it(closed: int) -> None:
    facts = replace(known(), skips=(closed,))
    found = effect_in(facts)
    assert found.sides == ((SUSPECT, Kernel.REVERTED), (TIP, Kernel.COMMIT))
    assert found.counts == (1, 0)  # six readings of the end were made before the search
    later = effect_in(facts.with_reading(read(TIP, TENTH)))
    assert later.counts == (1, 1)
    assert later.mean == pytest.approx(TENTH - 0.003)
    assert effect_of(plain(LINE), replace(facts, failed=((SUSPECT, Kernel.REVERTED),)), SUSPECT, {}) is None


def steps(facts: SearchFacts, centres: dict[int, float], asked: Search) -> tuple[list[Key], SearchAnswer]:
    """What is read until there is an answer."""
    order = list[Key]()
    while not isinstance(decision := decide(plain(LINE), facts, asked), SearchAnswer):
        assert isinstance(decision, (CommitToRead, ChangedEndToRead))
        assert len(order) < 40
        order.append(decision.of)
        centre = centres[decision.commit] if isinstance(decision, CommitToRead) else 0.0
        facts = facts.with_reading(read(decision.commit, centre + NOISE[len(order) % 6], decision.of[1]))
    return order, decision


CENTRES = {n: 0.0 if n < SUSPECT else TENTH for n in range(-1, 200)}


@pytest.mark.parametrize(
    ("effect", "apart", "held_against"),
    [
        (TENTH, 0.07, 0.07),
        (TENTH, 0.2, TENTH),  # never more than the ends showed
        (TENTH, 0.01, TENTH / 2),  # and never less than half of it
        (math.log(3), 0.07, math.log(3)),  # whole runs show it
    ],
)
def test_it_is_held_against_what_all_readings_leave_of_what_the_ends_differ_by(
    effect: float, apart: float, held_against: float
) -> None:
    levels = Levels(Level(0.0, 0.01, 1.0), Level(apart + 0.02, 0.01, 3.0), 0.01)
    assert effect_in(known(effect=effect), levels).of_ends == pytest.approx(held_against)


def test_a_small_change_is_named_once_it_is_shown_by_readings_in_turn() -> None:
    _, answer = steps(known(*spread(99, 0.0, 1), *spread(100, TENTH, 1)), CENTRES, of_figures())
    assert (answer.ending, answer.commit) == (SearchEnding.FOUND, SUSPECT)
    assert answer.effect is not None
    assert answer.effect.is_shown


def test_a_change_that_its_own_readings_do_not_show_is_not_named() -> None:
    """Whatever all others say: a fifth of what the ends differ by is the most that the commit itself does."""
    before, after = 0.4 * TENTH, 0.6 * TENTH
    facts = known(*spread(99, before, 3), *spread(100, after, 3))
    order, answer = steps(facts, CENTRES | {99: before, 100: after}, of_figures(rules=Rules(max_pairs=12)))
    assert answer.ending is not SearchEnding.FOUND
    assert max(map(order.count, (PARENT, ITSELF))) < 9  # more readings would not show it either
    assert not {(OLD_END, Kernel.COMMIT), (TIP, Kernel.COMMIT)} & set(order)  # something did change


def test_a_kernel_on_neither_ends_level_is_not_read_for_ever() -> None:
    """Its figures do not count, and its side does: what it is lies beyond both ends."""
    facts, asked = known(*spread(99, 0.0, 2)), of_figures()
    for _ in range(12):
        decision = decide(plain(LINE), facts, asked)
        if isinstance(decision, SearchAnswer):
            break
        assert isinstance(decision, (CommitToRead, ChangedEndToRead))
        beyond = decision.of == ITSELF
        made = read(decision.commit, TENTH if beyond else CENTRES[decision.commit], decision.of[1])
        facts = facts.with_reading(replace(made, score=None) if beyond else made)
    assert isinstance(decision, SearchAnswer)
    assert decision.ending is not SearchEnding.FOUND
