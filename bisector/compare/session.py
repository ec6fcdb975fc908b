"""A comparison from what was asked to its end: what ``compare`` and ``resume`` carry out.

One thread owns the state, and the state is the store's facts. Killed at any moment, the next process does the same with
the same facts: what was in flight is lost, and measured again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from bisector.analysis.tail import thin_tail
from bisector.analysis.verdicts import Judging
from bisector.bisect import session as bisection
from bisector.bisect.equipment import Equip, Equipment, here
from bisector.bisect.failures import fault_row
from bisector.bisect.session import clean_up, ends_recorded, gone_if_nothing_began, let_go
from bisector.bisect.single import patiently
from bisector.compare import schedule
from bisector.compare.plan import Asked, planned
from bisector.compare.schedule import Begin, Build, Choose, Done, Facts, Measure
from bisector.core.errors import AttemptFailed, BisectorError, Finding, InfraError, TrialRefused, UserError
from bisector.core.events import Listener, Note, Planned, TrialJudged
from bisector.core.subject import Cell, Compiler, Kernel
from bisector.core.trial import Fault, Stage
from bisector.core.verdict import State, Terms, Verdict
from bisector.doctor import checks as preflight
from bisector.executor.base import BuildRequest, result_of
from bisector.git.bundle import bundled
from bisector.git.repository import Repository
from bisector.git.worktrees import hold
from bisector.host.files import discard, inside, remove_abandoned
from bisector.kernel.toolchain import check_unchanged
from bisector.status import kernels
from bisector.status.blocks import BUILT_IN, Blocks, Earlier, judged
from bisector.status.conclusion import CONFIG_ARTIFACT
from bisector.status.progress import left_s
from bisector.store.comparison import Placed, Plan, PlannedSetup
from bisector.store.facts import BuildTry, Compilers, Ended, Ending, NumberedTrial, Submitted, Work, now
from bisector.store.rows import BisectionRow
from bisector.store.run_files import TRIALS, keep_files, keep_inputs
from bisector.store.rundir import Index, IndexEntry, RunDirectory, run_name
from bisector.store.store import Store
from bisector.trial.runner import TrialRequest

T = TypeVar("T")
_BUILD = "build"
_TERMS = Terms.usual(None)


@contextmanager
def begun(asked: Asked, run_dir: Path | None, warn: Callable[[Finding], None]) -> Iterator[tuple[RunDirectory, Store]]:
    """A new comparison, checked in every way that needs nothing built, recorded, and ours while the block lasts.

    ``warn`` is told what of this machine spoils figures, or a record, without being in the way.
    Raises :class:`UserError` for what cannot work; nothing is left of such a run.
    """
    with Repository.open(asked.repository) as repository:
        plan = planned(repository, asked)
        setups = tuple(bundled(one.settings, repository) for one in plan.setups)
    first, last = asked.subjects[0], asked.subjects[-1]
    run = RunDirectory.create(run_dir, run_name(first, last))
    with run.lock(), gone_if_nothing_began(run):
        remove_abandoned(run.path)
        preflight.check(plan.setups[0].settings, run.path, warn)
        for one in plan.setups[1:]:
            preflight.check_setup(one.settings, run.path, warn)
        for arm in plan.with_fragment:
            preflight.check_build(plan.settings(0, arm), run.path)
        kept = tuple(PlannedSetup(keep_inputs(one, run.path)) for one in setups)
        keep_files(asked.patch_files, run.path)
        files = keep_files((one.file for one in plan.arms), run.path)
        arms = tuple(replace(one, file=file) for one, file in zip(plan.arms, files, strict=True))
        row = BisectionRow.of(kept[0].settings, repository.top)
        with Store.create(run.database, row, plan=Plan(arms, kept, plan.extent, plan.absent)) as store:
            Index().add(IndexEntry(str(run.path), str(repository.top), first, last, row.created_at))
            yield run, store


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


def go_on(run: RunDirectory, store: Store, tell: Listener, equip: Equip = here) -> Done:
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
        store.set_state(State.MEASURED, done.why)
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


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison in progress."""

    plan: Plan
    store: Store
    equipment: Equipment
    tell: Listener

    def run(self) -> Done:
        """Go on until there is nothing left to measure.

        Raises :class:`InfraError` when the tool or the host keeps failing, :class:`UserError` for what no arm can be
        measured with, and for a compiler that has changed. Everything measured is in the store either way.
        """
        self._end_lost()
        installed = self._installed()
        earlier, given = self._earlier(), self.store.budgets()[-1:]
        while True:
            facts = Facts(Blocks.of(self.plan, self.store, earlier), self.store.spent_s(), installed, *given)
            match schedule.step(facts):
                case Choose(compilers=compilers):
                    self.store.add(Compilers(compilers))
                case Build(arm=arm, compiler=compiler):
                    self._build(arm, compiler)
                case Begin(block=block):
                    self.store.add(block)
                case Measure() as measure:
                    self._measure(measure, facts.blocks)
                case Done() as done:
                    return done

    def _installed(self) -> tuple[Compiler, ...]:
        """The compilers to choose from; once one is chosen, it is told when that one cannot build any more.

        What it has built is kept and measured; a kernel that is not stops the run, with the name of its arm.
        """
        recorded = self.store.compilers()
        try:
            found = self.equipment.executor.compilers()
            check_unchanged(recorded, found)
        except UserError as error:
            if not recorded:
                raise
            self.tell(Note(f"{error.message}; the kernels that are kept are measured all the same"))
            return recorded
        return found

    def _earlier(self) -> Earlier:
        """What earlier processes have on record; what they gave up of an arm is told, since it is tried again."""
        before = Blocks.of(self.plan, self.store)
        now = replace(before, earlier=before.so_far)
        for arm, one in enumerate(self.plan.arms):
            for why in dict.fromkeys(before.absent(setup, arm) for setup in range(len(self.plan.setups))):
                if why and why not in {now.absent(setup, arm) for setup in range(len(self.plan.setups))}:
                    self.tell(Note(f"{one.name} is tried again: {why}"))
        return before.so_far

    def _end_lost(self) -> None:
        """Submissions of a process that is gone end here: nothing of them is left, and nothing will come of them."""
        lost = self.store.in_flight()
        if lost:
            self.store.add(*(Ended(one.id, Ending.LOST) for one in lost))
        for one in lost:
            what = f"trial {one.submitted.n}" if one.submitted.n is not None else "the build"
            self.tell(
                Note(f"{what}, of {one.submitted.sha[:12]}, was under way when this run was stopped, and is lost")
            )

    def _build(self, arm: int, compiler: Compiler) -> None:
        """Try a compiler; raises :class:`UserError` for a configuration fragment that changes nothing."""
        one, command = self.plan.arms[arm], compiler.command
        what = one.commit.short + (f" with {one.file.name}" if one.file is not None else "")
        self.tell(Note(f"the kernel of {what}, by {command} ({compiler.identity})"))
        with self._named(f"{one.name}, build by {command}", lambda: f"compilers/*-{one.subject.short}"):
            fault = self._patiently(lambda: self._build_once(arm, compiler))
        if fault is not None:
            self.tell(Note(f"{command} does not build {what}: {fault.reason}"))

    def _build_once(self, arm: int, compiler: Compiler) -> Fault | None:
        commit, own = self.plan.arms[arm].commit, self.plan.arms[arm].subject.fragment
        # A kernel is the same on all setups.
        request = BuildRequest(commit, compiler, self.plan.settings(0, arm), own)
        with self._submitted(Submitted(Work.BUILD, commit.sha)) as id_:
            fault = result_of(self.equipment.executor, request, self.tell, id_)
        reason = "" if fault is None else fault.reason
        self.store.add(BuildTry(compiler, commit.sha, reason, own), Ended(id_, Ending.DONE))
        self.equipment.executor.acknowledge(id_)
        return fault

    def _measure(self, measure: Measure, blocks: Blocks) -> None:
        """An arm's trial in a block, told and on record; raises :class:`MetricAbsent` where nothing can decide."""
        planned, block = self.plan.setups[measure.block.setup], measure.block
        arm = self.plan.arms[measure.arm]
        what, of_image = f"{arm.name} on {planned.setup}, block {block.n}", "" if arm.subject.is_built else BUILT_IN
        with self._named(what, lambda: f"{TRIALS}/{self.store.next_n:04d}-*", of_image):
            one = self._patiently(lambda: self._measure_once(measure, blocks))
        verdict, why = judged(self.plan, block, one)
        told = "" if verdict is Verdict.MEASURED else why  # a sound trial of a comparison is on no side of a threshold
        self.tell(TrialJudged(one.n, one.trial, verdict, told, _TERMS, planned.objective))
        if block.round == 1 and measure.arm == 0 and (said := thin_tail(planned.objective, one.trial.runs[-1:])):
            self.tell(Note(f"{planned.setup}: {said}"))
        if verdict is Verdict.WEAK:  # zero and below are measured here
            Judging(planned.settings, ((one.n, one.trial),)).check_metric(one.trial.commit.sha)
        if verdict is not Verdict.MEASURED:
            self.tell(Note(f"block {block.n} does not count"))

    def _measure_once(self, measure: Measure, blocks: Blocks) -> Placed:
        block, n = measure.block, self.store.next_n
        arm, planned = self.plan.arms[measure.arm], self.plan.setups[block.setup]
        runs = self.plan.extent.runs
        of = "" if self.plan.extent.until is not None or block.round > runs else f" of {runs}"
        self.tell(Planned(n, arm.commit, f"{arm.name}, {planned.setup}, block {block.round}{of}", 0, 0))
        request = TrialRequest(
            n,
            Cell(arm.subject, planned.setup),
            {},
            self.store.compilers(),
            again=schedule.tries_again(blocks, block),
            settings=self.plan.settings(block.setup, measure.arm),
            seed=block.seed,
            image=None if arm.subject.is_built else arm.file,
            kernel=self._kernel(blocks, measure.arm),
        )
        with self._submitted(Submitted(Work.TRIAL, arm.commit.sha, n, block=block.n, arm=measure.arm)) as id_:
            trial = result_of(self.equipment.executor, request, self.tell, id_)
        self.store.add(NumberedTrial(n, trial, place=measure.place), Ended(id_, Ending.DONE))
        self.equipment.executor.acknowledge(id_)
        return Placed(n, measure.place, trial)

    def _kernel(self, blocks: Blocks, arm: int) -> Kernel | None:
        """What was measured of an arm, with the .config that this run keeps, if there is one."""
        trial = kernels.first(self.plan, blocks.compared, arm)
        if trial is None or trial.kernel is None:
            return None
        for config in (one.path for one in trial.artifacts if one.name == CONFIG_ARTIFACT):
            with suppress(OSError):
                return replace(trial.kernel, config=inside(self.store.path.parent, config))
        return trial.kernel

    @contextmanager
    def _submitted(self, submitted: Submitted) -> Iterator[int]:
        """Work that is on record under this number while it is done; what it fails with is recorded, too."""
        id_ = self.store.add(submitted)
        try:
            yield id_
        except BisectorError as error:
            row = (fault_row(now(), submitted.sha, error),) if isinstance(error, AttemptFailed) else ()
            self.store.add(*row, Ended(id_, Ending.FAILED))
            self.equipment.executor.acknowledge(id_)
            raise

    @contextmanager
    def _named(self, what: str, files: Callable[[], str], at_boot: str = "") -> Iterator[None]:
        """Whatever is no fault of an arm says what it befell, at which stage, and where the ``files`` of that are.

        What ``at_boot`` says is a reason for trouble before a guest can be reached.
        """
        try:
            yield
        except (AttemptFailed, TrialRefused) as error:
            trial = error.trial
            stage = error.stage if isinstance(error, AttemptFailed) else trial.stage if trial is not None else None
            hint = at_boot if stage is Stage.BOOT else ""
            error.message = f"{what}{f', stage {stage}' if stage is not None else ''}: {error.message}"
            left = sorted(self.store.path.parent.glob(files()))
            error.hint = "\n  ".join(
                filter(None, (error.hint, hint, *(f"its logs are in {place}" for place in left[:1])))
            )
            raise

    def _patiently(self, attempt: Callable[[], T]) -> T:
        return patiently(attempt, self.tell, self.equipment.pause, self.plan.setups[0].settings.retries)
