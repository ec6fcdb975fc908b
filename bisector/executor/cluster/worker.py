"""A host's end of the connection: it connects, offers what it holds, has jobs watched, and connects again.

Dask's worker ends when its connection breaks (dask/distributed#6361); the job it watches does not, since that is a
process of its own, so a new worker takes its place. There is no nanny: it would end the worker without a word, and it
does not start one again after a cut (dask/distributed#6387).
"""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from distributed import Worker
from distributed.comm.core import connect
from distributed.core import send_recv

from bisector.core.errors import InfraError, UserError
from bisector.executor.cluster import dask_settings
from bisector.executor.cluster.security import Door, check_free, refusal
from bisector.executor.cluster.wire import INFORMATION, RECEIVE, RESOURCE, TOPIC, answered, information
from bisector.executor.duty import LOOK_SIGNAL, Duty, DutyFiles, Link
from bisector.executor.spec import Key
from bisector.executor.stock import Stock
from bisector.executor.watch import Desk
from bisector.host.detached import ProcessIdentity, boot_id
from bisector.store.log import now

_HTTP = "127.0.0.1:0"
_PROBE_S = 10.0
_AGAIN_S = 2.0
_REGISTER_S = "60 s"
_LAST_S = 60.0  # for the coordinator to fetch and to acknowledge the last result
_LAST_LOOK_S = 0.2
_LOOK_S = 10.0  # whether the host is drained, where whoever did that could not tell


class _BenchWorker(Worker):
    """Dask's worker with the desk that its one task asks for, and with what it is told of jobs."""

    def __init__(self, address: str, desk: Desk, stock: Stock | None, **options: Any) -> None:
        super().__init__(address, **options)
        self.desk = desk
        self._stock = stock
        self._told: set[asyncio.Future[None]] = set()
        self.handlers[RECEIVE] = self._received
        self.stream_handlers["bisector-cancel"] = self._in_thread(desk.cancel)
        self.stream_handlers["bisector-acknowledge"] = self._in_thread(desk.acknowledge)
        self.stream_handlers["bisector-over"] = self._over

    def _in_thread(self, what: Callable[[Key], None]) -> Callable[..., None]:
        """What takes as long as a process takes to end must not hold up the connection."""

        def do(key: Key) -> None:
            with suppress(InfraError, UserError, OSError):  # it is told again when the host joins the next time
                what(key)

        def begin(run: str, id: int) -> None:
            future = asyncio.get_running_loop().run_in_executor(None, do, Key(run, id))
            self._told.add(future)
            future.add_done_callback(self._told.discard)

        return begin

    def _over(self, run: str, id: int) -> None:
        """Forget a run once what was told before is done; its sources last, which its jobs have none of any more."""
        before, stock = tuple(self._told), self._stock

        async def later() -> None:
            if before:
                await asyncio.wait(before)
            await asyncio.to_thread(self._forget, Key(run, id))
            if stock is not None:
                _in_turn(lambda: stock.release(run))

        task = asyncio.ensure_future(later())
        self._told.add(task)
        task.add_done_callback(self._told.discard)

    def _forget(self, key: Key) -> None:
        with suppress(InfraError, UserError, OSError):  # what is left goes when nobody has used it for long
            self.desk.over(key)

    async def _received(self, message: bytes) -> bytes:
        loop, answer = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

        def give(content: bytes) -> None:
            if not answer.done():
                answer.set_result(content)

        def work() -> None:
            content = answered(self._stock, message)
            with suppress(RuntimeError):  # the loop has ended, and with it whoever asked
                loop.call_soon_threadsafe(give, content)

        _in_turn(work)
        content: bytes = await answer
        return content

    async def close(self, *words: Any, **options: Any) -> Any:
        """Let the jobs go on without a watcher, else this would wait for them."""
        self.desk.detach()
        return await super().close(*words, **options)


@dataclass(slots=True)
class HostWorker:
    """A host that works for whoever coordinates at ``door``; ``name`` is what its results are known by.

    Without a ``stock`` it takes in no sources.
    The coordinator fetches results from ``port``; 0 is any that is free.
    """

    door: Door
    desk: Desk
    name: str
    tell: Callable[[str], None]
    stock: Stock | None = None
    port: int = 0
    _leave: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _look: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _drained: bool = field(default=False, init=False)  # as the coordinator was told
    _since: str = field(default_factory=now, init=False)

    def run(self) -> None:
        """Work until told to leave: by the first SIGTERM or SIGINT once the job is done, by the second one at once.

        Raises :class:`UserError` for a certificate that is refused, where another worker has the spool, and for a port
        that is not free.
        """
        dask_settings.settle()
        if self.port:
            check_free(_own_address(self.door), self.port)
        with self.desk.spool.owned():
            asyncio.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._told_to_leave)
        loop.add_signal_handler(LOOK_SIGNAL, self._look.set)  # before it is told who is to be sent that
        self._report(Link.WAITING)
        for told in await asyncio.to_thread(self.desk.tidy):
            self.tell(told)
        for connection in count(1):
            if not await self._reachable() or not await self._connected(connection):
                return
            self._report(Link.WAITING)
            self.tell(f"the connection to {self.door.address} is lost; what runs goes on, and it is tried again")
            await self._pause()

    def _told_to_leave(self) -> None:
        if self._leave.is_set():
            for entry in self.desk.spool.entries():
                if entry.runs:
                    self.desk.cancel(entry.key)
            return
        self._leave.set()
        self._report(Link.LEAVING)
        self.tell("leaving when the job is done; once more ends it")

    async def _reachable(self) -> bool:
        """Wait for a coordinator; False when told to leave before. Raises :class:`UserError`."""
        told = False
        while not self._leave.is_set():
            try:
                arguments = self.door.security.get_connection_args("worker")
                comm = await connect(self.door.address, timeout=_PROBE_S, **arguments)
                await comm.close()
            except OSError as error:
                if why := refusal(error):
                    raise UserError(
                        f"{self.door.address} and this host do not trust each other: {why}",
                        "both need certificates of one authority that are valid today",
                    ) from error
            else:
                return True
            if not told:
                self.tell(f"nobody listens at {self.door.address}; waiting")
                told = True
            await self._pause()
        return False

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._leave.wait(), _AGAIN_S)

    async def _connected(self, connection: int) -> bool:
        """Work over one connection until it breaks; False when told to leave."""
        machine = f"{self.name} {boot_id()} {self.desk.spool.home}"
        if self.port:
            await self._forget_earlier()
        worker: Worker = _BenchWorker(
            self.door.address,
            self.desk,
            self.stock,
            name=f"{machine} {connection}",  # Dask refuses a name whose earlier worker it has not missed yet
            nthreads=1,
            memory_limit=0,
            resources=RESOURCE,
            security=self.door.security,
            protocol=self.door.protocol,
            host=_own_address(self.door),
            port=self.port,
            local_directory=str(self.desk.spool.home / "dask"),
            dashboard=False,
            dashboard_address=_HTTP,
            death_timeout=_REGISTER_S,
            startup_information={INFORMATION: lambda _: self._information(machine)},
        )
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(worker)
            except (OSError, ValueError, RuntimeError):  # whatever it is, it is tried again
                return not self._leave.is_set()
            self.tell(f"connected to {self.door.address} as {self.name}")
            self._report(Link.LEAVING if self._leave.is_set() else Link.CONNECTED)
            finished = asyncio.ensure_future(worker.finished())
            leaving = asyncio.ensure_future(self._leave.wait())
            try:
                while not (finished.done() or leaving.done()):
                    self._tell_if_drained(worker)
                    await self._looked({finished, leaving})
                if finished.done():
                    return not self._leave.is_set()
                await self._emptied(worker, finished)
            finally:
                leaving.cancel()
                finished.cancel()
        return False

    def _information(self, machine: str) -> dict[str, Any]:
        told = information(self.name, machine, self.desk)
        self._drained = told["drained"]
        return told

    def _tell_if_drained(self, worker: Worker) -> None:
        """Tell the coordinator when the host was drained, or released, since it was told the last time."""
        is_so = DutyFiles(self.desk.spool).drained() is not None
        if is_so != self._drained:
            self._drained = is_so
            with suppress(OSError):  # the connection is about to be lost; it is told with the next registration
                worker.log_event(TOPIC, {"drained": worker.address, "is so": is_so})
            self.tell("drained: takes no more trials until it is released" if is_so else "released: takes trials again")

    async def _looked(self, ended: "set[asyncio.Future[Any]]") -> None:
        """Wait until one of these has ended, or whether the host is drained is to be looked at."""
        looking = asyncio.ensure_future(self._look.wait())
        try:
            await asyncio.wait({*ended, looking}, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            looking.cancel()
            self._look.clear()

    def _report(self, link: Link) -> None:
        own = ProcessIdentity.of(os.getpid())
        duty = Duty(
            pid=own.pid,
            started=own.started,
            boot_id=own.boot_id,
            since=self._since,
            name=self.name,
            coordinator=self.door.address,
            link=link,
            link_since=now(),
        )
        DutyFiles(self.desk.spool).report(duty)

    async def _forget_earlier(self) -> None:
        """Have the scheduler forget the worker that had this address before, whose end it may not have noticed yet.

        It refuses two workers of one address ("Worker already exists").
        """
        address = f"{self.door.protocol}://{_own_address(self.door)}:{self.port}"
        arguments = self.door.security.get_connection_args("worker")
        with suppress(OSError):  # then it does not connect either
            comm = await connect(self.door.address, timeout=_PROBE_S, **arguments)
            await send_recv(comm, op="unregister", address=address, stimulus_id=f"{address} is back")
            await comm.close()

    async def _emptied(self, worker: Worker, finished: "asyncio.Future[Any]") -> None:
        """Take no more, and wait until the last job is over and its result acknowledged."""
        with suppress(OSError):  # the connection is about to be lost, which ends this, too
            worker.log_event(TOPIC, {"leaving": worker.address})
        loop = asyncio.get_running_loop()
        over: float | None = None
        while not finished.done():
            await asyncio.wait({finished}, timeout=_LAST_LOOK_S)
            if self.desk.watches:
                over = None
                continue
            over = over or loop.time()
            if not self.desk.spool.held() or loop.time() - over > _LAST_S:
                return


def _in_turn(work: Callable[[], None]) -> None:
    """Do what waits for a measurement, for hours maybe, in a thread that nobody waits for at the end."""

    def do() -> None:
        with suppress(InfraError, UserError):  # a run that is not let go of now is in time
            work()

    threading.Thread(target=do, name="what a host takes in", daemon=True).start()


def _own_address(door: Door) -> str:
    """The address of this host on the way to the coordinator; no packet is sent (connect(2) of a datagram socket)."""
    (family, kind, *_, target) = socket.getaddrinfo(door.host, door.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        host: str = probe.getsockname()[0]
    return f"[{host}]" if ":" in host else host
