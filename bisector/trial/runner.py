"""One trial on one host: build the kernel, boot it, lay out the storage, run the workload, and return the facts.

Nothing is decided here. A fault of the kernel ends the trial and is one of its facts; an infrastructure error is raised
as :class:`bisector.core.trial.AttemptFailed`, so that it is never taken for a fault.
"""

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from bisector.analysis.early_stop import FillRule, Look, StopRule, rule_for
from bisector.config import Settings, StorageSettings
from bisector.core.deadline import SYSTEM_CLOCK, Clock, Deadline
from bisector.core.errors import InfraError, UserError
from bisector.core.events import Listener, StageStarted
from bisector.core.figures import DiskQueue, EarlyStop, Run, round_name, run_words
from bisector.core.objective import Objective
from bisector.core.shell import Shell, Step, run_steps
from bisector.core.subject import Cell, Commit, Compiler, Kernel, RebuildCheck
from bisector.core.trial import (
    AttemptFailed,
    Era,
    Fault,
    FaultKind,
    Fill,
    KernelFault,
    Stage,
    Timings,
    Trial,
    TrialRefused,
)
from bisector.git.source_tree import SourceTree
from bisector.host.files import our_files
from bisector.host.identity import host_id
from bisector.host.load import ContentionMeter
from bisector.host.process import run_here
from bisector.kernel.build import KernelBuilder
from bisector.kernel.builddir import BuildPlaces
from bisector.kernel.cache import CONFIG, DEFCONFIG
from bisector.kernel.kconfig import check_fragment
from bisector.kernel.product import as_measured, kernel_of
from bisector.storage import layer, stack
from bisector.storage.disks import kernel_fault_in_run
from bisector.storage.layer import FILLED, HIT_RATIO, MountedStack, Phase, Readings
from bisector.storage.stack import stack_of
from bisector.vm.base import Machine, Machines
from bisector.workload.base import RunProgress, RunSite, fault

_STORAGE_DEADLINE_S = 300.0
_QUESTION_S = 60.0
_QUOTED = 40
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """A request to measure a cell; ``measured_kernels`` maps the content of each measured kernel to its commit.

    The first of ``compilers`` that succeeds builds the kernel; an empty tuple means those of the settings, or the
    host's default. ``stop`` says when the judged run may end early; None: never. ``again``: the commit was tried
    before, so the host has to be quiet first. ``anew``: build the kernel even if it is cached, or known not to build.
    The trial ends after the stage ``through``. ``settings`` replace those of the bench. The workload draws random
    numbers from ``seed``; None: by its own rule. Counted guest time is shifted slightly by ``guest_seed``. An ``image``
    is booted without a build. ``kernel`` is the subject's kernel in an earlier trial: only that one is measured, from
    the cache or by a build that gives the same. With the short ``fill``, runs that fill a cache end once it is settled.
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
        """The commit of the cell."""
        return self.cell.commit


@dataclass(frozen=True, slots=True)
class Bench:
    """What this host measures with, shared by all trials of a run; the lock ``building`` admits one build at a time."""

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
        """The output directory of make, which is kept between commits."""
        return self.run_dir / "build"


@dataclass(slots=True)
class _RunningTrial:
    """A trial under way and its facts so far; ``on_host`` is true while the host prepares and no guest kernel runs."""

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
        """Do all stages of the trial; raises :class:`KernelFault` if one fails by the kernel's fault."""
        has_guest = self.request.through is not Stage.BUILD
        if has_guest:
            self._look_at_host()
        self.kernel = self.build()
        self.same_kernel_as = self.request.measured_kernels.get(self.kernel.content_sha256)
        if self.same_kernel_as is None and has_guest:
            self._measure(self.kernel)
        self.stage = Stage.DONE

    def facts(self, fault: Fault | None = None) -> Trial:
        """Return the facts so far as a trial."""
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

    def attempt(self, part: Callable[[], Found]) -> Found | Fault:
        """Do a part of the trial; return what it returns, or the fault of the kernel.

        Raises :class:`AttemptFailed` for an error of the infrastructure and :class:`TrialRefused` for one of the input,
        with the facts so far. There are none if no kernel can have caused the error, such as a test disk in use, or no
        space for the console.
        """
        try:
            with our_files(self.logs):
                return part()
        except KernelFault as error:
            return error.fault
        except InfraError as error:
            facts = None if self.on_host else self.facts()
            raise AttemptFailed(str(error), error.hint, self.stage, host_id(), facts) from error
        except UserError as error:
            raise TrialRefused(error.message, error.hint, None if self.on_host else self.facts()) from error

    def build(self) -> Kernel:
        """Build the kernel with the first compiler that succeeds; if all fail, raise the fault of the first one."""
        first: KernelFault | None = None
        if self.request.image is not None:
            return kernel_of(self.request.image, self.request.commit)
        for compiler in self.request.compilers or self._builder.default_compilers():
            try:
                return as_measured(self.request.kernel, self._kernel_by(compiler))
            except KernelFault as error:
                if not error.kind.of_compiling:
                    raise
                first = first or error
        if first is None:
            raise ValueError("no compiler to build with")
        raise first

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
        """Wait until no other trial builds; the wait does not count as time of this trial."""
        start = self.bench.clock.now_s()
        with self.bench.building:
            self._start += self.bench.clock.now_s() - start
            yield

    def _kept_before(self, builder: KernelBuilder) -> Kernel | None:
        """The kernel from the cache, if it is there; raises the :class:`KernelFault` of an earlier failed build."""
        before = self.request.kernel
        if self.request.anew:
            return None
        kept = (builder.find_again(before) if before is not None else None) or self._kept(builder)
        if kept is None:
            builder.recall_failure(self.request.commit.tree, self.logs)
            return None
        shutil.copy(kept.config, self.logs / CONFIG)
        with suppress(FileNotFoundError):  # not every tree can make a defconfig
            shutil.copy(kept.config.with_name(DEFCONFIG), self.logs)
        self._check_own_fragment(builder, kept.unmet)
        return kept

    def _built(self, builder: KernelBuilder) -> Kernel:
        with self._part("build_s"):
            places = self._checked_out()
            if self.request.cell.subject.fragment:  # checked before a build that may take an hour
                with suppress(KernelFault):  # the build below fails alike, and retries a failure that may be chance
                    self._check_own_fragment(builder, builder.configure(places))
            return builder.build(self.request.commit.tree, places, self.bench.source.trees)

    def _checked_out(self, detail: str = "") -> BuildPlaces:
        self._enter(Stage.CHECKOUT)
        source = self.bench.source.checkout(self.request.commit)
        self._enter(Stage.BUILD, detail)
        return BuildPlaces(source, self.bench.build_dir, self.logs, self.bench.run_dir)

    def build_once_more(self, measured: Kernel) -> RebuildCheck:
        """Rebuild a measured kernel apart from all other builds, unless an earlier run has done so successfully."""
        builder = self._builder.using(*self.request.compilers)
        if (known := builder.recorded_rebuild_check(measured)) is not None:
            return known
        with self._one_builds():
            return builder.check_by_rebuild(measured, self._checked_out("once more, apart from all others"))

    def _kept(self, builder: KernelBuilder) -> Kernel | None:
        tree = self.request.commit.tree
        return builder.find(tree) or builder.find_alike(tree, self.bench.source.trees)

    def _check_own_fragment(self, builder: KernelBuilder, unmet: tuple[str, ...]) -> None:
        """Raise :class:`UserError` if a fragment of the subject's own does not have the effect that it asks for."""
        if self.request.cell.subject.fragment:
            kernel = self._settings.kernel
            *others, own = kernel.fragments
            without = self._kept(builder.with_settings(replace(kernel, fragments=tuple(others))))
            check_fragment(Path(own), unmet, self.logs / CONFIG, without.config if without is not None else None)

    def _measure(self, kernel: Kernel) -> None:
        settings, n, seed = self._settings.machine, self.request.n, self.request.guest_seed
        self._enter(Stage.BOOT)
        self.on_host = True  # a failure before the start of the guest is the host's, not the kernel's
        with self.bench.machines.prepared(
            f"{n}", kernel, self.logs, self._storage, settings.append, seed=seed
        ) as machine:
            self._look_at_host()
            deadline = machine.deadline(f"the end of trial {n}", settings.trial_deadline_s)
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

    def _look_at_host(self) -> None:
        # Before the build and again after it: a build takes long enough for an upgrade of the host's software.
        self.on_host = True
        self.era = self.bench.machines.era(self._storage)
        self.on_host = False

    def _lay_out(self, machine: Machine) -> MountedStack:
        storage, files = self._storage, self._settings.workload.files
        mounted = stack.lay_out(
            machine.guest,
            storage.stack,
            storage.layers,
            files,
            _STORAGE_DEADLINE_S,
            guest_disks={name: disk.guest for name, disk in storage.disks.items()},
            in_memory=storage.in_memory,
        )
        self.queues = mounted.queues
        (self.logs / "storage.txt").write_text("".join(f"{line}\n" for line in mounted.description), encoding="utf-8")
        return mounted

    @property
    def _settings(self) -> Settings:
        return self.request.settings or self.bench.settings

    @property
    def _storage(self) -> StorageSettings:
        return replace(self._settings.storage, stack=stack_of(self.request.cell.setup.stack))

    def _run_phase(self, machine: Machine, stack: MountedStack, phase: Phase, deadline: Deadline) -> None:
        """Do the runs of a phase: one, or as many as it takes to fill a cache (:mod:`bisector.storage.layer`)."""
        # In counted time, decisions by the host's clock would make a trial unrepeatable.
        now_s = partial(uptime_s, machine.guest) if self._settings.machine.is_counted else self.bench.clock.now_s
        storage, start_s, first, longest_s = self._storage, now_s(), len(self.runs), 0.0
        while True:
            began_s = now_s()
            self.runs.append(self._run(machine, stack, phase, len(self.runs) - first + 1, deadline))
            ended_s, rounds = now_s(), self.runs[first:]
            longest_s = max(longest_s, ended_s - began_s)
            is_settled = rounds[-1].stopped_early is not None
            if not phase.fills or is_settled or not layer.goes_on(rounds, storage.fill_rounds):
                return
            left_s = storage.fill_deadline_s - (ended_s - start_s)
            another = longest_s <= left_s
            # A stack that fills itself is not a round, and is stopped in time: it may begin with less time than one.
            if stack.fills_itself and left_s > 0 and not (another and len(rounds) < storage.fill_rounds):
                self._enter(Stage.WORKLOAD, "filling the cache")
                stack.fill(machine.guest, left_s)
                took = (layer.FILL, now_s() - ended_s)
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
            instruction_ns=self._settings.machine.instruction_ns if self._settings.machine.is_counted else 0,
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
    """Measure one cell; ``logs`` is the trial's empty directory, whose artifacts the caller collects.

    Raises :class:`AttemptFailed` for trouble of the tool or the host, :class:`TrialRefused` for input that the trial
    cannot be done with, both with the facts so far.
    """
    course = _RunningTrial(bench, request, logs)
    return course.facts(course.attempt(course.go))


def try_build(bench: Bench, request: TrialRequest, logs: Path) -> Fault | None:
    """Build and keep the kernel of a trial, and return the fault, if any. Raises as :func:`run_trial`.

    A build that timed out is tried once more, since the result is final and the host may have been busy.
    """
    for _ in range(2):
        course = _RunningTrial(bench, request, logs)
        built = course.attempt(course.build)
        if not isinstance(built, Fault) or built.kind is not FaultKind.BUILD_TIMEOUT:
            break
    return built if isinstance(built, Fault) else None


def remake(bench: Bench, request: TrialRequest, measured: Kernel, logs: Path) -> RebuildCheck | Fault:
    """Rebuild a measured kernel apart from all other builds, and return its digests. Raises as :func:`run_trial`."""
    course = _RunningTrial(bench, request, logs)
    return course.attempt(partial(course.build_once_more, measured))


def uptime_s(shell: Shell) -> float:
    """Seconds since the guest was booted, by its own clock (proc_uptime(5)); raises :class:`KernelFault` if unknown."""
    (told,) = run_steps(shell, (Step("cut -d ' ' -f 1 /proc/uptime", kernel_fault_in_run),), _QUESTION_S)
    try:
        return float(told)
    except ValueError as error:
        raise fault(f"/proc/uptime says {told[:_QUOTED]!r}") from error


@dataclass(slots=True)
class CacheWatch:
    """The condition by which one filling run ends early under the rule: it reads the cache's counters during the run.

    A run that merely ends sooner misleads: after a first run of 20 s instead of 40 s, the demonstration's fixed kernel
    became fast in second 36 of the second run, not in second 16, since smq looks its cache over once a minute. Its mean
    was 880 IOPS instead of 3,200, and below the threshold.

    ``objective`` names the I/O direction of the jobs that are followed.
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
        """The seconds from one progress report of the jobs to the next; the cache's counters are read with each."""
        return self.rule.every_s

    def met_by(self, jobs: Sequence[RunProgress]) -> EarlyStop | None:
        """Return what is recorded of a run that may end now, by the jobs' progress; None if it must go on."""
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
