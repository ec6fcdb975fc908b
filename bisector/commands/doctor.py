"""``bisector doctor``: what is found out about this machine, as lines for people or as a document for scripts."""

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from bisector.commands.arguments import Verbs, add_json, add_run_dir, add_settings, add_verb, write_json
from bisector.commands.effective import effective
from bisector.commands.output import note, write
from bisector.config import Settings, options
from bisector.config.options import Effective
from bisector.core.errors import Finding, Grade, UserError, refusal
from bisector.core.examination import Examination, ready
from bisector.doctor import checks
from bisector.git.bisect import check_terms
from bisector.report.display import print_lines
from bisector.report.findings import finding_lines, side_by_side
from bisector.report.terminal import Line, as_text
from bisector.store.rundir import state_home

_EXAMPLES = """\
examples:
  bisector doctor                          with the settings of `start`
  bisector doctor --stack hdd --hdd /dev/sdb1 --run-dir /srv/bisect
  bisector doctor --base-config /boot/config-6.1.0-18-amd64
  bisector doctor --hosts hosts.toml       every host of a fleet, compared
  bisector doctor --json | jq -r '.findings[] | select(.state == "missing").remedy'
exit codes: 0 `bisector start` can begin, even with warnings; 1 it would fail
"""
_WIDTH = 120
_ROW = "settings"
_NOT_READY = 1


def add(verbs: Verbs) -> None:
    """Register ``doctor``."""
    verb = add_verb(verbs, "doctor", doctor, examples=_EXAMPLES, disturbs=True)
    add_run_dir(verb, "where a run will be kept (default: below $XDG_STATE_HOME)")
    verb.add_argument("--hosts", type=Path, metavar="FILE", help="look at the hosts of a fleet; docs/fleet.md")
    add_json(verb)
    add_settings(verb)


def doctor(arguments: argparse.Namespace) -> int:
    """Look at everything that `start` needs, and at what makes its evidence better."""
    if arguments.hosts is not None:
        return _hosts(arguments)
    held, row = _settings(arguments)
    run_dir = (arguments.run_dir or state_home() / "runs").absolute()
    findings = [row, *checks.examine(held, run_dir, _note)]
    if arguments.json:
        write_json(Examination.of(findings))
    else:
        _print(lambda width: finding_lines(findings, width))
    return 0 if ready(findings) else _NOT_READY


def _print(lines: Callable[[int], Sequence[Line]]) -> None:
    """Lines of a width, as wide as what they are read on."""
    if sys.stdout.isatty():
        console = Console()
        print_lines(console, lines(console.width))
    else:
        write(as_text(lines(shutil.get_terminal_size((_WIDTH, 24)).columns)))


def _hosts(arguments: argparse.Namespace) -> int:
    """The same of every host of a fleet, with the settings that hold here."""
    from bisector.fleet import hosts, survey  # noqa: PLC0415 - of a fleet alone

    if arguments.run_dir is not None:
        raise UserError("--run-dir is a place on this machine, and --hosts looks at others", "leave one of them out")
    listed = hosts.load(arguments.hosts)
    if listed.cluster:
        raise UserError("the hosts of a Dask cluster are not known here", "there: bisector doctor")
    found = effective(arguments, here=False)
    written = options.written_values(found.settings)
    # A host tells nobody.
    given = {key: written[key] for key in _given(found) if not key.startswith(("mail.", "notify."))}
    surveyed = survey.survey(listed, given)
    document = survey.document(surveyed)
    if arguments.json:
        write_json(document)
    else:
        _print(lambda width: side_by_side(surveyed, width))
    return 0 if document.ready else _NOT_READY


def _given(effective: Effective) -> list[str]:
    """The settings that somebody has given."""
    origins = effective.origins.items()
    return [key for key, origin in origins if not origin.startswith("profile ") and origin not in options.FOLLOWING]


def _settings(arguments: argparse.Namespace) -> tuple[Settings, Finding]:
    """The settings that hold; where they are invalid, the default ones, so that the other rows are there."""
    try:
        found = effective(arguments)
        check_terms(found.settings.bisect.terms)
    except UserError as error:
        defaults = options.from_given({}).settings
        message = f"{error.message} (the other rows are for the default settings)"
        return defaults, refusal(_ROW, UserError(message, error.hint))
    given = _given(found)
    own = f", and your own: {', '.join(given)}" if given else ""
    return found.settings, Finding(_ROW, Grade.OK, f"profile {found.settings.profile}{own}")


def _note(text: str) -> None:
    note(f"bisector: {text}")  # it takes a while, and standard output may be a script's
