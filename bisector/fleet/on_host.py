"""A host's own part: what it tells of itself, its key, its certificate, and the unit that keeps its worker running.

``bisector fleet add`` on the coordinator runs this by SSH, as the user whom it logs in as; so that key and certificate
have the modes and places that this version gives them, and the key does not travel.
"""

import getpass
import os
import shlex
import sys
import time
from pathlib import Path
from string import Template

from bisector.core.errors import InfraError, UserError
from bisector.core.json_document import parsed
from bisector.fleet import authority
from bisector.fleet.documents import HostDescription, Installation, ShownCertificate
from bisector.fleet.home import FleetHome, Identity
from bisector.fleet.hosts import is_address
from bisector.fleet.versions import own
from bisector.host import process, systemd
from bisector.host.files import our_files, remove_whole, write_whole

UNIT = "bisector-worker.service"
_TEMPLATE = Path(__file__).with_name(UNIT)
_LINGER = Path("/var/lib/systemd/linger")  # logind's; loginctl(1), enable-linger
_KEPT = ("PATH", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "CCACHE_DIR")
_QUESTION_S = 30.0
# One line each, beside the certificate.
_COORDINATOR, _REPOSITORY = "coordinator", "repository"


def describe(home: FleetHome, trouble: str = "") -> HostDescription:
    """What this machine is, as a host."""
    unit = systemd.directory(system=False) / UNIT
    certificate = shown(home.worker)
    return HostDescription(
        versions=own(),
        clock_s=time.time(),
        certificate=certificate,
        worker=_state() if systemd.runs() and unit.exists() else None,
        linger=(_LINGER / getpass.getuser()).exists() if systemd.runs() else None,
        start=shlex.join(_command(home, _line(home, _COORDINATOR), _line(home, _REPOSITORY))) if certificate else "",
        trouble=trouble,
    )


def shown(identity: Identity) -> ShownCertificate | None:
    """The certificate of one end, and its authority; None where it has none."""
    there = identity.certificate.exists() and identity.authority.exists()
    return certificate_of(identity) if there else None


def certificate_of(identity: Identity) -> ShownCertificate:
    """The same of one that has both."""
    found, issuer = authority.read(identity.certificate), authority.read(identity.authority)
    return ShownCertificate.of(found.name, found.serial, found.until, found.days_left(), issuer.fingerprint)


def request(home: FleetHome, name: str) -> str:
    """The signing request of this machine's own key."""
    return authority.request_of(home.worker, name).decode()


def install(home: FleetHome, text: str) -> HostDescription:
    """Keep the certificate that this machine is given, and have systemd run its worker, where there is systemd."""
    try:
        given = parsed(text, Installation)
    except ValueError as error:
        raise UserError(
            f"what was given is no installation: {error}", "bisector fleet add, on the coordinator"
        ) from error
    if not is_address(given.coordinator):
        raise UserError(f"{given.coordinator!r} is no address of a coordinator", "for example: tls://desk:8786")
    authority.install(home.worker, given.certificate.encode(), given.authority.encode())
    with our_files(home.path):
        write_whole(_line_file(home, _COORDINATOR), f"{given.coordinator}\n".encode())
        write_whole(_line_file(home, _REPOSITORY), f"{given.repository or ''}\n".encode())
    return describe(home, _run_by_systemd(home, given) if systemd.runs() else "")


def _run_by_systemd(home: FleetHome, given: Installation) -> str:
    """Write the unit, and start it; one that runs already is left to its trial. Why that failed, if it did."""
    path = systemd.directory(system=False) / UNIT
    with our_files(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, unit_text(home, given.coordinator, given.repository or "").encode())
    try:
        systemd.systemctl("daemon-reload", system=False)
        systemd.systemctl("enable", "--now", UNIT, system=False)
    except InfraError as error:  # no manager for this user, most likely; the unit is there for when there is one
        return error.message
    return ""


def unit_text(home: FleetHome, coordinator: str, repository: str) -> str:
    """The unit for a coordinator's address and a clone on this host, if there is one."""
    kept = (systemd.quoted(f"{name}={os.environ[name]}") for name in _KEPT if os.environ.get(name))
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        coordinator=coordinator.replace("%", "%%"),
        command=systemd.command_line(_command(home, coordinator, repository)),
        environment="\n".join(f"Environment={assignment}" for assignment in kept),
    )


def _command(home: FleetHome, coordinator: str, repository: str) -> tuple[str, ...]:
    """The worker has the name that its certificate has, which is that of the host in hosts.toml."""
    own = shown(home.worker)
    named = ("--name", own.name) if own is not None else ()
    options = (*named, "--certificates", str(home.worker.directory), *(("--repo", repository) if repository else ()))
    return (sys.executable, "-m", "bisector", "worker", coordinator, *options)


def _line_file(home: FleetHome, name: str) -> Path:
    return home.worker.directory / name


def _line(home: FleetHome, name: str) -> str:
    """The coordinator's address, or the clone here, as it was written down; else its name in capitals."""
    path = _line_file(home, name)
    with our_files(path.parent):
        return path.read_text(encoding="utf-8").strip() if path.exists() else name.upper()


def _state() -> str:
    argv = ["systemctl", "--user", "is-active", UNIT]
    try:
        return process.run(argv, deadline_s=_QUESTION_S, check=False).stdout.strip() or "unknown"
    except (process.CommandMissing, process.CommandTimeout):
        return "unknown"


def remove(home: FleetHome) -> HostDescription:
    """Stop and remove the unit, the certificate and the key; what is not there is not missed."""
    path, trouble = systemd.directory(system=False) / UNIT, ""
    if path.exists():
        if systemd.runs():
            try:
                # A worker may take long to end its trial, or to be killed: nobody has to wait for that.
                systemd.systemctl("disable", "--now", "--no-block", UNIT, system=False)
            except InfraError as error:
                trouble = error.message
        with our_files(path.parent):
            path.unlink(missing_ok=True)
    with our_files(home.path):
        remove_whole(home.worker.directory)
    return describe(home, trouble)
