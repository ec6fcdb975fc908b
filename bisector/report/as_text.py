"""A document as text: plain, or Markdown (GitHub's flavour, for its tables).

Plain prose is filled; plain tables and listings are as wide as they are.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from bisector.core.printable import clean
from bisector.report.document import Block, FactList, Listing, Page, Paragraph, Section, Table
from bisector.report.terminal import cells

PROSE_WIDTH = 72
TABLE_WIDTH = 80  # of a table that can be narrower: what a terminal shows and a mail takes
_GAP = "  "
_INDENT = "    "
_LABEL_MOST = 20

# What a commit's subject must not do to a page: become markup, a table's edge, HTML, or a person's name.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&@])")


def plain(page: Page, signs: Mapping[int, str] | None = None) -> str:
    """The whole document as plain text; ``signs`` are written otherwise (:meth:`str.maketrans`), except in listings."""
    lines = [*fill(page.title), "", *(line for line in [*fill(page.lead), ""] if page.lead)]
    for section in page.sections:
        lines += [section.title, "=" * cells(section.title), "", *section_lines(section, signs), ""]
    return "".join(f"{line}\n" for line in lines[:-1])


def section_lines(section: Section, signs: Mapping[int, str] | None = None) -> list[str]:
    """The blocks of a section with an empty line between them, without its title; see :func:`plain`."""
    lines: list[str] = []
    for block in section.blocks:
        others = {} if signs is None or isinstance(block, Listing) else signs
        lines += [*([""] if lines else []), *(line.translate(others) for line in block_lines(block))]
    return lines


def block_lines(block: Block) -> list[str]:
    """One block; only prose is filled."""
    match block:
        case Paragraph(text):
            return fill(text)
        case FactList(items):
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
    """Columns by spaces alone, never wrapped; a remark stands below its row, a caption above the table."""
    head = tuple(column.title for column in table.columns)
    widths = [max(cells(row[index]) for row in (head, *table.rows)) for index in range(len(head))]
    split = table.grouped and sum(widths) + len(_GAP) * (len(widths) - 1) > TABLE_WIDTH
    lines = [*fill(table.caption, TABLE_WIDTH), _row_line(head, widths, table, split=split)]
    for group in table.groups:
        lines += [group[0][0][0]] if split else []
        for place, (row, remark) in enumerate(group):
            shown = ("", *row[1:]) if place else row
            lines += [_row_line(shown, widths, table, split=split), *fill(remark, indent=_INDENT)]
    return lines


def _row_line(row: Sequence[str], widths: Sequence[int], table: Table, *, split: bool) -> str:
    """The cells of a row; of a ``split`` table without the first one, which has a line of its own."""
    parts = [
        " " * (width - cells(cell)) + cell if column.figures else cell + " " * (width - cells(cell))
        for cell, width, column in zip(row, widths, table.columns, strict=True)
    ]
    return _GAP.join(["", *parts[1:]] if split else parts).rstrip()


def markdown(page: Page) -> str:
    """The whole document as Markdown."""
    lines = [f"# {_escaped(page.title)}", "", *(line for line in [_escaped(page.lead), ""] if page.lead)]
    for section in page.sections:
        lines += [f"## {section.title}", ""]
        for block in section.blocks:
            lines += [*_markdown_block(block), ""]
    return "".join(f"{line}\n" for line in lines[:-1])


def _markdown_block(block: Block) -> list[str]:
    match block:
        case Paragraph(text):
            return [_escaped(text)]
        case FactList(items):
            return [f"- **{_escaped(name)}**: {_escaped(text)}" for name, text in items]
        case Table():
            return _markdown_table(block)
        case Listing(lines):
            longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
            fence = "`" * max(3, longest + 1)
            return [fence, *(clean(line.expandtabs()) for line in lines), fence]


def _markdown_table(table: Table) -> list[str]:
    remarks = any(table.remarks)
    caption = [f"**{_escaped(table.caption)}**", ""] if table.caption else []
    titles = [*(column.title for column in table.columns), *([table.remark_title] * remarks)]
    rules = [*("---:" if column.figures else "---" for column in table.columns), *(["---"] * remarks)]
    rows = [
        ["" if place else row[0], *row[1:], *([remark] * remarks)]
        for group in table.groups
        for place, (row, remark) in enumerate(group)
    ]
    written = [[_escaped(cell) for cell in row] for row in (titles, *rows)]
    return [*caption, *(_markdown_row(row) for row in (written[0], rules, *written[1:]))]


def _markdown_row(row: list[str]) -> str:
    return f"| {' | '.join(row)} |"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};" if found[0] in "<>&@" else f"\\{found[0]}", clean(text))
