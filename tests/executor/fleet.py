"""A coordinator and workers for tests: real processes, real connections, certificates of an authority of their own."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bisector.core.deadline import Deadline
from bisector.executor.base import Failed, Finished, Job, Progress
from bisector.executor.cluster.coordinator import Coordinator
from bisector.executor.cluster.security import door
from bisector.executor.hosts import Connection
from bisector.executor.remote import RemoteExecutor
from bisector.executor.spool import Spool
from bisector.fleet.home import Identity
from bisector.fleet.versions import compared
from bisector.host import process
from bisector.trial.runner import TrialRequest
from tests import examples, fakes
from tests.executor import worker_main
from tests.executor.bench import settings_of
from tests.executor.engines import FAKE, WAIT_S

ROOT = Path(__file__).parents[2]
COMMIT = examples.commit(7)


@dataclass(frozen=True)
class Authority:
    """What signs certificates."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        return cls(key, _certificate("authority", key, key, "authority", days=1))

    def certify(self, directory: Path, days: float = 1) -> Path:
        """A directory with a certificate and its key, valid until so many days from now."""
        directory.mkdir(parents=True)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate("bench", key, self.key, "authority", days)
        pem = serialization.Encoding.PEM
        Identity(directory).authority.write_bytes(self.certificate.public_bytes(pem))
        Identity(directory).certificate.write_bytes(certificate.public_bytes(pem))
        Identity(directory).key.write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        Identity(directory).key.chmod(0o600)
        return directory


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, by: ec.EllipticCurvePrivateKey, issuer: str, days: float
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        issuer_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]),
        subject_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(days=10),
        not_valid_after=now + timedelta(days=days),
    )
    is_authority = x509.BasicConstraints(ca=issuer == name, path_length=None)
    return builder.add_extension(is_authority, critical=True).sign(by, hashes.SHA256())


@dataclass
class WorkerProcess:
    """A worker of a host, which is a directory."""

    spool: Path
    name: str
    log: Path
    child: "subprocess.Popen[bytes]"

    def said(self, words: str, count: int = 1) -> None:
        """Wait until it has said something so often."""
        Deadline(f"{words!r} of {self.name}", WAIT_S).poll(
            lambda: self.log.read_text().count(words) >= count or None, 0.02
        )

    def kill(self, signum: signal.Signals = signal.SIGKILL) -> None:
        self.child.send_signal(signum)
        if signum == signal.SIGKILL:
            self.child.wait(WAIT_S)

    def end(self) -> None:
        """Leave nothing of it, nor of its jobs."""
        self.child.kill()
        self.child.wait(WAIT_S)
        for entry in Spool(self.spool).entries():
            runner = entry.runner()
            if runner is not None and runner.lives:
                with suppress(ProcessLookupError):
                    os.kill(runner.pid, signal.SIGKILL)
            process.reap(entry.place)


def start_worker(
    address: str,
    certificates: Path | None,
    spool: Path,
    name: str,
    engine: str = FAKE,
    *,
    port: int = 0,
    within: tuple[str, ...] = (),
) -> WorkerProcess:
    spool.mkdir(parents=True, exist_ok=True)
    log = spool.parent / f"{name}.log"
    given = (address, str(certificates or ""), str(spool), name, engine, str(port))
    words = [*within, sys.executable, "-m", worker_main.__name__, *given]
    with log.open("ab") as file:
        child = subprocess.Popen(
            words, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
    return WorkerProcess(spool, name, log, child)


@contextmanager
def worker(
    address: str,
    certificates: Path | None,
    spool: Path,
    name: str = "bench1",
    engine: str = FAKE,
    *,
    port: int = 0,
    within: tuple[str, ...] = (),
) -> Iterator[WorkerProcess]:
    started = start_worker(address, certificates, spool, name, engine, port=port, within=within)
    try:
        yield started
    finally:
        started.end()


def executor(
    connection: Connection,
    run_dir: Path,
    run: str = "run",
    patience_s: float = 30.0,
    before: tuple[int, ...] = (),
    *,
    lost: tuple[int, ...] = (),
) -> RemoteExecutor:
    run_dir.mkdir(exist_ok=True)
    return RemoteExecutor(
        connection,
        run,
        run_dir,
        settings_of("lvmcache"),
        compared(),
        lambda: (fakes.GCC, fakes.OLD_GCC),
        lambda event: None,
        dict.fromkeys(before, ""),
        patience_s,
        lost,
    )


class Proxy:
    """Passes connections on to an address of this host, and cuts them when it is told to; a context manager."""

    def __init__(self, address: str) -> None:
        self._target = int(address.rpartition(":")[2])
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"{address.rpartition(':')[0]}:{self._server.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._stalled: set[socket.socket] = set()
        self._cut = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> "Proxy":
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join(WAIT_S)
        self._server.close()

    def cut(self) -> None:
        """End all connections that are open now."""
        self._cut.set()
        for one in tuple(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def stall(self) -> None:
        """Pass nothing on over the connections that are open now, nor that one of their ends is closed."""
        self._stalled |= self._open

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._server.accept()
            except OSError:  # shut down
                return
            try:
                other = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                one.close()
                continue
            self._open |= {one, other}
            self._threads.append(threading.Thread(target=self._pass_on, args=(one, other)))
            self._threads[-1].start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        ends = {one: other, other: one}
        with one, other, suppress(OSError):
            while True:
                for ready in select.select([*ends], [], [])[0]:
                    if ready in self._stalled:
                        self._cut.wait(WAIT_S)
                        return
                    if not (content := ready.recv(65536)):
                        return
                    ends[ready].sendall(content)


@dataclass
class Fleet:
    """A coordinator and hosts, which are directories."""

    place: Path
    stack: ExitStack
    authority: Authority = field(default_factory=Authority.new)
    at: str = "127.0.0.1"

    def __post_init__(self) -> None:
        self.own = self.authority.certify(self.place / "of-coordinator")
        self.other = self.authority.certify(self.place / "of-hosts")
        self.coordinator = self.coordinate(f"tls://{self.at}:0")

    def coordinate(self, address: str) -> Coordinator:
        self.running = ExitStack()
        self.stack.push(self.running)
        return self.running.enter_context(Coordinator(door(address, self.own)))

    def restart_coordinator(self) -> None:
        """At the same address, as a process that is started again does."""
        address = self.coordinator.address
        self.running.close()
        self.coordinator = self.coordinate(address)

    def spool(self, name: str) -> Path:
        return self.place / name / "spool"

    def worker(self, name: str = "bench1", port: int = 0) -> WorkerProcess:
        started = worker(self.coordinator.address, self.other, self.spool(name), name, port=port)
        return self.stack.enter_context(started)

    def executor(
        self, hosts: int = 1, patience_s: float = 30.0, before: tuple[int, ...] = (), lost: tuple[int, ...] = ()
    ) -> RemoteExecutor:
        made = executor(self.coordinator, self.place / "run", patience_s=patience_s, before=before, lost=lost)
        made.wait_for_hosts(hosts, WAIT_S)
        return made


def job(id_: int) -> Job:
    return Job(id_, TrialRequest(id_, examples.cell(COMMIT), {}))


def last_news(executor: RemoteExecutor) -> Finished | Failed:
    while isinstance(news := executor.next(), Progress):
        pass
    return news


def emptied(spool: Path) -> None:
    Deadline("an empty spool", WAIT_S).poll(lambda: True if not Spool(spool).held() else None)
