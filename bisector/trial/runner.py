"""The path of one cell on one host: build, boot, lay out, run the workload; facts come back.

Nothing is decided here. A fault of the kernel ends the path and is one of the facts; an
infrastructure error is raised as :class:`bisector.core.errors.AttemptFailed`, so that it never becomes one.
"""

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from bisector.analysis.early_stop import StopRule
from bisector.analysis.short_fill import FillRule, Look, rule_for
from bisector.config import Settings, StorageSettings
from bisector.core.deadline import SYSTEM_CLOCK, Clock, Deadline
from bisector.core.errors import AttemptFailed, InfraError, KernelFault, TrialRefused, UserError
from bisector.core.events import Listener, StageStarted
from bisector.core.figures import EarlyStop, Run, round_name, run_words
from bisector.core.objective import Objective
from bisector.core.shell import CommandResult, Shell, Step, run_steps
from bisector.core.subject import Cell, Commit, Compiler, Kernel, Remade, Subject
from bisector.core.trial import DiskQueue, Era, Fault, FaultKind, Fill, Stage, Timings, Trial
from bisector.git.source_tree import SourceTree
from bisector.host.files import our_files
from bisector.host.load import ContentionMeter, host_id
from bisector.host.process import run_here
from bisector.kernel.build import KernelBuilder
from bisector.kernel.builddir import BuildPlaces
from bisector.kernel.cache import CONFIG, DEFCONFIG
from bisector.kernel.kconfig import check_fragment
from bisector.kernel.product import as_measured, kernel_of
from bisector.storage import filling, layout
from bisector.storage.filling import FILLED, HIT_RATIO
from bisector.storage.layer import Phase
from bisector.storage.layout import MountedStack, Readings
from bisector.storage.stack import stack_of
from bisector.vm.base import Machine, Machines
from bisector.workload.base import RunProgress, RunSite

_STORAGE_DEADLINE_S = 300.0
_QUESTION_S = 60.0
_QUOTED = 40
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """A cell to measure; ``measured_kernels`` gives the commit of each kernel content with figures.

    The first of ``compilers`` that builds it does; none means those of the settings, or the host's default.
    ``stop`` says when the run that counts may end early; None is for whole runs. ``again`` tells that the commit was
    tried before: then the host is to be quiet first. With ``anew`` the kernel is built whatever is known of its build.
    It goes no further than ``through``. ``settings`` are what it is measured with, where those are not the bench's.
    The workload draws from ``seed``; with None as it does by itself. Where the guest's time is counted it is shifted a
    little by ``guest_seed``. An ``image`` is booted as it is. ``kernel`` is
    what was measured of the subject before: it is measured again where it is kept, and no other one is. With the short
    ``fill`` the runs that fill a cache end once it is settled.
    """

    n: int
    cell: Cell
    measured_kernels: Mapping[str, str]
    compilers: tuple[Compiler, ...] = ()
    stop: StopRule | None = None
    again: bool = False
    anew: bool = False
    through: Stage = Stage.DONE
    settings: Settings | None = None
    seed: int | None = None
    guest_seed: int = 0
    image: Path | None = None
    kernel: Kernel | None = None
    fill: Fill = Fill.WHOLE

    @property
    def commit(self) -> Commit:
        """What is built."""
        return self.cell.commit


@dataclass(frozen=True, slots=True)
class Bench:
    """What this host measures with, shared by all trials of a run, of which one at a time is ``building``."""

    settings: Settings
    run_dir: Path
    source: SourceTree
    builder: KernelBuilder
    machines: Machines
    tell: Listener
    clock: Clock = SYSTEM_CLOCK
    building: threading.Lock = field(default_factory=threading.Lock)

    @property
    def build_dir(self) -> Path:
        """Make's output directory, kept between commits."""
        return self.run_dir / "build"


@dataclass(slots=True)
class _Course:
    """The facts of a trial under way; ``on_host`` while its guest is prepared and no kernel runs."""

    bench: Bench
    request: TrialRequest
    logs: Path
    stage: Stage = Stage.CHECKOUT
    kernel: Kernel | None = None
    same_kernel_as: str | None = None
    runs: list[Run] = field(default_factory=list)
    on_host: bool = False
    era: Era | None = None
    queues: tuple[DiskQueue, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    _start: float = field(init=False)

    def __post_init__(self) -> None:
        self._start = self.bench.clock.now_s()

    def go(self) -> None:
        """Walk the path to its end, or until a fault is raised."""
        has_guest = self.request.through is not Stage.BUILD
        if has_guest:
            self._look_at_host()
        self.kernel = self.build()
        self.same_kernel_as = self.request.measured_kernels.get(self.kernel.content_sha256)
        if self.same_kernel_as is None and has_guest:
            self._measure(self.kernel)
        self.stage = Stage.DONE

    def facts(self, fault: Fault | None = None) -> Trial:
        """The trial as far as it has come."""
        return Trial(
            cell=self.request.cell,
            started_at=self.started_at,
            host=host_id(),
            stage=fault.stage if fault else self.stage,
            fault=fault,
            kernel=self.kernel,
            runs=tuple(self.runs),
            timings=Timings(**self.seconds, total_s=self.bench.clock.now_s() - self._start),
            artifacts=(),
            same_kernel_as=self.same_kernel_as,
            fill=self.request.fill,
            era=self.era,
            queues=self.queues,
            guest_seed=self.request.guest_seed,
            runtime_s=float(self._settings.workload.runtime_s),
        )

    @property
    def tellable(self) -> Trial | None:
        """The facts of a trial that failed; None while only the host had a part in it."""
        return None if self.on_host else self.facts()

    def build(self) -> Kernel:
        """The first part alone, by the first compiler that builds it; when none does, the first one's fault counts."""
        fault: KernelFault | None = None
        if self.request.image is not None:
            return kernel_of(self.request.image, self.request.commit)
        for compiler in self.request.compilers or self._builder.default_compilers():
            try:
                return as_measured(self.request.kernel, self._kernel_by(compiler))
            except KernelFault as error:
                if not error.kind.of_compiling:
                    raise
                fault = fault or error
        if fault is None:
            raise ValueError("no compiler to build with")
        raise fault

    @property
    def _builder(self) -> KernelBuilder:
        builder, asked = self.bench.builder, self.request.settings
        return builder if asked is None else builder.with_settings(asked.kernel)

    def _kernel_by(self, compiler: Compiler) -> Kernel:
        builder = self._builder.using(compiler)
        if (kept := self._kept_before(builder)) is not None:
            return kept
        with self._one_builds():
            return self._kept_before(builder) or self._built(builder)

    @contextmanager
    def _one_builds(self) -> Iterator[None]:
        """Wait until no other trial builds; the wait is not part of what this one takes."""
        start = self.bench.clock.now_s()
        with self.bench.building:
            self._start += self.bench.clock.now_s() - start
            yield

    def _kept_before(self, builder: KernelBuilder) -> Kernel | None:
        """A kernel that is there already; raises the :class:`KernelFault` of an earlier build of the same."""
        before = self.request.kernel
        if self.request.anew:
            return None
        kept = (builder.find_again(before) if before is not None else None) or self._kept(builder)
        if kept is None:
            builder.recall_failure(self.request.commit.tree, self.logs)
            return None
        shutil.copy(kept.config, self.logs / CONFIG)
        with suppress(FileNotFoundError):  # not every tree makes one
            shutil.copy(kept.config.with_name(DEFCONFIG), self.logs)
        self._check_own_fragment(builder, kept.unmet)
        return kept

    def _built(self, builder: KernelBuilder) -> Kernel:
        bench, commit = self.bench, self.request.commit
        with self._part("build_s"):
            self._enter(Stage.CHECKOUT)
            source = bench.source.checkout(commit)
            self._enter(Stage.BUILD)
            places = BuildPlaces(source, bench.build_dir, self.logs, bench.run_dir)
            if self.request.cell.subject.fragment:  # before the hour that a large kernel takes
                with suppress(KernelFault):  # the build ends in it, too, and looks twice
                    self._check_own_fragment(builder, builder.configure(places))
            return builder.build(commit.tree, places, bench.source.trees)

    def build_once_more(self, measured: Kernel) -> Remade:
        """The kernel of the request's compiler, built apart from all others, unless it was that in an earlier run."""
        builder = self._builder.using(*self.request.compilers)
        if (known := builder.was_remade(measured)) is not None:
            return known
        with self._one_builds():
            self._enter(Stage.CHECKOUT)
            source = self.bench.source.checkout(self.request.commit)
            self._enter(Stage.BUILD, "once more, apart from all others")
            places = BuildPlaces(source, self.bench.build_dir, self.logs, self.bench.run_dir)
            return builder.remade(measured, places)

    def _kept(self, builder: KernelBuilder) -> Kernel | None:
        tree = self.request.commit.tree
        return builder.find(tree) or builder.find_alike(tree, self.bench.source.trees)

    def _check_own_fragment(self, builder: KernelBuilder, unmet: tuple[str, ...]) -> None:
        """Raise :class:`UserError` for a fragment of the subject's own that does not change what it asks for."""
        if self.request.cell.subject.fragment:
            kernel = self._settings.kernel
            *others, own = kernel.fragments
            without = self._kept(builder.with_settings(replace(kernel, fragments=tuple(others))))
            check_fragment(Path(own), unmet, self.logs / CONFIG, without.config if without is not None else None)

    def _measure(self, kernel: Kernel) -> None:
        seconds = self._settings.machine.trial_deadline_s
        self._enter(Stage.BOOT)
        with self._prepared(kernel) as machine:
            deadline = machine.deadline(f"the end of trial {self.request.n}", seconds)
            (self.logs / "host.json").write_text(json.dumps(machine.facts(), indent=1) + "\n", encoding="utf-8")
            with self._part("boot_s"):
                machine.boot()
            if self.request.through is Stage.BOOT:
                return
            with machine.blamed(Stage.STORAGE):
                self._enter(Stage.STORAGE)
                with self._part("storage_s"):
                    stack = self._lay_out(machine)
            if self.request.through is Stage.STORAGE:
                return
            with machine.blamed(Stage.WORKLOAD), self._part("workload_s"):
                for phase in self._storage.stack.phases:
                    self._run_phase(machine, stack, phase, deadline)

    @contextmanager
    def _prepared(self, kernel: Kernel) -> Iterator[Machine]:
        """A guest that is not started yet; a failure until then is not the kernel's."""
        with ExitStack() as stack:
            self.on_host = True
            append = self._settings.machine.append
            name, seed = f"{self.request.n}", self.request.guest_seed
            prepared = self.bench.machines.prepared(name, kernel, self.logs, self._storage, append, seed=seed)
            machine = stack.enter_context(prepared)
            self._look_at_host()
            yield machine

    def _look_at_host(self) -> None:
        """What figures depend on here now: a build takes long enough for an upgrade."""
        self.on_host = True
        self.era = self.bench.machines.era(self._storage)
        self.on_host = False

    def _lay_out(self, machine: Machine) -> MountedStack:
        storage, files = self._storage, self._settings.workload.files
        stack = layout.lay_out(
            machine.guest,
            storage.stack,
            storage.layers,
            files,
            _STORAGE_DEADLINE_S,
            guest_disks={name: disk.guest for name, disk in storage.disks.items()},
            in_memory=storage.in_memory,
        )
        self.queues = stack.queues
        (self.logs / "storage.txt").write_text("".join(f"{line}\n" for line in stack.description), encoding="utf-8")
        return stack

    @property
    def _settings(self) -> Settings:
        return self.request.settings or self.bench.settings

    @property
    def _storage(self) -> StorageSettings:
        return replace(self._settings.storage, stack=stack_of(self.request.cell.setup.stack))

    def _run_phase(self, machine: Machine, stack: MountedStack, phase: Phase, deadline: Deadline) -> None:
        """The runs of a phase: one, or as many as it takes to fill a cache (:mod:`bisector.storage.filling`)."""
        # What the host's clock has a part in would not be the same again.
        now_s = partial(uptime_s, machine.guest) if self._settings.machine.is_counted else self.bench.clock.now_s
        storage, start_s, first, longest_s = self._storage, now_s(), len(self.runs), 0.0
        while True:
            began_s = now_s()
            self.runs.append(self._run(machine, stack, phase, len(self.runs) - first + 1, deadline))
            ended_s, rounds = now_s(), self.runs[first:]
            longest_s = max(longest_s, ended_s - began_s)
            is_settled = rounds[-1].stopped_early is not None
            if not phase.fills or is_settled or not filling.goes_on(rounds, storage.fill_rounds):
                return
            left_s = storage.fill_deadline_s - (ended_s - start_s)
            another = longest_s <= left_s
            # A fill is no round, and ends when it has to: it needs not the time of one.
            if stack.fills_itself and left_s > 0 and not (another and len(rounds) < storage.fill_rounds):
                self._enter(Stage.WORKLOAD, "filling the cache")
                stack.fill(machine.guest, left_s)
                took = (filling.FILL, now_s() - ended_s)
                self.runs[-1] = replace(rounds[-1], counters=(*rounds[-1].counters, took))
                return
            if not another:
                return

    def _run(self, machine: Machine, stack: MountedStack, phase: Phase, number: int, deadline: Deadline) -> Run:
        self._enter(Stage.WORKLOAD, f"{run_words(phase.name)}" + (f", round {number}" if number > 1 else ""))
        workload, name = self._settings.workload, round_name(phase.name, number)
        rule = rule_for(self._settings) if self.request.fill is Fill.SHORT else None
        objective = self._settings.bisect.objective
        settled = None if rule is None else CacheWatch(rule, objective, stack, machine.guest)
        site = RunSite(
            machine.guest,
            stack,
            name,
            logs=self.logs / name,
            keep_files=not phase.judged,
            start_meter=lambda: ContentionMeter(machine.cpu_time_s).start().stop,
            on_sample=self.bench.tell,
            deadline_s=deadline.remaining_s,
            locally=run_here,
            stop=self.request.stop if phase.judged else settled,
            offset_bytes=self._storage.stack.phases.index(phase) * workload.files.total_bytes,
            seed=self.request.seed,
            goes_on=number > 1,
            instruction_ns=self._settings.machine.counted_ns,
        )
        return workload.workload.run(site)

    def _enter(self, stage: Stage, detail: str = "") -> None:
        self.stage = stage
        self.bench.tell(StageStarted(self.request.commit, stage, detail))

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        start = self.bench.clock.now_s()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self.bench.clock.now_s() - start


def run_trial(bench: Bench, request: TrialRequest, logs: Path) -> Trial:
    """Measure one commit; ``logs`` is the trial's empty directory. The artifacts are the caller's to collect.

    Raises :class:`AttemptFailed` for trouble of the tool or the host, :class:`TrialRefused` for input that no commit
    can be measured with, both with the facts so far.
    """
    course = _Course(bench, request, logs)
    return course.facts(_or_fault(course, course.go))


def try_control(
    bench: Bench, commit: Commit, compilers: tuple[Compiler, ...], through: Stage, logs: Path
) -> Fault | None:
    """Whether a commit that was measured before comes through a stage now; else why not. Raises as :func:`run_trial`.

    Where that is the build the kernel is built anew, in the build directory of all; else it is from the cache.
    """
    cell, anew = Cell(Subject(commit), bench.settings.setup), through is Stage.BUILD
    return run_trial(bench, TrialRequest(0, cell, {}, compilers, anew=anew, through=through), logs).fault


def try_build(bench: Bench, request: TrialRequest, logs: Path) -> Fault | None:
    """Whether the kernel of a trial is built, which is kept then; else why not. Raises as :func:`run_trial`.

    A build that was not done in time is tried once more, since the answer is for good and the host may be busy.
    """
    fault: Fault | None = None
    for _ in range(2):
        course = _Course(bench, request, logs)
        built = _or_fault(course, course.build)
        fault = built if isinstance(built, Fault) else None
        if fault is None or fault.kind is not FaultKind.BUILD_TIMEOUT:
            break
    return fault


def remake(bench: Bench, request: TrialRequest, measured: Kernel, logs: Path) -> Remade | Fault:
    """What comes of a kernel that was measured, built once more, apart from all others. Raises as :func:`run_trial`."""
    course = _Course(bench, request, logs)
    return _or_fault(course, partial(course.build_once_more, measured))


def _or_fault(course: _Course, part: Callable[[], Found]) -> Found | Fault:
    try:
        with _ours_told_apart(course):
            return part()
    except KernelFault as error:
        return error.fault


@contextmanager
def _ours_told_apart(course: _Course) -> Iterator[None]:
    """Everything but a fault of the kernel is raised with the stage at which it happened, and the facts so far.

    Without facts where no kernel can have had a part in it: a test disk in use, no room for the console.
    """
    try:
        with our_files(course.logs):
            yield
    except InfraError as error:
        raise AttemptFailed(str(error), error.hint, course.stage, host_id(), course.tellable) from error
    except UserError as error:
        raise TrialRefused(error.message, error.hint, course.tellable) from error


def uptime_s(shell: Shell) -> float:
    """Seconds since the guest was booted, by its own clock (proc_uptime(5)); raises :class:`KernelFault`."""

    def fault(failed: CommandResult) -> KernelFault:
        return KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, failed.reason, failed.tail)

    (told,) = run_steps(shell, (Step("cut -d ' ' -f 1 /proc/uptime", fault),), _QUESTION_S)
    try:
        return float(told)
    except ValueError as error:
        reason = f"/proc/uptime says {told[:_QUOTED]!r}"
        raise KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, reason) from error


@dataclass(slots=True)
class CacheWatch:
    """One run under the rule, a condition for its workload to end by: the cache's counters are read as it goes on.

    One that just ends sooner misleads: after a first run of 20 s instead of 40 s the demonstration's fixed kernel
    became fast in second 36 of the second run, not in second 16, since smq looks its cache over once a minute. Its mean
    was 880 IOPS instead of 3,200, and below the threshold.

    ``objective`` names the direction of the jobs that are followed.
    """

    rule: FillRule
    objective: Objective
    stack: MountedStack
    shell: Shell
    _before: Readings | None = None
    _seen: list[Look] = field(default_factory=list)

    @property
    def runtime_s(self) -> float:
        """The length of a whole run."""
        return self.rule.runtime_s

    @property
    def batch_s(self) -> float:
        """How often the progress is asked for: with each of it, the cache is looked at."""
        return self.rule.every_s

    def met_by(self, jobs: Sequence[RunProgress]) -> EarlyStop | None:
        """What is recorded of a run that may end now; None: go on."""
        if not jobs or not all(job.at_s for job in jobs):
            return None
        at_s = min(job.at_s[-1] for job in jobs)
        if self._seen and at_s <= self._seen[-1].at_s:
            return None
        now = self.stack.read(self.shell)
        values = dict(self.stack.counted(self._before or now, now))
        self._before = now
        self._seen.append(Look(at_s, values.get(FILLED), values.get(HIT_RATIO), sum(job.done[-1] for job in jobs)))
        return self.rule.met_by(self._seen)
