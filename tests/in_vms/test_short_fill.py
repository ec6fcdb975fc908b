"""A cache that is filled until it is settled, and runs that are clear of their counterpart's, by real kernels."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from bisector.analysis.early_stop import Alike, Counterpart, StopRule, batch_s
from bisector.bisect.stop_rule import Curves
from bisector.config import Settings, options
from bisector.core.figures import StopReason
from bisector.core.subject import Cell, Subject
from bisector.core.trial import Fill, Trial
from bisector.executor.local import local_executor
from bisector.git.repository import Repository
from bisector.store.rundir import RunDirectory
from bisector.trial.runner import TrialRequest
from scenarios.demo.history import NEW_TAG, OLD_TAG, History
from tests import fakes

pytestmark = [pytest.mark.vm, pytest.mark.rare]

# smq looks a cache over each minute: a run of 150 s can end after 90 s, when a small cache has been full for a minute.
LONG = {"workload.runtime": "150s"}
SMALL = {
    "storage.cache_size": "16MiB",
    "workload.file_size": "8MiB",
    "storage.ssd.size": "128MiB",
    "storage.hdd.size": "256MiB",
}
PERIOD_S = 60.0


@dataclass(frozen=True)
class Bench:
    """Measures a revision of the demonstration's history with some settings."""

    demo: History
    furnished: Path
    run_dir: Path
    given: dict[str, str]

    @property
    def settings(self) -> Settings:
        return options.load(self.given, directory=self.furnished).settings

    def measured(self, rev: str, fill: Fill, *, stop: StopRule | None = None, n: int = 1) -> Trial:
        settings, run_dir = self.settings, self.run_dir
        with RunDirectory(run_dir).lock():
            repository = Repository.open(Path(self.demo.repo), run_marker=run_dir)
            cell = Cell(Subject(repository.resolve(rev)), settings.setup)
            with local_executor(settings, run_dir, repository, lambda event: None) as executor:
                return fakes.measured(executor, TrialRequest(n, cell, {}, stop=stop, fill=fill))


@pytest.mark.waits
def test_smq_is_filled_in_whole_periods_less(demo: History, furnished: Path, tmp_path: Path) -> None:
    """The judged run begins at the same moment of a minute as after a whole fill, within some seconds.

    So it is with a kernel that is as slow at the end of a minute as at its beginning. The fixed one became seven times
    as fast in second 57 of such a run, and half as fast again in second 115, so that it was filled whole.
    """
    trial = Bench(demo, furnished, tmp_path, LONG | SMALL).measured(OLD_TAG, Fill.SHORT)
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


@pytest.mark.quiet
def test_a_write_cache_is_filled_until_it_is_written_back_and_then_measures_the_same(
    demo: History, furnished: Path, tmp_path: Path
) -> None:
    """The run after a short fill is held against the whole run of the same kernel, and ends once it is like that."""
    given = SMALL | {
        "storage.stack": "lvmwritecache(ssd,hdd)+ext4",
        "storage.lvmwritecache.cache_size": "16MiB",
        "workload.job": str(Path(__file__).parents[2] / "fio" / "rand-write-iops.fio"),
        "bisect.metric": "write.iops",
    }
    bench, length_s = Bench(demo, furnished, tmp_path, given), 40.0
    objective = bench.settings.bisect.objective
    whole = bench.measured(NEW_TAG, Fill.WHOLE)
    assert whole.is_whole
    rates = Curves(objective, tmp_path, length_s).rates(whole)
    own = Counterpart(whole.commit.sha, True, batch_s(length_s), tuple(tuple(map(float, one)) for one in rates))
    # On two cores that emulate a guest, pieces of 1.5 s differ by more than the factor that a bisection allows.
    alike = Alike(own, 2.0)
    rule = StopRule(objective.value(whole.runs[-1]) / 3, length_s, length_s / 3, objective, alike=alike)
    trial = bench.measured(NEW_TAG, Fill.SHORT, stop=rule, n=2)
    assert trial.fault is None
    empty, full = trial.runs
    assert empty.stopped_early is not None
    assert empty.stopped_early.reason is StopReason.SETTLED
    assert empty.stopped_early.at_s < 38
    assert dict(full.counters)["cache.filled_before"] >= 95
    assert full.stopped_early is not None
    assert (full.stopped_early.reason, full.stopped_early.against) == (StopReason.ABOVE, whole.commit.sha)
    assert length_s / 3 <= full.stopped_early.at_s < length_s
    assert trial.unlike is not None
    assert 0.5 < trial.unlike < 2.0
    assert not trial.bears_answer
