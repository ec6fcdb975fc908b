"""How many contradictions are too many, and which runs an answer rests on."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from bisector.core.verdict import Verdict
from bisector.search.choice import Problem, borne_out, contradicted, missing_whole_runs, undecided_revert, undo_options
from bisector.search.graph import RangeGraph
from bisector.search.likelihood import Kernel, Noise, Reading, Weighing
from bisector.search.posterior import Facts, as_mask, fit, posterior, prior

LINE = RangeGraph.of([(), *((n,) for n in range(9))])
FORK = RangeGraph.of([(), (0,), (0,), (1, 2), (3,)])
OLD, NEW = Verdict.OLD, Verdict.NEW


def commit(number: int, verdict: Verdict, *, full: bool = True) -> Reading:
    return Reading(number, Kernel.COMMIT, verdict, full=full)


def test_contradictions_are_weighed_exactly() -> None:
    noise = Noise(old_as_new=0.1, new_as_old=0.2, sticky=0.05)
    readings = (commit(2, OLD), commit(2, NEW), commit(7, OLD), Reading(5, Kernel.REVERTED, OLD))
    fitted = fit(LINE, Facts(readings), 5, noise)
    # Kernel 2 is old, and so is the end without 5; 7 is new. P(wrong readings) of each, one by one:
    chances = []
    for stuck in itertools.product((False, True), repeat=3):
        p_stuck = np.prod([noise.sticky if one else 1 - noise.sticky for one in stuck])
        rates = [(0.8, 0.8, 0.9, 0.8)[n] if stuck[k] else (0.1, 0.1, 0.2, 0.1)[n] for n, k in enumerate((0, 0, 1, 2))]
        for wrong in itertools.product((False, True), repeat=4):
            p = p_stuck * np.prod([rate if one else 1 - rate for rate, one in zip(rates, wrong, strict=True)])
            chances.append((sum(wrong), p))
    assert fitted.contradictions == 2
    assert fitted.expected == pytest.approx(sum(count * p for count, p in chances))
    assert fitted.tail == pytest.approx(sum(p for count, p in chances if count >= 2))
    assert fitted.one_change


def test_no_reading_is_no_contradiction() -> None:
    fitted = fit(LINE, Facts(), 5, Noise())
    assert (fitted.contradictions, fitted.expected, fitted.tail) == (0, 0.0, 1.0)


def test_too_many_contradictions() -> None:
    readings = tuple(commit(number, NEW) for number in range(3))
    assert not fit(LINE, Facts(readings), 8, Noise()).one_change


def test_the_culprit_and_all_testable_parents_run_whole() -> None:
    problem = Problem(FORK, prior(5))
    facts = Facts((commit(3, NEW), commit(1, OLD, full=False)), skips=(2,))
    assert missing_whole_runs(problem, facts, 3, stand_ins=True) == (1,)
    assert missing_whole_runs(problem, Facts(), 3, stand_ins=True) == (1, 2, 3)
    assert missing_whole_runs(problem, Facts((commit(0, NEW),)), 0, stand_ins=True) == ()


def test_a_kernel_that_cannot_differ_stands_for_another() -> None:
    relevant = as_mask(10, (3, 6))
    problem = Problem(LINE, prior(10, relevant), relevant)
    facts = Facts((commit(4, OLD), commit(7, NEW)))
    assert missing_whole_runs(problem, facts, 6, stand_ins=True) == ()
    assert missing_whole_runs(problem, facts, 6, stand_ins=False) == (5, 6)
    assert missing_whole_runs(problem, facts, 3, stand_ins=True) == ()  # 2 is as the old end, 4 as 3
    assert missing_whole_runs(problem, Facts((commit(2, OLD), commit(7, NEW))), 6, stand_ins=True) == (5,)


def test_ends_without_the_commit() -> None:
    problem = Problem(FORK, prior(5))
    assert undo_options(problem, Facts(), 1) == (Kernel.REVERTED, Kernel.PICKED)
    assert undo_options(problem, Facts().with_failed(1, Kernel.REVERTED), 1) == (Kernel.PICKED,)
    assert undo_options(problem, Facts(), 3) == ()


def test_the_answer_is_borne_out_by_itself_and_its_parents() -> None:
    problem = Problem(FORK, prior(5))
    for readings, wanted in (
        ((), True),
        ((commit(3, NEW), commit(1, OLD), commit(2, OLD)), True),
        ((commit(3, OLD),), False),
        ((commit(2, NEW),), False),
        ((commit(4, OLD), commit(0, NEW)), True),
        ((Reading(3, Kernel.REVERTED, NEW),), False),
    ):
        belief = posterior(FORK, problem.log_prior, Facts(readings), Weighing())
        assert borne_out(problem, belief, 3) is wanted


@pytest.mark.parametrize(
    ("kernel", "verdict", "against"),
    [
        (Kernel.REVERTED, OLD, False),
        (Kernel.REVERTED, NEW, True),
        (Kernel.PICKED, NEW, False),
        (Kernel.PICKED, OLD, True),
    ],
)
def test_an_end_speaks_for_or_against(kernel: Kernel, verdict: Verdict, against: bool) -> None:
    belief = posterior(LINE, prior(10), Facts((Reading(5, kernel, verdict),)), Weighing())
    assert contradicted(belief, 5) is against
    assert not contradicted(belief, 6)
    assert bool(belief.p[5] < belief.p[6]) is against


@pytest.mark.parametrize(
    ("verdicts", "undecided"),
    [
        pytest.param((), False, id="nothing read"),
        pytest.param((OLD,), True, id="9 to 1 for it"),
        pytest.param((NEW,), True, id="9 to 1 against it"),
        pytest.param((OLD, OLD), False, id="81 to 1"),
        pytest.param((NEW, NEW), False, id="81 to 1 against it"),
        pytest.param((OLD, NEW), True, id="even"),
    ],
)
def test_a_noisy_end_without_the_suspect_is_read_until_it_says_something(
    verdicts: tuple[Verdict, ...], undecided: bool
) -> None:
    problem, weighing = Problem(LINE, prior(10)), Weighing(Noise(0.1, 0.1, 0.01))

    def is_undecided(kernel: Kernel, facts: Facts) -> bool:
        facts = replace(facts, readings=tuple(Reading(5, kernel, verdict) for verdict in verdicts))
        belief = posterior(LINE, problem.log_prior, facts, weighing)
        return undecided_revert(problem, facts, belief, 5, 10)

    assert is_undecided(Kernel.REVERTED, Facts()) is undecided
    assert not is_undecided(Kernel.REVERTED, Facts().with_failed(5, Kernel.REVERTED))
    assert not is_undecided(Kernel.PICKED, Facts())
