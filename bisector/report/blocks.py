"""The parts of documents for people: titles, prose, facts, tables and listings; there is a renderer for each format.

Renderers pass all text through :func:`bisector.core.printable.clean`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import ClassVar, TypeAlias

from bisector.core.verdict import Direction, Verdict


class Role(StrEnum):
    """The meaning of a piece of text; terminals and pages give each role a colour."""

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
    """The role of a verdict: better or worse by its side, and plain until it is known which side is better."""
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
    """A label with sentences below each other.

    The ``command`` below them is never broken into lines, so that it can be copied.
    """

    label: str
    texts: tuple[str, ...] = ()
    role: Role = Role.PLAIN
    command: str = ""
    label_role: Role = Role.HEAD

    @property
    def text(self) -> str:
        """All sentences in one line."""
        return "; ".join(self.texts)


def fact(label: str, *texts: str | None, role: Role = Role.PLAIN, command: str | None = None) -> Fact:
    """A fact of the texts that are not empty."""
    return Fact(label, tuple(filter(None, texts)), role, command or "")


@dataclass(frozen=True, slots=True)
class FactList:
    """Facts; empty ones are left out. ``width`` is the least width of the labels in a column of text."""

    kind: ClassVar = "facts"
    facts: tuple[Fact, ...]
    width: int = 0


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; ``figures`` are aligned to the right, and a ``verdict`` is in the colour of its row.

    In text, a ``movable`` last column is placed below its row if the table is too wide.
    """

    title: str
    figures: bool = False
    verdict: bool = False
    movable: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a row, a remark, which may be empty, and a command, which is never broken into lines."""

    cells: tuple[str, ...]
    remark: str = ""
    role: Role = Role.PLAIN
    command: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table, whose cells are never wrapped.

    In a ``grouped`` table the first column names groups of rows: it is shown once for each group. In text, it stands on
    a line of its own if the table is too wide.
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
    """A title and the blocks below it; ``name`` is the handle for scripts and links."""

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
    """Sections by name and title; empty blocks are left out, and sections without blocks."""
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
    """A whole document for any renderer; ``lead`` says where and when it was measured."""

    title: str
    sections: tuple[Section, ...]
    tool_version: str
    lead: str = ""
