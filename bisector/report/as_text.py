"""A report as plain text: prose filled, tables and listings as wide as they are."""

from collections.abc import Iterator, Sequence

from bisector.core.printable import clean
from bisector.report.document import Block, Facts, Listing, Paragraph, Report, Section, Table
from bisector.report.sections import sections, title
from bisector.report.text import cells

PROSE_WIDTH = 72
_GAP = "  "
_INDENT = "    "
_LABEL_MOST = 20


def render(report: Report) -> str:
    """The whole report."""
    lines = [*fill(title(report)), ""]
    for section in sections(report):
        lines += [section.title, "=" * cells(section.title), "", *section_lines(section), ""]
    return "".join(f"{line}\n" for line in lines[:-1])


def section_lines(section: Section) -> list[str]:
    """Its blocks with an empty line between them, without its title."""
    lines: list[str] = []
    for block in section.blocks:
        lines += [*([""] if lines else []), *block_lines(block)]
    return lines


def block_lines(block: Block) -> list[str]:
    """One block; only prose is filled."""
    match block:
        case Paragraph(text):
            return fill(text)
        case Facts(items):
            return list(_facts(items))
        case Table():
            return table_lines(block)
        case Listing(lines):
            return [f"{_INDENT}{clean(line.expandtabs())}".rstrip() for line in lines]


def fill(text: str, width: int = PROSE_WIDTH, indent: str = "") -> list[str]:
    """Prose in lines of at most ``width`` cells; a word that is longer, an address say, is never cut."""
    lines: list[str] = []
    room = width - len(indent)
    for word in clean(text).split():
        if lines and cells(lines[-1]) + 1 + cells(word) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [indent + line for line in lines]


def _facts(items: Sequence[tuple[str, str]]) -> Iterator[str]:
    width = min(_LABEL_MOST, max((cells(name) for name, _ in items), default=0)) + len(_GAP)
    for name, text in items:
        lines = fill(text, indent=" " * width)
        if cells(name) >= width:
            yield clean(name)
        elif lines:
            lines[0] = f"{clean(name)}{' ' * (width - cells(name))}{lines[0][width:]}"
        yield from lines


def table_lines(table: Table) -> list[str]:
    """Columns by spaces alone, never wrapped; a remark stands below its row."""
    rows = [tuple(column.title for column in table.columns), *table.rows]
    widths = [max(cells(row[index]) for row in rows) for index in range(len(table.columns))]
    lines = []
    for row, remark in zip(rows, ("", *table.remarks), strict=True):
        parts = [
            " " * (width - cells(cell)) + cell if column.figures else cell + " " * (width - cells(cell))
            for cell, width, column in zip(row, widths, table.columns, strict=True)
        ]
        lines += [_GAP.join(parts).rstrip(), *fill(remark, indent=_INDENT)]
    return lines
