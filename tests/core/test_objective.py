"""Which value of a run decides, and what its score is."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import InfraError, UserError
from bisector.core.figures import Contention, Latency, Run
from bisector.core.metric import LatencyKind, Value, named
from bisector.core.objective import OVER, MetricAbsent, Objective, available, values, values_of
from bisector.workload.fio.output import parse_json

PARTIAL = Path(__file__).parent.parent / "data" / "fio" / "partial-3.33.json"
COUNTERS = (("cache.hit_ratio", 90.0), ("cache.dirty_blocks", 3.0))


@pytest.fixture(scope="module")
def run() -> Run:
    jobs = parse_json(PARTIAL.read_text(encoding="utf-8"))
    return Run("full", "2024-01-01T00:00:00+00:00", 44.0, jobs, None, None, Contention(0, 0, 0), 0.0, counters=COUNTERS)


def value(run: Run, name: str, job: str) -> float:
    (found,) = [one.value for one in values(run) if (one.name, one.job) == (name, job)]
    return found


def test_values_of_a_real_run_are_fios(run: Run) -> None:
    """Of fio 3.33's own JSON, in the metrics' units; each is of a metric that exists."""
    assert value(run, "read.iops", "partial/1") == pytest.approx(run.jobs[0].iops_mean)
    assert value(run, "read.bw", "partial/1") == run.jobs[0].bw_kib_s * 1024
    assert value(run, "read.clat.p99", "partial/2") == run.jobs[1].clat_p99_ns
    assert value(run, "read.slat.mean", "partial/1") > 0
    assert value(run, "elapsed", "partial/1") == pytest.approx(run.jobs[0].runtime_ms / 1000)
    assert value(run, "cpu.user", "partial/1") > 0
    for one in values(run):
        assert named(one.name).unit
    assert len({(one.name, one.job) for one in values(run)}) == len(values(run))


def test_the_values_of_one_metric_are_those_among_all(run: Run) -> None:
    mixed = replace(run, jobs=(*run.jobs, replace(run.jobs[0], direction="write", iops_mean=7.0)))
    for name in {value.name for value in values(mixed)} | {"trim.iops", "write.clat.p42"}:
        assert values_of(mixed, name) == tuple(value for value in values(mixed) if value.name == name), name


def test_syncs_are_of_the_job_and_none_of_its_directions(run: Run) -> None:
    sync = Latency(LatencyKind.SYNC, 410e3, 21e6, 1180e3, 611e3, ((50.0, 970e3), (99.0, 3294e3)))
    jobs = [replace(run.jobs[0], name="a", direction=one, latencies=(sync,)) for one in ("read", "write")]
    synced = replace(run, jobs=(*jobs, replace(run.jobs[0], name="b", latencies=())))
    objective = Objective("sync.lat.p99")
    assert (objective.value(synced), objective.label) == (3294e3, "sync.lat.p99 of the worst job")
    assert objective.text(3294e3) == "3.29 ms"
    assert Objective("sync.lat.mean", "a").value(synced) == 1180e3
    assert [value.name for value in values(synced) if "sync" in value.name] == [
        f"sync.lat.{one}" for one in ("min", "mean", "max", "stddev", "p50", "p99")
    ]
    assert named("sync.lat.p99.90").sentence.startswith("99.9th percentile of the time of an fsync")
    with pytest.raises(MetricAbsent, match=r"has no sync\.lat\.p99"):
        objective.value(run)


def two(run: Run, *iops: float) -> Run:
    return replace(run, jobs=tuple(replace(job, iops_mean=one) for job, one in zip(run.jobs, iops, strict=True)))


@pytest.mark.parametrize("over", OVER)
def test_what_is_of_the_run_is_of_no_job(run: Run, over: str) -> None:
    assert Objective("cache.hit_ratio", over).label == "cache.hit_ratio"
    assert Objective("cache.hit_ratio", over).deciding_text(run) == "90.0 % (cache.hit_ratio)"
    assert Objective("cpu.user").label == "cpu.user of the worst job"
    assert {name for name in available(run) if not Objective(name).is_of_jobs} == {name for name, _ in COUNTERS}


@pytest.mark.parametrize(("over", "expected"), [("sum", 500), ("mean", 250), ("partial/1", 300)])
def test_several_jobs_become_one_value(run: Run, over: str, expected: float) -> None:
    assert Objective("read.iops", over).value(two(run, 300, 200)) == expected


def test_a_larger_score_is_better_whatever_the_metric() -> None:
    rate, latency = Objective("read.iops"), Objective("read.clat.p99")
    assert rate.score(200) > rate.score(100)
    assert latency.score(2e6) > latency.score(9e6)
    for one in (rate, latency):
        assert one.value_of(one.score(1234.0)) == pytest.approx(1234.0)
        assert abs(one.score(300) - one.score(100)) == pytest.approx(math.log(3))


def test_a_metric_that_the_run_does_not_have_is_refused_with_those_that_it_has(run: Run) -> None:
    with pytest.raises(MetricAbsent, match=r"full run has no write\.iops") as caught:
        Objective("write.iops").value(run)
    assert all(name in caught.value.hint for name in ("read.iops", "read.clat.p99", "elapsed", "cache.hit_ratio"))
    assert "write.iops" not in available(run)
    with pytest.raises(MetricAbsent, match="no job 'other'") as caught:
        Objective("read.iops", "other").value(run)
    assert "partial/1, partial/2" in caught.value.hint


@pytest.mark.parametrize("over", ["worst", "mean"])
def test_the_worst_of_some_jobs_is_not_the_worst_of_all(run: Run, over: str) -> None:
    """A job can be told to compute other percentiles than the rest, or none."""
    silent = replace(run, jobs=(replace(run.jobs[0], clat_p99_ns=None, latencies=()), run.jobs[1]))
    with pytest.raises(MetricAbsent, match=r"job partial/1 has no read\.clat\.p99") as caught:
        Objective("read.clat.p99", over).value(silent)
    assert "--over partial/2" in caught.value.hint
    assert Objective("read.clat.p99", "partial/2").value(silent) == run.jobs[1].clat_p99_ns


@pytest.mark.parametrize("iops", [-1.0, 0.0, math.nan, math.inf])
def test_a_job_that_stood_still_is_no_slow_one_and_a_count_of_nothing_cannot_be_compared(run: Run, iops: float) -> None:
    with pytest.raises(InfraError, match="not a measurement"):
        Objective("read.iops").value(two(run, 300, iops))
    with pytest.raises(UserError, match="above zero"):
        Objective("cache.dirty_blocks").value(replace(run, counters=(("cache.dirty_blocks", iops),)))


@pytest.mark.parametrize(
    ("metric", "over", "message"),
    [
        ("read.clat.mean", "sum", "is not a figure"),
        ("cache.promotions", "worst", "neither more nor less"),
        ("cache.hit_ratio", "partial/1", "is of the run as a whole"),
        ("reads", "worst", "there is no metric"),
    ],
)
def test_objectives_that_order_nothing(metric: str, over: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Objective(metric, over).check()
    Objective("read.bw", "sum").check()


def split(run: Run, *parts: tuple[float | None, float | None]) -> Run:
    jobs = zip(run.jobs, parts, strict=True)
    return replace(run, jobs=tuple(replace(job, steady_iops=one, settled_after_s=at_s) for job, (one, at_s) in jobs))


def test_the_steady_part_of_the_worst_job_decides_and_the_time_to_it_is_of_the_run(run: Run) -> None:
    parted = split(run, (3000.0, 14.0), (2900.0, 16.0))
    steady, settled = Objective("read.iops.steady"), Objective("settled_after")
    assert steady.deciding(parted) == Value("read.iops.steady", "partial/2", 2900.0)
    assert settled.deciding(parted) == Value("settled_after", "", 16.0)
    assert steady.heading == "steady IOPS"
    assert Objective("write.iops.steady").heading == "write steady IOPS"
    assert steady.cell(2900.0) == "2,900"
    assert settled.score(8.0) > settled.score(16.0)


@pytest.mark.parametrize("metric", ["read.iops.steady", "settled_after"])
def test_a_run_without_a_steady_part_says_how_long_it_would_have_to_be(run: Run, metric: str) -> None:
    with pytest.raises(InfraError, match="the full run has no steady part in 40 s, and would have to be 80 s long"):
        Objective(metric).value(split(run, (None, 40.001), (None, 40.001)))
    with pytest.raises(MetricAbsent, match=f"the full run has no {metric}: no log of the IOPS of each job was read"):
        Objective(metric).value(run)


def test_a_run_is_not_settled_while_one_direction_is_not(run: Run) -> None:
    job, other = run.jobs
    reads, writes = replace(job, steady_iops=700.0, settled_after_s=4.0), replace(other, direction="write")
    both = replace(run, jobs=(reads, replace(writes, settled_after_s=40.0)))
    assert Objective("read.iops.steady").value(both) == 700.0
    with pytest.raises(InfraError, match="no steady part in 40 s"):
        Objective("settled_after").value(both)
