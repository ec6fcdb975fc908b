"""What an executor hears of other hosts and asks of them, whatever carries it between them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from bisector.core.events import Event
from bisector.executor.spec import Key, Spec
from bisector.executor.spool import Standing
from bisector.executor.watch import Returned


@dataclass(frozen=True, slots=True)
class Host:
    """A host that is connected: where it is reached as long as it is, what it is called, and what it holds.

    ``machine`` tells one boot of one machine from all others, so that a connection that nobody has missed yet is known
    to be an earlier one of the same. ``versions`` are those of the programs that have to be equal at both ends.
    A ``drained`` host takes no jobs. ``whose`` is the machine's id with its spool, which stay when it is booted anew.
    """

    address: str
    name: str
    machine: str
    versions: tuple[tuple[str, str], ...]
    held: tuple[tuple[Key, Standing], ...] = ()
    drained: bool = False
    whose: str = ""


@dataclass(frozen=True, slots=True)
class Joined:
    """A host is connected."""

    host: Host


@dataclass(frozen=True, slots=True)
class Left:
    """A host is connected no more; its jobs go on, for all that is known."""

    address: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """A host finishes what it does, and takes no more."""

    address: str


@dataclass(frozen=True, slots=True)
class Drained:
    """A host takes no more jobs from now on, or takes some again."""

    address: str
    is_so: bool


@dataclass(frozen=True, slots=True)
class NotTaken:
    """A host takes no jobs, and so this one was not begun there, and never will be."""

    key: Key
    attempt: int
    address: str


@dataclass(frozen=True, slots=True)
class Came:
    """What came of a job, by this attempt to hear it."""

    returned: Returned
    attempt: int


@dataclass(frozen=True, slots=True)
class Unheard:
    """An attempt to hear what comes of a job has ended with nothing; of the job it says nothing."""

    key: Key
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class Unsent:
    """A job was not sent to its host, which does not answer, or which ``refused`` is not to work for this run.

    It may be sent to any other.
    """

    key: Key
    attempt: int
    why: str
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """Progress of a job."""

    key: Key
    event: Event


HostNews: TypeAlias = Joined | Left | Leaving | Drained | NotTaken | Came | Unheard | Unsent | Told


class Word(StrEnum):
    """What a host is told beside its jobs. It may be lost, and is told again when the host comes back.

    ``OVER`` is about a run as a whole, whatever the number. At the end of a run it is told once: what a host that
    misses it keeps of the run goes when nothing has used it for long. Of a run that is reset it is told until it is
    heard (:mod:`bisector.executor.telling`).
    """

    CANCEL = "cancel"
    ACKNOWLEDGE = "acknowledge"
    OVER = "over"


class Connection(Protocol):
    """The connection to all hosts."""

    def hosts(self) -> tuple[Host, ...]:
        """Those that are connected now; what happens from now on is news."""
        ...

    def submit(self, address: str, work: Spec | Key, attempt: int) -> None:
        """Have a job watched on a host. Each attempt at a job has a number that no other has.

        With a spec its sources are sent first, where they are not there.
        """
        ...

    def send(self, address: str, word: Word, key: Key) -> None:
        """Tell a host something of a job; nothing where it is gone."""
        ...

    def news(self, timeout_s: float) -> HostNews | None:
        """The next news; None when there are none in that time."""
        ...
