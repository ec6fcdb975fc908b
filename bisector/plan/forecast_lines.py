"""The forecast for a person: what a bisection would take, from which figures, and what speaks against it."""

from collections.abc import Iterator
from math import expm1

from bisector.core import units
from bisector.plan.effects import effects_text
from bisector.plan.forecast import Forecast, apart
from bisector.plan.inputs import Quantity
from bisector.report.terminal import Line, Role, Span, left, wrapped

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
