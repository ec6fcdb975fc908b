"""What a bisection of a range would take: the search on the range's own graph, at this machine's times and noise."""

from collections.abc import Iterator
from dataclasses import replace
from math import isfinite
from typing import Annotated, Literal

from bisector.core.guest_time import GuestTime
from bisector.core.json_document import SCHEMA, NamedCommit, Record
from bisector.core.kinds import percent_text
from bisector.core.subject import Relevance
from bisector.core.verdict import Strategy
from bisector.plan.budget import Reach
from bisector.plan.effects import Detectable, effects_of
from bisector.plan.experience import Experience
from bisector.plan.inputs import Asked, Inputs, Quantity, inputs_of
from bisector.search.difference import Rule
from bisector.search.levels import OF_COUNTED, OF_HOSTS
from bisector.search.noise import Earlier, Rates
from bisector.search.simulate.runs import Result, Summary, search_for, simulate
from bisector.search.simulate.world import Conditions

_MIN_S = 60.0
_HOPELESS_BELOW = 0.5
_CLOSE = 1.05
# Less than this share of the time is within what two simulations of the same differ by.
_WORTH_IT = 0.03


class Shared(Record, frozen=True, kw_only=True):
    """What several hosts that are like this one gain, each of which measures both ends first."""

    hosts: Annotated[int, "number of hosts"]
    hours: Annotated[float, "expected hours on the clock"]
    hours_alone: Annotated[float, "the same of one host"]
    hours_with_one_less: Annotated[float, "the same of one host less"]

    @property
    def saved_hours(self) -> float:
        """By how much the last host shortens it."""
        return self.hours_with_one_less - self.hours


class Forecast(Record, frozen=True, kw_only=True):
    """What ``bisector plan --json`` prints."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    old: Annotated[NamedCommit, "the old end"]
    new: Annotated[NamedCommit, "the new end"]
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
    reach: Annotated[Reach | None, "what is reached within `--budget`; `null` without it"] = None
    shared: Annotated[Shared | None, "what several hosts gain; `null` without `--hosts`"] = None
    guests: Annotated[int, "how many guests measure at the same time"] = 1


def forecast(asked: Asked, known: Experience, relevance: Relevance | None) -> Forecast:
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
        rule=Rule(asked.settings.bisect.least_effect, asked.settings.bisect.most_pairs),
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
        reach = Reach.of(_drawn(asked, within, known.earlier), asked.budget_s)
    ends = 2 * (1 + summary.both_ways_rate)
    shared = _shared(asked, conditions, known.earlier) if _is_shared(asked) else None
    return Forecast(
        old=NamedCommit.of(asked.wanted.old),
        new=NamedCommit.of(asked.wanted.new),
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


def _drawn(asked: Asked, conditions: Conditions, earlier: Earlier) -> tuple[Result, ...]:
    counted = asked.settings.machine.is_counted
    search = search_for(conditions, Rates.of_counted() if counted else Rates.unknown(earlier=earlier))
    return tuple(simulate(asked.graph, asked.strategy, conditions, search, seed=asked.seed, trials=asked.searches))


def _is_shared(asked: Asked) -> bool:
    """Whether several hosts are asked about; git tries one commit at a time, on whichever host."""
    return asked.hosts > 1 and asked.strategy is Strategy.BAYES


def _shared(asked: Asked, conditions: Conditions, earlier: Earlier) -> Shared:
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


def _warnings(asked: Asked, inputs: Inputs, summary: Summary, least: float) -> Iterator[str]:
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


def _refused(asked: Asked, inputs: Inputs) -> bool:
    """Whether ``start`` would not go on from these ends."""
    return inputs.factor.measured and inputs.factor.value < 1 + asked.settings.bisect.least_effect


def _once_more_s(asked: Asked, inputs: Inputs) -> float:
    """The answer's kernel is built in an empty directory; after it its parent's, and by Bayes a changed end's."""
    if not asked.settings.kernel.recheck:
        return 0.0
    others = {Strategy.BAYES: 2, Strategy.GIT: 1}[asked.strategy]
    return inputs.build_most_s.value + others * inputs.build_least_s.value


def _baselines_s(asked: Asked, inputs: Inputs) -> float:
    """Each disk alone is a guest of its own, and one run."""
    stack = asked.settings.storage.stack
    run_s = inputs.runs_s.value / len(stack.phases)
    return len(stack.baselines) * (inputs.setup_s.value + run_s) if asked.settings.bisect.baselines else 0.0
