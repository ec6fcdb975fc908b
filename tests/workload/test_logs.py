from pathlib import Path

import numpy as np
import pytest

from bisector.workload.fio import output
from bisector.workload.fio.logs import LogUnreadable, from_its_start, job_number, parse_log, resample

DATA = Path(__file__).parent.parent / "data" / "fio"
LOG = (DATA / "partial_iops.1.log").read_text(encoding="utf-8")


def test_a_real_log_sums_up_to_fios_own_count() -> None:
    job = output.parse_json((DATA / "partial-3.33.json").read_text(encoding="utf-8"))[0]
    series = parse_log(LOG)
    ios = float(np.sum(series.iops * (series.end_ms - series.start_ms)) / 1000)
    assert ios == pytest.approx(job.total_ios, rel=0.01)


@pytest.mark.parametrize("step_ms", [250.0, 500.0, 1000.0, 5000.0])
def test_resampling_keeps_the_number_of_ios(step_ms: float) -> None:
    series = parse_log(LOG)
    grid = resample(series, step_ms, 40_000)
    assert grid.size == 40_000 / step_ms
    before_40_s = float(np.sum(series.iops * (np.minimum(series.end_ms, 40_000) - series.start_ms)))
    assert float(grid.sum()) * step_ms == pytest.approx(before_40_s, rel=1e-9)


def test_a_short_gap_belongs_to_the_line_after_it_and_a_long_one_is_idle() -> None:
    series = parse_log("500, 100, 0, 0, 0\n1000, 100, 0, 0, 0\n2000, 50, 0, 0, 0\n2500, 10, 0, 0\n9500, 80, 0\n")
    assert resample(series, 500, 9500).tolist() == [100, 100, 50, 50, 10, *[0] * 13, 80]


def test_directions_are_apart() -> None:
    text = "500, 100, 0, 4096\n500, 7, 1, 4096\n1000, 100, 0, 4096\n1000, 7, 1, 4096\n"
    assert parse_log(text, "write").iops.tolist() == [7, 7]
    assert resample(parse_log(text, "trim"), 500, 1000).tolist() == [0, 0]
    assert parse_log(text, "mixed").end_ms.size == 0  # nothing is logged as mixed


@pytest.mark.parametrize("name", ["a", "b", "c"])  # with offsets and priorities, with times since 1970, old
def test_logs_of_others_begin_at_0(name: str) -> None:
    series = from_its_start(parse_log((DATA / "others" / f"{name}_iops.1.log").read_text(encoding="utf-8")), 20_000)
    assert series.end_ms.tolist() == [500.0 * n for n in range(1, series.end_ms.size + 1)]
    assert (series.end_ms - series.start_ms).tolist() == [500.0] * series.end_ms.size
    assert series.iops[:3].tolist() == [3003, 3006, 3002]


def test_a_job_that_stood_still_at_first_is_not_moved() -> None:
    series = parse_log("39500, 10, 0, 0\n40000, 10, 0, 0\n")
    assert from_its_start(series, 40_000) is series


def test_a_log_of_two_values() -> None:
    text = "500, 3003, 3003, 0, 4096, 0\n500, 1, 1, 1, 4096, 0\n1000, 2, 2, 0, 4096, 0\n"
    assert (parse_log(text).iops.tolist(), parse_log(text, "write").iops.tolist()) == ([3003, 2], [1])


def test_a_damaged_line_is_named() -> None:
    with pytest.raises(LogUnreadable, match="line 2"):
        parse_log("500, 100, 0\n1000, \n")


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("partial_iops.2.log", 2),
        ("run10_iops.1.log", 1),
        ("partial_iops.log", 1),
        ("partial_bw.1.log", None),
        ("partial_iops.1.log.gz", None),
        ("fio.json", None),
    ],
)
def test_a_log_is_known_by_its_name(name: str, number: int | None) -> None:
    assert job_number(name) == number
