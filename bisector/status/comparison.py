"""From the sound blocks of a comparison to what is said of its kernels. Pure: everything here can be derived again.

One figure of each setup decides, and all of these together are one family of tests (Holm). Every other value of the
judged runs is exploratory: those that differ are listed (Benjamini and Hochberg), and nothing is concluded from them.
A second measurement of the first kernel, the placebo, is no test of the family; it shows what noise does.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
from bisector.analysis.quality import thin_tail
from bisector.core.figures import Run
from bisector.core.metric import Better, named
from bisector.core.objective import MEAN, OVER, SUM, WORST, Objective, available
from bisector.status.compared import (
    ComparedArm,
    ComparedChange,
    ComparedMean,
    ComparedRow,
    ComparedSide,
    ComparedValue,
    ComparisonResult,
    MeasuredSetup,
)


def result(arms: Sequence[ComparedArm], measured: Sequence[MeasuredSetup], delta: float = DELTA) -> ComparisonResult:
    """What the sound blocks show; the first arm is what the others are compared with."""
    rows = _decided([_row(arms, one, one.objective, deciding=True) for one in measured], delta)
    exploratory = _screened([row for one in measured for row in _exploratory(arms, one)])
    return ComparisonResult(
        arms=tuple(arms),
        rows=rows,
        exploratory=exploratory,
        means=tuple(_means(arms, rows)),
        delta=delta,
        blocks={one.label: len(one.blocks) for one in measured},
        void=sum(one.void for one in measured),
        missing=sum(one.missing for one in measured),
        thin=tuple(f"on {one.label}: {said}" for one in measured if (said := thin_tail(one.objective, _runs(one)))),
        hosts=Counter(block.host for one in measured for block in one.blocks),
    )


def _runs(measured: MeasuredSetup) -> Iterator[Run]:
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


def _row(arms: Sequence[ComparedArm], measured: MeasuredSetup, objective: Objective, *, deciding: bool) -> ComparedRow:
    sides = tuple(_side(arm.name, measured, objective) for arm in arms)
    first, others = sides[0], sides[1:]
    changes = tuple(
        replace(_change(first, side, measured), placebo=arm.placebo) for arm, side in zip(arms[1:], others, strict=True)
    )
    return ComparedRow(measured.setup, measured.label, objective, deciding, sides, changes)


def _side(arm: str, measured: MeasuredSetup, objective: Objective) -> ComparedSide:
    figures = []
    for block in measured.blocks:
        if arm in block.trials:
            n, trial = block.trials[arm]
            value = figure(judged_run(trial), objective)
            if value is not None:
                figures.append(ComparedValue(arm, block.round, n, value, block.host))
    if arm in measured.absent:
        since = f"after block {figures[-1].round}: " if figures else ""
        return ComparedSide(arm, tuple(figures), f"{since}{measured.absent[arm]}", measured.main_host)
    absent = "" if figures else f"no {objective.metric}" if measured.blocks else "no block yet"
    return ComparedSide(arm, tuple(figures), absent, measured.main_host)


def _change(first: ComparedSide, other: ComparedSide, measured: MeasuredSetup) -> ComparedChange:
    """Of the blocks in which both have a figure; where the first arm is absent, it is named beside the reason."""
    absent = measured.absent
    before, after = ({one.round: one.value for one in side.figures} for side in (first, other))
    shared = [one for one in before if one in after]
    of_first = f"{first.arm}: {first.absent}" if first.arm in absent else ""
    why = (other.absent if other.arm in absent else "") or of_first
    if not shared:
        return ComparedChange(other.arm, None, why or other.absent or first.absent or "no block that both have")
    figures = ([before[one] for one in shared], [after[one] for one in shared])
    return ComparedChange(other.arm, effect(*figures, measured.alpha), why)


def _decided(rows: Sequence[ComparedRow], delta: float) -> tuple[ComparedRow, ...]:
    """Rows with their decisions: of the kernels as one family, of the placebo each by itself."""
    places = [(i, j) for i, row in enumerate(rows) for j, change in enumerate(row.changes) if change.effect is not None]
    family = [place for place in places if not rows[place[0]].changes[place[1]].placebo]
    decisions = dict(zip(family, decide([_oriented(rows, place) for place in family], delta), strict=True))
    decisions |= {place: decide([_oriented(rows, place)], delta)[0] for place in places if place not in decisions}
    return tuple(
        replace(row, changes=tuple(_with(change, decisions.get((i, j))) for j, change in enumerate(row.changes)))
        for i, row in enumerate(rows)
    )


def _oriented(rows: Sequence[ComparedRow], place: tuple[int, int]) -> tuple[Effect, Better]:
    row = rows[place[0]]
    one = row.changes[place[1]].effect
    assert one is not None  # noqa: S101 - places are of effects
    return one, row.objective.better


def _with(change: ComparedChange, decision: Decision | None) -> ComparedChange:
    return change if decision is None else replace(change, decision=decision, adjusted_p=decision.adjusted_p)


def _exploratory(arms: Sequence[ComparedArm], measured: MeasuredSetup) -> Iterator[ComparedRow]:
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


def _screened(rows: Sequence[ComparedRow]) -> tuple[ComparedRow, ...]:
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


def _means(arms: Sequence[ComparedArm], rows: Sequence[ComparedRow]) -> Iterator[ComparedMean]:
    """Over the rows that are matched: every arm has ratios on them. One row is no mean."""
    matched = [row for row in rows if all(map(_is_ratio, row.changes))]
    alpha = min((one.effect.alpha for row in matched for one in row.changes if one.effect is not None), default=ALPHA)
    for place, arm in enumerate(arms[1:]):
        found = geometric_mean(map(_ratios, matched, [place] * len(matched)), alpha) if len(matched) > 1 else None
        if found is not None:
            yield ComparedMean(arm.name, found, len(matched), arm.placebo)


def _is_ratio(change: ComparedChange) -> bool:
    return change.effect is not None and change.effect.scale is Scale.RATIO


def _ratios(row: ComparedRow, place: int) -> dict[int, float]:
    """What the geometric mean is of: d of each round, turned so that larger is better."""
    before, after = ({one.round: row.objective.score(one.value) for one in side.figures}
                     for side in (row.sides[0], row.sides[place + 1]))  # fmt: skip
    return {one: after[one] - before[one] for one in before if one in after}
