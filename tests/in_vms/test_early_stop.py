"""A run that is ended while it lasts: a real fio in a real guest, on a kernel of either side."""

from dataclasses import replace
from pathlib import Path

import pytest

from bisector.analysis.early_stop import StopRule
from bisector.config import options
from bisector.core.figures import StopReason
from bisector.core.subject import Cell, Subject
from bisector.executor.local import local_executor
from bisector.git.repository import Repository
from bisector.store.rundir import RunDirectory
from bisector.trial.runner import TrialRequest
from bisector.workload.fio import output
from bisector.workload.fio.logs import parse_log
from scenarios.demo.history import History
from tests import fakes

pytestmark = [pytest.mark.vm, pytest.mark.quiet]

# The default sizes by four, and shorter runs. Only for the broken kernel: the fixed one becomes fast a minute after
# its cache was made, whatever the sizes.
SMALL = {
    "storage.cache_size": "16MiB",
    "workload.file_size": "8MiB",
    "workload.runtime": "15s",
    "storage.ssd.size": "128MiB",
    "storage.hdd.size": "256MiB",
}


@pytest.mark.parametrize(
    ("rev", "reason"),
    [
        pytest.param("{}^", StopReason.NOT_ABOVE, id="broken"),
        pytest.param("{}", StopReason.ABOVE, id="fixed", marks=pytest.mark.rare),
    ],
)
def test_a_run_whose_side_is_clear_is_ended(
    demo: History, furnished: Path, tmp_path: Path, rev: str, reason: StopReason
) -> None:
    sizes = SMALL if reason is StopReason.NOT_ABOVE else {}
    settings = options.load(sizes, directory=furnished).settings
    rule = StopRule(1_200.0, float(settings.workload.runtime_s), 9.0 if reason is StopReason.NOT_ABOVE else None)
    # Of a run whose lock is free any other one would end the guest.
    with RunDirectory(tmp_path).lock():
        repository = Repository.open(Path(demo.repo), run_marker=tmp_path)
        commit = repository.resolve(rev.format(demo.culprit.sha))
        with local_executor(settings, tmp_path, repository, lambda event: None) as executor:
            trial = fakes.measured(executor, TrialRequest(1, Cell(Subject(commit), settings.setup), {}, (), rule))
    assert trial.fault is None
    empty, full = trial.runs
    assert empty.stopped_early is None
    assert full.stopped_early is not None
    assert full.stopped_early.reason is reason
    assert full.stopped_early.at_s < rule.runtime_s - 1
    assert full.duration_s < empty.duration_s
    # What fio wrote at last is whole, and of this run alone.
    (logs,) = (tmp_path / "trials").glob("*/full")
    told = output.parse_json((logs / "fio.json").read_text(encoding="utf-8"))
    assert told == tuple(replace(job, steady_iops=None) for job in full.jobs)
    assert all(job.steady_iops for job in full.jobs)  # of the end, since it was stopped
    assert all(job.runtime_ms / 1000 >= full.stopped_early.at_s for job in full.jobs)
    lasted_s = [parse_log(log.read_text(encoding="utf-8")).end_ms[-1] / 1000 for log in logs.glob("*_iops*.log")]
    assert lasted_s == [pytest.approx(full.stopped_early.at_s, abs=2.0)] * 2
