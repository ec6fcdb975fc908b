"""What is found out about all hosts of a fleet at the same time: as hosts of it, and by each one's own doctor."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bisector.core import examination
from bisector.core.errors import BisectorError, Finding, Grade
from bisector.core.examination import ShownFinding
from bisector.core.printable import clean
from bisector.fleet import adding, ask, authority, versions
from bisector.fleet.authority import RENEW_DAYS
from bisector.fleet.documents import HostDescription, HostExamination, HostsExamination, ShownCertificate
from bisector.fleet.home import FleetHome
from bisector.fleet.hosts import Host, Hosts, add_command
from bisector.fleet.ssh import Remote, login

SSH = "ssh"  # the row of a host that nothing else is known of
_MOST_CLOCK_S = 2.0
_RUNS = frozenset(("active", "activating", "reloading"))


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What was found out about a host, in the order in which it is shown."""

    host: str
    findings: tuple[Finding, ...]


def survey(
    home: FleetHome, listed: Hosts, settings: Mapping[str, object], told: Callable[[str], None]
) -> tuple[Surveyed, ...]:
    """Look at all hosts, with these settings, by key; ``told`` gets the name of each that is done.

    Raises :class:`UserError` where there is no fleet.
    """
    issuer = authority.Authority.open(home).certified.fingerprint
    return ask.of_each(home, listed, lambda remote: _surveyed(remote, issuer, settings), told)


def _surveyed(remote: Remote, issuer: str, settings: Mapping[str, object]) -> Surveyed:
    return Surveyed(remote.host.name, tuple(map(_clean, _findings(remote, issuer, settings))))


def _clean(finding: Finding) -> Finding:
    """A row that came from a host, as it may be shown."""
    remedy = "\n".join(map(clean, finding.remedy.split("\n")))
    return Finding(clean(finding.name), finding.state, clean(finding.what), remedy)


def _findings(remote: Remote, issuer: str, settings: Mapping[str, object]) -> Iterator[Finding]:
    host = remote.host
    if host.ssh is None:
        yield Finding(SSH, Grade.WARN, "it dials in by itself: there is no way to look at it from here")
        return
    began, began_s = time.time(), time.monotonic()
    try:
        found = adding.describe(remote)
    except BisectorError as error:
        yield Finding(SSH, Grade.MISSING, error.message, error.hint)
        return
    yield Finding(SSH, Grade.OK, "answers, with the key that is pinned")
    yield clock(found.clock_s, began, began + time.monotonic() - began_s)
    yield certificate(host, found.certificate, issuer)
    yield worker(host, found)
    yield (same := _versions(host, found))
    if same.state is Grade.MISSING:
        return
    try:
        examined = adding.examine(remote, settings)
    except BisectorError as error:
        yield Finding("doctor", Grade.MISSING, error.message, error.hint)
        return
    yield from (row.finding for row in examined.findings)


def clock(there_s: float, began_s: float, ended_s: float) -> Finding:
    """Whether a clock that was read between two moments of this host's clock may agree with it."""
    apart_s = max(began_s - there_s, there_s - ended_s, 0.0)
    if apart_s <= _MOST_CLOCK_S:
        return Finding("clock", Grade.OK, "as here")
    side = "behind" if there_s < began_s else "ahead of"
    return Finding("clock", Grade.WARN, f"{apart_s:.0f} s {side} this machine's", "timedatectl set-ntp true")


def certificate(host: Host, found: ShownCertificate | None, issuer: str) -> Finding:
    """Whether a host's certificate is of our authority, and for how long."""
    again = add_command(host)
    if found is None:
        return Finding("certificate", Grade.MISSING, "it has none", again)
    if found.authority != issuer:
        return Finding("certificate", Grade.MISSING, "it is of another authority than this machine's", again)
    left = f"valid until {found.until[:10]}"
    if found.days_left < 0:
        return Finding("certificate", Grade.MISSING, f"expired: {left}", again)
    if found.days_left < RENEW_DAYS:
        return Finding("certificate", Grade.WARN, f"{left}: {found.days_left} days", again)
    return Finding("certificate", Grade.OK, left)


def worker(host: Host, found: HostDescription) -> Finding:
    """Whether something runs the worker there, also while nobody is logged in."""
    ssh = f"ssh {login(host)}"
    if found.linger is None:
        return Finding("worker", Grade.INFO, "no systemd: it is started by hand")
    if found.worker is None:
        return Finding("worker", Grade.WARN, "it has no unit", add_command(host))
    if found.worker not in _RUNS:
        return Finding(
            "worker", Grade.WARN, f"its unit is {found.worker}", f"{ssh} systemctl --user status bisector-worker"
        )
    if not found.linger:
        return Finding("worker", Grade.WARN, "it ends with its user's last login", f"{ssh} loginctl enable-linger")
    return Finding("worker", Grade.OK, "its unit runs")


def _versions(host: Host, found: HostDescription) -> Finding:
    apart = versions.differences(found.versions)
    if not apart:
        return Finding("versions", Grade.OK, "as here")
    remedy = versions.remedy(apart, found.versions, login(host))
    return Finding("versions", Grade.MISSING, "; ".join(map(str, apart)), remedy)


def ready(surveyed: Sequence[Surveyed]) -> bool:
    """Whether `start` could begin on every host."""
    return all(examination.ready(one.findings) for one in surveyed)


def document(surveyed: Sequence[Surveyed]) -> HostsExamination:
    """All of it, for scripts."""
    found = (
        HostExamination(
            name=one.host, ready=examination.ready(one.findings), findings=tuple(map(ShownFinding.of, one.findings))
        )
        for one in surveyed
    )
    return HostsExamination(ready=ready(surveyed), hosts=tuple(found))
