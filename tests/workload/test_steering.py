"""What a run is held against while it lasts, from the status that fio 3.33 wrote."""

from pathlib import Path

import pytest

from bisector.analysis.early_stop import StopRule
from bisector.core.figures import StopReason
from bisector.core.objective import Objective
from bisector.workload.fio.fio import FioWatch
from bisector.workload.fio.output import last_document, parse_json

STATUS = (Path(__file__).parent.parent / "data" / "fio" / "steered-3.33.txt").read_text(encoding="utf-8")


def steered(objective: Objective, threshold: float) -> FioWatch:
    """After all of it; the run was to last 40 s."""
    steering = FioWatch("full", lambda sample: None, StopRule(threshold, 40.0, objective=objective))
    for line in STATUS.splitlines():
        steering.hear(line)
    return steering


@pytest.mark.parametrize(
    ("objective", "threshold"),
    [(Objective(), 1.0), (Objective("read.bw"), 4096.0), (Objective("read.bw", "sum"), 4096.0)],
)
def test_what_the_metric_counts_is_followed(objective: Objective, threshold: float) -> None:
    """Every job has done more by the first status than the threshold asks of the whole run."""
    stop = steered(objective, threshold).stop
    assert stop is not None
    assert (stop.reason, stop.metric, stop.over) == (StopReason.ABOVE, objective.metric, objective.over)
    jobs = [job for job in parse_json(last_document(STATUS)) if job.direction == "read"]
    most = sum(job.bw_kib_s * 1024 for job in jobs) if "bw" in objective.metric else sum(job.iops_mean for job in jobs)
    assert 0 < stop.bound <= most * 1.01


def test_a_direction_that_no_job_has_is_never_clear() -> None:
    assert steered(Objective("write.iops"), 1.0).stop is None
