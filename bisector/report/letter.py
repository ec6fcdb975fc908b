"""A report as a letter: headers and text in the form that mail programs and servers take (RFC 5322).

Plain text in UTF-8, not flowed, nothing wrapped by a mail program. No text of a commit reaches a
header but through :func:`bisector.report.addresses.header`, and the email package folds and encodes.
"""

from email.message import EmailMessage
from email.policy import EmailPolicy

from bisector.report import mail
from bisector.report.addresses import header, parse
from bisector.report.document import Envelope, Report

_LINE = 78  # RFC 5322, 2.1.1


class _Policy(EmailPolicy):
    """Folds so that a header's first line has a word of its value.

    Python's own puts a value that fits into one line, but not beside the name, below the name, which is allowed;
    ``git send-email`` reads line by line and then misses the subject.
    """

    def fold(self, name: str, value: str) -> str:
        """As the base class says."""
        return _begun(super().fold(name, value), self.linesep)

    def fold_binary(self, name: str, value: str) -> bytes:
        """As the base class says."""
        folded = super().fold_binary(name, value).decode("ascii", "surrogateescape")
        return _begun(folded, self.linesep).encode("ascii", "surrogateescape")


def _begun(folded: str, linesep: str) -> str:
    """A folded header anew, if its first line is the name alone: broken at the blanks it has."""
    name, _, rest = folded.partition(f":{linesep} ")
    if not rest or ":" in name:
        return folded
    line, *words = f"{name}: {rest.removesuffix(linesep).replace(f'{linesep} ', ' ')}".split(" ")
    lines = []
    for word in words:
        if word and line != f"{name}:" and len(line) + 1 + len(word) > _LINE:
            lines.append(line)
            line = ""
        line = f"{line} {word}"
    return "".join(f"{one}{linesep}" for one in (*lines, line))


# Lines end as this system's files do; the way to a mail server makes them the network's.
_POLICY = _Policy(linesep="\n")


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
    # What failed is told in words of git, guests and mail servers.
    letter.set_content(mail.as_lines(text.splitlines()), charset="utf-8", cte="8bit")
    return letter


def render(report: Report) -> str:
    """The letter as a file: what a mail program opens and ``git send-email`` sends."""
    return message(report).as_bytes().decode()


def _envelope(report: Report) -> Envelope:
    if report.envelope is None:
        raise ValueError("a letter needs an envelope")
    return report.envelope
