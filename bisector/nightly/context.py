"""What a night works with: its record, and the mailer that tells people."""

import getpass
import socket
from dataclasses import dataclass
from email.utils import formatdate, make_msgid
from pathlib import Path

from bisector.campaign.equipment import Equip
from bisector.core.errors import InfraError
from bisector.core.events import Listener
from bisector.fleet.hosts import Hosts
from bisector.host.files import write_whole
from bisector.mail import compose, outbox, smtp
from bisector.mail.addresses import parse
from bisector.mail.outbox import Mails
from bisector.nightly.plan import NightJob, Send
from bisector.report.document import Envelope
from bisector.store.nights import NightRecord
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store


class Mailer:
    """Writes drafts, or sends to a job's recipients; each method returns what became of it, for a person.

    ``directory`` keeps the notices. Both raise :class:`bisector.core.errors.BisectorError` where nobody could be told.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def report(self, job: NightJob, run: RunDirectory, store: Store) -> str:
        """The letter that ``bisector mail`` would write, or send, once."""
        mail = job.measuring.mail
        if job.report is Send.DRAFT:
            return f"draft {outbox.Post(run, store, mail).draft()[0]}"
        if any(one.sent for one in Mails(store.log).all()):
            return "sent before this night was killed, or by hand"
        said = outbox.Post(run, store, mail, outbox.Delivery(to=job.to)).send(smtp.find_login(mail.login_file))
        return f"sent to {', '.join(job.to)}: {said}"

    def notice(self, job: NightJob, subject: str, text: str) -> str:
        """A few lines; the newest ones of a job take the place of those before."""
        mail = job.measuring.mail
        sender = mail.sender or f"{getpass.getuser()}@{socket.gethostname()}"
        envelope = Envelope(sender, make_msgid(domain=socket.gethostname()), formatdate(localtime=True), job.notify, ())
        made = compose.notice(envelope, subject, f"{text}\n")
        path = self.directory / f"{job.name}-notice.eml"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            write_whole(path, made.as_bytes())
        except OSError as error:
            raise InfraError(f"cannot write {path}: {error.strerror}", f"ls -ld {self.directory}") from error
        if not job.notify:
            return f"draft {path}"
        addresses = [address.addr_spec for address in parse(job.notify)]
        said = smtp.send(mail, smtp.find_login(mail.login_file), made, parse([sender])[0].addr_spec, addresses)
        return f"sent to {', '.join(job.notify)}: {said}"


@dataclass(frozen=True, slots=True)
class NightContext:
    """What a night works with; ``home`` keeps the files of its jobs, ``hosts`` are those that measure, if others do."""

    record: NightRecord
    mailer: Mailer
    tell: Listener
    home: Path
    equip: Equip
    hosts: Hosts | None = None
