"""Who may connect to a host, and where one listens."""

import asyncio
import os
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from distributed.comm.core import connect

from bisector.core.errors import UserError
from bisector.executor.cluster.coordinator import Coordinator
from bisector.executor.cluster.security import door
from tests.executor import fleet
from tests.executor.engines import WAIT_S
from tests.executor.fleet import Authority, Fleet


@pytest.mark.parametrize("bad", ["foreign", "expired", "none"])
def test_a_worker_without_a_good_certificate_is_turned_away(hosts: Fleet, bad: str) -> None:
    authority = Authority.new() if bad == "foreign" else hosts.authority
    certificates = authority.certify(hosts.place / "bad", days=-1 if bad == "expired" else 1)
    address = hosts.coordinator.address
    if bad == "none":
        (certificates / "cert.pem").unlink()
    with fleet.worker(address, certificates, hosts.spool("bench1")) as worker:
        assert worker.child.wait(WAIT_S) == UserError.exit_code
        said = worker.log.read_text()
    told = {"foreign": "do not trust each other", "expired": "expired", "none": "cert.pem: No such file"}
    assert told[bad] in said
    assert "Traceback" not in said
    assert hosts.coordinator.hosts() == ()


@pytest.mark.parametrize("bad", ["foreign", "expired", "none", "good"])
def test_the_coordinator_itself_turns_away_who_has_no_good_certificate(hosts: Fleet, bad: str) -> None:
    """Whatever the other end looks at beforehand."""
    authority = Authority.new() if bad == "foreign" else hosts.authority
    directory = authority.certify(hosts.place / "bad", days=-1 if bad == "expired" else 1)
    context = ssl.create_default_context(cafile=str(hosts.own / "ca.pem"))
    context.check_hostname = False
    if bad != "none":
        context.load_cert_chain(directory / "cert.pem", directory / "key.pem")

    async def connected() -> None:
        comm = await connect(hosts.coordinator.address, timeout=5, ssl_context=context, require_encryption=True)
        await comm.close()

    if bad == "good":
        asyncio.run(connected())
    else:
        with pytest.raises(OSError, match=r"in <TLS|Timed out"):
            asyncio.run(connected())


@pytest.mark.fleet
def test_a_coordinator_with_a_bad_certificate_is_turned_away(hosts: Fleet) -> None:
    certificates = Authority.new().certify(hosts.place / "other")
    with (
        Coordinator(door("tls://127.0.0.1:0", certificates)) as coordinator,
        fleet.worker(coordinator.address, hosts.other, hosts.spool("bench1")) as worker,
    ):
        assert worker.child.wait(WAIT_S) == UserError.exit_code
        assert "do not trust each other" in worker.log.read_text()


@pytest.mark.fleet
def test_a_worker_in_plain_text_does_not_get_in(hosts: Fleet) -> None:
    address = hosts.coordinator.address.replace("tls:", "tcp:")
    with fleet.worker(address, None, hosts.spool("bench1")) as worker:
        worker.said("nobody listens")
        assert hosts.coordinator.hosts() == ()


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("tcp://bench0:8786", "not encrypted"),
        ("tcp://0.0.0.0:8786", "not encrypted"),
        ("tcp://192.0.2.7:8786", "not encrypted"),
        ("tcp://[::]:8786", "not encrypted"),
        ("tcp://localhost:8786", "not encrypted"),
        ("tls://bench0:8786", "needs a certificate"),
        ("ucx://127.0.0.1:8786", "no address"),
        ("inproc://127.0.0.1:8786", "no address"),
        ("bench0:8786", "no address"),
        ("tls://bench0", "no address"),
        ("tls://bench0:port", "no address"),
        ("tls://bench0:99999", "no address"),
        ("tls://user@bench0:8786", "no address"),
        ("tls://bench0:8786/path", "no address"),
        ("", "no address"),
    ],
)
def test_what_is_not_encrypted_or_no_address_is_refused(address: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        door(address, None)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:8786", "tcp://[::1]:8786", "tcp://127.8.8.8:1"])
def test_plain_text_stays_on_this_host(address: str) -> None:
    assert door(address, None).address == address


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    one, other = (Authority.new().certify(tmp_path / name) for name in ("one", "other"))
    (one / "key.pem").write_bytes((other / "key.pem").read_bytes())
    with pytest.raises(UserError, match="cannot be used"):
        door("tls://bench0:8786", one)
    (other / "ca.pem").write_text("none\n")
    with pytest.raises(UserError, match="cannot be used"):
        door("tls://bench0:8786", other)


def test_a_key_that_others_can_read_opens_no_door(tmp_path: Path) -> None:
    """As one of a directory that was copied to where others can look."""
    certificates = Authority.new().certify(tmp_path / "own")
    assert door("tls://bench0:8786", certificates).port == 8786
    (certificates / "key.pem").chmod(0o644)
    with pytest.raises(UserError, match=r"key.pem: other users can read this private key \(mode 0644\)"):
        door("tls://bench0:8786", certificates)


def test_an_address_in_use_is_told(hosts: Fleet) -> None:
    address = hosts.coordinator.address
    with pytest.raises(UserError, match="cannot listen"), Coordinator(door(address, hosts.own)):
        pass


def listeners(pid: int) -> list[str]:
    """The local addresses at which a process listens (proc_pid_net(5), proc_pid_fd(5))."""
    files = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            files.add(str(path.readlink()))
    tables = [Path(f"/proc/{pid}/net/{kind}").read_text() for kind in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()]
    return [row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in files]


def test_nothing_listens_but_the_two_ends_and_health_on_this_host(hosts: Fleet) -> None:
    worker = hosts.worker()
    hosts.executor()
    for pid in (os.getpid(), worker.child.pid):
        assert listeners(pid) == ["0100007F", "0100007F"]  # 127.0.0.1, as the kernel writes it on a little-endian CPU
