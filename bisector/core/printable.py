"""Text that is shown: made fit for it, as one printable line of bounded length, and written to what may be lost.

All text that leaves bisector for a terminal, a log or a letter has passed :func:`clean`, so that no subject line moves
the cursor, recolours the screen or turns the rest of a line around. A bisection takes hours, and the terminal it was
started from may be gone long before: only the output may change then.
"""

import io
import os
import re
import signal
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TextIO

ELLIPSIS = "…"
# Fifty rows of a terminal of 80 columns. Longer text was not written for people.
LONGEST = 4000
# ECMA-48: CSI sequences, OSC strings (titles, hyperlinks), other two-character escapes. The beginning of a sequence is
# never part of another one, so that the search takes time in proportion to the length.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\x9d]*(?:\x07|\x1b\\|\x9c)|\x1b[ -/]*[0-~]"
)
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean(text: str) -> str:
    """Return one printable line: without escape sequences, with plain white space, and invisible characters replaced.

    Control characters (C0 and C1) and the lone surrogates of subjects that are not UTF-8 are replaced, bidirectional
    overrides removed. Of more than :data:`LONGEST` characters the beginning is kept, with an ellipsis.
    """
    if not text.isprintable():
        text = "".join(map(_visible, _ESCAPES.sub("", text)))
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + ELLIPSIS


def clean_lines(text: str) -> str:
    """Make each line of a text printable; tabs stay, and lines may have any length."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    lines = (_ESCAPES.sub("", line) for line in text.split("\n"))
    return "\n".join("".join(char if char == "\t" else _visible(char) for char in line) for line in lines)


def _visible(char: str) -> str:
    if char.isprintable():
        return char
    if char.isspace():
        return " "
    # Format characters (joiners, directions) have no width, so nothing replaces them.
    return "" if unicodedata.category(char) == "Cf" else _REPLACEMENT


# Output that may lose its terminal


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
