"""The fleet's own certificate authority; the owner of cryptography.

dask.distributed takes a connection from whoever has a certificate of the authority that it is given: it checks no names
(``check_hostname = False``), takes each certificate for a scheduler's, a worker's or a client's alike, and knows no
revocation (distributed/security.py). What comes over such a connection is unpickled, so a certificate is the right to
run programs on every machine of the fleet. Hence an authority that signs nothing else, whose key never leaves the
coordinator; private keys that never leave the machine that made them; and certificates for one year.

A request is from a host, and is not trusted: of it, only the public key gets into the certificate.
"""

import datetime
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bisector.core.errors import UserError
from bisector.fleet.home import COORDINATOR, FleetHome, Identity, check_private, make_private
from bisector.host.files import our_files, remove_whole, write_whole

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
# Fewer days than these left: a certificate is renewed when there is an occasion, and doctor warns.
RENEW_DAYS = 60
LONGEST_REQUEST = 16384  # bytes; one for a P-256 key has 500
_CURVE = ec.SECP256R1
# Clocks of two machines may be apart, and a certificate that is not valid yet is refused.
_BACKDATED = datetime.timedelta(hours=1)
_USAGE = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(frozen=True, slots=True)
class Certified:
    """What a certificate says: whose it is, from when until when, and by which number and hash it is known."""

    name: str
    serial: str
    since: datetime.datetime
    until: datetime.datetime
    fingerprint: str

    def days_left(self, now: datetime.datetime | None = None) -> int:
        """Whole days until it expires; negative from then on."""
        return (self.until - (now or _now())).days

    @property
    def due(self) -> bool:
        """Whether it is time to renew it."""
        return self.days_left() < RENEW_DAYS


class Authority:
    """A certificate authority with its key at hand."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def open(cls, home: FleetHome) -> "Authority":
        """The person's authority; raises :class:`UserError` when there is none, or its files do not belong together."""
        place = home.authority
        if not (place / "ca.pem").exists():
            raise UserError("there is no fleet yet", "bisector fleet init")
        certificate, key = _certificate(place / "ca.pem"), _key(place / "ca-key.pem")
        if certificate.public_key() != key.public_key():
            raise UserError(
                f"the key and the certificate in {place} do not belong together", "bisector fleet init --new-authority"
            )
        return cls(certificate, key)

    @classmethod
    def ensured(cls, home: FleetHome) -> "Authority":
        """The person's authority, which is made when there is none; one that was half made is completed."""
        place = home.authority
        with our_files(place):
            make_private(place)
            if (place / "ca.pem").exists():
                return cls.open(home)
            key = _kept_key(place / "ca-key.pem")
            write_whole(place / "ca.pem", _pem(_self_signed(key)))
        return cls.open(home)

    @property
    def certificate(self) -> bytes:
        """Its own certificate, as a file has it."""
        return _pem(self._certificate)

    @property
    def certified(self) -> Certified:
        """What its own certificate says."""
        return _certified(self._certificate)

    def has_signed(self, certificate: bytes) -> bool:
        """Whether a certificate is of this authority; of any other one of the same name it is not."""
        with suppress(ValueError, TypeError, InvalidSignature):
            x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(self._certificate)
            return True
        return False

    def sign(self, request: bytes, name: str) -> bytes:
        """The certificate for the public key of a signing request, under the name by which we know its sender.

        Raises :class:`UserError` for what is no such request, or of another kind of key.
        """
        now = _now()
        if now >= self._certificate.not_valid_after_utc:
            raise UserError("the fleet's authority has expired", "bisector fleet init --new-authority")
        public = _requested(request, name)
        until = min(now + datetime.timedelta(days=CERTIFICATE_DAYS), self._certificate.not_valid_after_utc)
        builder = _builder(name, public, self._certificate.subject, now, until)
        for extension, critical in (
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage("digital_signature"), True),
            # Of two workers either may connect to the other.
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), False),
            (x509.SubjectAlternativeName([x509.DNSName(name)]), False),
            (x509.SubjectKeyIdentifier.from_public_key(public), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False),
        ):
            builder = builder.add_extension(extension, critical)
        return _pem(builder.sign(self._key, hashes.SHA256()))


def initialised(home: FleetHome, *, anew: bool = False) -> tuple[Authority, bool, bool]:
    """The authority, and the coordinator's own certificate; whether either was made now.

    What is there stays: an authority is only made ``anew`` when that is asked for, and then every certificate of the
    old one is worthless. Safe to do again, also after it was killed.
    """
    old, discarded = home.authority, home.path / "authority.discarded"
    with our_files(home.path):
        make_private(home.path)
        remove_whole(discarded)
        if anew and old.exists():
            old.rename(discarded)  # from here on there is none, whatever happens
            remove_whole(discarded)
            remove_whole(home.path / "issued")
        made = not (old / "ca.pem").exists()
        authority = Authority.ensured(home)
        renewed = needs_certificate(authority, home.coordinator)
        if renewed:
            request = request_of(home.coordinator, COORDINATOR)
            install(home.coordinator, authority.sign(request, COORDINATOR), authority.certificate)
    return authority, made, renewed


def needs_certificate(authority: Authority, identity: Identity) -> bool:
    """Whether an end has no certificate of this authority, or one that expires soon."""
    if not identity.certificate.exists() or not identity.authority.exists():
        return True
    same = identity.authority.read_bytes() == authority.certificate
    return not same or not authority.has_signed(identity.certificate.read_bytes()) or read(identity.certificate).due


def request_of(identity: Identity, name: str) -> bytes:
    """The signing request of this machine's key, which is made when there is none."""
    with our_files(identity.directory):
        make_private(identity.directory)
        key = _kept_key(identity.key)
    subject = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
    return subject.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def install(identity: Identity, certificate: bytes, authority: bytes) -> Certified:
    """Keep the certificate of this machine's key and that of its authority; what it says.

    Raises :class:`UserError` for a certificate of another key, or one that this authority has not signed.
    """
    try:
        own, issuer = (x509.load_pem_x509_certificate(one) for one in (certificate, authority))
        own.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise UserError("what was to be installed is no certificate of that authority") from error
    with our_files(identity.directory):
        if own.public_key() != _key(identity.key).public_key():
            raise UserError(f"the certificate is not for the key {identity.key}", "bisector fleet add, once more")
        # Between the two this end is refused, and refuses: no state in which it trusts two authorities.
        write_whole(identity.authority, _pem(issuer))
        write_whole(identity.certificate, _pem(own))
    return _certified(own)


def read(path: Path) -> Certified:
    """What the certificate in a file says; raises :class:`UserError` for what is none."""
    with our_files(path.parent):
        return _certified(_certificate(path))


def _requested(request: bytes, name: str) -> ec.EllipticCurvePublicKey:
    with _told(f"what {name} sent is no signing request"):
        if len(request) > LONGEST_REQUEST:
            raise ValueError("too long")
        asked = x509.load_pem_x509_csr(request)
        public = asked.public_key()
        if not asked.is_signature_valid or not isinstance(public, ec.EllipticCurvePublicKey):
            raise ValueError("not signed with its own key, or no key of an elliptic curve")
        if public.curve.name != _CURVE.name:
            raise ValueError(f"a key of the curve {public.curve.name}")
    return public


@contextmanager
def _told(what: str, hint: str = "") -> Iterator[None]:
    """Tell what is wrong with a file or a request: for whatever it cannot read, cryptography raises ValueError."""
    try:
        yield
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UserError(f"{what}: {error}", hint) from error


def _certificate(path: Path) -> x509.Certificate:
    with _told(f"{path} is no certificate", "bisector fleet init"):
        return x509.load_pem_x509_certificate(path.read_bytes())


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    check_private(path)
    with _told(f"{path} is no private key", f"rm {path}; then the same again"):
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError("not of an elliptic curve")
        return key


def _kept_key(path: Path) -> ec.EllipticCurvePrivateKey:
    if not path.exists():
        made = ec.generate_private_key(_CURVE())
        encoded = made.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_whole(path, encoded, 0o600)
    return _key(path)


def _self_signed(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    now = _now()
    name = "bisector fleet"
    builder = _builder(name, key.public_key(), _subject(name), now, now + datetime.timedelta(days=AUTHORITY_DAYS))
    for extension, critical in (
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_usage("key_cert_sign"), True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical)
    return builder.sign(key, hashes.SHA256())


def _builder(
    name: str,
    public: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    now: datetime.datetime,
    until: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(until)
    )


def _usage(*allowed: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{use: use in allowed for use in _USAGE})


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certified(certificate: x509.Certificate) -> Certified:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return Certified(
        name=str(names[0].value) if names else "",
        serial=f"{certificate.serial_number:x}",
        since=certificate.not_valid_before_utc,
        until=certificate.not_valid_after_utc,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
