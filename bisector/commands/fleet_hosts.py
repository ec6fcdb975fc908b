"""``fleet status``, ``fleet drain`` and ``fleet release``: how the hosts stand, and whether they take trials."""

import argparse
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

from bisector.commands.arguments import Verbs, add_json, add_verb, write_json
from bisector.commands.output import note, write, write_document
from bisector.core import json_document
from bisector.core.errors import UserError
from bisector.executor import fleet_status
from bisector.executor.duty import DutyFiles
from bisector.executor.fleet_status import DRAIN, FORGET, HERE, RELEASE, STANDING, FleetStatus, HostStatus
from bisector.executor.spool import Spool, spool_home
from bisector.executor.standing import standing
from bisector.fleet import hosts
from bisector.fleet.home import FleetHome
from bisector.fleet.hosts import HOSTS_FILE
from bisector.report.fleet_lines import fleet_lines
from bisector.report.terminal import as_text

_STATUS_EXAMPLES = f"""\
examples:
  bisector fleet status                      all hosts of ./{HOSTS_FILE}
  bisector fleet status --json | jq -r '.hosts[] | select(.state == "idle").name'
  bisector fleet status --here               on a host: that host alone, without SSH
exit codes: 0 each host has answered; 1 some did not; others as in `bisector --help`
"""
_DRAIN_EXAMPLES = """\
examples:
  bisector fleet drain bench1 --reason "a new SSD on Friday"
  bisector fleet drain --here                on the host itself, which may dial in without SSH
A drained host finishes its trial, and takes no more until `bisector fleet release`, whatever is
started anew meanwhile.
"""
_RELEASE_EXAMPLES = """\
examples:
  bisector fleet release bench1
  bisector fleet release --here              on the host itself, which may dial in without SSH
"""
ON_HOST = (STANDING, DRAIN, RELEASE, FORGET)
_WIDTH = 120
_SOME_DID_NOT = 1
_MOST_SAID = 4096  # a reason, or the key of a run


def add(parts: Verbs) -> None:
    """Register the three."""
    verb = add_verb(
        parts, "status", status, help_line="show what each host does, and which take no trials",
        examples=_STATUS_EXAMPLES,
    )  # fmt: skip
    _add_where(verb)
    verb = add_verb(
        parts, "drain", drain, help_line="have a host take no more trials; it finishes the one under way",
        examples=_DRAIN_EXAMPLES,
    )  # fmt: skip
    verb.add_argument("name", nargs="?", metavar="NAME", help="name of the host")
    verb.add_argument("--reason", default="", metavar="TEXT", help="why, for who asks for the status")
    _add_where(verb)
    verb = add_verb(
        parts, "release", release, help_line="let a drained host take trials again", examples=_RELEASE_EXAMPLES
    )
    verb.add_argument("name", nargs="?", metavar="NAME", help="name of the host")
    _add_where(verb)


def _add_where(verb: argparse.ArgumentParser) -> None:
    meaning = "the list of hosts (default: ./%(default)s)"
    verb.add_argument("--hosts", type=Path, default=Path(HOSTS_FILE), metavar="FILE", help=meaning)
    verb.add_argument(HERE, action="store_true", help="this machine, as a host")
    meaning = f"with {HERE}: where its worker keeps trials (default: its usual place)"
    verb.add_argument("--spool", type=Path, default=spool_home(), metavar="DIR", help=meaning)
    add_json(verb)


def status(arguments: argparse.Namespace) -> int:
    """How each host stands."""
    spool = Spool(arguments.spool.absolute())
    if arguments.here:
        return _show(arguments, FleetStatus(hosts=(fleet_status.here(spool),)))
    listed = hosts.load(arguments.hosts)
    found = fleet_status.of_fleet(FleetHome.of_person(), listed, spool, lambda name: None)
    if not found.hosts:
        raise UserError(f"{arguments.hosts} lists no host", "bisector fleet add USER@HOST")
    return _show(arguments, found)


def drain(arguments: argparse.Namespace) -> int:
    """Have a host take no more trials."""
    return _change(arguments, DRAIN, arguments.reason)


def release(arguments: argparse.Namespace) -> int:
    """Let a host take trials."""
    return _change(arguments, RELEASE, "")


def _change(arguments: argparse.Namespace, word: str, reason: str) -> int:
    if arguments.here == (arguments.name is not None):
        raise UserError(f"bisector fleet {word}: which host?", f"bisector fleet {word} NAME, or on the host {HERE}")
    if arguments.here:
        spool = Spool(arguments.spool.absolute())
        _done(spool, word, reason)
        found = fleet_status.here(spool)
    else:
        host = hosts.load(arguments.hosts).named(arguments.name)
        found = fleet_status.changed(FleetHome.of_person(), host, word, reason)
    if not arguments.json:
        note(f"bisector: {_sentence(found)}")
    return _show(arguments, FleetStatus(hosts=(found,)))


def _sentence(host: HostStatus) -> str:
    found = host.standing
    if found is None or found.drained is None:
        return f"{host.name} takes trials"
    ends = "; it finishes the one under way" if found.running else ""
    return f"{host.name} takes no more trials{ends}"


def _show(arguments: argparse.Namespace, found: FleetStatus) -> int:
    if arguments.json:
        write_json(found)
    else:
        width = shutil.get_terminal_size((_WIDTH, 24)).columns
        write(as_text(fleet_lines(found, datetime.now(UTC).astimezone(), width)))
    return 0 if found.complete else _SOME_DID_NOT


def on_host(action: str) -> int:
    """What the coordinator's commands run on a host; the answer is for a bisector."""
    spool = Spool(spool_home())
    said = sys.stdin.read(_MOST_SAID).strip() if action in (DRAIN, FORGET) else ""
    if action == FORGET:
        from bisector.executor.forget import forget  # noqa: PLC0415 - what ends a trial is slow to load

        write_document(json_document.text(forget(spool, said)))
        return 0
    if action != STANDING:
        _done(spool, action, said)
    write_document(json_document.text(standing(spool)))
    return 0


def _done(spool: Spool, word: str, reason: str) -> None:
    files = DutyFiles(spool)
    if word == DRAIN:
        files.drain(reason.strip())
    else:
        files.release()
