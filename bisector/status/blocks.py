"""The state of each block of a comparison, derived from the record as verdicts are; how many are left, and their time.

A block counts if each of its arms has a sound trial. Once a trial of a block is weak or ends in a fault of its kernel,
no further trial of the block is measured: the block stays on record without counting, and another block takes its
place. So figures that are compared were always measured close together, by a rule that was set beforehand.

An interrupted block does not count either: its process ended, its host was rebooted or changed, or more time passed
between two of its trials than the longest of them took. Drift over hours affects all figures of a block alike only if
the block is measured without a break.

A setup gets as many blocks as were asked for, or as many as make its intervals narrow, which is checked after certain
numbers of blocks (``LOOKS``). A setup on which nothing can be compared (any longer) is n/a and gets no further blocks.

A trial is assumed to take as long as earlier ones, or else as long as the settings ask for. A budget holds only if no
block takes longer than predicted, so the longest trial of the setup so far is the measure; before there is one, the
cache is assumed to take the longest allowed time to fill. A workload of unknown length is assumed to take as long as on
the other setups, and no time until it has run on one.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from itertools import combinations, pairwise
from operator import attrgetter
from typing import Annotated

from bisector.analysis.comparison import ALPHA, LOOKED_ALPHA, LOOKS, Effect, effect
from bisector.analysis.judgement import judged_run, why_unscored
from bisector.analysis.quality import Speed, speed_of, why_unlike
from bisector.analysis.verdicts import Judging, host_of
from bisector.config import Settings
from bisector.core import units
from bisector.core.json_document import Key
from bisector.core.subject import Compiler
from bisector.core.trial import Fault, Stage, Trial, difference
from bisector.core.verdict import Verdict
from bisector.status.comparison import ComparedArm as Shown
from bisector.status.comparison import ComparisonResult, MeasuredSetup, SoundBlock, figure, result
from bisector.store.facts import Arm, Block, BuildTry, Place, Placed, Plan
from bisector.store.store import Store, build_seconds, process_s

_OF_ANY_SETUP = (Stage.CHECKOUT, Stage.CONFIG, Stage.BUILD, Stage.BOOT)  # the same on every stack and workload
_ORDER = tuple(Stage)
_A_SECOND_S = 1.0  # times are recorded in whole seconds
BUILT_IN = (
    "an image boots without its initramfs and modules: what the guest needs has to be built in, as kconfigs/vm.config"
    " has it (virtio_pci, virtio_blk, virtio_net, ext4, the serial console)"
)
BOOT_AND_LAYOUT_S = 30.0  # of a trial in emulation: a boot takes 6 s, a stack up to 15 s
_LEAST_ARMS = 2  # to compare: the first arm and another one


class BlockState(StrEnum):
    """How a block stands: OPEN lacks trials, DONE counts; a block in any other state is replaced by a new one."""

    OPEN = "open"
    DONE = "done"
    WEAK = "weak"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Earlier:
    """How many blocks, trials and builds earlier processes have on record; what those gave up on is tried once more.

    A person resumes a run after something has changed: a header was installed, or the host is quiet again.
    """

    blocks: int = 0
    trials: int = 0
    build_tries: int = 0


_NOT_VOID = (BlockState.DONE, BlockState.OPEN)
_ENDED_BY = {Verdict.WEAK: BlockState.WEAK, Verdict.SKIP: BlockState.FAILED}


@dataclass(frozen=True)
class Blocks:
    """The blocks of a plan with their trials and their states, and the attempts to build the kernels.

    ``processes`` maps the number of a trial to the processes that submitted and recorded it; ``process`` is the last
    process. A block is in ``under_way`` if one of its trials was submitted and has not ended.
    """

    plan: Plan
    blocks: tuple[Block, ...] = ()
    placed: tuple[Placed, ...] = ()
    compilers: tuple[Compiler, ...] = ()
    build_tries: tuple[BuildTry, ...] = ()
    earlier: Earlier = Earlier()
    processes: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    process: int = 0
    under_way: frozenset[int] = frozenset()

    @classmethod
    def of(cls, plan: Plan, store: Store, earlier: Earlier | None = None) -> "Blocks":
        """Read the blocks from the record, for the process after the ``earlier`` ones; a reader leaves that out."""
        facts = (store.facts(Block), store.placed(), store.compilers(), store.facts(BuildTry))
        under_way = frozenset(one.fact.block for one in store.in_flight() if one.fact.block is not None)
        return cls(plan, *facts, earlier or Earlier(), store.processes(), store.process(), under_way)

    @property
    def so_far(self) -> Earlier:
        """The number of blocks, trials and builds on record."""
        return Earlier(len(self.blocks), self.placed[-1].n if self.placed else 0, len(self.build_tries))

    def state(self, block: Block) -> BlockState:
        """The state of a block."""
        return self._outcomes[block.n][0]

    def why(self, block: Block) -> str:
        """One sentence that says why a block does not count; empty if it counts or is open."""
        return self._outcomes[block.n][1]

    def host(self, block: Block) -> str:
        """The host that measured the first trial of a block; empty if the block has no trial yet."""
        return next((one.trial.host for one in self._measured(block)), "")

    def of_setup(self, setup: int) -> tuple[Block, ...]:
        """The blocks of a setup, in the order in which they were begun."""
        return tuple(block for block in self.blocks if block.setup == setup)

    def counted(self, setup: int) -> tuple[Block, ...]:
        """The blocks of a setup that count."""
        return tuple(block for block in self.of_setup(setup) if self.state(block) is BlockState.DONE)

    @cached_property
    def compared(self) -> tuple[Placed, ...]:
        """The trials of blocks that count or are still open."""
        those = {block.n for block in self.blocks if self.state(block) in _NOT_VOID}
        return tuple(one for one in self.placed if one.place.block in those)

    def count(self, state: BlockState) -> int:
        """The number of blocks of all setups in a state."""
        return sum(self.state(block) is state for block in self.blocks)

    def trials(self, block: Block) -> Mapping[str, tuple[int, Trial]]:
        """The number and the trial of each measured arm of a block, by the arm's name."""
        return {self.plan.arms[one.place.arm].name: (one.n, one.trial) for one in self._measured(block)}

    def left(self, block: Block) -> tuple[int, ...]:
        """The arms of a block that are still to be measured, in order."""
        return tuple(arm for arm in block.arms if Place(block.n, arm) not in self._trials)

    def values(self, setup: int) -> tuple[Mapping[int, float], ...]:
        """The value of each arm by the setup's objective, for each block of the setup that counts."""
        objective = self.plan.setups[setup].bisect.objective
        rows = (((one.place.arm, figure(judged_run(one.trial), objective)) for one in self._measured(block))
                for block in self.counted(setup))  # fmt: skip
        return tuple({arm: value for arm, value in row if value is not None} for row in rows)

    def pairs(self, setup: int, arm: int) -> tuple[tuple[float, float], ...]:
        """The values of the first arm and of another arm, from each block that counts and has both."""
        return tuple((row[0], row[arm]) for row in self.values(setup) if 0 in row and arm in row)

    def absent(self, setup: int, arm: int) -> str:
        """The reason why an arm is not, or no longer, measured on a setup; empty if it is measured.

        A fault of the kernel itself is believed under the same rule as in a bisection: at once if the source does not
        compile; otherwise if the last trials ended in a fault, as many as the policy demands, and another arm has come
        further in the meantime: if nothing boots on a host, that is not the kernel's fault. A fault that an earlier
        process believed is tried once more by this process.
        """
        planned = (one.reason for one in self.plan.absent if (one.setup, one.arm) == (setup, arm))
        return next(planned, "") or self._unbuilt(arm) or self._believed_fault(setup, arm)

    def present(self, setup: int) -> tuple[int, ...]:
        """The arms that are measured on a setup."""
        return tuple(arm for arm in range(len(self.plan.arms)) if not self.absent(setup, arm))

    def alpha(self, setup: int) -> float:
        """The probability that the intervals of a setup leave out.

        It is smaller if a single arm is compared and the setup ends as soon as its interval is narrow.
        """
        lone = len(self.present(setup)) <= _LEAST_ARMS
        return LOOKED_ALPHA if lone and self.plan.extent.until is not None else ALPHA

    def builder(self, arm: int) -> Compiler | None:
        """The compiler to try next for an arm; None if the arm is built or need not be, or if no compiler is left."""
        tried = self.tried(arm)
        if not self.plan.arms[arm].subject.is_built or any(not reason for reason in tried.values()):
            return None
        return next((one for one in self.compilers if one not in tried), None)

    def _unbuilt(self, arm: int) -> str:
        """Why no compiler builds an arm, as the first compiler says it; empty if it may still be built."""
        tried = self.tried(arm)
        is_image = not self.plan.arms[arm].subject.is_built
        built = is_image or not self.compilers or any(not tried.get(one) for one in self.compilers)
        return "" if built else f"does not build: {tried[self.compilers[0]]}"

    def tried(self, arm: int) -> Mapping[Compiler, str]:
        """The compilers tried for an arm, each with the reason why it does not build the arm; empty if it does.

        A failed build of an earlier process does not count: it is tried again.
        """
        built_of, before = self.plan.arms[arm].subject.built_of, self.earlier.build_tries
        known = [one for n, one in enumerate(self.build_tries, 1) if n > before or not one.reason]
        return {one.compiler: one.reason for one in known if (one.sha, one.fragment) == built_of}

    @property
    def unbuilt(self) -> tuple[str, ...]:
        """The names of the arms whose last attempt to build failed."""
        last = {one.place.arm: one.trial.fault for one in self.placed}
        failed = {arm for arm, fault in last.items() if fault is not None and fault.kind.of_compiling}
        return tuple(one.name for arm, one in enumerate(self.plan.arms) if arm in failed or self._unbuilt(arm))

    def _believed_fault(self, setup: int, arm: int) -> str:
        believed = self.plan.setups[setup].retries.faults_believed
        of_arm = [one for one in self.placed if one.place.arm == arm]
        tried = [one for one in of_arm if self.is_of(one, setup) or _fails_on_any_setup(one)]
        # A boot on another setup refutes earlier faults up to the boot; it says nothing about faults of later stages.
        booted = max((one.n for one in of_arm if one not in tried), default=0)
        tried = [one for one in tried if one.n > booted or not _fails_on_any_setup(one)]
        if not tried or tried[-1].n <= self.earlier.trials or (fault := tried[-1].trial.fault) is None:
            return ""
        if fault.kind.of_compiling:
            return fault.sentence
        sound = max((one.n for one in tried if one.trial.fault is None), default=0)
        works_on = {one.trial.host for one in tried if one.trial.fault is None}
        # If a kernel works on one host and never on another, the other host's faults are not the kernel's.
        row = [one for one in tried if one.n > sound and (not works_on or one.trial.host in works_on)]
        last = row[-1].trial.fault if row else None
        if last is None or len(row) < believed or not self._others_got_further(last, arm, setup, row[0].n):
            return ""
        unfit = not self.plan.arms[arm].subject.is_built and last.stage is Stage.BOOT
        return f"{last.sentence} ({BUILT_IN})" if unfit else last.sentence

    def works_on_another_host(self, block: Block) -> bool:
        """Whether the arm that ended a block works on this setup on another host, and never on the block's own host."""
        faulty = {one.place.arm for one in self.placed if one.place.block == block.n and one.trial.fault is not None}
        of_setup = [one for one in self.placed if self.is_of(one, block.setup) and one.place.arm in faulty]
        works_on = {one.trial.host for one in of_setup if one.trial.fault is None}
        return bool(works_on) and self.host(block) not in works_on

    def _others_got_further(self, fault: Fault, arm: int, setup: int, since: int) -> bool:
        """Whether a trial of another arm, with a number above ``since``, got past the stage of a fault."""
        others = (one for one in self.placed if one.place.arm != arm and one.n > since)
        alike = (one for one in others if self.is_of(one, setup) or fault.stage in _OF_ANY_SETUP)
        reached = (one.trial.fault.stage if one.trial.fault is not None else Stage.DONE for one in alike)
        return any(_ORDER.index(stage) > _ORDER.index(fault.stage) for stage in reached)

    def is_of(self, one: Placed, setup: int) -> bool:
        """Whether a trial was measured on a setup."""
        return self._setups[one.place.block] == setup

    @cached_property
    def _setups(self) -> dict[int, int]:
        return {block.n: block.setup for block in self.blocks}

    @cached_property
    def _trials(self) -> dict[Place, Placed]:
        return {one.place: one for one in self.placed}

    @cached_property
    def _outcomes(self) -> dict[int, tuple[BlockState, str]]:
        return {block.n: self._outcome(block) for block in self.blocks}

    def _measured(self, block: Block) -> list[Placed]:
        """The trials of a block, in the order of its arms."""
        return [one for arm in block.arms if (one := self._trials.get(Place(block.n, arm))) is not None]

    def _outcome(self, block: Block) -> tuple[BlockState, str]:
        measured = self._measured(block)
        for one in measured:
            verdict, why = judged(self.plan, block, one)
            if verdict in _ENDED_BY:
                return _ENDED_BY[verdict], f"{self.plan.arms[one.place.arm].name}: {why}"
        hosts = tuple(dict.fromkeys(one.trial.host for one in measured))
        if len(hosts) > 1:
            return BlockState.WEAK, f"measured on {' and '.join(hosts)}, whose figures cannot be compared"
        is_whole = len(measured) == len(block.arms)
        goes_on = is_whole or not measured or block.n in self.under_way
        if why := self._interruption(sorted(measured, key=attrgetter("n")), goes_on=goes_on):
            return BlockState.INTERRUPTED, why
        if why := self._changed_speed(block, measured):
            return BlockState.WEAK, why
        return (BlockState.DONE if is_whole else BlockState.OPEN), ""

    def _interruption(self, measured: Sequence[Placed], *, goes_on: bool) -> str:
        """The interruption between two trials of a block, or after the last one; empty if there was none."""
        longest_s = max((one.trial.timings.total_s for one in measured), default=0.0)
        for before, after in pairwise(measured):
            if why := self._between(before, after, longest_s):
                return f"interrupted after trial {before.n}: {why}"
        if not goes_on and self._processes(measured[-1])[1] != self.process:
            return f"interrupted after trial {measured[-1].n}: its process ended"
        return ""

    def _processes(self, one: Placed) -> tuple[int, int]:
        return self.processes.get(one.n, (0, 0))

    def _between(self, before: Placed, after: Placed, longest_s: float) -> str:
        one, other = before.trial, after.trial
        if host_of(one) != host_of(other):
            return f"the host changed: {difference(one.era, other.era)}"
        if one.era is not None and other.era is not None and one.era.boot != other.era.boot:
            return "the host was booted anew"
        if self._processes(before)[1] != self._processes(after)[0]:
            return "its process ended"
        began, ended = (datetime.fromisoformat(trial.started_at) for trial in (other, one))
        gap_s = (began - ended).total_seconds() - one.timings.total_s
        if gap_s > longest_s + _A_SECOND_S:
            return f"{units.duration(gap_s)} passed, and its longest trial took {units.duration(longest_s)}"
        return ""

    def _changed_speed(self, block: Block, measured: Sequence[Placed]) -> str:
        """The first arm measured at another core speed than the block's first trial, and the speeds; else empty."""
        limit = self.plan.setups[block.setup].contention.max_speed_change
        first = speed_of(measured[0].trial, limit) if measured else None
        speed = None if first is None else Speed(first, "in the first trial of the block")
        whys = ((one, why_unlike(run, speed, limit)) for one in measured[1:] for run in one.trial.runs)
        return next((f"{self.plan.arms[one.place.arm].name}: {why}" for one, why in whys if why), "")


def _fails_on_any_setup(one: Placed) -> bool:
    return one.trial.fault is not None and one.trial.fault.stage in _OF_ANY_SETUP


def judged(plan: Plan, block: Block, one: Placed) -> tuple[Verdict, str]:
    """The verdict on a trial (MEASURED, WEAK or SKIP) with a sentence; a comparison has no threshold.

    A value of zero or below counts as measured, too: its difference from other values is defined, though no ratio is.
    """
    planned = plan.setups[block.setup]
    judging = Judging(planned, ((one.n, one.trial),))
    ((_, _, judgement),) = judging.judged_trials()
    objective = planned.bisect.objective
    # A live metric is a rate: zero means that the job stood still or was not measured.
    if judgement.verdict is Verdict.WEAK and not objective.definition.live:
        value = figure(judged_run(one.trial), objective)
        if value is not None and value <= 0 and judgement.why == why_unscored(one.trial, objective):
            return Verdict.MEASURED, f"{objective.label} is {value:g}"
    return judgement.verdict, judgement.why


def result_of(blocks: Blocks) -> ComparisonResult:
    """The result of the blocks that count so far."""
    plan = blocks.plan
    placebos = [n > 0 and arm.subject == plan.arms[0].subject for n, arm in enumerate(plan.arms)]
    arms = [Shown(arm.name, placebo) for arm, placebo in zip(plan.arms, placebos, strict=True)]
    measured = [_measured(blocks, setup, name) for setup, name in enumerate(names(plan))]
    return replace(
        result(arms, measured, plan.extent.delta),
        equal=equal_kernels(plan, blocks.placed),
        several=changed_kernels(plan, blocks.compared),
        unlike=unlike_kernels(plan, blocks.compared),
        clock=plan.setups[0].machine.time,
    )


def names(plan: Plan) -> tuple[str, ...]:
    """The display name of each setup: its stack, with the workload if the plan has several workloads."""
    setups = [one.setup for one in plan.setups]
    alike = len({one.workload for one in setups}) == 1
    return tuple(one.stack if alike else str(one) for one in setups)


def _measured(blocks: Blocks, setup: int, name: str) -> MeasuredSetup:
    plan = blocks.plan
    planned, counted = plan.setups[setup], blocks.counted(setup)
    absent = {arm.name: why for n, arm in enumerate(plan.arms) if (why := blocks.absent(setup, n))}
    void = [one for one in blocks.of_setup(setup) if blocks.state(one) not in _NOT_VOID]
    last = counted[-1].n if counted else 0
    sound = tuple(SoundBlock(one.round, blocks.trials(one), one.seed) for one in counted)
    missing = sum(one.n > last for one in void)
    alpha = blocks.alpha(setup)
    return MeasuredSetup(planned.setup, planned.bisect.objective, sound, absent, name, len(void), missing, alpha)


Pairs = tuple[tuple[str, str], ...]


def first_kernel(plan: Plan, placed: Sequence[Placed], arm: int) -> Trial | None:
    """The first trial with a kernel built from the source of an arm; arms with the same source share one kernel."""
    wanted = plan.arms[arm].subject.built_of
    trials = (one.trial for one in placed if plan.arms[one.place.arm].subject.built_of == wanted)
    return next((trial for trial in trials if trial.kernel is not None), None)


def equal_kernels(plan: Plan, placed: Sequence[Placed]) -> Pairs:
    """Pairs of arms of different subjects with equal kernels: the subjects' difference is not part of the build."""
    arms = plan.arms
    contents = {one.place.arm: one.trial.kernel.content_sha256 for one in placed if one.trial.kernel is not None}
    return tuple(
        (arms[one].name, arms[other].name)
        for one, other in combinations(sorted(contents), 2)
        if contents[one] == contents[other]
        and arms[one].subject != arms[other].subject
        and arms[one].subject.parameters == arms[other].subject.parameters
    )


def changed_kernels(plan: Plan, placed: Sequence[Placed]) -> tuple[str, ...]:
    """The names of the arms that were measured with more than one kernel.

    Earlier versions of bisector went on with a kernel that had been built anew.
    """
    contents: defaultdict[int, set[str]] = defaultdict(set)
    for one in placed:
        contents[one.place.arm] |= {one.trial.kernel.content_sha256} if one.trial.kernel is not None else set()
    return tuple(plan.arms[arm].name for arm, found in sorted(contents.items()) if len(found) > 1)


def unlike_kernels(plan: Plan, placed: Sequence[Placed]) -> Pairs:
    """Pairs of arms whose kernels were unintentionally made in different ways; the earlier arm of a pair comes first.

    Except for an arm's own fragment, all kernels of a comparison are made alike. But a kernel that could be built only
    after an upgrade of bisector may have been made with other quirks.
    """
    found, made = [], dict[str, tuple[Arm, str]]()
    for n, arm in enumerate(plan.arms):
        trial = first_kernel(plan, placed, n)
        if arm.subject.is_built and trial is not None and trial.kernel is not None:
            earlier, family = made.setdefault(arm.subject.fragment, (arm, trial.kernel.family))
            found += [(earlier.name, arm.name)] if family != trial.kernel.family else []
    return tuple(found)


# The blocks that are left, and the time they take


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
            total_s=process_s(store.log),
            build_s=build_seconds(store.log) + math.fsum(one.build_s for one in took),
            boot_s=math.fsum(one.boot_s for one in took),
            storage_s=math.fsum(one.storage_s for one in took),
            workload_s=math.fsum(one.workload_s for one in took),
        )

    @property
    def other_s(self) -> Annotated[float, Key()]:
        """All the rest: bisector's own, waiting for a quiet host, attempts that failed."""
        return max(0.0, self.total_s - self.build_s - self.boot_s - self.storage_s - self.workload_s)

    @property
    def other_share(self) -> Annotated[float, Key()]:
        """``other_s`` as a share of the time without builds; 0 if there is no such time."""
        return self.other_s / (self.total_s - self.build_s) if self.total_s > self.build_s else 0.0
