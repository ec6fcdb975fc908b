"""Whether a fleet changes figures: ``python -m scenarios.demo.with_and_without [PAIRS]``, two minutes a pair.

Trials of the demonstration's new end on this machine, in pairs: one by this process, one by a real worker with TLS that
this process coordinates. Which is first changes from pair to pair. Each side has nothing of the other while it lasts.
"""

import math
import os
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bisector.bisect.on_hosts import on_hosts
from bisector.campaign.equipment import Equip, here
from bisector.campaign.single import Single
from bisector.config import Settings, options
from bisector.core.errors import InfraError
from bisector.core.resources import cache_home
from bisector.fleet import hosts
from bisector.git.repository import Repository
from bisector.search.difference import quantile
from bisector.store.rundir import RunDirectory, state_home
from scenarios.demo import history
from scenarios.demo.fleet import NAMES, Bench
from scenarios.demo.history import NEW_TAG
from scenarios.demo.run import history_of, newest_tarball
from scenarios.kept_runs import exit_status

PAIRS = 6
RUNTIME = "20s"  # half of the demonstration's


def figures(bench: Bench, repository: Repository, settings: Settings, pairs: int) -> Iterator[tuple[float, float]]:
    """IOPS without and with a worker, of each pair."""
    commit = repository.resolve(NEW_TAG)
    runs = {name: RunDirectory.create(bench.home / name, "") for name in ("without", "with")}

    def figure(name: str, equip: Equip) -> float:
        run = runs[name]
        with run.lock(), Single.open(run, repository, settings) as single:
            view, _ = single.measure(commit, lambda event: None, equip)
        if view.value is None:
            raise InfraError(f"a trial {name} a worker has no figure: {view.why}")
        return view.value

    for number in range(pairs):
        pair = {}
        for name in ("without", "with") if number % 2 else ("with", "without"):
            with worker(bench) if name == "with" else nobody():
                pair[name] = figure(name, on_hosts(hosts.load(bench.hosts)) if name == "with" else here)
        yield pair["without"], pair["with"]


@contextmanager
def worker(bench: Bench) -> Iterator[None]:
    """One real worker, for as long as a trial lasts."""
    bench.begin(NAMES[0])
    try:
        yield
    finally:
        bench.end()


@contextmanager
def nobody() -> Iterator[None]:
    """No worker."""
    yield


def main() -> int:
    """Print each pair, and the ratio with its 95 % interval."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    tarball = newest_tarball()
    made = history.make(tarball, history_of(tarball, cache_home() / "demo"))
    bench = Bench(state_home() / "with-and-without")
    bench.lay_out()
    os.environ.update(bench.environment)
    settings = options.load({"workload.runtime": RUNTIME}, None).settings
    ratios = []
    with Repository.open(Path(made.repo)) as repository:
        for without, with_worker in figures(bench, repository, settings, pairs):
            ratios.append(math.log(with_worker / without))
            _say(f"{without:,.0f} IOPS without a worker, {with_worker:,.0f} with one")
    mean, error = statistics.fmean(ratios), statistics.stdev(ratios) / math.sqrt(pairs)
    reach = quantile(0.95, pairs - 1) * error
    low, middle, high = (100 * math.expm1(one) for one in (mean - reach, mean, mean + reach))
    _say(f"with a worker {middle:+.2f} % ({low:+.2f} to {high:+.2f}, 95 %, Student's t of {pairs} pairs)")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(exit_status(main))
