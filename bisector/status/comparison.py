"""From the sound blocks of a comparison to what is said of its kernels. Pure: everything here can be derived again.

One figure of each setup decides, and all of these together are one family of tests (Holm). Every other value of the
judged runs is exploratory: those that differ are listed (Benjamini and Hochberg), and nothing is concluded from them.
A second measurement of the first kernel, the placebo, is no test of the family; it shows what noise does.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from bisector.analysis.comparison import (
    ALPHA,
    DELTA,
    Decision,
    Effect,
    Scale,
    benjamini_hochberg,
    decide,
    effect,
    geometric_mean,
)
from bisector.analysis.judgement import judged_run
from bisector.analysis.tail import thin_tail
from bisector.core.figures import Run
from bisector.core.metric import Better, named
from bisector.core.objective import MEAN, OVER, SUM, WORST, Objective, available
from bisector.core.subject import Setup
from bisector.core.trial import Trial

# What a result is made of


@dataclass(frozen=True, slots=True)
class Arm:
    """A kernel by the name that it is shown with; ``placebo`` is the first kernel, measured a second time."""

    name: str
    placebo: bool = False


@dataclass(frozen=True, slots=True)
class SoundBlock:
    """A block of which every run counts: ``trials`` has the number and the trial of each arm, in measured order."""

    round: int
    trials: Mapping[str, tuple[int, Trial]]
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """A setup, the figure that decides on it, and its sound blocks.

    ``absent`` has the arms that are measured on it no more, or never were, each with the reason. ``void`` counts the
    blocks with a weak or failed run, ``missing`` those of them after which there is no sound one. ``name`` is that by
    which people know the setup. ``alpha`` is what the intervals leave out.
    """

    setup: Setup
    objective: Objective
    blocks: tuple[SoundBlock, ...]
    absent: Mapping[str, str]
    name: str = ""
    void: int = 0
    missing: int = 0
    alpha: float = ALPHA

    @property
    def label(self) -> str:
        """The setup for a person."""
        return self.name or str(self.setup)


# What it is


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value."""

    arm: str
    round: int
    n: int
    value: float


@dataclass(frozen=True, slots=True)
class Side:
    """The figures of an arm in the blocks that count; ``absent`` says why it has none, or why no more."""

    arm: str
    figures: tuple[Figure, ...]
    absent: str = ""

    @property
    def values(self) -> tuple[float, ...]:
        """The values alone."""
        return tuple(one.value for one in self.figures)

    @property
    def mean(self) -> float | None:
        """None without a value."""
        return fmean(self.values) if self.figures else None


@dataclass(frozen=True, slots=True)
class Change:
    """An arm against the first one; ``effect`` is None where they cannot be compared.

    ``absent`` says why that is so, or why no more blocks have both.
    ``decision`` is of a deciding row alone. ``adjusted_p`` is Holm's there, and of an exploratory row Benjamini's and
    Hochberg's; NaN without an effect.
    """

    arm: str
    effect: Effect | None
    absent: str = ""
    decision: Decision | None = None
    adjusted_p: float = math.nan
    placebo: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One figure on one setup: all arms, and each but the first against the first."""

    setup: Setup
    label: str
    objective: Objective
    deciding: bool
    sides: tuple[Side, ...]
    changes: tuple[Change, ...]

    @property
    def better(self) -> Better | None:
        """Which side of the figure is better; None where neither is."""
        return named(self.objective.metric).better

    @property
    def in_run_order(self) -> tuple[Figure, ...]:
        """Every figure, by the number of its trial."""
        return tuple(sorted((one for side in self.sides for one in side.figures), key=lambda one: one.n))


@dataclass(frozen=True, slots=True)
class MeanChange:
    """The geometric mean of the rows that every arm has: above 1 is better, whatever the figures are."""

    arm: str
    effect: Effect
    rows: int
    placebo: bool = False


@dataclass(frozen=True)
class Result:
    """What a comparison has shown so far; ``delta`` is the band of the same.

    ``void`` blocks did not count, and after ``missing`` of them there is no sound one.
    ``equal`` are pairs of arms, by name, that are one kernel although they are not one subject, ``several`` the arms
    that were more than one kernel, ``unlike`` pairs of arms whose kernels were made in two ways. ``thin`` tells of
    percentiles that decide on too few I/Os.
    """

    arms: tuple[Arm, ...]
    rows: tuple[Row, ...]
    exploratory: tuple[Row, ...]
    means: tuple[MeanChange, ...]
    delta: float
    blocks: Mapping[str, int]
    void: int
    missing: int = 0
    equal: tuple[tuple[str, str], ...] = ()
    several: tuple[str, ...] = ()
    unlike: tuple[tuple[str, str], ...] = ()
    thin: tuple[str, ...] = ()

    @property
    def tested(self) -> int:
        """How many tests the family of the deciding figures has."""
        return sum(change.decision is not None and not change.placebo for row in self.rows for change in row.changes)

    @cached_property
    def different(self) -> tuple[tuple[Row, Change], ...]:
        """What is exploratory and differs, the surest first."""
        pairs = [(row, change) for row in self.exploratory for change in row.changes if change.adjusted_p <= ALPHA]
        return tuple(sorted(pairs, key=lambda pair: (pair[1].adjusted_p, -abs(_in_spreads(pair[1])))))

    @property
    def explored(self) -> int:
        """How many exploratory figures were compared."""
        return sum(not math.isnan(change.adjusted_p) for row in self.exploratory for change in row.changes)


def _in_spreads(change: Change) -> float:
    one = change.effect
    return one.mean / one.spread if one is not None and one.spread else math.inf


def result(arms: Sequence[Arm], measured: Sequence[Measured], delta: float = DELTA) -> Result:
    """What the sound blocks show; the first arm is what the others are compared with."""
    rows = _decided([_row(arms, one, one.objective, deciding=True) for one in measured], delta)
    exploratory = _screened([row for one in measured for row in _exploratory(arms, one)])
    return Result(
        arms=tuple(arms),
        rows=rows,
        exploratory=exploratory,
        means=tuple(_means(arms, rows)),
        delta=delta,
        blocks={one.label: len(one.blocks) for one in measured},
        void=sum(one.void for one in measured),
        missing=sum(one.missing for one in measured),
        thin=tuple(f"on {one.label}: {said}" for one in measured if (said := thin_tail(one.objective, _runs(one)))),
    )


def _runs(measured: Measured) -> Iterator[Run]:
    yield from (judged_run(trial) for block in measured.blocks for _, trial in block.trials.values())


def figure(run: Run, objective: Objective) -> float | None:
    """The value of a run by an objective, zero and below included; None where it has none.

    :meth:`Objective.value` refuses what has no logarithm, and a comparison has differences for that.
    """
    found = {value.job: value.value for value in objective.of_jobs(run) if math.isfinite(value.value)}
    if objective.over not in OVER and objective.is_of_jobs:
        return found.get(objective.over)
    if not found:
        return None
    if objective.over == SUM:
        return math.fsum(found.values())
    if objective.over == MEAN or named(objective.metric).better is None:
        return fmean(found.values())
    return objective.worst_first(found.values())[0]


def _row(arms: Sequence[Arm], measured: Measured, objective: Objective, *, deciding: bool) -> Row:
    sides = tuple(_side(arm.name, measured, objective) for arm in arms)
    first, others = sides[0], sides[1:]
    changes = tuple(
        replace(_change(first, side, measured), placebo=arm.placebo) for arm, side in zip(arms[1:], others, strict=True)
    )
    return Row(measured.setup, measured.label, objective, deciding, sides, changes)


def _side(arm: str, measured: Measured, objective: Objective) -> Side:
    figures = []
    for block in measured.blocks:
        if arm in block.trials:
            n, trial = block.trials[arm]
            value = figure(judged_run(trial), objective)
            if value is not None:
                figures.append(Figure(arm, block.round, n, value))
    if arm in measured.absent:
        since = f"after block {figures[-1].round}: " if figures else ""
        return Side(arm, tuple(figures), f"{since}{measured.absent[arm]}")
    return Side(arm, tuple(figures), "" if figures else f"no {objective.metric}" if measured.blocks else "no block yet")


def _change(first: Side, other: Side, measured: Measured) -> Change:
    """Of the blocks in which both have a figure; where the first arm is absent, it is named beside the reason."""
    absent = measured.absent
    before, after = ({one.round: one.value for one in side.figures} for side in (first, other))
    shared = [one for one in before if one in after]
    of_first = f"{first.arm}: {first.absent}" if first.arm in absent else ""
    why = (other.absent if other.arm in absent else "") or of_first
    if not shared:
        return Change(other.arm, None, why or other.absent or first.absent or "no block that both have")
    figures = ([before[one] for one in shared], [after[one] for one in shared])
    return Change(other.arm, effect(*figures, measured.alpha), why)


def _decided(rows: Sequence[Row], delta: float) -> tuple[Row, ...]:
    """Rows with their decisions: of the kernels as one family, of the placebo each by itself."""
    places = [(i, j) for i, row in enumerate(rows) for j, change in enumerate(row.changes) if change.effect is not None]
    family = [place for place in places if not rows[place[0]].changes[place[1]].placebo]
    decisions = dict(zip(family, decide([_oriented(rows, place) for place in family], delta), strict=True))
    decisions |= {place: decide([_oriented(rows, place)], delta)[0] for place in places if place not in decisions}
    return tuple(
        replace(row, changes=tuple(_with(change, decisions.get((i, j))) for j, change in enumerate(row.changes)))
        for i, row in enumerate(rows)
    )


def _oriented(rows: Sequence[Row], place: tuple[int, int]) -> tuple[Effect, Better]:
    row = rows[place[0]]
    one = row.changes[place[1]].effect
    assert one is not None  # noqa: S101 - places are of effects
    return one, row.objective.better


def _with(change: Change, decision: Decision | None) -> Change:
    return change if decision is None else replace(change, decision=decision, adjusted_p=decision.adjusted_p)


def _exploratory(arms: Sequence[Arm], measured: Measured) -> Iterator[Row]:
    """Every other value of the judged runs, over jobs as the deciding figure; one that is always zero is none."""
    over = measured.objective.over
    names = dict.fromkeys(
        name for block in measured.blocks for _, trial in block.trials.values() for name in available(judged_run(trial))
    )
    for name in names:
        if name == measured.objective.metric:
            continue
        objective = Objective(name, over if over != SUM or named(name).unit.additive else WORST)
        row = _row(arms, measured, objective, deciding=False)
        if any(value for side in row.sides for value in side.values):
            yield row


def _screened(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Rows with the p-values of Benjamini and Hochberg, over all of them; those of a placebo are none."""
    tested = [
        change
        for row in rows
        for change in row.changes
        if change.effect is not None and change.effect.blocks > 1 and not change.placebo
    ]
    adjusted = iter(benjamini_hochberg([change.effect.p for change in tested if change.effect is not None]))
    by_place = {id(change): p for change, p in zip(tested, adjusted, strict=True)}
    return tuple(
        replace(row, changes=tuple(replace(one, adjusted_p=by_place.get(id(one), math.nan)) for one in row.changes))
        for row in rows
    )


def _means(arms: Sequence[Arm], rows: Sequence[Row]) -> Iterator[MeanChange]:
    """Over the rows that are matched: every arm has ratios on them. One row is no mean."""
    matched = [row for row in rows if all(map(_is_ratio, row.changes))]
    alpha = min((one.effect.alpha for row in matched for one in row.changes if one.effect is not None), default=ALPHA)
    for place, arm in enumerate(arms[1:]):
        found = geometric_mean(map(_ratios, matched, [place] * len(matched)), alpha) if len(matched) > 1 else None
        if found is not None:
            yield MeanChange(arm.name, found, len(matched), arm.placebo)


def _is_ratio(change: Change) -> bool:
    return change.effect is not None and change.effect.scale is Scale.RATIO


def _ratios(row: Row, place: int) -> dict[int, float]:
    """What the geometric mean is of: d of each round, turned so that larger is better."""
    before, after = ({one.round: row.objective.score(one.value) for one in side.figures}
                     for side in (row.sides[0], row.sides[place + 1]))  # fmt: skip
    return {one: after[one] - before[one] for one in before if one in after}
