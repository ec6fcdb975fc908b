"""The output of a command in a guest: taken within bounds, and missed when none comes.

A command may print nothing until it ends, hours later, as fio does. A guest that has lost its network meanwhile is not
noticed by TCP: with user-mode networking the other end of the connection is QEMU, which goes on.
"""

import codecs
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from bisector.core.errors import InfraError
from bisector.host.files import our_files
from bisector.vm.base import GuestLost

_MIB = 1 << 20
_LONGEST_LINE = 65536


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that is taken from a guest: of one file, and of the output of one command (both streams together).

    After ``silence_s`` without output the guest is asked for a sign of life, for which it has ``answer_s``.
    """

    file_bytes: int = 64 * _MIB
    output_bytes: int = 64 * _MIB
    silence_s: float = 60.0
    answer_s: float = 120.0


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that was not there, and is no link to another one; half of it is removed.

    Raises :class:`InfraError` when it cannot be made or written.
    """
    descriptor = _made(path)
    try:
        with our_files(path.parent), os.fdopen(descriptor, "wb") as file:  # what is written last may fail at its end
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _made(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InfraError(f"cannot make {path}: {error.strerror}", f"ls -ld {path.parent}") from error


class StreamedText:
    """A stream of bytes as text, all of it at the end and line by line meanwhile."""

    def __init__(self, on_line: Callable[[str], None] | None = None) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._on_line = on_line
        self._all: list[str] = []
        self._begun = ""
        self.read_bytes = 0

    def feed(self, data: bytes, final: bool = False) -> None:
        """Take the next piece; ``final`` is the last one."""
        self.read_bytes += len(data)
        text = self._decoder.decode(data, final)
        self._all.append(text)
        if self._on_line is not None:
            first, *others = re.split(r"\r\n|\r|\n", text)
            *lines, self._begun = self._begun + first, *others
            if len(self._begun) > _LONGEST_LINE:
                lines.append(self._begun)
                self._begun = ""
            for line in lines:
                self._on_line(line)

    def end(self) -> str:
        """Everything there was; a last line without an end is handed over too."""
        self.feed(b"", final=True)
        if self._on_line is not None and self._begun:
            self._on_line(self._begun)
        return "".join(self._all)


@dataclass(slots=True)
class Life:
    """Asks a guest for a sign of life, by ``ask``, after ``silence_s``, and gives it up ``answer_s`` later.

    By ``now``, which counts no time in which this process was stopped.
    """

    ask: Callable[[], Future[object]]
    silence_s: float
    answer_s: float
    command: str
    now: Callable[[], float]
    _heard_bytes: int = 0
    _waited_s: float = 0.0
    _asked: Future[object] | None = None
    _last: float = field(init=False)

    def __post_init__(self) -> None:
        self._last = self.now()

    def check(self, heard_bytes: int) -> None:
        """To be called again and again; raises :class:`GuestLost` when a sign of life does not come."""
        now = self.now()
        self._waited_s += now - self._last
        self._last = now
        if heard_bytes != self._heard_bytes or (self._asked is not None and self._asked.done()):
            self._heard_bytes, self._waited_s, self._asked = heard_bytes, 0.0, None
        elif self._asked is None and self._waited_s > self.silence_s:
            self._waited_s, self._asked = 0.0, self.ask()
        elif self._asked is not None and self._waited_s > self.answer_s:
            waited_s = self.silence_s + self.answer_s
            raise GuestLost(f"nothing was heard of the guest for {waited_s:g} s during `{self.command}`")
