"""The next step of a search, decided from the facts so far: measure a commit or a changed end, wait, or stop.

Pure functions: the same facts give the same decision, so a resumed search goes on as if it had never stopped. The
facts include the trials in flight on other hosts: the next trial is the one that tells most in addition to those.
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
    changed_end_lacking_whole_run,
    contradicted,
    kernel_gain_bits,
    missing_whole_runs,
    possible_changed_ends,
    prospects,
)
from bisector.search.effect import Fit, SuspectEffect, chance_of_nothing, effect_of, effect_of_all, fit
from bisector.search.graph import OLD_END, Kernel, SearchFacts
from bisector.search.likelihood import Key, Weighing
from bisector.search.noise import capacity, expected_runs
from bisector.search.posterior import KernelEvidence, Posterior, posterior


@dataclass(frozen=True, slots=True)
class Rules:
    """The thresholds for confirming a commit and for stopping. Fields without a unit are probabilities.

    - ``doubt``: both ends are read again once it is this likely that nothing in the range changed.
    - ``suspect``: a commit this likely is confirmed. Confirmation is due anyway before the commit is named, and tells
      more than another trial would.
    - ``target``: a commit this likely is named once it is confirmed.
    - ``whole_from``: a run is not stopped early if its commit or a child of it is the answer with this probability,
      because the run would have to be repeated.
    - ``most_overlap``: no run is stopped early while a larger share of the figures is expected on the wrong side of
      the threshold, because a figure then tells more than its side.
    - ``least_bits``, ``least_share``: a trial is worth its time if it tells ``least_bits`` (as a share of what noise
      lets any trial tell), or ``least_share`` of all that is unknown: at 98.9 % only a tenth of a bit is lacking, and
      one noisy reading settles it.
    - ``sure``: the suspect, or a parent of it, whose runs speak against the suspect is read until they do so with
      these odds.
    - ``surely``, ``max_reverts``, ``no_luck``: the new end without the suspect is read, at most ``max_reverts`` times
      in all, until the suspect has the probability ``surely`` however noisy the host may be according to its readings,
      or until its own readings are old with the odds ``no_luck``: others leave the doubt then.
    - ``max_runs``, ``patience``: the search ends after ``max_runs`` completed runs; if noise makes it longer, after
      ``patience`` times the average number of runs, at most twice ``max_runs``.
    - ``undo_from``: a less likely commit is not undone while a trial of any commit tells something.
    - ``max_undone``: how many kernels may be built without a commit, or with it, to find the suspect (enough for each
      commit of a run of 30 that do not build).
    - ``max_in_vain``: by how many the changed ends that gave no reading may outnumber those that gave one.
    - ``max_confirming``: how many more changed ends may be built to confirm the suspect.
    - ``max_pairs``: how often the suspect and its parent are read in turn, at most, to show its effect.
    - ``few``: if this many commits have the probability ``target`` together, the risk that a commit cannot be tested
      no longer makes its trial too little to be worth its time.
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
    no_luck: float = 1_000.0
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
    """The settings of a search, except its range; it may go on for ``left_min`` minutes."""

    weighing: Weighing = field(default_factory=Weighing)
    costs: Costs = field(default_factory=Costs)
    rules: Rules = field(default_factory=Rules)
    left_min: float = math.inf

    @property
    def whole_from(self) -> float:
        """From this probability on that the answer rests on a run, a whole run is cheaper than one stopped early."""
        return max(self.rules.whole_from, self.costs.whole_from)


@dataclass(frozen=True, slots=True)
class CommitToRead:
    """Measure a commit; the run is expected to tell ``gain_bits``, and an answer can rest on it if it is ``whole``.

    A whole run goes its whole length; if ``beside`` has commits, it ends as soon as it is clear of the whole run of
    the first of them on the other side. ``beside`` is empty for the likeliest commit: other runs are compared with its
    run, a report shows its figures, and these reveal a level between those of the ends.
    """

    commit: int
    whole: bool
    gain_bits: float
    confirms: bool = False
    beside: tuple[int, ...] = ()

    @property
    def of(self) -> Key:
        """The kernel that is measured."""
        return self.commit, Kernel.COMMIT


@dataclass(frozen=True, slots=True)
class ChangedEndToRead:
    """Measure the new end without a commit, or the old end with it; an answer can rest on the run if it is ``whole``.

    A whole run goes its whole length; if ``beside_end``, it ends as soon as it is clear of the end's own whole run.
    """

    commit: int
    kernel: Kernel
    whole: bool = True
    beside_end: bool = True

    @property
    def of(self) -> Key:
        """The kernel that is measured."""
        return self.commit, self.kernel


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait for the trials in flight: no other trial is worth its time beside them."""


class SearchEnding(StrEnum):
    """The outcome of a search."""

    FOUND = "found"
    NARROWED = "narrowed"
    NOT_ONE_CHANGE = "not one change"
    NO_CHANGE = "no change"


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The result of a search: the likeliest commit, its probability, and how well one change explains the readings.

    ``candidates`` is the smallest set of commits that has the target probability. ``confirmed`` tells whether an end
    without the commit, or with it, was measured. ``effect`` is the effect that readings of the commit and of its parent
    show (None if only verdicts count), ``of_all`` the difference of the ends since the search began, and ``nothing``
    the probability that no commit of the range changed the figures. ``out_of_time`` tells that the search is not
    complete, but no step that it could begin would end in time.
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


# Only this many of the likeliest commits are considered for undoing.
_UNDO_AMONG = 8
# A trial in flight is aborted for one that tells this many times as much in its time: a smaller ratio is within the
# error of both estimates.
_BETTER = 2.0
_LEAST_MIN = 0.1  # avoids a division by zero
# Two whole runs of a kernel without a figure are normal: one that was stopped beside another run, and a stray one.
_MOST_WITHOUT_FIGURE = 3
_LEAST_PAIRS = 2  # of readings of the ends, to confirm that nothing changed: one of each end has no spread


def decide(problem: SearchProblem, facts: SearchFacts, search: Search) -> Decision:
    """Return the next step, or the answer."""
    return decide_from(problem, facts, search, believe(problem, facts, search))


def believe(problem: SearchProblem, facts: SearchFacts, search: Search) -> Posterior:
    """Return the posterior on which :func:`decide` bases its decision."""
    belief = posterior(problem.graph, problem.log_prior, facts, search.weighing)
    return replace(belief, nothing=chance_of_nothing(facts, belief, search.weighing, problem.graph.tip))


def decide_from(problem: SearchProblem, facts: SearchFacts, search: Search, belief: Posterior) -> Decision:
    """Return the next step, or the answer, given the posterior of :func:`believe`."""
    decision = _Situation(problem, facts, search, belief).decided()
    if math.isinf(search.left_min) or not isinstance(decision, SearchAnswer):
        return decision
    endless = replace(search, left_min=math.inf)
    if isinstance(_Situation(problem, facts, endless, belief).decided(), SearchAnswer):
        return decision
    # The time is up before the confirmation is complete, so no commit is named.
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
    """Return the kernel in flight whose trial is least worth its remaining minutes; None if all are worth them.

    A trial is not worth its minutes if a trial of another commit tells at least twice as much for its time. Once a
    commit is likely enough to be named, no trial is worth them except those that its confirmation needs. If the steps
    of a confirmation wait for a host (``others_wait``), this begins as soon as a commit is suspected.
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
    """Whether the levels overlap so far that a figure tells more than its side; no run is stopped early then."""
    return belief.overlap > rules.most_overlap


def _fits(read: KernelEvidence, commit: int, suspect: int) -> bool:
    return (read.new >= read.old) is (commit == suspect)


@dataclass(frozen=True, slots=True, eq=False)
class _Situation:
    """The inputs of a decision, and the steps that it chooses from."""

    problem: SearchProblem
    facts: SearchFacts
    search: Search
    belief: Posterior

    @property
    def rules(self) -> Rules:
        return self.search.rules

    @property
    def something(self) -> bool:
        """Whether it is certain enough that something in the range changed."""
        return self.belief.nothing <= 1 - self.rules.target

    @property
    def figures_tell(self) -> bool:
        return figures_tell(self.rules, self.belief)

    @property
    def error(self) -> float:
        return (self.belief.fresh.looks_new + self.belief.fresh.looks_old) / 2

    def decided(self) -> Decision:
        """Return the next step that ends in time, or the answer."""
        rules, facts, belief = self.rules, self.facts, self.belief
        usual_runs = expected_runs(len(self.problem.graph), self.error, 1 - rules.target)
        # Completed runs after which the search stops with what is known by then
        most_runs = min(2 * rules.max_runs, max(rules.max_runs, rules.patience * usual_runs))
        if sum(one.commit != OLD_END for one in facts.readings) + len(facts.in_flight) >= most_runs:
            return self.hold_or_answer()
        costs, top = self.search.costs, float(belief.p[belief.best])
        if self.figures_tell:  # no run is stopped early
            costs = replace(costs, old_run_min=costs.whole_run_min, new_run_min=costs.whole_run_min)
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
        """Whether the step is expected to end before the time is up."""
        costs = self.search.costs
        build_min = costs.build_of(step.commit)
        if isinstance(step, ChangedEndToRead):
            build_min = 0.0 if step.of in self.belief.undone else costs.build_min
        return costs.longest(build_min, whole=step.whole) <= self.search.left_min

    def hold_or_answer(self) -> Decision:
        return Hold() if self.facts.in_flight else self.concluded()

    def concluded(self) -> Decision:
        """Return the answer, or a step that has to come before it.

        An answer that names no commit has to be preceded by readings of both ends in turn, unless it is certain that
        something changed.
        """
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
        # The readings of the commit, of its parents and of its changed ends alone, without the prior and all others
        own = {one: belief.tested.get(one) for one in (best, *self.problem.graph.parents[best])}
        fits = all(_fits(read, one, best) for one, read in own.items() if read is not None)
        named = top >= target and fits and not contradicted(belief, best) and shown and self.something
        ending = SearchEnding.FOUND if named else SearchEnding.NARROWED
        if not fitted.one_change:
            ending = SearchEnding.NOT_ONE_CHANGE
        if ending is not SearchEnding.FOUND and self.is_nothing(of_all):
            ending = SearchEnding.NO_CHANGE
        candidates = belief.smallest_set(target)
        return SearchAnswer(
            ending, best, top, candidates, fitted, self.has_changed_end(best), effect, of_all, belief.nothing
        )

    def most_telling(self, outlook: Prospects) -> Decision:
        """Return the step that tells most bits for its time, or the answer if no step is worth a trial."""
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
        """The steps that the suspect lacks: an end without it, whole runs of it and of its parents, then its effect."""
        problem, facts, belief, rules, suspect = self.problem, self.facts, self.belief, self.rules, self.belief.best
        if not self.has_changed_end(suspect) and self.may_change_ends(more=rules.max_confirming):
            for kernel in possible_changed_ends(problem, facts, suspect)[:1]:
                yield self.undo(suspect, kernel, confirms=True)
        if (stopped := changed_end_lacking_whole_run(problem, facts, suspect)) is not None:
            yield self.undo(suspect, stopped, confirms=True)
        # The suspicion has to be supported by an end without the suspect before a kernel may stand for another one
        # that cannot differ.
        stand_ins = self.has_changed_end(suspect) and not contradicted(belief, suspect)
        for commit in missing_whole_runs(problem, facts, suspect, stand_ins=stand_ins):
            yield self.trial(outlook, commit, confirms=True)
        # Most runs that put the suspect or a parent on the wrong side are accidents, because everything else speaks for
        # the suspect. Of equal kernels the measured one is read.
        for commit in (suspect, *problem.graph.parents[suspect]):
            read = belief.tested.get(commit)
            if read is None or commit in facts.unreadable or _fits(read, commit, suspect):
                continue
            if abs(read.surely_new) < math.log(rules.sure):
                yield self.trial(outlook, dict(facts.twins).get(commit, commit), confirms=True)
        # On a host that may mislead in every fifth run, one matching reading may be luck. The old end with the suspect
        # is not used: it may lack what the suspect builds upon, however often it is read.
        reverted = belief.undone.get((suspect, Kernel.REVERTED))
        may_be_luck = reverted is not None and reverted.surely_new > -math.log(rules.no_luck)
        is_seldom_read = sum(one.of == (suspect, Kernel.REVERTED) for one in facts.readings) < rules.max_reverts
        is_open = belief.surely < rules.surely and may_be_luck and is_seldom_read
        if is_open and Kernel.REVERTED in possible_changed_ends(problem, facts, suspect):
            yield self.undo(suspect, Kernel.REVERTED, confirms=True)
        if float(belief.p[suspect]) >= rules.target:
            yield from self.pair(effect_of(problem, facts, suspect, belief.levels), something=self.something)

    def doubted(self) -> Decision | None:
        """The next of the ends to read in turn, until they differ as before or it is known that nothing changed."""
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
        """The next kernels to read, with the change and without it, until their readings show its effect.

        If ``something`` is false, they are also read until it is known that something changed. A kernel whose figures
        are on neither end's level is not read again: such figures do not count, however often it is read.
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
        """The reading of a changed end that is worth most, its bits, and its bits per minute."""
        best: tuple[ChangedEndToRead | None, float, float] = (None, 0.0, 0.0)
        costs, facts, belief = self.search.costs, self.facts, self.belief
        for commit in belief.likeliest(_UNDO_AMONG):
            for kernel in possible_changed_ends(self.problem, facts, commit):
                is_read = (commit, kernel) in belief.undone
                if (commit, kernel) in facts.in_flight or not (is_read or self.may_change_ends()):
                    continue
                gain = kernel_gain_bits(self.problem.graph, belief, outlook.outcomes, commit, kernel)
                # A run of the commit itself, if it may work, tells as much as a second reading, and is due anyway if
                # the commit is the answer.
                may_work = commit not in facts.unreadable and 2 * outlook.gain_bits[commit] > outlook.sound_bits[commit]
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
        """Whether another changed end may be built; ``more`` is added to the limits."""
        rules, undone, in_vain = self.rules, len(self.belief.undone), self.facts.in_vain
        return undone + in_vain < rules.max_undone + more and in_vain < undone + rules.max_in_vain + more

    def has_changed_end(self, commit: int) -> bool:
        return any((commit, kernel) in self.belief.undone for kernel in (Kernel.REVERTED, Kernel.PICKED))

    def trial(self, outlook: Prospects, commit: int, *, confirms: bool = False) -> CommitToRead:
        """The trial of a commit; its run is whole if the answer may rest on it or a figure tells more than a side."""
        whole = confirms or self.figures_tell or self.may_bear_answer(commit)
        graph, beside = self.problem.graph, tuple[int, ...]()
        if whole and not self.figures_tell and commit != self.belief.best:
            # If one of these is the first new commit, the run of ``commit`` is on the other side of its run. The tip
            # has a whole run even if the likeliest commit has none yet.
            beside = (*graph.parents[commit], *graph.children[commit], graph.tip)
        return CommitToRead(commit, whole, float(outlook.gain_bits[commit]), confirms, beside)

    def undo(self, commit: int, kernel: Kernel, *, confirms: bool = False) -> ChangedEndToRead:
        """The reading of a changed end; one whole run suffices if the answer may rest on it, others repeat its side."""
        bears_answer = confirms or float(self.belief.p[commit]) >= self.search.whole_from
        has_whole = (commit, kernel) in {one.of for one in self.facts.readings if one.full}
        whole = self.figures_tell or (bears_answer and not has_whole)
        return ChangedEndToRead(commit, kernel, whole, beside_end=whole and not self.figures_tell)

    def may_bear_answer(self, commit: int) -> bool:
        """Whether the answer is likely enough to rest on a run of this commit, and there is time for a whole run."""
        costs, rests_on_it = self.search.costs, [commit, *self.problem.graph.children[commit]]
        in_time = costs.longest(costs.build_of(commit), whole=True) <= self.search.left_min
        return in_time and float(self.belief.p[rests_on_it].sum()) >= self.search.whole_from
