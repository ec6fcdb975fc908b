"""The file of nights: what an older version wrote, and values of any metric."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.objective import Objective
from bisector.store.nights import HISTORY, Concluded, Figure, Measurement, NightRecord, Role

LATENCY = Measurement(
    Role.TIP, "main", "c" * 40, "a", 5e6, 2.0, "box", "gcc", 16e6, "", "", 1, 60.0, Path("/x"),
    (Figure("full", "job0", "read.clat.p99", 16e6), Figure("full", "", "cache.hit_ratio", 93.5)),
    "read.clat.p99", "sum",
)  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that version 1 wrote; its jobs read and wrote."""
    written = Path(__file__).parents[1] / "data/records/nights-version-1.sqlite.gz"
    path = tmp_path / HISTORY
    path.write_bytes(gzip.decompress(written.read_bytes()))
    return path


@pytest.mark.parametrize("readonly", [True, False])
def test_nights_that_version_1_wrote_mean_what_they_meant(path: Path, readonly: bool) -> None:
    with NightRecord.open(path, readonly) as record:
        facts = [event.fact for event in record.events()]
    first, second = (fact for fact in facts if isinstance(fact, Measurement))
    assert first.objective == second.objective == Objective()
    assert [(one.value, one.threshold) for one in (first, second)] == [(4000.0, None), (501.0, 1500.0)]
    assert first.figures == tuple(
        Figure(run, name, metric, value)
        for run in ("empty", "full")
        for name, metric, value in (
            ("job0", "read.iops", 4000.0),
            ("job0", "write.iops", 2000.0),
            ("job1", "read.iops", 8000.0),
        )
    )
    assert [fact.new_value for fact in facts if isinstance(fact, Concluded)] == [499.0]


def test_values_of_any_metric_go_on_from_there(path: Path) -> None:
    with NightRecord.open(path) as record:
        night = record.begin(Path("nightly.toml"), 60.0)
        record.add(night, "cache", LATENCY)
        record.add(night, "cache", replace(LATENCY, value=None, threshold=None, figures=()))
    with NightRecord.open(path, readonly=True) as record:
        assert [event.fact for event in record.events()][-2:] == [
            LATENCY,
            replace(LATENCY, value=None, threshold=None, figures=()),
        ]
