"""Forecasts of the time of a bisection, and of its results within a budget, by simulated searches on the range's graph.

They use the times and the noise of earlier runs on this machine, and assumptions if there were none. They also tell
what changes of some sizes take at the recorded noise.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Annotated, Literal

from bisector.analysis.early_stop import is_tried, rule_for
from bisector.analysis.levels import LEAST_FACTOR
from bisector.config import Settings
from bisector.core import units
from bisector.core.deadline import BY_THE_HOST, GuestTime
from bisector.core.figures import StopReason
from bisector.core.json_document import FLAT, SCHEMA, JsonObject
from bisector.core.subject import Commit, Relevance
from bisector.core.units import percent_text
from bisector.core.verdict import Direction, Strategy
from bisector.git.ranges import Range
from bisector.plan.experience import Experience
from bisector.report.blocks import Fact, FactList, Role
from bisector.search.effect import PairsRule, pairs_to_tell
from bisector.search.graph import RangeGraph
from bisector.search.noise import (
    OF_COUNTED,
    OF_HOSTS,
    EarlierSearches,
    Noise,
    Rates,
    error_rate,
    expected_runs,
    least_factor,
)
from bisector.search.simulate.runs import SimulatedResult, Summary, search_for, simulate, simulate_from
from bisector.search.simulate.world import (
    ALIKE_MIN,
    APART_MIN,
    BUILD_LEAST_MIN,
    BUILD_MOST_MIN,
    RUN_MIN,
    Conditions,
    Durations,
)
from bisector.search.step import Rules, believe
from bisector.status.evidence import Case

_MIN_S = 60.0
# Of the smallest configuration, measured on two cores: one changed file, and everything
SMALL_BUILD_S = (17.0, 280.0)
# Boot, storage stack and the connection, on two cores that emulate the guest: 3 to 5 s, up to 7 s, and a margin
SETUP_S = 15.0
_SPREAD = 0.10  # the assumed standard deviation of readings, as long as no kernel was read twice
# The same if the guest's instructions are counted: readings of one kernel then differ by less than 0.01 %, and a kernel
# that does as much in another order may differ by a little more
_COUNTED_SPREAD = 0.002
_SMALL = 1.01  # the factor that counted time is used to find
_COUNTED = "assumed: the host has no part in counted time"
# A fast kernel's judged run took 22 of its 40 s, and a slow one's 33 with one fast kernel known; earlier runs of a
# trial are always whole.
_EARLY_ABOVE_SHARE = 22 / 40
_EARLY_BELOW_SHARE = 33 / 40
# At the factor for which the bound takes this share of a search's most runs, at least 9 of 10 searches are right; at
# the root of this factor, at most 8 of 10 (tests/search/test_likelihood.py, 20 searches a spread).
_SHARE_OF_RUNS = 0.6


class Quantity(JsonObject, frozen=True):
    """A figure that a forecast is based on."""

    value: Annotated[float, "in the unit that its key names"]
    source: Annotated[str, "where it comes from"]
    measured: Annotated[bool, "whether it was measured on this machine"]


@dataclass(frozen=True, slots=True)
class ForecastRequest:
    """The request for a forecast: a range, its graph, the settings, the number of simulated searches and their seed.

    The searches have ``budget_s`` seconds, if given, and are shared by ``hosts`` hosts like this one. ``remarks`` are
    sentences on the range. ``guests`` measure at the same time. They ``could_count`` their time if they are emulated
    and nothing prevents it.
    """

    wanted: Range
    graph: RangeGraph
    settings: Settings
    strategy: Strategy = Strategy.BAYES
    searches: int = 30
    seed: int = 1
    budget_s: float | None = None
    hosts: int = 1
    guests: int = 1
    remarks: tuple[str, ...] = ()
    could_count: bool = False

    @property
    def stops_early(self) -> bool:
        """Whether runs may be stopped early: only a metric that is reported during a run shows its side early."""
        return not self.settings.workload.full_runs and self.settings.bisect.objective.definition.live


class Inputs(JsonObject, frozen=True, kw_only=True):
    """The figures that a forecast is based on.

    ``durations`` has the same times for simulated searches, ``noise`` the error rates of their runs, and ``least`` is
    the smallest factor that can be told from this noise.
    """

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
    durations: Durations
    least: float
    noise: Noise


def inputs_of(asked: ForecastRequest, known: Experience, matter: int, left_s: float = math.inf) -> Inputs:
    """Return a search's inputs, measured or assumed, for ``matter`` relevant commits and ``left_s`` seconds."""
    settings, workload, counted = asked.settings, asked.settings.workload, asked.settings.machine.is_counted
    least_s, most_s = SMALL_BUILD_S
    if settings.kernel.base_config is not None:
        least_s, most_s = BUILD_LEAST_MIN * _MIN_S, BUILD_MOST_MIN * _MIN_S
    build_least_s = _measured(known.builds_s, min, least_s, "build")
    build_most_s = _measured(known.builds_s, max, most_s, "build")
    runs, time = len(settings.storage.stack.phases), settings.machine.time
    source = "as asked for" if time == BY_THE_HOST else "assumed: 120 million instructions a second, and no idle guest"
    runs_s = _measured(known.workloads_s, fmean, time.most_host_s(runs * float(workload.runtime_s)), "trial", source)
    setup_s = _measured(known.setups_s, median, SETUP_S, "trial")
    fill_s, saved_s, rule = None, 0.0, rule_for(settings)
    whole_s = setup_s.value + runs_s.value
    if rule is not None and asked.stops_early and is_tried(settings, matter, whole_s, left_s):
        fill_s = _measured(known.fills_s, fmean, time.most_host_s(rule.expected_s), "short fill")
        saved_s = time.most_host_s(workload.runtime_s) - fill_s.value

    def early_s(reason: StopReason, share: float) -> Quantity:
        if not asked.stops_early:
            return runs_s
        after_whole, after_short = (known.early_s.get((reason, short), ()) for short in (False, True))
        seconds = (after_short if saved_s else ()) or tuple(one - saved_s for one in after_whole)
        return _measured(seconds, fmean, runs_s.value * (runs - 1 + share) / runs - saved_s, "trial")

    old, new = early_s(StopReason.NOT_ABOVE, _EARLY_BELOW_SHARE), early_s(StopReason.ABOVE, _EARLY_ABOVE_SHARE)
    ends = [known.scores.get(end.sha) for end in (asked.wanted.old, asked.wanted.new)]
    scores = [median(one) for one in ends if one is not None]  # of both ends, if both were measured here
    direction = settings.bisect.expected
    if direction is None and len(scores) == len(ends):
        direction = Direction.between(*scores)
    if direction is Direction.REGRESSION:
        old, new = new, old
    # The last run may end early by comparison with another run: clear of it, or alike.
    repeats = asked.stops_early and workload.workload.repeats_itself()
    apart_s, alike_s = (
        runs_s.value * (1 - of_run_min / RUN_MIN) / runs if repeats else 0.0 for of_run_min in (APART_MIN, ALIKE_MIN)
    )
    both_ways_s = [0.0 if fill_s is None else 2 * (whole_s - saved_s - more_s) for more_s in (0.0, alike_s)]
    spread, noise = spread_of(known, counted=counted), noise_of(known.earlier, counted=counted)
    runs_there_are = round(Rules().max_runs * _SHARE_OF_RUNS)
    least = least_factor(max(2, matter), spread.value, noise, miss=1 - Rules().target, runs=runs_there_are)
    usual = (_SMALL, "a small change") if counted else (LEAST_FACTOR, "a large change")
    factor = Quantity(max(usual[0], least), f"assumed: {usual[1]}", measured=False)
    if len(scores) == len(ends) and direction is not None:
        values = " and ".join(settings.bisect.objective.text(settings.bisect.objective.value_of(one)) for one in scores)
        times = math.exp((scores[1] - scores[0]) * direction.sign)
        factor = Quantity(times, f"{values}, measured here", measured=True)
    wrong = f"of {units.plural(known.earlier.better, 'reading')} here"
    if not known.earlier.better:
        wrong = _COUNTED if counted else "assumed: no kernel of the better side was read twice here"
    return Inputs(
        build_least_s=build_least_s,
        build_most_s=build_most_s,
        setup_s=setup_s,
        runs_s=runs_s,
        early_old_s=old,
        early_new_s=new,
        fill_s=fill_s,
        spread=spread,
        factor=factor,
        least=least,
        noise=noise,
        wrong_runs=Quantity(noise.new_as_old, wrong, measured=bool(known.earlier.better)),
        durations=Durations(
            build_least_min=build_least_s.value / _MIN_S,
            build_most_min=build_most_s.value / _MIN_S,
            setup_min=setup_s.value / _MIN_S,
            whole_run_min=runs_s.value / _MIN_S,
            early_old_min=old.value / _MIN_S,
            early_new_min=new.value / _MIN_S,
            unclear_min=(runs_s.value - saved_s) / _MIN_S,
            apart_min=(runs_s.value - apart_s) / _MIN_S,
            both_ways_min=both_ways_s[0] / _MIN_S,
            alike_min=both_ways_s[1] / _MIN_S,
        ),
    )


def _measured(
    seconds: Sequence[float],
    of: Callable[[Sequence[float]], float],
    otherwise_s: float,
    what: str,
    source: str = "assumed",
) -> Quantity:
    if not seconds:
        return Quantity(otherwise_s, source, measured=False)
    return Quantity(of(seconds), f"of {units.plural(len(seconds), what)} here", measured=True)


def spread_of(known: Experience, *, counted: bool) -> Quantity:
    """Return the standard deviation of readings of one kernel, in natural log units."""
    repeats = [all_of for all_of in known.scores.values() if len(all_of) > 1]
    if not repeats and counted:
        return Quantity(_COUNTED_SPREAD, _COUNTED, measured=False)
    if not repeats:
        return Quantity(_SPREAD, "assumed: no kernel was read twice here", measured=False)
    squares = math.fsum((x - fmean(all_of)) ** 2 for all_of in repeats for x in all_of)
    readings = sum(map(len, repeats))
    deviation = math.sqrt(squares / (readings - len(repeats)))
    of = f"{units.plural(readings, 'reading')} of {units.plural(len(repeats), 'kernel')} here"
    return Quantity(max(deviation, 0.001), of, measured=True)


def noise_of(earlier: EarlierSearches, *, counted: bool) -> Noise:
    """Return the error rates.

    In counted time only a kernel as a whole misleads, as long as there are no readings that show otherwise.
    """
    return Noise(old_as_new=0.0, new_as_old=0.0) if counted and not (earlier.better or earlier.worse) else earlier.noise


_EFFECTS, _EFFECTS_COUNTED = (0.05, 0.10, 0.20), (0.001, 0.01, 0.05)


class Detectable(JsonObject, frozen=True, kw_only=True):
    """The effort to find a change of one size."""

    effect: Annotated[float, "the change of the value, as a share"]
    pairs: Annotated[int | None, "readings of each end that tell nine of ten such changes; `null` for none that do"]
    trials: Annotated[float | None, "trials of the search at least, both ends aside; `null` for none that do"]


def effects_of(commits: int, spread: float, noise: Noise, *, counted: bool) -> tuple[Detectable, ...]:
    """Return the effort to find changes of usual sizes among so many commits.

    ``spread`` is the standard deviation of readings in natural log units. A search takes no fewer trials than the
    channel's bound (:func:`bisector.search.noise.expected_runs`).
    """
    found = []
    for effect in _EFFECTS_COUNTED if counted else _EFFECTS:
        trials = expected_runs(commits, error_rate(1 + effect, spread, noise), 1 - Rules().target)
        pairs = pairs_to_tell(spread, effect)
        found.append(Detectable(effect=effect, pairs=pairs, trials=trials if math.isfinite(trials) else None))
    return tuple(found)


def effects_text(effects: tuple[Detectable, ...]) -> str:
    """``of 5%: cannot be told; of 10%: 18 pairs of the ends and 45 trials at least``: the effort for all sizes."""

    def text(one: Detectable) -> str:
        if one.pairs is None or one.trials is None:
            return f"{percent_text(one.effect)}: cannot be told"
        return f"{percent_text(one.effect)}: {one.pairs} pairs of the ends and {one.trials:.0f} trials"

    return f"of {'; of '.join(map(text, effects))} at least"


_SEARCHES = 30


class BudgetReach(JsonObject, frozen=True, kw_only=True):
    """The results of a forecast's searches within a budget."""

    budget_s: Annotated[float, "seconds of measuring that there are"]
    searches: Annotated[int, "number of simulated searches"]
    named: Annotated[int, "how many of them name a commit in that time"]
    named_right: Annotated[float, "share of these that name the right one; 0 if there are none"]
    candidates: Annotated[float, "median number of commits that the others are left with; 0 if there are none"]

    @classmethod
    def of(cls, results: Sequence[SimulatedResult], budget_s: float) -> "BudgetReach":
        """Return the results of searches that had ``budget_s`` seconds."""
        found, searches = Summary.of(results), len(results)
        named, right, left = round(found.named_rate * searches), found.named_right_rate, found.left_median
        return cls(budget_s=budget_s, searches=searches, named=named, named_right=right, candidates=left)

    @property
    def sentence(self) -> str:
        """The results in a sentence, for a person."""
        budget = units.duration(self.budget_s)
        named = f"{self.named} of {self.searches} simulated searches name a commit in {budget}"
        if self.named == self.searches:
            return named
        which = "the others" if self.named else "they"
        return f"{named}; {which} narrow it down to {units.plural(round(self.candidates), 'commit')} (median)"


def reach_from(case: Case, budget_s: float) -> BudgetReach:
    """Return what a search reaches from its present state, by the times of its trials so far."""
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
    return BudgetReach.of(tuple(results), budget_s)


_CAN_MATTER_LATER = "how many can matter to this kernel is known once both ends are built"
_HOPELESS_BELOW = 0.5
_CLOSE = 1.05
# A gain below this share of the time is within the difference of two simulations of the same.
_WORTH_IT = 0.03


class Shared(JsonObject, frozen=True, kw_only=True):
    """The gain from several hosts like this one, each of which measures both ends first."""

    hosts: Annotated[int, "number of hosts"]
    hours: Annotated[float, "expected hours on the clock"]
    hours_alone: Annotated[float, "the same of one host"]
    hours_with_one_less: Annotated[float, "the same of one host less"]


class Forecast(JsonObject, frozen=True, kw_only=True):
    """The document that ``bisector plan --json`` prints."""

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
    inputs: Annotated[Inputs, FLAT]
    effects: Annotated[tuple[Detectable, ...], "what changes of usual sizes take at this noise"]
    clock: Annotated[GuestTime, "what makes the guests' time pass"]
    clock_note: Annotated[
        str | None, "what this clock does not show, or what counted time would do; `null` if there is nothing to say"
    ] = None
    reach: Annotated[BudgetReach | None, "what is reached within `--budget`; `null` without it"] = None
    shared: Annotated[Shared | None, "what several hosts gain; `null` without `--hosts`"] = None
    guests: Annotated[int, "how many guests measure at the same time"] = 1


def forecast(asked: ForecastRequest, known: Experience, relevance: Relevance | None) -> Forecast:
    """Return the forecast, from what is known of this machine; figures that are assumed say so."""
    matter = relevance.can_matter if relevance is not None else len(asked.graph)
    inputs = inputs_of(asked, known, matter)
    noise, spread = inputs.noise, inputs.spread.value
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
    stack, fixed_s = asked.settings.storage.stack, 0.0
    if asked.settings.kernel.recheck:
        # The answer's kernel is built in an empty directory; then its parent's kernel and, with the posterior, a
        # changed end's.
        others = {Strategy.BAYES: 2, Strategy.GIT: 1}[asked.strategy]
        fixed_s += inputs.build_most_s.value + others * inputs.build_least_s.value
    if asked.settings.bisect.baselines:  # each disk alone takes a guest of its own and one run
        fixed_s += len(stack.baselines) * (inputs.setup_s.value + inputs.runs_s.value / len(stack.phases))
    reach = None
    if asked.budget_s is not None:
        # The budget does not apply to the kernels that are built once more at the end.
        left_s = asked.budget_s - conditions.ends_min * _MIN_S
        durations = inputs_of(asked, known, matter, left_s).durations
        within = replace(conditions, durations=durations, budget_min=left_s / _MIN_S)
        reach = BudgetReach.of(_drawn(asked, within, known.earlier), asked.budget_s)
    ends = 2 * (1 + summary.both_ways_rate)
    shared = None
    if asked.hosts > 1 and asked.strategy is Strategy.BAYES:
        hours = {
            count: Summary.of(_drawn(asked, replace(conditions, hosts=count), known.earlier)).wall_hours_mean
            for count in {1, asked.hosts - 1, asked.hosts}
        }
        alone, with_one_less = hours[1], hours[asked.hosts - 1]
        shared = Shared(
            hosts=asked.hosts, hours=hours[asked.hosts], hours_alone=alone, hours_with_one_less=with_one_less
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
        hours=fixed_s / 3600 + summary.wall_hours_mean,
        hours_p90=fixed_s / 3600 + summary.wall_hours_p90,
        guests=conditions.guests,
        first_answer_right=summary.success_rate,
        claimed=summary.claimed_mean,
        least_factor=inputs.least if math.isfinite(inputs.least) else None,
        searches=asked.searches,
        seed=asked.seed,
        warnings=(*asked.remarks, *_warnings(asked, inputs, summary, shared)),
        hopeless=_refused(asked, inputs) or summary.success_rate < _HOPELESS_BELOW,
        files=asked.settings.workload.files.sentence,
        inputs=inputs,
        effects=effects_of(max(2, matter), spread, noise, counted=asked.settings.machine.is_counted),
        clock=asked.settings.machine.time,
        clock_note=asked.settings.machine.time.note(could_count=asked.could_count) or None,
        reach=reach,
        shared=shared,
    )


def apart(factor: float) -> str:
    """Format a factor with two digits after the point, or three if it is close to 1."""
    return f"{factor:.{3 if factor < _CLOSE else 2}f}"


def _drawn(asked: ForecastRequest, conditions: Conditions, earlier: EarlierSearches) -> tuple[SimulatedResult, ...]:
    counted = asked.settings.machine.is_counted
    search = search_for(conditions, Rates.of_counted() if counted else Rates.unknown(earlier=earlier))
    return tuple(simulate(asked.graph, asked.strategy, conditions, search, seed=asked.seed, trials=asked.searches))


def _warnings(asked: ForecastRequest, inputs: Inputs, summary: Summary, shared: Shared | None) -> Iterator[str]:
    factor, least = inputs.factor, inputs.least
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
    inputs_by_name = {
        "builds": inputs.build_most_s,
        "what comes before the runs": inputs.setup_s,
        "the runs": inputs.runs_s,
        "noise": inputs.spread,
        "the factor between the ends": factor,
    }
    assumed = [name for name, one in inputs_by_name.items() if not one.measured]
    if assumed:
        yield f"assumed, not measured on this machine: {', '.join(assumed)}"
    if shared is not None and shared.hours > (1 - _WORTH_IT) * shared.hours_with_one_less:
        yield (
            f"the last of {shared.hosts} hosts is not worth its calibration: {shared.hosts - 1} take"
            f" {shared.hours_with_one_less:.1f} h, and {shared.hosts} take {shared.hours:.1f} h"
        )


def _refused(asked: ForecastRequest, inputs: Inputs) -> bool:
    return inputs.factor.measured and inputs.factor.value < 1 + asked.settings.bisect.least_effect


_SELDOM = 0.5  # a mean below this is not shown as a number of times


def forecast_facts(expected: Forecast) -> FactList:
    """Return the rows of a forecast for a person: what it would take, from which figures, and warnings."""
    return FactList(tuple(Fact(label, (text,), role) for label, text, role in _rows(expected)))


def _rows(one: Forecast) -> Iterator[tuple[str, str, Role]]:
    known, duration = one.inputs, units.duration

    def seen(label: str, text: str, by: Quantity, after: str = "") -> tuple[str, str, Role]:
        return label, f"{text} ({by.source}){after}", Role.PLAIN if by.measured else Role.WEAK

    can = f"{one.can_matter:,} can matter to this kernel" if one.can_matter is not None else _CAN_MATTER_LATER
    yield "range", f"{units.plural(one.commits, 'commit')}, {can}", Role.PLAIN
    at_most = f"nine of ten searches at most {one.trials_p90:.0f}; both ends included"
    yield "trials", f"{one.trials:.0f}, {at_most}", Role.PLAIN
    hours = f"{duration(one.hours * 3600)}, nine of ten at most {duration(one.hours_p90 * 3600)}"
    yield "time", f"{hours}{f', {one.guests} guests at a time' if one.guests > 1 else ''}", Role.STRONG
    if (shared := one.shared) is not None:
        each = f"{duration(shared.hours * 3600)} on the clock, each host measures both ends"
        yield f"{shared.hosts} hosts", f"{each}; one host: {duration(shared.hours_alone * 3600)}", Role.STRONG
    if one.reach is not None:
        yield "budget", one.reach.sentence, Role.STRONG
    right = f"{one.first_answer_right:.0%} of the answers right, {one.claimed:.1%} claimed"
    yield "confidence", f"{right} ({one.searches} simulated searches by {one.strategy}, seed {one.seed})", Role.PLAIN
    builds = f"{duration(known.build_least_s.value)} to {duration(known.build_most_s.value)}"
    yield seen("a build", builds, known.build_most_s)
    yield seen("before runs", duration(known.setup_s.value), known.setup_s)
    yield "the files", one.files, Role.PLAIN
    yield seen("the runs", duration(known.runs_s.value), known.runs_s)
    if known.early_new_s.value < known.runs_s.value:
        early = (
            f"{duration(known.early_old_s.value)} on the old side, {duration(known.early_new_s.value)} on the new one"
        )
        yield seen("stopped early", early, known.early_new_s)
    if known.fill_s is not None:
        until = f"{duration(known.fill_s.value)} until a cache is settled"
        yield seen("filling", until, known.fill_s, "; both ends are measured both ways")
    yield seen("noise", f"{math.expm1(known.spread.value):.1%}", known.spread)
    wrong = f"{known.wrong_runs.value:.1%} of the better side's look like the worse side's"
    yield seen("wrong runs", wrong, known.wrong_runs)
    again = ""
    if one.ends_again >= _SELDOM:
        times = units.plural(round(one.ends_again), "time")
        again = f"; so near that they are read {times} more before the search, to tell them apart"
    yield seen("the ends", f"{apart(known.factor.value)} times apart", known.factor, again)
    yield "changes", effects_text(one.effects), Role.PLAIN
    if one.clock_note is not None:
        yield "clock", one.clock_note, Role.PLAIN
    found = f"what is at least {apart(one.least_factor)} times apart" if one.least_factor is not None else "nothing"
    yield "findable", found, Role.PLAIN
    for warning in one.warnings:
        yield "warning", warning, Role.WORSE if one.hopeless else Role.WEAK
