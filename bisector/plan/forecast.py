"""What a bisection would take, as text and as JSON.

``bisector plan --json`` prints one object, made by :func:`to_json`, with the keys of :data:`KEYS`.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from bisector.core import units
from bisector.core.commit import Commit
from bisector.core.json_keys import Key
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


_COMMIT = ("sha", "subject", "committed_at")
KEYS: tuple[Key, ...] = (
    Key("schema", "1; counts up when a key is renamed, removed or changes its meaning"),
    Key("old", "the old end", more=_COMMIT),
    Key("new", "the new end", more=_COMMIT),
    Key("commits", "number of commits in the range"),
    Key("can_matter", "how many of them can change the kernel; `null` if that is not known"),
    Key("strategy", "`bayes` or `git`"),
    Key("trials", "expected number of trials, both ends included"),
    Key("trials_p90", "nine of ten searches take at most so many"),
    Key("hours", "expected hours"),
    Key("hours_p90", "nine of ten searches take at most so many"),
    Key("first_answer_right", "share of the simulated searches with the right answer"),
    Key("claimed", "mean probability that these searches claim"),
    Key("least_factor", "smallest factor between the ends that can be told from noise; `null` if there is none"),
    Key("searches", "number of simulated searches"),
    Key("seed", "seed of the simulation"),
    Key("warnings", "sentences"),
    Key("hopeless", "whether it is not worth starting (exit code 1)"),
    Key("build_least_s", "seconds of the shortest build", Quantity),
    Key("build_most_s", "seconds of the longest build", Quantity),
    Key("setup_s", "seconds before the runs of a trial", Quantity),
    Key("runs_s", "seconds of the runs of a trial", Quantity),
    Key("early_old_s", "the same when they stop early, on the old side", Quantity),
    Key("early_new_s", "the same when they stop early, on the new side", Quantity),
    Key("spread", "standard deviation of readings of one kernel, in natural log units", Quantity),
    Key("factor", "factor between the ends", Quantity),
)


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
