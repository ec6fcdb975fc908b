"""A cache that is filled until it is settled, and runs that are clear of their counterpart's, by real kernels."""

from pathlib import Path

import pytest

from bisector.config import options
from bisector.core.figures import StopReason
from bisector.core.subject import Cell, Subject
from bisector.core.trial import Fill, Trial
from bisector.executor.local import local_executor
from bisector.git.repository import Repository
from bisector.store.rundir import RunDirectory
from bisector.trial.runner import TrialRequest
from tests import fakes
from tests.demo.history import NEW_TAG, OLD_TAG, History
from tests.in_vms.conftest import ALL_LAYERS

pytestmark = pytest.mark.vm

# smq looks a cache over each minute: a run of 150 s can end after 90 s, when a small cache has been full for a minute.
LONG = {"workload.runtime": "150s"}
SMALL = {
    "storage.cache_size": "16MiB",
    "workload.file_size": "8MiB",
    "storage.ssd.size": "128MiB",
    "storage.hdd.size": "256MiB",
}
PERIOD_S = 60.0


def measured(demo: History, run_dir: Path, rev: str, given: dict[str, str], fill: Fill) -> Trial:
    settings = options.load(given, directory=run_dir).settings
    with RunDirectory(run_dir).lock(), Repository.open(Path(demo.repo), run_marker=run_dir) as repository:
        commit = repository.resolve(rev)
        with local_executor(settings, run_dir, repository, lambda event: None) as executor:
            request = TrialRequest(1, Cell(Subject(commit), settings.setup), {}, fill=fill)
            return fakes.measured(executor, request)


def test_smq_is_filled_in_whole_periods_less(demo: History, tmp_path: Path) -> None:
    """The judged run begins at the same moment of a minute as after a whole fill, within some seconds.

    So it is with a kernel that is as slow at the end of a minute as at its beginning. The fixed one became seven times
    as fast in second 57 of such a run, and half as fast again in second 115, so that it was filled whole.
    """
    trial = measured(demo, tmp_path, OLD_TAG, LONG | SMALL, Fill.SHORT)
    assert trial.fault is None
    assert (trial.fill, trial.filled_short) == (Fill.SHORT, True)
    empty, full = trial.runs
    assert (empty.name, full.name, full.stopped_early) == ("empty", "full", None)
    assert empty.stopped_early is not None
    assert empty.stopped_early.reason is StopReason.SETTLED
    assert (empty.stopped_early.at_s - 90 + 1) % PERIOD_S < 7
    assert empty.duration_s < 0.8 * full.duration_s
    assert dict(empty.counters)["cache.filled"] >= 95
    # What fio left of the run that was interrupted is whole, and its files are kept from the next run.
    (logs,) = (tmp_path / "trials").glob("*/empty")
    assert (logs / "fio.json").is_file()
    assert len(list(logs.glob("*_iops*.log"))) == 2


def test_a_write_cache_is_filled_until_it_is_written_back(demo: History, tmp_path: Path) -> None:
    given = SMALL | {
        "kernel.fragments": ",".join(ALL_LAYERS[1::2]),
        "storage.stack": "lvmwritecache(ssd,hdd)+ext4",
        "storage.lvmwritecache.cache_size": "16MiB",
        "workload.job": str(Path(__file__).parents[2] / "fio" / "rand-write-iops.fio"),
        "bisect.metric": "write.iops",
    }
    trial = measured(demo, tmp_path, NEW_TAG, given, Fill.SHORT)
    assert trial.fault is None
    empty, full = trial.runs
    assert empty.stopped_early is not None
    assert empty.stopped_early.reason is StopReason.SETTLED
    assert empty.stopped_early.at_s < 38
    assert dict(full.counters)["cache.filled_before"] >= 95
