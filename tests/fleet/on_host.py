"""bisector on a host of the tests: that of the product, but for the turn, which each host of this machine has alone."""

import os
import sys
from pathlib import Path

from bisector.cli import main
from bisector.host import locks

HOME = "TESTS_HOST"
if HOME in os.environ:  # at the import, which the process of a job does again
    locks.SHARED_TURN = Path(os.environ[HOME]) / "shared.lock"
    locks.own_turn = lambda: Path(os.environ[HOME]) / "own.lock"

if __name__ == "__main__":
    sys.exit(main())
