"""Processes of jobs without the time that an interpreter takes to load what a job needs, 0.5 s of a core.

A server that has loaded it forks a process for each job, as multiprocessing's fork server does. That one is not used:
its processes are joined when their parent leaves, and a job is to outlive whoever began it.

The process of the next job is forked while the one before is under way, and waits: to copy the page tables takes
5 ms, which nobody is to wait for between two jobs.

A job is begun once at most. The server is given one only after it has said that it is ready; one that was given and is
not begun is a job whose process died, for whoever watches it. The server has one thread, so that what it forks is
sound (fork(2)), takes no time of a core while it waits, and ends when its worker has ended or has no more jobs.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from bisector.executor import child
from bisector.host import detached
from bisector.host.detached import KEPT_FILE

MODULE = __name__
IDLE_S = 120.0  # an idle worker takes little memory
_READY = b"ready"
_TAKEN = b"taken"
_MOST_BYTES = 1 << 16  # a few paths
# OpenBLAS begins its threads when numpy is loaded.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}


@dataclass(slots=True)
class ForkServer:
    """Begins processes of jobs of an engine, ``module:function``; it is loaded beside the first one.

    It may be called from one thread at a time.
    """

    engine: str
    idle_s: float = IDLE_S
    _server: socket.socket | None = field(default=None, init=False)
    _ready: bool = field(default=False, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forget()

    def __call__(self, words: Sequence[str], log: Path, kept_file: int) -> None:
        """Begin a job as :func:`bisector.executor.child.begin` does, which it is left to while the server loads."""
        if self.is_ready and self._given(words, log, kept_file):
            return
        child.begin(words, log, kept_file)
        if self._server is None:
            self._start()

    @property
    def is_ready(self) -> bool:
        """Whether the server is there and has loaded; one that has ended is forgotten."""
        if self._server is None:
            return False
        if select.select([self._server], [], [], 0.0)[0]:
            with suppress(ConnectionError):
                if self._server.recv(len(_READY)) == _READY:
                    self._ready = True
                    return True
            self._forget()
        return self._ready

    def _given(self, words: Sequence[str], log: Path, kept_file: int) -> bool:
        """Whether the server was given the job, so that nobody else may begin it."""
        if self._server is None:
            return False
        message = json.dumps([os.fspath(log), *words]).encode()
        try:
            socket.send_fds(self._server, [message], [kept_file])
        except ConnectionError:
            self._forget()
            return False
        return True

    def _start(self) -> None:
        self._server, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            argv = (sys.executable, "-P", "-m", MODULE, self.engine, str(self.idle_s))
            detached.start(argv, Path(os.devnull), other.fileno(), _ONE_THREAD)

    def _forget(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server, self._ready = None, False


def main(argv: Sequence[str]) -> int:
    """``ENGINE IDLE_S``: the end of the server; or that of a job, in the process that was forked for it."""
    engine, idle_s = argv[0], float(argv[1])
    importlib.import_module(engine.partition(":")[0])
    usual = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies (wait(2), notes)
    with socket.socket(fileno=KEPT_FILE) as worker:
        worker.settimeout(idle_s)
        gc.freeze()  # pages that all jobs share stay so
        words = _served(worker)
    if words is None:
        return 0
    signal.signal(signal.SIGCHLD, usual)
    return child.main(words)


def _served(worker: socket.socket) -> Sequence[str] | None:
    """Fork processes until one of them gets no job; in each of them, the words of its job, or None."""
    with suppress(ConnectionError):
        worker.send(_READY)
    while True:
        taken, takes = os.pipe()
        if not os.fork():
            os.close(taken)
            return _job(worker, takes)
        os.close(takes)
        with os.fdopen(taken, "rb") as end:
            if not end.read():
                return None


def _job(worker: socket.socket, takes: int) -> Sequence[str] | None:
    """Wait for a job, say that it is taken, and become its process; None when there is no more."""
    try:
        message, descriptors, *_ = socket.recv_fds(worker, _MOST_BYTES, 1)
    except (TimeoutError, ConnectionError):
        return None
    if not message:
        return None
    worker.close()
    with suppress(BrokenPipeError), os.fdopen(takes, "wb") as end:  # the server may have been killed
        end.write(_TAKEN)
    log, *words = cast("list[str]", json.loads(message))
    _become(Path(log), *descriptors)
    return words


def _become(log: Path, lock: int) -> None:
    """What :func:`bisector.host.detached.start` gives a process."""
    os.setsid()
    with log.open("ab") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.dup2(lock, KEPT_FILE)
    if lock != KEPT_FILE:
        os.close(lock)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)  # as after fork(2): to take apart what was loaded takes 40 ms, which the next job would wait for
