"""A worker process with an engine of the tests: ``ADDRESS CERTIFICATES SPOOL NAME ENGINE PORT``.

:data:`SETTINGS` in the environment has further settings of Dask, as JSON: timeouts that a test can wait for.
"""

import json
import os
import sys
from pathlib import Path

from bisector.core.errors import BisectorError
from bisector.executor.cluster import dask_settings
from bisector.executor.cluster.security import door
from bisector.executor.cluster.worker import HostWorker
from bisector.executor.fork_server import ForkServer
from bisector.executor.freight import Part
from bisector.executor.spool import Spool
from bisector.executor.stock import Stock
from bisector.executor.watch import Desk
from bisector.host import locks
from tests.executor import engines


class Paused(Stock):
    """One that waits at the parts that a test names."""

    def add(self, part: Part) -> int:
        if part.content:
            engines.at_part(self.spool.home)
        return super().add(part)


SETTINGS = "TESTS_DASK_SETTINGS"


def main(*words: str) -> int:
    address, certificates, spool, name, engine, port = words

    def tell(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    dask_settings.SETTINGS = {**dask_settings.SETTINGS, **json.loads(os.environ.get(SETTINGS, "{}"))}
    jobs = Spool(Path(spool))
    locks.SHARED_TURN = (
        jobs.home / "shared.lock"
    )  # what is measured on this machine meanwhile has nothing to do with it
    locks.own_turn = lambda: jobs.home / "own.lock"
    stock = Paused(jobs, None, engines.kernels(jobs.home), tell)
    try:
        at = door(address, Path(certificates) if certificates else None)
        with ForkServer(engine) as server:
            desk = Desk(jobs, engine, jobs.sources, grace_s=1.0, begin=server)
            HostWorker(at, desk, name, tell, stock, int(port)).run()
    except BisectorError as error:
        tell(f"{error} ({error.hint})")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
