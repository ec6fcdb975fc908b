"""How many blocks of a comparison are left to measure, and how long they take; pure.

A setup gets as many blocks as were asked for, or as many as make its intervals narrow, which is checked after certain
numbers of blocks (``LOOKS``). A setup on which nothing can be compared (any longer) is n/a and gets no further blocks.

A trial is assumed to take as long as earlier ones, or else as long as the settings ask for. A budget holds only if no
block takes longer than predicted, so the longest trial of the setup so far is the measure; before there is one, the
cache is assumed to take the longest allowed time to fill. A workload of unknown length is assumed to take as long as on
the other setups, and no time until it has run on one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from bisector.analysis.comparison import LOOKS, Effect, effect
from bisector.config import Settings
from bisector.core.trial import Trial
from bisector.status.blocks import Blocks
from bisector.store import times
from bisector.store.store import Store

_LEAST_ARMS = 2


def comparable(blocks: Blocks, setup: int) -> bool:
    """Whether the first arm and at least one other are still measured on a setup."""
    present = blocks.present(setup)
    return 0 in present and len(present) >= _LEAST_ARMS


def blocks_left(blocks: Blocks, setup: int) -> int:
    """The number of blocks a setup still needs; if its intervals decide, the number until they are checked next."""
    if not comparable(blocks, setup):
        return 0
    extent, count = blocks.plan.extent, complete(blocks, setup)
    if extent.until is None:
        return max(extent.runs - count, 0)
    narrow = count in LOOKS and all(one.is_narrow(extent.until) for one in effects(blocks, setup))
    return 0 if narrow else next((look - count for look in LOOKS if look > count), 0)


def complete(blocks: Blocks, setup: int) -> int:
    """The number of blocks that count, for the arm that has the fewest: one that did not build has missed some."""
    others = [arm for arm in blocks.present(setup) if arm != 0]
    return min(sum({0, arm} <= set(block.arms) for block in blocks.counted(setup)) for arm in others)


def effects(blocks: Blocks, setup: int) -> tuple[Effect, ...]:
    """The effect of each arm against the first one on a setup, if there are blocks with both."""
    pairs = (blocks.pairs(setup, arm) for arm in blocks.present(setup) if arm != 0)
    figures = (zip(*one, strict=True) for one in pairs if one)
    return tuple(effect(first, other, blocks.alpha(setup)) for first, other in figures)


def left_s(blocks: Blocks) -> float:
    """The seconds that the remaining blocks of all setups take."""
    left = {setup: blocks_left(blocks, setup) for setup in range(len(blocks.plan.setups))}
    return math.fsum(count * block_s(blocks, setup) for setup, count in left.items() if count)


BOOT_AND_LAYOUT_S = 30.0  # of a trial in emulation: a boot takes 6 s, a stack up to 15 s


def block_s(blocks: Blocks, setup: int) -> float:
    """The seconds that a block of a setup takes, without builds."""
    took = [trial.timings.total_s - trial.timings.build_s for trial in _sound(blocks, setup)]
    return len(blocks.present(setup)) * (max(took) if took else _first_s(blocks, setup))


def _first_s(blocks: Blocks, setup: int) -> float:
    """The seconds of a setup's first trial."""
    planned = blocks.plan.setups[setup]
    most_s = longest_planned_trial_s(planned)
    if planned.workload.runtime_s:
        return most_s
    workload, setups = planned.setup.workload, enumerate(blocks.plan.setups)
    alike = [trial for n, one in setups if one.setup.workload == workload for trial in _sound(blocks, n)]
    longest_s = max((trial.timings.workload_s / max(1, len(trial.runs)) for trial in alike), default=0.0)
    return most_s + len(planned.storage.stack.phases) * longest_s


def _sound(blocks: Blocks, setup: int) -> list[Trial]:
    return [one.trial for one in blocks.placed if blocks.is_of(one, setup) and one.trial.fault is None]


def asked_s(settings: Settings) -> float:
    """The seconds of a trial by its settings alone, without its build, if its cache is full after the fewest rounds.

    A workload of unknown length counts as zero.
    """
    return _asked_s(settings, settings.storage.fill_rounds * settings.workload.runtime_s)


def longest_planned_trial_s(settings: Settings) -> float:
    """The same as :func:`asked_s` if the cache takes the longest allowed time to fill."""
    storage = settings.storage
    return _asked_s(settings, max(storage.fill_rounds * settings.workload.runtime_s, storage.fill_deadline_s))


def _asked_s(settings: Settings, filling_s: float) -> float:
    phases = settings.storage.stack.phases
    fills = sum(phase.fills for phase in phases)
    runs_s = (len(phases) - fills) * settings.workload.runtime_s
    return BOOT_AND_LAYOUT_S + settings.machine.time.most_host_s(fills * filling_s + runs_s)


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Wall-clock seconds of a run's processes, and the parts spent on builds, boots, stacks and workloads."""

    total_s: Annotated[float, "from the beginning of each process to its end, pauses between them left out"]
    build_s: Annotated[float, "of that, building kernels"]
    boot_s: Annotated[float, "booting guests"]
    storage_s: Annotated[float, "laying out the stack"]
    workload_s: Annotated[float, "the workload, with the filling of caches"]

    @classmethod
    def of(cls, store: Store, trials: Sequence[Trial]) -> "TimeSpent | None":
        """The time spent on a run with these trials; None if there are none."""
        if not trials:
            return None
        took = [one.timings for one in trials]
        return cls(
            total_s=times.process_s(store.log),
            build_s=times.build_seconds(store.log) + math.fsum(one.build_s for one in took),
            boot_s=math.fsum(one.boot_s for one in took),
            storage_s=math.fsum(one.storage_s for one in took),
            workload_s=math.fsum(one.workload_s for one in took),
        )

    @property
    def other_s(
        self,
    ) -> Annotated[float, "all the rest: bisector's own, waiting for a quiet host, attempts that failed"]:
        """The rest, which includes waiting for a quiet host and failed attempts."""
        return max(0.0, self.total_s - self.build_s - self.boot_s - self.storage_s - self.workload_s)

    @property
    def other_share(self) -> Annotated[float, "`other_s` as a share of the time without builds"]:
        """The share of the rest in the time without builds; 0 if there is no such time."""
        return self.other_s / (self.total_s - self.build_s) if self.total_s > self.build_s else 0.0
