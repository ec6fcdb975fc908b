"""What a bisection of a range would take: the search on the range's own graph, at this machine's times and noise."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, expm1, isfinite
from statistics import fmean, median
from typing import Annotated, Literal, TypeAlias

from bisector.config import Settings
from bisector.core import units
from bisector.core.json_document import SCHEMA, NamedCommit, Record
from bisector.core.subject import Relevance
from bisector.core.verdict import Direction, Strategy
from bisector.git.ranges import Range
from bisector.plan.experience import Experience
from bisector.report.terminal import Line, Role, Span, left, wrapped
from bisector.search.graph import RangeGraph
from bisector.search.likelihood import Noise, least_factor
from bisector.search.simulate.runs import Summary, search_for, simulate
from bisector.search.simulate.world import BUILD_LEAST_MIN, BUILD_MOST_MIN, SETUP_MIN, Conditions, Durations
from bisector.search.step import Rules

_LABEL_WIDTH = 15
_MIN_S = 60.0
# Of the smallest configuration, measured on two cores: a file that changed, and everything.
SMALL_BUILD_S = (17.0, 280.0)
_SPREAD = 0.10  # what a reading is believed to repeat within, as long as nothing was repeated
# Of the 40 s of the run that counts a fast kernel's took 22, and a slow one's 33 with one fast known; those before it
# are always whole.
_EARLY_ABOVE_SHARE = 22 / 40
_EARLY_BELOW_SHARE = 33 / 40
# At the factor that the bound gives to this share of their runs at least 9 of 10 searches are right, at its root at
# most 8 of 10 (tests/search/test_likelihood.py, 20 searches a spread).
_SHARE_OF_RUNS = 0.6
_HOPELESS_BELOW = 0.5

_Figure: TypeAlias = Callable[[Sequence[float]], float]


class Quantity(Record, frozen=True):
    """A figure that went into a forecast."""

    value: Annotated[float, "in the unit that its key names"]
    source: Annotated[str, "where it comes from"]
    measured: Annotated[bool, "whether it was measured on this machine"]


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
    build_least_s: Annotated[Quantity, "seconds of the shortest build"]
    build_most_s: Annotated[Quantity, "seconds of the longest build"]
    setup_s: Annotated[Quantity, "seconds before the runs of a trial"]
    runs_s: Annotated[Quantity, "seconds of the runs of a trial"]
    early_old_s: Annotated[Quantity, "seconds of the runs when they stop early, on the old side"]
    early_new_s: Annotated[Quantity, "seconds of the runs when they stop early, on the new side"]
    spread: Annotated[Quantity, "standard deviation of readings of one kernel, in natural log units"]
    factor: Annotated[Quantity, "factor between the ends"]


@dataclass(frozen=True, slots=True)
class Asked:
    """A range, its graph, the settings, and how many searches are simulated with which seed."""

    wanted: Range
    graph: RangeGraph
    settings: Settings
    strategy: Strategy = Strategy.BAYES
    searches: int = 30
    seed: int = 1

    @property
    def stops_early(self) -> bool:
        """Whether runs may be: only what fio reports while a run lasts tells its side before the end."""
        return not self.settings.workload.full_runs and self.settings.bisect.objective.definition.live


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What a forecast is made from; :class:`Forecast` says what each is."""

    build_least_s: Quantity
    build_most_s: Quantity
    setup_s: Quantity
    runs_s: Quantity
    early_old_s: Quantity
    early_new_s: Quantity
    spread: Quantity
    factor: Quantity


def forecast(asked: Asked, known: Experience, relevance: Relevance | None) -> Forecast:
    """The forecast, from what is known of this machine; what is not is assumed, and says so."""
    inputs = _inputs(asked, known)
    matter = relevance.can_matter if relevance is not None else len(asked.graph)
    noise, spread = Noise(), inputs.spread.value
    conditions = Conditions(
        old_as_new=noise.old_as_new,
        new_as_old=noise.new_as_old,
        sticky=noise.sticky,
        skip=0.03,
        relevant=min(1.0, max(1, matter) / len(asked.graph)),
        early_stop=asked.stops_early,
        effect=max(inputs.factor.value, 1.0001),
        spread=spread,
        durations=_durations(inputs),
    )
    drawn = simulate(
        asked.graph,
        asked.strategy,
        conditions,
        search_for(conditions, noise),
        seed=asked.seed,
        trials=asked.searches,
    )
    summary = Summary.of(tuple(drawn))
    runs = round(Rules().max_runs * _SHARE_OF_RUNS)
    least = least_factor(max(2, matter), spread, noise, miss=1 - Rules().target, runs=runs)
    fixed_hours = (2 * _trial_s(inputs, inputs.build_most_s.value) + _baselines_s(asked, inputs)) / 3600
    return Forecast(
        old=NamedCommit.of(asked.wanted.old),
        new=NamedCommit.of(asked.wanted.new),
        commits=len(asked.graph),
        can_matter=relevance.can_matter if relevance is not None else None,
        strategy=asked.strategy,
        trials=2 + summary.evaluations_mean + summary.skips_mean,
        trials_p90=2 + summary.evaluations_p90 + summary.skips_mean,
        hours=fixed_hours + summary.vm_hours_mean,
        hours_p90=fixed_hours + summary.vm_hours_p90,
        first_answer_right=summary.success_rate,
        claimed=summary.claimed_mean,
        least_factor=least if isfinite(least) else None,
        searches=asked.searches,
        seed=asked.seed,
        warnings=tuple(_warnings(asked, inputs, summary, least)),
        hopeless=_refused(asked, inputs) or summary.success_rate < _HOPELESS_BELOW,
        build_least_s=inputs.build_least_s,
        build_most_s=inputs.build_most_s,
        setup_s=inputs.setup_s,
        runs_s=inputs.runs_s,
        early_old_s=inputs.early_old_s,
        early_new_s=inputs.early_new_s,
        spread=inputs.spread,
        factor=inputs.factor,
    )


def forecast_lines(expected: Forecast, width: int) -> Iterator[Line]:
    """The paragraph for a person: what it would take, from which figures, and what speaks against it."""
    for label, text, role in _rows(expected):
        for number, line in enumerate(wrapped(text.split(), width - _LABEL_WIDTH)):
            yield Span(left(label if number == 0 else "", _LABEL_WIDTH), Role.HEAD), Span(line, role)


def _warnings(asked: Asked, inputs: _Inputs, summary: Summary, least: float) -> Iterator[str]:
    factor = inputs.factor
    if _refused(asked, inputs):
        needed = asked.settings.bisect.min_ends_ratio
        yield (
            f"hopeless: the ends measured {factor.value:.2f} times apart, and less than {needed:.2f} is refused: choose"
            " other ends, or a workload that tells them apart"
        )
    elif summary.success_rate < _HOPELESS_BELOW:
        yield (
            f"hopeless: with this noise {1 - summary.success_rate:.0%} of the answers would be wrong or none; longer"
            " runs have less noise"
        )
    elif factor.value < least:
        yield f"the ends are {factor.value:.2f} times apart; with this noise less than {least:.2f} is not surely found"
    assumed = [name for name, one in _named(inputs) if not one.measured]
    if assumed:
        yield f"assumed, not measured on this machine: {', '.join(assumed)}"


def _named(inputs: _Inputs) -> tuple[tuple[str, Quantity], ...]:
    return (
        ("builds", inputs.build_most_s),
        ("what comes before the runs", inputs.setup_s),
        ("the runs", inputs.runs_s),
        ("noise", inputs.spread),
        ("the factor between the ends", inputs.factor),
    )


def _refused(asked: Asked, inputs: _Inputs) -> bool:
    """Whether ``start`` would not go on from these ends."""
    asked_for = asked.settings.bisect
    return inputs.factor.measured and asked_for.threshold is None and inputs.factor.value < asked_for.min_ends_ratio


def _durations(inputs: _Inputs) -> Durations:
    runs_min = inputs.runs_s.value / _MIN_S
    return Durations(
        build_least_min=inputs.build_least_s.value / _MIN_S,
        build_most_min=inputs.build_most_s.value / _MIN_S,
        setup_min=inputs.setup_s.value / _MIN_S,
        whole_run_min=runs_min,
        early_old_min=inputs.early_old_s.value / _MIN_S,
        early_new_min=inputs.early_new_s.value / _MIN_S,
    )


def _trial_s(inputs: _Inputs, build_s: float) -> float:
    return build_s + inputs.setup_s.value + inputs.runs_s.value


def _baselines_s(asked: Asked, inputs: _Inputs) -> float:
    """Each disk alone is a guest of its own, and one run."""
    stack = asked.settings.storage.stack
    run_s = inputs.runs_s.value / len(stack.phases)
    return len(stack.baselines) * (inputs.setup_s.value + run_s) if asked.settings.bisect.baselines else 0.0


def _inputs(asked: Asked, known: Experience) -> _Inputs:
    settings = asked.settings
    least_s, most_s = SMALL_BUILD_S
    if settings.kernel.base_config is not None:
        least_s, most_s = BUILD_LEAST_MIN * _MIN_S, BUILD_MOST_MIN * _MIN_S
    runs = len(settings.storage.stack.phases)
    runs_s = _measured(known.workloads_s, fmean, float(runs * settings.workload.runtime_s), "trial", "as asked for")
    old, new = (
        _measured(seconds, fmean, runs_s.value * (runs - 1 + share) / runs, "trial") if asked.stops_early else runs_s
        for seconds, share in ((known.below_s, _EARLY_BELOW_SHARE), (known.above_s, _EARLY_ABOVE_SHARE))
    )
    if _direction(asked, known) is Direction.REGRESSION:
        old, new = new, old
    return _Inputs(
        build_least_s=_measured(known.builds_s, min, least_s, "build"),
        build_most_s=_measured(known.builds_s, max, most_s, "build"),
        setup_s=_measured(known.setups_s, median, SETUP_MIN * _MIN_S, "trial"),
        runs_s=runs_s,
        early_old_s=old,
        early_new_s=new,
        spread=_spread(known),
        factor=_factor(asked, known),
    )


def _measured(
    seconds: Sequence[float], of: _Figure, otherwise_s: float, what: str, source: str = "assumed"
) -> Quantity:
    if not seconds:
        return Quantity(otherwise_s, source, measured=False)
    return Quantity(of(seconds), f"of {units.plural(len(seconds), what)} here", measured=True)


def _spread(known: Experience) -> Quantity:
    spread = known.spread
    if spread is None:
        return Quantity(_SPREAD, "assumed: no kernel was read twice here", measured=False)
    of = f"{units.plural(spread.readings, 'reading')} of {units.plural(spread.kernels, 'kernel')} here"
    return Quantity(max(spread.deviation, 0.001), of, measured=True)


def _factor(asked: Asked, known: Experience) -> Quantity:
    """By what factor the ends differ, in the direction that is expected."""
    ends = _ends(asked, known)
    if ends is None:
        return Quantity(asked.settings.bisect.min_ends_ratio, "assumed: the least that is not refused", measured=False)
    (old, new), objective = ends, asked.settings.bisect.objective
    direction = asked.settings.bisect.expected or Direction.between(old, new)
    values = " and ".join(objective.text(objective.value_of(score)) for score in ends)
    return Quantity(exp((new - old) * direction.sign), f"{values}, measured here", measured=True)


def _ends(asked: Asked, known: Experience) -> tuple[float, float] | None:
    """The scores of both ends, where both were measured here."""
    old, new = (known.scores.get(end.sha) for end in (asked.wanted.old, asked.wanted.new))
    return None if old is None or new is None else (median(old), median(new))


def _direction(asked: Asked, known: Experience) -> Direction | None:
    ends = _ends(asked, known)
    return asked.settings.bisect.expected or (None if ends is None else Direction.between(*ends))


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
    yield "time", hours, Role.STRONG
    right = f"{one.first_answer_right:.0%} of the answers right, {one.claimed:.1%} claimed"
    yield "confidence", f"{right} ({one.searches} simulated searches by {one.strategy}, seed {one.seed})", Role.PLAIN
    builds = f"{units.duration(one.build_least_s.value)} to {units.duration(one.build_most_s.value)}"
    yield "a build", f"{builds} ({one.build_most_s.source})", _role(one.build_most_s)
    before = f"{units.duration(one.setup_s.value)} ({one.setup_s.source})"
    yield "before runs", before, _role(one.setup_s)
    yield "the runs", f"{units.duration(one.runs_s.value)} ({one.runs_s.source})", _role(one.runs_s)
    if one.early_new_s.value < one.runs_s.value:
        early = f"{units.duration(one.early_old_s.value)} on the old side, {units.duration(one.early_new_s.value)}"
        yield "stopped early", f"{early} on the new one ({one.early_new_s.source})", _role(one.early_new_s)
    yield "noise", f"{expm1(one.spread.value):.1%} ({one.spread.source})", _role(one.spread)
    yield "the ends", f"{one.factor.value:.2f} times apart ({one.factor.source})", _role(one.factor)
    found = f"what is at least {one.least_factor:.2f} times apart" if one.least_factor is not None else "nothing"
    yield "findable", found, Role.PLAIN
    for warning in one.warnings:
        yield "warning", warning, Role.OLD if one.hopeless else Role.WEAK


def _role(quantity: Quantity) -> Role:
    return Role.PLAIN if quantity.measured else Role.WEAK
