"""Forecast of the trials and hours of a comparison, by the times of earlier runs on this host."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Literal

from bisector.analysis.comparison import LOOKS
from bisector.compare.plan import warnings
from bisector.compare.schedule import wanted
from bisector.config import Settings
from bisector.core import units
from bisector.core.guest_time import GuestTime
from bisector.core.json_document import JsonObject
from bisector.core.json_keys import SCHEMA
from bisector.kernel.build import KernelBuilder
from bisector.plan.experience import Experience, experience
from bisector.plan.forecast import SMALL_BUILD_S, Quantity
from bisector.status.blocks import Blocks
from bisector.status.progress import asked_s, comparable, longest_planned_trial_s
from bisector.store.comparison import Plan


class SetupForecast(JsonObject, frozen=True, kw_only=True):
    """The time that a trial on one setup takes."""

    stack: Annotated[str, "storage stack"]
    workload: Annotated[str, "workload"]
    metric: Annotated[str, "the [metric](metrics.md) that decides"]
    trial_s: Annotated[Quantity, "seconds of a trial without its build; where they are assumed, its cache is full soon"]
    trial_most_s: Annotated[float, "the same if its cache takes as long to fill as it may, where they are assumed"]


class ComparisonForecast(JsonObject, frozen=True, kw_only=True):
    """The output of ``bisector compare --plan --json``."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    arms: Annotated[tuple[str, ...], "what is compared, the reference first"]
    setups: Annotated[tuple[SetupForecast, ...], "what it is measured on"]
    blocks: Annotated[int, "least number of blocks on each setup"]
    blocks_most: Annotated[int, "greatest number"]
    trials: Annotated[int, "least number of trials, if none is weak"]
    trials_most: Annotated[int, "greatest number, if none is weak"]
    builds: Annotated[int, "number of kernels that are not kept from earlier builds"]
    build_s: Annotated[Quantity, "seconds of a build"]
    hours: Annotated[float, "hours of the least number of blocks, builds included; not more than the budget"]
    hours_most: Annotated[
        float, "hours of the greatest number, caches taking as long to fill as they may; not more than the budget"
    ]
    clock: Annotated[GuestTime, "what makes the guests' time pass"]
    clock_note: Annotated[
        str | None, "what this clock does not show, or what counted time would do; `null` if there is nothing to say"
    ] = None
    warnings: Annotated[tuple[str, ...], "sentences"]


def forecast(
    plan: Plan, builder: KernelBuilder, host: str, run_dirs: Sequence[Path], *, could_count: bool = False
) -> ComparisonForecast:
    """Return the forecast; quantities that are unknown on this machine are assumed, and marked so."""
    blocks_of = Blocks(plan)
    compared = [setup for setup in range(len(plan.setups)) if comparable(blocks_of, setup)]
    known = [experience(plan.setups[setup], host, run_dirs) for setup in compared]
    setups = tuple(_setup(plan.setups[setup], it) for setup, it in zip(compared, known, strict=True))
    builds_s = known[0].builds_s
    build_s = (
        _quantity(max(builds_s), len(builds_s), "build")
        if builds_s
        else Quantity(SMALL_BUILD_S[1], "assumed", measured=False)
    )
    to_build = (arm for arm in wanted(blocks_of) if plan.arms[arm].subject.is_built)
    built = ((plan.arms[arm].commit.tree, plan.settings(0, arm).kernel) for arm in to_build)
    builders = ((builder.with_settings(kernel), tree) for tree, kernel in dict.fromkeys(built))
    builds = sum(all(one.using(by).find(tree) is None for by in one.default_compilers()) for one, tree in builders)
    arms = [len(blocks_of.present(setup)) for setup in compared]
    rounds_s = (
        sum(count * one.trial_s.value for count, one in zip(arms, setups, strict=True)),
        sum(count * one.trial_most_s for count, one in zip(arms, setups, strict=True)),
    )
    least, most = (plan.extent.runs,) * 2 if plan.extent.until is None else (LOOKS[0], LOOKS[-1])
    of_rounds = zip((least, most), rounds_s, strict=True)
    hours = [(builds * build_s.value + blocks * round_s) / 3600 for blocks, round_s in of_rounds]
    budget, time = plan.extent.budget_s, plan.setups[0].machine.time
    hours = hours if budget is None else [min(one, budget / 3600) for one in hours]
    return ComparisonForecast(
        arms=tuple(arm.name for arm in plan.arms),
        setups=setups,
        blocks=least,
        blocks_most=most,
        trials=least * sum(arms),
        trials_most=most * sum(arms),
        builds=builds,
        build_s=build_s,
        hours=hours[0],
        hours_most=hours[1],
        clock=time,
        clock_note=time.note(could_count=could_count) or None,
        warnings=(*warnings(plan), *_unknown([plan.setups[setup] for setup in compared], setups)),
    )


def _setup(planned: Settings, known: Experience) -> SetupForecast:
    trial_s = Quantity(asked_s(planned), "assumed", measured=False)
    if known.workloads_s:
        took_s = median(known.setups_s) + fmean(known.workloads_s)
        trial_s = _quantity(took_s, len(known.workloads_s), "trial")
    return SetupForecast(
        stack=planned.setup.stack,
        workload=planned.setup.workload,
        metric=planned.bisect.objective.label,
        trial_s=trial_s,
        trial_most_s=trial_s.value if trial_s.measured else longest_planned_trial_s(planned),
    )


def _unknown(setups: Sequence[Settings], forecasts: Sequence[SetupForecast]) -> Iterator[str]:
    """A sentence for each workload whose run time is unknown until its first block."""
    pairs = zip(setups, forecasts, strict=True)
    unknown = (one for one, told in pairs if not (told.trial_s.measured or one.workload.runtime_s))
    for workload in dict.fromkeys(one.setup.workload for one in unknown):
        yield (
            f"{workload}: how long it runs is known from its first block on; until then its runs count for nothing,"
            " here and in a budget"
        )


def _quantity(value: float, count: int, what: str) -> Quantity:
    return Quantity(value, f"of {units.plural(count, what)} here", measured=True)


def forecast_rows(expected: ComparisonForecast) -> Iterator[tuple[str, str]]:
    """Yield a name and a text for each line of the forecast as a person reads it."""
    first, *others = expected.arms
    yield "compared", f"{', '.join(others)} against {first}"
    blocks = _range(str(expected.blocks), str(expected.blocks_most))
    yield "blocks", f"{blocks} on each of {units.plural(len(expected.setups), 'setup')}"
    yield "trials", _range(f"{expected.trials:,}", f"{expected.trials_most:,}")
    yield "builds", f"{expected.builds} of {units.duration(expected.build_s.value)} ({expected.build_s.source})"
    for one in expected.setups:
        trial = _range(*map(units.duration, (one.trial_s.value, one.trial_most_s)))
        yield "a trial", f"{trial} ({one.trial_s.source}) of {one.workload} on {one.stack}, by {one.metric}"
    yield "time", _range(*(units.duration(hours * 3600) for hours in (expected.hours, expected.hours_most)))
    if expected.clock_note is not None:
        yield "clock", expected.clock_note
    for warning in expected.warnings:
        yield "warning", warning


def _range(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"
