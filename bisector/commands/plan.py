"""``plan``: what to expect of a bisection on this machine before it is begun."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from bisector.bisect import session
from bisector.bisect.state import Aim
from bisector.commands.arguments import (
    NOTIFY,
    Verbs,
    add_run_dir,
    add_settings,
    add_verb,
    count,
    duration,
    effective,
    given_settings,
    seed,
    show,
)
from bisector.commands.measuring import SEARCHES, forecast_of
from bisector.commands.output import note, show_blocks, warn
from bisector.config.option_table import rows
from bisector.doctor.checks import check_configuration, check_workload
from bisector.fleet import hosts
from bisector.fleet.hosts import HostRole
from bisector.plan.forecast import forecast_facts
from bisector.report.display import display_for
from bisector.status import from_record

_EXAMPLES = """\
examples:
  bisector plan v4.11 v4.13-rc1              is one night enough?
  bisector plan v4.11 v4.13-rc1 --calibrate 3   measure each end three times first;
                                             `bisector resume` then searches
  bisector plan v4.11 v4.13-rc1 --budget 8h  what can be reached in one night?
  bisector plan v4.11 v4.13-rc1 --hosts 4    are four hosts worth it?
  bisector plan v4.11 v4.13-rc1 --json | jq .hours
  bisector plan compare v6.1 v6.2 --stack hdd   of a comparison: as `bisector compare … --plan`
Times and noise come from earlier runs on this host; what was not measured is assumed, and marked
so.
exit codes: 0 worth starting; 1 hopeless; others as in `bisector --help`
"""
_HOPELESS = 1


def add(verbs: Verbs) -> None:
    """Register ``plan``."""
    verb = add_verb(verbs, "plan", plan, "range repo json", examples=_EXAMPLES, disturbs=True)
    verb.add_argument(
        "--searches",
        type=count,
        default=SEARCHES,
        metavar="N",
        help=f"how many searches to simulate (default: {SEARCHES})",
    )
    verb.add_argument(
        "--budget", type=duration, metavar="DURATION", help="what can be reached in that time (6h); see bisector start"
    )
    meaning = "how many hosts like this one, or hosts.toml; say what they gain (default: 1)"
    verb.add_argument("--hosts", type=_hosts, default=1, metavar="K|FILE", help=meaning)
    verb.add_argument("--seed", type=seed, default=1, metavar="N", help="seed of the simulation (default: 1)")
    add_run_dir(verb, "with --calibrate: where to keep the run (default: below $XDG_STATE_HOME)")
    add_settings(verb, {row.key for row in rows()} - {NOTIFY})


def _hosts(text: str) -> int:
    """The number of hosts; a wrong number is argparse's error, and a bad hosts file raises :class:`UserError`."""
    if text.isdecimal():
        return count(text)
    return sum(host.role is HostRole.MEASURE for host in hosts.load(Path(text)).hosts)


def plan(arguments: argparse.Namespace) -> int:
    """Estimate what a bisection would take."""
    settings = effective(arguments, arguments.old, arguments.new, here=arguments.hosts == 1).settings
    check_configuration(settings.kernel)
    for doubt in check_workload(settings):
        warn(doubt)
    asked = session.BisectRequest(arguments.repo, arguments.old, arguments.new, settings, tuple(arguments.paths))
    if "bisect.calibrate" in given_settings(arguments):
        # Measure both ends, in a run that can be resumed.
        begun = session.begun(asked, arguments.run_dir, warn)
        with begun as (run, store), display_for(sys.stderr, quiet=False) as display:
            session.go_on(run, store, display, aim=Aim.ENDS)
            note(f"bisector: to search with these readings: {from_record.run_command('resume', run.path)}")
            session.let_go(run, store, display)
    asked = replace(asked, budget_s=arguments.budget)
    made = forecast_of(asked, arguments.searches, arguments.seed, arguments.hosts)
    show(arguments, made, lambda: show_blocks([forecast_facts(made)]))
    return _HOPELESS if made.hopeless else 0
