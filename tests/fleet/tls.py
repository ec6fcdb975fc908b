"""A TLS handshake as dask.distributed makes it: mutual certificates of one authority, no names (its security.py)."""

import ssl
from contextlib import suppress

from bisector.fleet.home import Identity


def context(identity: Identity, purpose: ssl.Purpose, *, certificate: bool = True) -> ssl.SSLContext:
    """What one end of a connection goes by; without a ``certificate`` of its own, it shows none."""
    made = ssl.create_default_context(purpose, cafile=str(identity.authority))
    made.verify_mode = ssl.CERT_REQUIRED
    made.check_hostname = False
    # The default since Python 3.13 (ssl.create_default_context()).
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    if certificate:
        made.load_cert_chain(str(identity.certificate), str(identity.key))
    return made


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[str, str]:
    """Whom each end takes the other one for; raises :class:`ssl.SSLError` when either refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for end in (*ends, *ends, *ends):  # three flights in TLS 1.3; each end moves as far as what it was sent allows
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    with suppress(ssl.SSLWantReadError):
        ends[0].read()  # what a server of TLS 1.3 thinks of a client's certificate comes after the handshake
    return name(ends[0].getpeercert()), name(ends[1].getpeercert())


def name(certificate: object) -> str:
    assert isinstance(certificate, dict)
    return str(dict(pairs[0] for pairs in certificate["subject"])["commonName"])
