"""One letter to one mail server; the only module that knows ``smtplib``.

What a refusal means is told by its type: :class:`NotNow` (RFC 5321, 4.2.1: a 4yz reply, or no
connection; nothing was taken, ask again), :class:`Refused` (5yz; nothing was taken, and never will
be), :class:`Uncertain` (the letter was on its way when the connection ended).
"""

import smtplib
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from email.message import EmailMessage

from bisector.config import MailSettings, Security
from bisector.core.errors import InfraError, UserError
from bisector.mail.login import Login

_TIMEOUT_S = 60.0
_CRLF = "\r\n"
_OK, _DATA_TAKEN, _WILL_FORWARD = 250, 250, 251
_TEMPORARY, _PERMANENT = 400, 500


class NotNow(InfraError):
    """The server takes nothing at the moment; nothing was sent."""


class Refused(UserError):
    """The server does not take this; nothing was sent."""


class Uncertain(InfraError):
    """The connection ended while the server had the letter: it may have been taken, or not."""


def send(
    server: MailSettings, login: Login | None, letter: EmailMessage, sender: str, recipients: Sequence[str]
) -> str:
    """Hand a letter over for all recipients or none; the server's answer. Raises as the module says.

    ``sender`` and ``recipients`` are bare addresses.
    """
    with _connected(server, login) as client:
        with _translated(server):
            eight_bit = client.has_extn("8bitmime")
            _check(*client.mail(sender, ["body=8bitmime"] if eight_bit else []), f"the sender {sender}")
            for recipient in recipients:
                _check(*client.rcpt(recipient), f"the recipient {recipient}")
        if not eight_bit:
            letter = _without_eight_bit(letter)
        try:
            code, answer = client.data(letter.as_bytes(policy=letter.policy.clone(linesep=_CRLF)))
        except smtplib.SMTPDataError as error:  # refused before a byte of it was sent
            _check(error.smtp_code, _bytes(error.smtp_error), "the letter")
            raise
        except (smtplib.SMTPServerDisconnected, OSError) as error:
            raise Uncertain(f"{server.host} ended the connection before it said whether it took the letter") from error
        _check(code, answer, "the letter")
        return _text(answer)


@contextmanager
def _connected(server: MailSettings, login: Login | None) -> Iterator[smtplib.SMTP]:
    with _translated(server):
        client = _connect(server)
    try:
        with _translated(server):
            client.ehlo_or_helo_if_needed()
            if server.security is Security.STARTTLS:
                if not client.has_extn("starttls"):
                    raise Refused(f"{server.host}:{server.port} offers no STARTTLS", "mail.security = tls, or its port")
                client.starttls(context=ssl.create_default_context())
                client.ehlo()
            if login is not None:
                client.login(login.username, login.password)
        yield client
        with suppress(smtplib.SMTPException, OSError):  # what was said stays said
            client.quit()
    finally:
        client.close()


def _connect(server: MailSettings) -> smtplib.SMTP:
    if server.security is Security.TLS:
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(server.host, server.port, timeout=_TIMEOUT_S, context=context)
    return smtplib.SMTP(server.host, server.port, timeout=_TIMEOUT_S)


@contextmanager
def _translated(server: MailSettings) -> Iterator[None]:
    """What goes wrong before a letter is on its way, when nothing can have been taken."""
    where = f"{server.host}:{server.port}"
    try:
        yield
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
        raise NotNow(f"{where} ended the connection while it was being encrypted") from error
    except ssl.SSLError as error:
        hint = "mail.host has to be the name in its certificate; mail.security: starttls (587) or tls (465)"
        raise Refused(f"no encrypted connection to {where}: {error.reason or error}", hint) from error
    except smtplib.SMTPAuthenticationError as error:
        _check_login(error, where)
    except smtplib.SMTPResponseException as error:
        _check(error.smtp_code, _bytes(error.smtp_error), f"the connection to {where}")
        raise
    except smtplib.SMTPNotSupportedError as error:
        raise Refused(f"{where}: {error}", "a login needs mail.security = starttls or tls") from error
    except (smtplib.SMTPException, OSError) as error:
        raise NotNow(f"no mail server answers at {where}: {error}", "mail.host and mail.port name it") from error


def _check_login(error: smtplib.SMTPAuthenticationError, where: str) -> None:
    if error.smtp_code < _PERMANENT:
        raise NotNow(f"{where} takes no login now: {_text(_bytes(error.smtp_error))}") from error
    raise Refused(
        f"{where} does not take the login ({error.smtp_code})", "mail.login_file, or the environment's"
    ) from (error)


def _check(code: int, answer: bytes, what: str) -> None:
    """Pass a positive answer; raise what another one means."""
    if code in (_OK, _WILL_FORWARD):
        return
    said = f"the mail server refuses {what}: {code} {_text(answer)}"
    if _TEMPORARY <= code < _PERMANENT:
        raise NotNow(said)
    raise Refused(said, "nothing was sent, to nobody")


def _without_eight_bit(letter: EmailMessage) -> EmailMessage:
    text = letter.get_content()
    letter.set_content(text, charset="utf-8", cte="quoted-printable")
    return letter


def _text(answer: bytes) -> str:
    return " ".join(answer.decode("utf-8", "replace").split())


def _bytes(answer: bytes | str) -> bytes:
    return answer if isinstance(answer, bytes) else answer.encode()
