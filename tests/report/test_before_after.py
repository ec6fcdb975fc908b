"""The lines of a comparison by any metric: names, units, and what the layers of the storage counted."""

from dataclasses import replace

import pytest

from bisector.core.figures import Run
from bisector.core.objective import Objective
from bisector.report.document import Basis, BeforeAfter, CommitSide, lines, name_of
from tests.examples import commit, job, run, trial

MIB_KIB = 1024.0


def compared(metric: str, *runs: Run) -> BeforeAfter:
    before, after = (CommitSide(commit(n), (trial(commit(n), one),)) for n, one in enumerate(runs))
    return BeforeAfter(before, after, Basis.PARENT, Objective(metric))


def mixed(read: float, written_kib_s: float) -> Run:
    """A job that reads and writes."""
    both = (job("a/1", read), replace(job("a/1", 50.0, "write"), bw_kib_s=written_kib_s))
    return replace(run("full"), jobs=both)


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        ("read.iops", "fio.read_iops"),
        ("write.bw", "fio.write_bw_MiB_s"),
        ("read.clat.p99", "fio.read_clat_99%_us"),
        ("read.clat.p99.9", "fio.read_clat_99.9%_us"),
        ("elapsed", "elapsed_s"),
        ("cache.hit_ratio", "cache_hit_ratio_percent"),
    ],
)
def test_a_name_has_its_unit(metric: str, name: str) -> None:
    assert name_of(Objective(metric)) == name


def test_jobs_show_the_metric_that_decides_in_its_direction() -> None:
    found = compared("write.bw", mixed(1000.0, 80 * MIB_KIB), mixed(1000.0, 20 * MIB_KIB)).metrics
    assert [(one.name, one.before, one.after) for one in found[:2]] == [
        ("fio.write_bw_MiB_s", (80.0,), (20.0,)),
        ("fio.full.a/1.write_bw_MiB_s", (80.0,), (20.0,)),
    ]
    assert [one.name.split(".")[-1] for one in found[2:]] == ["write_iops", "write_clat_mean_us", "write_clat_99%_us"]


def test_a_metric_of_the_whole_job_stands_with_each_job() -> None:
    found = compared("elapsed", mixed(1000.0, 80.0), mixed(1000.0, 80.0)).metrics
    assert [one.name for one in found[:3]] == ["elapsed_s", "fio.full.a/1.elapsed_s", "fio.full.a/1.read_iops"]


def test_layers_name_what_they_counted() -> None:
    """One that this version does not know has no unit."""
    before, after = (
        replace(run("full", 100.0), counters=(("cache.hit_ratio", hits), ("warm.laps", 3.0))) for hits in (25.0, 75.0)
    )
    made = compared("read.iops", before, after)
    assert [(one.name, one.before, one.after) for one in made.metrics[-2:]] == [
        ("full.cache_hit_ratio_percent", (25.0,), (75.0,)),
        ("full.warm_laps", (3.0,), (3.0,)),
    ]
    assert lines(made, [])[-2].split() == ["25.00", "+200.0%", "75.00", "full.cache_hit_ratio_percent"]
