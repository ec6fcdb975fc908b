"""What was found out about a machine, as lines for people; of several machines side by side.

Side by side a row is in full only where machines differ, or where it is bad.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from bisector.core import units
from bisector.core.errors import Finding, Grade
from bisector.host.packages import merged
from bisector.report.terminal import Line, Role, Span, cut, left, wrapped

_GAP = "  "
ROLES = {Grade.OK: Role.BETTER, Grade.WARN: Role.SKIP, Grade.MISSING: Role.WORSE, Grade.INFO: Role.DIM}
_STATE_WIDTH = max(len(grade) for grade in Grade)
LEAST_WIDTH = 40


def finding_lines(findings: Sequence[Finding], width: int) -> list[Line]:
    """A row for each finding with its remedy below, and the summary; a line exceeds ``width`` only if it must."""
    return [*finding_rows(findings, width), (), *_sum(findings)]


def finding_rows(findings: Sequence[Finding], width: int, name_width: int = 0) -> list[Line]:
    """The rows alone, their names padded to ``name_width`` at least."""
    name_width = max((name_width, *(len(finding.name) for finding in findings)))
    return [line for finding in findings for line in _rows(finding, name_width, width)]


def _rows(finding: Finding, name_width: int, width: int) -> list[Line]:
    indent = name_width + _STATE_WIDTH + 2 * len(_GAP)
    first, *more = wrapped(finding.what.split(), max(width - indent, LEAST_WIDTH)) or [""]
    role = ROLES[finding.state]
    head = (Span(left(finding.name, name_width) + _GAP), Span(left(finding.state, _STATE_WIDTH), role))
    lines: list[Line] = [(*head, Span(_GAP + first))]
    lines += [(Span(" " * indent + text),) for text in more]
    # A command is not broken into lines: it is there to be copied.
    lines += [(Span(" " * indent), Span(line.strip(), Role.COMMAND)) for line in finding.remedy.splitlines()]
    return lines


def _sum(findings: Sequence[Finding]) -> list[Line]:
    missing = [finding for finding in findings if finding.state is Grade.MISSING]
    warnings = sum(finding.state is Grade.WARN for finding in findings)
    noted = f", {units.plural(warnings, 'warning')}" if warnings else ""
    if not missing:
        return [(Span(f"`bisector start` can begin here{noted}", Role.STRONG),)]
    lines: list[Line] = [(Span(f"`bisector start` would fail: {len(missing)} missing{noted}", Role.STRONG),)]
    commands = merged(finding.remedy for finding in missing if finding.remedy)
    return [*lines, *((Span(_GAP), Span(line, Role.COMMAND)) for text in commands for line in text.splitlines())]


_GOOD = frozenset((Grade.OK, Grade.INFO))
_MOST_LABEL = 24  # of the column with names of machines; more names take more lines


def side_by_side(found: Mapping[str, Sequence[Finding]], width: int) -> list[Line]:
    """The rows of all machines, by their names, and what they come to.

    A row that all have alike, and that is good, is one line. Of others, machines that have it alike share an entry.
    """
    rows = list(_rows_of_machines(found))
    widths = (
        max((len(name) for name, *_ in rows), default=0),
        min(max((len(label) for _, label, _, _ in rows), default=0), _MOST_LABEL),
    )
    lines = [line for row in rows for line in _lines(row, widths, width)]
    return [*lines, (), *_sums(found)]


_Row = tuple[str, str, Finding, bool]  # what was looked at, on which machines, what was found, whether in full


def _rows_of_machines(found: Mapping[str, Sequence[Finding]]) -> Iterator[_Row]:
    for name in _names(found):
        alike: dict[Finding, list[str]] = {}
        for machine, findings in found.items():
            for finding in findings:
                if finding.name == name:
                    alike.setdefault(finding, []).append(machine)
        one_line = len(alike) == 1 and next(iter(alike)).state in _GOOD
        for number, (finding, machines) in enumerate(alike.items()):
            label = f"all {len(found)}" if len(machines) == len(found) > 1 else ", ".join(machines)
            yield name if number == 0 else "", label, finding, not one_line


def _names(found: Mapping[str, Sequence[Finding]]) -> list[str]:
    """What was looked at, in the order of the machine that has most rows; others' own come last."""
    longest = sorted(found.values(), key=len, reverse=True)
    return list(dict.fromkeys(finding.name for findings in longest for finding in findings))


def _lines(row: _Row, widths: tuple[int, int], width: int) -> Iterator[Line]:
    name, label, finding, in_full = row
    name_width, label_width = widths
    indent = name_width + label_width + _STATE_WIDTH + 3 * len(_GAP)
    head = Span(left(name, name_width) + _GAP)
    state = Span(left(finding.state, _STATE_WIDTH), ROLES[finding.state])
    if not in_full:
        what = Span(f"{_GAP}{left(label, label_width)}{_GAP}{finding.what}")
        yield cut((head, state, what), width)
        return
    labels = wrapped(label.split(), label_width)
    whats = [Span(text) for text in wrapped(finding.what.split(), max(width - indent, LEAST_WIDTH))]
    # A command is not broken into lines: it is there to be copied.
    whats += [Span(line.strip(), Role.COMMAND) for line in finding.remedy.splitlines()]
    columns = zip_longest((Span(text) for text in labels), whats, fillvalue=Span(""))
    for number, (machines, what) in enumerate(columns):
        first = (head, state) if number == 0 else (Span(" " * (name_width + len(_GAP) + _STATE_WIDTH)),)
        yield (*first, Span(_GAP + left(machines.text, label_width) + _GAP), what)


def _sums(found: Mapping[str, Sequence[Finding]]) -> Iterator[Line]:
    width = max(map(len, found), default=0)
    for machine, findings in found.items():
        missing = [finding.name for finding in findings if finding.state is Grade.MISSING]
        warnings = sum(finding.state is Grade.WARN for finding in findings)
        noted = f", {units.plural(warnings, 'warning')}" if warnings else ""
        if len(findings) <= 1:  # why, is in its row
            text = "was not looked at"
        elif missing:
            text = f"`bisector start` would fail there{noted}; missing: {', '.join(dict.fromkeys(missing))}"
        else:
            text = f"`bisector start` can begin there{noted}"
        yield (Span(left(machine, width) + _GAP), Span(text, Role.STRONG))
