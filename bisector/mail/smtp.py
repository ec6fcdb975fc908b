"""The mail server: login, and handing one letter over. No other module uses ``smtplib``.

The type of an error says what a refusal means: :class:`NotNow` (RFC 5321, 4.2.1: a 4yz reply, or no connection; nothing
was taken, try again), :class:`Refused` (5yz; nothing was taken, nor will it be), or :class:`Uncertain` (the connection
ended while the letter was on its way).
"""

import os
import smtplib
import ssl
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from pathlib import Path

from bisector.config import MailSettings, Security
from bisector.core.errors import Finding, Grade, InfraError, UserError

USERNAME, PASSWORD = "BISECTOR_SMTP_USERNAME", "BISECTOR_SMTP_PASSWORD"
_FORM = "two lines: username=… and password=…"
_TIMEOUT_S = 60.0
_CRLF = "\r\n"
_OK, _WILL_FORWARD = 250, 251
_TEMPORARY, _PERMANENT = 400, 500


class NotNow(InfraError):
    """The server takes nothing at the moment; nothing was sent."""


class Refused(UserError):
    """The server refuses this for good; nothing was sent."""


class Uncertain(InfraError):
    """The connection ended while the server had the letter, which may or may not have been taken."""


@dataclass(frozen=True, slots=True)
class SmtpLogin:
    """A user name and a password; ``repr`` does not show the password."""

    username: str
    password: str = field(repr=False)


def find_login(file: Path | None, environment: Mapping[str, str] = os.environ) -> SmtpLogin | None:
    """Find the login in the environment or file; :class:`UserError` for half a login, or a file others may read."""
    username, password = environment.get(USERNAME, ""), environment.get(PASSWORD, "")
    if bool(username) is not bool(password):
        missing = PASSWORD if username else USERNAME
        raise UserError(f"{missing} is not set, and {USERNAME if password else PASSWORD} is set", "set both, or none")
    if username:
        return SmtpLogin(username, password)
    if file is None:
        return None
    try:
        mode = file.stat().st_mode
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"mail.login_file: cannot read {file}: {error}", f"{_FORM}, then: chmod 600 {file}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UserError(f"mail.login_file: others may read {file} (mode {stat.S_IMODE(mode):o})", f"chmod 600 {file}")
    parted = (line.partition("=") for line in text.splitlines())
    values = {name.strip(): value.strip() for name, equals, value in parted if equals}
    if not (values.get("username") and values.get("password")):
        raise UserError(f"mail.login_file: {file} has no login", _FORM)
    return SmtpLogin(values["username"], values["password"])


def server_finding(mail: MailSettings) -> Finding:
    """Whether a report could be sent, as ``bisector doctor`` prints it: by the settings, without asking a server."""
    if not mail.host:
        return Finding("mail", Grade.INFO, "mail.host is not set: reports stay drafts, which git send-email can send")
    try:
        found = find_login(mail.login_file)
    except UserError as error:
        return Finding("mail", Grade.WARN, error.message, error.hint or None)
    who = f"login as {found.username}" if found else "without a login"
    return Finding("mail", Grade.OK, f"{mail.host}:{mail.port}, {mail.security}, {who}; sends nothing by itself")


def send(
    server: MailSettings, login: SmtpLogin | None, letter: EmailMessage, sender: str, recipients: Sequence[str]
) -> str:
    """Send a letter to all bare addresses or to none; return the server's answer. Raises as the module says."""
    with _connected(server, login) as client:
        with _translated(server):
            eight_bit = client.has_extn("8bitmime")
            _check(*client.mail(sender, ["body=8bitmime"] if eight_bit else []), f"the sender {sender}")
            for recipient in recipients:
                _check(*client.rcpt(recipient), f"the recipient {recipient}")
        if not eight_bit:
            body = letter.get_body(("plain",)) or letter
            body.set_content(body.get_content(), charset="utf-8", cte="quoted-printable")
            if body is not letter:  # attachments have seven bits anyway
                letter.replace_header("Content-Transfer-Encoding", "7bit")
        try:
            code, answer = client.data(letter.as_bytes(policy=letter.policy.clone(linesep=_CRLF)))
        except smtplib.SMTPDataError as error:  # refused before a byte of the letter was sent
            _check(error.smtp_code, error.smtp_error, "the letter")
            raise
        except (smtplib.SMTPServerDisconnected, OSError) as error:
            raise Uncertain(f"{server.host} ended the connection before it said whether it took the letter") from error
        _check(code, answer, "the letter")
        return _text(answer)


@contextmanager
def _connected(server: MailSettings, login: SmtpLogin | None) -> Iterator[smtplib.SMTP]:
    with _translated(server):
        client: smtplib.SMTP
        if server.security is Security.TLS:
            context = ssl.create_default_context()
            client = smtplib.SMTP_SSL(server.host, server.port, timeout=_TIMEOUT_S, context=context)
        else:
            client = smtplib.SMTP(server.host, server.port, timeout=_TIMEOUT_S)
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
        with suppress(smtplib.SMTPException, OSError):  # the answer to the letter stands
            client.quit()
    finally:
        client.close()


@contextmanager
def _translated(server: MailSettings) -> Iterator[None]:
    """Translate errors that occur before a letter is on its way, when nothing can have been taken."""
    where = f"{server.host}:{server.port}"
    try:
        yield
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
        raise NotNow(f"{where} ended the connection while it was being encrypted") from error
    except ssl.SSLError as error:
        hint = "mail.host has to be the name in its certificate; mail.security: starttls (587) or tls (465)"
        raise Refused(f"no encrypted connection to {where}: {error.reason or error}", hint) from error
    except smtplib.SMTPAuthenticationError as error:
        if error.smtp_code < _PERMANENT:
            raise NotNow(f"{where} takes no login now: {_text(error.smtp_error)}") from error
        what = f"{where} does not take the login ({error.smtp_code})"
        raise Refused(what, "mail.login_file, or the environment's") from error
    except smtplib.SMTPResponseException as error:
        _check(error.smtp_code, error.smtp_error, f"the connection to {where}")
        raise
    except smtplib.SMTPNotSupportedError as error:
        raise Refused(f"{where}: {error}", "a login needs mail.security = starttls or tls") from error
    except (smtplib.SMTPException, OSError) as error:
        raise NotNow(f"no mail server answers at {where}: {error}", "mail.host and mail.port name it") from error


def _check(code: int, answer: bytes | str, what: str) -> None:
    """Accept a positive answer; raise the error that any other answer means."""
    if code in (_OK, _WILL_FORWARD):
        return
    said = f"the mail server refuses {what}: {code} {_text(answer)}"
    if _TEMPORARY <= code < _PERMANENT:
        raise NotNow(said)
    raise Refused(said, "the letter was sent to none of its recipients")


def _text(answer: bytes | str) -> str:
    return " ".join((answer if isinstance(answer, str) else answer.decode("utf-8", "replace")).split())
