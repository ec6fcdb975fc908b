"""The coordinator's end of the connection: a scheduler and a client on one event loop, in a thread of its own.

They live and die with the process that has the record: nothing of Dask's is worth keeping, since whatever is open is
in the record and on the hosts.
"""

import asyncio
import itertools
import pickle
import queue
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Self

from distributed import Client, Future, Scheduler, SchedulerPlugin

from bisector.core.errors import AttemptCancelled, AttemptFailed, BisectorError, InfraError
from bisector.core.trial import Stage
from bisector.executor.base import Failed, Finished
from bisector.executor.cluster import dask_settings
from bisector.executor.cluster.security import Door, cannot_listen, check_free
from bisector.executor.cluster.wire import RECEIVE, RESOURCE, TOPIC, RemoteReceiver, host_of, watch
from bisector.executor.freight import HostRefused
from bisector.executor.hosts import (
    Came,
    Drained,
    Host,
    HostNews,
    Joined,
    Leaving,
    Left,
    NotTaken,
    Told,
    Unheard,
    Unsent,
    Word,
)
from bisector.executor.spec import Key, Spec
from bisector.executor.supply import Supplies
from bisector.executor.watch import Declined, Returned
from bisector.store.log import now

_START_S = 60.0
_STOP_S = 60.0
_TAKE_S = 120.0  # a host gives nothing while somebody else measures there; a result does not wait for that
_RELEASE_S = 0.5
_LOST = "its connection was lost"
_LOOPBACK = "127.0.0.1"


class _Watch(SchedulerPlugin):
    """Tells of workers that come and go, and of what they log under our topic."""

    name = "bisector"

    def __init__(self, news: "queue.SimpleQueue[HostNews]") -> None:
        self._news = news
        self.hosts: dict[str, Host] = {}
        self.unsent: dict[tuple[Key, int], str] = {}  # attempts whose hosts are sent something first, and where

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        if (host := host_of(worker, scheduler.workers[worker].extra)) is not None:
            self.hosts[worker] = host
            self._news.put(Joined(host))

    def remove_worker(self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any) -> None:
        if self.hosts.pop(worker, None) is not None:
            for key, attempt in [one for one, address in self.unsent.items() if address == worker]:
                self.was_unsent(key, attempt, _LOST)
            self._news.put(Left(worker))

    def was_unsent(self, key: Key, attempt: int, why: str, *, refused: bool = False) -> None:
        """Tell that a job was not sent, unless that was told; before its host leaves, which may have had it else."""
        if self.unsent.pop((key, attempt), None) is not None:
            self._news.put(Unsent(key, attempt, why, refused))

    def log_event(self, topic: str, msg: Any) -> None:
        if topic != TOPIC:
            return
        match msg:
            case {"run": str(run), "id": int(id_), "event": bytes(event)}:
                self._news.put(Told(Key(run, id_), pickle.loads(event)))  # noqa: S301 - as each task's value is
            case {"leaving": str(address)}:
                self._news.put(Leaving(address))
            case {"drained": str(address), "is so": bool(is_so)}:
                self._news.put(Drained(address, is_so))


class Coordinator:
    """A :class:`bisector.executor.hosts.Connection`; a context manager.

    ``supplies`` are what hosts are sent before their jobs; without any they have to have it by themselves.
    ``dashboard`` is the port of Dask's own pages, which have no login, and are for this machine alone; 0 for none.
    """

    def __init__(self, door: Door, supplies: Supplies | None = None, dashboard: int = 0) -> None:
        self._door = door
        self._dashboard = dashboard
        self._supplies = supplies
        self._news: queue.SimpleQueue[HostNews] = queue.SimpleQueue()
        self._plugin = _Watch(self._news)
        self._thread = threading.Thread(target=self._run, name="connection to hosts", daemon=True)
        self._started = threading.Event()
        self._trouble: Exception | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unwanted: set[Key] = set()  # jobs that were not to begin any more while their hosts were sent something
        self._watches = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._scheduler: Scheduler
        self._client: Client

    def __enter__(self) -> Self:
        """Raises :class:`UserError` for an address that cannot be listened at."""
        dask_settings.settle()
        check_free(self._door.host, self._door.port, self._door.address)
        check_free(_LOOPBACK, self._dashboard)
        self._thread.start()
        if not self._started.wait(_START_S):
            raise InfraError(f"the scheduler has not begun to listen at {self._door.address} within {_START_S:g} s")
        if self._trouble is not None:
            self._thread.join(_STOP_S)
            raise cannot_listen(self._door.address, self._door.port, self._trouble) from self._trouble
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STOP_S)

    @property
    def address(self) -> str:
        """Where workers connect to."""
        address: str = self._scheduler.address
        return address

    def hosts(self) -> tuple[Host, ...]:
        """Those that are connected now; what was news before is no more."""

        async def now() -> tuple[Host, ...]:
            while not self._news.empty():
                self._news.get()
            return tuple(self._plugin.hosts.values())

        return asyncio.run_coroutine_threadsafe(now(), self._loop).result(_START_S)

    def submit(self, address: str, work: Spec | Key, attempt: int) -> None:
        """Have a job watched on a worker, and on no other."""
        self._soon(self._watched(address, work, attempt))

    def send(self, address: str, word: Word, key: Key) -> None:
        """A message over the stream that is open to a worker; a job that it has not got yet does not begin."""

        async def sent() -> None:
            if word is not Word.OVER and any(key == one for one, _ in self._plugin.unsent):
                self._unwanted.add(key)
            if (stream := self._scheduler.stream_comms.get(address)) is not None:
                with suppress(OSError):  # it is closing; the worker hears it when it is back
                    stream.send({"op": f"bisector-{word}", "run": key.run, "id": key.id})

        self._soon(sent())

    def news(self, timeout_s: float) -> HostNews | None:
        """The next news."""
        try:
            return self._news.get(block=timeout_s > 0, timeout=timeout_s or None)
        except queue.Empty:
            return None

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        def begin() -> None:
            self._task(work)

        self._loop.call_soon_threadsafe(begin)

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _watched(self, address: str, work: Spec | Key, attempt: int) -> None:
        key = work.key if isinstance(work, Spec) else work
        if isinstance(work, Spec) and not await self._is_supplied(address, work, attempt):
            return
        future: Future[Returned | Declined | None] = self._client.submit(
            watch,
            work,
            key=f"{key}/{next(self._watches)}",  # Dask would answer with the result of an earlier task of this key
            workers=[address],
            allow_other_workers=False,
            resources=RESOURCE,
            retries=0,
            pure=False,
        )
        try:
            returned = await future
        except asyncio.CancelledError:  # by our own end, or what Dask makes of a future that is lost
            if self._stop.is_set():
                raise
            self._news.put(Unheard(key, attempt, "the connection was lost"))
        except Exception as error:  # noqa: BLE001 - of the task or of Dask; the task's own trouble is in its value
            self._news.put(Unheard(key, attempt, f"{type(error).__name__}: {error}"))
        else:
            match returned:
                case Returned(news=news):
                    # Who hears of it may send the next host for the same kernel, and the next job to this one.
                    if isinstance(news, Finished):
                        took = self._take(address, news, work.kernels if isinstance(work, Spec) else ())
                        await asyncio.wait((self._task(took),), timeout=_TAKE_S)
                    self._news.put(Came(returned, attempt))
                case Declined():
                    self._news.put(NotTaken(key, attempt, address))
                case None:
                    self._news.put(Unheard(key, attempt, "its watcher was called away"))
        finally:
            # Dask's client sends nothing for 10 ms after this (batched.py, client.py): not what the next job waits for.
            self._loop.call_later(_RELEASE_S, future.release)

    async def _is_supplied(self, address: str, spec: Spec, attempt: int) -> bool:
        """Send a host what it lacks for a job; False, and news of the job, where that fails or nobody needs it."""
        key, supplies, host = spec.key, self._supplies, self._plugin.hosts.get(address)
        if supplies is None:
            return True
        if host is None:
            self._news.put(Unsent(key, attempt, _LOST))
            return False
        self._plugin.unsent[key, attempt] = address
        error: BisectorError | None = None
        try:
            await asyncio.to_thread(supplies.give, self._receiver(address), spec)
        except HostRefused as trouble:
            self._plugin.was_unsent(key, attempt, trouble.message, refused=True)
        except ConnectionError as trouble:
            self._plugin.was_unsent(key, attempt, str(trouble) or type(trouble).__name__)
        except InfraError as trouble:
            error = AttemptFailed(trouble.message, trouble.hint, Stage.CHECKOUT, host.name)
        except BisectorError as trouble:
            error = trouble
        except Exception as trouble:  # noqa: BLE001 - the job would never end
            error = BisectorError(f"a bug in bisector: {type(trouble).__name__}: {trouble}")
        if key in self._unwanted:
            error = AttemptCancelled(f"job {key} was cancelled", "", Stage.CHECKOUT, host.name)
        if self._plugin.unsent.pop((key, attempt), None) is None:  # that is told by now
            return False
        if error is not None:
            self._news.put(Came(Returned(key, Failed(key.id, host.name, error, now())), attempt))
        return error is None

    async def _take(self, address: str, ended: Finished, kernels: tuple[str, ...]) -> None:
        """Fetch the kernel that a host has built; if that fails, another host builds it again."""
        if self._supplies is not None:
            with suppress(BisectorError, OSError):
                await asyncio.to_thread(self._supplies.take, self._receiver(address), ended, kernels)

    def _receiver(self, address: str) -> RemoteReceiver:
        async def asked(message: bytes) -> bytes:
            if address not in self._plugin.hosts:
                raise ConnectionError(_LOST)
            try:
                answer: bytes = await getattr(self._scheduler.rpc(address), RECEIVE)(message=message)
            except OSError as error:  # Dask's own kinds
                raise ConnectionError(str(error) or type(error).__name__) from error
            return answer

        def ask(message: bytes) -> bytes:
            return asyncio.run_coroutine_threadsafe(asked(message), self._loop).result()

        return RemoteReceiver(ask)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        door = self._door
        try:
            scheduler = Scheduler(
                host=door.host,
                port=door.port,
                protocol=door.protocol,
                security=door.security,
                dashboard=self._dashboard > 0,
                # The server of it cannot be left out (dask/distributed#6431); without a dashboard its port is any.
                dashboard_address=f"{_LOOPBACK}:{self._dashboard}",
                plugins=(self._plugin,),
            )
            await scheduler
        except (OSError, RuntimeError, ValueError) as error:
            self._trouble = error
            return
        async with scheduler, Client(scheduler.address, asynchronous=True, security=door.security) as client:
            self._scheduler, self._client = scheduler, client
            self._started.set()
            await self._stop.wait()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
