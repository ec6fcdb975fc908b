"""``bisector doctor``: what is found out about this machine, as lines for people or as a document for scripts."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from rich.console import Console

from bisector.commands.arguments import Verbs, add_json, add_run_dir, add_settings, add_verb, given_settings, write_json
from bisector.commands.output import note, write
from bisector.config import Settings, options
from bisector.core import units
from bisector.core.errors import Finding, Grade, UserError, refusal
from bisector.core.json_document import SCHEMA, Record
from bisector.doctor import checks
from bisector.git.bisect import check_terms
from bisector.host.packages import merged
from bisector.report.display import print_lines
from bisector.report.terminal import Line, Role, Span, as_text, left, wrapped
from bisector.store.rundir import state_home

_EXAMPLES = """\
examples:
  bisector doctor                            with the settings that `start` would use here
  bisector doctor --base-config /boot/config-6.1.0-18-amd64 --run-dir /srv/bisect
  bisector doctor --json | jq -r '.findings[] | select(.state == "missing").remedy'
exit codes: 0 `bisector start` can begin, even with warnings; 1 it would fail
"""
_WIDTH = 120
_ROW = "settings"
_NOT_READY = 1
_GAP = "  "
_ROLES = {Grade.OK: Role.NEW, Grade.WARN: Role.SKIP, Grade.MISSING: Role.OLD, Grade.INFO: Role.DIM}
_STATE_WIDTH = max(len(grade) for grade in Grade)
_LEAST_WIDTH = 40


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


def add(verbs: Verbs) -> None:
    """Register ``doctor``."""
    verb = add_verb(
        verbs,
        "doctor",
        doctor,
        examples=_EXAMPLES,
        disturbs=True,
    )
    add_run_dir(verb, "where a run will be kept (default: below $XDG_STATE_HOME)")
    add_json(verb)
    add_settings(verb)


def doctor(arguments: argparse.Namespace) -> int:
    """Look at everything that `start` needs, and at what makes its evidence better."""
    held, row = _settings(arguments)
    run_dir = (arguments.run_dir or state_home() / "runs").absolute()
    findings = [row, *checks.examine(held, run_dir, _note)]
    if arguments.json:
        write_json(Examination.of(findings))
    elif sys.stdout.isatty():
        console = Console()
        print_lines(console, finding_lines(findings, console.width))
    else:
        width = shutil.get_terminal_size((_WIDTH, 24)).columns
        write(as_text(finding_lines(findings, width)))
    return 0 if ready(findings) else _NOT_READY


def _settings(arguments: argparse.Namespace) -> tuple[Settings, Finding]:
    """The settings that hold; where they are invalid, the default ones, so that the other rows are there."""
    try:
        effective = options.load(given_settings(arguments), arguments.config)
        check_terms(effective.settings.bisect.terms)
    except UserError as error:
        with tempfile.TemporaryDirectory() as nowhere:
            defaults = options.load(directory=Path(nowhere)).settings
        message = f"{error.message} (the other rows are for the default settings)"
        return defaults, refusal(_ROW, UserError(message, error.hint))
    given = [key for key, origin in effective.origins.items() if not origin.startswith("profile ")]
    own = f", and your own: {', '.join(given)}" if given else ""
    return effective.settings, Finding(_ROW, Grade.OK, f"profile {effective.settings.profile}{own}")


def _note(text: str) -> None:
    note(f"bisector: {text}")  # it takes a while, and standard output may be a script's


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
