"""A comparison as JSON, for scripts: every figure, and what was said of them."""

import math
from typing import Annotated, Literal

from bisector.analysis.comparison import CONFIDENCE, Outcome, Scale
from bisector.core.guest_time import GuestTime
from bisector.core.json_document import SCHEMA, Record, text
from bisector.core.metric import Better, Unit
from bisector.core.verdict import State
from bisector.report.as_json import JobFile, MeasuringHost
from bisector.report.comparison import ComparisonReport, MeasuredBlock, title
from bisector.report.comparison_table import sentences
from bisector.status.compared import Change, Figure, MeanChange, Row
from bisector.status.stack_contrasts import StackContrast, stack_contrasts
from bisector.status.time_spent import TimeSpent


class ComparedArm(Record, frozen=True, kw_only=True):
    """What was compared under a name."""

    name: Annotated[str, "name, as it was typed"]
    placebo: Annotated[bool, "whether it is the first kernel, measured a second time"]
    commit: Annotated[str, "commit and its subject line; empty where no kernel was built"]
    release: Annotated[str, "release of the kernel, as `uname -r` prints it"]
    config_sha256: Annotated[str, "hash of the effective .config"]
    compiler: Annotated[str, "compiler and linker"]


class ComparedValue(Record, frozen=True, kw_only=True):
    """One measured value."""

    arm: Annotated[str, "name of the kernel"]
    round: Annotated[int, "which block of its setup, from 1; values of one round were measured one after the other"]
    n: Annotated[int, "number of the trial, in the order of measuring"]
    value: Annotated[float, "in the unit of the metric"]


class ComparedChange(Record, frozen=True, kw_only=True):
    """A kernel against the first one; what needs two blocks at least is `null` without them."""

    arm: Annotated[str, "name of the kernel"]
    placebo: Annotated[bool, "whether it is the first kernel, measured a second time"]
    absent: Annotated[str, "why there is nothing to compare; empty where there is"]
    ended: Annotated[str, "why there is nothing to compare any more, and since when; else empty"]
    scale: Annotated[Scale | None, "whether what follows are ratios, or differences where a value is zero or negative"]
    blocks: Annotated[int, "number of blocks that both have a value in"]
    estimate: Annotated[float | None, "ratio to the first kernel (geometric mean over blocks), or difference from it"]
    low: Annotated[float | None, "lower end of its 95 % interval, by Student's t"]
    high: Annotated[float | None, "upper end"]
    hodges_lehmann: Annotated[float | None, "the same by the median of the Walsh averages"]
    p: Annotated[
        float | None, "two-sided p-value of Student's t; 1.25 times that where a lone interval ends a setup (`--until`)"
    ]
    exact_p: Annotated[float | None, "two-sided p-value of the permutations within blocks"]
    adjusted_p: Annotated[
        float | None,
        "`p` adjusted: of rows that decide by Holm, else by Benjamini and Hochberg; a placebo's is not",
    ]
    outcome: Annotated[Outcome | None, "what is said of it; `null` of a row that does not decide"]
    fragile: Annotated[bool, "whether it differs by Student's t, and not by the permutations"]
    small: Annotated[bool, "whether it differs, but by less than `delta`"]
    blocks_to_tell: Annotated[int | None, "after about so many blocks an unclear row would be clear"]


class ComparedRow(Record, frozen=True, kw_only=True):
    """One metric on one setup."""

    stack: Annotated[str, "storage stack"]
    workload: Annotated[str, "workload"]
    metric: Annotated[str, "the [metric](metrics.md)"]
    over: Annotated[str, "what several jobs amount to: `worst`, `sum`, `mean`, or the name of the job that counts"]
    unit: Annotated[Unit, "of its values"]
    better: Annotated[Better | None, "which of its values are better; `null` where neither are"]
    deciding: Annotated[bool, "whether it decides; nothing is concluded from another"]
    values: Annotated[tuple[ComparedValue, ...], "every value of the blocks that count, in the order of measuring"]
    absent: Annotated[dict[str, str], "the kernels without a value, and why"]
    ended: Annotated[dict[str, str], "the kernels that have no value any more, and why, and since when"]
    changes: Annotated[tuple[ComparedChange, ...], "each kernel but the first"]


class ComparedStacks(Record, frozen=True, kw_only=True):
    """Whether a kernel changes a metric on a stack as much as on the first one; nothing is concluded from it."""

    arm: Annotated[str, "name of the kernel"]
    workload: Annotated[str, "workload"]
    metric: Annotated[str, "the [metric](metrics.md)"]
    first: Annotated[str, "the first stack that the kernel has"]
    stack: Annotated[str, "the other one"]
    estimate: Annotated[float, "its ratio to the first kernel there, divided by that on the first stack"]
    low: Annotated[float, "lower end of its 95 % interval, by Welch's t"]
    high: Annotated[float | None, "upper end"]
    p: Annotated[float, "two-sided p-value of Welch's t"]
    adjusted_p: Annotated[float, "`p` adjusted for all of these, by Benjamini and Hochberg"]


class ComparedMean(Record, frozen=True, kw_only=True):
    """The geometric mean of a kernel over the rows that decide and that every kernel has."""

    arm: Annotated[str, "name of the kernel"]
    rows: Annotated[int, "number of these rows"]
    blocks: Annotated[int, "number of rounds that all of them have"]
    ratio: Annotated[float, "how much better than the first kernel; above 1 is better, whatever the metrics are"]
    low: Annotated[float | None, "lower end of its 95 % interval"]
    high: Annotated[float | None, "upper end"]


class ComparedTrial(Record, frozen=True, kw_only=True):
    """A kernel in a block."""

    arm: Annotated[str, "name of the kernel"]
    n: Annotated[int | None, "number of its trial; `null` where it was not measured"]


class ComparedBlock(Record, frozen=True, kw_only=True):
    """A block: every kernel once on one setup."""

    n: Annotated[int, "number of the block"]
    setup: Annotated[str, "the setup, as the report names it"]
    round: Annotated[int, "which block of its setup, from 1"]
    seed: Annotated[int, "seed of the workload"]
    host: Annotated[str | None, "name of the host that has measured it; `null` before its first trial"]
    era: Annotated[str | None, "digest of that host's era, which the facts of `hosts` tell of; `null` if not known"]
    order: Annotated[tuple[ComparedTrial, ...], "the kernels in the order of measuring"]
    void: Annotated[str, "why it does not count; empty if it does"]


class ComparedTime(Record, frozen=True, kw_only=True):
    """Wall seconds of all processes of the run, and what they went to."""

    total_s: Annotated[float, "from the beginning of each process to its end, pauses between them left out"]
    build_s: Annotated[float, "of that, building kernels"]
    boot_s: Annotated[float, "booting guests"]
    storage_s: Annotated[float, "laying out the stack"]
    workload_s: Annotated[float, "the workload, with the filling of caches"]
    other_s: Annotated[float, "all the rest: bisector's own, waiting for a quiet host, attempts that failed"]
    other_share: Annotated[float, "`other_s` as a share of what is no build"]


class ComparisonDocument(Record, frozen=True, kw_only=True):
    """What ``bisector compare --json`` prints, and ``bisector report --format json`` of a comparison."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    title: Annotated[str, "one line"]
    state: Annotated[State, "how it stands: `running`, `stopped`, `failed`, or `measured` when it has ended"]
    standing: Annotated[str, "whether it goes on, or why it ended"]
    run_dir: Annotated[str, "path of the run directory"]
    resume_command: Annotated[str | None, "what to type to go on; `null` if there is nothing to do"]
    delta: Annotated[float, "kernels whose interval lies within this share are the same (`--least-effect`)"]
    confidence: Annotated[float, "of the intervals"]
    arms: Annotated[tuple[ComparedArm, ...], "what was compared; the first one is what the others are compared with"]
    rows: Annotated[tuple[ComparedRow, ...], "the rows that decide, one of each setup"]
    tested: Annotated[int, "how many tests `adjusted_p` of the rows that decide is adjusted for"]
    stacks: Annotated[tuple[ComparedStacks, ...], "exploratory: each kernel and stack but the first one"]
    exploratory: Annotated[tuple[ComparedRow, ...], "every other metric of the judged runs that is not always zero"]
    means: Annotated[tuple[ComparedMean, ...], "each kernel over all setups"]
    clock: Annotated[GuestTime, "what makes the guests' time pass"]
    sentences: Annotated[tuple[str, ...], "what is to be known beside the values"]
    blocks: Annotated[tuple[ComparedBlock, ...], "every block, also those that do not count"]
    seed: Annotated[int, "seed that the order was drawn from"]
    storage: Annotated[
        dict[str, tuple[str, ...]],
        "of each setup what its guests had of the disks, as comments, and the commands that made the stack",
    ]
    workloads: Annotated[tuple[JobFile, ...], "the job files"]
    hosts: Annotated[tuple[MeasuringHost, ...], "the hosts that measured"]
    versions: Annotated[dict[str, str], "versions of what ran in the guest, as far as they are on record"]
    time: Annotated[ComparedTime | None, "what the hours went to; `null` while nothing is measured"]
    command: Annotated[str, "command that compares the same again"]
    tool_version: Annotated[str, "version of bisector"]


def render(report: ComparisonReport) -> str:
    """The document as text."""
    return text(document(report))


def document(report: ComparisonReport) -> ComparisonDocument:
    """The document."""
    result = report.result
    return ComparisonDocument(
        title=title(report),
        state=report.state,
        standing=report.standing,
        run_dir=str(report.run_dir),
        resume_command=report.resume_command or None,
        delta=result.delta,
        confidence=CONFIDENCE,
        arms=tuple(_arms(report)),
        rows=tuple(map(_row, result.rows)),
        tested=result.tested,
        stacks=tuple(map(_stacks, stack_contrasts(result.rows))),
        exploratory=tuple(map(_row, result.exploratory)),
        means=tuple(map(_mean, result.means)),
        clock=result.clock,
        sentences=tuple(sentences(result)),
        blocks=tuple(map(_block, report.blocks)),
        seed=report.seed,
        storage=dict(report.storage),
        workloads=tuple(
            JobFile(name=one.name, text=one.text, variables=dict(one.variables)) for one in report.workloads
        ),
        hosts=tuple(
            MeasuringHost(name=one.name, trials=one.trials, facts=dict(one.facts), contention=one.contention)
            for one in report.hosts
        ),
        versions=dict(report.versions),
        time=_time(report.time) if report.time is not None else None,
        command=report.command,
        tool_version=report.tool_version,
    )


def _time(time: TimeSpent) -> ComparedTime:
    return ComparedTime(
        total_s=time.total_s,
        build_s=time.build_s,
        boot_s=time.boot_s,
        storage_s=time.storage_s,
        workload_s=time.workload_s,
        other_s=time.other_s,
        other_share=time.other_share,
    )


def _arms(report: ComparisonReport) -> list[ComparedArm]:
    kernels = {one.name: one for one in report.kernels}
    return [
        ComparedArm(
            name=arm.name,
            placebo=arm.placebo,
            commit=kernel.commit if kernel else "",
            release=kernel.release if kernel else "",
            config_sha256=kernel.config if kernel else "",
            compiler=kernel.compiler if kernel else "",
        )
        for arm in report.result.arms
        for kernel in (kernels.get(arm.name),)
    ]


def _row(row: Row) -> ComparedRow:
    return ComparedRow(
        stack=row.setup.stack,
        workload=row.setup.workload,
        metric=row.objective.metric,
        over=row.objective.over,
        unit=row.objective.definition.unit,
        better=row.better,
        deciding=row.deciding,
        values=tuple(map(_value, row.in_run_order)),
        absent={side.arm: side.absent for side in row.sides if side.absent and not side.figures},
        ended={side.arm: side.absent for side in row.sides if side.absent and side.figures},
        changes=tuple(map(_change, row.changes)),
    )


def _value(one: Figure) -> ComparedValue:
    return ComparedValue(arm=one.arm, round=one.round, n=one.n, value=one.value)


def _change(change: Change) -> ComparedChange:
    one, decision = change.effect, change.decision
    low, high = one.interval if one is not None else (None, None)
    several = one is not None and one.blocks > 1
    return ComparedChange(
        arm=change.arm,
        placebo=change.placebo,
        absent=change.absent if one is None else "",
        ended=change.absent if one is not None else "",
        scale=one.scale if one is not None else None,
        blocks=one.blocks if one is not None else 0,
        estimate=one.estimate if one is not None else None,
        low=low if several else None,
        high=high if several else None,
        hodges_lehmann=one.hodges_lehmann if one is not None else None,
        p=one.p if one is not None and several else None,
        exact_p=one.exact_p if one is not None and several else None,
        adjusted_p=None if math.isnan(change.adjusted_p) or not several else change.adjusted_p,
        outcome=decision.outcome if decision is not None else None,
        fragile=decision is not None and decision.fragile,
        small=decision is not None and decision.small,
        blocks_to_tell=decision.needed if decision is not None else None,
    )


def _stacks(one: StackContrast) -> ComparedStacks:
    low, high = one.contrast.interval
    return ComparedStacks(
        arm=one.arm,
        workload=one.first.row.setup.workload,
        metric=one.first.row.objective.metric,
        first=one.first.row.setup.stack,
        stack=one.other.row.setup.stack,
        estimate=one.contrast.estimate,
        low=low,
        high=high,
        p=one.contrast.p,
        adjusted_p=one.adjusted_p,
    )


def _mean(one: MeanChange) -> ComparedMean:
    low, high = one.effect.interval if one.effect.blocks > 1 else (None, None)
    return ComparedMean(
        arm=one.arm, rows=one.rows, blocks=one.effect.blocks, ratio=one.effect.estimate, low=low, high=high
    )


def _block(block: MeasuredBlock) -> ComparedBlock:
    return ComparedBlock(
        n=block.n,
        setup=block.label,
        round=block.round,
        seed=block.seed,
        host=block.host or None,
        era=block.era or None,
        order=tuple(ComparedTrial(arm=arm, n=n) for arm, n in block.order),
        void=block.why_void,
    )
