"""Output that may lose its terminal.

A bisection takes hours, and the terminal it was started from may be gone long before. Only the output may change then.
"""

import io
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TextIO


def silence(stream: IO[str]) -> None:
    """Redirect a stream's descriptor to /dev/null.

    Otherwise Python would fail to flush its buffer at exit, and exit with status 120 (Python's documentation, "Note on
    SIGPIPE").
    """
    with suppress(OSError):  # including io.UnsupportedOperation: a stream without a descriptor needs nothing
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)


class LastingStream(io.TextIOBase):
    """A text stream that falls silent for good at the first write that fails.

    Only ``OSError`` counts as a lost reader (EIO: the terminal is gone; EPIPE: the pipe; ENOSPC: the disk is full).
    Characters that the stream's encoding lacks are written as ``?``.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self.lost = False

    def write(self, text: str) -> int:
        """Write and flush, or do nothing once the reader is lost."""
        if self.lost:
            return len(text)
        try:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                encoding = self._stream.encoding or "ascii"
                self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except OSError:
            self.lost = True
            silence(self._stream)
        return len(text)

    def flush(self) -> None:
        """Do nothing, since every write is flushed at once."""

    def isatty(self) -> bool:
        """Whether the stream is a terminal that has not been lost."""
        return not self.lost and self._stream.isatty()

    def fileno(self) -> int:
        """The descriptor of the stream, for its window size."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """Always true, even if the reader is lost."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override] # typeshed has an attribute here
        """The encoding of the stream."""
        return self._stream.encoding


@contextmanager
def hangup_ignored() -> Iterator[None]:
    """Ignore SIGHUP, which the closing terminal sends and which would end the process.

    Only the main thread may set signal handlers; in any other thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before or signal.SIG_DFL)  # None if it was not set from Python
