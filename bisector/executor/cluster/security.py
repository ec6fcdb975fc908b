"""Who may connect to whom: beyond this host only with certificates of one authority, in both directions.

Both ends of a connection run what the other sends (dask/distributed#9283), so a certificate is a shell on every host of
the fleet, and a connection without one is nothing that can be asked for.
"""

import ipaddress
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from distributed.security import Security

from bisector.core.errors import UserError
from bisector.fleet.authority import read
from bisector.fleet.home import Identity, check_private

_EXAMPLE = "an address is tls://HOST:PORT, as tls://bench0:8786"


@dataclass(frozen=True, slots=True)
class Door:
    """An address, and what is needed to connect to it or to listen there."""

    protocol: str
    host: str
    port: int
    security: Security

    @property
    def address(self) -> str:
        """As Dask writes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{host}:{self.port}"


def door(address: str, certificates: Path | None) -> Door:
    """What an address means; ``certificates`` is a directory with :data:`AUTHORITY`, :data:`CERTIFICATE`, :data:`KEY`.

    Raises :class:`UserError` for what is no address, for one that is not encrypted and not on this host, and for files
    that are missing or that do not belong together.
    """
    try:
        parts = urlsplit(address)
        protocol, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError as error:
        raise UserError(f"{address!r} is no address: {error}", _EXAMPLE) from error
    if protocol not in ("tls", "tcp") or not host or port is None or parts.path or parts.query or parts.username:
        raise UserError(f"{address!r} is no address of a coordinator", _EXAMPLE)
    if protocol == "tcp":
        if not _is_loopback(host):
            raise UserError(
                f"{address} is not encrypted, and not on this host: whoever reaches it could run anything here",
                f"tls://{host}:{port} --certificates DIRECTORY",
            )
        return Door(protocol, host, port, Security(require_encryption=False))
    if certificates is None:
        raise UserError(f"{address} needs a certificate of this host", "--certificates DIRECTORY")
    return Door(protocol, host, port, _security(certificates))


def check_free(host: str, port: int, address: str = "") -> None:
    """Raise :class:`UserError` where nobody can listen at a port; what fails to, of Dask's, leaves a socket open."""
    host = host.strip("[]")
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        raise cannot_listen(address or f"{host}, port {port}", port, error) from error


def cannot_listen(address: str, port: int, error: Exception) -> UserError:
    """That an address is in use, or none of this host."""
    why = getattr(error, "strerror", None) or str(error)
    return UserError(f"cannot listen at {address}: {why}", f"ss -ltnp 'sport = :{port}'")


def _is_loopback(host: str) -> bool:
    """By number only: what a name means is for the network to say."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _security(directory: Path) -> Security:
    own = Identity(directory)
    authority, certificate, key = own.authority, own.certificate, own.key
    try:
        for path in (authority, certificate, key):
            path.read_bytes()
        check_private(key)
        context = ssl.create_default_context(cafile=str(authority))
        context.load_cert_chain(str(certificate), str(key))
        until = read(certificate).until
    except ssl.SSLError as error:
        raise UserError(
            f"the certificate in {directory} cannot be used: {error.reason or error}",
            f"{certificate.name} has to belong to {key.name}, and {authority.name} has to be that of its authority",
        ) from error
    except OSError as error:
        raise UserError(f"{error.filename or directory}: {error.strerror}", f"ls -l {directory}") from error
    if until < datetime.now(UTC):
        raise UserError(f"{certificate} expired on {until:%Y-%m-%d %H:%M} UTC", "have a new one made for this host")
    ends = {
        f"tls_{role}_{what}": str(path)
        for role in ("scheduler", "worker", "client")
        for what, path in (("cert", certificate), ("key", key))
    }
    return Security(require_encryption=True, tls_ca_file=str(authority), **ends)


def refusal(error: BaseException) -> str:
    """Why a certificate was refused, by either end; empty where it was not that."""
    found = next((one for one in _chain(error) if isinstance(one, ssl.SSLError)), None)
    if found is None:
        return ""
    reason = getattr(found, "verify_message", "") or (found.reason or str(found))
    return reason.replace("_", " ").lower()


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
