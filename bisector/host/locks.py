"""Locks between processes: that of a run, that of the turns on this host, and that of what all runs share.

Each is a flock(2) on a file, which the kernel gives back whatever way its holder ends. In this order:

- :func:`held`: one process works on a run, or on a night.
- :func:`measuring`: one run at a time builds or measures on this host, since a build beside a measurement, or a second
  measurement, makes runs weak. The others wait for their turn.
- :func:`using_caches`: the kernels and images that a person's runs have in common are not removed under a run.
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
from typing import TextIO

from bisector.core import resources
from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError

_LONGEST = 8192  # more than a holder writes: PATH_MAX and a little
_WAIT_S = 1.0  # longer than anybody's look at who holds it, and than a holder takes to write who it is

# All users share this directory (Filesystem Hierarchy Standard 3.0, 3.15), and anybody may write there.
SHARED_TURN = Path("/run/lock/bisector-measuring.lock")
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_POLL_S = 0.05  # less than a run takes from the end of one of its turns to its next: it writes its record, and plans
_TELL_EVERY_S = 3600.0
_LONGEST_TURN_S = 24 * 3600.0  # a build and a trial have deadlines of hours; what keeps a turn for a day is stuck

_CACHES_LOCK = "in-use.lock"


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lock, and since when (ISO 8601)."""

    pid: int
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} since {self.since}" if self.pid else "another process"


class Held(Exception):
    """Another process holds the lock; the caller says what that means."""

    def __init__(self, holder: Holder) -> None:
        super().__init__(holder)
        self.holder = holder


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Be the one process that holds ``path``, which is overwritten.

    Raises :class:`Held`, and ``OSError`` for a file that cannot be written or is a link.
    """
    with open(path, "a+", encoding="utf-8", opener=_open_itself) as file:
        try:
            Deadline("lock", _WAIT_S).poll(lambda: _try_lock(file))
        except DeadlineExpired as error:
            raise Held(_written_holder(file)) from error
        file.truncate(0)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        json.dump({"pid": os.getpid(), "since": now}, file)
        file.flush()
        yield


def holder_of(path: Path) -> Holder | None:
    """The process that holds it now; None when there is none, also after it was killed."""
    try:
        with open(path, encoding="utf-8", opener=_open_itself) as file:
            return None if _try_lock(file, fcntl.LOCK_SH) else _written_holder(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InfraError(f"cannot read {path}: {error.strerror}", f"ls -l {path}") from error


def _open_itself(path: str, flags: int) -> int:
    """Neither the file behind a link nor, by waiting for its other end, a FIFO (open(2))."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def _try_lock(file: TextIO | int, how: int = fcntl.LOCK_EX) -> bool | None:
    """True when this process has the lock now, None when somebody else has it."""
    with suppress(BlockingIOError):
        fcntl.flock(file, how | fcntl.LOCK_NB)
        return True
    return None


def _written_holder(file: TextIO) -> Holder:
    """What the holder has written: nothing yet, perhaps, or anything, in a directory that came from elsewhere."""
    file.seek(0)
    try:
        match json.loads(file.read(_LONGEST)):
            case {"pid": int(pid), "since": str(since)}:
                return Holder(pid, since)
    except (ValueError, RecursionError):
        pass
    return Holder(0, "")


class TurnPurpose(StrEnum):
    """What a turn is for; UNKNOWN where its holder has not written it."""

    BUILD = "build"
    MEASUREMENT = "measurement"
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class Measurer:
    """Who builds or measures on this host: its process, run directory, since when (ISO 8601), and what for.

    0 and nothing where a holder has not written it yet, or is another user who may not.
    """

    pid: int = 0
    run_dir: str = ""
    since: str = ""
    purpose: TurnPurpose = TurnPurpose.UNKNOWN

    def __str__(self) -> str:
        return f"run {self.run_dir}, process {self.pid}" if self.pid else "another process"


@contextmanager
def measuring(
    run_dir: Path, tell: Callable[[str], None], purpose: TurnPurpose = TurnPurpose.MEASUREMENT
) -> Iterator[None]:
    """Be the only one on this host that builds or measures; wait until that is so, and tell each hour for whom.

    The lock is on two files: one in the user's cache, and :data:`SHARED_TURN`, where this user may write it. Ctrl-C
    ends the wait. Raises :class:`InfraError` when the lock in the user's cache cannot be written, and when
    one holder keeps it for a day.
    """
    with ExitStack() as stack:
        for opened in (_own_file, _shared_file):
            if (file := opened()) is not None:
                stack.callback(os.close, file)
                _take(file, tell)
                _sign(file, run_dir, purpose)
        yield


def measurer() -> Measurer | None:
    """Who builds or measures now; None when nobody does. Never raises: it is asked for a notice only."""
    for path in (own_turn(), SHARED_TURN):
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
    if (seen := _holder_or_lock(file)) is None:
        return
    turn = Deadline("the end of a turn", _LONGEST_TURN_S)
    tell(f"waiting for {seen}{_stopped(seen)}: builds and measurements on one host take turns")
    while True:
        with suppress(DeadlineExpired):
            Deadline("a turn", _TELL_EVERY_S).poll(lambda: _try_lock(file), _POLL_S)
            return
        if (now := _signed(file)) != seen:
            seen, turn = now, Deadline("the end of a turn", _LONGEST_TURN_S)
        if turn.expired:
            raise InfraError(
                f"{seen}{_stopped(seen)} has kept its turn on this host for {turn.seconds / 3600:g} h",
                f"ps -o pid,stat,etime,args -p {seen.pid}" if seen.pid else f"fuser -v {SHARED_TURN} {own_turn()}",
            )
        tell(f"still waiting for {seen}{_stopped(seen)}")


def _holder_or_lock(file: int) -> Measurer | None:
    """Who holds it; None when this process has it.

    A holder whose turn has just begun has a moment to write its name.
    """

    def probe() -> tuple[Measurer | None] | None:
        if _try_lock(file):
            return (None,)
        holder = _signed(file)
        return (holder,) if holder.pid else None

    with suppress(DeadlineExpired):
        return Deadline("the holder's name", _WAIT_S).poll(probe)[0]
    return _signed(file)


def _stopped(holder: Measurer) -> str:
    """That it was stopped, by Ctrl-Z say, and what lets it go on (proc_pid_stat(5))."""
    with suppress(OSError):
        state = Path(f"/proc/{holder.pid}/stat").read_bytes().rpartition(b") ")[2][:1]
        if state in (b"T", b"t"):
            return f", which is stopped (kill -CONT {holder.pid})"
    return ""


def own_turn() -> Path:
    """The lock in the user's cache, with the host's name: a home directory may be on several hosts."""
    return resources.cache_home() / f"measuring-{platform.node() or 'host'}.lock"


def _own_file() -> int:
    path = own_turn()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o644)
    except OSError as error:
        raise InfraError(f"{path}: {error.strerror}", f"ls -ld {path.parent}") from error


def _shared_file() -> int | None:
    """The file of all users; None where it cannot be had.

    It is made by whoever comes first, for all to write. Opened without O_CREAT, a file of another user in a directory
    with the sticky bit is no matter of fs.protected_regular (Documentation/admin-guide/sysctl/fs.rst). A second name of
    some other file is locked as well, and its permissions stay as they are.
    """
    for flags in (os.O_RDWR, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR, os.O_RDONLY):
        with suppress(OSError):
            file = os.open(SHARED_TURN, flags | _FLAGS, 0o666)
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                os.close(file)
                return None
            if found.st_nlink == 1:
                with suppress(PermissionError):  # it is another user's, who has done that
                    os.fchmod(file, 0o666)
            return file
    return None


def _sign(file: int, run_dir: Path, purpose: TurnPurpose) -> None:
    """Write who holds it, where that is allowed; a second name of the file may be anything's, and is left alone."""
    if os.fstat(file).st_nlink != 1:
        return
    now = datetime.now(UTC).isoformat(timespec="seconds")
    text = json.dumps({"pid": os.getpid(), "run_dir": str(run_dir), "since": now, "purpose": purpose})
    with suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, text.encode(), 0)


def _signed(file: int) -> Measurer:
    """What the holder has written. Any user may write that file, so nothing in it is an error of bisector.

    The file keeps the name of a process that has ended until the next holder overwrites it; such a name is ignored.
    """
    try:
        match json.loads(os.pread(file, _LONGEST, 0)):
            case {"pid": int(pid), "run_dir": str(run_dir), "since": str(since), **more} if _lives(pid):
                return Measurer(pid, run_dir, since, _purpose(more.get("purpose")))
    except (OSError, ValueError, RecursionError):
        pass
    return Measurer()


def _lives(pid: int) -> bool:
    """Whether there is such a process, of any user (kill(2), signal 0)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return pid > 0


def _purpose(written: object) -> TurnPurpose:
    return next((one for one in TurnPurpose if one == written), TurnPurpose.UNKNOWN)


@contextmanager
def using_caches(home: Path) -> Iterator[None]:
    """Nothing kept in ``home`` is cleared meanwhile; somebody who is clearing it is waited for.

    Raises :class:`InfraError` when ``home`` cannot be written.
    """
    with _caches_locked(home, fcntl.LOCK_SH):
        yield


@contextmanager
def clearing_caches(home: Path) -> Iterator[bool]:
    """Whether nobody uses what is kept in ``home``; if so nobody begins to meanwhile."""
    with _caches_locked(home, fcntl.LOCK_EX | fcntl.LOCK_NB) as held:
        yield held


@contextmanager
def _caches_locked(home: Path, kind: int) -> Iterator[bool]:
    try:
        home.mkdir(parents=True, exist_ok=True)
        file = os.open(home / _CACHES_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InfraError(f"{home / _CACHES_LOCK}: {error.strerror}", f"ls -ld {home}") from error
    try:
        try:
            fcntl.flock(file, kind)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)
