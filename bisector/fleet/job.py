"""The functions that the coordinator sends as Dask tasks to the worker of a host.

A trial runs in a process of its own, which ends with its worker: it reads a pipe that the kernel closes however the
worker dies. It then cleans up as after Ctrl-C; processes and guests that it leaves are found by their marks and names,
and ended, before this host takes the next job (:func:`bisector.executor.local.end_leftovers`).
"""

import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias, cast

from distributed import Worker, get_worker

from bisector.core.deadline import Deadline, DeadlineExpired, retried
from bisector.core.errors import BisectorError, InfraError
from bisector.core.events import Event, Listener, Note, StageStarted
from bisector.core.subject import Compiler
from bisector.core.trial import AttemptCancelled, AttemptFailed, Stage, Trial
from bisector.executor.base import Failed, Finished, Job
from bisector.executor.local import end_all_of, kept_kernels, local_executor
from bisector.fleet.spec import WRITTEN, JobKey, ResultArchive, Spec, Versions, own_versions, version_differences
from bisector.fleet.status import UnderWay
from bisector.git.repository import Repository
from bisector.git.transfer import SOURCES, Mirror
from bisector.host import locks
from bisector.host.files import our_files
from bisector.host.identity import host_id, machine_id
from bisector.host.locks import Held, TurnPurpose, held
from bisector.kernel import toolchain
from bisector.store.log import now
from bisector.store.rundir import LOCK, jobs_home

TOPIC = "bisector"
RESOURCE = "trial"
_OUTPUT = "output"  # stdout and stderr of the process of a job
GRACE_S = 40.0  # for shutting down a guest and leaving a worktree in order
_OTHERS_WAITS_S = (5.0,) * 24  # longer in all than the time that a job has to end after its worker has died
_UNUSED_S = 30 * 24 * 3600.0
_UNDER_WAY: dict[JobKey, Connection] = {}

# Does the job of a spec in a directory, with the sources of a repository; the context yields its last news.
Work: TypeAlias = Callable[[Spec, Path, Path, Listener], AbstractContextManager[Finished | Failed]]


@dataclass(frozen=True, slots=True)
class Introduction:
    """A worker's description of its host; each machine has its own ``machine`` and its own name."""

    name: str
    machine: str
    versions: Versions


@dataclass(frozen=True, slots=True)
class Found:
    """What a host has of what a job needs: compilers, a cached kernel's digest, the commit, and the run's commits."""

    compilers: tuple[Compiler, ...]
    kernel: str
    has_commit: bool
    known: tuple[str, ...]
    mirror: str


@dataclass(frozen=True, slots=True)
class Returned:
    """The result of a job: its last news, its files, and the kernel if the coordinator lacks it."""

    news: Finished | Failed
    files: ResultArchive | None = None
    kernel: tuple[str, bytes] | None = None


def introduce(dask_worker: Worker) -> Introduction:
    """Introduce this worker; if it was started without a name, its name is that of its host, as trials record it."""
    name = str(dask_worker.name)
    return Introduction(
        host_id() if name == dask_worker.address or name.isdigit() else name,
        f"{machine_id()} {jobs_home()}",
        own_versions(),
    )


def find(spec: Spec, ancestors: tuple[str, ...], borrowed: str | None, *, anew: bool = False) -> Found:
    """Find out what this host has of what a job needs; in its turn, since walking git trees disturbs measurements.

    ``ancestors`` are commits that the host may have, and ``borrowed`` is a clone there whose objects it may use. With
    ``anew``, commits that were pushed for the run are dropped, to be pushed again. Raises
    :class:`bisector.core.errors.UserError` if a compiler does not work, and :class:`InfraError`.
    """
    home, worker, run, sha = jobs_home(), get_worker(), spec.key.run, spec.request.commit.sha

    def tell(text: str) -> None:
        worker.log_event(TOPIC, _message(spec.key, Note(text)))

    with our_files(home), locks.measuring(home, tell, TurnPurpose.BUILD):
        mirror = Mirror(home / SOURCES, Path(borrowed) if borrowed is not None else None)
        mirror.prepare()
        mirror.use(run)
        if anew:
            mirror.release(run)
        mirror.release_unused(_UNUSED_S)
        whole = next(filter(mirror.has, (sha, *ancestors)), None)
        if whole is not None:
            mirror.keep(run, whole)
        return Found(
            tuple(toolchain.named(one.command) for one in spec.request.compilers),
            kept_kernels().content(spec.kernels[0]) if spec.kernels else "",
            whole == sha,
            mirror.known(run),
            str(mirror.path),
        )


def run_job(spec: Spec, work: Work) -> Returned:
    """Do a job in a process of its own, and tell its progress."""
    worker = get_worker()
    context = multiprocessing.get_context("forkserver")  # a new interpreter would need seconds to load its modules
    context.set_forkserver_preload([__name__])
    ours, theirs = context.Pipe()
    process = context.Process(target=_child, args=(theirs, spec, work), name=f"job {spec.key}")
    process.start()
    theirs.close()
    _UNDER_WAY[spec.key] = ours
    deadline, returned = Deadline("the end of a job", spec.deadline_s), cast("Returned | None", None)
    try:
        with suppress(EOFError, OSError):
            while returned is None and ours.poll(deadline.remaining_s):
                told = ours.recv()
                if isinstance(told, Returned):
                    returned = told
                else:
                    worker.log_event(TOPIC, _message(spec.key, told))
        if returned is None and deadline.expired:
            why = f"it was not over after {deadline.seconds / 60:.0f} min, and was ended"
            returned = _failed(spec, InfraError(f"job {spec.key}: {why}"))
            end(spec.key)
        process.join(GRACE_S)
    finally:
        del _UNDER_WAY[spec.key]
        if process.is_alive():
            process.kill()
        process.join()
        ours.close()
        if process.exitcode:
            end_all_of(jobs_home() / spec.key.run)
    if returned is None:
        signalled = process.exitcode is not None and process.exitcode < 0
        how = signal.Signals(-process.exitcode).name if signalled else f"status {process.exitcode}"  # type: ignore[operator] # it has ended
        hint = f"on {host_id()}: dmesg | tail, if it was short of memory"
        return _failed(spec, InfraError(f"the process of job {spec.key} ended with {how} and no result", hint))
    return returned


def end(key: JobKey) -> None:
    """Ask the process of a job whose result is no longer needed to clean up and end."""
    if (pipe := _UNDER_WAY.get(key)) is not None:
        with suppress(OSError):  # the process is ending already
            pipe.send(None)


def end_all() -> None:
    """Ask all running jobs to end, and wait up to ``GRACE_S`` seconds until they have cleaned up."""
    for key in tuple(_UNDER_WAY):
        end(key)
    with suppress(DeadlineExpired):
        Deadline("the end of what is under way", GRACE_S).poll(lambda: None if _UNDER_WAY else True)


@contextmanager
def here(spec: Spec, place: Path, repository: Path, tell: Listener) -> Iterator[Finished | Failed]:
    """Do a job on this host, and yield its news; sources and build directory stay for the next job of its run."""
    settings, request = spec.unpacked(place)
    with local_executor(settings, place, Repository.open(repository, run_marker=place), tell) as executor:
        executor.submit(Job(spec.key.id, request))
        yield executor.next()


def _message(key: JobKey, event: Event) -> dict[str, object]:
    return {"run": key.run, "id": key.id, "event": pickle.dumps(event)}


def _failed(spec: Spec, error: BisectorError) -> Returned:
    """The end of a job that its host could not do; faults of its commit do not come here, since they are results."""
    return _ended(spec, AttemptFailed(error.message, error.hint, Stage.CHECKOUT, host_id()))


def _ended(spec: Spec, error: BisectorError) -> Returned:
    return Returned(Failed(spec.key.id, host_id(), error, now()))


# The process of a job


def _child(pipe: Connection, spec: Spec, work: Work) -> None:
    os.setsid()  # Ctrl-C in the terminal of the worker interrupts the worker alone
    place = jobs_home() / spec.key.run
    place.mkdir(parents=True, exist_ok=True)
    with (place / _OUTPUT).open("wb") as output:  # sshd(8) waits for all processes that hold the worker's output
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())
    signal.signal(signal.SIGTERM, _interrupted)
    threading.Thread(target=_end_with_worker, args=(pipe,), daemon=True).start()
    sent = False

    def send(returned: Returned) -> None:
        nonlocal sent
        sent = True
        with suppress(OSError):  # the worker is gone
            pipe.send(returned)

    try:
        _do(spec, work, pipe, send)
    except KeyboardInterrupt:
        send(_ended(spec, AttemptCancelled(f"job {spec.key} was ended", "", Stage.CHECKOUT, host_id())))
    except BisectorError as error:
        if not sent:  # an error in cleaning up after the result was sent will show in the next job
            send(_failed(spec, error))
    except Exception as error:  # noqa: BLE001 - the outermost frame of a process
        traceback.print_exc()
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = f"a bug in bisector on {host_id()}: {type(error).__name__}: {error} ({last.filename}:{last.lineno})"
        if not sent:
            send(_ended(spec, BisectorError(text)))


def _do(spec: Spec, work: Work, pipe: Connection, send: Callable[[Returned], None]) -> None:
    place = jobs_home() / spec.key.run
    if apart := version_differences(own_versions(), spec.versions):
        raise InfraError(f"bisector was installed anew on {host_id()} while its worker ran: {apart}")

    def tell(event: Event) -> None:
        if isinstance(event, StageStarted):
            UnderWay.of(spec, event).write(place)
        with suppress(OSError):  # the worker is gone, so this process is about to end as well
            pipe.send(event)

    with our_files(place), ExitStack() as stack:
        retried(lambda: stack.enter_context(held(place / LOCK)), Held, _OTHERS_WAITS_S)
        UnderWay.of(spec).write(place)
        for name in WRITTEN:  # remove files that a killed job has left
            shutil.rmtree(place / name, ignore_errors=True)
        if spec.kernel is not None:
            kept_kernels().unpack(spec.kernels[0], spec.kernel)
        spec.unpack(place)
        with work(spec, place, place.parent / SOURCES, tell) as news:
            files = ResultArchive.of(place)
            send(Returned(_without(news, files.left_out), files, _new_kernel(spec, news)))


def _without(news: Finished | Failed, left_out: tuple[str, ...]) -> Finished | Failed:
    """The news of a trial without the artifacts that were too large to send."""
    error = news.error if isinstance(news, Failed) else None
    trial = news.result if isinstance(news, Finished) else getattr(error, "trial", None)
    if not left_out or not isinstance(trial, Trial):
        return news
    kept = replace(trial, artifacts=tuple(one for one in trial.artifacts if one.path not in left_out))
    if isinstance(news, Finished):
        return replace(news, result=kept)
    if isinstance(error, AttemptFailed):
        error.trial = kept
    return news


def _new_kernel(spec: Spec, news: Finished | Failed) -> tuple[str, bytes] | None:
    """The key and archive of the kernel that was built or cached here, if the coordinator has none with that key."""
    if not isinstance(news, Finished):
        return None
    keys = spec.kernels
    if isinstance(trial := news.result, Trial):
        keys = (trial.kernel.key,) if trial.kernel is not None else ()
    cache = kept_kernels()
    for key in keys:
        if key not in spec.kept and cache.content(key):
            return key, cache.pack(key)
    return None


def _end_with_worker(pipe: Connection) -> None:
    """Wait until the worker asks for the end, or ends, then clean up; a timer of the kernel ends a stuck process."""
    with suppress(EOFError, OSError):
        pipe.recv()
    signal.setitimer(signal.ITIMER_REAL, GRACE_S)  # without a handler it ends the process (setitimer(2), signal(7))
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGTERM)


def _interrupted(_signum: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the cleaning up
    raise KeyboardInterrupt
