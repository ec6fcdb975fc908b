"""How a host comes into the fleet, and leaves it: on this machine and, by SSH, on the host.

In an order in which whatever was done before a kill is done again, or found done, when the same is typed again: the row
in ``hosts.toml`` is put in last, and taken out before what is kept here of the host.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bisector.config import file as configfile
from bisector.core import json_document
from bisector.core.errors import InfraError, UserError
from bisector.core.examination import Examination
from bisector.core.printable import clean
from bisector.fleet import ask, authority, edit_hosts, hosts, ssh, versions
from bisector.fleet.ask import QUESTION_S, check_silent
from bisector.fleet.authority import Authority
from bisector.fleet.documents import HostAdded, HostDescription, HostRemoved, Installation, ShownCertificate
from bisector.fleet.home import FleetHome, make_private
from bisector.fleet.hosts import Host, Hosts, add_command
from bisector.fleet.ssh import HostKey, Remote, login
from bisector.host.files import our_files, write_whole

_DOCTOR_S = 240.0  # it may try KVM, and QEMU, and build nothing


@dataclass(frozen=True, slots=True)
class Person:
    """Whom it is done for: ``accepts`` is asked about a key that nobody has seen yet, ``told`` gets a line per step."""

    accepts: Callable[[Host, HostKey], bool]
    told: Callable[[str], None]


def add(home: FleetHome, listed: Path, host: Host, coordinator: str, person: Person, *, usual: str = "") -> HostAdded:
    """Make a machine a host of the fleet; one that is already gets a new certificate.

    The address of the ``coordinator`` is as it was typed; else as the file has it; else the ``usual`` one.
    Raises :class:`UserError` where the person has to do something about it, and :class:`InfraError`.
    """
    signer = Authority.open(home)
    known = hosts.load(listed) if listed.exists() else Hosts(listed, None, ())
    coordinator = _address(known, coordinator, usual)
    host = _as_listed(known, host)
    key = _pinned(home, host, person)
    remote = Remote(host, home)
    _check_versions(host, describe(remote))
    person.told("the same versions there as here")
    given = _certify(home, signer, remote, coordinator)
    if given.certificate is None:
        raise InfraError(f"{host.name}: its certificate was installed and is not there", add_command(host))
    person.told(f"certificate for {host.name} until {given.certificate.until[:10]}")
    examined = examine(remote, {})
    edit_hosts.put(listed, host, coordinator)
    if given.trouble:
        person.told(f"systemd there: {clean(given.trouble)}")
    return HostAdded(
        name=host.name,
        ssh=str(host.ssh),
        key=key.fingerprint,
        certificate=given.certificate,
        worker=given.worker,
        linger=given.linger,
        start=given.start,
        ready=examined.ready,
        findings=examined.findings,
        hosts_file=listed,
    )


def _address(known: Hosts, typed: str, usual: str) -> str:
    if typed and known.coordinator and typed != known.coordinator:
        raise UserError(
            f"{known.path}: the coordinator is {known.coordinator}, not {typed}",
            "change it there; then type bisector fleet add once more for each host",
        )
    if address := typed or known.coordinator or usual:
        return address
    raise UserError(
        "hosts have to know where their coordinator listens",
        "bisector fleet add … --coordinator tls://THIS-MACHINE:8786, once: hosts.toml keeps it",
    )


def _as_listed(known: Hosts, host: Host) -> Host:
    """The host with what the file says of it, as far as nothing else was typed; raises for what contradicts it."""
    for other in known.hosts:
        if other.name != host.name and (other.ssh, other.port) == (host.ssh, host.port):
            raise UserError(
                f"{known.path}: {login(host)} is {other.name} already",
                f"its certificate is renewed so: {add_command(other)}",
            )
    if host.name not in known:
        return host
    was = known.named(host.name)
    if was.ssh not in (None, host.ssh) or (host.port or was.port) != was.port:
        raise UserError(
            f"{known.path}: {host.name} is {login(was)}, not {login(host)}",
            f"give the new one another name, with --name; or first: bisector fleet remove {host.name}",
        )
    return host.over(was)


def _pinned(home: FleetHome, host: Host, person: Person) -> HostKey:
    key = ssh.pinned(home, host.name)
    if key is None:
        key = ssh.shown_key(host)
        if not person.accepts(host, key):
            raise UserError(f"{host.name} was not added: its SSH key was not accepted")
        ssh.pin(home, host.name, key)
    return key


def describe(remote: Remote) -> HostDescription:
    """What a host tells of itself; raises :class:`UserError` where bisector there is another one."""
    return ask.told(remote, HostDescription, "describe")


def examine(remote: Remote, settings: Mapping[str, object]) -> Examination:
    """What the doctor finds on a host, with these settings, by key, and its own disks; no file over there counts.

    Raises as :meth:`Remote.bisector` does.
    """
    host = remote.host
    disks = {f"storage.{name}.path": path for name, path in (("ssd", host.ssd), ("hdd", host.hdd)) if path}
    given = configfile.write({**settings, **disks})
    answer = remote.bisector("doctor", "--json", "--config", "/dev/stdin", deadline_s=_DOCTOR_S, stdin=given)
    check_silent(remote.host, answer)
    try:
        return json_document.parsed(answer.stdout, Examination)
    except ValueError as error:
        raise InfraError(
            f"{remote.host.name}: its doctor gave no answer: {clean(answer.last_line)}",
            f"ssh {login(remote.host)} {remote.host.bisector} doctor",
        ) from error


def _check_versions(host: Host, found: HostDescription) -> None:
    apart = versions.differences(found.versions)
    if apart:
        sentences = "; ".join(clean(str(one)) for one in apart)
        raise UserError(f"{host.name}: {sentences}", clean(versions.remedy(apart, found.versions, login(host))))


def _certify(home: FleetHome, signer: Authority, remote: Remote, coordinator: str) -> HostDescription:
    """Have the host make a key and a request, sign that, and have it keep what it gets."""
    host = remote.host
    asked = remote.bisector("fleet", "on-host", "request", host.name, deadline_s=QUESTION_S)
    if asked.exit_status != 0:
        raise InfraError(f"{host.name}: {clean(asked.last_line)}", add_command(host))
    signed = signer.sign(asked.stdout.encode(), host.name)
    kept = home.issued(host.name)
    with our_files(kept.parent):
        make_private(kept.parent)
        write_whole(kept, signed)
    given = Installation(
        certificate=signed.decode(),
        authority=signer.certificate.decode(),
        coordinator=coordinator,
        repository=host.repository,
    )
    return ask.told(remote, HostDescription, "install", stdin=json_document.text(given))


def remove(home: FleetHome, listed: Path, name: str, *, forget: bool, told: Callable[[str], None]) -> HostRemoved:
    """Take a host out of the fleet: unit, certificate and key there, its row, its pinned key and certificate here.

    With ``forget`` the host itself is left as it is. Raises :class:`UserError` for one that nothing is known of.
    """
    known = hosts.load(listed) if listed.exists() else None
    host = known.named(name) if known is not None and name in known else None
    issued = _issued(home, name)
    if host is None and issued is None and ssh.pinned(home, name) is None:
        if known is not None:
            known.named(name)  # raises, with the nearest name
        raise UserError(f"there is no host {name}", "bisector fleet add USER@HOST")
    done = []
    for what in _removed(home, listed, name, host if not forget else None):
        told(what)
        done.append(what)
    return HostRemoved(name=name, removed=tuple(done), certificate=issued)


def _removed(home: FleetHome, listed: Path, name: str, host: Host | None) -> Iterator[str]:
    if host is not None and host.ssh is not None:
        try:
            left = ask.told(Remote(host, home), HostDescription, "remove")
        except InfraError as error:
            raise InfraError(
                error.message, f"later; or leave what it has: bisector fleet remove {name} --forget"
            ) from error
        yield f"unit, certificate and key on {name}" + (f" ({clean(left.trouble)})" if left.trouble else "")
    if listed.exists() and name in hosts.load(listed):
        edit_hosts.drop(listed, name)
        yield f"[hosts.{name}] of {listed}"
    with our_files(home.path):
        if home.issued(name).exists():
            home.issued(name).unlink()
            yield "the copy of its certificate"
    if ssh.unpin(home, name):
        yield "its pinned SSH key"


def _issued(home: FleetHome, name: str) -> ShownCertificate | None:
    path = home.issued(name)
    if not path.exists():
        return None
    found = authority.read(path)
    issuer = Authority.open(home).certified.fingerprint
    return ShownCertificate.of(found.name, found.serial, found.until, found.days_left(), issuer)
