"""``bisector doctor``: checks of this machine, or of all hosts, as lines for people or as a JSON document."""

import argparse
from pathlib import Path

from bisector.commands.arguments import Verbs, add_run_dir, add_settings, add_verb, effective, write_json
from bisector.commands.output import note, show_blocks
from bisector.config import options
from bisector.config.options import Effective
from bisector.core.errors import Finding, Grade, UserError, refusal
from bisector.core.examination import Examination, ready
from bisector.doctor import checks
from bisector.git.bisect import check_terms
from bisector.report.findings import finding_blocks, side_by_side
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
_ROW = "settings"
_NOT_READY = 1


def add(verbs: Verbs) -> None:
    """Register ``doctor``."""
    verb = add_verb(verbs, "doctor", doctor, "json", examples=_EXAMPLES, disturbs=True)
    add_run_dir(verb, "where a run will be kept (default: below $XDG_STATE_HOME)")
    verb.add_argument("--hosts", type=Path, metavar="FILE", help="look at the hosts of a fleet; docs/fleet.md")
    add_settings(verb)


def doctor(arguments: argparse.Namespace) -> int:
    """Check everything that `start` needs, and what would make its evidence better."""
    if arguments.hosts is not None:
        return _hosts(arguments)
    try:
        found = effective(arguments)
        check_terms(found.settings.bisect.terms)
    except UserError as error:  # the other rows are shown all the same, for the default settings
        held = options.from_given({}).settings
        row = refusal(_ROW, UserError(f"{error.message} (the other rows are for the default settings)", error.hint))
    else:
        held, given = found.settings, _given(found)
        own = f", and your own: {', '.join(given)}" if given else ""
        row = Finding(_ROW, Grade.OK, f"profile {held.profile}{own}")
    run_dir = (arguments.run_dir or state_home() / "runs").absolute()
    # Each step is noted on standard error: it takes a while, and a script may read standard output.
    findings = [row, *checks.examine(held, run_dir, lambda text: note(f"bisector: {text}"))]
    if arguments.json:
        write_json(Examination.of(findings))
    else:
        show_blocks(finding_blocks(findings))
    return 0 if ready(findings) else _NOT_READY


def _hosts(arguments: argparse.Namespace) -> int:
    """Make the same checks on every host of a fleet, with the settings that are effective here."""
    from bisector.fleet import hosts, survey  # noqa: PLC0415 - only fleets need it

    if arguments.run_dir is not None:
        raise UserError("--run-dir is a place on this machine, and --hosts looks at others", "leave one of them out")
    listed = hosts.load(arguments.hosts)
    if listed.cluster:
        raise UserError("the hosts of a Dask cluster are not known here", "there: bisector doctor")
    found = effective(arguments, here=False)
    written = options.written_values(found.settings)
    # Hosts do not send letters or notices: those settings are not passed on.
    given = {key: written[key] for key in _given(found) if not key.startswith(("mail.", "notify."))}
    surveyed = survey.survey(listed, given)
    document = survey.document(surveyed)
    if arguments.json:
        write_json(document)
    else:
        show_blocks(side_by_side(surveyed))
    return 0 if document.ready else _NOT_READY


def _given(effective: Effective) -> list[str]:
    origins = effective.origins.items()
    return [key for key, origin in origins if not origin.startswith("profile ") and origin not in options.FOLLOWING]
