"""The fleet's authority: what it signs, what it keeps, and what two ends make of it in a TLS handshake."""

import datetime
import shutil
import ssl
import stat
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from bisector.core.errors import UserError
from bisector.fleet import authority
from bisector.fleet.authority import Authority, initialised, install, needs_certificate, read, request_of
from bisector.fleet.home import FleetHome, Identity, check_name
from tests.fleet.tls import context, handshake

SERVER, CLIENT = ssl.Purpose.CLIENT_AUTH, ssl.Purpose.SERVER_AUTH  # whom the end authenticates


@pytest.fixture
def home(tmp_path: Path) -> FleetHome:
    home = FleetHome(tmp_path / "coordinator" / "fleet")
    initialised(home)
    return home


def member(home: FleetHome, directory: Path, name: str = "bench1") -> Identity:
    """A host that was given a certificate."""
    identity = Identity(directory)
    signer = Authority.open(home)
    install(identity, signer.sign(request_of(identity, name), name), signer.certificate)
    return identity


def test_any_two_ends_of_a_fleet_take_each_other_in_either_role(home: FleetHome, tmp_path: Path) -> None:
    ends = {
        "coordinator": home.coordinator,
        "bench1": member(home, tmp_path / "one"),
        "bench2": member(home, tmp_path / "two", "bench2"),
    }
    for server, client in permutations(ends, 2):
        seen = handshake(context(ends[server], SERVER), context(ends[client], CLIENT))
        assert seen == (server, client)


def test_a_host_of_another_authority_is_refused_by_both_ends(home: FleetHome, tmp_path: Path) -> None:
    other = FleetHome(tmp_path / "other")
    initialised(other)
    for server, client in permutations((home.coordinator, other.coordinator)):
        with pytest.raises(ssl.SSLError, match="certificate verify failed"):
            handshake(context(server, SERVER), context(client, CLIENT))


def test_who_shows_no_certificate_is_refused(home: FleetHome) -> None:
    with pytest.raises(ssl.SSLError, match="peer did not return a certificate"):
        handshake(context(home.coordinator, SERVER), context(home.coordinator, CLIENT, certificate=False))


def at(days: float) -> Callable[[], datetime.datetime]:
    return lambda: datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)


def test_an_expired_certificate_is_refused(home: FleetHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = member(home, tmp_path / "fine")
    monkeypatch.setattr(authority, "_now", at(-authority.CERTIFICATE_DAYS - 0.5))
    late = member(home, tmp_path / "late")
    monkeypatch.undo()
    assert read(late.certificate).days_left() == -1
    assert handshake(context(home.coordinator, SERVER), context(fine, CLIENT)) == ("coordinator", "bench1")
    with pytest.raises(ssl.SSLError, match="certificate has expired"):
        handshake(context(home.coordinator, SERVER), context(late, CLIENT))


def test_a_certificate_of_a_host_signs_nothing(home: FleetHome, tmp_path: Path) -> None:
    """A host whose key was stolen can be any host, and cannot make more of them."""
    thief = member(home, tmp_path / "thief")
    key = serialization.load_pem_private_key(thief.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    made = Authority(x509.load_pem_x509_certificate(thief.certificate.read_bytes()), key)
    forged = Identity(tmp_path / "forged")
    install(forged, made.sign(request_of(forged, "coordinator"), "coordinator"), made.certificate)
    forged.certificate.write_bytes(forged.certificate.read_bytes() + thief.certificate.read_bytes())
    shutil.copy(home.coordinator.authority, forged.authority)
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        handshake(context(home.coordinator, SERVER), context(forged, CLIENT))


def test_who_can_read_what(home: FleetHome, tmp_path: Path) -> None:
    member(home, tmp_path / "bench1")
    modes = {
        path.relative_to(tmp_path).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in (tmp_path / "bench1", *home.path.rglob("*"), home.path, *(tmp_path / "bench1").iterdir())
    }
    assert modes == {
        "coordinator/fleet": 0o700,
        "coordinator/fleet/authority": 0o700,
        "coordinator/fleet/authority/ca-key.pem": 0o600,
        "coordinator/fleet/authority/ca.pem": 0o644,
        "coordinator/fleet/coordinator": 0o700,
        "coordinator/fleet/coordinator/ca.pem": 0o644,
        "coordinator/fleet/coordinator/cert.pem": 0o644,
        "coordinator/fleet/coordinator/key.pem": 0o600,
        "bench1": 0o700,
        "bench1/ca.pem": 0o644,
        "bench1/cert.pem": 0o644,
        "bench1/key.pem": 0o600,
    }


def test_a_key_that_others_can_read_is_not_used(home: FleetHome) -> None:
    (home.authority / "ca-key.pem").chmod(0o640)
    with pytest.raises(UserError, match=r"other users can read this private key \(mode 0640\)"):
        Authority.open(home)


def content(home: FleetHome) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in home.path.rglob("*.pem")}


def test_a_second_time_nothing_changes(home: FleetHome) -> None:
    before = content(home)
    _, made, renewed = initialised(home)
    assert (made, renewed) == (False, False)
    assert content(home) == before


@pytest.mark.parametrize("lost", ["authority/ca.pem", "coordinator/key.pem", "coordinator/cert.pem", "coordinator"])
def test_what_a_killed_process_left_out_is_made(home: FleetHome, lost: str) -> None:
    kept = (home.authority / "ca-key.pem").read_bytes()
    path = home.path / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    if lost.endswith("key.pem"):  # its certificate was not there yet
        home.coordinator.certificate.unlink()
    initialised(home)
    assert (home.authority / "ca-key.pem").read_bytes() == kept
    assert handshake(context(home.coordinator, SERVER), context(home.coordinator, CLIENT))


def test_a_certificate_that_expires_soon_is_renewed_for_the_same_key(
    home: FleetHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, before = home.coordinator.key.read_bytes(), read(home.coordinator.certificate)
    monkeypatch.setattr(authority, "_now", at(authority.CERTIFICATE_DAYS - authority.RENEW_DAYS - 1))
    assert initialised(home)[2] is False
    monkeypatch.setattr(authority, "_now", at(authority.CERTIFICATE_DAYS - authority.RENEW_DAYS + 1))
    assert initialised(home)[2] is True
    after = read(home.coordinator.certificate)
    assert after.serial != before.serial
    assert after.days_left() == authority.CERTIFICATE_DAYS - 1  # whole days, and some milliseconds have passed
    assert home.coordinator.key.read_bytes() == key


def test_a_new_authority_takes_no_certificate_of_the_old_one(home: FleetHome, tmp_path: Path) -> None:
    bench = member(home, tmp_path / "bench1")
    _, made, renewed = initialised(home, anew=True)
    assert (made, renewed) == (True, True)
    assert needs_certificate(Authority.open(home), bench)
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        handshake(context(home.coordinator, SERVER), context(bench, CLIENT))
    bench = member(home, tmp_path / "bench1")
    assert handshake(context(home.coordinator, SERVER), context(bench, CLIENT)) == ("coordinator", "bench1")


def test_a_new_authority_that_was_half_made(home: FleetHome) -> None:
    home.authority.rename(home.path / "authority.discarded")
    initialised(home)
    assert not (home.path / "authority.discarded").exists()
    assert handshake(context(home.coordinator, SERVER), context(home.coordinator, CLIENT))


def request(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "coordinator")])
    wanted = x509.BasicConstraints(ca=True, path_length=None)
    asked = x509.CertificateSigningRequestBuilder().subject_name(subject).add_extension(wanted, critical=True)
    return asked.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_of_a_request_only_the_key_counts(home: FleetHome) -> None:
    signed = x509.load_pem_x509_certificate(
        Authority.open(home).sign(request(ec.generate_private_key(ec.SECP256R1())), "bench1")
    )
    assert signed.subject.rfc4514_string() == "CN=bench1"
    assert not signed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"bisector: command not found", "what bench1 sent is no signing request"),
        (b"x" * 20000, "too long"),
        (request(ec.generate_private_key(ec.SECP521R1())), "secp521r1"),
        (request(rsa.generate_private_key(65537, 2048)), "no key of an elliptic curve"),
    ],
    ids=["no request", "long", "another curve", "RSA"],
)
def test_what_is_not_signed(home: FleetHome, sent: bytes, why: str) -> None:
    with pytest.raises(UserError, match=why):
        Authority.open(home).sign(sent, "bench1")


def test_a_request_of_somebody_elses_key(home: FleetHome) -> None:
    """Whoever asks has to have the private key: the public one of another host is in its certificate."""
    whole = x509.load_pem_x509_csr(request(ec.generate_private_key(ec.SECP256R1())))
    raw = bytearray(whole.public_bytes(serialization.Encoding.DER))
    raw[-1] ^= 1
    broken = x509.load_der_x509_csr(bytes(raw)).public_bytes(serialization.Encoding.PEM)
    with pytest.raises(UserError, match="not signed with its own key"):
        Authority.open(home).sign(broken, "bench1")


def test_a_certificate_for_another_key_is_not_installed(home: FleetHome, tmp_path: Path) -> None:
    one, two = member(home, tmp_path / "one"), member(home, tmp_path / "two")
    with pytest.raises(UserError, match="is not for the key"):
        install(two, one.certificate.read_bytes(), one.authority.read_bytes())
    with pytest.raises(UserError, match="no certificate of that authority"):
        install(two, two.certificate.read_bytes(), two.certificate.read_bytes())


def test_no_authority_without_its_key(home: FleetHome) -> None:
    (home.authority / "ca-key.pem").write_bytes(home.coordinator.key.read_bytes())
    with pytest.raises(UserError, match="do not belong together") as caught:
        initialised(home)
    assert caught.value.hint == "bisector fleet init --new-authority"


def test_no_fleet_yet(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no fleet yet"):
        Authority.open(FleetHome(tmp_path))


def test_one_process_changes_a_fleet(home: FleetHome) -> None:
    with (
        home.changing(),
        pytest.raises(UserError, match=r"process \d+ since .* is changing the fleet"),
        home.changing(),
    ):
        pass


@pytest.mark.parametrize("name", ["", "-x", "a/b", "..", "a b", "a\n", "é", "x" * 64, "coordinator", "all", "Bench1"])
def test_names_that_no_host_can_have(name: str) -> None:
    with pytest.raises(UserError):
        check_name(name)
