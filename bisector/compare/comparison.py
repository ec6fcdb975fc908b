"""A comparison on the loop: its schedule with the record beside it, and what earlier processes have left on record."""

from contextlib import suppress
from dataclasses import dataclass, field, replace

from bisector.campaign.equipment import Equipment
from bisector.campaign.instructions import Done, Instruction, Submit, Transient
from bisector.campaign.loop import Loop
from bisector.compare.schedule import CompareState, step
from bisector.core.errors import UserError
from bisector.core.events import Listener, Note
from bisector.core.subject import Compiler, Kernel
from bisector.core.trial import Trial
from bisector.executor.base import Executor, Request
from bisector.host.files import inside
from bisector.kernel.toolchain import check_unchanged
from bisector.status.blocks import Blocks, BlockState, Earlier, first_kernel
from bisector.status.conclusion import CONFIG_ARTIFACT
from bisector.store.comparison import Budget, Plan
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest


@dataclass(slots=True)
class Comparison:
    """A process's part of a comparison."""

    plan: Plan
    store: Store
    equipment: Equipment
    tell: Listener
    _earlier: Earlier = field(default_factory=Earlier, init=False)
    _installed: tuple[Compiler, ...] = field(default=(), init=False)
    _recorded: tuple[int, CompareState] | None = field(default=None, init=False)

    def run(self) -> Done:
        """Go on until there is nothing left to measure.

        Raises :class:`InfraError` when the tool or the last host keeps failing, :class:`UserError` for what no arm can
        be measured with, and for a compiler that has changed. Everything measured is in the store either way.
        """
        known = Transient(notified=frozenset(f"trial {n}" for n, _ in self.store.trials()))
        loop = Loop(
            self.store,
            self.equipment,
            self.tell,
            self._step,
            complete=self._complete,
            transient=known,
        )
        self._installed = usable_compilers(self.store, self.equipment.executor, self.tell)
        self._earlier = given_up_before(self.plan, self.store, self.tell)
        return loop.run()

    def _step(self, transient: Transient) -> Instruction:
        return step(replace(self._record, transient=transient))

    @property
    def _record(self) -> CompareState:
        moment = self.store.moment
        if self._recorded is None or self._recorded[0] != moment:
            state = CompareState(
                Blocks.of(self.plan, self.store, self._earlier),
                run_dir=self.store.path.parent,
                next_n=self.store.next_n,
                spent_s=self.store.spent_s(),
                installed=self._installed,
                given=next(reversed(self.store.facts(Budget)), None),
                in_flight=self.store.in_flight(),
                crew=self.equipment.crew,
            )
            self._recorded = moment, state
        return self._recorded[1]

    def _complete(self, submit: Submit) -> Request:
        """The request of a trial, with the kernel that was measured of its arm before, if there is one."""
        request, place = submit.request, submit.place
        if not isinstance(request, TrialRequest) or place is None:
            return request
        trial = first_kernel(self.plan, self._record.blocks.compared, place.arm)
        return request if trial is None else replace(request, kernel=self._kernel(trial))

    def _kernel(self, trial: Trial) -> Kernel | None:
        """The kernel of a trial, with the .config that this run keeps, if there is one."""
        if trial.kernel is None:
            return None
        for config in (one.path for one in trial.artifacts if one.name == CONFIG_ARTIFACT):
            with suppress(OSError):
                return replace(trial.kernel, config=inside(self.store.path.parent, config))
        return trial.kernel


def usable_compilers(store: Store, executor: Executor, tell: Listener) -> tuple[Compiler, ...]:
    """The compilers to choose from; once one is chosen, it is told when that one cannot build any more.

    What it has built is kept and measured; a kernel that is not stops the run, with the name of its arm. Raises
    :class:`UserError` for a compiler that is asked for and not there.
    """
    recorded = store.compilers()
    try:
        found = executor.compilers()
        check_unchanged(recorded, found)
    except UserError as error:
        if not recorded:
            raise
        tell(Note(f"{error.message}; the kernels that are kept are measured all the same"))
        return recorded
    return found


def given_up_before(plan: Plan, store: Store, tell: Listener) -> Earlier:
    """How much earlier processes have on record; what they gave up of an arm is told, since it is tried again."""
    before = Blocks.of(plan, store)
    for block in before.blocks:
        if before.state(block) is BlockState.INTERRUPTED and before.left(block):
            tell(Note(f"block {block.n} does not count and is begun anew: {before.why(block)}"))
    now = replace(before, earlier=before.so_far)
    for arm, one in enumerate(plan.arms):
        for why in dict.fromkeys(before.absent(setup, arm) for setup in range(len(plan.setups))):
            if why and why not in {now.absent(setup, arm) for setup in range(len(plan.setups))}:
                tell(Note(f"{one.name} is tried again: {why}"))
    return before.so_far
