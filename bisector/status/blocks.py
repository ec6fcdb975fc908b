"""What the blocks of a comparison amount to; derived from its record, like verdicts.

A block counts when each of its arms has a sound trial. After one that is weak, or that ended in a fault of its kernel,
nothing more is measured in a block: it stays on record and does not count, and another one takes its place. So the
figures that are compared were always measured close together, by the rule that was set before.

A block that was interrupted does not count either: its process or the boot of its host ended before it did, the host
changed, or between two of its trials more time passed than the longest of them took. What drifts over hours is in all
figures of a block only as long as they are measured in one go.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from itertools import combinations, pairwise
from operator import attrgetter

from bisector.analysis.comparison import ALPHA, LOOKED_ALPHA
from bisector.analysis.judgement import judged_run, why_unscored
from bisector.analysis.quality import Speed, speed_of, why_unlike
from bisector.analysis.verdicts import Judging, host_of
from bisector.core import units
from bisector.core.subject import Compiler
from bisector.core.trial import Fault, Stage, Trial, difference
from bisector.core.verdict import Verdict
from bisector.status.comparison import ComparedArm as Shown
from bisector.status.comparison import ComparisonResult, MeasuredSetup, SoundBlock, figure, result
from bisector.store.comparison import Arm, Block, Place, Placed, Plan
from bisector.store.facts import BuildTry
from bisector.store.store import Store

_OF_ANY_SETUP = (Stage.CHECKOUT, Stage.CONFIG, Stage.BUILD, Stage.BOOT)  # no stack and no workload has a part in these
_ORDER = tuple(Stage)
_A_SECOND_S = 1.0  # to which times are on record
BUILT_IN = (
    "an image boots without its initramfs and modules: what the guest needs has to be built in, as kconfigs/vm.config"
    " has it (virtio_pci, virtio_blk, virtio_net, ext4, the serial console)"
)


class BlockState(StrEnum):
    """How a block stands: OPEN lacks trials, DONE counts, and instead of the others another one is begun."""

    OPEN = "open"
    DONE = "done"
    WEAK = "weak"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Earlier:
    """How many blocks, trials and builds an earlier process has on record: what it gave up is tried once more.

    A person resumes a run after something has changed: a header is installed, the host is quiet again.
    """

    blocks: int = 0
    trials: int = 0
    build_tries: int = 0


_NOT_VOID = (BlockState.DONE, BlockState.OPEN)
_ENDED_BY = {Verdict.WEAK: BlockState.WEAK, Verdict.SKIP: BlockState.FAILED}


@dataclass(frozen=True)
class Blocks:
    """The blocks of a plan as they stand, with their trials, and what was tried of building its kernels.

    ``processes`` tells by which process each trial was submitted and recorded, ``process`` is the last one, and the
    blocks that are ``under_way`` have a trial of which something may be heard.
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
        """As they are on record, for the process that comes after the ``earlier`` ones; for a reader without."""
        facts = (store.blocks(), store.placed(), store.compilers(), store.facts(BuildTry))
        under_way = frozenset(one.fact.block for one in store.in_flight() if one.fact.block is not None)
        return cls(plan, *facts, earlier or Earlier(), store.processes(), store.process(), under_way)

    @property
    def so_far(self) -> Earlier:
        """How much is on record."""
        return Earlier(len(self.blocks), self.placed[-1].n if self.placed else 0, len(self.build_tries))

    def state(self, block: Block) -> BlockState:
        """How a block stands."""
        return self._outcomes[block.n][0]

    def why(self, block: Block) -> str:
        """Why a block does not count, in a sentence; else empty."""
        return self._outcomes[block.n][1]

    def host(self, block: Block) -> str:
        """The host that has measured the first trial of a block; empty while there is none."""
        return next((one.trial.host for arm in block.arms if (one := self._trials.get(Place(block.n, arm)))), "")

    def of_setup(self, setup: int) -> tuple[Block, ...]:
        """The blocks of a setup, in the order in which they were begun."""
        return tuple(block for block in self.blocks if block.setup == setup)

    def counted(self, setup: int) -> tuple[Block, ...]:
        """The blocks of a setup that count."""
        return tuple(block for block in self.of_setup(setup) if self.state(block) is BlockState.DONE)

    @cached_property
    def compared(self) -> tuple[Placed, ...]:
        """The trials of blocks that count, or may come to."""
        those = {block.n for block in self.blocks if self.state(block) in _NOT_VOID}
        return tuple(one for one in self.placed if one.place.block in those)

    def count(self, state: BlockState) -> int:
        """How many blocks of all setups stand so."""
        return sum(self.state(block) is state for block in self.blocks)

    def trial(self, place: Place) -> Trial | None:
        """The trial of an arm in a block."""
        found = self._trials.get(place)
        return found.trial if found is not None else None

    def trials(self, block: Block) -> Mapping[str, tuple[int, Trial]]:
        """The numbers and the trials of a block, by the names of the arms."""
        found = ((arm, self._trials.get(Place(block.n, arm))) for arm in block.arms)
        return {self.plan.arms[arm].name: (one.n, one.trial) for arm, one in found if one is not None}

    def left(self, block: Block) -> tuple[int, ...]:
        """The arms of a block that are still to be measured, in order."""
        return tuple(arm for arm in block.arms if Place(block.n, arm) not in self._trials)

    def values(self, setup: int) -> tuple[Mapping[int, float], ...]:
        """What decides of each arm, for each block of a setup that counts."""
        objective = self.plan.setups[setup].bisect.objective
        trials = ({arm: self._trials[Place(block.n, arm)].trial for arm in block.arms} for block in self.counted(setup))
        found = ({arm: figure(judged_run(trial), objective) for arm, trial in row.items()} for row in trials)
        return tuple({arm: value for arm, value in row.items() if value is not None} for row in found)

    def pairs(self, setup: int, arm: int) -> tuple[tuple[float, float], ...]:
        """The values of the first arm and of another one, in each block that counts and has both."""
        return tuple((row[0], row[arm]) for row in self.values(setup) if 0 in row and arm in row)

    def absent(self, setup: int, arm: int) -> str:
        """Why nothing (more) is measured of an arm on a setup; empty where it is.

        A fault of the kernel's own is believed as in a bisection: at once where the source does not compile, else when
        the last trials ended so, as often as the policy says, and another arm has come further since: a host on which
        nothing boots is no kernel's doing. A fault that an earlier process believed is tried once more by this one.
        """
        planned = (one.reason for one in self.plan.absent if (one.setup, one.arm) == (setup, arm))
        return next(planned, "") or self._unbuilt(arm) or self._believed_fault(setup, arm)

    def present(self, setup: int) -> tuple[int, ...]:
        """The arms that are measured on a setup."""
        return tuple(arm for arm in range(len(self.plan.arms)) if not self.absent(setup, arm))

    def alpha(self, setup: int) -> float:
        """What the intervals of a setup leave out: less of a lone one that ends the setup once it is narrow."""
        lone = len(self.present(setup)) <= 2  # noqa: PLR2004 - the first arm and another one
        return LOOKED_ALPHA if lone and self.plan.extent.until is not None else ALPHA

    def builder(self, arm: int) -> Compiler | None:
        """The compiler that is to be tried next for an arm; None when one has built it, or none does."""
        tried = self.tried(arm)
        if not self.plan.arms[arm].subject.is_built or any(not reason for reason in tried.values()):
            return None
        return next((one for one in self.compilers if one not in tried), None)

    def _unbuilt(self, arm: int) -> str:
        """Why no compiler builds an arm: what the first one says."""
        tried = self.tried(arm)
        is_image = not self.plan.arms[arm].subject.is_built
        built = is_image or not self.compilers or any(not tried.get(one) for one in self.compilers)
        return "" if built else f"does not build: {tried[self.compilers[0]]}"

    def tried(self, arm: int) -> Mapping[Compiler, str]:
        """Which compilers were tried for an arm, and why one does not build it; empty where it does.

        Of what earlier processes tried, what did not build is tried again.
        """
        built_of, before = self.plan.arms[arm].subject.built_of, self.earlier.build_tries
        known = [one for n, one in enumerate(self.build_tries, 1) if n > before or not one.reason]
        return {one.compiler: one.reason for one in known if (one.sha, one.fragment) == built_of}

    @property
    def unbuilt(self) -> tuple[str, ...]:
        """The names of the arms that did not build when that was tried last."""
        last = {one.place.arm: one.trial.fault for one in self.placed}
        failed = {arm for arm, fault in last.items() if fault is not None and fault.kind.of_compiling}
        return tuple(one.name for arm, one in enumerate(self.plan.arms) if arm in failed or self._unbuilt(arm))

    def _believed_fault(self, setup: int, arm: int) -> str:
        believed = self.plan.setups[setup].retries.faults_believed
        of_arm = [one for one in self.placed if one.place.arm == arm]
        tried = [one for one in of_arm if self.is_of(one, setup) or _fails_on_any_setup(one)]
        # One that booted on another setup is between two that did not; what comes after a boot, it says nothing of.
        booted = max((one.n for one in of_arm if one not in tried), default=0)
        tried = [one for one in tried if one.n > booted or not _fails_on_any_setup(one)]
        if not tried or tried[-1].n <= self.earlier.trials or (fault := tried[-1].trial.fault) is None:
            return ""
        if fault.kind.of_compiling:
            return fault.sentence
        sound = max((one.n for one in tried if one.trial.fault is None), default=0)
        works_on = {one.trial.host for one in tried if one.trial.fault is None}
        # What works on one host and never on another is no kernel's doing.
        row = [one for one in tried if one.n > sound and (not works_on or one.trial.host in works_on)]
        last = row[-1].trial.fault if row else None
        if last is None or len(row) < believed or not self._works_for_others(last, arm, setup, row[0].n):
            return ""
        unfit = not self.plan.arms[arm].subject.is_built and last.stage is Stage.BOOT
        return f"{last.sentence} ({BUILT_IN})" if unfit else last.sentence

    def works_elsewhere(self, block: Block) -> bool:
        """Whether the arm that a block failed by works on the same setup on another host, and never on its own."""
        faulty = {arm for arm in block.arms if (trial := self.trial(Place(block.n, arm))) and trial.fault is not None}
        of_setup = [one for one in self.placed if self.is_of(one, block.setup) and one.place.arm in faulty]
        works_on = {one.trial.host for one in of_setup if one.trial.fault is None}
        return bool(works_on) and self.host(block) not in works_on

    def _works_for_others(self, fault: Fault, arm: int, setup: int, since: int) -> bool:
        """Whether another arm came further than a fault, since a trial of this number."""
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

    def _outcome(self, block: Block) -> tuple[BlockState, str]:
        measured = [one for arm in block.arms if (one := self._trials.get(Place(block.n, arm))) is not None]
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
        """What came between two trials of a block, or came before the next one can; empty if nothing did."""
        longest_s = max((one.trial.timings.total_s for one in measured), default=0.0)
        for before, after in pairwise(measured):
            if why := self._between(before, after, longest_s):
                return f"interrupted after trial {before.n}: {why}"
        if not goes_on and self._recorded_by(measured[-1]) != self.process:
            return f"interrupted after trial {measured[-1].n}: its process ended"
        return ""

    def _recorded_by(self, one: Placed) -> int:
        return self.processes.get(one.n, (0, 0))[1]

    def _between(self, before: Placed, after: Placed, longest_s: float) -> str:
        one, other = before.trial, after.trial
        if host_of(one) != host_of(other):
            return f"the host changed: {difference(one.era, other.era)}"
        if one.era is not None and other.era is not None and one.era.boot != other.era.boot:
            return "the host was booted anew"
        if self._recorded_by(before) != self.processes.get(after.n, (0, 0))[0]:
            return "its process ended"
        began, ended = (datetime.fromisoformat(trial.started_at) for trial in (other, one))
        gap_s = (began - ended).total_seconds() - one.timings.total_s
        if gap_s > longest_s + _A_SECOND_S:
            return f"{units.duration(gap_s)} passed, and its longest trial took {units.duration(longest_s)}"
        return ""

    def _changed_speed(self, block: Block, measured: Sequence[Placed]) -> str:
        """Which arm the host's cores ran at another speed for than for the first one, and at which; else empty."""
        limit = self.plan.setups[block.setup].contention.max_speed_change
        first = speed_of(measured[0].trial, limit) if measured else None
        speed = None if first is None else Speed(first, "in the first trial of the block")
        whys = ((one, why_unlike(run, speed, limit)) for one in measured[1:] for run in one.trial.runs)
        return next((f"{self.plan.arms[one.place.arm].name}: {why}" for one, why in whys if why), "")


def _fails_on_any_setup(one: Placed) -> bool:
    """Whether a kernel failed where no stack and no workload has a part."""
    return one.trial.fault is not None and one.trial.fault.stage in _OF_ANY_SETUP


def judged(plan: Plan, block: Block, one: Placed) -> tuple[Verdict, str]:
    """Whether a trial is MEASURED, WEAK or none (SKIP), and the sentence for it; the settings have no threshold.

    A value of zero or below is measured, too: it has a difference from others, though no ratio.
    """
    planned = plan.setups[block.setup]
    judging = Judging(planned, ((one.n, one.trial),))
    ((_, _, judgement),) = judging.judged_trials()
    objective = planned.bisect.objective
    # A rate of zero is a job that stood still or was not measured.
    if judgement.verdict is Verdict.WEAK and not objective.definition.live:
        value = figure(judged_run(one.trial), objective)
        if value is not None and value <= 0 and judgement.why == why_unscored(one.trial, objective):
            return Verdict.MEASURED, f"{objective.label} is {value:g}"
    return judgement.verdict, judgement.why


def result_of(blocks: Blocks) -> ComparisonResult:
    """What the blocks that count show so far."""
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
    """By what people know each setup: its stack, with the workload where there are several."""
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
    """The first trial that had a kernel of what an arm is built of; arms of one build have one kernel."""
    wanted = plan.arms[arm].subject.built_of
    trials = (one.trial for one in placed if plan.arms[one.place.arm].subject.built_of == wanted)
    return next((trial for trial in trials if trial.kernel is not None), None)


def equal_kernels(plan: Plan, placed: Sequence[Placed]) -> Pairs:
    """Arms of two subjects whose kernels are the same: what differs between them is not part of the build."""
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
    """The names of arms that were more than one kernel; earlier versions measured on with what was built anew."""
    contents: defaultdict[int, set[str]] = defaultdict(set)
    for one in placed:
        contents[one.place.arm] |= {one.trial.kernel.content_sha256} if one.trial.kernel is not None else set()
    return tuple(plan.arms[arm].name for arm, found in sorted(contents.items()) if len(found) > 1)


def unlike_kernels(plan: Plan, placed: Sequence[Placed]) -> Pairs:
    """Arms that were made in another way than an earlier arm, each with that one, though nobody asked for that.

    Apart from an arm's own fragment all kernels of a comparison are made alike; one that could be built only after an
    upgrade of bisector may be made with other quirks.
    """
    found, made = [], dict[str, tuple[Arm, str]]()
    for n, arm in enumerate(plan.arms):
        trial = first_kernel(plan, placed, n)
        if arm.subject.is_built and trial is not None and trial.kernel is not None:
            earlier, family = made.setdefault(arm.subject.fragment, (arm, trial.kernel.family))
            found += [(earlier.name, arm.name)] if family != trial.kernel.family else []
    return tuple(found)
