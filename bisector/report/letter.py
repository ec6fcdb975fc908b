"""A report as a letter: headers and text in the form that mail programs and servers take (RFC 5322).

Plain text in UTF-8, not flowed, nothing wrapped by a mail program. No text of a commit reaches a
header but through :func:`bisector.report.addresses.header`, and the email package folds and encodes.
"""

from email import policy
from email.message import EmailMessage

from bisector.report import mail
from bisector.report.addresses import header, parse
from bisector.report.document import Envelope, Report

# Lines end as this system's files do; smtplib makes them the network's.
_POLICY = policy.SMTP.clone(linesep="\n")


def subject(report: Report) -> str:
    """That of the thread where the letter follows another one."""
    envelope = _envelope(report)
    return header(f"Re: {envelope.subject.removeprefix('Re: ')}" if envelope.references else mail.subject(report))


def message(report: Report, *, eight_bit: bool = True) -> EmailMessage:
    """The letter; without ``eight_bit`` for a server that takes none, in quoted-printable."""
    envelope = _envelope(report)
    letter = EmailMessage(policy=_POLICY)
    letter["From"] = parse([envelope.sender])
    letter["To"] = parse(envelope.to)
    letter["Cc"] = parse(envelope.cc)
    for name in ("To", "Cc"):
        if not letter[name].addresses:
            del letter[name]
    letter["Subject"] = subject(report)
    letter["Date"] = envelope.date
    letter["Message-ID"] = envelope.message_id
    if envelope.references:
        letter["In-Reply-To"] = envelope.references[-1]
        letter["References"] = " ".join(envelope.references)
    letter.set_content(mail.body(report, envelope), charset="utf-8", cte="8bit" if eight_bit else "quoted-printable")
    return letter


def notice(envelope: Envelope, title: str, text: str) -> EmailMessage:
    """A few lines of our own, about what failed; the same form as a report's."""
    letter = EmailMessage(policy=_POLICY)
    letter["From"] = parse([envelope.sender])
    if envelope.to:
        letter["To"] = parse(envelope.to)
    letter["Subject"] = header(title)
    letter["Date"] = envelope.date
    letter["Message-ID"] = envelope.message_id
    letter.set_content(text, charset="utf-8", cte="8bit")
    return letter


def render(report: Report) -> str:
    """The letter as a file: what a mail program opens and ``git send-email`` sends."""
    return message(report).as_bytes().decode()


def _envelope(report: Report) -> Envelope:
    if report.envelope is None:
        raise ValueError("a letter needs an envelope")
    return report.envelope
