"""How long the trials of a comparison take: by those that are on record, else by what they are asked to last.

A budget holds only if no block takes longer than it was thought to. So a trial is as long as the longest so far of its
setup; before there is one, its cache takes as long to fill as it may. A workload whose length nobody knows beforehand
takes as long as on the other setups; until it has run on one, it counts for nothing.
"""

from bisector.core.trial import Trial
from bisector.status.blocks import Blocks
from bisector.store.comparison import PlannedSetup

BOOT_AND_LAYOUT_S = 30.0  # of a trial in emulation: a boot takes 6 s, a stack up to 15 s


def block_s(blocks: Blocks, setup: int) -> float:
    """How long a block of a setup takes without builds."""
    took = [trial.timings.total_s - trial.timings.build_s for trial in _sound(blocks, setup)]
    return len(blocks.present(setup)) * (max(took) if took else _first_s(blocks, setup))


def _first_s(blocks: Blocks, setup: int) -> float:
    """How long a trial of a setup takes that has none yet."""
    planned = blocks.plan.setups[setup]
    most_s = asked_most_s(planned)
    if planned.settings.workload.runtime_s:
        return most_s
    workload, setups = planned.setup.workload, enumerate(blocks.plan.setups)
    alike = [trial for n, one in setups if one.setup.workload == workload for trial in _sound(blocks, n)]
    longest_s = max((trial.timings.workload_s / max(1, len(trial.runs)) for trial in alike), default=0.0)
    return most_s + len(planned.settings.storage.stack.phases) * longest_s


def _sound(blocks: Blocks, setup: int) -> list[Trial]:
    return [one.trial for one in blocks.placed if blocks.is_of(one, setup) and one.trial.fault is None]


def asked_s(planned: PlannedSetup) -> float:
    """How long a trial takes without its build, as long as none is known, if its cache is full after the least rounds.

    Without the runs of a workload whose length nobody knows.
    """
    settings = planned.settings
    return _asked_s(planned, settings.storage.fill_rounds * settings.workload.runtime_s)


def asked_most_s(planned: PlannedSetup) -> float:
    """The same if its cache takes as long to fill as it may."""
    settings = planned.settings
    rounds_s = settings.storage.fill_rounds * settings.workload.runtime_s
    return _asked_s(planned, max(rounds_s, settings.storage.fill_deadline_s))


def _asked_s(planned: PlannedSetup, filling_s: float) -> float:
    phases = planned.settings.storage.stack.phases
    fills = sum(phase.fills for phase in phases)
    runs_s = (len(phases) - fills) * planned.settings.workload.runtime_s
    return BOOT_AND_LAYOUT_S + planned.settings.machine.time.most_host_s(fills * filling_s + runs_s)
