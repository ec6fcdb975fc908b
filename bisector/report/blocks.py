"""What a report is made of, before it is text, Markdown or anything else: titles, prose, facts, tables, listings."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Prose, filled to the width of whoever shows it."""

    text: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with what there is to say of each, as prose."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; figures stand at the right."""

    title: str
    figures: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Cells, never wrapped; ``remarks`` has a sentence for each row, which may be empty."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...]
    remark_title: str = "remark"


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines to be shown as they are: a file, a log, a command."""

    lines: tuple[str, ...]


Block: TypeAlias = Paragraph | Facts | Table | Listing


@dataclass(frozen=True, slots=True)
class Section:
    """A title and what stands below it; ``name`` is its handle for scripts and links."""

    name: str
    title: str
    blocks: tuple[Block, ...]
