"""An executor that runs several jobs at a time on this host, each in a thread, for guests whose time is counted.

The figures of a guest whose clock counts its instructions do not depend on other work of the host, so each core may run
a guest, while make runs as well. One job at a time builds (:class:`bisector.trial.runner.Bench`), as the single build
directory makes each build short after the previous one.

A cancelled job ends from within: it tells each stage and each sample of a run, and the call that tells raises an error
in it. A job that tells nothing for long ends with the executor, which ends its processes and guests.
"""

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Self

from bisector.config import Settings
from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError, Interrupted
from bisector.core.events import Event
from bisector.core.subject import Compiler
from bisector.executor.base import Job, News, Progress, cancelled, ended
from bisector.executor.local import LocalExecutor, end_all_of
from bisector.host.load import host_id
from bisector.host.locks import TurnPurpose
from bisector.vm.accelerator import room_for_counted

_JOIN_S = 0.5
_END_S = 120.0
OTHERS_LOOK_S = 0.2  # longer than the interval in which other waiting runs poll for the turn


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
            self._sharers += 1
        try:
            yield
        finally:
            with self._free:
                self._sharers -= 1
                if not self._sharers:
                    self._give_back(self._until)
                    self._until = None
                    self._free.notify_all()

    def _give_back(self, until: Deadline | None) -> None:
        self._taken.close()
        if until is not None and until.expired:
            time.sleep(OTHERS_LOOK_S)


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
    _news: "queue.SimpleQueue[News | BaseException]" = field(default_factory=queue.SimpleQueue, init=False)
    _heard: deque[News | BaseException] = field(default_factory=deque, init=False)
    _waiting: deque[Job] = field(default_factory=deque, init=False)
    _threads: dict[int, threading.Thread] = field(default_factory=dict, init=False)
    _needless: set[int] = field(default_factory=set, init=False)
    _of_builder: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._turn = SharedTurn(self.local.own_turn)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        free = (self._has_room, host_id()), (bool(self.builder) and not self._of_builder, self.builder)
        return tuple(name for is_free, name in free if is_free)

    @property
    def _has_room(self) -> bool:
        return len(self._threads.keys() - self._of_builder) < self.count

    def submit(self, job: Job, host: str = "") -> None:
        """Begin a job, or queue it until another one has ended."""
        if host and host == self.builder:
            self._of_builder.add(job.id)
            self._start(job, host)
        else:
            self._waiting.append(job)
            self._begin()

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
            self._begin()
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
        if id_ in self._threads or any(job.id == id_ for job in self._waiting):
            self._needless.add(id_)

    def compilers(self) -> tuple[Compiler, ...]:
        """The compilers that the settings name, or all that are installed."""
        return self.local.compilers()

    def _begin(self) -> None:
        while self._waiting and self._has_room:
            self._start(self._waiting.popleft(), host_id())

    def _start(self, job: Job, host: str) -> None:
        thread = threading.Thread(target=self._do, args=(job, host), name=f"job {job.id}", daemon=True)
        self._threads[job.id] = thread
        thread.start()

    def _do(self, job: Job, host: str) -> None:
        bench = replace(self.local.bench, tell=partial(self._tell, job.id))
        local = LocalExecutor(bench, self._turn)
        try:
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
