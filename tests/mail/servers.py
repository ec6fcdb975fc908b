"""A real SMTP server on this host, with a certificate of its own, that refuses when it is told to."""

import asyncio
import datetime
import socket
import ssl
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

USERNAME, PASSWORD = "tester", "s3cret word"


def certificate(directory: Path) -> Path:
    """A certificate for localhost with its key, in one file that is also its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now,
                                now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    file = directory / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file


@dataclass
class Post:
    """What a server was given, and what it says: the next answers to RCPT and to DATA, first come first served."""

    letters: list[Envelope] = field(default_factory=list)
    to_recipient: list[str] = field(default_factory=list)
    to_letter: list[str] = field(default_factory=list)
    cut_at: str = ""

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's names
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.to_recipient and (answer := self.to_recipient.pop(0)):
            return answer
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's
        if self.cut_at == "answer":
            cast(asyncio.WriteTransport, server.transport).abort()
            return "250 lost"
        if self.to_letter and (answer := self.to_letter.pop(0)):
            return answer
        self.letters.append(envelope)
        return "250 2.0.0 queued as 1"


class _Cutting(SMTP):
    """Ends the connection in the middle of a letter."""

    async def smtp_DATA(self, arg: str) -> None:  # noqa: N802 - aiosmtpd's names
        if self.event_handler.cut_at != "data":
            await super().smtp_DATA(arg)
            return
        await self.push("354 End data with <CR><LF>.<CR><LF>")
        await self._reader.read(100)
        cast(asyncio.WriteTransport, self.transport).abort()


@dataclass
class Server:
    post: Post
    port: int


@contextmanager
def serving(
    post: Post, certificate_file: Path | None = None, *, tls: bool = False, login: bool = False
) -> Iterator[Server]:
    """The server, until the block is left; with a certificate it has STARTTLS, or with ``tls`` speaks TLS at once."""
    context = None
    if certificate_file is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate_file)

    def authenticate(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        right = isinstance(data, LoginPassword) and (data.login, data.password) == (
            USERNAME.encode(),
            PASSWORD.encode(),
        )
        return AuthResult(success=right, handled=False)

    listener = socket.create_server(("127.0.0.1", 0))

    class Local(Controller):
        def factory(self) -> SMTP:
            return _Cutting(
                self.handler,
                tls_context=None if tls else context,
                require_starttls=context is not None and not tls,
                authenticator=authenticate if login else None,
                auth_required=login,
                auth_require_tls=not tls,
                loop=self.loop,
            )

        def _create_server(self) -> Coroutine[Any, Any, asyncio.AbstractServer]:
            """On a port that was free when it was asked for, and is ours since."""
            return self.loop.create_server(self._factory_invoker, sock=listener, ssl=self.ssl_context)

    port = listener.getsockname()[1]
    controller = Local(post, hostname="127.0.0.1", port=port, ssl_context=context if tls else None)
    controller.start()
    try:
        yield Server(post, port)
    finally:
        controller.stop()
