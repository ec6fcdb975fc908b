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
from bisector.executor.spool import Spool
from bisector.executor.watch import Desk

SETTINGS = "TESTS_DASK_SETTINGS"


def main(*words: str) -> int:
    address, certificates, spool, name, engine, port = words

    def tell(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    dask_settings.SETTINGS = {**dask_settings.SETTINGS, **json.loads(os.environ.get(SETTINGS, "{}"))}
    desk = Desk(Spool(Path(spool)), engine, Path("/nowhere.git"), grace_s=1.0)
    try:
        HostWorker(door(address, Path(certificates) if certificates else None), desk, name, tell, int(port)).run()
    except BisectorError as error:
        tell(f"{error} ({error.hint})")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
