"""A comparison from what was asked to its end: what ``compare`` and ``resume`` carry out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bisector.bisect import session as bisection
from bisector.bisect.session import ends_recorded, gone_if_nothing_began, let_go
from bisector.campaign.equipment import Equip, clean_up
from bisector.campaign.instructions import Done
from bisector.compare.comparison import Comparison
from bisector.compare.plan import CompareRequest, planned
from bisector.core.errors import Finding, InfraError, UserError
from bisector.core.events import Listener
from bisector.core.verdict import State
from bisector.doctor import checks as preflight
from bisector.git.bundle import bundled
from bisector.git.repository import Repository
from bisector.git.worktrees import hold
from bisector.host.files import discard, remove_abandoned
from bisector.status.blocks import Blocks
from bisector.status.progress import left_s
from bisector.store.comparison import Plan, PlannedSetup
from bisector.store.facts import RunHeader
from bisector.store.run_files import keep_files, keep_inputs
from bisector.store.rundir import Index, IndexEntry, RunDirectory, run_name
from bisector.store.store import Store

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
    """A new comparison, checked in every way that needs nothing built, recorded, and ours while the block lasts.

    ``warn`` is told what of this machine spoils figures, or a record, without being in the way; where other hosts
    measure, their doctors are asked instead. One that is not ``listed`` is part of another run. Raises
    :class:`UserError` for what cannot work; nothing is left of such a run.
    """
    with Repository.open(asked.repository) as repository:
        plan = planned(repository, asked)
        setups = tuple(bundled(one.settings, repository) for one in plan.setups)
    if not measures_here:
        _check_travels(plan)
    first, last = asked.subjects[0], asked.subjects[-1]
    run = RunDirectory.create(run_dir, run_name(first, last))
    with run.lock(), gone_if_nothing_began(run):
        remove_abandoned(run.path)
        if measures_here:
            _check_here(plan, run.path, warn)
        kept = tuple(PlannedSetup(keep_inputs(one, run.path)) for one in setups)
        keep_files(asked.patch_files, run.path)
        files = keep_files((one.file for one in plan.arms), run.path)
        arms = tuple(replace(one, file=file) for one, file in zip(plan.arms, files, strict=True))
        row = RunHeader.of(kept[0].settings, repository.top)
        with Store.create(run.database, row, plan=Plan(arms, kept, plan.extent, plan.absent)) as store:
            if listed:
                Index().add(IndexEntry(str(run.path), str(repository.top), first, last, row.created_at))
            yield run, store


def _check_here(plan: Plan, run_dir: Path, warn: Callable[[Finding], None]) -> None:
    preflight.check(plan.setups[0].settings, run_dir, warn)
    for one in plan.setups[1:]:
        preflight.check_setup(one.settings, run_dir, warn)
    for arm in plan.with_fragment:
        preflight.check_build(plan.settings(0, arm), run_dir)


def _check_travels(plan: Plan) -> None:
    """Raise :class:`UserError` for what no other host has."""
    for arm in plan.arms:
        if not arm.subject.is_built:
            raise UserError(f"{arm.file} is an image on this host, which no other host has", "leave --hosts out")


def plan_of(store: Store) -> tuple[Plan, Path]:
    """What is compared in a run, and the repository."""
    plan, repository = store.plan, store.bisection().repository
    if plan is None or repository is None:
        raise RuntimeError(f"{store.path} holds no comparison")
    return plan, repository


def give_time(run: RunDirectory, store: Store, budget_s: float) -> None:
    """Give a comparison so many seconds from now on; raises :class:`UserError` where nothing is left to measure."""
    plan, _ = plan_of(store)
    blocks, last = Blocks.of(plan, store), store.state()
    if last is not None and last.state is State.MEASURED and not (left_s(blocks) or blocks.unbuilt):
        raise UserError(
            f"{run.path} has measured what was asked for: {last.message}",
            "bisector report shows it; more blocks are another comparison: bisector compare, with a larger --runs",
        )
    bisection.give_time(store, budget_s)


def go_on(run: RunDirectory, store: Store, tell: Listener, equip: Equip) -> Done:
    """Clean up after a killed process of this run, then measure what is left, and record how it ended.

    The repository keeps the commits of a run of which an arm does not build: it is tried again when the run is resumed.

    Raises what ended it otherwise, and :class:`InfraError` when a setup had no sound block however often it was tried.
    """
    plan, place = plan_of(store)
    clean_up(run, store)
    with Repository.open(place, run_marker=run.path) as repository:
        _check_there(repository, plan)  # before the state is touched: what was measured stays measured
        store.set_state(State.RUNNING)
        with ends_recorded(run, store):
            commits = {f"arm{n}": arm.commit.sha for n, arm in enumerate(plan.arms) if arm.subject.is_built}
            hold(repository, run.path, commits)
            with equip(plan.setups[0].settings, run.path, repository, tell) as equipment:
                done = Comparison(plan, store, equipment, tell).run()
            if done.given_up:
                raise InfraError("; ".join(done.given_up), "bisector doctor")
        store.set_state(done.state, done.message)
    discard(run.path / _BUILD)
    if not Blocks.of(plan, store).unbuilt:
        let_go(run, place, tell)
    return done


def _check_there(repository: Repository, plan: Plan) -> None:
    """Raise :class:`UserError` for a commit that is gone: another clone may be where the run's was."""
    for arm in (one for one in plan.arms if one.subject.is_built):
        try:
            repository.resolve(arm.commit.sha)
        except UserError as error:
            raise UserError(
                f"{repository.top} has no {arm.commit.short} ({arm.name}), which is to be measured",
                "is it the clone that this run was begun in? What was measured: bisector report",
            ) from error


def after_the_end(run: RunDirectory, store: Store, tell: Listener) -> None:
    """What a process that was killed once the end was on record has not come to."""
    _, place = plan_of(store)
    discard(run.path / _BUILD)
    let_go(run, place, tell)
