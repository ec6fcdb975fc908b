"""What a bisection would take, and what it reaches in the hours there are: simulated searches on the range's own graph.

They are at this machine's times and noise; and what changes of some sizes take at the noise that is on record.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import expm1, isfinite
from typing import Annotated, Literal

from bisector.core import units
from bisector.core.guest_time import GuestTime
from bisector.core.json_document import JsonObject
from bisector.core.json_keys import SCHEMA
from bisector.core.subject import Commit, Relevance
from bisector.core.units import percent_text
from bisector.core.verdict import Strategy
from bisector.plan.experience import Experience
from bisector.plan.inputs import ForecastRequest, Inputs, Quantity, inputs_of
from bisector.report.terminal import Line, Role, Span, left, wrapped
from bisector.search.difference import PairsRule, pairs_to_tell
from bisector.search.levels import OF_COUNTED, OF_HOSTS
from bisector.search.noise import EarlierSearches, Noise, Rates, error_rate, expected_runs
from bisector.search.simulate.runs import SimulatedResult, Summary, search_for, simulate, simulate_from
from bisector.search.simulate.world import Conditions, Durations
from bisector.search.step import Rules, believe
from bisector.status.evidence import Case

_EFFECTS, _EFFECTS_COUNTED = (0.05, 0.10, 0.20), (0.001, 0.01, 0.05)


class Detectable(JsonObject, frozen=True, kw_only=True):
    """What a change of one size takes."""

    effect: Annotated[float, "the change of the value, as a share"]
    pairs: Annotated[int | None, "readings of each end that tell nine of ten such changes; `null` for none that do"]
    trials: Annotated[float | None, "trials of the search at least, both ends aside; `null` for none that do"]

    @property
    def text(self) -> str:
        """For a person: ``10%: 18 pairs of the ends and 45 trials``."""
        if self.pairs is None or self.trials is None:
            return f"{percent_text(self.effect)}: cannot be told"
        return f"{percent_text(self.effect)}: {self.pairs} pairs of the ends and {self.trials:.0f} trials"


def effects_of(commits: int, spread: float, noise: Noise, *, counted: bool) -> tuple[Detectable, ...]:
    """Those of usual sizes among so many commits, for readings with this standard deviation in natural log units.

    A search takes no fewer trials than the channel's bound (:func:`bisector.search.noise.expected_runs`).
    """
    return tuple(_effect(one, commits, spread, noise) for one in (_EFFECTS_COUNTED if counted else _EFFECTS))


def _effect(effect: float, commits: int, spread: float, noise: Noise) -> Detectable:
    trials = expected_runs(commits, error_rate(1 + effect, spread, noise), 1 - Rules().target)
    return Detectable(effect=effect, pairs=pairs_to_tell(spread, effect), trials=None if math.isinf(trials) else trials)


def effects_text(effects: tuple[Detectable, ...]) -> str:
    """All of them, for a person."""
    return f"of {'; of '.join(one.text for one in effects)} at least"


_MIN_S = 60.0
_SEARCHES = 30


class BudgetReach(JsonObject, frozen=True, kw_only=True):
    """What the searches of a forecast reach within a budget."""

    budget_s: Annotated[float, "seconds of measuring that there are"]
    searches: Annotated[int, "number of simulated searches"]
    named: Annotated[int, "how many of them name a commit in that time"]
    named_right: Annotated[float, "share of these that name the right one; 0 if there are none"]
    candidates: Annotated[float, "median number of commits that the others are left with; 0 if there are none"]

    @classmethod
    def of(cls, results: Iterable[SimulatedResult], budget_s: float) -> "BudgetReach":
        """What came of searches that had so much time."""
        found = tuple(results)
        summary = Summary.of(found)
        return cls(
            budget_s=budget_s,
            searches=len(found),
            named=round(summary.named_rate * len(found)),
            named_right=summary.named_right_rate,
            candidates=summary.left_median,
        )

    @property
    def sentence(self) -> str:
        """For a person."""
        budget = units.duration(self.budget_s)
        named = f"{self.named} of {self.searches} simulated searches name a commit in {budget}"
        if self.named == self.searches:
            return named
        which = "the others" if self.named else "they"
        return f"{named}; {which} narrow it down to {units.plural(round(self.candidates), 'commit')} (median)"


def reach_from(case: Case, budget_s: float) -> BudgetReach:
    """What is reached from where a search stands, by what its trials have taken so far."""
    costs, misleads = case.search.costs, believe(case.problem, case.facts, case.search).fresh
    conditions = Conditions(
        old_as_new=misleads.looks_new,
        new_as_old=misleads.looks_old,
        skip=costs.skip_share,
        durations=Durations(
            build_least_min=costs.build_min,
            build_most_min=costs.build_min,
            setup_min=costs.setup_min,
            whole_run_min=costs.whole_run_min,
            early_old_min=costs.old_run_min,
            early_new_min=costs.new_run_min,
            unclear_min=costs.whole_run_min,
            apart_min=costs.whole_run_min,
            both_ways_min=0.0,
        ),
        budget_min=budget_s / _MIN_S,
    )
    results = simulate_from(case.problem, case.facts, conditions, case.search, seed=1, trials=_SEARCHES)
    return BudgetReach.of(results, budget_s)


_HOPELESS_BELOW = 0.5
_CLOSE = 1.05
# Less than this share of the time is within what two simulations of the same differ by.
_WORTH_IT = 0.03


class Shared(JsonObject, frozen=True, kw_only=True):
    """What several hosts that are like this one gain, each of which measures both ends first."""

    hosts: Annotated[int, "number of hosts"]
    hours: Annotated[float, "expected hours on the clock"]
    hours_alone: Annotated[float, "the same of one host"]
    hours_with_one_less: Annotated[float, "the same of one host less"]

    @property
    def saved_hours(self) -> float:
        """By how much the last host shortens it."""
        return self.hours_with_one_less - self.hours


class Forecast(JsonObject, frozen=True, kw_only=True):
    """What ``bisector plan --json`` prints."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    old: Annotated[Commit, "the old end"]
    new: Annotated[Commit, "the new end"]
    commits: Annotated[int, "number of commits in the range"]
    can_matter: Annotated[int | None, "how many of them can change the kernel; `null` if that is not known"]
    strategy: Annotated[Strategy, "of the simulated searches"]
    trials: Annotated[float, "expected number of trials, both ends included"]
    trials_p90: Annotated[float, "nine of ten searches take at most so many"]
    ends_again: Annotated[float, "expected number of these that are of an end that was measured before"]
    hours: Annotated[float, "expected hours"]
    hours_p90: Annotated[float, "nine of ten searches take at most so many"]
    first_answer_right: Annotated[float, "share of the simulated searches with the right answer"]
    claimed: Annotated[float, "mean probability that these searches claim"]
    least_factor: Annotated[
        float | None, "smallest factor between the ends that can be told from noise; `null` if there is none"
    ]
    searches: Annotated[int, "number of simulated searches"]
    seed: Annotated[int, "seed of the simulation"]
    warnings: Annotated[tuple[str, ...], "sentences"]
    hopeless: Annotated[bool, "whether it is not worth starting (exit code 1)"]
    files: Annotated[str, "what a run writes, a sentence"]
    build_least_s: Annotated[Quantity, "seconds of the shortest build"]
    build_most_s: Annotated[Quantity, "seconds of the longest build"]
    setup_s: Annotated[Quantity, "seconds before the runs of a trial"]
    runs_s: Annotated[Quantity, "seconds of the runs of a trial"]
    early_old_s: Annotated[Quantity, "seconds of the runs when they stop early, on the old side"]
    early_new_s: Annotated[Quantity, "seconds of the runs when they stop early, on the new side"]
    fill_s: Annotated[
        Quantity | None, "seconds of a short fill; `null` where caches are filled by whole runs throughout"
    ]
    spread: Annotated[Quantity, "standard deviation of readings of one kernel, in natural log units"]
    wrong_runs: Annotated[Quantity, "share of the runs of the better side that look like those of the worse one"]
    factor: Annotated[Quantity, "factor between the ends"]
    effects: Annotated[tuple[Detectable, ...], "what changes of usual sizes take at this noise"]
    clock: Annotated[GuestTime, "what makes the guests' time pass"]
    clock_note: Annotated[
        str | None, "what this clock does not show, or what counted time would do; `null` if there is nothing to say"
    ] = None
    reach: Annotated[BudgetReach | None, "what is reached within `--budget`; `null` without it"] = None
    shared: Annotated[Shared | None, "what several hosts gain; `null` without `--hosts`"] = None
    guests: Annotated[int, "how many guests measure at the same time"] = 1


def forecast(asked: ForecastRequest, known: Experience, relevance: Relevance | None) -> Forecast:
    """The forecast, from what is known of this machine; what is not is assumed, and says so."""
    matter = relevance.can_matter if relevance is not None else len(asked.graph)
    inputs = inputs_of(asked, known, matter)
    noise, spread, least = inputs.noise, inputs.spread.value, inputs.least
    conditions = Conditions(
        old_as_new=noise.old_as_new,
        new_as_old=noise.new_as_old,
        sticky=noise.sticky,
        skip=0.03,
        relevant=min(1.0, max(1, matter) / len(asked.graph)),
        early_stop=asked.stops_early,
        effect=max(inputs.factor.value, 1.0001),
        spread=spread,
        durations=inputs.durations,
        expected=OF_COUNTED if asked.settings.machine.is_counted else OF_HOSTS,
        rule=PairsRule(asked.settings.bisect.least_effect, asked.settings.bisect.most_pairs),
        guests=asked.guests if asked.strategy is Strategy.BAYES else 1,  # git tries one commit at a time
    )
    summary = Summary.of(_drawn(asked, conditions, known.earlier))
    fixed_hours = (_once_more_s(asked, inputs) + _baselines_s(asked, inputs)) / 3600
    reach = None
    if asked.budget_s is not None:
        # What is built once more at the end is not kept from an answer by it.
        left_s = asked.budget_s - conditions.ends_min * _MIN_S
        durations = inputs_of(asked, known, matter, left_s).durations
        within = replace(conditions, durations=durations, budget_min=left_s / _MIN_S)
        reach = BudgetReach.of(_drawn(asked, within, known.earlier), asked.budget_s)
    ends = 2 * (1 + summary.both_ways_rate)
    shared = (
        _shared(asked, conditions, known.earlier) if (asked.hosts > 1 and asked.strategy is Strategy.BAYES) else None
    )
    return Forecast(
        old=asked.wanted.old,
        new=asked.wanted.new,
        commits=len(asked.graph),
        can_matter=relevance.can_matter if relevance is not None else None,
        strategy=asked.strategy,
        trials=ends + summary.evaluations_mean + summary.skips_mean,
        trials_p90=ends + summary.evaluations_p90 + summary.skips_mean,
        ends_again=summary.ends_again_mean,
        hours=fixed_hours + summary.wall_hours_mean,
        hours_p90=fixed_hours + summary.wall_hours_p90,
        guests=conditions.guests,
        first_answer_right=summary.success_rate,
        claimed=summary.claimed_mean,
        least_factor=least if isfinite(least) else None,
        searches=asked.searches,
        seed=asked.seed,
        warnings=(
            *asked.remarks,
            *_warnings(asked, inputs, summary, least),
            *(_of_hosts(shared) if shared is not None else ()),
        ),
        hopeless=_refused(asked, inputs) or summary.success_rate < _HOPELESS_BELOW,
        files=asked.settings.workload.files.sentence,
        build_least_s=inputs.build_least_s,
        build_most_s=inputs.build_most_s,
        setup_s=inputs.setup_s,
        runs_s=inputs.runs_s,
        early_old_s=inputs.early_old_s,
        early_new_s=inputs.early_new_s,
        fill_s=inputs.fill_s,
        spread=inputs.spread,
        wrong_runs=inputs.wrong_runs,
        factor=inputs.factor,
        effects=effects_of(max(2, matter), spread, noise, counted=asked.settings.machine.is_counted),
        clock=asked.settings.machine.time,
        clock_note=asked.settings.machine.time.note(could_count=asked.could_count) or None,
        reach=reach,
        shared=shared,
    )


def apart(factor: float) -> str:
    """With a third digit where two would say that nothing is there."""
    return f"{factor:.{3 if factor < _CLOSE else 2}f}"


def _drawn(asked: ForecastRequest, conditions: Conditions, earlier: EarlierSearches) -> tuple[SimulatedResult, ...]:
    counted = asked.settings.machine.is_counted
    search = search_for(conditions, Rates.of_counted() if counted else Rates.unknown(earlier=earlier))
    return tuple(simulate(asked.graph, asked.strategy, conditions, search, seed=asked.seed, trials=asked.searches))


def _shared(asked: ForecastRequest, conditions: Conditions, earlier: EarlierSearches) -> Shared:
    def hours(hosts: int) -> float:
        return Summary.of(_drawn(asked, replace(conditions, hosts=hosts), earlier)).wall_hours_mean

    found = {count: hours(count) for count in {1, asked.hosts - 1, asked.hosts}}
    return Shared(
        hosts=asked.hosts,
        hours=found[asked.hosts],
        hours_alone=found[1],
        hours_with_one_less=found[asked.hosts - 1],
    )


def _of_hosts(shared: Shared) -> Iterator[str]:
    """Whether the last host is worth that it measures both ends."""
    if shared.saved_hours < _WORTH_IT * shared.hours_with_one_less:
        yield (
            f"the last of {shared.hosts} hosts is not worth its calibration: {shared.hosts - 1} take"
            f" {shared.hours_with_one_less:.1f} h, and {shared.hosts} take {shared.hours:.1f} h"
        )


def _warnings(asked: ForecastRequest, inputs: Inputs, summary: Summary, least: float) -> Iterator[str]:
    factor = inputs.factor
    if _refused(asked, inputs):
        yield (
            f"hopeless: the ends measured {apart(factor.value)} times apart, and less than"
            f" {percent_text(asked.settings.bisect.least_effect)} is not looked for: choose other ends, a workload that"
            " tells them apart, or a smaller --least-effect"
        )
    elif summary.success_rate < _HOPELESS_BELOW:
        yield (
            f"hopeless: with this noise {1 - summary.success_rate:.0%} of the answers would be wrong or none; longer"
            " runs have less noise"
        )
    elif factor.value < least:
        yield (
            f"the ends are {apart(factor.value)} times apart; with this noise less than {apart(least)} is not surely"
            " found"
        )
    assumed = [name for name, one in _named(inputs) if not one.measured]
    if assumed:
        yield f"assumed, not measured on this machine: {', '.join(assumed)}"


def _named(inputs: Inputs) -> tuple[tuple[str, Quantity], ...]:
    return (
        ("builds", inputs.build_most_s),
        ("what comes before the runs", inputs.setup_s),
        ("the runs", inputs.runs_s),
        ("noise", inputs.spread),
        ("the factor between the ends", inputs.factor),
    )


def _refused(asked: ForecastRequest, inputs: Inputs) -> bool:
    return inputs.factor.measured and inputs.factor.value < 1 + asked.settings.bisect.least_effect


def _once_more_s(asked: ForecastRequest, inputs: Inputs) -> float:
    """The answer's kernel is built in an empty directory; after it its parent's, and by Bayes a changed end's."""
    if not asked.settings.kernel.recheck:
        return 0.0
    others = {Strategy.BAYES: 2, Strategy.GIT: 1}[asked.strategy]
    return inputs.build_most_s.value + others * inputs.build_least_s.value


def _baselines_s(asked: ForecastRequest, inputs: Inputs) -> float:
    """Each disk alone is a guest of its own, and one run."""
    stack = asked.settings.storage.stack
    run_s = inputs.runs_s.value / len(stack.phases)
    return len(stack.baselines) * (inputs.setup_s.value + run_s) if asked.settings.bisect.baselines else 0.0


_LABEL_WIDTH = 15
_SELDOM = 0.5  # a mean that is no number of times


def forecast_lines(expected: Forecast, width: int) -> Iterator[Line]:
    """The paragraph for a person: what it would take, from which figures, and what speaks against it."""
    for label, text, role in _rows(expected):
        for number, line in enumerate(wrapped(text.split(), width - _LABEL_WIDTH)):
            yield Span(left(label if number == 0 else "", _LABEL_WIDTH), Role.HEAD), Span(line, role)


def _rows(one: Forecast) -> Iterator[tuple[str, str, Role]]:
    can = (
        f"{one.can_matter:,} can matter to this kernel"
        if one.can_matter is not None
        else "how many can matter to this kernel is known once both ends are built"
    )
    yield "range", f"{units.plural(one.commits, 'commit')}, {can}", Role.PLAIN
    yield (
        "trials",
        f"{one.trials:.0f}, nine of ten searches at most {one.trials_p90:.0f}; both ends included",
        Role.PLAIN,
    )
    hours = f"{units.duration(one.hours * 3600)}, nine of ten at most {units.duration(one.hours_p90 * 3600)}"
    at_a_time = f", {one.guests} guests at a time" if one.guests > 1 else ""
    yield "time", f"{hours}{at_a_time}", Role.STRONG
    if one.shared is not None:
        shared = one.shared
        each = f"{units.duration(shared.hours * 3600)} on the clock, each host measures both ends"
        yield f"{shared.hosts} hosts", f"{each}; one host: {units.duration(shared.hours_alone * 3600)}", Role.STRONG
    if one.reach is not None:
        yield "budget", one.reach.sentence, Role.STRONG
    right = f"{one.first_answer_right:.0%} of the answers right, {one.claimed:.1%} claimed"
    yield "confidence", f"{right} ({one.searches} simulated searches by {one.strategy}, seed {one.seed})", Role.PLAIN
    builds = f"{units.duration(one.build_least_s.value)} to {units.duration(one.build_most_s.value)}"
    yield "a build", f"{builds} ({one.build_most_s.source})", _role(one.build_most_s)
    before = f"{units.duration(one.setup_s.value)} ({one.setup_s.source})"
    yield "before runs", before, _role(one.setup_s)
    yield "the files", one.files, Role.PLAIN
    yield "the runs", f"{units.duration(one.runs_s.value)} ({one.runs_s.source})", _role(one.runs_s)
    if one.early_new_s.value < one.runs_s.value:
        early = f"{units.duration(one.early_old_s.value)} on the old side, {units.duration(one.early_new_s.value)}"
        yield "stopped early", f"{early} on the new one ({one.early_new_s.source})", _role(one.early_new_s)
    if one.fill_s is not None:
        filling = f"{units.duration(one.fill_s.value)} until a cache is settled ({one.fill_s.source})"
        yield "filling", f"{filling}; both ends are measured both ways", _role(one.fill_s)
    yield "noise", f"{expm1(one.spread.value):.1%} ({one.spread.source})", _role(one.spread)
    wrong = f"{one.wrong_runs.value:.1%} of the better side's look like the worse side's ({one.wrong_runs.source})"
    yield "wrong runs", wrong, _role(one.wrong_runs)
    yield "the ends", f"{apart(one.factor.value)} times apart ({one.factor.source}){_again(one)}", _role(one.factor)
    yield "changes", effects_text(one.effects), Role.PLAIN
    if one.clock_note is not None:
        yield "clock", one.clock_note, Role.PLAIN
    found = f"what is at least {apart(one.least_factor)} times apart" if one.least_factor is not None else "nothing"
    yield "findable", found, Role.PLAIN
    for warning in one.warnings:
        yield "warning", warning, Role.WORSE if one.hopeless else Role.WEAK


def _again(one: Forecast) -> str:
    """How often the ends are read again before the search, where that is to be expected."""
    if one.ends_again < _SELDOM:
        return ""
    times = units.plural(round(one.ends_again), "time")
    return f"; so near that they are read {times} more before the search, to tell them apart"


def _role(quantity: Quantity) -> Role:
    return Role.PLAIN if quantity.measured else Role.WEAK
