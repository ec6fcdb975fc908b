"""The log of nights: which night and job each fact is of, and the figures of the trial that counts."""

from dataclasses import replace
from pathlib import Path

from bisector.core.objective import Objective
from bisector.store.log import DATABASE
from bisector.store.nights import JobBegun, JobDone, Measurement, NightEnding, NightRecord, TipRole
from bisector.store.store import Store
from tests.store import examples

LATENCY = Measurement(
    TipRole.TIP, "main", "c" * 40, "a", 5e6, 2.0, "box", 16e6, "", "", 1, 60.0, Path("/jobs/x/trials/0001-c"),
    Objective("read.clat.p99", "sum"),
)  # fmt: skip


def test_facts_are_of_the_night_and_the_job_that_began_last(tmp_path: Path) -> None:
    with NightRecord.open(tmp_path / DATABASE) as record:
        assert record.begin(Path("nightly.toml"), 60.0) == 1
        for fact in (JobBegun("cache"), LATENCY, JobDone(), JobBegun("disk"), replace(LATENCY, value=None)):
            record.add(fact)  # and then it was killed
        assert record.begin(Path("nightly.toml"), 90.0) == 2
        record.add(JobBegun("cache"))
        record.end(NightEnding.OUT_OF_TIME)
    with NightRecord.open(tmp_path / DATABASE, readonly=True) as record:
        assert [(one.n, one.budget_s, one.ending) for one in record.nights()] == [
            (1, 60.0, None),
            (2, 90.0, NightEnding.OUT_OF_TIME),
        ]
        assert [(one.night, one.job, one.fact) for one in record.events()] == [
            (1, "cache", JobBegun("cache")),
            (1, "cache", LATENCY),
            (1, "cache", JobDone()),
            (1, "disk", JobBegun("disk")),
            (1, "disk", replace(LATENCY, value=None)),
            (2, "cache", JobBegun("cache")),
        ]


def test_a_measurement_has_the_trial_that_counts(tmp_path: Path) -> None:
    """A run directory that is gone has none, and costs no history."""
    run_dir = tmp_path / "job"
    run_dir.mkdir()
    measured = replace(LATENCY, directory=run_dir / "trials/0002-c", n=2)
    path = tmp_path / DATABASE
    with NightRecord.open(path) as record, Store.create(run_dir / DATABASE, examples.bisection()) as store:
        record.add(measured)
        record.add(replace(measured, n=None))
        assert [event.trial for event in record.events()] == [None, None]
        store.add_trials((examples.faulty(1), examples.measured(2)))
        assert [event.trial for event in record.events()] == [examples.measured(2), None]
    (run_dir / DATABASE).unlink()
    with NightRecord.open(path, readonly=True) as record:
        assert next((event.fact, event.trial) for event in record.events()) == (measured, None)
