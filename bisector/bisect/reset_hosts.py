"""The hosts of a run that is reset: what of it is there goes, too.

A job on a host needs nobody, so it hears of a reset only if it is told: by SSH, where there is a way; else when its
worker dials in, for which this machine listens for a moment. A host that is away is told when it is connected to any
run of this machine. No reset is refused because a host is away.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bisector.bisect.on_hosts import certificates
from bisector.core import units
from bisector.core.errors import BisectorError, UserError
from bisector.executor.fleet_status import FORGET
from bisector.executor.forget import Forgotten
from bisector.executor.spec import run_key
from bisector.executor.untold import Untold
from bisector.fleet import ask, hosts
from bisector.fleet.extra import check_installed
from bisector.fleet.home import FleetHome
from bisector.fleet.hosts import Host, Hosts
from bisector.fleet.ssh import Remote
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store

LISTEN_S = 15.0  # a worker tries every two seconds
_FORGET_S = 150.0  # a minute to end a job, and a build directory of gigabytes to remove


@dataclass(frozen=True, slots=True)
class Told:
    """What came of telling a host; with what to do about that, if there is something."""

    host: str
    sentence: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.host}: {self.sentence}" + "".join(f"\n  {line}" for line in self.hint.splitlines())


def tell_hosts(run: RunDirectory, store: Store, file: Path, note: Callable[[str], None]) -> tuple[Told, ...]:
    """Have the hosts of a run forget it; what came of that, for each, by name.

    ``file`` is the list of hosts that the run was begun with; ``note`` is told what is waited for. Raises
    :class:`bisector.core.errors.InfraError` where it cannot be kept which hosts are still to be told.
    """
    key, listed = run_key(run.path, store.bisection().created_at), _listed(file)
    names = store.hosts()
    if "" in names:  # whichever it was
        names |= {host.name for host in listed.hosts}
    asked = _asked(key, listed, names - {""})
    untold = Untold()
    away = {name: answer for name, answer in asked.items() if not isinstance(answer, Forgotten)}
    # Where nothing was found, the worker may keep its jobs elsewhere (--spool).
    untold.add(key, [name for name, answer in asked.items() if not _found(answer)])
    dialled, silence = _listened(listed.coordinator, untold, away, note) if away else (frozenset(), "")
    return tuple(_told(name, answer, name in dialled, silence) for name, answer in sorted(asked.items()))


def _listed(file: Path) -> Hosts:
    """The list; an empty one where nobody can read it any more."""
    try:
        return hosts.load(file)
    except UserError:
        return Hosts(file, None, ())


def _asked(key: str, listed: Hosts, names: Collection[str]) -> Mapping[str, Forgotten | BisectorError]:
    """What the hosts have done that were asked by SSH, and why the others could not be."""

    def question(remote: Remote) -> Forgotten | BisectorError:
        try:
            return ask.told(remote, Forgotten, FORGET, stdin=key, deadline_s=_FORGET_S)
        except BisectorError as error:
            return error

    known = {host.name: host for host in listed.hosts}
    wanted = [known.get(name, Host(name)) for name in names]
    by_ssh = replace(listed, hosts=tuple(host for host in wanted if host.ssh is not None))
    answers = ask.of_each(FleetHome.of_person(), by_ssh, question, lambda name: None)
    found = dict(zip((host.name for host in by_ssh.hosts), answers, strict=True))
    return {**{host.name: _no_way(host, listed) for host in wanted if host.ssh is None}, **found}


def _no_way(host: Host, listed: Hosts) -> UserError:
    has = "has no ssh for it" if host.name in listed else "does not list it"
    return UserError(f"there is no way to it by SSH: {listed.path} {has}")


def _listened(
    address: str | None, untold: Untold, names: Collection[str], note: Callable[[str], None]
) -> tuple[frozenset[str], str]:
    """The hosts of some names that dialled in just now, and so were told; and why the others were not."""
    if address is None:
        return frozenset(), "it is not known where it would dial in"
    try:
        check_installed("to be heard by hosts that dial in")
        from bisector.executor.cluster.connect import tell_over  # noqa: PLC0415 - Dask is an extra, and slow to load
        from bisector.executor.cluster.security import door  # noqa: PLC0415 - see above

        at = door(address, certificates(address))
        note(f"{LISTEN_S:g} s for {', '.join(sorted(names))} to connect to {address}")
        return tell_over(at, untold, names, LISTEN_S), f"it did not connect to {address} within {LISTEN_S:g} s"
    except BisectorError as error:
        return frozenset(), error.message


def _told(name: str, answer: Forgotten | BisectorError, dialled: bool, silence: str) -> Told:
    if isinstance(answer, Forgotten):
        return Told(name, _done(answer))
    if dialled:
        return Told(name, "told when it connected just now; what of the run is under way there ends within a minute")
    why = "; ".join(filter(None, (answer.message.removeprefix(f"{name}: "), silence)))
    sentence = f"not told yet: {why}; it is told when it is connected to any run of this machine"
    return Told(name, sentence, answer.hint)


def _found(answer: Forgotten | BisectorError) -> bool:
    return isinstance(answer, Forgotten) and answer.found


def _done(answer: Forgotten) -> str:
    if not answer.found:
        return "there was nothing of the run"
    ended = f"{units.plural(len(answer.ended), 'job')} ended, " if answer.ended else ""
    if answer.left:
        return f"{ended}and the rest is removed once the job of another run is over"
    return f"{ended}nothing of the run is left"
