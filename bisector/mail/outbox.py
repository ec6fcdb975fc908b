"""Letters about a bisection, in its record: made, tried, sent; so that none is ever sent twice.

An attempt is recorded before it is made. Whatever moment the process is killed at, the record says
that nothing was tried, that it was sent or refused, or that it is not known: never that nothing
happened when something may have.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from bisector.store.database import Database
from bisector.store.rows import build, columns


class Outcome(StrEnum):
    """What became of a letter: SENDING without a word after it is a process that was killed, or a lost answer."""

    SENDING = "sending"
    SENT = "sent"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class MailEvent:
    """An attempt, or its end; ``detail`` is the server's word."""

    at: str
    outcome: Outcome
    recipients: tuple[str, ...]
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Mail:
    """A letter: what it claims, its Message-ID and those of the thread before it (``refs``), what became of it."""

    at: str
    message_id: str
    claim: str
    subject: str
    refs: tuple[str, ...]
    number: int = 0
    events: tuple[MailEvent, ...] = ()

    @property
    def sent(self) -> bool:
        """Whether a server has taken it."""
        return any(event.outcome is Outcome.SENT for event in self.events)

    @property
    def uncertain(self) -> bool:
        """Whether a server may have taken it, and nobody knows."""
        return bool(self.events) and self.events[-1].outcome in (Outcome.SENDING, Outcome.UNKNOWN)


class Mails:
    """The letters of one record."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> tuple[Mail, ...]:
        """Every letter, oldest first; none in a record of an older version that is only read."""
        if not self._database.has("mails"):
            return ()
        with self._database.snapshot():
            rows = self._database.select("mails", "id")
            events = self._database.grouped("mail_events", "mail")
        return tuple(
            build(Mail, row, number=row["id"], events=tuple(build(MailEvent, one) for one in events[row["id"]]))
            for row in rows
        )

    def add(self, mail: Mail) -> int:
        """Record a letter that was made; its number."""
        row = {name: value for name, value in columns(mail).items() if name != "number"}
        with self._database.transaction():
            return self._database.insert("mails", row)

    def note(self, number: int, outcome: Outcome, recipients: tuple[str, ...], detail: str = "") -> None:
        """Record what is tried with a letter, before it is, or what became of that."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._database.transaction():
            self._database.insert(
                "mail_events", {"mail": number, **columns(MailEvent(now, outcome, recipients, detail))}
            )
