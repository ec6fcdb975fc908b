"""A workload: it runs on a mounted stack, once in each of the stack's phases, and measures."""

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Protocol, Self, TypeAlias

from bisector.core.deadline import Deadline
from bisector.core.errors import BisectorError, UserError
from bisector.core.events import LiveSample
from bisector.core.figures import Contention, EarlyStop, JobFigures, Run
from bisector.core.metric import Metric, short
from bisector.core.objective import OVER, Objective
from bisector.core.setting import Problem
from bisector.core.shell import CommandResult, Shell
from bisector.core.trial import FaultKind, KernelFault, Stage
from bisector.storage.disks import kernel_fault_in_run
from bisector.storage.layer import CACHE_PREFIX, LAYERS, Feature, Files, MountedStack, Readings

# The interrupts of a guest's devices and the busy time of its CPUs are read in the guest right before and after a
# command runs. If instructions are counted, each takes the same time, and an idle CPU executes none, so the time in
# which the CPU was not idle gives their number. A kernel with NO_HZ measures idle time by the clock and without
# interrupts (tick_nohz_start_idle() in kernel/time/tick-sched.c), and /proc/timer_list has it in nanoseconds. The
# current idle time of a CPU that is idle at that moment is missing there. So the figure is exact only for a guest with
# one CPU, which is busy reading. /proc/stat has the shares of user mode and kernel (proc_stat(5)), which the kernel
# samples at each tick.
# A line of /proc/interrupts that begins with a number is of a device; of these the PC's timer is the guest's own. NMIs,
# which have no number, count, too. The kernel's own output on the serial port needs no interrupt
# (serial8250_console_write() polls); input there does.
INTERRUPTS = "interrupts"
KERNEL, INSTRUCTIONS = "io.kernel", "io.instructions"
PER_IO = (KERNEL, INSTRUCTIONS)
_MARK = "@count "
_WANTED = r"now at |cpu  | *(NMI|[0-9]+):| *\.(idle|iowait)_sleeptime"
# Shell text; it begins with a newline, since the line before may have no end.
_FILES = "/proc/interrupts /proc/stat /proc/timer_list"
_READ_COUNTS = f"printf '\\n' >&2; sed -nE 's/^({_WANTED})/{_MARK}&/p' {_FILES} >&2 2>/dev/null"
_INTERRUPTS = re.compile(r" *(?:NMI|\d{1,6}):((?: +\d{1,20})+)(?: (.*))?", re.ASCII)
_TIMER = "timer"
_NOW = re.compile(r"now at (\d{1,18}) nsecs", re.ASCII)
_IDLE = re.compile(r" *\.(?:idle|iowait)_sleeptime *: (\d{1,18}) nsecs", re.ASCII)
_SHARES = re.compile(r"cpu +\d{1,18} \d{1,18} (\d{1,18}) \d{1,18} \d{1,18} (\d{1,18}) (\d{1,18})(?: .*)?", re.ASCII)
_SHARE_NS = 10_000_000  # USER_HZ is 100 (include/asm-generic/param.h)
_PER_CPU = 2  # lines of a CPU's idle time: with and without I/O to wait for
_MOST_LINES = 10_000


def fault(reason: str, *tail: str) -> KernelFault:
    """A fault of this kernel in a run, with the lines that show it."""
    return KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, reason, tail)


def guest_full() -> UserError:
    """The error for a guest whose own disk has no room."""
    return UserError("the guest's root disk is full", "the image that machine.image names needs some free space")


def guest_disk(failed: CommandResult) -> BisectorError:
    """The error for a failed step that needs room on the guest's own disk: a full disk, or the kernel's fault."""
    return guest_full() if "No space left" in failed.stderr else kernel_fault_in_run(failed)


def lacks(program: str, _failed: CommandResult) -> UserError:
    """The error for a failed step that looks for a program in the guest: the image lacks it."""
    hint = f"install {program} in the image that machine.image names, or leave it unset for the built image"
    return UserError(f"the guest image lacks {program}", hint)


@dataclass(frozen=True, slots=True)
class Counts:
    """The guest's counts at one moment; None for each that is missing, and for ``busy_ns`` if it would not be exact."""

    interrupts: int | None
    kernel_ns: int | None
    busy_ns: int | None

    @classmethod
    def of(cls, lines: Iterable[str]) -> "Counts":
        """The counts in lines that begin with the mark."""
        told = [line.removeprefix(_MARK) for line in lines]
        patterns = (_INTERRUPTS, _SHARES, _NOW, _IDLE)
        devices, shares, now, idle = ([*filter(None, map(one.fullmatch, told))] for one in patterns)
        own = [sum(map(int, one[1].split())) for one in devices if (one[2] or "").split()[-1:] != [_TIMER]]
        exact = now and len(idle) == _PER_CPU
        return cls(
            interrupts=sum(own) if devices else None,
            kernel_ns=sum(map(int, shares[0].groups())) * _SHARE_NS if shares else None,
            busy_ns=int(now[0][1]) - sum(int(one[1]) for one in idle) if exact else None,
        )


def between(before: Counts, after: Counts, ios: int, instruction_ns: int) -> Iterator[tuple[str, float]]:
    """Yield the interrupts between two counts and, for each of ``ios`` I/Os, the kernel's ns and the instructions.

    ``instruction_ns`` is the time of one instruction, and 0 if instructions are not counted.
    """
    if before.interrupts is not None and after.interrupts is not None:
        yield INTERRUPTS, float(after.interrupts - before.interrupts)
    if not ios:
        return
    if before.kernel_ns is not None and after.kernel_ns is not None:
        yield KERNEL, (after.kernel_ns - before.kernel_ns) / ios
    if instruction_ns and before.busy_ns is not None and after.busy_ns is not None:
        yield INSTRUCTIONS, (after.busy_ns - before.busy_ns) / instruction_ns / ios


_UPTIME = "@uptime "
# Shell text that prints the guest's counts and then its clock (/proc/uptime, proc_uptime(5)) to standard error.
READ_CLOCK = f'{_READ_COUNTS}; read -r up rest < /proc/uptime; printf "\\n{_UPTIME}%s\\n" "$up" >&2'
_SECONDS = re.compile(r"\d{1,12}(\.\d{1,9})?")
_READINGS = 2


@dataclass(slots=True)
class Clocks:
    """The clocks of host and guest before and after the measured command; see :data:`READ_CLOCK`.

    A guest whose clock stands still must not pass for a fast one. ``read`` are pairs of host time and guest time, in
    seconds; ``counts`` are the lines of :class:`Counts` before and after the command.
    """

    read: list[tuple[float, float]] = field(default_factory=list)
    counts: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))

    def hear(self, line: str) -> bool:
        """Keep a line of standard error if :data:`READ_CLOCK` printed it; return whether it did."""
        if line.startswith(_MARK):
            if len(self.read) < _READINGS and len(lines := self.counts[len(self.read)]) < _MOST_LINES:
                lines.append(line)
            return True
        if not line.startswith(_UPTIME):
            return False
        seconds = line.removeprefix(_UPTIME)
        if _SECONDS.fullmatch(seconds) and len(self.read) <= _READINGS:
            self.read.append((time.monotonic(), float(seconds)))
        return True

    def host_and_guest_s(self, tail: tuple[str, ...]) -> tuple[float, float]:
        """The seconds that passed by either clock.

        Raises :class:`KernelFault`, with the workload's last lines ``tail``, unless the clocks were read exactly twice.
        """
        if len(self.read) != _READINGS:
            reason = f"the guest's clock was read {len(self.read)} times around the workload, and not {_READINGS}"
            raise fault(reason, *tail)
        (host_start, guest_start), (host_end, guest_end) = self.read
        return host_end - host_start, guest_end - guest_start


# Runs a command on this host, with more variables in its environment. Returns None if there is no such program, and the
# exit status :data:`bisector.core.shell.TIMED_OUT` if it takes too long.
Locally: TypeAlias = Callable[[Sequence[str], Mapping[str, str]], CommandResult | None]
OnSample: TypeAlias = Callable[[LiveSample], None]

MOST_SEED = 2**31 - 1  # the largest int of C, which every program takes that has a seed


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The progress of a job: ``done`` is how much it had done after ``at_s`` seconds of its own run time.

    Both sequences increase, and do not include the start. ``done`` counts I/Os or bytes, as the metric does.
    """

    job: str
    at_s: Sequence[float]
    done: Sequence[float]


class StopCondition(Protocol):
    """When a run may be stopped early."""

    @property
    def objective(self) -> Objective:
        """The metric that decides, and how it combines jobs."""
        ...

    @property
    def runtime_s(self) -> float:
        """The length of a full run."""
        ...

    @property
    def batch_s(self) -> float:
        """The interval at which progress is reported."""
        ...

    def met_by(self, jobs: Sequence[RunProgress]) -> EarlyStop | None:
        """The record of why the run may end now; None if it has to go on."""
        ...


@dataclass(frozen=True, slots=True)
class RunSite:
    """Where one run of a workload takes place: the guest's shell, the mounted stack, the run's name and its log files.

    On a stack without a file system the run uses the device from ``offset_bytes`` on, as much as all its files need.

    ``keep_files`` keeps the blocks of the run's files allocated after its end, so that a later run gets other blocks. A
    workload with a live counter ends the run as soon as ``stop`` is met; others ignore it. ``seed`` is for everything
    that the workload draws at random, a number from 1 to :data:`MOST_SEED`; None leaves the workload's own seed. If
    ``goes_on`` is set, the run is a further round of its phase and uses the files of the round before, if the workload
    can. ``began_s`` is when the turn of the workload began, by the host's monotonic clock. ``instruction_ns`` is the
    time of one instruction in a guest that counts them, and 0 in any other guest. ``start_meter`` starts to watch the
    host; the function that it returns stops that and returns what the host did besides running the guest.
    """

    shell: Shell
    stack: MountedStack
    name: str
    logs: Path
    keep_files: bool
    start_meter: Callable[[], Callable[[], Contention]]
    on_sample: OnSample
    deadline_s: float
    locally: Locally
    stop: StopCondition | None = None
    offset_bytes: int = 0
    seed: int | None = None
    goes_on: bool = False
    began_s: float = field(default_factory=time.monotonic)
    instruction_ns: int = 0


@dataclass(frozen=True, slots=True)
class FinishedCommand:
    """A finished command in the guest, with what was read on the host and from the stack around it.

    ``prepared_s`` is how long the workload took to prepare the run.
    """

    site: RunSite
    prepared_s: float
    finished: CommandResult
    started_at: str
    before: Readings
    contention: Contention
    clocks: Clocks

    def run(
        self,
        jobs: tuple[JobFigures, ...] = (),
        values: Iterable[tuple[str, float]] = (),
        stopped: EarlyStop | None = None,
        tail: tuple[str, ...] = (),
    ) -> Run:
        """The record of the run: the figures of its jobs, and the metrics of the whole run and of the stack's layers.

        Raises :class:`KernelFault` if the clocks were not read twice.
        """
        host_s, guest_s = self.clocks.host_and_guest_s(tail)
        after = self.site.stack.read(self.site.shell)
        ios = sum(job.total_ios for job in jobs)
        first, last = map(Counts.of, self.clocks.counts)
        return Run(
            name=self.site.name,
            started_at=self.started_at,
            duration_s=host_s,
            jobs=jobs,
            cache_before=self.before.cache,
            cache_after=after.cache,
            contention=self.contention,
            clock_drift_s=guest_s - host_s,
            stopped_early=stopped,
            counters=(
                *self.site.stack.counted(self.before, after),
                *values,
                *between(first, last, ios, self.site.instruction_ns),
            ),
        )


def watched(site: RunSite, command: str, hear: Callable[[str], None], deadline: Deadline) -> FinishedCommand:
    """Run shell text that reads the clock twice (:data:`READ_CLOCK`); ``hear`` gets all other lines of its stderr."""
    prepared_s = time.monotonic() - site.began_s
    before = site.stack.read(site.shell)
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    clocks = Clocks()

    def line(text: str) -> None:
        if not clocks.hear(text):
            hear(text)

    stop_meter = site.start_meter()
    try:
        finished = site.shell.stream(command, line, deadline.remaining_s)
    finally:
        contention = stop_meter()
    return FinishedCommand(site, prepared_s, finished, started_at, before, contention, clocks)


def timed(command: str) -> str:
    """Shell text that runs a simple command between two readings of the clock, and exits with its exit status."""
    return f"{READ_CLOCK}; {{ {command}; }}; status=$?; {READ_CLOCK}; exit $status"


@dataclass(frozen=True, slots=True)
class DefaultObjective:
    """The objective if the user gives none; ``named_by`` says, for a message, what named it, or is empty."""

    objective: Objective = field(default_factory=Objective)
    named_by: str = ""


@dataclass(frozen=True, slots=True)
class Clone:
    """The files that a workload needs from a commit of a git repository, as one git bundle (git-bundle(1)).

    ``field`` is the field of the setting that names the bundle. ``repository`` is None for the repository under test,
    ``path`` a directory of the commit, or empty for all of it.
    """

    field: str
    repository: Path | None
    revision: str
    path: str
    most_bytes: int


@dataclass(frozen=True, slots=True)
class Workload(ABC):
    """One workload: a frozen dataclass whose fields are its settings. Derived classes define what differs.

    The keys of its settings are below ``workload.``. Giving the setting ``chosen_by`` also chooses the workload.
    ``metrics`` are the metrics that only this workload has, ``shared`` the names of other metrics of its runs; it
    passes their values to :meth:`Watched.run`. The stack defines the phases; a workload runs once in each.
    """

    name: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]] = ()
    shared: ClassVar[tuple[str, ...]] = ()
    chosen_by: ClassVar[str] = ""

    @abstractmethod
    def run(self, site: RunSite) -> Run:
        """Run once with cold page caches, in a directory of its own on the stack.

        Raises :class:`KernelFault` for what the kernel under test does, :class:`UserError` for
        input that no commit can be measured with, :class:`bisector.core.errors.InfraError` for the rest.
        """

    def length_s(self) -> float:
        """How many seconds one run is asked to last; 0 if that is not known beforehand."""
        return 0.0

    def label(self) -> str:
        """A text that distinguishes it from the same workload with other input: the names of its files."""
        return ",".join(path.name for path in self.inputs().values())

    def testcase(self, text: str) -> str:
        """A few words on what it does, for readers of its figures; ``text`` is the text of its input file."""
        return f"{self.name} {self.label()}".rstrip()

    def recipe(self) -> str | None:
        """The commands to run it again, for a mail to others; None if the text of its input file says that."""
        return None

    def names(self) -> tuple[str, ...]:
        """The metrics of its runs, without the metrics of jobs that read, write or trim."""
        return (*(one.name for one in self.metrics), *self.shared)

    def full_name(self, name: str) -> str:
        """The full name of one of its own metrics, which users type without unit and better side.

        Raises :class:`UserError` if it has no metric of this name.
        """
        raise UserError(f"the workload {self.name} has no figure {name}", "--figure NAME=UNIT,higher describes one")

    def deciding(self) -> DefaultObjective:
        """The objective if the user gives none; raises :class:`UserError` if its input names an unknown metric."""
        return DefaultObjective()

    def are_split(self) -> bool:
        """Whether its runs are split into a settling and a steady part."""
        return False

    def unseeded(self) -> tuple[str, ...]:
        """A sentence for each part that ignores :attr:`RunSite.seed`; raises :class:`UserError` as :meth:`files`."""
        return ()

    def repeats_itself(self) -> bool:
        """Whether runs without a seed draw the same random numbers; raises :class:`UserError` as :meth:`files`."""
        return False

    def sized(self, profile: str, fill_bytes: int) -> Self:
        """Its settings with an amount of data that suits the profile and fills caches with ``fill_bytes``.

        Raises :class:`UserError` as :meth:`files`.
        """
        return self

    def features(self) -> Iterator[Feature]:
        """Yield the features that a kernel may lack although it has all fragments.

        Raises :class:`UserError` as :meth:`files`.
        """
        yield from ()

    def files(self) -> Files:
        """What one run writes; raises :class:`UserError` if its input cannot be read."""
        return Files(0, "no files")

    def inputs(self) -> Mapping[str, Path]:
        """The user's input files, by the fields of the settings that name them.

        If a setting names several files, a dot and a number follow the field.
        """
        return {}

    def with_files(self, files: Mapping[str, Path]) -> Self:
        """Its settings with other files, by the names of :meth:`inputs`."""
        return replace(self, **files)

    def clone(self) -> Clone | None:
        """The files that are taken from a repository before the first trial; None if it needs none."""
        return None

    def variables(self) -> Mapping[str, str]:
        """The values of the variables in its input, for a mail that lets others run it again."""
        return {}

    def doubts(self) -> Iterator[tuple[str, str]]:
        """Yield settings that are probably a mistake: a sentence, and what to type instead."""
        yield from ()

    def problems(self) -> Iterator[Problem]:
        """Yield the settings that cannot work, as far as that shows without running a program."""
        yield from ()

    def problems_of_length(self, objective: Objective) -> Iterator[Problem]:
        """Yield why a run does not last as long as :meth:`length_s` says."""
        yield from ()

    def problems_on_stack(self, device_runs: int, *, built_image: bool) -> Iterator[Problem]:
        """Yield why it cannot run on the stack; most workloads need files.

        ``device_runs`` is 0 on a file system, else the number of runs on the block device. ``built_image`` is set for
        the image that bisector builds, whose programs are known; those of the user's own image are not.
        """
        if device_runs:
            sentence = f"the workload {self.name} works with files, and the stack has no file system"
            yield Problem(("storage.stack", "workload.kind"), sentence, "--stack …+ext4")

    def check(self, objective: Objective, locally: Locally) -> None:
        """Check its input, and that its runs have the metric that decides, before any expensive work.

        Raises :class:`UserError`. A workload with jobs that read, write or trim overrides this to check which of these
        they do.
        """
        self.check_named(objective)
        if objective.over not in OVER:
            raise UserError(f"{self.name} has no job {objective.over!r}", "leave out --over")

    def check_named(self, objective: Objective) -> None:
        """Raise :class:`UserError` for a metric that neither this workload nor a layer of a stack has."""
        names = self.names()
        of_layers = {metric.name for layer in LAYERS.values() for metric in layer.metrics}
        if objective.metric not in {*names, *of_layers} and not objective.metric.startswith(CACHE_PREFIX):
            listed = ", ".join(map(short, names)) or "those of the stack's layers alone"
            raise UserError(f"no run of {self.name} has {short(objective.metric)}", f"its metrics are: {listed}")
