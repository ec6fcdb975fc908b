"""``worker``: let this host work for a coordinator."""

import argparse
from pathlib import Path

from bisector.commands.arguments import Verbs, add_verb, typed
from bisector.commands.output import note
from bisector.core.errors import UserError
from bisector.executor import engine
from bisector.executor.fork_server import ForkServer
from bisector.executor.local import kept_kernels
from bisector.executor.spool import Spool, spool_home
from bisector.executor.stock import Stock
from bisector.executor.watch import Desk
from bisector.fleet.extra import Source
from bisector.git.mirror import objects_of
from bisector.host.load import host_id

_EXAMPLES = """\
examples:
  bisector worker tls://bench0:8786 --certificates ~/bisector-fleet
  bisector worker tls://bench0:8786 --certificates ~/bisector-fleet --repo /srv/linux.git
  bisector worker tls://bench0:8786 --certificates DIRECTORY --port 8790
  srun --exclusive bisector worker tls://bench0:8786 --certificates DIRECTORY
What it does, and whether it takes trials: `bisector fleet status --here`, drain --here, release
--here.
"""
_LAST_PORT = 65535
_ENGINE = f"{engine.__name__}:{engine.here.__name__}"


def add(verbs: Verbs) -> None:
    """Register ``worker``."""
    verb = add_verb(verbs, "worker", worker, examples=_EXAMPLES)
    verb.add_argument("address", metavar="ADDRESS", help="of the coordinator: tls://HOST:PORT")
    verb.add_argument(
        "--certificates",
        type=Path,
        metavar="DIRECTORY",
        help="ca.pem, and cert.pem and key.pem of this host; needed beyond loopback",
    )
    verb.add_argument(
        "--repo",
        type=Path,
        metavar="DIRECTORY",
        help="a clone of the kernel on this host; it is never written, and what it has is not sent here",
    )
    verb.add_argument(
        "--port",
        type=typed(f"a port, 1 to {_LAST_PORT}", int, lambda number: 0 < number <= _LAST_PORT),
        default=0,
        help="where the coordinator fetches results, for firewalls (default: any free)",
    )
    verb.add_argument("--name", default=host_id(), help="of this host in the record (its name and CPU)")
    verb.add_argument(
        "--spool", type=Path, default=spool_home(), metavar="DIRECTORY", help="where trials and their results are kept"
    )


def worker(arguments: argparse.Namespace) -> int:
    """Work until told to leave; 0. Raises :class:`UserError` for what cannot work."""
    try:
        from bisector.executor.cluster.security import door  # noqa: PLC0415 - Dask is an extra, and slow to load
        from bisector.executor.cluster.worker import HostWorker  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("bisector"):
            raise
        raise UserError(f"{error.name} is not installed, which connects hosts", Source.known().install()) from error
    borrowed = None if arguments.repo is None else Path(arguments.repo).absolute()
    if borrowed is not None:
        objects_of(borrowed)
    spool = Spool(Path(arguments.spool).absolute())
    stock = Stock(spool, borrowed, kept_kernels(), note)
    at = door(arguments.address, arguments.certificates)
    with ForkServer(_ENGINE) as server:
        desk = Desk(spool, _ENGINE, spool.sources, begin=server)
        HostWorker(at, desk, arguments.name, note, stock, arguments.port).run()
    return 0
