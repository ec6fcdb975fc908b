"""bisector with trials that :mod:`tests.fleet.engines` makes up: ``ENGINE WORDS…``."""

import sys
from functools import partial

from bisector.cli import main
from bisector.fleet import executor
from tests.fleet import engines

if __name__ == "__main__":
    work = getattr(engines, sys.argv.pop(1))
    executor.FleetExecutor = partial(executor.FleetExecutor, work=work)  # type: ignore[misc,assignment] # as on_hosts finds it
    sys.exit(main())
