"""``fleet``: the machines that measure together, and why they trust each other."""

import argparse
import socket
import sys
from pathlib import Path

from bisector.commands import fleet_hosts
from bisector.commands.arguments import Verbs, add_json, add_verb, typed, write_json
from bisector.commands.catalogue import sentence
from bisector.commands.output import note, write, write_document
from bisector.core import json_document, units
from bisector.core.errors import Grade, UserError
from bisector.core.examination import ready
from bisector.fleet.documents import FleetMade, HostAdded, HostDescription, ShownCertificate
from bisector.fleet.extra import check_installed
from bisector.fleet.home import COORDINATOR, FleetHome, check_name
from bisector.fleet.hosts import HOSTS_FILE, PROGRAM, Host, Role, is_address, usual_name
from bisector.fleet.ssh import HostKey, login
from bisector.report.findings import finding_rows
from bisector.report.terminal import as_text

_EXAMPLES = """\
examples:
  bisector fleet init                        make the authority, and this machine its coordinator
  bisector fleet add anna@bench1             make that machine a host
  bisector fleet add bench1                  renew its certificate
  bisector doctor --hosts hosts.toml         what differs between the hosts, and what is bad
  bisector fleet status                      what each host does now
  bisector fleet drain bench1                no more trials there, until bisector fleet release
  bisector fleet remove bench1               take it out again
"""
_INIT_EXAMPLES = """\
examples:
  bisector fleet init                        loses nothing, however often; renews what expires soon
  bisector fleet init --new-authority        no host is trusted any more; add each of them again
  bisector fleet init --json | jq .coordinator.days_left
"""
_ADD_EXAMPLES = """\
examples:
  bisector fleet add anna@bench1 --coordinator tls://desk.example:8786
  bisector fleet add bench2                  once more, as hosts.toml and ~/.ssh/config have it
  bisector fleet add bench3 --repository /srv/linux   with a clone there: what it has is not sent
  bisector fleet add bench4 --build-only --bisector /opt/bin/bisector
  bisector fleet add anna@bench1 --json --yes | jq -r '.findings[].remedy'
exit codes: 0 added, and `bisector start` can begin there; 1 added, and it would fail there; others
as in `bisector --help`
"""
_REMOVE_EXAMPLES = """\
examples:
  bisector fleet remove bench1
  bisector fleet remove bench1 --forget      a machine that is gone, or was installed anew
"""
_ON_HOST_EXAMPLES = """\
examples:
  bisector fleet on-host describe | jq .versions
The other parts of `bisector fleet`, and `bisector doctor --hosts`, run this on a host, by SSH;
nobody has to type it.
"""
_PORT = 8786  # dask.distributed's usual one
_NOT_READY = 1
_NAME = "bisector fleet"
_WIDTH = 120


def add(verbs: Verbs) -> None:
    """Register ``fleet``."""
    group = verbs.add_parser(
        "fleet",
        description=sentence("fleet"),
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parts = group.add_subparsers(metavar="COMMAND", required=True)
    _add_init(parts)
    _add_add(parts)
    _add_remove(parts)
    fleet_hosts.add(parts)
    shown = add_verb(
        parts, "on-host", on_host, help_line="what other commands run on a host, by SSH", examples=_ON_HOST_EXAMPLES
    )
    actions = ("describe", "request", "install", "remove", *fleet_hosts.ON_HOST)
    shown.add_argument("action", choices=actions, help="what is asked of the host")
    shown.add_argument("name", nargs="?", default="", metavar="NAME", help="with request: name of the host")


def _add_init(parts: Verbs) -> None:
    verb = add_verb(
        parts, "init", init, help_line="make the fleet's authority and the coordinator's certificate",
        examples=_INIT_EXAMPLES,
    )  # fmt: skip
    verb.add_argument(
        "--new-authority", action="store_true", help="make a new one, so that no certificate of the old one counts"
    )
    add_json(verb)


def _add_add(parts: Verbs) -> None:
    verb = add_verb(
        parts, "add", add_host, help_line="make a machine a host of the fleet, by SSH", examples=_ADD_EXAMPLES
    )
    verb.add_argument("ssh", metavar="[USER@]HOST", help="how ssh logs in there, without a password")
    verb.add_argument("--name", help="what it is called (default: HOST up to its first dot)")
    verb.add_argument(
        "--port", type=typed("a port", int), help="port of its SSH (default: as ssh's configuration has it)"
    )
    verb.add_argument("--build-only", action="store_true", help="it builds kernels, and measures nothing")
    verb.add_argument("--repository", metavar="DIR", help="a clone of the kernel there, to borrow from; never written")
    verb.add_argument("--ssd", metavar="DISK", help="its fast disk, overwritten in every trial: /dev/disk/by-id/…")
    verb.add_argument("--hdd", metavar="DISK", help="its slow disk, overwritten in every trial: /dev/disk/by-id/…")
    verb.add_argument("--bisector", metavar="PROGRAM", default=PROGRAM, help="bisector there (default: that of PATH)")
    where = f"where hosts find this machine (default: as FILE has it, else tls:// and its name, port {_PORT})"
    verb.add_argument("--coordinator", metavar="ADDRESS", default="", help=where)
    verb.add_argument("--yes", action="store_true", help="accept its SSH key without asking, once it was shown")
    _add_file(verb)
    add_json(verb)


def _add_remove(parts: Verbs) -> None:
    verb = add_verb(parts, "remove", remove, help_line="take a host out of the fleet", examples=_REMOVE_EXAMPLES)
    verb.add_argument("name", metavar="NAME", help="name of the host")
    verb.add_argument("--forget", action="store_true", help="leave the machine itself as it is, without asking it")
    _add_file(verb)
    add_json(verb)


def _add_file(verb: argparse.ArgumentParser) -> None:
    meaning = "the list of hosts (default: ./%(default)s)"
    verb.add_argument("--hosts", type=Path, default=Path(HOSTS_FILE), metavar="FILE", help=meaning)


def init(arguments: argparse.Namespace) -> int:
    """Make what is missing of the fleet on this machine."""
    check_installed(_NAME)
    from bisector.fleet import authority, on_host  # noqa: PLC0415 - of an extra, and for this command alone

    home = FleetHome.of_person()
    with home.changing():
        signer, made, renewed = authority.initialised(home, anew=arguments.new_authority)
    own, ours = signer.certified, on_host.certificate_of(home.coordinator)
    issuer = ShownCertificate.of(own.name, own.serial, own.until, own.days_left(), own.fingerprint)
    document = FleetMade(directory=home.path, made=made, renewed=renewed, authority=issuer, coordinator=ours)
    if arguments.json:
        write_json(document)
    else:
        write(_made_text(document))
    return 0


def _made_text(made: FleetMade) -> str:
    lines = (
        _kept_line("authority", made.directory / "authority", made.authority, now=made.made),
        _kept_line("coordinator", made.directory / COORDINATOR, made.coordinator, now=made.renewed),
        "whoever has a certificate of this authority can run programs on every machine of the fleet\n",
        "next: bisector fleet add USER@HOST\n" if made.made else "",
    )
    return "".join(lines)


def _kept_line(what: str, directory: Path, certificate: ShownCertificate, *, now: bool) -> str:
    return f"{what:11}  {'made now' if now else 'kept'}, valid until {_until(certificate)}: {directory}\n"


def _until(certificate: ShownCertificate) -> str:
    return f"{certificate.until[:10]} ({units.plural(certificate.days_left, 'day')})"


def add_host(arguments: argparse.Namespace) -> int:
    """Make a machine a host of the fleet, or complete that."""
    check_installed(_NAME)
    from bisector.fleet import adding, hosts  # noqa: PLC0415 - see above

    host, home = _host(arguments), FleetHome.of_person()
    hosts.check(host, "bisector fleet add")
    if arguments.coordinator and not is_address(arguments.coordinator):
        raise UserError(
            f"--coordinator {arguments.coordinator}: expected an address such as tls://{socket.getfqdn()}:{_PORT}"
        )
    person = adding.Person(lambda host, key: _accepts(host, key, arguments.yes), lambda line: note(f"bisector: {line}"))
    with home.changing():
        added = adding.add(home, arguments.hosts, host, arguments.coordinator, person, usual=_own_address())
    if arguments.json:
        write_json(added)
    else:
        write(_added_text(added, host))
    return 0 if added.ready else _NOT_READY


def _host(arguments: argparse.Namespace) -> Host:
    name = arguments.name or usual_name(arguments.ssh)
    return Host(
        check_name(name),
        arguments.ssh,
        arguments.port,
        arguments.repository,
        arguments.ssd,
        arguments.hdd,
        Role.BUILD if arguments.build_only else Role.MEASURE,
        arguments.bisector,
    )


def _own_address() -> str:
    """Where this machine listens, by the name that it has in its network; empty where it has none."""
    name = socket.getfqdn()
    return "" if name.startswith("localhost") else f"tls://{name}:{_PORT}"


def _accepts(host: Host, key: HostKey, yes: bool) -> bool:
    """Show a key that nobody has seen yet, and ask; raises :class:`UserError` where nobody can answer."""
    note(f"the SSH key of {host.name} ({login(host)}) is {key}")
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UserError(
            "nobody is here to accept that key",
            "compare it with `ssh-keygen -lf` on the host; then the same with --yes",
        )
    note("`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the host shows the same. Is it that machine? (yes/no)")
    return sys.stdin.readline().strip().lower() == "yes"


def _added_text(added: HostAdded, host: Host) -> str:
    lines = [
        f"{added.name} is a host of the fleet: {added.hosts_file}",
        f"SSH key      {added.key}",
        f"certificate  until {_until(added.certificate)}",
        f"worker       {_worker(added, host)}",
    ]
    findings = [one.finding for one in added.findings if one.state in (Grade.WARN, Grade.MISSING)]
    bad = as_text(finding_rows(findings, _WIDTH)) if findings else ""
    can = "can begin" if ready(findings) else "would fail"
    return "\n".join(lines) + f"\ndoctor       {len(added.findings)} rows; `bisector start` {can} there\n{bad}"


def _worker(added: HostAdded, host: Host) -> str:
    if added.worker is None:
        line = f"setsid {added.start} </dev/null >worker.log 2>&1 &"
        return f"no systemd there; this line, typed there, starts it:\n  {line}"
    if added.linger is False:
        return f"{added.worker}, but only while its user is logged in, until: ssh {login(host)} loginctl enable-linger"
    return added.worker


def remove(arguments: argparse.Namespace) -> int:
    """Take a host out of the fleet, or complete that."""
    check_installed(_NAME)
    from bisector.fleet import adding  # noqa: PLC0415 - see above

    home = FleetHome.of_person()
    with home.changing():
        removed = adding.remove(
            home, arguments.hosts, arguments.name, forget=arguments.forget, told=lambda what: note(f"removed {what}")
        )
    if arguments.json:
        write_json(removed)
    elif removed.certificate is not None and removed.certificate.days_left >= 0:
        note(
            f"its certificate stays valid until {_until(removed.certificate)}: distributed knows no revocation; if"
            " somebody may still have it: bisector fleet init --new-authority, and add the other hosts again"
        )
    return 0


def on_host(arguments: argparse.Namespace) -> int:
    """What a host is asked; its answer is for a bisector, not for people."""
    if arguments.action in fleet_hosts.ON_HOST:
        return fleet_hosts.on_host(arguments.action)
    from bisector.fleet import on_host as host  # noqa: PLC0415 - see above

    home = FleetHome.of_person()
    if arguments.action == "describe":
        return _answer(host.describe(home))
    with home.changing("host"):  # the coordinator may be a host, too, and changes the fleet meanwhile
        if arguments.action == "request":
            write_document(host.request(home, check_name(arguments.name)))
            return 0
        if arguments.action == "install":
            return _answer(host.install(home, sys.stdin.read(1 << 20)))
        return _answer(host.remove(home))


def _answer(description: HostDescription) -> int:
    write_document(json_document.text(description))
    return 0
