"""Percentiles, and the I/Os that they rest on."""

from dataclasses import replace

import pytest

from bisector.analysis.quality import thin_tail
from bisector.core.figures import Run
from bisector.core.objective import Objective
from tests.examples import run


def of_ios(*counts: int) -> Run:
    """A run whose jobs did so many reads."""
    one = run("full", 100.0)
    jobs = tuple(replace(one.jobs[0], name=f"job/{n}", total_ios=ios) for n, ios in enumerate(counts, 1))
    return replace(one, jobs=jobs)


@pytest.mark.parametrize(
    ("metric", "needed"),
    [
        ("read.clat.p99", 1_000),
        ("read.clat.p99.9", 10_000),
        ("read.lat.p99.99", 100_000),
        ("read.clat.p50", 20),
        ("read.clat.p1", 1_000),
        ("read.clat.p95", 200),
    ],
)
def test_ten_lie_beyond_it(metric: str, needed: int) -> None:
    assert thin_tail(Objective(metric), [of_ios(needed, needed + 1)]) == ""
    said = thin_tail(Objective(metric), [of_ios(needed + 1, needed - 1), of_ios(needed, needed)])
    assert said.startswith(f"{metric} of {needed - 1:,} I/Os of job job/2: about 9 of them lie beyond it")
    assert said.endswith(f"10 take {needed:,} I/Os")


def test_how_many_there_are() -> None:
    p99 = Objective("read.clat.p99")
    assert "about 3 of them lie beyond it" in thin_tail(p99, [of_ios(312)])
    assert "one of them lies beyond it" in thin_tail(p99, [of_ios(100)])
    assert "none of them lies beyond it" in thin_tail(p99, [of_ios(99)])


def test_what_it_is_not_about() -> None:
    for metric in ("read.iops", "read.clat.max", "read.clat.mean", "elapsed", "read.clat.p100"):
        assert thin_tail(Objective(metric), [of_ios(1)]) == ""
    assert thin_tail(Objective("write.clat.p99"), [of_ios(1)]) == ""
    assert thin_tail(Objective("read.clat.p99"), []) == ""
    assert thin_tail(Objective("read.clat.p99", "job/1"), [of_ios(1000, 1)]) == ""
    assert thin_tail(Objective("read.clat.p99", "job/2"), [of_ios(1000, 1)]) != ""
