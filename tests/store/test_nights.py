"""The log of nights: which night and job each fact is of, and the figures of the trial that counts."""

from dataclasses import replace
from pathlib import Path

from bisector.store.log import DATABASE
from bisector.store.nights import Begun, Done, Ending, Figure, Measurement, NightRecord, Role
from bisector.store.store import Store
from tests.store import examples

LATENCY = Measurement(
    Role.TIP, "main", "c" * 40, "a", 5e6, 2.0, "box", "gcc", 16e6, "", "", 1, 60.0, Path("/jobs/x/trials/0001-c"),
    metric="read.clat.p99", over="sum",
)  # fmt: skip


def test_facts_are_of_the_night_and_the_job_that_began_last(tmp_path: Path) -> None:
    with NightRecord.open(tmp_path / DATABASE) as record:
        assert record.begin(Path("nightly.toml"), 60.0) == 1
        for fact in (Begun("cache"), LATENCY, Done(), Begun("disk"), replace(LATENCY, value=None)):
            record.add(fact)  # and then it was killed
        assert record.begin(Path("nightly.toml"), 90.0) == 2
        record.add(Begun("cache"))
        record.end(Ending.OUT_OF_TIME)
    with NightRecord.open(tmp_path / DATABASE, readonly=True) as record:
        assert [(one.n, one.budget_s, one.ending) for one in record.nights()] == [
            (1, 60.0, None),
            (2, 90.0, Ending.OUT_OF_TIME),
        ]
        assert [(one.night, one.job, one.fact) for one in record.events()] == [
            (1, "cache", Begun("cache")),
            (1, "cache", LATENCY),
            (1, "cache", Done()),
            (1, "disk", Begun("disk")),
            (1, "disk", replace(LATENCY, value=None)),
            (2, "cache", Begun("cache")),
        ]


def test_figures_are_those_of_the_trial_that_counts(tmp_path: Path) -> None:
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
    path = tmp_path / DATABASE
    with NightRecord.open(path) as record, Store.create(run_dir / DATABASE, examples.bisection()) as store:
        record.add(measured)
        assert record.events()[-1].fact == measured
        store.add_trials((examples.faulty(1), examples.measured(2)))
        assert record.events()[-1].fact == replace(measured, figures=figures)
        record.add(replace(measured, n=None))
        assert record.events()[-1].fact == replace(measured, n=None)
    (run_dir / DATABASE).unlink()
    with NightRecord.open(path, readonly=True) as record:
        assert record.events()[-2].fact == measured
