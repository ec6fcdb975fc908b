"""What is chosen beside what is in flight."""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisector.core.verdict import Verdict
from bisector.search.choice import Costs, Outcomes, kernel_gain_bits, prospects
from bisector.search.graph import Kernel, RangeGraph, Reading, SearchFacts, new_under
from bisector.search.likelihood import Key, Weighing
from bisector.search.noise import Noise, Rates
from bisector.search.posterior import Posterior, posterior, prior
from bisector.search.step import ChangedEndToRead, CommitToRead, Hold, Search, believe, decide, pointless
from tests.search.graphs import LINE, QUIET, answer_of, graphs, kernel_like, plain, trial_of

NOISE = Noise(0.1, 0.2, 0.05)
NOISY = Search(Weighing(Rates.known(NOISE)))
OLD, NEW = Verdict.OLD, Verdict.NEW
SHORT = RangeGraph.of([(), *((n,) for n in range(3))])


def commit(number: int) -> Key:
    return number, Kernel.COMMIT


def entropy(p: np.ndarray) -> float:
    return float(-(p[p > 0] * np.log2(p[p > 0])).sum())


def joint_bits(graph: RangeGraph, belief: Posterior, kernels: tuple[Key, ...]) -> float:
    """What readings of all these kernels tell together, by a sum over all that they may show."""
    every = np.arange(len(graph))
    told = 0.0
    for shown in product((False, True), repeat=len(kernels)):
        after = belief.p.copy()
        for (number, kernel), says_new in zip(kernels, shown, strict=True):
            chances, is_new = belief.chances(number, kernel), new_under(graph, number, kernel, every)
            new = np.where(is_new, 1 - chances.looks_old, chances.looks_new)
            after *= new if says_new else 1 - new
        if after.sum() > 0:
            told += after.sum() * entropy(after / after.sum())
    return entropy(belief.p) - told


@pytest.mark.parametrize(
    "in_flight", [(), (commit(20),), (commit(20), commit(41)), (commit(30), (30, Kernel.REVERTED))]
)
def test_a_gain_is_what_is_told_together_less_what_is_told_anyway(in_flight: tuple[Key, ...]) -> None:
    graph = kernel_like(60)
    read = SearchFacts((Reading(25, Kernel.COMMIT, NEW), Reading(25, Kernel.COMMIT, OLD)), in_flight=in_flight)
    belief = posterior(graph, prior(len(graph)), read, NOISY.weighing)
    outlook = prospects(graph, belief, read, Costs())
    anyway = joint_bits(graph, belief, in_flight)
    for number in (5, 25, 33, 50):
        expected = joint_bits(graph, belief, (*in_flight, commit(number))) - anyway
        assert outlook.sound_bits[number] == pytest.approx(expected, abs=1e-9)
        for kernel in (Kernel.COMMIT, Kernel.REVERTED, Kernel.PICKED):
            expected = joint_bits(graph, belief, (*in_flight, (number, kernel))) - anyway
            gain = kernel_gain_bits(graph, belief, outlook.outcomes, number, kernel)
            assert gain == pytest.approx(expected, abs=1e-9)


def test_outcomes_are_those_that_are_likely() -> None:
    in_flight = tuple(commit(number) for number in range(10, 190, 20))
    belief = believe(plain(LINE), SearchFacts(), QUIET)
    found = Outcomes.expected(LINE, belief, in_flight)
    assert len(found.probability) == 10  # of a line without noise: each is new from a place on
    assert found.probability.sum() == pytest.approx(1)
    np.testing.assert_allclose(found.probability @ found.new(LINE), LINE.mass(belief.p), atol=0.01)
    assert len(Outcomes.expected(LINE, believe(plain(LINE), SearchFacts(), NOISY), in_flight).probability) == 64


@pytest.mark.parametrize("hosts", [2, 3, 7])
def test_hosts_part_a_line_evenly(hosts: int) -> None:
    """Without noise k trials cut a line into k + 1 parts, which tells log2(k + 1) bits."""
    facts, builds = SearchFacts(), np.zeros(len(LINE))
    search = replace(QUIET, costs=Costs(builds_min=builds))
    for _ in range(hosts):
        facts = replace(facts, in_flight=(*facts.in_flight, trial_of(facts, search).of))
    belief = believe(plain(LINE), SearchFacts(), QUIET)
    assert joint_bits(LINE, belief, facts.in_flight) > 0.9 * np.log2(hosts + 1)


@settings(max_examples=8, deadline=None)
@given(graphs(), st.data())
def test_nothing_is_in_flight_twice_and_its_order_makes_no_difference(graph: RangeGraph, data: st.DataObject) -> None:
    problem, facts, steps = plain(graph), SearchFacts(), []
    for _ in range(4):
        step = decide(problem, facts, QUIET)
        if not isinstance(step, CommitToRead | ChangedEndToRead):
            break
        assert step.of not in facts.in_flight
        steps.append(step)
        facts = replace(facts, in_flight=(*facts.in_flight, step.of))
    chosen = data.draw(st.sampled_from(list(permutations(facts.in_flight))))
    one, other = (decide(problem, replace(facts, in_flight=order), QUIET) for order in (facts.in_flight, chosen))
    assert type(one) is type(other)
    if isinstance(one, CommitToRead | ChangedEndToRead) and isinstance(other, CommitToRead | ChangedEndToRead):
        gains = [
            kernel_gain_bits(graph, belief, Outcomes.expected(graph, belief, facts.in_flight), *step.of)
            for belief in (believe(problem, facts, QUIET),)
            for step in (one, other)
        ]
        assert gains[0] == pytest.approx(gains[1], abs=1e-6)


def readings(*shown: tuple[int, Verdict]) -> SearchFacts:
    return SearchFacts(tuple(Reading(number, Kernel.COMMIT, verdict) for number, verdict in shown))


def stopped_early(*shown: tuple[int, Verdict]) -> SearchFacts:
    return SearchFacts(tuple(replace(one, full=False) for one in readings(*shown).readings))


def test_all_that_an_answer_lacks_is_measured_at_once() -> None:
    """Both sides of the change were read in runs that were stopped early: three hosts confirm, and a fourth waits."""
    facts, found = stopped_early((1, OLD), (2, NEW)), list[Key]()
    while isinstance(step := decide(plain(SHORT), facts, QUIET), CommitToRead | ChangedEndToRead):
        found.append(step.of)
        facts = replace(facts, in_flight=tuple(found))
    assert found == [(2, Kernel.REVERTED), commit(2), commit(1)]
    assert step == Hold()


def test_an_answer_does_not_wait_for_what_it_does_not_lack() -> None:
    facts = readings((99, OLD), (100, NEW)).with_reading(Reading(100, Kernel.REVERTED, OLD))
    assert answer_of(replace(facts, in_flight=(commit(50),)), QUIET) == answer_of(facts, QUIET)


def test_a_search_that_knows_too_little_waits_for_what_is_in_flight() -> None:
    """Two commits, the older one in flight: nothing else tells them apart, and nothing is named before."""
    two = RangeGraph.of([(), (0,)])
    facts = SearchFacts(in_flight=(commit(0), (0, Kernel.REVERTED), (1, Kernel.REVERTED)), failed=((0, Kernel.PICKED),))
    facts = facts.with_failed(1, Kernel.PICKED)
    assert decide(plain(two), replace(facts, in_flight=(*facts.in_flight, commit(1))), QUIET) == Hold()


def given_up(
    facts: SearchFacts,
    left_min: dict[Key, float],
    graph: RangeGraph = LINE,
    search: Search = QUIET,
    *,
    others_wait: bool = False,
) -> Key | None:
    """Which of the kernels in flight is not worth the minutes that are left of it."""
    problem, facts = plain(graph), replace(facts, in_flight=tuple(left_min))
    return pointless(problem, facts, search, believe(problem, facts, search), left_min, others_wait=others_wait)


def test_what_tells_next_to_nothing_any_more_is_pointless() -> None:
    between = readings((80, OLD), (120, NEW))
    assert given_up(between, {commit(20): 20.0, commit(100): 20.0}) == commit(20)
    assert given_up(between, {commit(100): 20.0}) is None
    # A quarter of the range beside a better half of it: worth the last minutes, and not a whole trial.
    assert given_up(between, {commit(85): 60.0}) == commit(85)
    assert given_up(between, {commit(85): 1.0}) is None


def test_what_an_answer_does_not_lack_makes_room_for_what_it_needs() -> None:
    """Nearly done as it is: what it may tell is not worth that the suspect's answer comes later."""
    facts = readings(*[(1, OLD)] * 3, *[(2, NEW)] * 3)
    for waits, expected in ((False, None), (True, commit(0))):
        assert given_up(facts, {commit(0): 0.01}, SHORT, NOISY, others_wait=waits) == expected


def test_what_an_answer_lacks_stays_in_flight_and_the_rest_does_not() -> None:
    facts, lacking = stopped_early((1, OLD), (2, NEW)), {commit(2): 30.0, (2, Kernel.REVERTED): 30.0}
    assert given_up(facts, lacking | {commit(0): 1.0}, SHORT) == commit(0)
    assert given_up(facts, lacking, SHORT) is None
