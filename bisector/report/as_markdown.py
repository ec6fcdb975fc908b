"""A report as Markdown (GitHub's flavour, for its tables)."""

import re

from bisector.core.printable import clean
from bisector.report.document import Block, Facts, Listing, Paragraph, Report, Table
from bisector.report.sections import sections, title

# What a commit's subject must not do to a page: become markup, a table's edge, HTML, or a person's name.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&@])")


def render(report: Report) -> str:
    """The whole report."""
    lines = [f"# {_text(title(report))}", ""]
    for section in sections(report):
        lines += [f"## {section.title}", ""]
        for block in section.blocks:
            lines += [*_block(block), ""]
    return "".join(f"{line}\n" for line in lines[:-1])


def _block(block: Block) -> list[str]:
    match block:
        case Paragraph(text):
            return [_text(text)]
        case Facts(items):
            return [f"- **{_text(name)}**: {_text(text)}" for name, text in items]
        case Table():
            return _table(block)
        case Listing(lines):
            longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
            fence = "`" * max(3, longest + 1)
            return [fence, *(clean(line.expandtabs()) for line in lines), fence]


def _table(table: Table) -> list[str]:
    titles = [*(column.title for column in table.columns), table.remark_title]
    rules = [*("---:" if column.figures else "---" for column in table.columns), "---"]
    rows = [[*row, remark] for row, remark in zip(table.rows, table.remarks, strict=True)]
    written = [[_text(cell) for cell in row] for row in (titles, *rows)]
    return [_row(cells) for cells in (written[0], rules, *written[1:])]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};" if found[0] in "<>&@" else f"\\{found[0]}", clean(text))
