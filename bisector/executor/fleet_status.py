"""How all hosts of a fleet stand, whether or not a coordinator runs: each is asked over SSH, at the same time."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Annotated, Literal

from bisector.core.errors import BisectorError, UserError
from bisector.core.json_document import SCHEMA, Record
from bisector.core.printable import clean
from bisector.executor.duty import Link
from bisector.executor.spool import Spool
from bisector.executor.standing import HostStanding, standing
from bisector.fleet import ask
from bisector.fleet.home import FleetHome
from bisector.fleet.hosts import Host, Hosts, add_command
from bisector.fleet.ssh import Remote, login
from bisector.host.load import host_id

HERE = "--here"
# What is asked of a host by ``bisector fleet on-host``.
STANDING, DRAIN, RELEASE, FORGET = "standing", "drain", "release", "forget"


class HostState(StrEnum):
    """What a host does."""

    WORKING = "working"
    IDLE = "idle"
    WAITING = "waiting"
    LEAVING = "leaving"
    STOPPED = "stopped"
    NO_WORKER = "no-worker"
    UNREACHABLE = "unreachable"
    DIALS_IN = "dials-in"
    UNLISTED = "unlisted"


class HostStatus(Record, frozen=True, kw_only=True):
    """A host of the fleet."""

    name: Annotated[str, "name of the host"]
    state: Annotated[
        HostState,
        "`waiting`: its worker waits for a coordinator; `stopped`: its worker has a SIGSTOP; `dials-in`: there is no"
        " way there; `unlisted`: it has a certificate, and the file does not list it",
    ]
    trouble: Annotated[str | None, "why it is so, if that is trouble; sentences may change"]
    remedy: Annotated[str | None, "command that fixes it, or a hint"]
    standing: Annotated[HostStanding | None, "what it told; `null` if it was not asked"]


class FleetStatus(Record, frozen=True, kw_only=True):
    """What ``bisector fleet status``, ``drain`` and ``release`` print with ``--json``."""

    schema: Annotated[Literal[1], SCHEMA] = 1
    hosts: Annotated[
        tuple[HostStatus, ...], "in the order of the file; then this machine if it is another one, and those unlisted"
    ]

    @property
    def complete(self) -> bool:
        """Whether each host that can be asked has answered."""
        return all(host.state is not HostState.UNREACHABLE for host in self.hosts)


def state_of(found: HostStanding) -> HostState:
    """What a host does that stands so."""
    worker = found.worker
    if worker is None:
        return HostState.NO_WORKER
    if worker.stopped:
        return HostState.STOPPED
    if found.running:
        return HostState.WORKING
    return {Link.WAITING: HostState.WAITING, Link.LEAVING: HostState.LEAVING}.get(worker.link, HostState.IDLE)


def of_fleet(home: FleetHome, listed: Hosts, spool: Spool, done: Callable[[str], None]) -> FleetStatus:
    """All hosts of a file, and what else is known here: this machine's own worker, hosts that have certificates.

    ``done`` gets the name of each host that is done with.
    """
    found = ask.of_each(home, listed, _asked, done)
    return FleetStatus(hosts=(*found, *_own(spool, found), *_unlisted(home, listed)))


def here(spool: Spool) -> HostStatus:
    """The machine that this runs on, as a host."""
    found = standing(spool)
    name = found.worker.name if found.worker is not None else host_id()
    return _status(name, found, "", "bisector worker --help", f"bisector fleet release {HERE}")


def changed(home: FleetHome, host: Host, word: str, reason: str = "") -> HostStatus:
    """Tell a host one of :data:`DRAIN` and :data:`RELEASE`; how it stands then. Raises as :func:`ask.told` does."""
    if host.ssh is None:
        raise UserError(
            f"{host.name} dials in by itself: there is no way to it from here",
            f"there: bisector fleet {word} {HERE}",
        )
    return _shown(host, ask.told(Remote(host, home), HostStanding, word, stdin=reason))


def _asked(remote: Remote) -> HostStatus:
    host = remote.host
    if host.ssh is None:
        there = f"there: bisector fleet status {HERE}"
        return HostStatus(name=host.name, state=HostState.DIALS_IN, trouble=None, remedy=there, standing=None)
    try:
        return _shown(host, ask.told(remote, HostStanding, STANDING))
    except BisectorError as error:
        trouble, remedy = clean(error.message), error.hint or None
        return HostStatus(name=host.name, state=HostState.UNREACHABLE, trouble=trouble, remedy=remedy, standing=None)


def _shown(host: Host, found: HostStanding) -> HostStatus:
    way = f"ssh {login(host)} "
    start = f"{way}systemctl --user start bisector-worker; without systemd, the line that {add_command(host)} prints"
    return _status(host.name, found, way, start, f"bisector fleet release {host.name}")


def _status(name: str, found: HostStanding, way: str, start: str, release: str) -> HostStatus:
    """With commands for what is no usual state, one a line."""
    state, trouble = state_of(found), None
    remedies = [release] if found.drained is not None else []
    if state is HostState.NO_WORKER:
        trouble = "no worker runs there"
        remedies.append(start)
    elif state is HostState.STOPPED and found.worker is not None:
        trouble = "its worker is stopped, and hears nothing"
        remedies.append(f"{way}kill -CONT {found.worker.pid}")
    return HostStatus(name=name, state=state, trouble=trouble, remedy="\n".join(remedies) or None, standing=found)


def _own(spool: Spool, found: tuple[HostStatus, ...]) -> Iterator[HostStatus]:
    """The machine that this runs on, if it works for somebody and is not among those that were asked."""
    own = here(spool)
    if own.standing is None or (own.standing.worker is None and not own.standing.running):
        return
    same = (own.standing.machine, own.standing.spool)
    if all(one.standing is None or (one.standing.machine, one.standing.spool) != same for one in found):
        yield own


def _unlisted(home: FleetHome, listed: Hosts) -> Iterator[HostStatus]:
    for name in sorted(path.stem for path in home.issued("*").parent.glob("*.pem")):
        if name not in listed:
            trouble = f"it has a certificate, and {listed.path} does not list it"
            remedy = f"if another file does: --hosts FILE; else: bisector fleet remove {name}"
            yield HostStatus(name=name, state=HostState.UNLISTED, trouble=trouble, remedy=remedy, standing=None)
