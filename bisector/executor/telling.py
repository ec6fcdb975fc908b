"""A connection whose hosts are told of runs that were reset while they were away, whatever run it is made for."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError
from bisector.executor.hosts import Connection, Host, HostNews, Joined, Left, Word
from bisector.executor.spec import Key, Spec
from bisector.executor.untold import Untold

LOOK_S = 20.0  # a run may be reset while its hosts are connected to another one


def _next_look() -> Deadline:
    return Deadline("a look at the list", LOOK_S)


@dataclass(slots=True)
class Telling:
    """A :class:`bisector.executor.hosts.Connection` over another one.

    A host is told when it is connected, or when its run is reset later on. It is struck from the list once it comes
    without a job of that run: a word that is lost on the way is said again the next time.
    """

    connection: Connection
    untold: Untold
    _hosts: dict[str, Host] = field(default_factory=dict, init=False)
    _told: set[tuple[str, str]] = field(default_factory=set, init=False)  # addresses, and runs that they were told of
    _look: Deadline = field(default_factory=_next_look, init=False)

    def hosts(self) -> tuple[Host, ...]:
        """As the other one."""
        found = self.connection.hosts()
        self._hosts = {host.address: host for host in found}
        self._tell(found)
        return found

    def submit(self, address: str, work: Spec | Key, attempt: int) -> None:
        """As the other one."""
        self.connection.submit(address, work, attempt)

    def send(self, address: str, word: Word, key: Key) -> None:
        """As the other one."""
        self.connection.send(address, word, key)

    def news(self, timeout_s: float) -> HostNews | None:
        """As the other one; the list is looked at meanwhile."""
        deadline = Deadline("news", timeout_s)
        while (news := self.connection.news(min(deadline.remaining_s, self._look.remaining_s))) is None:
            if self._look.expired:
                self._look = _next_look()
                self._tell(self._hosts.values())
            if deadline.expired:
                return None
        match news:
            case Joined(host):
                self._hosts[host.address] = host
                self._tell((host,))
            case Left(address):
                self._hosts.pop(address, None)
        return news

    def _tell(self, hosts: Iterable[Host]) -> None:
        with suppress(InfraError):  # a list that cannot be read or written keeps no run from going on
            for host in hosts:
                self._tell_one(host)

    def _tell_one(self, host: Host) -> None:
        held = {key.run for key, _ in host.held}
        for run in self.untold.of(host.name):
            if (host.address, run) not in self._told:
                self._told.add((host.address, run))
                self.connection.send(host.address, Word.OVER, Key(run, 0))
                if run not in held:
                    self.untold.strike(run, host.name)
