"""How far the blocks of a comparison have come, what is left to measure, and how long that takes; pure.

A setup has as many blocks as were asked for, or as many as make its intervals narrow, looked at after some numbers of
them. One on which nothing can be compared (any more) is n/a, and has no more.

Trials take as long as those on record, else as they are asked to last. A budget holds only if no block takes longer
than it was thought to, so a trial is as long as the longest so far of its setup; before there is one, its cache takes
as long to fill as it may. A workload whose length nobody knows beforehand takes as long as on the other setups; until
it has run on one, it counts for nothing.
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
    """Whether there is anything to compare the first arm with on a setup, and the first arm itself."""
    present = blocks.present(setup)
    return 0 in present and len(present) >= _LEAST_ARMS


def blocks_left(blocks: Blocks, setup: int) -> int:
    """How many blocks a setup is still to have; where its intervals say so, how many until they are looked at."""
    if not comparable(blocks, setup):
        return 0
    extent, count = blocks.plan.extent, complete(blocks, setup)
    if extent.until is None:
        return max(extent.runs - count, 0)
    narrow = count in LOOKS and all(one.is_narrow(extent.until) for one in effects(blocks, setup))
    return 0 if narrow else next((look - count for look in LOOKS if look > count), 0)


def complete(blocks: Blocks, setup: int) -> int:
    """How many blocks count of which any arm of a setup can be compared: one that did not build has missed some."""
    others = [arm for arm in blocks.present(setup) if arm != 0]
    return min(sum({0, arm} <= set(block.arms) for block in blocks.counted(setup)) for arm in others)


def effects(blocks: Blocks, setup: int) -> tuple[Effect, ...]:
    """How each arm differs from the first one on a setup, as far as there are blocks with both."""
    pairs = (blocks.pairs(setup, arm) for arm in blocks.present(setup) if arm != 0)
    figures = (zip(*one, strict=True) for one in pairs if one)
    return tuple(effect(first, other, blocks.alpha(setup)) for first, other in figures)


def left_s(blocks: Blocks) -> float:
    """How long the blocks take that all setups are still to have."""
    left = {setup: blocks_left(blocks, setup) for setup in range(len(blocks.plan.setups))}
    return math.fsum(count * block_s(blocks, setup) for setup, count in left.items() if count)


BOOT_AND_LAYOUT_S = 30.0  # of a trial in emulation: a boot takes 6 s, a stack up to 15 s


def block_s(blocks: Blocks, setup: int) -> float:
    """How long a block of a setup takes without builds."""
    took = [trial.timings.total_s - trial.timings.build_s for trial in _sound(blocks, setup)]
    return len(blocks.present(setup)) * (max(took) if took else _first_s(blocks, setup))


def _first_s(blocks: Blocks, setup: int) -> float:
    """How long a trial of a setup takes that has none yet."""
    planned = blocks.plan.setups[setup]
    most_s = asked_most_s(planned)
    if planned.workload.runtime_s:
        return most_s
    workload, setups = planned.setup.workload, enumerate(blocks.plan.setups)
    alike = [trial for n, one in setups if one.setup.workload == workload for trial in _sound(blocks, n)]
    longest_s = max((trial.timings.workload_s / max(1, len(trial.runs)) for trial in alike), default=0.0)
    return most_s + len(planned.storage.stack.phases) * longest_s


def _sound(blocks: Blocks, setup: int) -> list[Trial]:
    return [one.trial for one in blocks.placed if blocks.is_of(one, setup) and one.trial.fault is None]


def asked_s(settings: Settings) -> float:
    """How long a trial takes without its build, as long as none is known, if its cache is full after the least rounds.

    Without the runs of a workload whose length nobody knows.
    """
    return _asked_s(settings, settings.storage.fill_rounds * settings.workload.runtime_s)


def asked_most_s(settings: Settings) -> float:
    """The same if its cache takes as long to fill as it may."""
    storage = settings.storage
    return _asked_s(settings, max(storage.fill_rounds * settings.workload.runtime_s, storage.fill_deadline_s))


def _asked_s(settings: Settings, filling_s: float) -> float:
    phases = settings.storage.stack.phases
    fills = sum(phase.fills for phase in phases)
    runs_s = (len(phases) - fills) * settings.workload.runtime_s
    return BOOT_AND_LAYOUT_S + settings.machine.time.most_host_s(fills * filling_s + runs_s)


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Wall seconds of the processes of a run; of them those of builds, boots, layouts of the stack, and workloads."""

    total_s: Annotated[float, "from the beginning of each process to its end, pauses between them left out"]
    build_s: Annotated[float, "of that, building kernels"]
    boot_s: Annotated[float, "booting guests"]
    storage_s: Annotated[float, "laying out the stack"]
    workload_s: Annotated[float, "the workload, with the filling of caches"]

    @classmethod
    def of(cls, store: Store, trials: Sequence[Trial]) -> "TimeSpent | None":
        """Of a run with these trials; None of one that has measured nothing."""
        if not trials:
            return None
        took = [one.timings for one in trials]
        return cls(
            total_s=times.of_processes_s(store.log),
            build_s=times.of_builds_s(store.log) + math.fsum(one.build_s for one in took),
            boot_s=math.fsum(one.boot_s for one in took),
            storage_s=math.fsum(one.storage_s for one in took),
            workload_s=math.fsum(one.workload_s for one in took),
        )

    @property
    def other_s(
        self,
    ) -> Annotated[float, "all the rest: bisector's own, waiting for a quiet host, attempts that failed"]:
        """All the rest, waiting for a quiet host and attempts that failed among it."""
        return max(0.0, self.total_s - self.build_s - self.boot_s - self.storage_s - self.workload_s)

    @property
    def other_share(self) -> Annotated[float, "`other_s` as a share of the time without builds"]:
        """The rest of the time without builds; 0 where there is none."""
        return self.other_s / (self.total_s - self.build_s) if self.total_s > self.build_s else 0.0
