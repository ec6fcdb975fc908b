"""A file that one process at a time holds; the kernel gives it back whatever way the process ends (flock(2))."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from bisector.core.deadline import Deadline, DeadlineExpired
from bisector.core.errors import InfraError

_LONGEST = 8192  # more characters than a holder writes
_WAIT_S = 1.0  # longer than anybody's look at who holds it


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


def _try_lock(file: TextIO, how: int = fcntl.LOCK_EX) -> bool | None:
    """True when the lock is ours now, None when somebody else has it."""
    with suppress(BlockingIOError):
        fcntl.flock(file, how | fcntl.LOCK_NB)
        return True
    return None


def _written_holder(file: TextIO) -> Holder:
    """What it has written: nothing yet, perhaps, or anything at all, where the directory came from elsewhere."""
    file.seek(0)
    try:
        match json.loads(file.read(_LONGEST)):
            case {"pid": int(pid), "since": str(since)}:
                return Holder(pid, since)
    except (ValueError, RecursionError):
        pass
    return Holder(0, "")
