"""What was found out about a machine, as lines for people."""

from collections.abc import Sequence

from bisector.core import units
from bisector.core.errors import Finding, Grade
from bisector.host.packages import merged
from bisector.report.terminal import Line, Role, Span, left, wrapped

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
