"""How a night tells people: reports of what was found, notices of what failed; drafts, or letters that are sent."""

import getpass
import socket
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path
from typing import Protocol

from bisector.core.errors import InfraError
from bisector.mail import compose, outbox, smtp
from bisector.mail.addresses import parse
from bisector.mail.outbox import Mails
from bisector.nightly.plan import Job, Send
from bisector.report.document import Envelope
from bisector.store.rundir import RunDirectory
from bisector.store.store import Store


class Postman(Protocol):
    """Writes or sends, as the job wants it; each method returns what became of it, for a person."""

    def report(self, job: Job, run: RunDirectory, store: Store) -> str:
        """What a bisection found. Raises :class:`bisector.core.errors.BisectorError` when it could not be told."""
        ...

    def notice(self, job: Job, subject: str, text: str) -> str:
        """What failed. Raises as :meth:`report`."""
        ...


@dataclass(frozen=True, slots=True)
class ByMail:
    """Drafts as files; what a job has recipients for goes to its mail server. ``directory`` keeps the notices."""

    directory: Path

    def report(self, job: Job, run: RunDirectory, store: Store) -> str:
        """The letter that ``bisector mail`` would write, or send, once."""
        mail = job.measuring.mail
        if job.report is Send.DRAFT:
            return f"draft {outbox.Post(run, store, mail).draft()[0]}"
        if any(one.sent for one in Mails(store.database).all()):
            return "sent before this night was killed, or by hand"
        said = outbox.Post(run, store, mail, outbox.Delivery(to=job.to)).send(smtp.find_login(mail.login_file))
        return f"sent to {', '.join(job.to)}: {said}"

    def notice(self, job: Job, subject: str, text: str) -> str:
        """A few lines; the newest ones of a job take the place of those before."""
        mail = job.measuring.mail
        sender = mail.sender or f"{getpass.getuser()}@{socket.gethostname()}"
        envelope = Envelope(sender, make_msgid(domain=socket.gethostname()), formatdate(localtime=True), job.notify, ())
        made = compose.notice(envelope, subject, f"{text}\n")
        path = self._keep(f"{job.name}-notice.eml", made)
        if not job.notify:
            return f"draft {path}"
        addresses = [address.addr_spec for address in parse(job.notify)]
        said = smtp.send(mail, smtp.find_login(mail.login_file), made, parse([sender])[0].addr_spec, addresses)
        return f"sent to {', '.join(job.notify)}: {said}"

    def _keep(self, name: str, made: EmailMessage) -> Path:
        path = self.directory / name
        new = path.with_name(f"{name}.new")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            new.write_bytes(made.as_bytes())
            new.replace(path)
        except OSError as error:
            raise InfraError(f"cannot write {path}: {error.strerror}", f"ls -ld {self.directory}") from error
        return path
