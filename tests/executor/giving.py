"""A host that is given sources in this process, to be killed at any moment: ``LINUX HOST COMMIT...``."""

import sys
from pathlib import Path

from bisector.executor import freight
from bisector.executor.spool import Spool
from bisector.executor.stock import Stock
from bisector.executor.supply import Supplies
from bisector.git.repository import Repository
from bisector.host import locks
from tests.executor import engines

PART_BYTES = 2_000


def main(linux: str, home: str, *commits: str) -> int:
    """Say when it begins; git's processes outlive a SIGKILL, as those of a worker do."""
    place = Path(home)
    locks.SHARED_TURN, locks.own_turn = place / "shared.lock", lambda: place / "own.lock"
    freight.PART_BYTES = PART_BYTES
    (place / "sent").mkdir(parents=True, exist_ok=True)
    stock = Stock(Spool(place / "spool"), None, engines.kernels(place), lambda text: None)
    with Repository.open(Path(linux)) as repository:
        supplies = Supplies(repository, engines.kernels(place), place / "sent")
        sys.stdout.write("begins\n")
        sys.stdout.flush()
        for number, commit in enumerate(commits):
            supplies.give_sources(stock, f"run{number % 2}", commit)
            if number % 2:
                stock.release("run0")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
