"""``bisector doctor``: what is found out about this machine, as lines for people or as a document for scripts."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from bisector.commands.arguments import Verbs, add_json, add_run_dir, add_settings, add_verb, given_settings, write_json
from bisector.commands.output import note, write
from bisector.config import Settings, options
from bisector.core.errors import Finding, Grade, UserError, refusal
from bisector.core.examination import Examination, ready
from bisector.doctor import checks
from bisector.git.bisect import check_terms
from bisector.report.display import print_lines
from bisector.report.findings import finding_lines
from bisector.report.terminal import as_text
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
