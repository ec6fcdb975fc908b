"""``fleet``: the hosts that measure together."""

import argparse

from bisector.commands.arguments import Verbs, add_group, add_verb, show, write_json
from bisector.commands.output import note, show_blocks
from bisector.core.errors import UserError
from bisector.fleet import hosts
from bisector.fleet.hosts import HOSTS_FILE, check_installed
from bisector.git.transfer import SOURCES, Mirror
from bisector.host import locks
from bisector.host.files import our_files
from bisector.host.locks import TurnPurpose
from bisector.store.rundir import jobs_home

_EXAMPLES = """\
examples:
  bisector fleet status                      who is there, and what each host does now
  bisector doctor --hosts hosts.toml         what differs between the hosts, and what is bad
  bisector start v6.1 v6.6 --hosts hosts.toml
docs/fleet.md has an example of hosts.toml, which you write
"""
_STATUS_EXAMPLES = """\
examples:
  bisector fleet status --hosts hosts.toml
  bisector fleet status --json | jq '.hosts[] | {name, state}'
exit codes: 0 each host can measure; 1 some cannot; others as in `bisector --help`
"""
_ON_HOST_EXAMPLES = """\
examples:
  bisector fleet on-host describe | jq .versions
`bisector fleet status` and commands with --hosts run this on a host, by SSH; nobody has to type it.
"""
_SOME_CANNOT = 1


def add(verbs: Verbs) -> None:
    """Register ``fleet``."""
    parts = add_group(verbs, "fleet", _EXAMPLES)
    verb = add_verb(parts, "status", status, "json", help_line="what each host does now", examples=_STATUS_EXAMPLES)
    meaning = "the list of hosts (default: ./%(default)s)"
    verb.add_argument("--hosts", default=HOSTS_FILE, metavar="FILE", help=meaning)
    verb = add_verb(
        parts, "on-host", on_host, help_line="what other commands run on a host, by SSH", examples=_ON_HOST_EXAMPLES
    )
    verb.add_argument("action", choices=("describe", "worker", "receive-pack"), help="what is asked of the host")
    verb.add_argument("run", nargs="?", default="", metavar="RUN", help="with receive-pack: the run")
    verb.add_argument("path", nargs="?", default="", metavar="PATH", help="with receive-pack: what git appends")


def status(arguments: argparse.Namespace) -> int:
    """Show the state of each host."""
    from bisector.fleet.status import of_fleet  # noqa: PLC0415 - the code of trials loads slowly
    from bisector.report.hosts import fleet_table  # noqa: PLC0415 - see above

    listed = hosts.load(arguments.hosts)
    if listed.cluster:
        raise UserError("of a Dask cluster its own pages tell", f"bisector fleet status --hosts {HOSTS_FILE}")
    found = of_fleet(listed)
    show(arguments, found, lambda: show_blocks([fleet_table(found)]))
    return 0 if found.complete else _SOME_CANNOT


def on_host(arguments: argparse.Namespace) -> int:
    """Do what another machine's bisector asks of this host; the answer is not for people."""
    if arguments.action == "describe":
        from bisector.fleet.status import describe  # noqa: PLC0415 - the code of trials loads slowly

        write_json(describe())
        return 0
    if arguments.action == "worker":
        check_installed("a host that measures for another machine")
        from bisector.fleet.cluster import serve  # noqa: PLC0415 - Dask is an extra, and slow to load

        return serve()
    home = jobs_home()
    # Unpacking sources would disturb a measurement on this host, so it waits for its turn.
    with our_files(home), locks.measuring(home, note, TurnPurpose.BUILD):
        return Mirror(home / SOURCES).receive(arguments.run)
