"""The Dask cluster of a run: a scheduler here, and a worker on each host of ``hosts.toml``, started by SSH.

Each run has its own credentials, which both ends keep in memory only and which are sent by SSH. All connections are
encrypted, on the loopback device as well. A worker's assignment comes on its standard input as one line of JSON, so it
is on no disk and in no list of processes. After that, standard input stays open as long as the coordinator lives. A
worker ends with its SSH connection, and is restarted while the run lasts.

Settings of Dask replace a person's own configuration; only this module uses ``dask``. Their keys are those of
distributed's ``distributed.yaml``. Its defaults are made for many short tasks that may be rerun anywhere; a trial runs
for an hour, alone on a host that has to be quiet, and is repeated by the record.
"""

import asyncio
import json
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, TextIO, cast

import dask.config
from distributed import Client, Scheduler, Security, SpecCluster, Worker
from distributed.deploy.spec import ProcessInterface

from bisector.core import json_document
from bisector.core.errors import BisectorError, InfraError, UserError
from bisector.core.json_document import JsonObject, parsed
from bisector.core.printable import clean
from bisector.executor.local import end_leftovers
from bisector.fleet import hosts, job, spec
from bisector.fleet.hosts import Host, Hosts
from bisector.fleet.spec import Versions
from bisector.git.repository import Repository
from bisector.git.source_tree import remove_leftovers
from bisector.git.transfer import SOURCES
from bisector.host import process
from bisector.host.disks import USED_DISKS
from bisector.host.files import files_below, our_files, remove_abandoned, remove_tree, scratch
from bisector.host.locks import Held, held
from bisector.store.rundir import LOCK, jobs_home

SETTINGS: Mapping[str, object] = {
    # By default, a task whose worker died would silently be rerun on up to three other workers.
    "distributed.scheduler.allowed-failures": 0,
    # By default, a task whose worker left would wait for it for ever (dask/distributed#7346).
    "distributed.scheduler.no-workers-timeout": "60 s",
    "distributed.scheduler.worker-ttl": "5 minutes",
    # By default, SpecCluster would forget a host whose worker is gone for 15 s; here the worker is restarted.
    "distributed.deploy.lost-worker-timeout": "1000 days",
    # By default, the worker's profiler takes a stack each 10 ms while a task runs (dask/distributed#6490).
    "distributed.worker.profile.enabled": False,
    # Also the time after which the kernel gives up a silent connection (TCP_USER_TIMEOUT of tcp(7)).
    "distributed.comm.timeouts.tcp": "60 s",
    "distributed.comm.timeouts.connect": "30 s",
}

_KEPT_S = 14 * 24 * 3600.0  # longer than most runs rest before they are resumed
_KEPT_BYTES = 20 << 30  # about six kernel trees with their build directories
_BLOCK_BYTES = 512  # of st_blocks (stat(2))
_REGISTER_S = 60.0
_AGAIN_S = (2.0, 5.0, 15.0, 60.0)
_STEADY_S = 60.0  # after a worker has run so long, its failures are counted from zero again
_END_S = 60.0  # for a trial to clean up and its worker to end
_MOST_SAID_BYTES = 4096


def settle() -> None:
    """Replace the settings of files and environment by :data:`SETTINGS`; call this before any object of Dask is made.

    Dask's own log, with its tracebacks, is silenced, since bisector itself reports the state of connections. The limit
    of open files is raised to the system's maximum, since anyone who reaches a port can hold descriptors by handshakes
    that never end.
    """
    dask.config.refresh(paths=[], env={})
    dask.config.set(SETTINGS)
    for name in ("distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


# The worker, on a host that measures


class Assignment(JsonObject, frozen=True, kw_only=True):
    """The assignment of a worker: its name, the scheduler's address, and credentials that prove that both share a run.

    If the address is empty, the worker uses the one from which the coordinator logged in (SSH_CONNECTION of ssh(1)).
    """

    name: Annotated[str, "name of the host"]
    address: Annotated[str, "address of the coordinator; may be empty"]
    port: Annotated[int, "port of its scheduler"]
    certificate: Annotated[str, "certificate of the run (PEM)"]
    key: Annotated[str, "its private key (PEM)"]
    versions: Annotated[Versions, "those of the coordinator"]


def serve(given: TextIO = sys.stdin) -> int:
    """Work until the coordinator is gone, and return the exit status.

    Raises :class:`UserError` without an assignment or with other versions, :class:`InfraError` without a scheduler.
    """
    try:
        assignment = parsed(given.readline(), Assignment)
    except ValueError as error:
        raise UserError("a coordinator starts this by SSH, and says what to do", "--hosts hosts.toml") from error
    # Another version of bisector might measure differently, and might read fields in another order.
    if apart := spec.version_differences(spec.own_versions(), assignment.versions):
        raise UserError(f"its bisector is not that of the coordinator: {apart}", "bisector fleet status")
    settle()
    with our_files(jobs_home()):
        jobs_home().mkdir(parents=True, exist_ok=True)
        remove_abandoned(jobs_home())
        tidy(jobs_home())
    end_leftovers(jobs_home(), lambda text: None)
    return asyncio.run(_serve(assignment, given))


async def _serve(assignment: Assignment, given: TextIO) -> int:
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def wait_for_end() -> None:
        given.read()
        loop.call_soon_threadsafe(over.set)

    threading.Thread(target=wait_for_end, daemon=True).start()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(signum, over.set)
    at = assignment.address or _coordinator()
    security = Security(
        tls_ca_file=assignment.certificate,
        tls_worker_cert=assignment.certificate,
        tls_worker_key=assignment.key,
        require_encryption=True,
    )
    with scratch("dask", jobs_home()) as place:
        worker = Worker(
            f"tls://{at}:{assignment.port}",
            name=assignment.name,
            nthreads=1,
            memory_limit=0,
            resources={job.RESOURCE: 1},
            security=security,
            protocol="tls",
            host=_own_address(at, assignment.port),
            local_directory=str(place),
            dashboard=False,
            dashboard_address="127.0.0.1:0",  # its server cannot be left out (dask/distributed#6431)
            death_timeout=_REGISTER_S,
        )
        try:
            await worker
        except (OSError, ValueError, RuntimeError) as error:
            raise InfraError(f"no scheduler takes this host at {at}:{assignment.port}: {error}") from error
        ended = asyncio.ensure_future(worker.finished())
        told = asyncio.ensure_future(over.wait())
        await asyncio.wait((ended, told), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.to_thread(job.end_all)
        await worker.close()
    return 0


def _coordinator() -> str:
    seen = os.environ.get("SSH_CONNECTION", "").split()
    if not seen:
        raise InfraError("SSH does not say where the coordinator is", 'address = "HOST:PORT" in hosts.toml')
    return f"[{seen[0]}]" if ":" in seen[0] else seen[0]


def _own_address(coordinator: str, port: int) -> str:
    """The address from which this host reaches the coordinator; no packet is sent (connect(2) of a datagram socket)."""
    (family, kind, *_, target) = socket.getaddrinfo(coordinator.strip("[]"), port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        host: str = probe.getsockname()[0]
    return f"[{host}]" if ":" in host else host


def tidy(home: Path, kept_bytes: int = _KEPT_BYTES) -> None:
    """Remove the files of runs two weeks after their last job, unless a job of the run is under way.

    Of newer runs, at most ``kept_bytes`` are kept, but always those of the newest run, as its next job is likely. The
    list of disks that a run has labelled is kept: a disk that has lost its label is not overwritten.
    """
    used_s = {lock.parent: lock.stat().st_mtime for lock in home.glob(f"*/{LOCK}")}
    newest_first = sorted(used_s, key=used_s.__getitem__, reverse=True)
    sizes = (
        sum(one.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES for one in files_below(p)) for p in newest_first
    )
    for place, sum_bytes in zip(newest_first, accumulate(sizes), strict=True):
        is_old = time.time() - used_s[place] > _KEPT_S
        if not is_old and (place == newest_first[0] or sum_bytes <= kept_bytes):
            continue
        with suppress(Held, BisectorError), held(place / LOCK):
            if (sources := home / SOURCES).exists():
                remove_leftovers(Repository.open(sources), place)
            for left in place.iterdir():
                if left.name != USED_DISKS:
                    remove_tree(left)
        with suppress(OSError):
            place.rmdir()


# The cluster, on the coordinator


class SSHWorker(ProcessInterface):
    """A worker on a host, for :class:`SpecCluster`; it is started by SSH, again whenever it ends, until it is closed.

    ``assigned`` makes its assignment from the scheduler's address, and ``tell`` receives the reasons why it fails.
    """

    def __init__(
        self, scheduler: str, name: str, host: Host, assigned: Callable[[str], Assignment], tell: Callable[[str], None]
    ) -> None:
        super().__init__(scheduler, name)  # type: ignore[no-untyped-call] # mypy excludes no super() of distributed
        self._host, self._assignment, self._tell = host, assigned(scheduler), tell
        self._task: asyncio.Task[None]

    async def start(self) -> None:
        """Begin to start the worker, without waiting for it: other hosts work while this one cannot be reached."""
        self._task = asyncio.create_task(self._keep_running())
        await super().start()  # type: ignore[no-untyped-call] # see above

    async def close(self) -> None:
        """End the worker and its job."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await super().close()  # type: ignore[no-untyped-call] # see above

    async def _keep_running(self) -> None:
        loop, said, failed = asyncio.get_running_loop(), "", 0
        while True:
            began_s = loop.time()
            error = await self._run()
            if loop.time() - began_s > _STEADY_S:
                said, failed = "", 0
            if str(error) != said:
                said = str(error)
                self._tell(f"{said}; it is tried again ({error.hint})" if error.hint else f"{said}; it is tried again")
            await asyncio.sleep(_AGAIN_S[min(failed, len(_AGAIN_S) - 1)])
            failed += 1

    async def _run(self) -> InfraError | UserError:
        host = self._host
        reader, writer = os.pipe()
        with os.fdopen(writer, "wb", buffering=0) as assignment:
            with os.fdopen(reader, "rb") as stdin:
                # This cannot block or fail: a pipe holds 64 KiB (pipe(7)), and ``stdin`` is a reader here.
                assignment.write(json.dumps(json_document.plain(self._assignment)).encode() + b"\n")
                child = await asyncio.create_subprocess_exec(
                    *hosts.client(host),
                    *("--", host.ssh, hosts.remote(host, "fleet", "on-host", "worker")),
                    stdin=stdin,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.PIPE,
                    env=process.environment(hosts.variables()),
                    start_new_session=True,
                )
            try:
                said = b""
                while more := await cast("asyncio.StreamReader", child.stderr).read(_MOST_SAID_BYTES):
                    said = (said + more)[-_MOST_SAID_BYTES:]
                status, text = await child.wait(), said.decode(errors="replace")
            finally:
                assignment.close()  # this ends the worker
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(child.wait(), _END_S)
                with suppress(ProcessLookupError):
                    child.kill()
        if status == hosts.SSH_FAILED or status in hosts.CANNOT_RUN:
            return hosts.failure(host, status, text)
        last = clean((text.strip() or f"it ended with status {status}").splitlines()[-1])
        return InfraError(f"{host.name} does not work: {last}")


@contextmanager
def client_of(listed: Hosts, tell: Callable[[str], None]) -> Iterator[Client]:
    """Yield a client of a new cluster of these hosts, or of the existing cluster that they name.

    Another thread calls ``tell`` with the reason why a host does not work. Raises :class:`UserError` if the address
    cannot be listened on, and :class:`InfraError` if the cluster does not answer.
    """
    if listed.cluster:
        security = Security(require_encryption=True)  # with certificates from the person's configuration of Dask
        settle()
        try:
            client = Client(listed.cluster, security=security, set_as_default=False)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            hint = "its certificates are those of your Dask configuration: distributed.comm.tls"
            raise InfraError(f"no Dask scheduler answers at {listed.cluster}: {error}", hint) from error
        with client:
            yield client
        return
    settle()
    security = Security.temporary()  # which requires encryption
    address, _, port = listed.address.rpartition(":")

    def assigned(name: str) -> Callable[[str], Assignment]:
        return lambda scheduler: Assignment(
            name=name,
            address=address,
            port=int(scheduler.rpartition(":")[2]),
            certificate=str(security.tls_ca_file),
            key=str(security.tls_worker_key),
            versions=spec.own_versions(),
        )

    scheduler: dict[str, Any] = {
        "protocol": "tls",
        "port": int(port or 0),
        "security": security,
        "dashboard": False,
        "dashboard_address": "127.0.0.1:0",  # its server cannot be left out (dask/distributed#6431)
    }
    workers = {
        host.name: {"cls": SSHWorker, "options": {"host": host, "assigned": assigned(host.name), "tell": tell}}
        for host in listed.hosts
    }
    try:
        cluster = SpecCluster(workers, {"cls": Scheduler, "options": scheduler}, security=security)
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"the hosts cannot be listened for at port {port or 'any'}: {error}", f"ss -ltnp 'sport = :{port}'"
        ) from error
    with cluster, Client(cluster, security=security, set_as_default=False) as client:
        try:
            yield client
        finally:
            cluster.sync(_close_all, tuple(cluster.workers.values()))


async def _close_all(workers: tuple[SSHWorker, ...]) -> None:
    # This ends their jobs as well, which the scheduler would wait for.
    await asyncio.gather(*(worker.close() for worker in workers))
