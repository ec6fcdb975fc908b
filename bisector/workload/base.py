"""A workload: what runs on a mounted stack, once in each of its phases, and what its runs measure.

A workload is one file of this room (fio's is a folder) with a class derived from :class:`Workload`, and one line in
:mod:`bisector.workload.workloads`. One of another package is given to :func:`bisector.workload.workloads.register`.
"""

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Protocol, Self, TypeAlias

from bisector.core.deadline import Deadline
from bisector.core.errors import BisectorError, KernelFault, UserError
from bisector.core.events import LiveSample
from bisector.core.figures import Contention, EarlyStop, JobFigures, Run
from bisector.core.metric import Metric, short
from bisector.core.objective import OVER, Objective
from bisector.core.setting import Problem
from bisector.core.shell import CommandResult, Shell
from bisector.core.trial import FaultKind, Stage
from bisector.storage.disks import kernel_fault_in_run
from bisector.storage.layer import OF_CACHES, Feature, Files
from bisector.storage.layers import LAYERS
from bisector.storage.layout import MountedStack, Readings

# Interrupts of a guest's devices, and what its CPUs were busy with, are read in the guest right before and after a
# command runs. Where instructions are counted each takes the same time, and a CPU that is idle executes none: so the
# time in which it was not is their number. A kernel with NO_HZ measures how long a CPU was idle, by the clock and
# without interrupts (tick_nohz_start_idle() in kernel/time/tick-sched.c); /proc/timer_list has that in nanoseconds. Of
# a CPU that is idle just then it has not been added yet, so the figure is right for a guest of one CPU alone, which is
# the one that reads. /proc/stat has the shares of user mode and kernel (proc_stat(5)), which the kernel samples at each
# tick. Those with a number are of devices, of which the timer of the PC is the guest's own; an NMI has none. What the
# kernel itself writes to the serial port needs no interrupt (serial8250_console_write() polls), and what is typed there
# does.
INTERRUPTS = "interrupts"
KERNEL, INSTRUCTIONS = "io.kernel", "io.instructions"
PER_IO = (KERNEL, INSTRUCTIONS)
_MARK = "@count "
_WANTED = r"now at |cpu  | *(NMI|[0-9]+):| *\.(idle|iowait)_sleeptime"
# Shell text; what is read last may have left its line without an end.
_FILES = "/proc/interrupts /proc/stat /proc/timer_list"
_READ_COUNTS = f"printf '\\n' >&2; sed -nE 's/^({_WANTED})/{_MARK}&/p' {_FILES} >&2 2>/dev/null"
_INTERRUPTS = re.compile(r" *(?:NMI|\d{1,6}):((?: +\d{1,20})+)(?: (.*))?", re.ASCII)
_TIMER = "timer"
_NOW = re.compile(r"now at (\d{1,18}) nsecs", re.ASCII)
_IDLE = re.compile(r" *\.(?:idle|iowait)_sleeptime *: (\d{1,18}) nsecs", re.ASCII)
_SHARES = re.compile(r"cpu +\d{1,18} \d{1,18} (\d{1,18}) \d{1,18} \d{1,18} (\d{1,18}) (\d{1,18})(?: .*)?", re.ASCII)
_SHARE_NS = 10_000_000  # USER_HZ is 100 (include/asm-generic/param.h)
_PER_CPU = 2  # lines of a CPU's idle time: one of them while I/O was waited for
_MOST_LINES = 10_000


def fault(reason: str, *tail: str) -> KernelFault:
    """What this kernel did to the run, with the lines that show it."""
    return KernelFault(Stage.WORKLOAD, FaultKind.COMMAND_FAILED, reason, tail)


def guest_full() -> UserError:
    """There is no room on the guest's own disk."""
    return UserError("the guest's root disk is full", "the image that machine.image names needs some free space")


def guest_disk(failed: CommandResult) -> BisectorError:
    """Whose fault it is when a step fails that needs room on the guest's own disk."""
    return guest_full() if "No space left" in failed.stderr else kernel_fault_in_run(failed)


def lacks(program: str, _failed: CommandResult) -> UserError:
    """The guest has no such program: whose fault it is when a step fails that looks for it."""
    hint = f"install {program} in the image that machine.image names, or leave it unset for the built image"
    return UserError(f"the guest image lacks {program}", hint)


@dataclass(frozen=True, slots=True)
class Counts:
    """One reading, of what is there; ``busy_ns`` is None where it would not be exact."""

    interrupts: int | None
    kernel_ns: int | None
    busy_ns: int | None

    @classmethod
    def of(cls, lines: Iterable[str]) -> "Counts":
        """What the lines say that begin with the mark."""
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
    """Values of metrics between two readings, of ``ios`` I/Os; without ``instruction_ns`` none are counted."""
    if before.interrupts is not None and after.interrupts is not None:
        yield INTERRUPTS, float(after.interrupts - before.interrupts)
    if not ios:
        return
    if before.kernel_ns is not None and after.kernel_ns is not None:
        yield KERNEL, (after.kernel_ns - before.kernel_ns) / ios
    if instruction_ns and before.busy_ns is not None and after.busy_ns is not None:
        yield INSTRUCTIONS, (after.busy_ns - before.busy_ns) / instruction_ns / ios


_UPTIME = "@uptime "
# Shell text that prints the guest's counts and then its clock (/proc/uptime, proc_uptime(5)), each on a line of its own
# of standard error.
READ_CLOCK = f'{_READ_COUNTS}; read -r up rest < /proc/uptime; printf "\\n{_UPTIME}%s\\n" "$up" >&2'
_SECONDS = re.compile(r"\d{1,12}(\.\d{1,9})?")
_READINGS = 2


@dataclass(slots=True)
class Clocks:
    """The guest's clock and the host's, read before and after what is measured; see :data:`READ_CLOCK`.

    ``counts`` are the lines of :class:`Counts` before and afterwards. A guest whose clock stands still must not pass
    for a fast one.
    """

    read: list[tuple[float, float]] = field(default_factory=list)
    counts: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))

    def hear(self, line: str) -> bool:
        """Whether a line of standard error is of a reading."""
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
        """Elapsed time by either clock; raises :class:`KernelFault`, with the last lines of the workload."""
        if len(self.read) != _READINGS:
            reason = f"the guest's clock was read {len(self.read)} times around the workload, and not {_READINGS}"
            raise fault(reason, *tail)
        (host_start, guest_start), (host_end, guest_end) = self.read
        return host_end - host_start, guest_end - guest_start


# Runs a command on this host, with more variables in its environment; None where there is no such program, and the
# exit status :data:`bisector.core.shell.TIMED_OUT` of one that takes too long.
Locally: TypeAlias = Callable[[Sequence[str], Mapping[str, str]], CommandResult | None]
OnSample: TypeAlias = Callable[[LiveSample], None]

MOST_SEED = 2**31 - 1  # what an int of C holds: every program that takes a seed takes this one


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How much a job had done by which second of its own run time; both grow, the start is not among them.

    What is counted are I/Os or bytes, as the metric has it.
    """

    job: str
    at_s: Sequence[float]
    done: Sequence[float]


class StopCondition(Protocol):
    """When a run may end before its time."""

    @property
    def objective(self) -> Objective:
        """What decides."""
        ...

    @property
    def runtime_s(self) -> float:
        """The length of a whole run."""
        ...

    @property
    def batch_s(self) -> float:
        """How often the progress is asked for."""
        ...

    def met_by(self, jobs: Sequence[RunProgress]) -> EarlyStop | None:
        """What is recorded of a run that may end now; None: go on."""
        ...


@dataclass(frozen=True, slots=True)
class RunSite:
    """Where a workload runs once: the guest, the stack in it, the run's name, and a directory for what is kept of it.

    On a stack without a file system the run has the place from ``offset_bytes`` on, as large as all its files.

    ``keep_files`` keeps the blocks of its files taken when it is over, so that a later run gets others. A workload
    with a live counter ends the run as soon as ``stop`` is met; others leave that alone. ``seed`` is the seed of
    whatever the workload draws at random, a number from 1 to :data:`MOST_SEED`; with None the workload has its own. A
    run that ``goes_on`` is a further round of the phase of its name: it uses the files of the round before, where the
    workload can. ``began_s`` is when it was its turn, by the host's monotonic clock. ``instruction_ns`` is what an
    instruction takes in a guest where they are counted, and 0 in any other one. ``start_meter`` begins to watch the
    host, and what it returns ends that, and tells what the host did besides our guest.
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
class Watched:
    """A command that has run in the guest, and what was read on the host and off the stack meanwhile.

    ``prepared_s`` is how long the workload was at other things before.
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
        """The record of the run: figures of jobs, values of metrics of the whole run, and those of the stack's layers.

        Raises :class:`KernelFault` where the clocks were not read twice.
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


def watched(site: RunSite, command: str, hear: Callable[[str], None], deadline: Deadline) -> Watched:
    """Run shell text that reads the clock twice, see :data:`READ_CLOCK`; ``hear`` gets all other lines on stderr."""
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
    return Watched(site, prepared_s, finished, started_at, before, contention, clocks)


def timed(command: str) -> str:
    """Shell text of a simple command between two readings of the clock, with its exit status."""
    return f"{READ_CLOCK}; {{ {command}; }}; status=$?; {READ_CLOCK}; exit $status"


@dataclass(frozen=True, slots=True)
class Deciding:
    """What decides where nobody says it, and what named it, for a person; empty where nothing did."""

    objective: Objective = field(default_factory=Objective)
    named_by: str = ""


@dataclass(frozen=True, slots=True)
class Clone:
    """The tree of files that a workload takes from a git repository, as one git bundle (git-bundle(1)).

    ``field`` is that of the setting which names the bundle. ``repository`` is None for the one under test, ``path`` a
    directory of the commit, or empty for all of it.
    """

    field: str
    repository: Path | None
    revision: str
    path: str
    most_bytes: int


@dataclass(frozen=True, slots=True)
class Workload(ABC):
    """One workload: a frozen dataclass, whose fields are its settings. Derived classes say what differs.

    The keys of settings are below ``workload.``. Whoever gives the setting ``chosen_by`` need not name the workload.
    ``metrics`` are those that only this workload has, ``shared`` the names of others that its runs have; it gives their
    values with :meth:`Watched.run`. What a stack's phases are is the stack's to say: a workload runs once in each.
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
        """How long one run is asked to last; 0 where nobody knows beforehand."""
        return 0.0

    def label(self) -> str:
        """What tells it from the same workload with other input: the names of its files."""
        return ",".join(path.name for path in self.inputs().values())

    def testcase(self, text: str) -> str:
        """What it does, in a few words, for whoever reads figures of it; ``text`` is that of its input file."""
        return f"{self.name} {self.label()}".rstrip()

    def recipe(self) -> str | None:
        """What is run, for a letter that lets others run it again; None where that is the text of its input file."""
        return None

    def names(self) -> tuple[str, ...]:
        """The metrics that its runs have but for those of jobs that read, write or trim."""
        return (*(one.name for one in self.metrics), *self.shared)

    def full_name(self, name: str) -> str:
        """The name of a metric of its own that people type without its unit and its better side.

        Raises :class:`UserError` where it has none of that name.
        """
        raise UserError(f"the workload {self.name} has no figure {name}", "--figure NAME=UNIT,higher describes one")

    def deciding(self) -> Deciding:
        """What decides where nobody says it; raises :class:`UserError` where its input names an unknown metric."""
        return Deciding()

    def are_split(self) -> bool:
        """Whether its runs are split into their settling and their steady part."""
        return False

    def unseeded(self) -> tuple[str, ...]:
        """What of it does not follow :attr:`RunSite.seed`, in sentences; raises :class:`UserError` as :meth:`files`."""
        return ()

    def repeats_itself(self) -> bool:
        """Whether runs without a seed draw the same random numbers; raises :class:`UserError` as :meth:`files`."""
        return False

    def sized(self, profile: str, fill_bytes: int) -> Self:
        """Its settings with the amount of data that follows from the profile, and from what fills the stack's caches.

        Raises :class:`UserError` as :meth:`files`.
        """
        return self

    def features(self) -> Iterator[Feature]:
        """What not every kernel can that has the fragments' options; raises :class:`UserError` as :meth:`files`."""
        yield from ()

    def files(self) -> Files:
        """What one run writes; raises :class:`UserError` where its input cannot be read."""
        return Files(0, "no files")

    def inputs(self) -> Mapping[str, Path]:
        """The files that a person gives it, by the fields of the rows that name them.

        Of a row that names several each one's name has a dot and a number behind the field.
        """
        return {}

    def with_files(self, files: Mapping[str, Path]) -> Self:
        """Its settings with other files, by the names of :meth:`inputs`."""
        return replace(self, **files)

    def clone(self) -> Clone | None:
        """What of a repository is to be brought along, made before the first trial; None where nothing is."""
        return None

    def variables(self) -> tuple[tuple[str, str], ...]:
        """What its input is filled in with, for the letter that lets others run it again."""
        return ()

    def doubts(self) -> Iterator[tuple[str, str]]:
        """What of its settings may not be meant so: a sentence, and what to type instead."""
        yield from ()

    def problems(self) -> Iterator[Problem]:
        """Settings that cannot work, as far as that shows without any program."""
        yield from ()

    def problems_of_length(self, objective: Objective) -> Iterator[Problem]:
        """Why a run does not last as long as :meth:`length_s` says."""
        yield from ()

    def problems_on_stack(self, device_runs: int, *, built_image: bool) -> Iterator[Problem]:
        """Why it cannot run there: on files or, with ``device_runs``, so many times on a block device without them.

        In the ``built_image`` it has the programs that are known; those of a person's own image nobody knows
        beforehand. Most workloads work with files.
        """
        if device_runs:
            sentence = f"the workload {self.name} works with files, and the stack has no file system"
            yield Problem(("storage.stack", "workload.kind"), sentence, "--stack …+ext4")

    def check(self, objective: Objective, locally: Locally) -> None:
        """Find what is wrong with its input before anything expensive, and that no run of it has what decides.

        Raises :class:`UserError`. A workload whose jobs read, write or trim says for itself which of it they do.
        """
        self.check_named(objective)
        if objective.over not in OVER:
            raise UserError(f"{self.name} has no job {objective.over!r}", "leave out --over")

    def check_named(self, objective: Objective) -> None:
        """Raise :class:`UserError` for a metric that neither this workload nor a layer of a stack has."""
        names = self.names()
        of_layers = {metric.name for layer in LAYERS.values() for metric in layer.metrics}
        if objective.metric not in {*names, *of_layers} and not objective.metric.startswith(OF_CACHES):
            listed = ", ".join(map(short, names)) or "those of the stack's layers alone"
            raise UserError(f"no run of {self.name} has {short(objective.metric)}", f"its metrics are: {listed}")
