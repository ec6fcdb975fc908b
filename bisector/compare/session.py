"""The life of a comparison from request to outcome, for ``compare`` and ``resume``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from bisector.bisect import session as bisection
from bisector.bisect.session import ends_recorded, gone_if_nothing_began, let_go
from bisector.campaign.equipment import Equipment, MeasurerFactory, clean_up
from bisector.campaign.instructions import Done, Instruction, Submit, Transient
from bisector.campaign.loop import Loop
from bisector.compare.plan import CompareRequest, planned
from bisector.compare.schedule import CompareState, step
from bisector.core.errors import Finding, InfraError, UserError
from bisector.core.events import Listener, Note
from bisector.core.subject import Compiler
from bisector.core.verdict import State
from bisector.doctor import checks as preflight
from bisector.executor.base import Executor, Request
from bisector.git.bundle import bundled
from bisector.git.repository import Repository
from bisector.git.worktrees import hold
from bisector.host.files import discard, inside, remove_abandoned
from bisector.kernel.toolchain import check_unchanged
from bisector.status.blocks import Blocks, BlockState, first_kernel
from bisector.status.conclusion import CONFIG_ARTIFACT
from bisector.status.progress import left_s
from bisector.store.comparison import Budget, Plan
from bisector.store.facts import RunHeader
from bisector.store.run_files import keep_files, keep_inputs
from bisector.store.rundir import Index, IndexEntry, RunDirectory, run_name
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest

_BUILD = "build"


@contextmanager
def begun(
    asked: CompareRequest,
    run_dir: Path | None,
    warn: Callable[[Finding], None],
    *,
    measures_here: bool = True,
    listed: bool = True,
) -> Iterator[tuple[RunDirectory, Store]]:
    """Check a request without building anything, record it as a new comparison, and lock that until the context exits.

    ``warn`` receives problems of this machine that spoil figures or the record but do not prevent the run; if other
    hosts measure (``measures_here`` is false), their own doctors check them instead. A comparison that is not
    ``listed`` is part of another run. Raises :class:`UserError` if the request cannot work; the directory is removed.
    """
    with Repository.open(asked.repository) as repository:
        plan = planned(repository, asked)
        plan = replace(plan, setups=tuple(bundled(one, repository) for one in plan.setups))
    for arm in plan.arms:
        if not (measures_here or arm.subject.is_built):
            raise UserError(f"{arm.file} is an image on this host, which no other host has", "leave --hosts out")
    first, last = asked.subjects[0], asked.subjects[-1]
    run = RunDirectory.create(run_dir, run_name(first, last))
    with run.lock(), gone_if_nothing_began(run):
        remove_abandoned(run.path)
        if measures_here:
            preflight.check(plan.setups[0], run.path, warn)
            for one in plan.setups[1:]:
                preflight.check_setup(one, run.path, warn)
            for number in plan.with_fragment:
                preflight.check_build(plan.settings(0, number), run.path)
        setups = tuple(keep_inputs(one, run.path) for one in plan.setups)
        keep_files(asked.patch_files, run.path)
        files = keep_files((one.file for one in plan.arms), run.path)
        arms = tuple(replace(one, file=file) for one, file in zip(plan.arms, files, strict=True))
        row = RunHeader.of(setups[0], repository.top)
        with Store.create(run.database, row, plan=replace(plan, arms=arms, setups=setups)) as store:
            if listed:
                Index().add(IndexEntry(str(run.path), str(repository.top), first, last, row.created_at))
            yield run, store


def plan_of(store: Store) -> tuple[Plan, Path]:
    """Return the plan and the repository of a comparison."""
    plan, repository = store.plan, store.bisection().repository
    if plan is None or repository is None:
        raise RuntimeError(f"{store.path} holds no comparison")
    return plan, repository


def give_time(run: RunDirectory, store: Store, budget_s: float) -> None:
    """Give a comparison ``budget_s`` seconds from now on; raises :class:`UserError` if nothing is left to measure."""
    plan, _ = plan_of(store)
    blocks, last = Blocks.of(plan, store), store.state()
    if last is not None and last.state is State.MEASURED and not (left_s(blocks) or blocks.unbuilt):
        raise UserError(
            f"{run.path} has measured what was asked for: {last.message}",
            "bisector report shows it; more blocks are another comparison: bisector compare, with a larger --runs",
        )
    bisection.give_time(store, budget_s)


def go_on(run: RunDirectory, store: Store, tell: Listener, equip: MeasurerFactory) -> Done:
    """Clean up after a killed process of this run, then measure what is left, and record the outcome.

    If an arm did not build, git references keep the run's commits: a resumed run tries the arm again.

    Raises the error that ended the run otherwise, and :class:`InfraError` if all attempts at a setup's blocks were in
    vain.
    """
    plan, place = plan_of(store)
    clean_up(run, store)
    with Repository.open(place, run_marker=run.path) as repository:
        for arm in (one for one in plan.arms if one.subject.is_built):
            try:  # before the state changes: a run that was measured stays so
                repository.resolve(arm.commit.sha)
            except UserError as error:  # another clone may have taken the place of the run's
                raise UserError(
                    f"{repository.top} has no {arm.commit.short} ({arm.name}), which is to be measured",
                    "is it the clone that this run was begun in? What was measured: bisector report",
                ) from error
        store.set_state(State.RUNNING)
        with ends_recorded(run, store):
            commits = {f"arm{n}": arm.commit.sha for n, arm in enumerate(plan.arms) if arm.subject.is_built}
            hold(repository, run.path, commits)
            with equip(plan.setups[0], run.path, repository, tell) as equipment:
                done = carry_out(plan, store, equipment, tell)
            if done.given_up:
                raise InfraError("; ".join(done.given_up), "bisector doctor")
        store.set_state(done.state, done.message)
    discard(run.path / _BUILD)
    if not Blocks.of(plan, store).unbuilt:
        let_go(run, place, tell)
    return done


def after_the_end(run: RunDirectory, store: Store, tell: Listener) -> None:
    """Finish what a process left undone that was killed after it had recorded the outcome."""
    _, place = plan_of(store)
    discard(run.path / _BUILD)
    let_go(run, place, tell)


def carry_out(plan: Plan, store: Store, equipment: Equipment, tell: Listener) -> Done:
    """Measure in this process until nothing of a comparison is left to measure.

    Raises :class:`InfraError` if the tool or the last host keeps failing, :class:`UserError` for input that no arm can
    be measured with, or if a missing kernel's compiler has changed. Everything measured is in the store either way.
    """

    def recorded() -> CompareState:
        return CompareState(
            Blocks.of(plan, store, before.so_far),
            run_dir=store.path.parent,
            next_n=store.next_n,
            spent_s=store.spent_s(),
            installed=installed,
            given=next(reversed(store.facts(Budget)), None),
            crew=equipment.crew,
        )

    def decided(known: CompareState, transient: Transient) -> Instruction:
        return step(replace(known, transient=transient))

    def complete(known: CompareState, submit: Submit) -> Request:
        """The request of a trial with its arm's kernel from an earlier block, whose .config is the run's copy."""
        request, place = submit.request, submit.place
        if not isinstance(request, TrialRequest) or place is None:
            return request
        trial = first_kernel(plan, known.blocks.compared, place.arm)
        if trial is None or trial.kernel is None:
            return request
        kernel = trial.kernel
        for config in (one.path for one in trial.artifacts if one.name == CONFIG_ARTIFACT):
            with suppress(OSError):
                kernel = replace(kernel, config=inside(store.path.parent, config))
        return replace(request, kernel=kernel)

    told = Transient(notified=frozenset(f"trial {n}" for n, _ in store.trials()))
    loop = Loop(store, equipment, tell, recorded, decided, complete=complete, transient=told)
    installed = _usable_compilers(store, equipment.executor, tell)
    before = Blocks.of(plan, store)
    _tell_what_is_tried_again(before, tell)
    return loop.run()


def _usable_compilers(store: Store, executor: Executor, tell: Listener) -> tuple[Compiler, ...]:
    """The compilers to choose from; if the one on record has changed or is gone, that is told, and it is returned.

    Kernels that it has built are in the cache and measured; a missing kernel stops the run, with the name of its arm.
    Raises :class:`UserError` if none is on record and a compiler that is asked for is missing.
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


def _tell_what_is_tried_again(before: Blocks, tell: Listener) -> None:
    """Tell which blocks are begun again after an interruption, and which arms that earlier processes gave up."""
    for block in before.blocks:
        if before.state(block) is BlockState.INTERRUPTED and before.left(block):
            tell(Note(f"block {block.n} does not count and is begun anew: {before.why(block)}"))
    now, setups = replace(before, earlier=before.so_far), range(len(before.plan.setups))
    for arm, one in enumerate(before.plan.arms):
        still = {now.absent(setup, arm) for setup in setups}
        for why in dict.fromkeys(before.absent(setup, arm) for setup in setups):
            if why and why not in still:
                tell(Note(f"{one.name} is tried again: {why}"))
