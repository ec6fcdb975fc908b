"""What documents for people are made of: titles, prose, facts, tables and listings, of which each format is a renderer.

A renderer passes all of it through :func:`bisector.core.printable.clean`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import ClassVar, TypeAlias

from bisector.core.verdict import Direction, Verdict


class Role(StrEnum):
    """What a piece of text is; a terminal and a page give each role a colour."""

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


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Prose; each format fills it to its own width."""

    kind: ClassVar = "paragraph"
    text: str
    role: Role = Role.PLAIN


@dataclass(frozen=True, slots=True)
class Fact:
    """A label, and below each other the sentences that are said under it.

    A ``command`` stands below them and is never broken into lines: it is there to be copied.
    """

    label: str
    texts: tuple[str, ...] = ()
    role: Role = Role.PLAIN
    command: str = ""
    label_role: Role = Role.HEAD

    @property
    def text(self) -> str:
        """All that is said, in one line."""
        return "; ".join(self.texts)


def fact(label: str, *texts: str | None, role: Role = Role.PLAIN, command: str | None = None) -> Fact:
    """A fact of the texts that say something."""
    return Fact(label, tuple(filter(None, texts)), role, command or "")


@dataclass(frozen=True, slots=True)
class FactList:
    """Facts; one that says nothing is left out. ``width`` is the least width of the labels in a column of text."""

    kind: ClassVar = "facts"
    facts: tuple[Fact, ...]
    width: int = 0


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; figures stand at the right, and a column of ``verdict`` has the colours of the rows.

    In text a ``movable`` last column stands below its row where the table is too wide.
    """

    title: str
    figures: bool = False
    verdict: bool = False
    movable: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a row, a sentence on it, which may be empty, and a command, which is never broken into lines."""

    cells: tuple[str, ...]
    remark: str = ""
    role: Role = Role.PLAIN
    command: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are never wrapped.

    Of a ``grouped`` table the first column names groups of rows: it is shown once for each, and in text, where the
    table is too wide, on a line of its own.
    """

    kind: ClassVar = "table"
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    remark_title: str = "remark"
    caption: str = ""
    grouped: bool = False

    @property
    def groups(self) -> tuple[tuple[Row, ...], ...]:
        """The rows of each group, or each row by itself."""
        numbered = groupby(enumerate(self.rows), lambda one: one[1].cells[0] if self.grouped else str(one[0]))
        return tuple(tuple(row for _, row in rows) for _, rows in numbered)


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines to be shown as they are: a file, a log, a command."""

    kind: ClassVar = "listing"
    lines: tuple[str, ...]


Block: TypeAlias = Paragraph | FactList | Table | Listing


@dataclass(frozen=True, slots=True)
class Section:
    """A title and what stands below it; ``name`` is its handle for scripts and links."""

    name: str
    title: str
    blocks: tuple[Block, ...]


def facts(items: Iterable[tuple[str, str]]) -> FactList:
    """A fact for each pair of a label and a text."""
    return FactList(tuple(fact(label, text) for label, text in items))


def listing(text: str | None) -> Listing:
    """The lines of a text."""
    return Listing(tuple((text or "").splitlines()))


def sections_of(blocks: Mapping[tuple[str, str], Iterable[Block]]) -> tuple[Section, ...]:
    """Sections by their names and titles; a block that says nothing is left out, and so is a section without any."""
    made = (Section(name, title, tuple(filter(_says, found))) for (name, title), found in blocks.items())
    return tuple(section for section in made if section.blocks)


def _says(block: Block) -> bool:
    match block:
        case Paragraph(text):
            return bool(text)
        case FactList(listed):
            return any(one.texts for one in listed)
        case Table(rows=content) | Listing(content):
            return bool(content)


@dataclass(frozen=True, slots=True)
class Page:
    """A whole document as every renderer takes it, whatever it is about; ``lead`` says where and when."""

    title: str
    sections: tuple[Section, ...]
    tool_version: str
    lead: str = ""
