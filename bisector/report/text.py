"""Lines of text as data: spans with a role, cleaned and measured in terminal cells.

What a span says is decided here and in the tables; what colour a role has is the terminal's
matter. Everything that came from a commit, a kernel or a guest passes :func:`clean`, so that no
subject line moves the cursor or recolours the screen.

rich.table is not used for columns. Of the verdict table it would pad the cells, which :func:`left` and
:func:`right` do; it has no columns that give way in an order (date, earlier runs), no lines across all of them
(a subject or a reason below its row), and returns styles in place of roles. Forty rows of eight columns take it
56 ms after 100 ms of imports, and 0.14 ms here. rich.cells counts 870 characters otherwise (Unicode's "Mc", Hangul's
vowels), so the texts of mails and files would change.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from bisector.core.printable import ELLIPSIS, clean
from bisector.core.verdict import Verdict


class Role(StrEnum):
    """What a span is; a terminal gives each role a colour."""

    PLAIN = "plain"
    HEAD = "head"
    STRONG = "strong"
    DIM = "dim"
    OLD = "old"
    NEW = "new"
    SKIP = "skip"
    WEAK = "weak"
    ACTIVE = "active"
    COMMAND = "command"


VERDICT_ROLES = {
    Verdict.OLD: Role.OLD,
    Verdict.NEW: Role.NEW,
    Verdict.SKIP: Role.SKIP,
    Verdict.WEAK: Role.WEAK,
    Verdict.MEASURED: Role.PLAIN,
}


class Span(NamedTuple):
    """A piece of one line."""

    text: str
    role: Role = Role.PLAIN


Line = tuple[Span, ...]


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
