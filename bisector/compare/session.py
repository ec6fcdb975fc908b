"""The life of a comparison from request to outcome, also of one that confirms a search by the host's clock.

For such a confirmation, the commit that a search in counted time has found is compared with its parent. The comparison
has a directory below the run's, so that it is resumed, shown and reset like any other; it is not listed, since a list
with two runs for one question would not show which has the answer. Whatever its outcome, the answer stays, and the
outcome is told beside it (:mod:`bisector.status.from_record`).
"""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from bisector.campaign import life
from bisector.campaign.equipment import Equipment, MeasurerFactory
from bisector.campaign.instructions import Done, Instruction, Submit, Transient
from bisector.campaign.life import clean_up, ends_recorded, new_run
from bisector.campaign.loop import Loop
from bisector.compare.plan import CompareRequest, planned
from bisector.compare.schedule import CompareState, step
from bisector.config import COUNTED_FRAGMENT, ConfirmBy, GuestClock, Settings, options
from bisector.core.errors import Finding, InfraError, Interrupted, UserError
from bisector.core.events import Listener, Note
from bisector.core.setting import AUTO
from bisector.core.subject import Compiler
from bisector.core.verdict import State
from bisector.doctor import checks as preflight
from bisector.executor.base import Executor, Request
from bisector.git.repository import Repository
from bisector.git.source_tree import hold
from bisector.git.transfer import bundled
from bisector.host.files import inside
from bisector.kernel.toolchain import check_unchanged
from bisector.mail import outbox
from bisector.report.reporting import fragment_name
from bisector.status import from_record
from bisector.status.blocks import Blocks, BlockState, first_kernel, left_s
from bisector.status.conclusion import CONFIG_ARTIFACT
from bisector.status.view import HostClock
from bisector.storage.disks import DISKS, EXTRA_DISK, Bus
from bisector.store.facts import Budget, Extent, Plan, RunHeader
from bisector.store.rundir import Index, IndexEntry, RunDirectory, keep_files, keep_inputs
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest

_OF_COUNTED = frozenset((COUNTED_FRAGMENT, *(one for bus in Bus if bus.in_guest for one in bus.fragments)))


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
    repository = Repository.open(asked.repository)
    plan = planned(repository, asked)
    plan = replace(plan, setups=tuple(bundled(one, repository) for one in plan.setups))
    for arm in plan.arms:
        if not (measures_here or arm.subject.is_built):
            raise UserError(f"{arm.file} is an image on this host, which no other host has", "leave --hosts out")
    first, last = asked.subjects[0], asked.subjects[-1]
    with new_run(run_dir, first, last) as run:
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
    life.give_time(store, budget_s)


def go_on(run: RunDirectory, store: Store, tell: Listener, equip: MeasurerFactory) -> Done:
    """Clean up after a killed process of this run, then measure what is left, and record the outcome.

    The caller tells it, then calls :func:`let_go`. Raises the error that ended the run otherwise, and
    :class:`InfraError` if all attempts at a setup's blocks were in vain.
    """
    plan, place = plan_of(store)
    clean_up(run, store)
    repository = Repository.open(place, run_marker=run.path)
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
    return done


def let_go(run: RunDirectory, store: Store, tell: Listener) -> None:
    """Remove what a comparison does not need after :func:`go_on`, once its outcome is told.

    If an arm did not build, git references keep the run's commits: a resumed run tries the arm again.
    """
    plan, _ = plan_of(store)
    life.let_go(run, store, tell, ended=not Blocks.of(plan, store).unbuilt)


def draft_if_missing(run: RunDirectory, store: Store, tell: Listener) -> None:
    """Draft the letter of a search that has its answer, if no process has come to that."""
    if not (run.path / outbox.DRAFT).exists():
        outbox.leave_draft(run, store, tell)


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


# Confirmation of a search by the host's clock


def settings_by_host(counted: Settings) -> Settings:
    """Return the settings of a run in counted time, changed for the host's clock.

    CPUs, accelerator, guests and disks get the defaults of the host's clock, since their values in counted time were
    required by that clock rather than chosen by a person.
    """
    own = {f"storage.{name}": disk for name, disk in counted.storage.disks.items() if disk.guest.bus.in_guest}
    usual = {name: DISKS.get(name.removeprefix("storage."), EXTRA_DISK).memory_latency_s for name in own}
    names = {name: fragment_name(Path(name)) if "/" in name else name for name in counted.kernel.fragments}
    values = {
        **json.loads(options.to_json(counted)),
        "bisect.confirm_by": ConfirmBy.NONE,
        "bisect.least_effect": AUTO,
        "machine.clock": GuestClock.HOST,
        "machine.vcpus": AUTO,
        "machine.guests": AUTO,
        "machine.accelerator": AUTO,
        **{f"{name}.bus": AUTO for name in own},
        **{f"{name}.latency": AUTO for name, disk in own.items() if disk.latency_s == usual[name]},
        # By their original names: the file name of a copy of a copy would have two numbers, and be unknown.
        "kernel.fragments": [path if "/" in name else name for path, name in names.items() if name not in _OF_COUNTED],
    }
    return options.from_json(json.dumps(values))


def confirm(run: RunDirectory, store: Store, tell: Listener, equip: MeasurerFactory) -> None:
    """Measure what is left of the confirmation of a locked run that has its answer, then draft its letter.

    A failure is told and not raised, except :class:`Interrupted`. Does nothing if no confirmation is asked for.
    """
    if store.settings.bisect.confirm_by is ConfirmBy.NONE:
        return
    clock, resume = from_record.view(run, store).host_clock, from_record.run_command("resume", run.path)
    try:
        if clock is not None and clock.is_due:
            tell(Note(clock.plan))
            life.let_go(run, store, tell, ended=False)  # else the sources would be there twice
            with _opened(run, store, clock, tell) as (own, own_store):
                go_on(own, own_store, tell, equip)
                let_go(own, own_store, tell)
    except Interrupted as error:
        raise Interrupted(
            "interrupted; the answer and everything measured are kept", f"go on with: {resume}"
        ) from error
    except (InfraError, UserError) as error:
        tell(Note(f"the answer stands; by the host's clock it could not be measured: {error}; {resume} tries again"))
    draft_if_missing(run, store, tell)


@contextmanager
def _opened(run: RunDirectory, store: Store, clock: HostClock, tell: Listener) -> Iterator[tuple[RunDirectory, Store]]:
    """Open the comparison of an earlier process, or begin a new one; it is locked until the context exits."""
    path = Path(clock.run_dir)
    if RunDirectory.is_at(path):
        own = RunDirectory.open(path)
        with own.lock(), Store.open(own.database) as own_store:
            yield own, own_store
        return
    opened = begun(
        _asked(store, clock),
        path,
        lambda finding: tell(Note(finding.warning)),
        measures_here=run.hosts is None,
        listed=False,
    )
    with opened as (own, own_store):
        if run.hosts is not None:
            own.remember_hosts(run.hosts)
        yield own, own_store


def _asked(store: Store, clock: HostClock) -> CompareRequest:
    """The request: the parent is the first arm; it asks for the pairs that the change needs, within the time left."""
    row = store.bisection()
    if row.repository is None or clock.parent is None or clock.needed is None:
        raise RuntimeError(f"nothing to confirm: {clock.sentence}")
    budget = next(reversed(store.facts(Budget)), None)
    left_s = None if budget is None else budget.end_s - store.spent_s()
    if left_s is not None and left_s <= 0:
        raise UserError("the budget of the search is spent", "a comparison of its own: bisector compare")
    settings = settings_by_host(store.settings)
    extent = Extent(secrets.randbits(32), clock.needed, budget_s=left_s, delta=settings.bisect.least_effect)
    return CompareRequest(row.repository, (clock.parent.short, clock.first.short), (settings,), extent)
