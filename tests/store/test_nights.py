"""The file of nights: what an older version wrote, and values of any metric."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.objective import Objective
from bisector.store.database import DATABASE
from bisector.store.night_schema import NIGHTS
from bisector.store.nights import HISTORY, Concluded, Ending, Figure, Measurement, NightRecord, Role
from bisector.store.store import Store
from tests.store import examples

FILES = Path(__file__).parents[1] / "data/records"
LATENCY = Measurement(
    Role.TIP, "main", "c" * 40, "a", 5e6, 2.0, "box", "gcc", 16e6, "", "", 1, 60.0, Path("/jobs/x/trials/0001-c"),
    metric="read.clat.p99", over="sum",
)  # fmt: skip


def written_by(version: int, directory: Path) -> Path:
    path = directory / HISTORY
    path.write_bytes(gzip.decompress((FILES / f"nights-version-{version}.sqlite.gz").read_bytes()))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that version 1 wrote; its jobs read and wrote."""
    return written_by(1, tmp_path)


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


@pytest.mark.parametrize("readonly", [True, False])
@pytest.mark.parametrize("version", [2, 3])
def test_nights_of_later_versions_mean_what_they_meant(tmp_path: Path, version: int, readonly: bool) -> None:
    """Each file was written by the record of the commit that brought its version."""
    path = written_by(version, tmp_path)
    with NightRecord.open(path, readonly) as record:
        (measured,) = (event.fact for event in record.events() if isinstance(event.fact, Measurement))
        assert (measured.value, measured.objective, measured.n) == (8000.0, Objective("read.iops", "job1"), None)
        assert measured.figures == tuple(
            Figure(run, name, "read.iops", value)
            for run in ("empty", "full")
            for name, value in (("job0", 4000.0), ("job1", 8000.0))
        )
        assert [night.ending for night in record.nights()] == [Ending.DONE]


@pytest.mark.parametrize("readonly", [True, False])
def test_nights_that_version_4_wrote_are_of_an_era_that_is_not_known(tmp_path: Path, readonly: bool) -> None:
    with NightRecord.open(written_by(4, tmp_path), readonly) as record:
        (measured,) = (event.fact for event in record.events() if isinstance(event.fact, Measurement))
    assert (measured.value, measured.era) == (8000.0, "")


def test_there_is_a_file_of_each_older_version() -> None:
    found = {path.name for path in FILES.glob("nights-*")}
    assert found == {f"nights-version-{version}.sqlite.gz" for version in range(1, NIGHTS.version)}


def test_values_of_any_metric_go_on_from_there(path: Path) -> None:
    with NightRecord.open(path) as record:
        night = record.begin(Path("nightly.toml"), 60.0)
        record.add(night, "cache", LATENCY)
        record.add(night, "cache", replace(LATENCY, value=None, threshold=None))
    with NightRecord.open(path, readonly=True) as record:
        assert [event.fact for event in record.events()][-2:] == [LATENCY, replace(LATENCY, value=None, threshold=None)]


def test_figures_are_those_of_the_trial_that_counts(path: Path, tmp_path: Path) -> None:
    """By the metric of that night, out of the job's store; a store that is gone has none, and costs no history."""
    run_dir = tmp_path / "job"
    run_dir.mkdir()
    measured = Measurement(
        Role.TIP, "main", "c" * 40, "a", None, 2.0, "box", "gcc", 1002.25, "", "", 2, 60.0,
        run_dir / "trials/0002-c", n=2,
    )  # fmt: skip
    figures = tuple(
        Figure(run, name, "read.iops", value)
        for run in ("empty", "full")
        for name, value in (("job0", 1002.25), ("job1", 8046.0))
    )
    with NightRecord.open(path) as record, Store.create(run_dir / DATABASE, examples.bisection()) as store:
        night = record.begin(Path("nightly.toml"), 60.0)
        record.add(night, "cache", measured)
        assert record.events()[-1].fact == measured
        store.add_trials((examples.faulty(1), examples.measured(2)))
        assert record.events()[-1].fact == replace(measured, figures=figures)
        record.add(night, "cache", replace(measured, n=None))
        assert record.events()[-1].fact == replace(measured, n=None)
    (run_dir / DATABASE).unlink()
    with NightRecord.open(path, readonly=True) as record:
        assert record.events()[-2].fact == measured
