"""The worker of a host: a Dask worker that a coordinator starts by SSH, and that ends with that connection.

Its assignment comes on standard input as one line of JSON, so it is on no disk and in no list of processes. After that,
standard input stays open as long as the coordinator lives.
"""

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Annotated, TextIO

from distributed import Security, Worker

from bisector.core.errors import BisectorError, InfraError, UserError
from bisector.core.json_document import JsonObject, parsed
from bisector.executor.local import end_leftovers
from bisector.fleet import dask_settings, job, versions
from bisector.fleet.versions import Versions
from bisector.git.mirror import SOURCES
from bisector.git.repository import Repository
from bisector.git.worktrees import remove_leftovers
from bisector.host.disks import USED_DISKS
from bisector.host.files import files_below, our_files, remove_abandoned, remove_tree, scratch
from bisector.host.locks import Held, held
from bisector.store.rundir import LOCK, jobs_home

KEPT_S = 14 * 24 * 3600.0  # longer than most runs rest before they are resumed
KEPT_BYTES = 20 << 30  # about six kernel trees with their build directories
_BLOCK_BYTES = 512  # of st_blocks (stat(2))
_REGISTER_S = 60.0


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
    if apart := versions.differences(versions.own(), assignment.versions):
        raise UserError(f"its bisector is not that of the coordinator: {apart}", "bisector fleet status")
    dask_settings.settle()
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


def tidy(home: Path, kept_s: float = KEPT_S, kept_bytes: int = KEPT_BYTES) -> None:
    """Remove the files of runs ``kept_s`` seconds after their last job, unless a job of the run is under way.

    Of newer runs, at most ``kept_bytes`` are kept, but always those of the newest run, as its next job is likely. The
    list of disks that a run has labelled is kept: a disk that has lost its label is not overwritten.
    """
    used_s = {lock.parent: lock.stat().st_mtime for lock in home.glob(f"*/{LOCK}")}
    newest_first = sorted(used_s, key=used_s.__getitem__, reverse=True)
    sizes = (
        sum(one.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES for one in files_below(p)) for p in newest_first
    )
    for place, sum_bytes in zip(newest_first, accumulate(sizes), strict=True):
        is_old = time.time() - used_s[place] > kept_s
        if not is_old and (place == newest_first[0] or sum_bytes <= kept_bytes):
            continue
        with suppress(Held, BisectorError), held(place / LOCK):
            if (sources := home / SOURCES).exists():
                with Repository.open(sources) as repository:
                    remove_leftovers(repository, place)
            for left in place.iterdir():
                if left.name != USED_DISKS:
                    remove_tree(left)
        with suppress(OSError):
            place.rmdir()
