"""An executor for jobs on other hosts: each job is a task on the Dask worker of one idle host.

If the worker, host or connection of a job dies, the job ends there and is lost; by the record it is measured again. One
thread decides; a thread for each job asks its host what it lacks, sends that, and waits for the result.
"""

import pickle
import queue
import shlex
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from distributed import Client, KilledWorker
from distributed.client import ClosedClientError
from distributed.comm.core import CommClosedError
from distributed.scheduler import NoValidWorkerError

from bisector.config import Settings
from bisector.core.deadline import Deadline
from bisector.core.errors import BisectorError, InfraError
from bisector.core.events import Listener, Note
from bisector.core.subject import Compiler
from bisector.core.trial import AttemptCancelled, AttemptFailed, Stage
from bisector.executor.base import Failed, Finished, Job, News, Progress
from bisector.fleet import hosts, spec
from bisector.fleet import job as on_host
from bisector.fleet.hosts import Hosts
from bisector.fleet.job import RESOURCE, TOPIC, Found, Introduction, Returned, Work
from bisector.fleet.spec import DamagedArchive, JobKey, Spec
from bisector.git import transfer
from bisector.git.repository import Repository
from bisector.kernel.cache import KernelCache
from bisector.store.log import now

_PATIENCE_S = 300.0  # how long a job waits for its host, which may be restarting
_NO_HOST_S = 3600.0  # how long the executor waits while no host is connected
_LOOK_S = 1.0
_ASK = "bisector fleet status"


@dataclass(frozen=True, slots=True)
class _Joined:
    """A worker that has connected: its introduction, or why it cannot be used."""

    address: str
    found: Introduction | str


@dataclass(frozen=True, slots=True)
class _Refused:
    """A host that cannot work for this run, and the job that it was given, which another host may take."""

    id: int
    address: str
    why: str


# The errors that Dask raises if a worker, its host or the connection to it is gone while it has a task, or if the
# scheduler is gone.
_GONE = (ClosedClientError, KilledWorker, NoValidWorkerError, CommClosedError, CancelledError, TimeoutError, OSError)

# What other threads send to the one that decides; an exception is raised in that thread.
Arrival: TypeAlias = News | Note | _Joined | _Refused | Exception


@dataclass(slots=True)
class _OpenJob:
    """A job that has not ended; ``wanted`` is the host it is meant for, ``address`` is empty until a host has it."""

    job: Job
    wanted: str
    waiting: Deadline
    host: str = ""
    address: str = ""
    cancelled: bool = False


@dataclass(slots=True)
class FleetExecutor:
    """An :class:`bisector.executor.base.Executor` over the workers of a Dask cluster.

    ``run`` is a name that no other run ever has. Returned files are put into ``run_dir`` as if they had been measured
    here, and kernels that were built elsewhere into ``kernels``. ``place`` is a directory for files on their way, and
    other threads put their news into ``arrived``.
    """

    client: Client
    hosts: Hosts
    run: str
    run_dir: Path
    settings: Settings
    repository: Repository
    kernels: KernelCache
    place: Path
    builds_with: Callable[[], tuple[Compiler, ...]]
    tell: Listener
    arrived: "queue.SimpleQueue[Arrival]"
    work: Work = on_host.here
    _workers: dict[str, Introduction | None] = field(default_factory=dict, init=False)  # by address; None: not used
    _names: dict[str, str] = field(default_factory=dict, init=False)  # the machine of each host name in this process
    _open: dict[int, _OpenJob] = field(default_factory=dict, init=False)
    _ready: deque[News] = field(default_factory=deque, init=False)
    _looked_s: float = field(default=0.0, init=False)
    _sending: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self.client.subscribe_topic(TOPIC, self._progress)

    @property
    def idle(self) -> tuple[str, ...]:
        """The names of the connected hosts without a job."""
        self._listen(0.0)
        return tuple(self._idle())

    def submit(self, job: Job, host: str = "") -> None:
        """Take a job, which waits here until ``host`` is idle, or any host if that is empty."""
        self._open[job.id] = _OpenJob(job, host, Deadline("a host", _PATIENCE_S))
        self._begin_waiting()

    def next(self) -> News:
        """Wait for the next news; raises ``ValueError`` without a job, :class:`InfraError` if files cannot be kept."""
        while not self._ready:
            if not self._open:
                raise ValueError("no job was submitted")
            self._listen(_LOOK_S)
        return self._ready.popleft()

    def wait(self, within_s: float | None) -> bool:
        """Wait for news, or for another idle host; raises :class:`InfraError` if there is no job, and no host comes."""
        idle, alone = set(self._idle()), not self._open
        longest_s = _NO_HOST_S if alone else float("inf")
        deadline = Deadline("news", longest_s if within_s is None else within_s)
        while not (self._ready or deadline.expired or set(self._idle()) - idle):
            self._listen(min(_LOOK_S, deadline.remaining_s))
        measuring = [one for one in self._workers.values() if one and one.name not in self.hosts.builders]
        if alone and not measuring and within_s is None and deadline.expired:
            raise InfraError(f"no host that measures was there for {_NO_HOST_S / 60:.0f} min", _ASK)
        return bool(self._ready)

    def cancel(self, id_: int) -> None:
        """End a job that has not ended; its last news is :class:`AttemptCancelled`."""
        if (one := self._open.get(id_)) is None:
            return
        one.cancelled = True
        if one.address:
            self.client.run(on_host.end, JobKey(self.run, id_), workers=[one.address], wait=False, on_error="ignore")
        else:
            self._end(one, AttemptCancelled(f"job {id_} was cancelled", "", Stage.CHECKOUT, one.wanted))

    def compilers(self) -> tuple[Compiler, ...]:
        """The compilers of the coordinator, which the hosts must have as well."""
        return self.builds_with()

    def _idle(self) -> Mapping[str, str]:
        at_work = {one.address for one in self._open.values()}
        return {one.name: address for address, one in self._workers.items() if one and address not in at_work}

    def _listen(self, within_s: float) -> None:
        """Take what arrives within that time, and update the list of workers if that is due."""
        if time.monotonic() - self._looked_s >= _LOOK_S:
            self._looked_s = time.monotonic()
            self._look()
        with suppress(queue.Empty):
            self._take(self.arrived.get(timeout=within_s) if within_s else self.arrived.get_nowait())
            while True:
                self._take(self.arrived.get_nowait())
        self._begin_waiting()

    def _look(self) -> None:
        """Note which workers have connected, and which are gone."""
        # The scheduler itself is asked: Client.scheduler_info() may return the result of the client's own periodic
        # query, which asks for no workers at all (distributed/client.py, _update_scheduler_info).
        scheduler: Any = self.client.scheduler
        if scheduler is None:  # the client has closed itself, since its scheduler did not come back in time
            raise InfraError("the Dask scheduler is gone", _ASK)
        try:
            there: Mapping[str, Mapping[str, Any]] = self.client.sync(scheduler.identity, n_workers=-1)["workers"]
        except (OSError, RuntimeError):  # the threads of the jobs report a lost connection; RuntimeError: it closes now
            return
        for address in self._workers.keys() - there.keys():
            if (gone := self._workers.pop(address)) is not None:
                self.tell(Note(f"{gone.name} is not there any more"))
        for address in there.keys() - self._workers.keys():
            self._workers[address] = None
            has_resource = there[address]["resources"].get(RESOURCE) == 1
            threading.Thread(target=self._introduce, args=(address, has_resource), daemon=True).start()

    def _introduce(self, address: str, has_resource: bool) -> None:
        found: Introduction | str
        if not has_resource:
            found = f"it was not started with --resources {RESOURCE}=1"
        else:
            try:
                found = self.client.run(on_host.introduce, workers=[address])[address]
            except Exception as error:  # noqa: BLE001 - a worker with another bisector, or none, may raise anything
                found = f"its worker does not answer as one of bisector: {type(error).__name__}: {error}"
        self.arrived.put(_Joined(address, found))

    def _take(self, news: Arrival) -> None:
        match news:
            case Exception():
                raise news
            case Note():
                self.tell(news)
            case _Joined(address=address, found=found):
                if address in self._workers:
                    self._join(address, found)
            case _Refused(id=id_, address=address, why=why):
                if (worker := self._workers.get(address)) is not None:
                    self.tell(Note(f"{worker.name} is not used: {why}"))
                    self._workers[address] = None
                one = self._open[id_]
                one.host, one.address, one.waiting = "", "", Deadline("a host", _PATIENCE_S)
                if one.cancelled:
                    self.cancel(id_)
            case Progress(id=id_):
                if id_ in self._open:
                    self._ready.append(news)
            case Finished(id=id_) | Failed(id=id_):
                self._open.pop(id_)
                self._ready.append(news)

    def _join(self, address: str, found: Introduction | str) -> None:
        """Use a worker that fits; figures are compared by the name of their host, so a name belongs to one machine."""
        others = [one for one in self._workers.values() if one is not None]
        if isinstance(found, str):
            why, name = found, f"the worker at {address}"
        else:
            name = found.name
            why = spec.version_differences(found.versions)
            if self._names.setdefault(found.name, found.machine) != found.machine:
                why = "another machine has that name, too; give it a name of its own"
            elif twin := next((one.name for one in others if one.machine == found.machine), None):
                why = f"it is the same machine as {twin}" if twin != name else "the machine has another worker"
        if why or isinstance(found, str):
            self.tell(Note(f"{name} is not used: {why}"))
        else:
            self._workers[address] = found
            self.tell(Note(f"{name} is there"))

    def _begin_waiting(self) -> None:
        """Give waiting jobs to idle hosts; a job whose host is not connected for ``_PATIENCE_S`` seconds has failed."""
        for one in [one for one in self._open.values() if not one.address]:
            idle = self._idle()
            if (name := one.wanted or next(iter(idle), "")) in idle:
                one.host, one.address = name, idle[name]
                threading.Thread(target=self._do, args=(one.job, name, one.address), daemon=True).start()
            elif any(worker and one.wanted in ("", worker.name) for worker in self._workers.values()):
                one.waiting = Deadline("a host", _PATIENCE_S)
            elif one.waiting.expired:
                where = one.wanted or "no host"
                why = f"{where} was not there for job {one.job.id} within {_PATIENCE_S / 60:g} min"
                self._end(one, AttemptFailed(why, _ASK, Stage.CHECKOUT, one.wanted))

    def _end(self, one: _OpenJob, error: BisectorError) -> None:
        del self._open[one.job.id]
        self._ready.append(Failed(one.job.id, one.host or one.wanted, error, now()))

    def _progress(self, event: tuple[float, Any]) -> None:
        # Dask lets a running task report by a topic only, which all runs on a cluster share.
        match event[1]:
            case {"run": self.run, "id": int(id_), "event": bytes(told)}:
                self.arrived.put(Progress(id_, pickle.loads(told)))  # noqa: S301 - as each task's value is

    # In the thread of a job

    def _do(self, job: Job, name: str, address: str) -> None:
        news: Arrival
        try:
            news = self._done(job, name, address)
        except InfraError as error:
            news = Failed(job.id, name, AttemptFailed(error.message, error.hint, Stage.CHECKOUT, name), now())
        except BisectorError as error:
            news = Failed(job.id, name, error, now())
        except Exception as error:  # noqa: BLE001 - a bug, which next() raises in the thread of the loop
            news = error
        self.arrived.put(news)

    def _done(self, job: Job, name: str, address: str) -> "News | _Refused | InfraError":
        host = next((one for one in self.hosts.hosts if one.name == name), None)
        spec = Spec.of(self.run, job, self.settings, host.disks if host is not None else {})
        compilers, sha, first = spec.request.compilers, spec.request.commit.sha, next(iter(spec.kernels), "")
        # Workers of an existing cluster find the repository at the same path as here, or cannot build.
        borrowed = str(self.repository.top) if host is None else host.repository
        find = partial(self._task, name, address, on_host.find, replace(spec, inputs=()))
        found: Found = find(transfer.ancestors(self.repository, sha), borrowed)
        for ours, theirs in zip(compilers, found.compilers, strict=True):
            if ours.identity != theirs.identity:  # its kernel would have different code for the same commit
                why = f"its compiler {ours.command} is {theirs.identity}, and that of this run is {ours.identity}"
                return _Refused(job.id, address, why)
        kept = tuple(key for key in spec.kernels if self.kernels.content(key))
        kernel = None
        # If the host's kernel differs from the coordinator's, all hosts measure the coordinator's.
        if first in kept and self.kernels.content(first) != found.kernel:
            kernel = self.kernels.pack(first)
        if not (found.has_commit or found.kernel or kernel is not None):
            try:
                self._push(name, sha, found)
            except InfraError:  # the host's copies of earlier commits may be damaged
                self._push(name, sha, find((), borrowed, anew=True))
        spec = replace(spec, kept=kept, kernel=kernel)
        returned: Returned = self._task(name, address, on_host.run_job, spec, self.work)
        return self._kept(returned, name)

    def _push(self, name: str, sha: str, found: Found) -> None:
        """Send a commit by SSH, which is possible only for the hosts of a file."""
        host = next((one for one in self.hosts.hosts if one.name == name), None)
        if host is None:
            raise InfraError(
                f"{name} has not the sources of {sha[:12]}", f"its workers have to find {self.repository.top} there"
            )
        to = transfer.Address(
            f"{host.ssh}:{found.mirror}",
            shlex.join(hosts.client(host)),
            hosts.remote(host, "fleet", "on-host", "receive-pack", self.run),
            transfer.references(self.run),
        )
        with self._sending:  # all jobs send from the same repository
            transfer.push(self.repository, self.place / "sender.git", sha, found.known, to)

    def _kept(self, returned: Returned, name: str) -> "News | InfraError":
        """The news of a returned job, after its files are put into the run directory and its kernel into the cache."""
        if returned.kernel is not None:
            with suppress(BisectorError, OSError):  # without it, another host builds the kernel again
                self.kernels.unpack(*returned.kernel)
        news = replace(returned.news, host=name)
        try:
            if returned.files is not None:
                returned.files.unpack(self.run_dir)
        except DamagedArchive as error:
            trouble = AttemptFailed(f"{name}: {error.message}", error.hint, Stage.CHECKOUT, name)
            return Failed(news.id, name, trouble, now())
        except InfraError as error:  # trouble of this machine's disk: the run stops; resumed, it repeats the trial
            return error
        return news

    def _task(self, name: str, address: str, function: Callable[..., Any], *words: object, **named: object) -> Any:
        """The value of a task on one worker; raises the task's error, and :class:`InfraError` if the worker is gone."""
        try:
            future = self.client.submit(
                function, *words, workers=[address], resources={RESOURCE: 1}, retries=0, pure=False, **named
            )
            try:
                return future.result()
            finally:
                future.release()
        except _GONE as error:
            why = f"the worker of {name}, or the connection to it, has ended ({type(error).__name__})"
            raise InfraError(why, _ASK) from error
