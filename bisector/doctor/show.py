"""Findings about this machine as lines for people and as one document for scripts; pure."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from bisector.core import units
from bisector.core.errors import Finding, Grade
from bisector.core.json_document import SCHEMA, Record
from bisector.host.packages import merged
from bisector.report.terminal import Line, Role, Span, left, wrapped

_GAP = "  "
_ROLES = {Grade.OK: Role.NEW, Grade.WARN: Role.SKIP, Grade.MISSING: Role.OLD, Grade.INFO: Role.DIM}
_STATE_WIDTH = max(len(grade) for grade in Grade)
_LEAST_WIDTH = 40


def ready(findings: Sequence[Finding]) -> bool:
    """Whether `start` would begin here."""
    return all(finding.state is not Grade.MISSING for finding in findings)


def finding_lines(findings: Sequence[Finding], width: int) -> list[Line]:
    """A row for each finding with its remedy below, and the summary; a line exceeds ``width`` only if it must."""
    name_width = max((len(finding.name) for finding in findings), default=0)
    lines: list[Line] = []
    for finding in findings:
        lines += _rows(finding, name_width, width)
    return [*lines, (), *_sum(findings)]


def _rows(finding: Finding, name_width: int, width: int) -> list[Line]:
    indent = name_width + _STATE_WIDTH + 2 * len(_GAP)
    first, *more = wrapped(finding.what.split(), max(width - indent, _LEAST_WIDTH)) or [""]
    role = _ROLES[finding.state]
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


class ShownFinding(Record, frozen=True, kw_only=True):
    """What was found out about this machine."""

    name: Annotated[str, "what was looked at; names stay"]
    state: Annotated[Grade, "`missing` stops `bisector start`, `warn` makes its evidence worse"]
    what: Annotated[str, "what was found; sentences may change"]
    remedy: Annotated[str | None, "command that fixes it, or a hint"]


class Examination(Record, frozen=True, kw_only=True):
    """What ``bisector doctor --json`` prints."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    ready: Annotated[bool, "whether `bisector start` can begin (exit code 0)"]
    findings: Annotated[tuple[ShownFinding, ...], "in the order in which they are shown"]

    @classmethod
    def of(cls, findings: Sequence[Finding]) -> Self:
        """The same as :func:`finding_lines`."""
        rows = (
            ShownFinding(name=one.name, state=one.state, what=one.what, remedy=one.remedy or None) for one in findings
        )
        return cls(ready=ready(findings), findings=tuple(rows))
