"""The process of one job on a host that works for others: it does the job, keeps what came of it, and ends.

It leads a session of its own and needs nobody: neither who started it nor any connection. Whoever looks finds it by the
lock that it was given, and what it has done in the spool (:mod:`bisector.executor.spool`).

Its time is bounded three times: it ends itself at the deadline of its spec, cleaning up; the kernel ends it a moment
later (setitimer(2) without a handler), should it be stuck where Python runs no code; and whoever watches it looks, too.
"""

import importlib
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import cast

from bisector.core.deadline import Deadline, retried
from bisector.core.errors import AttemptFailed, BisectorError, InfraError
from bisector.core.trial import Stage
from bisector.executor.base import Failed, Finished
from bisector.executor.engine import Engine
from bisector.executor.spec import Key, Spec
from bisector.executor.spool import Entry
from bisector.host import detached
from bisector.host.detached import KEPT_FILE, ProcessIdentity
from bisector.host.load import host_id
from bisector.host.locks import Held, held
from bisector.store.log import now
from bisector.store.rundir import LOCK

MODULE = __name__
GRACE_S = 40.0  # a guest is shut down, a worktree left in order; of a run that is reset nothing runs in a minute
_OTHERS_WAITS_S = (5.0,) * 24  # longer than a cancelled job is given to end
# Where an executor puts the files of what it does, below its run directory.
WRITTEN = ("trials", "controls", "compilers")


def begin(words: Sequence[str], log: Path, kept_file: int) -> None:
    """Start the process of a job: the words of :func:`main`, where its output goes, and its lock, as an open file."""
    detached.start((sys.executable, "-P", "-m", MODULE, *words), log, kept_file, {})


def main(argv: Sequence[str]) -> int:
    """``ENTRY ENGINE REPOSITORY``: the directory in the spool, ``module:function``, the mirror."""
    entry, engine, repository = _entry(Path(argv[0])), _engine(argv[1]), Path(argv[2])
    os.set_inheritable(KEPT_FILE, False)
    entry.sign(ProcessIdentity.of(os.getpid()))
    signal.signal(signal.SIGTERM, _end)
    spec = entry.spec()
    deadline = _bounded(spec)
    try:
        _do(entry, spec, engine, repository)
    except KeyboardInterrupt:
        if not deadline.expired:
            return 128 + signal.SIGTERM
        minutes = deadline.seconds / 60
        _give_up(entry, InfraError(f"job {spec.key} was not over after {minutes:.0f} min, and was ended"))
    return 0


def _do(entry: Entry, spec: Spec, engine: Engine, repository: Path) -> None:
    place = entry.place
    try:
        place.mkdir(exist_ok=True)
        for name in WRITTEN:  # what a killed job of this run left there
            shutil.rmtree(place / name, ignore_errors=True)
        with _alone_in(place), engine(spec, place, repository, entry.tell) as news:
            _keep(entry, news)
    except Held as error:
        _give_up(entry, InfraError(f"another job of this run is under way on this host: {error}"))
    except BisectorError as error:  # what its commit is to blame for is among the news, and is not raised
        _give_up(entry, error)
    except Exception as error:  # noqa: BLE001 - the outermost door of a process that has nobody to raise to
        traceback.print_exc()
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = f"a bug in bisector on {host_id()}: {type(error).__name__}: {error} ({last.filename}:{last.lineno})"
        if entry.result() is None:
            entry.finish(Failed(entry.key.id, host_id(), BisectorError(text, f"there, see {entry.log}"), now()))


@contextmanager
def _alone_in(place: Path) -> Iterator[None]:
    """Be the one job of its run that is under way here; what is left of the one before is waited for."""
    with ExitStack() as stack:
        retried(lambda: stack.enter_context(held(place / LOCK)), Held, _OTHERS_WAITS_S)
        yield


def _keep(entry: Entry, news: Finished | Failed) -> None:
    """Move what was written beside the result, and keep that."""
    entry.files.mkdir(exist_ok=True)
    for name in WRITTEN:
        with suppress(FileNotFoundError):
            (entry.place / name).rename(entry.files / name)
    entry.finish(news)


def _give_up(entry: Entry, error: BisectorError) -> None:
    """Keep that this host could not do it; with a result, it is trouble of cleaning up, which the next job meets."""
    if entry.result() is None:
        failed = AttemptFailed(error.message, error.hint, Stage.CHECKOUT, host_id())
        entry.finish(Failed(entry.key.id, host_id(), failed, now()))


def _bounded(spec: Spec) -> Deadline:
    def ring() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    deadline = Deadline("the end of a job", spec.deadline_s)
    timer = threading.Timer(deadline.seconds, ring)
    timer.daemon = True
    timer.start()
    signal.setitimer(signal.ITIMER_REAL, deadline.seconds + GRACE_S)
    return deadline


def _end(_signum: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what cleans up now is not to be cut short by the next one
    raise KeyboardInterrupt


def _entry(path: Path) -> Entry:
    return Entry(Key(path.parent.name, int(path.name)), path)


def _engine(name: str) -> Engine:
    module, _, function = name.partition(":")
    return cast("Engine", getattr(importlib.import_module(module), function))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
