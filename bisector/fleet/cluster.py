"""The Dask cluster of a run: a scheduler here, and a worker on each host of ``hosts.toml``, started by SSH.

Each run has its own credentials, which both ends keep in memory only and which are sent by SSH. All connections are
encrypted, on the loopback device as well. A worker ends with its SSH connection, and is restarted while the run lasts.
"""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

from distributed import Client, Scheduler, Security, SpecCluster
from distributed.deploy.spec import ProcessInterface

from bisector.core import json_document
from bisector.core.errors import InfraError, UserError
from bisector.core.printable import clean
from bisector.fleet import dask_settings, ssh, versions
from bisector.fleet.hosts import Host, Hosts
from bisector.fleet.worker import Assignment
from bisector.host import process

_AGAIN_S = (2.0, 5.0, 15.0, 60.0)
_STEADY_S = 60.0  # after a worker has run so long, its failures are counted from zero again
_END_S = 60.0  # for a trial to clean up and its worker to end
_MOST_SAID_BYTES = 4096


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
                    *ssh.client(host),
                    *("--", host.ssh, ssh.remote(host, "fleet", "on-host", "worker")),
                    stdin=stdin,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.PIPE,
                    env=process.environment(ssh.variables()),
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
        if status == ssh.SSH_FAILED or status in ssh.CANNOT_RUN:
            return ssh.failure(host, status, text)
        last = clean((text.strip() or f"it ended with status {status}").splitlines()[-1])
        return InfraError(f"{host.name} does not work: {last}")


@contextmanager
def client_of(hosts: Hosts, tell: Callable[[str], None]) -> Iterator[Client]:
    """Yield a client of a new cluster of these hosts, or of the existing cluster that they name.

    Another thread calls ``tell`` with the reason why a host does not work. Raises :class:`UserError` if the address
    cannot be listened on, and :class:`InfraError` if the cluster does not answer.
    """
    if hosts.cluster:
        security = Security(require_encryption=True)  # with certificates from the person's configuration of Dask
        dask_settings.settle()
        try:
            client = Client(hosts.cluster, security=security, set_as_default=False)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            hint = "its certificates are those of your Dask configuration: distributed.comm.tls"
            raise InfraError(f"no Dask scheduler answers at {hosts.cluster}: {error}", hint) from error
        with client:
            yield client
        return
    dask_settings.settle()
    security = Security.temporary()  # which requires encryption
    address, _, port = hosts.address.rpartition(":")

    def assigned(name: str) -> Callable[[str], Assignment]:
        return lambda scheduler: Assignment(
            name=name,
            address=address,
            port=int(scheduler.rpartition(":")[2]),
            certificate=str(security.tls_ca_file),
            key=str(security.tls_worker_key),
            versions=versions.own(),
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
        for host in hosts.hosts
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
