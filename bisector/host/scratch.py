"""Temporary directories that the next process removes when this one is killed.

Each is locked (flock(2)) for as long as it is used: the kernel lets go of the lock whatever way its process ends, so
one that is named like ours, is this user's and is not locked belongs to nobody.
"""

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "bisector-tmp-"
_NAMED = re.compile(re.escape(_PREFIX) + r"[a-z]+-[a-z0-9_]{8}")


@contextmanager
def scratch(purpose: str, parent: Path | None = None, mode: int = 0o700) -> Iterator[Path]:
    """A new directory below ``parent`` (the system's for temporary files) for the time of the block.

    ``purpose`` is a word for people who find it. Raises ``OSError``.
    """
    path, lock = _made(purpose, parent)
    try:
        path.chmod(mode)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def is_scratch(path: Path) -> bool:
    """Whether it is named as one of ours, and a directory of this user's."""
    with suppress(OSError):
        status = path.lstat()
        return bool(_NAMED.fullmatch(path.name)) and stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return False


def abandoned(parent: Path | None = None) -> Iterator[Path]:
    """Those below ``parent`` that killed processes have left, each locked by us until the next is asked for."""
    for path in (parent or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*"):
        if not is_scratch(path):
            continue
        with suppress(OSError):  # somebody else removes it, or uses it
            lock = _opened(path)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield path
            finally:
                os.close(lock)


def remove_abandoned(parent: Path | None = None) -> tuple[Path, ...]:
    """Remove what killed processes have left below ``parent``; what is gone now."""
    found = []
    for path in abandoned(parent):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            found.append(path)
    return tuple(found)


def _made(purpose: str, parent: Path | None) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-", dir=parent))
        with suppress(FileNotFoundError):  # taken for an abandoned one before it was locked
            lock = _opened(path)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return path, lock
            os.close(lock)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
