"""What a bisection would take, as text and as JSON.

``bisector plan --json`` prints one object, made by :func:`to_json`:

=====================  ============================================================================
``schema``             1
``old``, ``new``       ``{sha, subject, committed_at}``: the ends
``commits``            how many the range has; ``can_matter`` is how many of them can change the kernel, or ``null``
``strategy``           ``bayes`` or ``git``
``trials``             expected number, both ends included; nine of ten searches take at most ``trials_p90``
``hours``              expected, likewise with ``hours_p90``
``first_answer_right`` share of the simulated searches; ``claimed`` is the mean probability that they state
``least_factor``       the smallest factor between the ends that is surely found
``factor``             that of the ends, and what else was put in: ``build_least_s``, ``build_most_s``, ``setup_s``,
                       ``runs_s``, ``early_old_s``, ``early_new_s``, ``spread``; each ``{value, source, measured}``
``searches``, ``seed`` of the simulation
``warnings``           ``[sentence]``; ``hopeless`` says that it is not worth starting (exit code 1)
=====================  ============================================================================
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from bisector.core import units
from bisector.core.model import Commit
from bisector.report.text import Line, Role, Span, left, wrapped

SCHEMA = 1
_LABEL_WIDTH = 15


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure that went into a forecast, and where it comes from; only what is ``measured`` is of this machine."""

    value: float
    source: str
    measured: bool


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a forecast was made from: seconds, the factor between the ends, the spread in natural log units."""

    build_least_s: Quantity
    build_most_s: Quantity
    setup_s: Quantity
    runs_s: Quantity
    early_old_s: Quantity
    early_new_s: Quantity
    spread: Quantity
    factor: Quantity


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a bisection would take, and whether it would find anything; trials include both ends."""

    old: Commit
    new: Commit
    commits: int
    can_matter: int | None
    strategy: str
    trials: float
    trials_p90: float
    hours: float
    hours_p90: float
    first_answer_right: float
    claimed: float
    least_factor: float
    inputs: Inputs
    searches: int
    seed: int
    warnings: tuple[str, ...]
    hopeless: bool


def to_json(forecast: Forecast) -> dict[str, object]:
    """The documented contract as plain values."""
    whole = asdict(forecast)
    inputs = whole.pop("inputs")
    for end in ("old", "new"):
        whole[end].pop("tree")
    return {"schema": SCHEMA, **{key: _plain(value) for key, value in whole.items()}, **inputs}


def forecast_lines(forecast: Forecast, width: int) -> Iterator[Line]:
    """The paragraph for a person: what it would take, from which figures, and what speaks against it."""
    for label, text, role in _rows(forecast):
        for number, line in enumerate(wrapped(text.split(), width - _LABEL_WIDTH)):
            yield Span(left(label if number == 0 else "", _LABEL_WIDTH), Role.HEAD), Span(line, role)


def _rows(forecast: Forecast) -> Iterator[tuple[str, str, Role]]:
    one, given = forecast, forecast.inputs
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
    builds = f"{units.duration(given.build_least_s.value)} to {units.duration(given.build_most_s.value)}"
    yield "a build", f"{builds} ({given.build_most_s.source})", _role(given.build_most_s)
    before = f"{units.duration(given.setup_s.value)} ({given.setup_s.source})"
    yield "before runs", before, _role(given.setup_s)
    yield "the runs", f"{units.duration(given.runs_s.value)} ({given.runs_s.source})", _role(given.runs_s)
    if given.early_new_s.value < given.runs_s.value:
        early = f"{units.duration(given.early_old_s.value)} on the old side, {units.duration(given.early_new_s.value)}"
        yield "stopped early", f"{early} on the new one ({given.early_new_s.source})", _role(given.early_new_s)
    yield "noise", f"{math.expm1(given.spread.value):.1%} ({given.spread.source})", _role(given.spread)
    yield "the ends", f"{given.factor.value:.2f} times apart ({given.factor.source})", _role(given.factor)
    found = f"what is at least {one.least_factor:.2f} times apart" if math.isfinite(one.least_factor) else "nothing"
    yield "findable", found, Role.PLAIN
    for warning in one.warnings:
        yield "warning", warning, Role.OLD if one.hopeless else Role.WEAK


def _role(quantity: Quantity) -> Role:
    return Role.PLAIN if quantity.measured else Role.WEAK


def _plain(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
