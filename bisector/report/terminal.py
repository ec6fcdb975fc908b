"""Blocks as lines of text of a given width, styled by role: for terminals, mails and files.

Text from commits, kernels and guests passes :func:`clean`, so that no subject line can move the cursor or recolour the
screen. Prose is filled; a word longer than a line, such as an address or a path, is never cut.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import IO, TextIO

from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.text import Text
from rich.theme import Theme

from bisector.core.printable import clean
from bisector.report.blocks import Block, FactList, Listing, Page, Paragraph, Role, Section, Table

PROSE_WIDTH = 72
TABLE_WIDTH = 80  # as mails have it; a table that is wider is made narrower if it can be
_INDENT = "    "
_MOST_LABEL = 20
_ENDLESS = 10_000  # cells; wider than any table
_STYLES = {
    Role.PLAIN: "",
    Role.HEAD: "dim",
    Role.STRONG: "bold",
    Role.DIM: "dim",
    Role.BETTER: "green",
    Role.WORSE: "red",
    Role.SKIP: "yellow",
    Role.WEAK: "magenta",
    Role.ACTIVE: "cyan",
    Role.COMMAND: "bold cyan",
}
THEME = Theme({str(role): style for role, style in _STYLES.items()})


def console(stream: IO[str], width: int | None = None, *, colours: bool | None = None) -> Console:
    """A console that shows text unchanged, in the colours of the roles if ``stream`` is a terminal."""
    return Console(
        file=stream, width=width, theme=THEME, force_terminal=colours, highlight=False, markup=False, emoji=False
    )


def styled(text: str, role: Role = Role.PLAIN) -> Text:
    """The text as one printable line, wherever it came from."""
    return Text(clean(text), style=str(role))


def fill(text: str, width: int = PROSE_WIDTH, indent: str = "", role: Role = Role.PLAIN) -> list[Text]:
    """Prose in lines of at most ``width`` cells."""
    lines: list[str] = []  # rich's own wrapping either cuts long words or does not fill
    for word in clean(text).split():
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width - len(indent):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [Text.assemble(indent, (line, str(role))) for line in lines]


def block_lines(block: Block, width: int = PROSE_WIDTH, table_width: int = TABLE_WIDTH) -> list[Text]:
    """The lines of one block; only prose is filled, to ``width``."""
    match block:
        case Paragraph():
            return fill(block.text, width, role=block.role)
        case FactList():
            return list(_fact_lines(block, width))
        case Table():
            return list(_table_lines(block, width, table_width))
        case Listing():
            return [Text(f"{_INDENT}{clean(line.expandtabs())}".rstrip()) for line in block.lines]


def _fact_lines(block: FactList, width: int) -> Iterator[Text]:
    facts = [fact for fact in block.facts if fact.command or any(fact.texts)]
    widest = max(block.width, *(min(_MOST_LABEL, cell_len(clean(fact.label))) for fact in facts), 0)
    column = widest + 2 if widest else 0
    for fact in facts:
        lines = [line for text in fact.texts for line in fill(text, max(width - column, 1), role=fact.role)]
        lines += [styled(line.strip(), Role.COMMAND) for line in fact.command.splitlines()]
        label = styled(fact.label, fact.label_role)
        if label and cell_len(label.plain) >= column:
            yield label
            label = Text()
        for n, line in enumerate(lines):
            first = "" if n else label
            yield Text.assemble(first, " " * (column - cell_len(str(first))), line)


def _table_lines(table: Table, width: int, table_width: int) -> Iterator[Text]:
    """The lines of a table: the caption above it; below each row its moved last cell, its remark and its command."""
    moved = [""] * len(table.rows)
    if table.columns[-1].movable and _width(table) > table_width:
        moved = [row.cells[-1] for row in table.rows]
        rows = tuple(replace(row, cells=row.cells[:-1]) for row in table.rows)
        table = replace(table, columns=table.columns[:-1], rows=rows)
    split = table.grouped and _width(table) > table_width
    lines, below = iter(_grid_lines(table, without_first=split)), iter(moved)
    yield from fill(table.caption, table_width)
    yield next(lines)
    for group in table.groups:
        if split:
            yield styled(group[0].cells[0])
        for row in group:
            yield next(lines)
            for text in (next(below), row.remark):
                yield from fill(text, width, _INDENT, row.role)
            yield from (styled(f"{_INDENT}{line.strip()}", Role.COMMAND) for line in row.command.splitlines())


def _grid_lines(table: Table, *, without_first: bool) -> list[Text]:
    """The titles and the cells of each row, one line each; a group's name appears once, or is left out."""
    first = int(without_first)
    grid = rich_table.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=str(Role.HEAD))
    for column in table.columns[first:]:
        grid.add_column(styled(column.title), justify="right" if column.figures else "left", no_wrap=True)
    for group in table.groups:
        for place, row in enumerate(group):
            shown = zip(table.columns, ("" if place else row.cells[0], *row.cells[1:]), strict=True)
            cells = [styled(cell, row.role if column.verdict else Role.PLAIN) for column, cell in shown]
            grid.add_row(*cells[first:])
    made = console(io.StringIO(), _ENDLESS, colours=False)
    indent = "  " * first
    lines = []
    for segments in made.render_lines(grid, pad=False):
        lines.append(Text.assemble(indent, *((one.text, one.style or Style.null()) for one in segments), end=""))
        lines[-1].rstrip()
    return lines


def _width(table: Table) -> int:
    titles = tuple(column.title for column in table.columns)
    columns = zip(titles, *(row.cells for row in table.rows), strict=True)
    return sum(max(cell_len(clean(cell)) for cell in column) + 2 for column in columns) - 2


def lines_of(blocks: Iterable[Block], width: int) -> list[Text]:
    """The lines of blocks, prose and tables alike of at most ``width`` cells, with an empty line between them."""
    lines: list[Text] = []
    for block in blocks:
        shown = block_lines(block, width, width)
        lines += [*([Text()] if lines and shown else []), *shown]
    return lines


def as_text(lines: Iterable[Text]) -> str:
    """Lines without their styles, each with a newline."""
    return "".join(f"{line.plain.rstrip()}\n" for line in lines)


def on_stream(lines: Iterable[Text], stream: TextIO) -> str:
    """Lines as they are written to ``stream``, in colours if it is a terminal."""
    written = io.StringIO()
    console(written, _ENDLESS, colours=stream.isatty()).print(Text("\n").join(lines), soft_wrap=True)
    return written.getvalue()


def plain(page: Page, signs: Mapping[int, str] | None = None) -> str:
    """The whole document as plain text; ``signs`` are replaced (:meth:`str.maketrans`), except in listings."""
    lines = [line.plain for text in (page.title, page.lead) if text for line in (*fill(text), Text())]
    for section in page.sections:
        lines += [section.title, "=" * cell_len(section.title), "", *section_lines(section, signs), ""]
    return "".join(f"{line}\n" for line in lines[:-1])


def section_lines(section: Section, signs: Mapping[int, str] | None = None) -> list[str]:
    """The blocks of a section, without its title and with an empty line between them; ``signs`` as in :func:`plain`."""
    lines: list[str] = []
    for block in section.blocks:
        others = {} if signs is None or isinstance(block, Listing) else signs
        shown = [line.plain.rstrip().translate(others) for line in block_lines(block)]
        lines += [*([""] if lines else []), *shown]
    return lines
