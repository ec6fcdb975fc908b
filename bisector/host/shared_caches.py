"""Who uses the kernels and images that a person's runs have in common, so that none is removed under a run.

A lock on a file (flock(2)), shared by all that use them: the kernel lets go of it whatever a process ends by.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bisector.core.errors import InfraError

_LOCK = "in-use.lock"


@contextmanager
def in_use(home: Path) -> Iterator[None]:
    """Nothing kept in ``home`` is cleared meanwhile; somebody who is clearing it is waited for.

    Raises :class:`InfraError` when ``home`` cannot be written.
    """
    with _locked(home, fcntl.LOCK_SH):
        yield


@contextmanager
def alone(home: Path) -> Iterator[bool]:
    """Whether nobody uses what is kept in ``home``; if so nobody begins to meanwhile."""
    with _locked(home, fcntl.LOCK_EX | fcntl.LOCK_NB) as held:
        yield held


@contextmanager
def _locked(home: Path, kind: int) -> Iterator[bool]:
    try:
        home.mkdir(parents=True, exist_ok=True)
        file = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InfraError(f"{home / _LOCK}: {error.strerror}", f"ls -ld {home}") from error
    try:
        try:
            fcntl.flock(file, kind)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)
