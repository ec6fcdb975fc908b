"""A comparison as values: what it is made of, the sound blocks of its setups, and what these show.

:mod:`bisector.status.comparison` makes the second of the first.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Annotated

from bisector.analysis.comparison import ALPHA, Decision, Effect
from bisector.analysis.verdicts import host_of
from bisector.core.guest_time import BY_THE_HOST, GuestTime
from bisector.core.json_document import FLAT, PAIRS, Key
from bisector.core.objective import Objective
from bisector.core.subject import Setup
from bisector.core.trial import Trial

# What a result is made of


@dataclass(frozen=True, slots=True)
class ComparedArm:
    """A kernel by the name that it is shown with; ``placebo`` is the first kernel, measured a second time."""

    name: str
    placebo: bool = False


@dataclass(frozen=True, slots=True)
class SoundBlock:
    """A block of which every run counts: ``trials`` has the number and the trial of each arm, in measured order."""

    round: int
    trials: Mapping[str, tuple[int, Trial]]
    seed: int | None = None

    @property
    def host(self) -> str:
        """The host that has measured it, all of it, as it was then."""
        return host_of(next(iter(self.trials.values()))[1])


@dataclass(frozen=True, slots=True)
class MeasuredSetup:
    """A setup, the figure that decides on it, and its sound blocks.

    ``absent`` has the arms that are measured on it no more, or never were, each with the reason. ``void`` counts the
    blocks that were weak, failed or interrupted, ``missing`` how many of these no sound block has followed. ``name``
    is that by which people know the setup. ``alpha`` is what the intervals leave out.
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

    @property
    def main_host(self) -> str:
        """The host of the most blocks; empty before there is one."""
        return next((host for host, _ in Counter(one.host for one in self.blocks).most_common(1)), "")


# What it is


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
    """The figures of an arm in the blocks that count; ``absent`` says why it has none, or why no more.

    ``main_host`` is the one that has measured the most blocks of the setup. Figures of two hosts have no mean.
    """

    arm: str
    figures: tuple[ComparedValue, ...]
    absent: str = ""
    main_host: str = ""

    @property
    def values(self) -> tuple[float, ...]:
        """The values alone."""
        return tuple(one.value for one in self.figures)

    @property
    def mean(self) -> float | None:
        """That of the figures of the main host; None without any."""
        values = [one.value for one in self.figures if one.host == self.main_host]
        return fmean(values) if values else None


@dataclass(frozen=True, slots=True)
class ComparedChange:
    """An arm against the first one; ``effect`` is None where they cannot be compared.

    ``absent`` says why that is so, or why no more blocks have both.
    ``decision`` is of a deciding row alone. ``adjusted_p`` is Holm's there, and of an exploratory row Benjamini's and
    Hochberg's; NaN without an effect.
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
    def told_p(
        self,
    ) -> Annotated[
        float | None,
        Key("adjusted_p"),
        "`p` adjusted: of rows that decide by Holm, else by Benjamini and Hochberg; `null` of an exploratory placebo, "
        "and without an effect",
    ]:
        """The adjusted p-value; None where there is none."""
        return None if math.isnan(self.adjusted_p) else self.adjusted_p


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One figure on one setup: all arms, and each but the first against the first."""

    setup: Annotated[Setup, FLAT]
    label: str
    objective: Annotated[Objective, FLAT]
    deciding: Annotated[bool, "whether it decides; nothing is concluded from another"]
    sides: tuple[ComparedSide, ...]
    changes: Annotated[tuple[ComparedChange, ...], "each kernel but the first"]

    @property
    def absent(
        self,
    ) -> Annotated[tuple[tuple[str, str], ...], PAIRS, "the kernels without a value, or without one any more, and why"]:
        """The kernels without a value, or without one any more, and why."""
        return tuple((side.arm, side.absent) for side in self.sides if side.absent)

    @property
    def in_run_order(
        self,
    ) -> Annotated[
        tuple[ComparedValue, ...],
        Key("values"),
        "every value of the blocks that count, in the order of measuring",
    ]:
        """Every figure, by the number of its trial."""
        return tuple(sorted((one for side in self.sides for one in side.figures), key=lambda one: one.n))


@dataclass(frozen=True, slots=True)
class ComparedMean:
    """The geometric mean of the rows that every arm has: above 1 is better, whatever the figures are."""

    arm: Annotated[str, "name of the kernel"]
    effect: Annotated[Effect, FLAT]
    rows: Annotated[int, "number of these rows"]
    placebo: Annotated[bool, "whether it is the first kernel, measured a second time"] = False


@dataclass(frozen=True)
class ComparisonResult:
    """What a comparison has shown so far; ``delta`` is the band of the same.

    ``void`` blocks did not count, and after ``missing`` of them there is no sound one.
    ``equal`` are pairs of arms, by name, that are one kernel although they are not one subject, ``several`` the arms
    that were more than one kernel, ``unlike`` pairs of arms whose kernels were made in two ways. ``thin`` tells of
    percentiles that decide on too few I/Os. ``hosts`` has the number of blocks that count of each host.
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
    def tested(
        self,
    ) -> Annotated[int, "how many tests `adjusted_p` of the rows that decide is adjusted for"]:
        """How many tests the family of the deciding figures has."""
        return sum(change.decision is not None and not change.placebo for row in self.rows for change in row.changes)

    @cached_property
    def different(self) -> tuple[tuple[ComparedRow, ComparedChange], ...]:
        """What is exploratory and differs, the surest first."""
        pairs = [(row, change) for row in self.exploratory for change in row.changes if change.adjusted_p <= ALPHA]
        return tuple(sorted(pairs, key=lambda pair: (pair[1].adjusted_p, -abs(_in_spreads(pair[1])))))

    @property
    def explored(self) -> int:
        """How many exploratory figures were compared."""
        return sum(not math.isnan(change.adjusted_p) for row in self.exploratory for change in row.changes)


def _in_spreads(change: ComparedChange) -> float:
    one = change.effect
    return one.mean / one.spread if one is not None and one.spread else math.inf
