"""The terminal: lines as data, measured in its cells, and output that outlives it.

A line is spans with a role. What a span says is decided here and in the tables; what colour a role has is the
terminal's matter. Everything that came from a commit, a kernel or a guest passes :func:`clean`, so that no subject line
moves the cursor or recolours the screen.

Columns are those of :func:`columns`, and not of rich.table, which has no lines across all of them (a subject or a
reason below its row), no columns that give way in an order (date, earlier runs), and returns styles in place of roles.

A bisection takes hours; the terminal it was started from may be gone long before. Then nothing may change but the
output (:class:`LastingStream`).
"""

import io
import os
import signal
import threading
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import IO, NamedTuple, TextIO

from bisector.core.printable import ELLIPSIS, clean
from bisector.core.verdict import Direction, Verdict


class Role(StrEnum):
    """What a span is; a terminal gives each role a colour."""

    PLAIN = "plain"
    HEAD = "head"
    STRONG = "strong"
    DIM = "dim"
    BETTER = "better"
    WORSE = "worse"
    SKIP = "skip"
    WEAK = "weak"
    ACTIVE = "active"
    COMMAND = "command"


_ON_NO_SIDE = {Verdict.SKIP: Role.SKIP, Verdict.WEAK: Role.WEAK}


def verdict_role(verdict: Verdict, direction: Direction | None) -> Role:
    """What a verdict is shown as, in every form: by which side is better, and plain while that is not known."""
    if direction is None or verdict not in (Verdict.OLD, Verdict.NEW):
        return _ON_NO_SIDE.get(verdict, Role.PLAIN)
    return Role.BETTER if verdict is direction.verdict(better=True) else Role.WORSE


class Span(NamedTuple):
    """A piece of one line."""

    text: str
    role: Role = Role.PLAIN


Line = tuple[Span, ...]
GAP = "  "


def _char_cells(char: str) -> int:
    if unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def cells(text: str) -> int:
    """The width in terminal cells of clean text."""
    return len(text) if text.isascii() else sum(_char_cells(char) for char in text)


def shorten(text: str, width: int) -> str:
    """The text cleaned and, with an ellipsis, no wider than ``width`` cells."""
    text = clean(text)
    if cells(text) <= width:
        return text
    if width < 1:
        return ""
    kept, used = [], 0
    for char in text:
        used += _char_cells(char)
        if used > width - 1:
            break
        kept.append(char)
    return "".join(kept).rstrip() + ELLIPSIS


def left(text: str, width: int) -> str:
    """The text shortened and padded to exactly ``width`` cells, at the left."""
    text = shorten(text, width)
    return text + " " * (width - cells(text))


def right(text: str, width: int) -> str:
    """The text shortened and padded to exactly ``width`` cells, at the right."""
    text = shorten(text, width)
    return " " * (width - cells(text)) + text


def columns(rows: Sequence[Sequence[Span]], figures: Collection[int] = ()) -> list[Line]:
    """Cells as lines, a column as wide as its widest cell; the columns with ``figures`` stand at the right."""
    widths = [max(cells(clean(cell.text)) for cell in column) for column in zip(*rows, strict=True)]
    pads = [right if n in figures else left for n in range(len(widths))]
    gaps = [*(GAP for _ in widths[1:]), ""]
    return [
        tuple(Span(pad(cell.text, width) + gap, cell.role)
              for cell, pad, width, gap in zip(row, pads, widths, gaps, strict=True))
        for row in rows
    ]  # fmt: skip


def wrapped(words: Iterable[str], width: int) -> list[str]:
    """Words filled into lines of at most ``width`` cells; a word is cut only when it must be."""
    lines: list[str] = []
    for word in words:
        word = shorten(word, width)  # noqa: PLW2901 - the word as it will be shown
        if lines and cells(lines[-1]) + 1 + cells(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def cut(line: Line, width: int) -> Line:
    """The line with its spans clean and together no wider than ``width`` cells."""
    kept: list[Span] = []
    for span in line:
        text = shorten(span.text, width)
        width -= cells(text)
        kept.append(Span(text, span.role))
        if text != clean(span.text):
            break
    return tuple(kept)


def line_text(line: Line) -> str:
    """One line without its roles."""
    return "".join(clean(span.text) for span in line).rstrip()


def as_text(lines: Sequence[Line]) -> str:
    """Lines without their roles, each ended."""
    return "".join(line_text(line) + "\n" for line in lines)


def silence(stream: IO[str]) -> None:
    """Point a stream's descriptor to nowhere.

    What is still in Python's buffer would otherwise fail when the interpreter flushes it at exit,
    and turn the exit status into 120 (Python's documentation, "Note on SIGPIPE").
    """
    with suppress(OSError):  # io.UnsupportedOperation is one: no descriptor, nothing to do
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)


class LastingStream(io.TextIOBase):
    """A text stream that goes silent for good at the first write that fails.

    Only ``OSError`` is taken for a lost reader (EIO: the terminal is gone; EPIPE: the pipe; ENOSPC:
    the disk). Letters that the stream's encoding does not have are written as ``?``.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self.lost = False

    def write(self, text: str) -> int:
        """Write and flush, or do nothing once the reader is lost."""
        if not self.lost:
            try:
                self._write(text)
            except OSError:
                self._lose()
        return len(text)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            encoding = self._stream.encoding or "ascii"
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
        self._stream.flush()

    def _lose(self) -> None:
        self.lost = True
        silence(self._stream)

    def flush(self) -> None:
        """Nothing: every write is flushed at once."""

    def isatty(self) -> bool:
        """Whether the stream is a terminal, as far as one can still tell."""
        return not self.lost and self._stream.isatty()

    def fileno(self) -> int:
        """The descriptor of the stream, for its window size."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """Always, even when nobody reads."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override] # typeshed has an attribute here
        """The encoding of the stream."""
        return self._stream.encoding


@contextmanager
def hangup_ignored() -> Iterator[None]:
    """Closing the terminal sends SIGHUP, which would end us; in here it does not.

    Only the main thread may set signal handlers; elsewhere this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before or signal.SIG_DFL)  # None: it was not set from Python
