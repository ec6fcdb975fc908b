"""What a bisection would take, as text and as JSON."""

import math
from collections.abc import Iterator
from typing import Annotated, Literal

from bisector.core import units
from bisector.core.json_document import SCHEMA, NamedCommit, Record
from bisector.core.verdict import Strategy
from bisector.report.text import Line, Role, Span, left, wrapped

_LABEL_WIDTH = 15


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


def forecast_lines(forecast: Forecast, width: int) -> Iterator[Line]:
    """The paragraph for a person: what it would take, from which figures, and what speaks against it."""
    for label, text, role in _rows(forecast):
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
    yield "noise", f"{math.expm1(one.spread.value):.1%} ({one.spread.source})", _role(one.spread)
    yield "the ends", f"{one.factor.value:.2f} times apart ({one.factor.source})", _role(one.factor)
    found = f"what is at least {one.least_factor:.2f} times apart" if one.least_factor is not None else "nothing"
    yield "findable", found, Role.PLAIN
    for warning in one.warnings:
        yield "warning", warning, Role.OLD if one.hopeless else Role.WEAK


def _role(quantity: Quantity) -> Role:
    return Role.PLAIN if quantity.measured else Role.WEAK
