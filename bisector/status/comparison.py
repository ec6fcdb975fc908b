"""The conclusions about the kernels of a comparison, from its sound blocks; pure, so that all can be derived again.

One figure of each setup decides, and the tests of these figures form one family (Holm). Every other value of the judged
runs is exploratory: those that differ are listed (Benjamini and Hochberg), and nothing is concluded from them. The
placebo, a second measurement of the first kernel, is not part of the family; it shows the effect of noise alone.

Also exploratory is the question whether a kernel changes more on one stack than on another: +30 % on a cache and +1 %
on the disk below it is an effect of the cache. "Significant here, but not there" does not answer it, since the
difference between the two changes may be noise (A. Gelman and H. Stern, The American Statistician 2006, 60:328). So the
change on each stack is compared with the change on the first stack.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import Annotated

from bisector.analysis.comparison import (
    ALPHA,
    DELTA,
    Contrast,
    Decision,
    Effect,
    Scale,
    benjamini_hochberg,
    contrast,
    decide,
    effect,
    geometric_mean,
)
from bisector.analysis.judgement import judged_run
from bisector.analysis.quality import thin_tail
from bisector.analysis.verdicts import host_of
from bisector.core.deadline import BY_THE_HOST, GuestTime
from bisector.core.figures import Run
from bisector.core.json_document import FLAT, PAIRS, Key
from bisector.core.metric import Better, named
from bisector.core.objective import MEAN, OVER, SUM, WORST, Objective, available
from bisector.core.subject import Setup
from bisector.core.trial import Trial

# The input of a result


@dataclass(frozen=True, slots=True)
class ComparedArm:
    """An arm by its display name; the ``placebo`` is the first kernel, measured a second time."""

    name: str
    placebo: bool = False


@dataclass(frozen=True, slots=True)
class SoundBlock:
    """A block that counts; ``trials`` has the number and the trial of each arm, in the order of measuring."""

    round: int
    trials: Mapping[str, tuple[int, Trial]]
    seed: int | None = None

    @property
    def host(self) -> str:
        """The host that measured the whole block, in one era."""
        return host_of(next(iter(self.trials.values()))[1])


@dataclass(frozen=True, slots=True)
class MeasuredSetup:
    """A setup, the objective that decides on it, and its sound blocks.

    ``absent`` maps each arm that is not, or no longer, measured on the setup to the reason. ``void`` counts the blocks
    that were weak, failed or interrupted, and ``missing`` those that no sound block has followed. ``name`` is the
    display name. ``alpha`` is the probability that the intervals leave out.
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
        """The display name of the setup."""
        return self.name or str(self.setup)

    @property
    def runs(self) -> Iterator[Run]:
        """The judged run of each trial."""
        yield from (judged_run(trial) for block in self.blocks for _, trial in block.trials.values())

    @property
    def main_host(self) -> str:
        """The host that measured the most blocks; empty if there is no block."""
        return next((host for host, _ in Counter(one.host for one in self.blocks).most_common(1)), "")


# The result


@dataclass(frozen=True, slots=True)
class ComparedValue:
    """One measured value."""

    arm: Annotated[str, "name of the kernel"]
    round: Annotated[int, "which block of its setup, from 1; values of one round were measured one after the other"]
    n: Annotated[int, "number of the trial, in the order of measuring"]
    value: Annotated[float, "in the unit of the metric"]
    host: str = ""


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """The values of an arm in the blocks that count; ``absent`` says why it has none, or why it gets no further ones.

    ``main_host`` is the host that measured the most blocks of the setup. Values of two hosts are never averaged.
    """

    arm: str
    figures: tuple[ComparedValue, ...]
    absent: str = ""
    main_host: str = ""

    @property
    def mean(self) -> float | None:
        """The mean of the main host's values; None without any."""
        values = [one.value for one in self.figures if one.host == self.main_host]
        return fmean(values) if values else None


@dataclass(frozen=True, slots=True)
class ComparedChange:
    """The change of an arm against the first arm; ``effect`` is None if they cannot be compared.

    ``absent`` says why they cannot, or why no further block has both. Only a deciding row has a ``decision``.
    ``adjusted_p`` is adjusted by Holm in a deciding row, by Benjamini and Hochberg in an exploratory row; NaN without
    an effect.
    """

    arm: Annotated[str, "name of the kernel"]
    effect: Annotated[Effect | None, FLAT]
    absent: Annotated[
        str,
        "why there is nothing to compare, or where `blocks` is no `null`, nothing any more, and since when; else empty",
    ] = ""
    decision: Annotated[Decision | None, FLAT] = None
    adjusted_p: float = math.nan
    placebo: Annotated[bool, "whether it is the first kernel, measured a second time"] = False

    @property
    def told_p(self) -> Annotated[float | None, Key("adjusted_p")]:
        """``p`` by Holm if the row decides, else by Benjamini and Hochberg; ``null`` where nothing is tested."""
        return None if math.isnan(self.adjusted_p) else self.adjusted_p


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One metric on one setup: the values of all arms, and the change of each arm against the first one."""

    setup: Annotated[Setup, FLAT]
    label: str
    objective: Annotated[Objective, FLAT]
    deciding: Annotated[bool, "whether it decides; nothing is concluded from another"]
    sides: tuple[ComparedSide, ...]
    changes: Annotated[tuple[ComparedChange, ...], "each kernel but the first"]

    @property
    def absent(self) -> Annotated[tuple[tuple[str, str], ...], PAIRS]:
        """The kernels without a value, or without one any more, and why."""
        return tuple((side.arm, side.absent) for side in self.sides if side.absent)

    @property
    def in_run_order(self) -> Annotated[tuple[ComparedValue, ...], Key("values")]:
        """Every value of the blocks that count, in the order of measuring."""
        return tuple(sorted((one for side in self.sides for one in side.figures), key=lambda one: one.n))


@dataclass(frozen=True, slots=True)
class ComparedMean:
    """The geometric mean over the rows that every arm has; above 1 is better, whatever the metrics are."""

    arm: Annotated[str, "name of the kernel"]
    effect: Annotated[Effect, FLAT]
    rows: Annotated[int, "number of these rows"]
    placebo: Annotated[bool, "whether it is the first kernel, measured a second time"] = False


@dataclass(frozen=True)
class ComparisonResult:
    """The result of a comparison so far; effects within the share ``delta`` are the same.

    ``void`` counts the blocks that do not count, and ``missing`` those that no sound block has followed. ``equal``
    has pairs of arms, by name, with equal kernels although their subjects differ; ``several`` the arms that had more
    than one kernel; ``unlike`` pairs of arms whose kernels were made in two ways. ``thin`` has sentences about deciding
    percentiles that rest on too few I/Os. ``hosts`` maps each host to its number of blocks that count.
    """

    arms: tuple[ComparedArm, ...]
    rows: Annotated[tuple[ComparedRow, ...], "the rows that decide, one of each setup"]
    exploratory: Annotated[tuple[ComparedRow, ...], "every other metric of the judged runs that is not always zero"]
    means: Annotated[
        tuple[ComparedMean, ...], "each kernel over all setups; above 1 is better, whatever the metrics are"
    ]
    delta: Annotated[float, "kernels whose interval lies within this share are the same (`--least-effect`)"]
    blocks: Mapping[str, int]
    void: int
    missing: int = 0
    equal: tuple[tuple[str, str], ...] = ()
    several: tuple[str, ...] = ()
    unlike: tuple[tuple[str, str], ...] = ()
    thin: tuple[str, ...] = ()
    hosts: Mapping[str, int] = field(default_factory=dict)
    clock: Annotated[GuestTime, "what makes the guests' time pass"] = BY_THE_HOST

    @property
    def tested(self) -> Annotated[int, Key()]:
        """How many tests ``adjusted_p`` of the rows that decide is adjusted for."""
        return sum(change.decision is not None and not change.placebo for row in self.rows for change in row.changes)

    @cached_property
    def different(self) -> tuple[tuple[ComparedRow, ComparedChange], ...]:
        """The exploratory changes that differ, the surest first: by p-value, then by the mean in spreads."""
        found = []
        for row in self.exploratory:
            for change in row.changes:
                if change.adjusted_p <= ALPHA and (one := change.effect) is not None:
                    in_spreads = abs(one.mean / one.spread) if one.spread else math.inf
                    found.append((change.adjusted_p, -in_spreads, row, change))
        return tuple((row, change) for *_, row, change in sorted(found, key=lambda one: one[:2]))

    @property
    def explored(self) -> int:
        """The number of exploratory figures that were compared."""
        return sum(not math.isnan(change.adjusted_p) for row in self.exploratory for change in row.changes)


def result(arms: Sequence[ComparedArm], measured: Sequence[MeasuredSetup], delta: float = DELTA) -> ComparisonResult:
    """The result of the sound blocks; the other arms are compared with the first arm."""
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
        thin=tuple(f"on {one.label}: {said}" for one in measured if (said := thin_tail(one.objective, one.runs))),
        hosts=Counter(block.host for one in measured for block in one.blocks),
    )


def figure(run: Run, objective: Objective) -> float | None:
    """The value of a run by an objective, even if it is zero or negative; None without a value.

    :meth:`Objective.value` refuses values without a logarithm; a comparison takes differences of them.
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
    trials = ((block, *block.trials[arm]) for block in measured.blocks if arm in block.trials)
    found = ((block, n, figure(judged_run(trial), objective)) for block, n, trial in trials)
    figures = [ComparedValue(arm, block.round, n, value, block.host) for block, n, value in found if value is not None]
    if arm in measured.absent:
        since = f"after block {figures[-1].round}: " if figures else ""
        return ComparedSide(arm, tuple(figures), f"{since}{measured.absent[arm]}", measured.main_host)
    absent = "" if figures else f"no {objective.metric}" if measured.blocks else "no block yet"
    return ComparedSide(arm, tuple(figures), absent, measured.main_host)


def _change(first: ComparedSide, other: ComparedSide, measured: MeasuredSetup) -> ComparedChange:
    """Compare two sides over the blocks that both have; the reason names the first arm if that is the absent one."""
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
    """Add decisions to the rows: all kernels form one family, each placebo stands by itself."""
    family = [
        (change.effect, row.objective.better)
        for row in rows
        for change in row.changes
        if change.effect is not None and not change.placebo
    ]
    of_family = iter(decide(family, delta))

    def decided(change: ComparedChange, better: Better) -> ComparedChange:
        if change.effect is None:
            return change
        found = decide([(change.effect, better)], delta)[0] if change.placebo else next(of_family)
        return replace(change, decision=found, adjusted_p=found.adjusted_p)

    return tuple(
        replace(row, changes=tuple(decided(change, row.objective.better) for change in row.changes)) for row in rows
    )


def _exploratory(arms: Sequence[ComparedArm], measured: MeasuredSetup) -> Iterator[ComparedRow]:
    """Every other metric of the judged runs, over the same jobs as the deciding one; omitted if it is always zero."""
    over = measured.objective.over
    for name in dict.fromkeys(name for run in measured.runs for name in available(run)):
        if name == measured.objective.metric:
            continue
        objective = Objective(name, over if over != SUM or named(name).unit.additive else WORST)
        row = _row(arms, measured, objective, deciding=False)
        if any(one.value for side in row.sides for one in side.figures):
            yield row


def _screened(rows: Sequence[ComparedRow]) -> tuple[ComparedRow, ...]:
    """Add p-values adjusted by Benjamini and Hochberg over all rows; a placebo has none."""

    def tested(change: ComparedChange) -> Effect | None:
        return None if change.placebo or change.effect is None or change.effect.blocks <= 1 else change.effect

    effects = (tested(change) for row in rows for change in row.changes)
    adjusted = iter(benjamini_hochberg([one.p for one in effects if one is not None]))
    return tuple(
        replace(row, changes=tuple(
            replace(one, adjusted_p=math.nan if tested(one) is None else next(adjusted)) for one in row.changes
        ))
        for row in rows
    )  # fmt: skip


def _means(arms: Sequence[ComparedArm], rows: Sequence[ComparedRow]) -> Iterator[ComparedMean]:
    """The means over the rows on which every arm has ratios; a single row gives no mean."""

    def ratios(row: ComparedRow, place: int) -> dict[int, float]:
        """The log ratio (d) of each round, with the sign turned so that larger is better."""
        before, after = ({one.round: row.objective.score(one.value) for one in side.figures}
                         for side in (row.sides[0], row.sides[place + 1]))  # fmt: skip
        return {one: after[one] - before[one] for one in before if one in after}

    matched = [
        row for row in rows if all(one.effect is not None and one.effect.scale is Scale.RATIO for one in row.changes)
    ]
    alpha = min((one.effect.alpha for row in matched for one in row.changes if one.effect is not None), default=ALPHA)
    for place, arm in enumerate(arms[1:] if len(matched) > 1 else ()):
        if (found := geometric_mean((ratios(row, place) for row in matched), alpha)) is not None:
            yield ComparedMean(arm.name, found, len(matched), arm.placebo)


@dataclass(frozen=True, slots=True)
class StackContrast:
    """The change of an arm on another stack against that on the ``first`` one; ``adjusted_p`` covers all contrasts."""

    arm: Annotated[str, "name of the kernel"]
    first: tuple[ComparedRow, Effect]
    other: tuple[ComparedRow, Effect]
    contrast: Annotated[Contrast, FLAT]
    adjusted_p: Annotated[float, "`p` adjusted for all of these, by Benjamini and Hochberg"]

    @property
    def workload(self) -> Annotated[str, Key()]:
        """The workload of both rows."""
        return self.first[0].setup.workload

    @property
    def metric(self) -> Annotated[str, Key()]:
        """The [metric](metrics.md) of both rows."""
        return self.first[0].objective.metric

    @property
    def first_stack(self) -> Annotated[str, Key("first")]:
        """The first stack that the kernel has."""
        return self.first[0].setup.stack

    @property
    def stack(self) -> Annotated[str, Key()]:
        """The other stack."""
        return self.other[0].setup.stack


def stack_contrasts(rows: Sequence[ComparedRow]) -> tuple[StackContrast, ...]:
    """The contrasts between stacks of the deciding rows, for each arm but a placebo.

    Stacks are compared only by the same objective and the same workload.
    """
    found = []
    for place in range(max((len(row.changes) for row in rows), default=0)):
        for kind in dict.fromkeys((row.setup.workload, row.objective) for row in rows):
            alike = [row for row in rows if (row.setup.workload, row.objective) == kind]
            arm = alike[0].changes[place]
            sides = [(row, one) for row in alike if (one := row.changes[place].effect) is not None]
            for other in () if arm.placebo else sides[1:]:
                if (contrasted := contrast(other[1], sides[0][1])) is not None:
                    found.append(StackContrast(arm.arm, sides[0], other, contrasted, math.nan))
    adjusted = benjamini_hochberg([one.contrast.p for one in found])
    return tuple(replace(one, adjusted_p=p) for one, p in zip(found, adjusted, strict=True))
