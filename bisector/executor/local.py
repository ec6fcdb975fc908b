"""The executors of this host: trials one after another or, where guests count their time, several at once.

In general trials run one after another, so that builds and runs never share cores. Processes and guests that killed
runs of this user left are ended first: they would make each measurement weak until those runs are resumed. Temporary
directories of killed processes are removed.

The figures of a guest whose clock counts its instructions do not depend on other work of the host. So each core may run
such a guest, each job in a thread, while make runs as well. One job at a time builds
(:class:`bisector.trial.runner.Bench`), as the single build directory makes each build short after the previous one.

A cancelled job among them ends from within: it tells each stage and each sample of a run, and the call that tells
raises an error in it. A job that tells nothing for long ends with the executor, which ends its processes and guests.
"""

import os
import queue
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Self

from bisector.config import KernelSettings, Settings
from bisector.core import resources
from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError, Interrupted
from bisector.core.events import Event, Listener, Note
from bisector.core.subject import Cell, Compiler, Kernel, RebuildCheck, Subject
from bisector.core.trial import AttemptFailed, Fault, Stage, Trial, TrialRefused
from bisector.executor.base import (
    BuildRequest,
    ControlRequest,
    Failed,
    Finished,
    Job,
    News,
    Progress,
    Request,
    Result,
    cancelled,
    ended,
)
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree
from bisector.host import locks, process
from bisector.host.files import our_files, remove_abandoned, remove_tree
from bisector.host.identity import host_id
from bisector.host.load import quiet_turn
from bisector.host.locks import Held, TurnPurpose, held, holder_of
from bisector.kernel.build import KernelBuilder
from bisector.kernel.cache import KernelCache
from bisector.store.rundir import LOCK, Index, collect, jobs_home, single_commit_home, trial_directory
from bisector.trial.runner import Bench, TrialRequest, remake, run_trial, try_build
from bisector.vm.accelerator import room_for_counted
from bisector.vm.definition import domain_prefix
from bisector.vm.driver import end_abandoned, end_guest, guests
from bisector.vm.machine import VirtualMachines, guest_image

KEPT_KERNELS_BYTES = 10 << 30  # about 3,000 kernels of the small configuration
_JOIN_S = 0.5
_END_S = 120.0
OTHERS_LOOK_S = 0.2  # longer than the interval in which other waiting runs poll for the turn


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """An :class:`bisector.executor.base.Executor` over one bench; :meth:`next` runs a job.

    The bench tells of the progress itself. ``turn`` waits for a turn on this host for a purpose; None: an own turn.
    """

    bench: Bench
    turn: Callable[[TurnPurpose], AbstractContextManager[None]] | None = None
    _jobs: deque[Job] = field(default_factory=deque, init=False)
    _cancelled: set[int] = field(default_factory=set, init=False)

    @property
    def idle(self) -> tuple[str, ...]:
        """The name of this host, unless it has a job."""
        return () if self._jobs else (host_id(),)

    def submit(self, job: Job, host: str = "") -> None:
        """Queue a job for :meth:`next`."""
        self._jobs.append(job)

    def next(self) -> Finished | Failed:
        """Run the oldest job to its end."""
        if not self._jobs:
            raise ValueError("no job was submitted")
        job = self._jobs.popleft()
        if job.id in self._cancelled:
            self._cancelled.remove(job.id)
            return cancelled(job, host_id())
        return ended(job, host_id(), self.work)

    def wait(self, within_s: float | None) -> bool:
        """Return True if there is a job, whose news :meth:`next` makes; else wait for ``within_s`` seconds."""
        if self._jobs or within_s is None:
            return True
        time.sleep(within_s)
        return False

    def cancel(self, id_: int) -> None:
        """Cancel a queued job; while a job runs, this cannot be called, as both happen in one thread."""
        self._cancelled.update(job.id for job in self._jobs if job.id == id_)

    def compilers(self) -> tuple[Compiler, ...]:
        """The compilers that the settings name, or all that are installed."""
        return self.bench.builder.compilers()

    def work(self, request: Request) -> Result:
        """Do the work now; the errors that it raises are for :func:`bisector.executor.base.ended`."""
        match request:
            case TrialRequest():
                return self._measure(request)
            case ControlRequest():
                return self._control(request)
            case BuildRequest():
                return self._build(request)

    def _measure(self, request: TrialRequest) -> Trial:
        """The facts of one trial, with its files; an error has the facts and files so far, too.

        No other run of this tool builds or measures on this host meanwhile. Before a commit is tried again, the host
        has to be quiet; raises :class:`InfraError` if it is not quiet in time.
        """
        run_dir, settings = self.bench.run_dir, request.settings or self.bench.settings
        again = request.again and not settings.machine.is_counted  # counted time is not affected by the host's load
        with self._alone(TurnPurpose.MEASUREMENT, again=again):
            logs = trial_directory(run_dir, request.n, request.commit)
            try:
                trial = run_trial(self.bench, request, logs)
            except (AttemptFailed, TrialRefused) as error:
                if error.trial is not None:
                    with suppress(InfraError):  # the first error matters more than missing files
                        error.trial = replace(error.trial, artifacts=collect(logs, run_dir))
                raise
            return replace(trial, artifacts=collect(logs, run_dir))

    def _control(self, request: ControlRequest) -> Fault | None:
        """Run a control; its logs stay in the run directory.

        The end is built in the build directory in which the commits failed, so make compiles what they changed, and
        what failed to compile. If the end does not compile there either, the directory is emptied, since it may be
        damaged: half an object that a power failure left is enough. A build that timed out is continued next time.
        """
        commit, through = request.commit, request.through
        with self._alone(TurnPurpose.MEASUREMENT):
            logs = self._logs("controls", f"{through}-{commit.short}")
            cell, anew = Cell(Subject(commit), self.bench.settings.setup), through is Stage.BUILD
            control = TrialRequest(0, cell, {}, request.compilers, anew=anew, through=through)
            fault = run_trial(self.bench, control, logs).fault
            if fault is not None and fault.kind.of_compiling:
                for path in self.bench.build_dir.iterdir():  # the directory itself may be a link to a faster disk
                    remove_tree(path)
        return fault

    def _build(self, request: BuildRequest) -> Fault | RebuildCheck | None:
        subject, compiler = Subject(request.commit, fragment=request.fragment), request.compiler
        once_more = "once-more-" if request.measured is not None else ""
        command = re.sub(r"[^\w.+-]", "_", compiler.command)
        built = TrialRequest(0, Cell(subject, self.bench.settings.setup), {}, (compiler,), settings=request.settings)
        with self._alone(TurnPurpose.BUILD):
            logs = self._logs("compilers", f"{once_more}{command}-{subject.short}")
            if request.measured is not None:
                return remake(self.bench, built, request.measured, logs)
            return try_build(self.bench, built, logs)

    @contextmanager
    def _alone(self, purpose: TurnPurpose, *, again: bool = False) -> Iterator[None]:
        """Have a turn on this host; an error about our files in it becomes a failed attempt."""
        limits = self.bench.settings.contention
        turn = partial(self.turn or partial(self.own_turn, told=set()), purpose)
        with quiet_turn(limits, turn, lambda: locks.measurer() is not None, self._note) if again else turn():
            try:
                with our_files(self.bench.run_dir):
                    yield
            except AttemptFailed:
                raise
            except InfraError as error:
                raise AttemptFailed(str(error), error.hint, Stage.CHECKOUT, host_id()) from error

    @contextmanager
    def own_turn(self, purpose: TurnPurpose, told: set[str] | None = None) -> Iterator[None]:
        """Wait for a turn on this host, in which no other run of this tool builds or measures; end leftovers first."""
        with locks.measuring(self.bench.run_dir, self._note, purpose, told):
            end_leftovers(self.bench.run_dir, self._note)
            yield

    def _note(self, text: str) -> None:
        self.bench.tell(Note(text))

    def _logs(self, what: str, name: str) -> Path:
        """An empty directory for logs of a control or build; earlier logs of the same name are removed."""
        logs = self.bench.run_dir / what / name
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir(parents=True)
        return logs


def kernel_builder(settings: KernelSettings) -> KernelBuilder:
    """The kernel builder for these settings, over the cache that all runs of this user share."""
    return KernelBuilder(settings, kept_kernels())


def kept_kernels() -> KernelCache:
    """The cache of kernels that all runs of this user share."""
    return KernelCache(resources.cache_home() / "kernels", KEPT_KERNELS_BYTES)


def kernels_of(settings: Settings, request: Request) -> tuple[str, ...]:
    """The cache keys under which a job looks for a kernel, in order; empty if it always builds, or boots an image.

    Raises :class:`bisector.core.errors.UserError` if a configuration is invalid.
    """
    match request:
        case ControlRequest(through=Stage.BUILD) | BuildRequest(measured=Kernel()):
            return ()
        case TrialRequest(anew=True) | TrialRequest(image=Path()):
            return ()
    own = None if isinstance(request, ControlRequest) else request.settings
    builder = kernel_builder((own or settings).kernel)
    known = [request.kernel.key] if isinstance(request, TrialRequest) and request.kernel is not None else []
    keys = (builder.using(one).key(request.commit.tree) for one in request.compilers)
    return tuple(dict.fromkeys((*known, *keys)))


@contextmanager
def local_executor(
    settings: Settings, run_dir: Path, repository: Repository, tell: Listener
) -> Iterator[LocalExecutor]:
    """Yield an executor with everything a trial needs on this host, for the time of the context.

    Processes that any killed run left are ended first. The sources and the build directory stay.
    """

    def note(text: str) -> None:
        tell(Note(text))

    with ExitStack() as stack:
        stack.enter_context(locks.using_caches(resources.cache_home()))
        end_leftovers(run_dir, note)
        # A turn, since a guest image may have to be built, and libvirt starts QEMU to find out what it supports.
        with locks.measuring(run_dir, note, TurnPurpose.BUILD):
            image = guest_image(settings.machine, run_dir, note)
            machines = stack.enter_context(VirtualMachines.open(settings, image, run_dir, note))
        source, builder = SourceTree(repository, run_dir), kernel_builder(settings.kernel)
        yield LocalExecutor(Bench(settings, run_dir, source, builder, machines, tell))


def end_leftovers(own: Path, tell: Callable[[str], None]) -> None:
    """End the builds and guests of other runs whose process was killed: their lock file exists and is not held.

    A process can be marked with any directory, as a rule of a kernel tree can start one with a mark of its choice; so
    only known run directories of this user are considered. Guests of no known run, such as doctor's, are ended if the
    lock of the libvirt driver's directory that they are in is not held. What cannot be ended stays, and shows in the
    load of the host. Temporary directories of killed processes are removed silently.
    """
    with suppress(InfraError):  # the list of runs is damaged, which is reported when a run is added to it
        for run_dir in sorted(_at_work() - {Path(os.path.realpath(own))}):
            # Locked, so that the run is not resumed in this moment. Without a lock file, the directory may be gone.
            with suppress(Held, OSError, InfraError):
                if holder_of(run_dir / LOCK) is None and (run_dir / LOCK).is_file():
                    with held(run_dir / LOCK):
                        stopped = end_all_of(run_dir)
                    tell(f"{run_dir} was killed and had left something running, which is ended: {stopped} processes")
    with suppress(InfraError):
        for name in end_abandoned(tuple(domain_prefix(Path(entry.run_dir)) for entry in Index().entries())):
            tell(f"guest {name} was left by a process that was killed, and is ended")
    for place in (None, resources.cache_home()):
        remove_abandoned(place)


def end_all_of(run_dir: Path) -> int:
    """End each process and guest of a run, and return how many there were."""
    found = list(guests(domain_prefix(run_dir)))
    return process.reap(run_dir) + sum(end_guest(pid, name) for name, pid in found)


def _at_work() -> set[Path]:
    """The run directories, of this user's runs or of jobs for other hosts, for which a process or a guest runs here.

    The name of a guest contains a digest of its run's directory. Raises :class:`InfraError` if the list of runs is
    damaged.
    """
    marked, names = process.marked(), [name for name, _ in guests("")]
    of_others = (lock.parent for lock in jobs_home().glob(f"*/{LOCK}"))
    directories = (*(Path(entry.run_dir) for entry in Index().entries()), *single_commit_home().glob("*"), *of_others)
    return {
        run_dir
        for run_dir in (Path(os.path.realpath(directory)) for directory in directories)
        if run_dir in marked or any(name.startswith(domain_prefix(run_dir)) for name in names)
    }


# Several jobs at once


def guests_at_once(settings: Settings) -> int:
    """The number of guests that measure at the same time on this host: as set, or as its CPUs and memory allow."""
    return settings.machine.guests or max(1, room_for_counted(settings.machine, settings.storage))


def has_cpu_left(settings: Settings, guests: int) -> bool:
    """Whether so many guests leave a CPU of this host free, which may build during their runs, as time is counted."""
    return settings.machine.is_counted and len(os.sched_getaffinity(0)) > guests


@dataclass
class SharedTurn:
    """The turn of this process on its host, which its simultaneous jobs share.

    It is given back when no job is under way. After ``longest_s`` seconds no further job joins it, so that other runs
    get their turn.
    """

    take: Callable[[TurnPurpose], AbstractContextManager[None]]
    longest_s: float = 600.0
    _free: threading.Condition = field(default_factory=threading.Condition, init=False)
    _taken: ExitStack = field(default_factory=ExitStack, init=False)
    _until: Deadline | None = field(default=None, init=False)
    _sharers: int = field(default=0, init=False)

    @contextmanager
    def __call__(self, purpose: TurnPurpose) -> Iterator[None]:
        """Share the turn until the context exits, taking it first if needed; raises the errors of ``take``."""
        with self._free:
            while self._until is not None and self._until.expired:
                self._free.wait()
            if self._until is None:
                self._taken.enter_context(self.take(purpose))
                self._until = Deadline("a turn", self.longest_s)
            until = self._until
            self._sharers += 1
        try:
            yield
        finally:
            with self._free:
                self._sharers -= 1
                if not self._sharers:
                    self._taken.close()
                    if until.expired:
                        time.sleep(OTHERS_LOOK_S)
                    self._until = None
                    self._free.notify_all()


@dataclass
class AtOnce:
    """An :class:`bisector.executor.base.Executor` that runs ``count`` jobs of ``local`` at the same time.

    With a ``builder``, it offers a second host of that name, which takes one job at a time beside these. It is a
    context manager; once it exits, no job is under way.
    """

    local: LocalExecutor
    count: int
    builder: str = ""
    _turn: SharedTurn = field(init=False)
    _room: threading.Semaphore = field(init=False)
    _news: "queue.SimpleQueue[News | BaseException]" = field(default_factory=queue.SimpleQueue, init=False)
    _heard: deque[News | BaseException] = field(default_factory=deque, init=False)
    _threads: dict[int, threading.Thread] = field(default_factory=dict, init=False)
    _needless: set[int] = field(default_factory=set, init=False)
    _of_builder: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._turn = SharedTurn(self.local.own_turn)
        self._room = threading.Semaphore(self.count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._needless.update(self._threads)
        deadline = Deadline("the end of what is under way", _END_S)
        while alive := [thread for thread in self._threads.values() if thread.is_alive()]:
            if deadline.expired:
                raise InfraError(f"{len(alive)} jobs did not end", "ps -eo pid,stat,etime,args --sort=etime | tail")
            end_all_of(self.local.bench.run_dir)
            alive[0].join(_JOIN_S)

    @property
    def idle(self) -> tuple[str, ...]:
        """The name of this host if it may be given another job, and the builder's name if that has no job."""
        has_room = len(self._threads.keys() - self._of_builder) < self.count
        free = (has_room, host_id()), (bool(self.builder) and not self._of_builder, self.builder)
        return tuple(name for is_free, name in free if is_free)

    def submit(self, job: Job, host: str = "") -> None:
        """Begin a job once there is room for it; jobs that wait begin in no particular order."""
        if builds := host != "" and host == self.builder:
            self._of_builder.add(job.id)
        where = (host, nullcontext()) if builds else (host_id(), self._room)
        thread = threading.Thread(target=self._do, args=(job, *where), name=f"job {job.id}", daemon=True)
        self._threads[job.id] = thread
        thread.start()

    def next(self) -> News:
        """Wait for the next news; an error in a job that is no :class:`BisectorError`, such as a bug, is raised."""
        if not self._heard and not self._threads:
            raise ValueError("no job was submitted")
        self.wait(None)
        news = self._heard.popleft()
        if isinstance(news, BaseException):
            raise news
        if not isinstance(news, Progress):
            self._threads.pop(news.id).join()
            self._needless.discard(news.id)
            self._of_builder.discard(news.id)
        return news

    def wait(self, within_s: float | None) -> bool:
        """Wait for news, or for ``within_s`` seconds; without a limit, do not wait if there is no job."""
        if not self._heard and (self._threads or within_s is not None):
            try:
                self._heard.append(self._news.get(timeout=within_s))
            except queue.Empty:
                return False
        return True

    def cancel(self, id_: int) -> None:
        """Cancel a job; if it is under way, it ends when it next tells something."""
        if id_ in self._threads:
            self._needless.add(id_)

    def compilers(self) -> tuple[Compiler, ...]:
        """The compilers that the settings name, or all that are installed."""
        return self.local.compilers()

    def _do(self, job: Job, host: str, room: AbstractContextManager[object]) -> None:
        bench = replace(self.local.bench, tell=partial(self._tell, job.id))
        local = LocalExecutor(bench, self._turn)
        try:
            with room:
                news = cancelled(job, host) if job.id in self._needless else ended(job, host, local.work)
        except Interrupted:
            news = cancelled(job, host)
        except BaseException as error:  # noqa: BLE001 - next() raises it in the thread of the loop
            self._news.put(error)
            return
        self._news.put(cancelled(job, host) if job.id in self._needless else news)

    def _tell(self, id_: int, event: Event) -> None:
        if id_ in self._needless:
            raise Interrupted("nobody needs it any more")
        self._news.put(Progress(id_, event))
