"""``bisector compare --hosts``: a coordinator and workers as processes, killed in the middle of a block."""

import subprocess
from collections import Counter

import pytest

from bisector.status.blocks import Blocks, result_of
from bisector.store.store import Store
from tests.fleet import engines
from tests.fleet.conftest import place, server  # noqa: F401 - fixtures
from tests.fleet.engines import MEASURED, WAIT_S
from tests.fleet.place import NEW, OLD, Place

pytestmark = pytest.mark.fleet

RUNS = 4


def begin(place: Place) -> "subprocess.Popen[bytes]":  # noqa: F811 - the fixture, as everywhere
    ends = (place.shas[OLD], place.shas[NEW])
    where = ("--hosts", str(place.file), "--repo", str(place.home / "linux"), "--run-dir", str(place.run.path))
    return place.bisector("compare", *ends, "--stack", "hdd", "--runs", str(RUNS), *where)


def check(place: Place) -> Counter[str]:  # noqa: F811 - see above
    """Each block is one host's, each trial is on record once, and the ratio is that of the kernels; blocks by host."""
    assert "Traceback" not in place.log.read_text()
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
    place.check_nothing_runs()
    return Counter(blocks.host(one) for one in blocks.counted(0))


def test_whole_blocks_are_measured_on_each_host_through_the_end_of_worker_and_coordinator(place: Place) -> None:  # noqa: F811 - see above
    for name in ("bench1", "bench2"):
        engines.plan(place.host(name), trial_3=MEASURED)
    place.host("builder", 'role = "build"')
    child = begin(place)
    place.reached(3)
    child.kill()
    child.wait(WAIT_S)
    place.check_nothing_runs()
    for name in place.names:
        engines.let_go(place.home / name, 3, MEASURED)
    place.ended(place.resume())
    assert set(check(place)) == {"bench1", "bench2"}
