"""Trials in this process, on this host, one after another: build and measurement never share cores.

What killed runs of this user left running is ended first: it would make each measurement weak until those runs are
resumed. What they left lying about in temporary directories is removed.
"""

import dataclasses
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bisector.config import KernelSettings, Settings
from bisector.core import resources
from bisector.core.errors import AttemptFailed, InfraError, TrialRefused
from bisector.core.events import Listener, Note
from bisector.core.subject import Cell, Compiler, Remade, Subject
from bisector.core.trial import Fault, Stage, Trial
from bisector.executor.base import (
    BuildRequest,
    ControlRequest,
    Failed,
    Finished,
    Job,
    Request,
    Result,
    cancelled,
    ended,
)
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree
from bisector.host import locks, process
from bisector.host.files import our_files, remove_abandoned, remove_whole
from bisector.host.load import host_id, quiet_turn
from bisector.host.locks import Held, TurnPurpose, held, holder_of
from bisector.kernel.build import KernelBuilder
from bisector.kernel.cache import KernelCache
from bisector.store.run_files import collect, trial_directory
from bisector.store.rundir import LOCK, Index, jobs_home, single_commit_home
from bisector.trial.runner import Bench, TrialRequest, remake, run_trial, try_build, try_control
from bisector.vm.definition import domain_prefix
from bisector.vm.embedded import end_abandoned, guests, runs_guest
from bisector.vm.machine import VirtualMachines, guest_image

KEPT_KERNELS_BYTES = 10 << 30  # about 3,000 kernels of the small configuration


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """An :class:`bisector.executor.base.Executor` over one bench: a job runs when its news are asked for.

    The bench tells of its progress itself. ``turn`` is its turn on this host for a purpose; None is one of its own.
    """

    bench: Bench
    turn: Callable[[TurnPurpose], AbstractContextManager[None]] | None = None
    _jobs: deque[Job] = field(default_factory=deque, init=False)
    _cancelled: set[int] = field(default_factory=set, init=False)

    @property
    def idle(self) -> tuple[str, ...]:
        """The name of this host, unless it has been given a job."""
        return () if self._jobs else (host_id(),)

    def submit(self, job: Job, host: str = "") -> None:
        """Keep it until it is asked for."""
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
        """There are news of a job as soon as they are asked for."""
        if self._jobs or within_s is None:
            return True
        time.sleep(within_s)
        return False

    def cancel(self, id_: int) -> None:
        """A job that is under way cannot be: nobody else has a turn until it ends."""
        self._cancelled.update(job.id for job in self._jobs if job.id == id_)

    def compilers(self) -> tuple[Compiler, ...]:
        """Those that the settings name, or all that are installed."""
        return self.bench.builder.compilers()

    def work(self, request: Request) -> Result:
        """Do it now; raises as :func:`bisector.executor.base.ended` takes it."""
        match request:
            case TrialRequest():
                return self._measure(request)
            case ControlRequest():
                return self._control(request)
            case BuildRequest():
                return self._build(request)

    def _measure(self, request: TrialRequest) -> Trial:
        """The facts of one trial, with its files; they come along with what is raised, too.

        Nothing else of this tool builds or measures on this host meanwhile, and before a commit is tried once more
        the host is quiet. Raises :class:`InfraError` when it is not in time.
        """
        run_dir, settings = self.bench.run_dir, request.settings or self.bench.settings
        again = request.again and not settings.machine.is_counted  # which sees nothing of the host
        with self._alone(TurnPurpose.MEASUREMENT, again=again), _as_attempt(run_dir):
            logs = trial_directory(run_dir, request.n, request.commit)
            try:
                trial = run_trial(self.bench, request, logs)
            except (AttemptFailed, TrialRefused) as error:
                if error.trial is not None:
                    with suppress(InfraError):  # what has happened is told, if need be without its files
                        error.trial = dataclasses.replace(error.trial, artifacts=collect(logs, run_dir))
                raise
            return dataclasses.replace(trial, artifacts=collect(logs, run_dir))

    def _control(self, request: ControlRequest) -> Fault | None:
        """What an end does now; its logs stay in the run directory.

        It is built in the directory in which the commits failed: make compiles what they changed, and what failed to
        compile. A directory in which it builds no more is emptied, since it may be what is damaged: half an object that
        a power failure left is enough. A build that was not done in time goes on from there when it is tried again.
        """
        commit, through = request.commit, request.through
        logs = self._logs("controls", f"{through}-{commit.short}")
        with self._alone(TurnPurpose.MEASUREMENT), _as_attempt(self.bench.run_dir):
            fault = try_control(self.bench, commit, request.compilers, through, logs)
            if fault is not None and fault.kind.of_compiling:
                for path in self.bench.build_dir.iterdir():  # it may be a link to a faster disk
                    remove_whole(path)
        return fault

    def _build(self, request: BuildRequest) -> Fault | Remade | None:
        subject, compiler = Subject(request.commit, fragment=request.fragment), request.compiler
        once_more = "once-more-" if request.measured is not None else ""
        command = re.sub(r"[^\w.+-]", "_", compiler.command)
        logs = self._logs("compilers", f"{once_more}{command}-{subject.short}")
        built = TrialRequest(0, Cell(subject, self.bench.settings.setup), {}, (compiler,), settings=request.settings)
        with self._alone(TurnPurpose.BUILD), _as_attempt(self.bench.run_dir):
            if request.measured is not None:
                return remake(self.bench, built, request.measured, logs)
            return try_build(self.bench, built, logs)

    @contextmanager
    def _alone(self, purpose: TurnPurpose, *, again: bool = False) -> Iterator[None]:
        limits, turn = self.bench.settings.contention, partial(self.turn or self.own_turn, purpose)
        with quiet_turn(limits, turn, lambda: locks.measurer() is not None, self._note) if again else turn():
            yield

    @contextmanager
    def own_turn(self, purpose: TurnPurpose) -> Iterator[None]:
        """A turn on this host, in which nothing else of this tool builds or measures."""
        with locks.measuring(self.bench.run_dir, self._note, purpose):
            end_leftovers(self.bench.run_dir, self._note)
            yield

    def _note(self, text: str) -> None:
        self.bench.tell(Note(text))

    def _logs(self, what: str, name: str) -> Path:
        """An empty directory for logs that are not of a trial; those of the time before are gone."""
        logs = self.bench.run_dir / what / name
        with _as_attempt(self.bench.run_dir):
            shutil.rmtree(logs, ignore_errors=True)
            logs.mkdir(parents=True)
        return logs


@contextmanager
def _as_attempt(run_dir: Path) -> Iterator[None]:
    """Files of a trial that cannot be made or read are an attempt that failed."""
    try:
        with our_files(run_dir):
            yield
    except AttemptFailed:
        raise
    except InfraError as error:
        raise AttemptFailed(str(error), error.hint, Stage.CHECKOUT, host_id()) from error


def kernel_builder(settings: KernelSettings) -> KernelBuilder:
    """The builder of these settings over the kernels that this user's runs have in common."""
    return KernelBuilder(settings, kept_kernels(), resources.kconfigs())


def kept_kernels() -> KernelCache:
    """The kernels that this user's runs have in common."""
    return KernelCache(resources.cache_home() / "kernels", KEPT_KERNELS_BYTES)


def kernels_of(settings: Settings, request: Request) -> tuple[str, ...]:
    """The keys of which a job takes a kept kernel, in the order of looking; none where it builds whatever is kept.

    Raises :class:`bisector.core.errors.UserError` for configurations that will not do.
    """
    match request:
        case ControlRequest(through=Stage.BUILD) | TrialRequest(anew=True):
            return ()
        case BuildRequest(measured=measured) if measured is not None:
            return ()
        case TrialRequest(image=image) if image is not None:
            return ()
    own = None if isinstance(request, ControlRequest) else request.settings
    builder = kernel_builder((own or settings).kernel)
    known = [request.kernel.key] if isinstance(request, TrialRequest) and request.kernel is not None else []
    keys = (builder.using(one).key(request.commit.tree) for one in request.compilers)
    return tuple(dict.fromkeys((*known, *keys)))


@contextmanager
def local_executor(
    settings: Settings, run_dir: Path, repository: Repository, tell: Listener, *, keep_sources: bool = False
) -> Iterator[LocalExecutor]:
    """Everything a trial needs on this host, for as long as the bisection lasts.

    What killed processes of any run left running is ended first. Left by an exception, or with ``keep_sources``, the
    sources and the build directory stay for whoever goes on with the run.
    """

    def note(text: str) -> None:
        tell(Note(text))

    with ExitStack() as stack:
        stack.enter_context(locks.using_caches(resources.cache_home()))
        end_leftovers(run_dir, note)
        # An image may have to be built, and libvirt tries what QEMU can do.
        with locks.measuring(run_dir, note, TurnPurpose.BUILD):
            image = guest_image(settings.machine, run_dir, note)
            machines = stack.enter_context(VirtualMachines.open(settings, image, run_dir, note))
        source = stack.enter_context(SourceTree(repository, run_dir, keep=keep_sources))
        builder = kernel_builder(settings.kernel)
        yield LocalExecutor(Bench(settings, run_dir, source, builder, machines, tell))


def end_leftovers(own: Path, tell: Callable[[str], None]) -> None:
    """End the builds and guests of other runs whose process is gone: their lock is there, and nobody holds it.

    A process may bear any directory as its mark: a rule of a kernel tree can start one so. Only directories that this
    user's runs are known to be in are looked at.
    Guests of what is no run that is known (doctor's, say) are ended where nobody holds the directory of libvirt's
    driver that they are in. What cannot be ended stays, and shows in the load of the host. Temporary directories of
    killed processes are removed without a word.
    """
    with suppress(InfraError):  # a list of runs that is damaged: whoever adds to it says so
        for run_dir in sorted(_at_work() - {Path(os.path.realpath(own))}):
            # Locked, so that nobody resumes it in this moment. A directory without that file is gone, say.
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
    """End each process and guest that is marked as this run's; how many there were."""
    found = list(guests(domain_prefix(run_dir)))
    return process.reap(run_dir) + sum(process.end(pid, partial(runs_guest, name=name)) for name, pid in found)


def _at_work() -> set[Path]:
    """Where something runs for this user's bisections and tests, or for others' bisections on this host.

    A guest's name has a digest of its run's directory in it. Raises :class:`InfraError` when the list of runs is
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
