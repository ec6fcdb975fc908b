"""What to do next, from the facts so far: try a commit, build an end without the suspect, or stop.

Pure: the same facts give the same decision, so a resumed search goes on as if it had never stopped. What is in flight
on other hosts is among the facts: what is chosen is what tells most beside it.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from bisector.search.alternatives import Fit, chance_of_nothing, fit
from bisector.search.choice import (
    Costs,
    Outcomes,
    Prospects,
    SearchProblem,
    beside,
    borne_out,
    contradicted,
    kernel_gain_bits,
    may_be_luck,
    missing_whole_runs,
    prospects,
    speaking_against,
    stopped_undone,
    undo_options,
)
from bisector.search.effect import SuspectEffect, effect_of, effect_of_all
from bisector.search.likelihood import Key, Weighing
from bisector.search.noise import capacity, expected_runs
from bisector.search.posterior import Posterior, posterior
from bisector.search.readings import OLD_END, Kernel, SearchFacts


@dataclass(frozen=True, slots=True)
class Rules:
    """When to confirm, and when to stop.

    Once it has the probability ``doubt`` that nothing in the range changed, both ends are read again. A commit with
    the probability ``suspect`` is confirmed, which is due anyway before it is named, and tells more than another
    trial would; it is named at ``target``. Then the new end without it is read again, ``max_reverts`` times in all,
    until it has ``surely`` however noisy the host may be by what is known of it. The suspect or a parent of it
    whose runs speak against it is read until these do so with the odds ``sure``. Less than ``least_bits`` is not
    worth a trial (as a share of what noise lets any tell), unless it is ``least_share`` of all that is unknown: at
    98.9 % a tenth of a bit is lacking, and one noisy reading settles it. From the probability ``whole_from`` on
    that a commit or a child of it is the answer, a run is not stopped early, since it would have to be repeated;
    nor while more than the share ``most_overlap`` of the figures is expected on the wrong side of the line, where a
    figure tells more than its side. ``max_runs`` counts completed runs; a search that noise makes longer has up to
    twice as many, ``patience`` times what one takes on average. ``max_undone`` counts kernels built without a
    commit or with it to find the suspect (all of a run of 30 commits that do not build), of which ``max_in_vain``
    more may give no reading than give one; ``max_confirming`` more may be built to confirm one. The suspect and its
    parent are read ``max_pairs`` times in turn, at most, to show its effect. Below the probability ``undo_from`` a
    commit is not undone while a trial tells anything. Among ``few`` candidates each is tried that would tell
    something if it worked.
    """

    doubt: float = 0.50
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
    max_pairs: int = 40
    few: int = 16


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """All that the search is told beforehand, but for the range; and for how many minutes it may go on."""

    weighing: Weighing = field(default_factory=Weighing)
    costs: Costs = field(default_factory=Costs)
    rules: Rules = field(default_factory=Rules)
    left_min: float = math.inf

    @property
    def whole_from(self) -> float:
        """How likely it has to be that the answer will rest on a run, for a whole one to be the cheaper one."""
        return max(self.rules.whole_from, self.costs.whole_from)


@dataclass(frozen=True, slots=True)
class CommitToRead:
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

    @property
    def of(self) -> Key:
        """What is measured."""
        return self.commit, Kernel.COMMIT


@dataclass(frozen=True, slots=True)
class ChangedEndToRead:
    """Measure the new end without a commit, or the old end with it, in a run that an answer can rest on if ``whole``.

    Such a run goes its whole length, or, if ``beside_end``, ends once it is clear of the end's own whole run.
    """

    commit: int
    kernel: Kernel
    whole: bool = True
    beside_end: bool = True

    @property
    def of(self) -> Key:
        """What is measured."""
        return self.commit, self.kernel


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing is worth its time beside what is in flight: wait for that."""


class SearchEnding(StrEnum):
    """How a search ends."""

    FOUND = "found"
    NARROWED = "narrowed"
    NOT_ONE_CHANGE = "not one change"
    NO_CHANGE = "no change"


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The end: the likeliest commit, its probability, the smallest set that has the target, and the fit of the model.

    ``confirmed`` tells whether an end without the commit, or with it, was measured, ``effect`` what readings of it
    and its parent show, where figures count, ``of_all`` what those of both ends do since the search began, and
    ``nothing`` is the probability that no commit of the range changed the figures. ``out_of_time`` tells that the
    search would go on, and no step that it could begin would end in time.
    """

    ending: SearchEnding
    commit: int
    probability: float
    candidates: tuple[int, ...]
    fit: Fit
    confirmed: bool
    effect: SuspectEffect | None = None
    of_all: SuspectEffect | None = None
    nothing: float = 0.0
    out_of_time: bool = False


Decision: TypeAlias = CommitToRead | ChangedEndToRead | Hold | SearchAnswer


# Of so many likeliest commits the one whose undoing tells most.
_UNDO_AMONG = 8
# What is in flight is broken off for what tells so many times as much in its time: less is within the error of what is
# expected of both.
_BETTER = 2.0
_LEAST_MIN = 0.1  # to be divided by
# A kernel has one whole run without a figure by right, that was stopped beside another one, and one stray one.
_MOST_WITHOUT_FIGURE = 3
_LEAST_PAIRS = 2  # of the ends, that confirm that nothing changed: one of each has no spread


def decide(problem: SearchProblem, facts: SearchFacts, search: Search) -> Decision:
    """The next step."""
    return decide_from(problem, facts, search, believe(problem, facts, search))


def believe(problem: SearchProblem, facts: SearchFacts, search: Search) -> Posterior:
    """The posterior that :func:`decide` goes by."""
    belief = posterior(problem.graph, problem.log_prior, facts, search.weighing)
    return replace(belief, nothing=chance_of_nothing(facts, belief, search.weighing, problem.graph.tip))


def decide_from(problem: SearchProblem, facts: SearchFacts, search: Search, belief: Posterior) -> Decision:
    """The next step, for who has the posterior already."""
    decision = _within(problem, facts, search, belief)
    if math.isinf(search.left_min) or not isinstance(decision, SearchAnswer):
        return decision
    if isinstance(_within(problem, facts, replace(search, left_min=math.inf), belief), SearchAnswer):
        return decision
    # Nothing is named that lacks something.
    ending = SearchEnding.NARROWED if decision.ending is SearchEnding.FOUND else decision.ending
    return replace(decision, ending=ending, out_of_time=True)


def pointless(
    problem: SearchProblem,
    facts: SearchFacts,
    search: Search,
    belief: Posterior,
    left_min: Mapping[Key, float],
    *,
    others_wait: bool = False,
) -> Key | None:
    """The kernel in flight that is least worth the minutes that it still takes; None if they all are worth them.

    Its host has something better to do: what tells at least twice as much for its time, or, once a commit has the
    probability to be named, nothing; or so it is from when a commit is suspected, where what an answer needs at all
    events waits for a host (``others_wait``). What that commit lacks stays in flight.
    """
    outlook = prospects(problem.graph, belief, facts, search.costs)
    lacking: set[Key] = set()
    top = float(belief.p[belief.best])
    if top >= search.rules.suspect:
        lacking = {one.of for one in _confirmation(problem, facts, search, belief, outlook)}
    worth = {
        key: _worth(problem, facts, belief, key, minutes) for key, minutes in left_min.items() if key not in lacking
    }
    if not worth:
        return None
    least = min(worth, key=worth.__getitem__)
    needed = search.rules.suspect if others_wait else search.rules.target
    better = math.inf if top >= needed else float(outlook.worth[outlook.best])
    return least if worth[least] < better / _BETTER else None


def _worth(problem: SearchProblem, facts: SearchFacts, belief: Posterior, key: Key, minutes: float) -> float:
    """What a kernel in flight tells beside the others, for the minutes that it still takes."""
    others = Outcomes.expected(problem.graph, belief, [one for one in facts.in_flight if one != key])
    return kernel_gain_bits(problem.graph, belief, others, *key) / max(minutes, _LEAST_MIN)


def _within(problem: SearchProblem, facts: SearchFacts, search: Search, belief: Posterior) -> Decision:
    """The next step that ends in time, or the answer."""
    rules, top = search.rules, float(belief.p[belief.best])
    if _runs(facts) >= _most_runs(problem, search, belief):
        return _hold_or_answer(problem, facts, search, belief)
    costs = search.costs.of_whole_runs if figures_tell(rules, belief) else search.costs
    outlook = prospects(problem.graph, belief, facts, costs).within(search.left_min)
    if belief.nothing >= rules.doubt and (doubted := _doubted(problem, facts, search, belief)) is not None:
        return doubted
    if top >= rules.suspect:
        lacking = tuple(_confirmation(problem, facts, search, belief, outlook))
        step = next((one for one in lacking if one.of not in facts.in_flight), None)
        if step is not None and _longest_min(search.costs, belief, step) <= search.left_min:
            return step
        if top >= rules.target and (step is not None or not lacking):
            return _concluded(problem, facts, search, belief)
        if top >= rules.target:
            return Hold()
    return _most_telling(problem, facts, search, belief, outlook)


def _runs(facts: SearchFacts) -> int:
    return sum(one.commit != OLD_END for one in facts.readings) + len(facts.in_flight)


def _hold_or_answer(problem: SearchProblem, facts: SearchFacts, search: Search, belief: Posterior) -> Decision:
    return Hold() if facts.in_flight else _concluded(problem, facts, search, belief)


def _concluded(problem: SearchProblem, facts: SearchFacts, search: Search, belief: Posterior) -> Decision:
    """The answer; before one that names no commit both ends are read in turn where nothing may have changed."""
    answer = _answer(problem, facts, search, belief)
    if answer.ending in (SearchEnding.FOUND, SearchEnding.NO_CHANGE) or belief.nothing <= 1 - search.rules.target:
        return answer
    step = next(_pair(search.rules, facts, answer.of_all, something=True), None)
    in_time = step is not None and _longest_min(search.costs, belief, step) <= search.left_min
    return step if step is not None and in_time else answer


def _most_telling(
    problem: SearchProblem, facts: SearchFacts, search: Search, belief: Posterior, outlook: Prospects
) -> Decision:
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
    return _hold_or_answer(problem, facts, search, belief)


def _most_runs(problem: SearchProblem, search: Search, belief: Posterior) -> float:
    """How many completed runs are the end; what is told by then, is told."""
    rules = search.rules
    usual = expected_runs(len(problem.graph), _error(belief), 1 - rules.target)
    return min(2 * rules.max_runs, max(rules.max_runs, rules.patience * usual))


def _error(belief: Posterior) -> float:
    return (belief.fresh.looks_new + belief.fresh.looks_old) / 2


def _confirmation(
    problem: SearchProblem, facts: SearchFacts, search: Search, belief: Posterior, outlook: Prospects
) -> Iterator[CommitToRead | ChangedEndToRead]:
    """What the suspect lacks, in this order: an end without it, a whole run of it or of a parent, its effect."""
    suspect = belief.best
    rules = search.rules
    if not _is_undone(belief, suspect) and _may_change_ends(facts, rules, belief, more=rules.max_confirming):
        for kernel in undo_options(problem, facts, suspect)[:1]:
            yield _undo(facts, search, belief, suspect, kernel, confirms=True)
    if (stopped := stopped_undone(problem, facts, suspect)) is not None:
        yield _undo(facts, search, belief, suspect, stopped, confirms=True)
    # Only when the end without it speaks for the suspect, what is said of kernels that cannot differ is believed, too.
    stand_ins = _is_undone(belief, suspect) and not contradicted(belief, suspect)
    for commit in missing_whole_runs(problem, facts, suspect, stand_ins=stand_ins):
        yield _trial(problem, search, belief, outlook, commit, confirms=True)
    for commit in speaking_against(problem, facts, belief, suspect, rules.sure):
        yield _trial(problem, search, belief, outlook, commit, confirms=True)
    if may_be_luck(problem, facts, belief, rules.surely, rules.max_reverts):
        yield _undo(facts, search, belief, suspect, Kernel.REVERTED, confirms=True)
    if float(belief.p[suspect]) >= rules.target:
        effect, something = effect_of(problem, facts, suspect, belief.levels), belief.nothing <= 1 - rules.target
        yield from _pair(rules, facts, effect, something=something)


def _doubted(problem: SearchProblem, facts: SearchFacts, search: Search, belief: Posterior) -> Decision | None:
    """The ends in turn, until nothing is known to have changed, or they are seen to differ as before; that answer."""
    of_all, rules = effect_of_all(problem, facts), search.rules
    if _is_nothing(rules, belief, of_all):
        return _hold_or_answer(problem, facts, search, belief)
    if of_all is None or of_all.is_as_before or min(of_all.counts) >= rules.max_pairs:
        return None
    tries = (CommitToRead(commit, whole=True, gain_bits=0.0, confirms=True) for commit, _ in of_all.to_read)
    step = next((one for one in tries if one.of not in facts.in_flight), None)
    return step if step is not None and _longest_min(search.costs, belief, step) <= search.left_min else None


def _is_nothing(rules: Rules, belief: Posterior, of_all: SuspectEffect | None) -> bool:
    """Whether both ends, read in turn since the search began, confirm that nothing changed."""
    if of_all is None or min(of_all.counts) < _LEAST_PAIRS:
        return False
    return of_all.is_refuted or (belief.nothing >= rules.target and of_all.is_gone)


def _pair(
    rules: Rules, facts: SearchFacts, effect: SuspectEffect | None, *, something: bool
) -> Iterator[CommitToRead | ChangedEndToRead]:
    """What is to be read of the kernels with the change and without it, until they show its effect.

    And until it is known that ``something`` changed. Nothing of one whose figures are on neither end's level: they do
    not count, however often it is read.
    """
    if effect is None or (effect.is_shown and something) or effect.is_refuted or min(effect.counts) >= rules.max_pairs:
        return
    without_figure = [one.of for one in facts.readings if one.full and one.score is None]
    if max(map(without_figure.count, effect.sides)) >= _MOST_WITHOUT_FIGURE:
        return
    for commit, kernel in effect.to_read:
        if kernel is Kernel.COMMIT:
            yield CommitToRead(commit, whole=True, gain_bits=0.0, confirms=True)
        else:
            yield ChangedEndToRead(commit, kernel, beside_end=False)


def _best_undo(
    problem: SearchProblem, facts: SearchFacts, search: Search, belief: Posterior, outlook: Prospects
) -> tuple[ChangedEndToRead | None, float, float]:
    """The reading of an end without a suspect, or with it, that is worth most, its bits, and its bits a minute."""
    best: tuple[ChangedEndToRead | None, float, float] = (None, 0.0, 0.0)
    costs = search.costs
    for commit in belief.likeliest(_UNDO_AMONG):
        for kernel in undo_options(problem, facts, commit):
            so_far = belief.undone.get((commit, kernel))
            if (commit, kernel) in facts.in_flight:
                continue
            if so_far is None and not _may_change_ends(facts, search.rules, belief):
                continue
            gain = kernel_gain_bits(problem.graph, belief, outlook.outcomes, commit, kernel)
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


def _may_change_ends(facts: SearchFacts, rules: Rules, belief: Posterior, more: int = 0) -> bool:
    """Whether one more end may be built with a commit, or without it, and ``more`` beside it."""
    built = len(belief.undone) + facts.in_vain
    return built < rules.max_undone + more and facts.in_vain < len(belief.undone) + rules.max_in_vain + more


def _longest_min(costs: Costs, belief: Posterior, step: CommitToRead | ChangedEndToRead) -> float:
    """How long a step takes at most, as far as that can be told."""
    if isinstance(step, ChangedEndToRead):
        build_min = 0.0 if (step.commit, step.kernel) in belief.undone else costs.build_min
        return costs.longest(build_min, whole=step.whole)
    return costs.longest(costs.build_of(step.commit), whole=step.whole)


def _answer(problem: SearchProblem, facts: SearchFacts, search: Search, belief: Posterior) -> SearchAnswer:
    best = belief.best
    top = float(belief.p[best])
    fitted = fit(belief, best)
    candidates = belief.smallest_set(search.rules.target)
    effect, of_all = effect_of(problem, facts, best, belief.levels), effect_of_all(problem, facts)
    something, shown = belief.nothing <= 1 - search.rules.target, effect is None or effect.is_shown
    named = top >= search.rules.target and borne_out(problem, belief, best) and shown and something
    ending = SearchEnding.FOUND if named else SearchEnding.NARROWED
    if not fitted.one_change:
        ending = SearchEnding.NOT_ONE_CHANGE
    if ending is not SearchEnding.FOUND and _is_nothing(search.rules, belief, of_all):
        ending = SearchEnding.NO_CHANGE
    return SearchAnswer(ending, best, top, candidates, fitted, _is_undone(belief, best), effect, of_all, belief.nothing)


def _is_undone(belief: Posterior, commit: int) -> bool:
    return any((commit, kernel) in belief.undone for kernel in (Kernel.REVERTED, Kernel.PICKED))


def _trial(
    problem: SearchProblem,
    search: Search,
    belief: Posterior,
    outlook: Prospects,
    commit: int,
    *,
    confirms: bool = False,
) -> CommitToRead:
    """A run is whole where the answer is likely enough to rest on it, or its figure tells more than its side."""
    figures = figures_tell(search.rules, belief)
    whole = confirms or figures or _may_bear_answer(problem, search, belief, commit)
    others = beside(problem.graph, commit) if whole and not figures and commit != belief.best else ()
    return CommitToRead(commit, whole, float(outlook.gain_bits[commit]), confirms, others)


def _undo(
    facts: SearchFacts, search: Search, belief: Posterior, commit: int, kernel: Kernel, *, confirms: bool = False
) -> ChangedEndToRead:
    """One run of such an end is whole, where the answer is likely enough to rest on it; others repeat its side."""
    figures = figures_tell(search.rules, belief)
    bears_answer = confirms or float(belief.p[commit]) >= search.whole_from
    whole = figures or (bears_answer and (commit, kernel) not in {one.of for one in facts.readings if one.full})
    return ChangedEndToRead(commit, kernel, whole, beside_end=whole and not figures)


def _may_bear_answer(problem: SearchProblem, search: Search, belief: Posterior, commit: int) -> bool:
    """Whether it is likely enough that the answer will rest on a run of this commit, and there is time for it."""
    costs, rests_on_it = search.costs, (commit, *problem.graph.children[commit])
    in_time = costs.longest(costs.build_of(commit), whole=True) <= search.left_min
    return in_time and float(belief.p[list(rests_on_it)].sum()) >= search.whole_from


def figures_tell(rules: Rules, belief: Posterior) -> bool:
    """Whether levels overlap, so that a figure tells more than its side, and no run is stopped early."""
    return belief.overlap > rules.most_overlap
