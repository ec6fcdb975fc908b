"""What to do next, from the facts so far: try a commit, build an end without the suspect, or stop.

Pure: the same facts give the same decision, so a resumed search goes on as if it had never stopped.
"""

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from bisector.search.choice import (
    Costs,
    Problem,
    Prospects,
    beside,
    borne_out,
    contradicted,
    may_be_luck,
    missing_whole_runs,
    prospects,
    speaking_against,
    stopped_undone,
    undo_gain_bits,
    undo_options,
)
from bisector.search.fit import Fit, fit
from bisector.search.likelihood import Weighing
from bisector.search.limits import capacity, expected_runs
from bisector.search.posterior import Posterior, posterior
from bisector.search.readings import OLD_END, Facts, Kernel

# Of so many likeliest commits the one whose undoing tells most.
_UNDO_AMONG = 8


@dataclass(frozen=True, slots=True)
class Rules:
    """When to confirm, and when to stop.

    A commit with the probability ``suspect`` is confirmed, which is due anyway before it is named, and tells more
    than another trial would; it is named at ``target``. Then the new end without it is read again, ``max_reverts``
    times in all, until it has ``surely`` however noisy the host may be by what is known of it. The suspect or a
    parent of it whose runs speak against it is read until these do so with the odds ``sure``. Less than
    ``least_bits`` is not worth a trial (as a share of what noise lets any tell), unless it is ``least_share`` of
    all that is unknown: at 98.9 % a tenth of a bit is lacking, and one noisy reading settles it. From the
    probability ``whole_from`` on that a commit or a child of it is the answer, a run is not stopped early, since it
    would have to be repeated; nor while more than the share ``most_overlap`` of the figures is expected on the
    wrong side of the line, where a figure tells more than its side. ``max_runs`` counts completed runs; a search
    that noise makes longer has up to twice as many, ``patience`` times what one takes on average. ``max_undone``
    counts kernels built without a commit or with it to find the suspect (all of a run of 30 commits that do not
    build), of which ``max_in_vain`` more may give no reading than give one; ``max_confirming`` more may be built to
    confirm one. Below the probability ``undo_from`` a commit is not undone while a trial tells anything. Among
    ``few`` candidates each is tried that would tell something if it worked.
    """

    suspect: float = 0.80
    target: float = 0.99
    whole_from: float = 0.20
    most_overlap: float = 0.03
    least_bits: float = 0.03
    least_share: float = 0.05
    sure: float = 10.0
    surely: float = 0.85
    max_reverts: int = 5
    max_runs: int = 60
    patience: float = 3.0
    undo_from: float = 0.10
    max_undone: int = 48
    max_in_vain: int = 4
    max_confirming: int = 2
    few: int = 16


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """All that the search is told beforehand, but for the range; and for how many minutes it may go on."""

    weighing: Weighing = field(default_factory=Weighing)
    costs: Costs = field(default_factory=Costs)
    rules: Rules = field(default_factory=Rules)
    left_min: float = math.inf


@dataclass(frozen=True, slots=True)
class Try:
    """Measure a commit, in a run that an answer can rest on if ``whole``; ``gain_bits`` is what to expect of it.

    Such a run goes its whole length, or ends once it is clear of the whole run of the first one of ``beside`` on the
    other side. There is none for the likeliest commit: the others are held against its run, a report shows its
    figures, and they tell a level between those of the ends.
    """

    commit: int
    whole: bool
    gain_bits: float
    confirms: bool = False
    beside: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Undo:
    """Measure the new end without a commit, or the old end with it, in a run that an answer can rest on if ``whole``.

    Such a run goes its whole length, or, if ``beside_end``, ends once it is clear of the end's own whole run.
    """

    commit: int
    kernel: Kernel
    whole: bool = True
    beside_end: bool = True


class Ending(StrEnum):
    """How a search ends."""

    FOUND = "found"
    NARROWED = "narrowed"
    NOT_ONE_CHANGE = "not one change"


@dataclass(frozen=True, slots=True)
class Answer:
    """The end: the likeliest commit, its probability, the smallest set that has the target, and the fit of the model.

    ``confirmed`` tells whether an end without the commit, or with it, was measured, ``out_of_time`` that the search
    would go on, and no step that it could begin would end in time.
    """

    ending: Ending
    commit: int
    probability: float
    candidates: tuple[int, ...]
    fit: Fit
    confirmed: bool
    out_of_time: bool = False


Decision: TypeAlias = Try | Undo | Answer


def decide(problem: Problem, facts: Facts, search: Search) -> Decision:
    """The next step."""
    return decide_from(problem, facts, search, believe(problem, facts, search))


def believe(problem: Problem, facts: Facts, search: Search) -> Posterior:
    """The posterior that :func:`decide` goes by."""
    return posterior(problem.graph, problem.log_prior, facts, search.weighing)


def decide_from(problem: Problem, facts: Facts, search: Search, belief: Posterior) -> Decision:
    """The next step, for who has the posterior already."""
    decision = _within(problem, facts, search, belief)
    if math.isinf(search.left_min) or not isinstance(decision, Answer):
        return decision
    if isinstance(_within(problem, facts, replace(search, left_min=math.inf), belief), Answer):
        return decision
    # Nothing is named that lacks something.
    ending = Ending.NARROWED if decision.ending is Ending.FOUND else decision.ending
    return replace(decision, ending=ending, out_of_time=True)


def _within(problem: Problem, facts: Facts, search: Search, belief: Posterior) -> Decision:
    """The next step that ends in time, or the answer."""
    rules, top = search.rules, float(belief.p[belief.best])
    if sum(one.commit != OLD_END for one in facts.readings) >= _most_runs(problem, search, belief):
        return _answer(problem, facts, search, belief)
    costs = search.costs.of_whole_runs if figures_tell(rules, belief) else search.costs
    outlook = prospects(problem.graph, belief, facts, costs).within(search.left_min)
    if top >= rules.suspect:
        step = _confirmation(problem, facts, search, belief, outlook)
        if step is not None and _longest_min(search.costs, belief, step) <= search.left_min:
            return step
        if top >= rules.target:
            return _answer(problem, facts, search, belief)
    return _most_telling(problem, facts, search, belief, outlook)


def _most_telling(problem: Problem, facts: Facts, search: Search, belief: Posterior, outlook: Prospects) -> Decision:
    """What brings most bits for its time, or the answer when that is not worth a trial."""
    rules = search.rules
    undo, undo_gain, undo_worth = _best_undo(problem, facts, search, belief, outlook)
    premature = undo is not None and belief.p[undo.commit] < rules.undo_from
    is_few = float(belief.p[list(belief.likeliest(rules.few))].sum()) >= rules.target
    least_bits = min(rules.least_bits, rules.least_share * belief.unknown_bits) * capacity(_error(belief))
    trial_gain = outlook.best_sound_bits if is_few else outlook.best_gain_bits
    if trial_gain >= least_bits and (premature or outlook.worth[outlook.best] >= undo_worth):
        return _trial(problem, search, belief, outlook, outlook.best)
    if undo is not None and undo_gain >= least_bits:
        return undo
    return _answer(problem, facts, search, belief)


def _most_runs(problem: Problem, search: Search, belief: Posterior) -> float:
    """How many completed runs are the end; what is told by then, is told."""
    rules = search.rules
    usual = expected_runs(len(problem.graph), _error(belief), 1 - rules.target)
    return min(2 * rules.max_runs, max(rules.max_runs, rules.patience * usual))


def _error(belief: Posterior) -> float:
    """How often a run of a commit that has none misleads, the mean of both sides."""
    return (belief.fresh.looks_new + belief.fresh.looks_old) / 2


def _confirmation(
    problem: Problem, facts: Facts, search: Search, belief: Posterior, outlook: Prospects
) -> Try | Undo | None:
    """What the suspect lacks: an end without it, or a whole run of it or of a parent."""
    suspect = belief.best
    rules = search.rules
    if not _is_undone(belief, suspect) and _may_change_ends(facts, rules, belief, more=rules.max_confirming):
        for kernel in undo_options(problem, facts, suspect):
            return _undo(facts, search, belief, suspect, kernel, confirms=True)
    if (stopped := stopped_undone(problem, facts, suspect)) is not None:
        return _undo(facts, search, belief, suspect, stopped, confirms=True)
    # Only when the end without it speaks for the suspect, what is said of kernels that cannot differ is believed, too.
    stand_ins = _is_undone(belief, suspect) and not contradicted(belief, suspect)
    for commit in missing_whole_runs(problem, facts, suspect, stand_ins=stand_ins):
        return _trial(problem, search, belief, outlook, commit, confirms=True)
    for commit in speaking_against(problem, facts, belief, suspect, rules.sure):
        return _trial(problem, search, belief, outlook, commit, confirms=True)
    if may_be_luck(problem, facts, belief, rules.surely, rules.max_reverts):
        return _undo(facts, search, belief, suspect, Kernel.REVERTED, confirms=True)
    return None


def _best_undo(
    problem: Problem, facts: Facts, search: Search, belief: Posterior, outlook: Prospects
) -> tuple[Undo | None, float, float]:
    """The reading of an end without a suspect, or with it, that is worth most, its bits, and its bits a minute."""
    best: tuple[Undo | None, float, float] = (None, 0.0, 0.0)
    costs = search.costs
    for commit in belief.likeliest(_UNDO_AMONG):
        for kernel in undo_options(problem, facts, commit):
            so_far = belief.undone.get((commit, kernel))
            if so_far is None and not _may_change_ends(facts, search.rules, belief):
                continue
            fresh = belief.fresh_pick if kernel is Kernel.PICKED else belief.fresh
            gain = undo_gain_bits(float(belief.p[commit]), kernel, so_far.next if so_far is not None else fresh)
            # Its own run tells as much as a second reading, and is due anyway if it is the one and may work.
            may_work = commit not in facts.closed and 2 * outlook.gain_bits[commit] > outlook.sound_bits[commit]
            if so_far is not None and may_work and commit not in facts.measured:
                continue
            build_min = costs.build_min if so_far is None else 0.0
            step = _undo(facts, search, belief, commit, kernel)
            early_min = (costs.old_run_min + costs.new_run_min) / 2
            minutes = build_min + costs.setup_min + (costs.whole_run_min if step.whole else early_min)
            if gain / minutes > best[2] and costs.longest(build_min, whole=step.whole) <= search.left_min:
                best = step, gain, gain / minutes
    return best


def _may_change_ends(facts: Facts, rules: Rules, belief: Posterior, more: int = 0) -> bool:
    """Whether one more end may be built with a commit, or without it, and ``more`` beside it."""
    built = len(belief.undone) + facts.in_vain
    return built < rules.max_undone + more and facts.in_vain < len(belief.undone) + rules.max_in_vain + more


def _longest_min(costs: Costs, belief: Posterior, step: Try | Undo) -> float:
    """How long a step takes at most, as far as that can be told."""
    if isinstance(step, Undo):
        build_min = 0.0 if (step.commit, step.kernel) in belief.undone else costs.build_min
        return costs.longest(build_min, whole=step.whole)
    return costs.longest(costs.build_of(step.commit), whole=step.whole)


def _answer(problem: Problem, facts: Facts, search: Search, belief: Posterior) -> Answer:
    best = belief.best
    top = float(belief.p[best])
    fitted = fit(belief, best)
    candidates = belief.smallest_set(search.rules.target)
    named = top >= search.rules.target and borne_out(problem, belief, best)
    ending = Ending.FOUND if named else Ending.NARROWED
    if not fitted.one_change:
        ending = Ending.NOT_ONE_CHANGE
    return Answer(ending, best, top, candidates, fitted, _is_undone(belief, best))


def _is_undone(belief: Posterior, commit: int) -> bool:
    return any((commit, kernel) in belief.undone for kernel in (Kernel.REVERTED, Kernel.PICKED))


def _trial(
    problem: Problem, search: Search, belief: Posterior, outlook: Prospects, commit: int, *, confirms: bool = False
) -> Try:
    """A run is whole where the answer is likely enough to rest on it, or its figure tells more than its side."""
    figures = figures_tell(search.rules, belief)
    whole = confirms or figures or _may_bear_answer(problem, search, belief, commit)
    others = beside(problem.graph, commit) if whole and not figures and commit != belief.best else ()
    return Try(commit, whole, float(outlook.gain_bits[commit]), confirms, others)


def _undo(
    facts: Facts, search: Search, belief: Posterior, commit: int, kernel: Kernel, *, confirms: bool = False
) -> Undo:
    """One run of such an end is whole, where the answer is likely enough to rest on it; others repeat its side."""
    figures = figures_tell(search.rules, belief)
    bears_answer = confirms or float(belief.p[commit]) >= max(search.rules.whole_from, search.costs.whole_from)
    whole = figures or (bears_answer and (commit, kernel) not in {one.of for one in facts.readings if one.full})
    return Undo(commit, kernel, whole, beside_end=whole and not figures)


def _may_bear_answer(problem: Problem, search: Search, belief: Posterior, commit: int) -> bool:
    """Whether it is likely enough that the answer will rest on a run of this commit, and there is time for it."""
    costs, rests_on_it = search.costs, (commit, *problem.graph.children[commit])
    in_time = costs.longest(costs.build_of(commit), whole=True) <= search.left_min
    return in_time and float(belief.p[list(rests_on_it)].sum()) >= max(search.rules.whole_from, costs.whole_from)


def figures_tell(rules: Rules, belief: Posterior) -> bool:
    """Whether levels overlap, so that a figure tells more than its side, and no run is stopped early."""
    return belief.overlap > rules.most_overlap
