"""One measurement at a time on a host: a lock that all runs share, and who holds it.

A build beside a measurement, or a second measurement, makes runs weak. So whatever builds or measures holds this lock
meanwhile, and others wait for it. It is a flock(2) on two files, which the kernel gives back whatever way the holder
ends: one in the user's cache, and one in /run/lock (Filesystem Hierarchy Standard 3.0, 3.15), which all users share,
where there is such a directory that they may write.
"""

import fcntl
import json
import os
import platform
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bisector.core import resources
from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError

SHARED = Path("/run/lock/bisector-measuring.lock")
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # in a directory that anybody may write
_LONGEST = 8192  # of what a holder writes: PATH_MAX and a little
_POLL_S = 0.05  # less than a run takes from the end of one of its turns to its next: it writes its record, and plans
_TELL_EVERY_S = 3600.0
_LONGEST_TURN_S = 24 * 3600.0  # a build and a trial have deadlines of hours; what keeps a turn for a day is stuck


@dataclass(frozen=True, slots=True)
class Holder:
    """Who builds or measures on this host: its process, run directory, and since when (ISO 8601).

    0 and nothing where a holder has not written it yet, or is another user who may not.
    """

    pid: int = 0
    run_dir: str = ""
    since: str = ""

    def __str__(self) -> str:
        return f"run {self.run_dir}, process {self.pid}" if self.pid else "another process"


@contextmanager
def measuring(run_dir: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Be the only one on this host that builds or measures; wait until that is so, and tell each hour for whom.

    Ctrl-C ends the wait. Raises :class:`InfraError` when the lock in the user's cache cannot be written, and when
    one holder keeps it for a day.
    """
    with ExitStack() as stack:
        for opened in (_own, _shared):
            if (file := opened()) is not None:
                stack.callback(os.close, file)
                _take(file, tell)
                _sign(file, run_dir)
        yield


def holder() -> Holder | None:
    """Who holds the lock now; None when nobody does. Never raises: it is asked for a notice only."""
    for path in (own_path(), SHARED):
        with suppress(OSError):
            file = os.open(path, os.O_RDONLY | _FLAGS)
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _signed(file)
            finally:
                os.close(file)
    return None


def _take(file: int, tell: Callable[[str], None]) -> None:
    if _locked(file):
        return
    seen, turn = _signed(file), Deadline("the end of a turn", _LONGEST_TURN_S)
    tell(f"waiting for {seen}{_stopped(seen)}: builds and measurements on one host take turns")
    while True:
        with suppress(DeadlineExpired):
            Deadline("a turn", _TELL_EVERY_S).poll(lambda: _locked(file), _POLL_S)
            return
        if (now := _signed(file)) != seen:
            seen, turn = now, Deadline("the end of a turn", _LONGEST_TURN_S)
        if turn.expired:
            raise InfraError(
                f"{seen}{_stopped(seen)} has kept its turn on this host for {turn.seconds / 3600:g} h",
                f"ps -o pid,stat,etime,args -p {seen.pid}" if seen.pid else f"fuser -v {SHARED} {own_path()}",
            )
        tell(f"still waiting for {seen}{_stopped(seen)}")


def _locked(file: int) -> bool | None:
    """True when the lock is ours now, None when somebody else has it."""
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return None


def _stopped(holder: Holder) -> str:
    """That a holder was stopped, by Ctrl-Z say, and what lets it go on (proc_pid_stat(5))."""
    with suppress(OSError):
        state = Path(f"/proc/{holder.pid}/stat").read_bytes().rpartition(b") ")[2][:1]
        if state in (b"T", b"t"):
            return f", which is stopped (kill -CONT {holder.pid})"
    return ""


def own_path() -> Path:
    """With the host's name, as a home directory may be on several hosts."""
    return resources.cache_home() / f"measuring-{platform.node() or 'host'}.lock"


def _own() -> int:
    path = own_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o644)
    except OSError as error:
        raise InfraError(f"{path}: {error.strerror}", f"ls -ld {path.parent}") from error


def _shared() -> int | None:
    """The file of all users; None where it cannot be had.

    It is made by whoever comes first, for all to write. Opened without O_CREAT, a file of another user in a directory
    with the sticky bit is no matter of fs.protected_regular (Documentation/admin-guide/sysctl/fs.rst). A second name of
    some other file is locked as well, and its permissions stay as they are.
    """
    for flags in (os.O_RDWR, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR, os.O_RDONLY):
        with suppress(OSError):
            file = os.open(SHARED, flags | _FLAGS, 0o666)
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                os.close(file)
                return None
            if found.st_nlink == 1:
                with suppress(PermissionError):  # it is another user's, who has done that
                    os.fchmod(file, 0o666)
            return file
    return None


def _sign(file: int, run_dir: Path) -> None:
    """Write who holds it, where that is allowed; a second name of the file may be anything's, and is left alone."""
    if os.fstat(file).st_nlink != 1:
        return
    now = datetime.now(UTC).isoformat(timespec="seconds")
    text = json.dumps({"pid": os.getpid(), "run_dir": str(run_dir), "since": now})
    with suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, text.encode(), 0)


def _signed(file: int) -> Holder:
    """What the holder has written. Any user may write that file, so nothing in it is an error of bisector."""
    try:
        match json.loads(os.pread(file, _LONGEST, 0)):
            case {"pid": int(pid), "run_dir": str(run_dir), "since": str(since)}:
                return Holder(pid, run_dir, since)
    except (OSError, ValueError, RecursionError):
        pass
    return Holder()
