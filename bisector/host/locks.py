"""Locks between processes: one for a run, one for the turns on this host, and one for the caches that all runs share.

Each is a flock(2), which the kernel releases however its holder ends. They are taken in this order: :func:`held`,
:func:`measuring`, :func:`using_caches`.
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
from enum import StrEnum
from pathlib import Path

from bisector.core import resources
from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError

_LONGEST = 8192  # more than a holder writes: PATH_MAX and a little
_WAIT_S = 1.0  # longer than any process takes to look who holds it, and than a holder takes to write who it is

_IN_USE = "in-use.lock"
# All users share this directory (Filesystem Hierarchy Standard 3.0, 3.15), and anybody may write there.
SHARED_TURN = Path("/run/lock/bisector-measuring.lock")
# Neither follow a link nor wait for the other end of a FIFO (open(2)).
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_POLL_S = 0.05  # less than the time between two turns of a run, in which it writes its record and plans
_TELL_EVERY_S = 3600.0
# A build and a trial have deadlines of hours, so a process that keeps its turn for a day is stuck.
_LONGEST_TURN_S = 24 * 3600.0


class TurnPurpose(StrEnum):
    """The purpose of a turn; UNKNOWN if its holder has not written it."""

    BUILD = "build"
    MEASUREMENT = "measurement"
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lock, since when (ISO 8601), and for a turn the run directory and the purpose.

    ``pid`` is 0 if the holder has not written it yet, or is another user's process that may not.
    """

    pid: int = 0
    since: str = ""
    run_dir: str = ""
    purpose: TurnPurpose = TurnPurpose.UNKNOWN

    def __str__(self) -> str:
        if not self.pid:
            return "another process"
        return f"run {self.run_dir}, process {self.pid}" if self.run_dir else f"process {self.pid} since {self.since}"


class Held(Exception):
    """Another process holds the lock; the caller decides what that means."""

    def __init__(self, holder: Holder) -> None:
        super().__init__(holder)
        self.holder = holder


@contextmanager
def locked(
    path: Path, how: int = fcntl.LOCK_EX, wait: Deadline | None = None, flags: int = os.O_RDONLY
) -> Iterator[int]:
    """Hold a lock on a file or directory during the block, which gets its descriptor.

    Raises ``BlockingIOError`` if another process holds it, with ``wait`` :class:`DeadlineExpired` if that does not end
    in time, and other kinds of ``OSError``.
    """
    file = os.open(path, flags | _FLAGS, 0o666)
    try:
        if wait is None:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        else:
            wait.poll(lambda: try_lock(file, how))
        yield file
    finally:
        os.close(file)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Be the only process that holds ``path``, which is overwritten.

    Raises :class:`Held`, and ``OSError`` for a file that cannot be written or is a link.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(locked(path, wait=Deadline("lock", _WAIT_S), flags=os.O_RDWR | os.O_CREAT))
        except DeadlineExpired as error:
            raise Held(holder_of(path) or Holder()) from error
        _sign(file)
        yield


def holder_of(path: Path) -> Holder | None:
    """The process that holds the lock now; None if there is none, even if the last one was killed.

    Raises :class:`InfraError` if the file cannot be read.
    """
    try:
        file = os.open(path, os.O_RDONLY | _FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InfraError(f"cannot read {path}: {error.strerror}", f"ls -l {path}") from error
    try:
        return None if try_lock(file, fcntl.LOCK_SH) else _signed(file)
    finally:
        os.close(file)


def try_lock(file: int, how: int = fcntl.LOCK_EX) -> bool | None:
    """True if this process has the lock now, None if another one has it."""
    with suppress(BlockingIOError):
        fcntl.flock(file, how | fcntl.LOCK_NB)
        return True
    return None


@contextmanager
def measuring(
    run_dir: Path,
    tell: Callable[[str], None],
    purpose: TurnPurpose = TurnPurpose.MEASUREMENT,
    told: set[str] | None = None,
) -> Iterator[None]:
    """Be the only process on this host that builds or measures; wait for that, and tell every hour for which process.

    ``told`` collects what was told when a wait began: several turns that share it are one wait for a person.
    A build beside a measurement, or a second measurement, makes runs weak. The lock is on two files: one in the user's
    cache, and :data:`SHARED_TURN` if this user may write it. Ctrl-C ends the wait. Raises :class:`InfraError` if the
    lock in the user's cache cannot be written, or if one holder keeps it for a day.
    """
    with ExitStack() as stack:
        file = stack.enter_context(_in_cache(own_turn()))
        _take(file, tell, told := set() if told is None else told)
        _sign(file, run_dir=str(run_dir), purpose=purpose)
        if (shared := _shared_file()) is not None:  # opened after the wait: it may be made anew meanwhile
            stack.callback(os.close, shared)
            _take(shared, tell, told)
            _sign(shared, run_dir=str(run_dir), purpose=purpose)
        yield


def measurer() -> Holder | None:
    """The process that builds or measures now, None if there is none. Never raises, since it only serves a notice."""
    for path in (own_turn(), SHARED_TURN):
        with suppress(InfraError):
            if (found := holder_of(path)) is not None:
                return found
    return None


def _take(file: int, tell: Callable[[str], None], told: set[str]) -> None:
    with suppress(DeadlineExpired):  # a holder whose turn has just begun has a moment to write its name
        named = Deadline("the holder's name", _WAIT_S)
        named.poll(lambda: try_lock(file) or bool(_signed(file).pid) or None)
    if try_lock(file):
        return
    seen, turn = _signed(file), Deadline("the end of a turn", _LONGEST_TURN_S)
    if (text := f"waiting for {seen}{_stopped(seen)}: builds and measurements on one host take turns") not in told:
        told.add(text)
        tell(text)
    while True:
        with suppress(DeadlineExpired):
            Deadline("a turn", _TELL_EVERY_S).poll(lambda: try_lock(file), _POLL_S)
            return
        if (now := _signed(file)) != seen:
            seen, turn = now, Deadline("the end of a turn", _LONGEST_TURN_S)
        if turn.expired:
            raise InfraError(
                f"{seen}{_stopped(seen)} has kept its turn on this host for {turn.seconds / 3600:g} h",
                f"ps -o pid,stat,etime,args -p {seen.pid}" if seen.pid else f"fuser -v {SHARED_TURN} {own_turn()}",
            )
        tell(f"still waiting for {seen}{_stopped(seen)}")


def _stopped(holder: Holder) -> str:
    """A clause saying that the holder is stopped, by Ctrl-Z for example, and how to continue it (proc_pid_stat(5))."""
    with suppress(OSError):
        state = Path(f"/proc/{holder.pid}/stat").read_bytes().rpartition(b") ")[2][:1]
        if state in (b"T", b"t"):
            return f", which is stopped (kill -CONT {holder.pid})"
    return ""


def own_turn() -> Path:
    """The lock in the user's cache, with the host's name: several hosts may share a home directory."""
    return resources.cache_home() / f"measuring-{platform.node() or 'host'}.lock"


@contextmanager
def _in_cache(path: Path) -> Iterator[int]:
    """The descriptor of a lock in the user's cache, which is made if need be; raises :class:`InfraError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o644)
    except OSError as error:
        raise InfraError(f"{path}: {error.strerror}", f"ls -ld {path.parent}") from error
    try:
        yield file
    finally:
        os.close(file)


def _shared_file() -> int | None:
    """The descriptor of the lock that all users share; None if it cannot be opened.

    The first process creates the file, writable for all. If another user's file in a directory with the sticky bit is
    opened without O_CREAT, fs.protected_regular does not apply (Documentation/admin-guide/sysctl/fs.rst). A file with a
    second name is locked as well, but its permissions stay as they are.
    """
    for flags in (os.O_RDWR, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR, os.O_RDONLY):
        with suppress(OSError):
            file = os.open(SHARED_TURN, flags | _FLAGS, 0o666)
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                os.close(file)
                return None
            if found.st_nlink == 1:
                with suppress(PermissionError):  # the file is another user's, who has done that
                    os.fchmod(file, 0o666)
            return file
    return None


def _sign(file: int, **more: str) -> None:
    """Write who holds the lock, if allowed; a file with a second name may be anything, and is not written to."""
    if os.fstat(file).st_nlink != 1:
        return
    note = {"pid": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds"), **more}
    with suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(note).encode(), 0)


def _signed(file: int) -> Holder:
    """The holder as written in the file. Other users may write to it, so malformed content is no error of bisector.

    The file names an ended process until the next holder overwrites it; such a name is ignored.
    """
    with suppress(OSError, ValueError, RecursionError):
        match json.loads(os.pread(file, _LONGEST, 0)):
            case {"pid": int(pid), "since": str(since), **more} if _lives(pid):
                purpose = next((one for one in TurnPurpose if one == more.get("purpose")), TurnPurpose.UNKNOWN)
                if isinstance(run_dir := more.get("run_dir", ""), str):
                    return Holder(pid, since, run_dir, purpose)
    return Holder()


def _lives(pid: int) -> bool:
    """Whether a process with this id exists, of any user (kill(2), signal 0)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return pid > 0


@contextmanager
def using_caches(home: Path) -> Iterator[None]:
    """Keep everything in ``home`` from being cleared during the block, after waiting for a process that is clearing it.

    Raises :class:`InfraError` if ``home`` cannot be written.
    """
    with _in_cache(home / _IN_USE) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def clearing_caches(home: Path) -> Iterator[bool]:
    """Whether nobody uses the content of ``home``; if so, nobody can begin to during the block."""
    with _in_cache(home / _IN_USE) as file:
        yield bool(try_lock(file))
