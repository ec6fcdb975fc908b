"""A login from the environment or a closed file, and a letter to a real server, which may refuse it or be cut off."""

import email
import re
from collections.abc import Iterator
from dataclasses import replace
from email import policy
from email.message import EmailMessage
from pathlib import Path

import pytest

from bisector.config import MailSettings, Security
from bisector.core.errors import UserError
from bisector.mail import compose, smtp
from bisector.mail.smtp import SmtpLogin, find_login
from tests.mail.servers import PASSWORD, USERNAME, Post, certificate, serving
from tests.report import documents

LOGIN = SmtpLogin(USERNAME, PASSWORD)
TO = ("author@example.com", "dm-devel@lists.example.org")


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def trusted(pem: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    return pem


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
def plain(post: Post) -> Iterator[MailSettings]:
    with serving(post) as server:
        yield settings(server.port, Security.NONE)


def settings(port: int, security: Security, host: str = "localhost") -> MailSettings:
    return MailSettings(host, port, security, None, None)


def send(server: MailSettings, login: SmtpLogin | None = None) -> str:
    return smtp.send(server, login, compose.message(documents.found()), "tester@example.org", TO)


# aiosmtpd does not see that it is behind TLS from the first byte on.
@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
@pytest.mark.parametrize("security", [Security.STARTTLS, Security.TLS])
def test_encrypted_and_logged_in(post: Post, trusted: Path, security: Security) -> None:
    with serving(post, trusted, tls=security is Security.TLS, login=True) as server:
        assert send(settings(server.port, security), LOGIN) == "2.0.0 queued as 1"
    (taken,) = post.letters
    assert (taken.mail_from, tuple(taken.rcpt_tos)) == ("tester@example.org", TO)
    assert isinstance(taken.content, bytes)
    message = email.message_from_bytes(taken.content, policy=policy.default)
    assert isinstance(message, EmailMessage)
    assert message["Message-ID"] == documents.ENVELOPE.message_id
    assert message.get_content().splitlines() == compose.message(documents.found()).get_content().splitlines()
    assert "Bcc" not in message


def test_unknown_certificate_is_refused_before_the_login(post: Post, pem: Path) -> None:
    with serving(post, pem, login=True) as server, pytest.raises(smtp.Refused, match="no encrypted connection"):
        send(settings(server.port, Security.STARTTLS), LOGIN)
    assert post.letters == []


def test_certificate_of_another_host_is_refused(post: Post, trusted: Path) -> None:
    with serving(post, trusted, tls=True) as server, pytest.raises(smtp.Refused, match="no encrypted connection"):
        send(settings(server.port, Security.TLS, "127.0.0.1"))


def test_server_without_starttls_gets_nothing(post: Post) -> None:
    with serving(post) as server, pytest.raises(smtp.Refused, match="offers no STARTTLS"):
        send(settings(server.port, Security.STARTTLS), LOGIN)
    assert post.letters == []


def test_wrong_password_is_told_without_it(post: Post, trusted: Path) -> None:
    with serving(post, trusted, login=True) as server, pytest.raises(smtp.Refused, match="login") as caught:
        send(settings(server.port, Security.STARTTLS), SmtpLogin(USERNAME, "wrong word"))
    assert "wrong word" not in f"{caught.value} {caught.value.hint} {SmtpLogin('a', 'wrong word')!r}"


@pytest.mark.parametrize(
    ("answer", "kind"), [("450 4.2.0 greylisted", smtp.NotNow), ("550 5.1.1 no such user", smtp.Refused)]
)
def test_refused_recipient_stops_it_for_all(plain: MailSettings, post: Post, answer: str, kind: type) -> None:
    post.to_recipient = ["", answer]
    with pytest.raises(kind, match=f"{TO[1]}: {answer}"):
        send(plain)
    assert post.letters == []


def test_server_of_seven_bits_gets_seven_bits(plain: MailSettings, post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smtplib.SMTP.has_extn", lambda self, name: name != "8bitmime")
    for config in ("", "# é\nCONFIG_X=y\n"):
        made = replace(documents.found(), envelope=replace(documents.ENVELOPE, config=config))
        smtp.send(plain, None, compose.message(made), "tester@example.org", TO)
        content = post.letters[-1].content
        assert isinstance(content, bytes)
        assert all(byte < 128 for byte in content)
        message = email.message_from_bytes(content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        assert message["Content-Transfer-Encoding"] == ("7bit" if config else "quoted-printable")
        text, *attached = message.iter_parts() if config else [message]
        assert isinstance(text, EmailMessage)
        assert text.get_content().split() == compose.body(made, documents.ENVELOPE).split()
        assert [one.get_content().split() for one in attached] == ([config.split()] if config else [])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "login"
    made.write_text("username = me@example.org\npassword = a=b c\n")
    made.chmod(0o600)
    return made


def test_environment_comes_before_the_file(file: Path) -> None:
    assert find_login(file, {}) == SmtpLogin("me@example.org", "a=b c")
    assert find_login(file, {smtp.USERNAME: "you", smtp.PASSWORD: "word"}) == SmtpLogin("you", "word")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_file_that_others_can_read_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(UserError, match=f"others may read {re.escape(str(file))}") as caught:
        find_login(file, {})
    assert caught.value.hint == f"chmod 600 {file}"


@pytest.mark.parametrize("text", ["", "password=x\n", "username=\npassword=x\n", "me\nsecret\n"])
def test_file_without_a_login(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(UserError, match="has no login") as caught:
        find_login(file, {})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("given", "missing"), [(smtp.USERNAME, smtp.PASSWORD), (smtp.PASSWORD, smtp.USERNAME)])
def test_half_a_login(given: str, missing: str) -> None:
    with pytest.raises(UserError, match=f"{missing} is not set"):
        find_login(None, {given: "x"})
