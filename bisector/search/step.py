"""What to do next, from the facts so far: try a commit, build an end without the suspect, or stop.

Pure: the same facts give the same decision, so a resumed search goes on as if it had never stopped.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from bisector.search.choice import (
    Costs,
    Problem,
    Prospects,
    borne_out,
    contradicted,
    missing_whole_runs,
    prospects,
    undecided_revert,
    undo_gain_bits,
    undo_options,
)
from bisector.search.likelihood import Evidence, Kernel, Weighing, expected_runs
from bisector.search.posterior import Facts, Fit, Posterior, fit, posterior

# Of so many likeliest commits the one whose undoing tells most.
_UNDO_AMONG = 8


@dataclass(frozen=True, slots=True)
class Rules:
    """When to confirm, and when to stop.

    A commit with the probability ``suspect`` is confirmed, which is due anyway before it is named, and
    tells more than another trial would; it is named at ``target``. The new end without it is read until that by itself
    speaks for or against it with ``undone_odds``. Less than ``least_bits`` is not worth a trial, unless it is
    ``least_share`` of all that is unknown: at 98.9 % a tenth of a bit is lacking, and one noisy reading settles it.
    From the probability ``whole_from`` on that a commit or a child of it is the answer, a run is not stopped
    early, since it would have to be repeated. ``max_runs`` counts completed runs; a search that noise makes longer
    has up to twice as many, ``patience`` times what one takes on average. ``max_undone`` counts kernels
    built without a commit or with it to find the suspect, and ``max_confirming`` as many more to confirm one.
    Below the probability ``undo_from`` a commit is not undone while a trial tells anything. Among ``few``
    candidates each is tried that would tell something if it worked.
    """

    suspect: float = 0.80
    target: float = 0.99
    whole_from: float = 0.20
    least_bits: float = 0.03
    least_share: float = 0.05
    undone_odds: float = 10.0
    max_runs: int = 60
    patience: float = 3.0
    undo_from: float = 0.10
    max_undone: int = 4
    max_confirming: int = 2
    few: int = 16


@dataclass(frozen=True, slots=True)
class Search:
    """All that the search is told beforehand, but for the range."""

    weighing: Weighing = field(default_factory=Weighing)
    costs: Costs = field(default_factory=Costs)
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, slots=True)
class Try:
    """Measure a commit, in a run of whole length if ``whole``; ``gain_bits`` is what to expect of it."""

    commit: int
    whole: bool
    gain_bits: float
    confirms: bool = False


@dataclass(frozen=True, slots=True)
class Undo:
    """Measure the new end without a commit, or the old end with it, in runs of whole length."""

    commit: int
    kernel: Kernel


class Ending(StrEnum):
    """How a search ends."""

    FOUND = "found"
    NARROWED = "narrowed"
    NOT_ONE_CHANGE = "not one change"


@dataclass(frozen=True, slots=True)
class Answer:
    """The end: the likeliest commit, its probability, the smallest set that has the target, and the fit of the model.

    ``confirmed`` tells whether an end without the commit, or with it, was measured.
    """

    ending: Ending
    commit: int
    probability: float
    candidates: tuple[int, ...]
    fit: Fit
    confirmed: bool


Decision: TypeAlias = Try | Undo | Answer


def decide(problem: Problem, facts: Facts, search: Search) -> Decision:
    """The next step."""
    return decide_from(problem, facts, search, believe(problem, facts, search))


def believe(problem: Problem, facts: Facts, search: Search) -> Posterior:
    """The posterior that :func:`decide` goes by."""
    return posterior(problem.graph, problem.log_prior, facts, search.weighing)


def decide_from(problem: Problem, facts: Facts, search: Search, belief: Posterior) -> Decision:
    """The next step, for who has the posterior already."""
    rules, top = search.rules, float(belief.p[belief.best])
    if len(facts.readings) >= _most_runs(problem, search):
        return _answer(problem, facts, search, belief)
    outlook = prospects(problem.graph, belief, facts, search.weighing.expected, search.costs)
    if top >= rules.suspect:
        if step := _confirmation(problem, facts, search, belief, outlook):
            return step
        if top >= rules.target:
            return _answer(problem, facts, search, belief)
    undo, undo_gain, undo_worth = _best_undo(problem, facts, search, belief)
    premature = undo is not None and belief.p[undo.commit] < rules.undo_from
    is_few = float(belief.p[list(belief.likeliest(rules.few))].sum()) >= rules.target
    least_bits = min(rules.least_bits, rules.least_share * belief.unknown_bits)
    trial_gain = outlook.best_sound_bits if is_few else outlook.best_gain_bits
    if trial_gain >= least_bits and (premature or outlook.worth[outlook.best] >= undo_worth):
        return Try(
            outlook.best, _runs_whole(problem, rules, belief, outlook.best), float(outlook.gain_bits[outlook.best])
        )
    if undo is not None and undo_gain >= least_bits:
        return undo
    return _answer(problem, facts, search, belief)


def _most_runs(problem: Problem, search: Search) -> float:
    """How many completed runs are the end; what is told by then, is told."""
    noise, rules = search.weighing.expected, search.rules
    error = (noise.old_as_new + noise.new_as_old) / 2
    usual = expected_runs(len(problem.graph), error, 1 - rules.target)
    return min(2 * rules.max_runs, max(rules.max_runs, rules.patience * usual))


def _confirmation(
    problem: Problem, facts: Facts, search: Search, belief: Posterior, outlook: Prospects
) -> Try | Undo | None:
    """What the suspect lacks: an end without it, or a whole run of it or of a parent."""
    suspect = belief.best
    rules = search.rules
    if not _is_undone(belief, suspect) and len(belief.undone) + facts.in_vain < rules.max_undone + rules.max_confirming:
        for kernel in undo_options(problem, facts, suspect):
            return Undo(suspect, kernel)
    if undecided_revert(problem, facts, belief, suspect, rules.undone_odds):
        return Undo(suspect, Kernel.REVERTED)
    # Only when the end without it speaks for the suspect, what is said of kernels that cannot differ is believed, too.
    stand_ins = _is_undone(belief, suspect) and not contradicted(belief, suspect)
    for commit in missing_whole_runs(problem, facts, suspect, stand_ins=stand_ins):
        return Try(commit, whole=True, gain_bits=float(outlook.gain_bits[commit]), confirms=True)
    return None


def _best_undo(problem: Problem, facts: Facts, search: Search, belief: Posterior) -> tuple[Undo | None, float, float]:
    """The reading of an end without a suspect, or with it, that is worth most, its bits, and its bits a minute."""
    best: tuple[Undo | None, float, float] = (None, 0.0, 0.0)
    costs = search.costs
    for commit in belief.likeliest(_UNDO_AMONG):
        for kernel in undo_options(problem, facts, commit):
            so_far = belief.undone.get((commit, kernel))
            if so_far is None and len(belief.undone) + facts.in_vain >= search.rules.max_undone:
                continue
            # Its own run tells as much as a second reading, and is due anyway if it is the one.
            if so_far is not None and commit not in facts.measured | facts.closed:
                continue
            gain = undo_gain_bits(
                float(belief.p[commit]), kernel, so_far or Evidence(0.0, 0.0), search.weighing.expected
            )
            minutes = costs.setup_min + costs.whole_run_min + (costs.build_min if so_far is None else 0.0)
            if gain / minutes > best[2]:
                best = Undo(commit, kernel), gain, gain / minutes
    return best


def _answer(problem: Problem, facts: Facts, search: Search, belief: Posterior) -> Answer:
    best = belief.best
    top = float(belief.p[best])
    fitted = fit(problem.graph, facts, best, search.weighing.expected)
    candidates = belief.smallest_set(search.rules.target)
    named = top >= search.rules.target and borne_out(problem, belief, best)
    ending = Ending.FOUND if named else Ending.NARROWED
    if not fitted.one_change:
        ending = Ending.NOT_ONE_CHANGE
    return Answer(ending, best, top, candidates, fitted, _is_undone(belief, best))


def _is_undone(belief: Posterior, commit: int) -> bool:
    return any((commit, kernel) in belief.undone for kernel in (Kernel.REVERTED, Kernel.PICKED))


def _runs_whole(problem: Problem, rules: Rules, belief: Posterior, commit: int) -> bool:
    """Whether it is likely enough that the answer will rest on this run."""
    rests_on_it = (commit, *problem.graph.children[commit])
    return float(belief.p[list(rests_on_it)].sum()) >= rules.whole_from
