"""``bisector compare --hosts``: a coordinator and workers as processes, with TLS, killed at any moment."""

import signal
import subprocess
from collections import Counter

import pytest

from bisector.status.blocks import Blocks, result_of
from bisector.store.store import Store
from tests.bisect.test_on_hosts import COUNT, Place, ended, place, some_reached  # noqa: F401 - place is a fixture
from tests.executor import engines
from tests.executor.engines import WAIT_S
from tests.executor.fleet import WorkerProcess

pytestmark = pytest.mark.fleet

RUNS = 4
# The jobs after two builds and the first trial of each of two hosts.
SOON = (5, 6)
AtWork = tuple["subprocess.Popen[bytes]", dict[str, WorkerProcess], dict[int, str]]


def begin(place: Place) -> "subprocess.Popen[bytes]":  # noqa: F811 - the fixture, as everywhere
    ends = (place.shas["c0"], place.shas[f"c{COUNT - 1}"])
    hosts = ("--hosts", str(place.home / "hosts.toml"), "--repo", str(place.home / "linux"))
    return place.coordinator("compare", *ends, "--stack", "hdd", "--runs", str(RUNS), *hosts)


def check(place: Place) -> Counter[str]:  # noqa: F811 - see above
    """Each block is one host's, each trial is on record once, and the ratio is that of the kernels; blocks by host."""
    said = place.log.read_text()
    assert "Traceback" not in said, said
    with Store.open(place.run.database, readonly=True) as store:
        assert store.plan is not None
        assert not store.in_flight()
        blocks = Blocks.of(store.plan, store)
        trials = store.placed()
    assert len({one.place for one in trials}) == len(trials)
    assert len(blocks.counted(0)) == RUNS
    assert all(len({trial.host for _, trial in blocks.trials(one).values()}) == 1 for one in blocks.counted(0))
    (row,) = result_of(blocks).rows
    effect = row.changes[0].effect
    assert effect is not None
    assert effect.estimate > 3  # another job of the workload is no faster by the change
    return Counter(blocks.host(one) for one in blocks.counted(0))


def at_work(place: Place) -> AtWork:  # noqa: F811 - see above
    """Two hosts that measure and one that builds, when both of the first wait in a trial; which host has which job."""
    with (place.home / "hosts.toml").open("a") as file:
        file.write('[hosts.bench1]\n[hosts.bench2]\n[hosts.builder]\nrole = "build"\n')
    for name in ("bench1", "bench2"):
        engines.plan(place.spool(name), **{f"job_{id_}": engines.MEASURED for id_ in SOON})
    workers = {name: place.worker(name) for name in ("bench1", "bench2", "builder")}
    child = begin(place)
    return child, workers, {id_: some_reached(place, id_) for id_ in SOON}


def go_on(place: Place) -> None:  # noqa: F811 - see above
    for name in ("bench1", "bench2"):
        for id_ in SOON:
            engines.let_go(place.spool(name), id_, engines.MEASURED)


def test_blocks_are_measured_on_all_hosts_that_measure(place: Place) -> None:  # noqa: F811 - see above
    child, _, where = at_work(place)
    assert set(where.values()) == {"bench1", "bench2"}  # both measure at the same time
    go_on(place)
    ended(child, place.log)
    assert set(check(place)) == {"bench1", "bench2"}


def test_what_was_under_way_is_heard_after_worker_and_coordinator_were_killed(place: Place) -> None:  # noqa: F811 - see above
    child, workers, where = at_work(place)
    child.send_signal(signal.SIGKILL)
    child.wait(WAIT_S)
    workers[where[5]].kill()
    place.worker(where[5])
    go_on(place)
    ended(place.resume(), place.log)
    check(place)
    for id_, name in where.items():
        assert engines.runs(place.spool(name), id_) == 1
        assert sum(engines.runs(place.spool(other), id_) for other in ("bench1", "bench2", "builder")) == 1
