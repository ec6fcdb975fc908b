"""What to do next, from the facts so far: try a commit, build an end without the suspect, or stop.

Pure: the same facts give the same decision, so a resumed search goes on as if it had never stopped. What is in flight
on other hosts is among the facts: what is chosen is what tells most beside it.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from bisector.search.choice import (
    Costs,
    Outcomes,
    Prospects,
    SearchProblem,
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
from bisector.search.effect import Fit, SuspectEffect, chance_of_nothing, effect_of, effect_of_all, fit
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
    decision = _Situation(problem, facts, search, belief).decided()
    if math.isinf(search.left_min) or not isinstance(decision, SearchAnswer):
        return decision
    endless = replace(search, left_min=math.inf)
    if isinstance(_Situation(problem, facts, endless, belief).decided(), SearchAnswer):
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
    outlook, top = prospects(problem.graph, belief, facts, search.costs), float(belief.p[belief.best])
    lacking: set[Key] = set()
    if top >= search.rules.suspect:
        lacking = {one.of for one in _Situation(problem, facts, search, belief).confirmation(outlook)}
    worth: dict[Key, float] = {}
    for key, minutes in left_min.items():
        if key not in lacking:
            others = Outcomes.expected(problem.graph, belief, [one for one in facts.in_flight if one != key])
            worth[key] = kernel_gain_bits(problem.graph, belief, others, *key) / max(minutes, _LEAST_MIN)
    if not worth:
        return None
    least = min(worth, key=worth.__getitem__)
    needed = search.rules.suspect if others_wait else search.rules.target
    better = math.inf if top >= needed else float(outlook.worth[outlook.best])
    return least if worth[least] < better / _BETTER else None


def figures_tell(rules: Rules, belief: Posterior) -> bool:
    """Whether levels overlap, so that a figure tells more than its side, and no run is stopped early."""
    return belief.overlap > rules.most_overlap


@dataclass(frozen=True, slots=True, eq=False)
class _Situation:
    """All that a decision is made from."""

    problem: SearchProblem
    facts: SearchFacts
    search: Search
    belief: Posterior

    @property
    def rules(self) -> Rules:
        return self.search.rules

    @property
    def something(self) -> bool:
        """Whether it is known that something in the range changed."""
        return self.belief.nothing <= 1 - self.rules.target

    @property
    def figures_tell(self) -> bool:
        return figures_tell(self.rules, self.belief)

    @property
    def error(self) -> float:
        return (self.belief.fresh.looks_new + self.belief.fresh.looks_old) / 2

    def decided(self) -> Decision:
        """The next step that ends in time, or the answer."""
        rules, facts, belief = self.rules, self.facts, self.belief
        usual_runs = expected_runs(len(self.problem.graph), self.error, 1 - rules.target)
        # How many completed runs are the end; what is told by then, is told
        most_runs = min(2 * rules.max_runs, max(rules.max_runs, rules.patience * usual_runs))
        if sum(one.commit != OLD_END for one in facts.readings) + len(facts.in_flight) >= most_runs:
            return self.hold_or_answer()
        costs, top = self.search.costs, float(belief.p[belief.best])
        costs = costs.of_whole_runs if self.figures_tell else costs
        outlook = prospects(self.problem.graph, belief, facts, costs).within(self.search.left_min)
        if belief.nothing >= rules.doubt and (doubted := self.doubted()) is not None:
            return doubted
        if top >= rules.suspect:
            lacking = tuple(self.confirmation(outlook))
            step = next((one for one in lacking if one.of not in facts.in_flight), None)
            if step is not None and self.is_in_time(step):
                return step
            if top >= rules.target:
                return Hold() if lacking and step is None else self.concluded()
        return self.most_telling(outlook)

    def is_in_time(self, step: CommitToRead | ChangedEndToRead) -> bool:
        """Whether it takes no longer than there is time, as far as that can be told."""
        costs = self.search.costs
        build_min = costs.build_of(step.commit)
        if isinstance(step, ChangedEndToRead):
            build_min = 0.0 if step.of in self.belief.undone else costs.build_min
        return costs.longest(build_min, whole=step.whole) <= self.search.left_min

    def hold_or_answer(self) -> Decision:
        return Hold() if self.facts.in_flight else self.concluded()

    def concluded(self) -> Decision:
        """The answer; before one that names no commit both ends are read in turn where nothing may have changed."""
        answer = self.answer()
        if answer.ending in (SearchEnding.FOUND, SearchEnding.NO_CHANGE) or self.something:
            return answer
        step = next(self.pair(answer.of_all, something=True), None)
        return step if step is not None and self.is_in_time(step) else answer

    def answer(self) -> SearchAnswer:
        belief, best, target = self.belief, self.belief.best, self.rules.target
        top, fitted = float(belief.p[best]), fit(belief, best)
        effect = effect_of(self.problem, self.facts, best, belief.levels)
        of_all = effect_of_all(self.problem, self.facts)
        shown = effect is None or effect.is_shown
        named = top >= target and borne_out(self.problem, belief, best) and shown and self.something
        ending = SearchEnding.FOUND if named else SearchEnding.NARROWED
        if not fitted.one_change:
            ending = SearchEnding.NOT_ONE_CHANGE
        if ending is not SearchEnding.FOUND and self.is_nothing(of_all):
            ending = SearchEnding.NO_CHANGE
        candidates = belief.smallest_set(target)
        return SearchAnswer(ending, best, top, candidates, fitted, self.is_undone(best), effect, of_all, belief.nothing)

    def most_telling(self, outlook: Prospects) -> Decision:
        """What brings most bits for its time, or the answer when that is not worth a trial."""
        rules, belief = self.rules, self.belief
        undo, undo_gain, undo_worth = self.best_undo(outlook)
        premature = undo is not None and belief.p[undo.commit] < rules.undo_from
        is_few = float(belief.p[list(belief.likeliest(rules.few))].sum()) >= rules.target
        least_bits = min(rules.least_bits, rules.least_share * belief.unknown_bits) * capacity(self.error)
        trial_gain = outlook.most(outlook.sound_bits if is_few else outlook.gain_bits)
        if trial_gain >= least_bits and (premature or outlook.worth[outlook.best] >= undo_worth):
            return self.trial(outlook, outlook.best)
        if undo is not None and undo_gain >= least_bits:
            return undo
        return self.hold_or_answer()

    def confirmation(self, outlook: Prospects) -> Iterator[CommitToRead | ChangedEndToRead]:
        """What the suspect lacks, in this order: an end without it, a whole run of it or of a parent, its effect."""
        problem, facts, belief, rules, suspect = self.problem, self.facts, self.belief, self.rules, self.belief.best
        if not self.is_undone(suspect) and self.may_change_ends(more=rules.max_confirming):
            for kernel in undo_options(problem, facts, suspect)[:1]:
                yield self.undo(suspect, kernel, confirms=True)
        if (stopped := stopped_undone(problem, facts, suspect)) is not None:
            yield self.undo(suspect, stopped, confirms=True)
        # Only when the end without it speaks for the suspect, what is said of kernels that cannot differ is believed,
        # too.
        stand_ins = self.is_undone(suspect) and not contradicted(belief, suspect)
        for commit in missing_whole_runs(problem, facts, suspect, stand_ins=stand_ins):
            yield self.trial(outlook, commit, confirms=True)
        for commit in speaking_against(problem, facts, belief, suspect, rules.sure):
            yield self.trial(outlook, commit, confirms=True)
        if may_be_luck(problem, facts, belief, rules.surely, rules.max_reverts):
            yield self.undo(suspect, Kernel.REVERTED, confirms=True)
        if float(belief.p[suspect]) >= rules.target:
            yield from self.pair(effect_of(problem, facts, suspect, belief.levels), something=self.something)

    def doubted(self) -> Decision | None:
        """The ends in turn, until they are seen to differ as before, or nothing is known to have changed."""
        of_all = effect_of_all(self.problem, self.facts)
        if self.is_nothing(of_all):
            return self.hold_or_answer()
        if of_all is None or of_all.is_as_before or min(of_all.counts) >= self.rules.max_pairs:
            return None
        tries = (CommitToRead(commit, whole=True, gain_bits=0.0, confirms=True) for commit, _ in of_all.to_read)
        step = next((one for one in tries if one.of not in self.facts.in_flight), None)
        return step if step is not None and self.is_in_time(step) else None

    def is_nothing(self, of_all: SuspectEffect | None) -> bool:
        """Whether both ends, read in turn since the search began, confirm that nothing changed."""
        if of_all is None or min(of_all.counts) < _LEAST_PAIRS:
            return False
        return of_all.is_refuted or (self.belief.nothing >= self.rules.target and of_all.is_gone)

    def pair(self, effect: SuspectEffect | None, *, something: bool) -> Iterator[CommitToRead | ChangedEndToRead]:
        """What is to be read of the kernels with the change and without it, until they show its effect.

        And until it is known that ``something`` changed. Nothing of one whose figures are on neither end's level: they
        do not count, however often it is read.
        """
        if effect is None or (effect.is_shown and something) or effect.is_refuted:
            return
        without_figure = [one.of for one in self.facts.readings if one.full and one.score is None]
        in_vain = max(map(without_figure.count, effect.sides)) >= _MOST_WITHOUT_FIGURE
        if in_vain or min(effect.counts) >= self.rules.max_pairs:
            return
        for commit, kernel in effect.to_read:
            if kernel is Kernel.COMMIT:
                yield CommitToRead(commit, whole=True, gain_bits=0.0, confirms=True)
            else:
                yield ChangedEndToRead(commit, kernel, beside_end=False)

    def best_undo(self, outlook: Prospects) -> tuple[ChangedEndToRead | None, float, float]:
        """The reading of an end without a suspect, or with it, that is worth most, its bits, and its bits a minute."""
        best: tuple[ChangedEndToRead | None, float, float] = (None, 0.0, 0.0)
        costs, facts, belief = self.search.costs, self.facts, self.belief
        for commit in belief.likeliest(_UNDO_AMONG):
            for kernel in undo_options(self.problem, facts, commit):
                is_read = (commit, kernel) in belief.undone
                if (commit, kernel) in facts.in_flight or not (is_read or self.may_change_ends()):
                    continue
                gain = kernel_gain_bits(self.problem.graph, belief, outlook.outcomes, commit, kernel)
                # Its own run tells as much as a second reading, and is due anyway if it is the one and may work.
                may_work = commit not in facts.closed and 2 * outlook.gain_bits[commit] > outlook.sound_bits[commit]
                if is_read and may_work and commit not in facts.measured:
                    continue
                build_min = 0.0 if is_read else costs.build_min
                step = self.undo(commit, kernel)
                early_min = (costs.old_run_min + costs.new_run_min) / 2
                minutes = build_min + costs.setup_min + (costs.whole_run_min if step.whole else early_min)
                if gain / minutes > best[2] and self.is_in_time(step):
                    best = step, gain, gain / minutes
        return best

    def may_change_ends(self, more: int = 0) -> bool:
        """Whether one more end may be built with a commit, or without it, and ``more`` beside it."""
        rules, undone, in_vain = self.rules, len(self.belief.undone), self.facts.in_vain
        return undone + in_vain < rules.max_undone + more and in_vain < undone + rules.max_in_vain + more

    def is_undone(self, commit: int) -> bool:
        return any((commit, kernel) in self.belief.undone for kernel in (Kernel.REVERTED, Kernel.PICKED))

    def trial(self, outlook: Prospects, commit: int, *, confirms: bool = False) -> CommitToRead:
        """A run is whole where the answer is likely enough to rest on it, or its figure tells more than its side."""
        whole = confirms or self.figures_tell or self.may_bear_answer(commit)
        graph, beside = self.problem.graph, tuple[int, ...]()
        if whole and not self.figures_tell and commit != self.belief.best:
            # One more change or one less makes them of the commit. The new end has a whole run where the likeliest one
            # has none yet.
            beside = (*graph.parents[commit], *graph.children[commit], graph.tip)
        return CommitToRead(commit, whole, float(outlook.gain_bits[commit]), confirms, beside)

    def undo(self, commit: int, kernel: Kernel, *, confirms: bool = False) -> ChangedEndToRead:
        """One run of such an end is whole, where the answer is likely enough to rest on it; others repeat its side."""
        bears_answer = confirms or float(self.belief.p[commit]) >= self.search.whole_from
        has_whole = (commit, kernel) in {one.of for one in self.facts.readings if one.full}
        whole = self.figures_tell or (bears_answer and not has_whole)
        return ChangedEndToRead(commit, kernel, whole, beside_end=whole and not self.figures_tell)

    def may_bear_answer(self, commit: int) -> bool:
        """Whether it is likely enough that the answer will rest on a run of this commit, and there is time for it."""
        costs, rests_on_it = self.search.costs, [commit, *self.problem.graph.children[commit]]
        in_time = costs.longest(costs.build_of(commit), whole=True) <= self.search.left_min
        return in_time and float(self.belief.p[rests_on_it].sum()) >= self.search.whole_from
