"""The file that a guest's console is written to: read while it grows, followed when it is rotated, short at the end.

QEMU appends to it, or libvirt's virtlogd, which renames it at 2 MiB and begins a new one (max_size and max_backups
in virtlogd.conf(5)). A limit for QEMU's files (RLIMIT_FSIZE, setrlimit(2)) is no help against a kernel that never
stops: it would hold for the disks as well, so it would have to be above the largest of them.
"""

import os
import re
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from bisector.core.errors import InfraError

CHUNK_BYTES = 1 << 20
# What is kept of a console when its guest is gone: how it began, and how it ended.
_HEAD_BYTES = 1 << 20
_TAIL_BYTES = 15 << 20
_BACKUP = re.compile(r"\.(\d{1,3})")


class ConsoleFile:
    """Reads each byte once, in order, whatever the file is called by then."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self._closed = False

    def read(self) -> bytes:
        """What was written since the last call, at most :data:`CHUNK_BYTES` of it; nothing once closed.

        Raises :class:`InfraError` when it cannot be read.
        """
        if self._closed:
            return b""
        try:
            return self._read()
        except OSError as error:
            raise InfraError(
                f"the console {error.filename or self.path} cannot be read: {error.strerror}",
                "a new file of virtlogd's is root's: raise max_size in virtlogd.conf, or use --connect qemu:///embed",
            ) from error

    def _read(self) -> bytes:
        if self._file is None:
            self._file = self.path.open("rb")
        while not (data := self._file.read(CHUNK_BYTES)):
            following = self._following(os.fstat(self._file.fileno()))
            # Between that reading and the renaming something may have been written; from now on nothing is.
            if following is None or (data := self._file.read(CHUNK_BYTES)):
                break
            try:
                newer = following.open("rb")
            except FileNotFoundError:  # it was renamed just now: next time
                break
            self._file.close()
            self._file = newer
        return data

    def _following(self, mine: os.stat_result) -> Path | None:
        """The file that was begun after this one; None while it is the newest one."""
        files = self._files()
        for older, newer in pairwise(files):
            if _same(older, mine):
                return newer
        # Renamed so often that it is gone: what was kept begins with the oldest.
        return files[0] if files and not _same(files[-1], mine) else None

    def _files(self) -> list[Path]:
        """Those that there are, oldest first."""
        numbers = []
        for path in self.path.parent.glob(f"{self.path.name}.*"):
            if found := _BACKUP.fullmatch(path.name.removeprefix(self.path.name)):
                numbers.append((int(found[1]), path))
        backups = [path for _, path in sorted(numbers, reverse=True)]
        return [*backups, self.path] if self.path.exists() else backups

    def close(self) -> None:
        """Read no more, and shorten the file; to be called when nobody writes any more. Idempotent."""
        self._closed = True
        if self._file is not None:
            self._file.close()
            self._file = None
            with suppress(OSError):  # of virtlogd, which bounds its files itself, and may be root's
                _shorten(self.path)


def _same(path: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), status)
    except FileNotFoundError:
        return False


def _shorten(path: Path) -> None:
    """Leave the beginning and the end of a file that is longer than both."""
    size = path.stat().st_size
    left_out = size - _HEAD_BYTES - _TAIL_BYTES
    if left_out <= 0:
        return
    with path.open("r+b") as file:
        file.seek(size - _TAIL_BYTES)
        tail = file.read()
        file.seek(_HEAD_BYTES)
        file.write(b"\n[bisector left out %d bytes here]\n" % left_out)
        file.write(tail)
        file.truncate()
